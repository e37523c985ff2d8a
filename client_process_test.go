package mcp

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"runtime/pprof"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// fakeServerVariable makes the test binary run as a fake server of the mode that
// it names. Re-executing the test binary costs no compile time, and works under
// the race detector.
const fakeServerVariable = "YAGENT_TEST_FAKE_MCP_SERVER"

func TestMain(m *testing.M) {
	if mode := os.Getenv(fakeServerVariable); mode != "" {
		runFakeProcess(mode)
	}
	if mode := os.Getenv(processHelperEnv); mode != "" {
		if !processHelper(mode) {
			fmt.Fprintf(os.Stderr, "there is no process helper %q\n", mode)
			os.Exit(97)
		}
		os.Exit(0)
	}
	flag.Parse()
	openPoller()
	before := takeInventory()
	code := m.Run()
	// A fuzzing run listens for signals until its end.
	if code == 0 && flag.Lookup("test.fuzz").Value.String() == "" {
		code = checkLeaks(before)
	}
	if code == 0 && nothingNarrows() {
		code = checkModesUsed()
	}
	os.Exit(code)
}

// openPoller makes the runtime open the descriptors that it polls with, which it
// does once and keeps.
func openPoller() {
	if r, w, err := os.Pipe(); err == nil {
		r.Close()
		w.Close()
	}
}

// inventory is what a run must leave as it found it.
type inventory struct {
	goroutines int
	files      int
	children   int
}

func takeInventory() inventory {
	return inventory{runtime.NumGoroutine(), countOpenFiles(), countChildren(os.Getpid())}
}

// countOpenFiles counts this process's descriptors; 0 where the system does not show them.
func countOpenFiles() int {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return 0
	}
	return len(entries)
}

// countChildren counts the processes whose parent is pid; 0 where the system does not show them.
func countChildren(pid int) int {
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	n := 0
	for _, path := range stats {
		stat, err := os.ReadFile(path)
		if err != nil {
			continue // ended meanwhile
		}
		after := stat[bytes.LastIndexByte(stat, ')')+1:]
		if fields := strings.Fields(string(after)); len(fields) > 1 && fields[1] == strconv.Itoa(pid) {
			n++
		}
	}
	return n
}

// settle returns the inventory once it is down to the one before, or as it is
// when the time is up: a goroutine that was joined may still be on its way out.
func settle(before inventory) inventory {
	deadline := time.Now().Add(3 * time.Second)
	for {
		now := takeInventory()
		if now.goroutines <= before.goroutines && now.files <= before.files && now.children <= before.children || time.Now().After(deadline) {
			return now
		}
		runtime.Gosched()
	}
}

func checkLeaks(before inventory) int {
	after := settle(before)
	if after.goroutines <= before.goroutines && after.files <= before.files && after.children <= before.children {
		return 0
	}
	fmt.Printf("FAIL: the tests left something behind: before %+v, after %+v\n", before, after)
	if after.goroutines > before.goroutines {
		_ = pprof.Lookup("goroutine").WriteTo(os.Stdout, 1)
	}
	return 1
}

// nothingNarrows reports whether every test ran, so that each mode had its chance.
func nothingNarrows() bool {
	for _, name := range []string{"test.run", "test.skip", "test.fuzz", "test.list"} {
		if f := flag.Lookup(name); f != nil && f.Value.String() != "" {
			return false
		}
	}
	return !testing.Short() && runtime.GOOS == "linux"
}

func checkModesUsed() int {
	usedModes.Lock()
	defer usedModes.Unlock()
	code := 0
	for _, name := range slices.Sorted(maps.Keys(fakeModes)) {
		if !usedModes.names[name] {
			fmt.Printf("FAIL: no test uses the fake server mode %q\n", name)
			code = 1
		}
	}
	for _, name := range unusedProcessHelpers() {
		fmt.Printf("FAIL: no test uses the process helper %q\n", name)
		code = 1
	}
	return code
}

var usedModes = struct {
	sync.Mutex
	names map[string]bool
}{names: map[string]bool{}}

// useMode records that a test uses a mode, and fails it for an unknown one.
func useMode(t testing.TB, mode string) string {
	t.Helper()
	if _, known := fakeModes[mode]; !known {
		t.Fatalf("there is no fake server mode %q", mode)
	}
	usedModes.Lock()
	defer usedModes.Unlock()
	usedModes.names[mode] = true
	return mode
}

// fakeConfig describes the test binary itself as a server of that mode.
func fakeConfig(t testing.TB, name, mode string) ServerConfig {
	t.Helper()
	return ServerConfig{Name: name, Command: os.Args[0], Env: fakeEnv(t, mode)}
}

func fakeEnv(t testing.TB, mode string, more ...string) []string {
	env := append(os.Environ(), fakeServerVariable+"="+useMode(t, mode), "GORACE=atexit_sleep_ms=0")
	return append(env, more...)
}

// newFakeClient starts a client of its own on a fake server.
func newFakeClient(t testing.TB, mode string, change func(*ClientConfig)) *MCPClient {
	t.Helper()
	cfg := ClientConfig{Name: "fake", Command: os.Args[0], Env: fakeEnv(t, mode)}
	if change != nil {
		change(&cfg)
	}
	c := NewMCPClient(cfg)
	if err := c.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.ForceShutdown(context.Background()); err != nil {
			t.Errorf("shutdown: %v", err)
		}
	})
	return c
}

// within bounds a test's waiting by a time that no healthy run needs.
func within(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func readyFakeClient(t testing.TB, mode string, change func(*ClientConfig)) *MCPClient {
	t.Helper()
	c := newFakeClient(t, mode, change)
	if err := c.WaitForReady(within(t)); err != nil {
		t.Fatal(err)
	}
	return c
}

// runFakeProcess is the fake server as a process. It does not return.
func runFakeProcess(mode string) {
	f := &fakeServer{mode: mode, how: fakeModes[mode], in: bufio.NewReader(os.Stdin), out: os.Stdout, stderr: os.Stderr, exit: os.Exit, killed: make(chan struct{})}
	f.serve()
	os.Exit(0)
}

// fakeMessage is what a fake server looks at in a line.
type fakeMessage struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params struct {
		Name      string          `json:"name"`
		Arguments json.RawMessage `json:"arguments"`
		Cursor    string          `json:"cursor"`
		RequestID json.RawMessage `json:"requestId"`
	} `json:"params"`
}

// fakeServer is one run of a fake server, as a process or in memory.
type fakeServer struct {
	mode   string
	how    fakeMode
	in     *bufio.Reader
	out    io.Writer
	stderr io.Writer
	exit   func(status int) // does not return
	killed chan struct{}    // closed when an in-memory server is killed

	mu    sync.Mutex    // guards the fields below and out
	held  []fakeMessage // requests not answered yet
	lists int           // tools/list requests seen
	calls int           // tools/call requests seen
	seen  []string      // lines received
}

// serve answers until its input ends.
func (f *fakeServer) serve() {
	if boot := f.how.boot; boot != nil {
		boot(f)
	}
	for {
		line, err := f.in.ReadBytes('\n')
		if len(bytes.TrimSpace(line)) > 0 {
			f.receive(line)
		}
		if err != nil {
			return
		}
	}
}

func (f *fakeServer) receive(line []byte) {
	f.mu.Lock()
	f.seen = append(f.seen, string(bytes.TrimSpace(line)))
	f.mu.Unlock()
	var m fakeMessage
	if err := json.Unmarshal(line, &m); err != nil {
		f.send(`{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"Parse error"}}`)
		return
	}
	if take := f.how.take; take != nil && take(f, m) {
		return
	}
	f.normal(m)
}

func (f *fakeServer) send(line string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	_, _ = io.WriteString(f.out, line+"\n")
}

func (f *fakeServer) result(m fakeMessage, result string) {
	f.send(`{"jsonrpc":"2.0","id":` + string(m.ID) + `,"result":` + result + `}`)
}

func (f *fakeServer) fail(m fakeMessage, code int, message string) {
	f.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"error":{"code":%d,"message":%q}}`, m.ID, code, message))
}

// sleep waits, unless the server is killed first.
func (f *fakeServer) sleep(d time.Duration) {
	select {
	case <-time.After(d):
	case <-f.killed:
	}
}

// received returns the lines that came with a method.
func (f *fakeServer) received(method string) []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var lines []string
	for _, line := range f.seen {
		if strings.Contains(line, `"method":"`+method+`"`) {
			lines = append(lines, line)
		}
	}
	return lines
}

const fakeInstructions = "ask before you write"

func (f *fakeServer) normal(m fakeMessage) {
	switch m.Method {
	case "initialize":
		f.result(m, `{"protocolVersion":"2025-11-25","capabilities":{"tools":{"listChanged":true}},`+
			`"serverInfo":{"name":"fake","version":"1"},"instructions":"`+fakeInstructions+`"}`)
	case "ping":
		f.result(m, `{}`)
	case "tools/list":
		f.result(m, fakeTools("echo", "write"))
	case "tools/call":
		f.echo(m)
	default:
		if m.ID != nil && m.Method != "" {
			f.fail(m, -32601, "unknown method "+m.Method)
		}
	}
}

// echo answers a call with its server mode, tool and arguments.
func (f *fakeServer) echo(m fakeMessage) {
	text, _ := json.Marshal(f.mode + " " + m.Params.Name + " " + string(m.Params.Arguments))
	f.result(m, `{"content":[{"type":"text","text":`+string(text)+`}]}`)
}

func fakeTools(names ...string) string {
	var tools []string
	for _, name := range names {
		tools = append(tools, `{"name":"`+name+`","description":"does `+name+`","inputSchema":{"type":"object"}}`)
	}
	return `{"tools":[` + strings.Join(tools, ",") + `]}`
}

// fakeMode is one way of a fake server to behave. Whatever its hooks leave is
// done as the plain one does it.
type fakeMode struct {
	boot func(f *fakeServer)                     // before anything is read
	take func(f *fakeServer, m fakeMessage) bool // true: dealt with
}

// on hooks one method.
func on(method string, do func(f *fakeServer, m fakeMessage)) func(*fakeServer, fakeMessage) bool {
	return func(f *fakeServer, m fakeMessage) bool {
		if m.Method != method {
			return false
		}
		do(f, m)
		return true
	}
}

const fakeListChanged = `{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`

// fakeModes is the registry. A mode that no test uses fails a run that nothing narrows.
var fakeModes = map[string]fakeMode{
	"plain": {},

	// Lines that are no messages come before everything else.
	"junk-first": {boot: func(f *fakeServer) {
		for _, line := range []string{"Server started on stdio", "{\"level\":\"info\"}", "[1,2", "42", ""} {
			f.send(line)
		}
	}},

	// Four calls are collected, then answered last first.
	"reverse": {take: on("tools/call", func(f *fakeServer, m fakeMessage) {
		f.mu.Lock()
		f.held = append(f.held, m)
		held := slices.Clone(f.held)
		f.mu.Unlock()
		if len(held) < 4 {
			return
		}
		for _, m := range slices.Backward(held) {
			f.echo(m)
		}
	})},

	// Calls take two seconds.
	"slow": {take: on("tools/call", func(f *fakeServer, m fakeMessage) {
		f.sleep(2 * time.Second)
		f.echo(m)
	})},

	// Calls are never answered.
	"hang": {take: on("tools/call", func(*fakeServer, fakeMessage) {})},

	// A call ends the process.
	"die-on-call": {take: on("tools/call", func(f *fakeServer, m fakeMessage) {
		fmt.Fprintln(f.stderr, "fatal: the database is gone")
		f.exit(3)
	})},

	// One tool for each form of the hint.
	"tools-list": {take: on("tools/list", func(f *fakeServer, m fakeMessage) {
		f.result(m, `{"tools":[`+
			`{"name":"reads","inputSchema":{"type":"object"},"annotations":{"readOnlyHint":true}},`+
			`{"name":"writes","inputSchema":{"type":"object"},"annotations":{"readOnlyHint":false,"title":"Writes"}},`+
			`{"name":"unsaid","inputSchema":{"type":"object"},"annotations":{}},`+
			`{"name":"bare","inputSchema":{"type":"object"}}]}`)
	})},

	// Three pages; the last ends with an empty cursor.
	"tools-list-paged": {take: on("tools/list", func(f *fakeServer, m fakeMessage) {
		page := map[string]string{"": `"second"`, "second": `"third"`, "third": `""`}[m.Params.Cursor]
		f.result(m, strings.TrimSuffix(fakeTools("tool-"+m.Params.Cursor), "}")+`,"nextCursor":`+page+`}`)
	})},

	// Each page names another one.
	"tools-list-endless": {take: on("tools/list", func(f *fakeServer, m fakeMessage) {
		f.mu.Lock()
		f.lists++
		n := f.lists
		f.mu.Unlock()
		f.result(m, strings.TrimSuffix(fakeTools("tool-"+strconv.Itoa(n)), "}")+`,"nextCursor":"`+strconv.Itoa(n)+`"}`)
	})},

	"empty-list": {take: on("tools/list", func(f *fakeServer, m fakeMessage) { f.result(m, `{"tools":[]}`) })},

	// Says that its list changed before the first one is asked for, and again
	// with each call, which adds a tool.
	"list-changed": {take: func(f *fakeServer, m fakeMessage) bool {
		switch m.Method {
		case "notifications/initialized":
			f.send(fakeListChanged)
		case "tools/list":
			f.mu.Lock()
			names := []string{"echo"}
			for i := range f.calls {
				names = append(names, "added-"+strconv.Itoa(i+1))
			}
			f.mu.Unlock()
			f.result(m, fakeTools(names...))
		case "tools/call":
			f.mu.Lock()
			f.calls++
			f.mu.Unlock()
			f.send(fakeListChanged)
			f.echo(m)
		default:
			return false
		}
		return true
	}},

	// Never answers tools/list, and answers calls.
	"slow-list": {take: on("tools/list", func(*fakeServer, fakeMessage) {})},

	// Cheap servers for benchmarks.
	"minimal":     {boot: func(f *fakeServer) { serveMinimal(f, "hello, world") }},
	"minimal-mib": {boot: func(f *fakeServer) { serveMinimal(f, strings.Repeat("0123456789abcdef", 1<<16)) }},

	"minimal-modern": {
		boot: func(f *fakeServer) { serveMinimal(f, "hello, world") },
		take: on("server/discover", func(f *fakeServer, m fakeMessage) { f.result(m, discovered("2026-07-28")) }),
	},

	// Does not survive a request before initialize, as many servers.
	"die-on-probe": {take: on("server/discover", func(f *fakeServer, m fakeMessage) {
		fmt.Fprintln(f.stderr, "expected initialize, got "+m.Method)
		f.exit(1)
	})},

	// Never answers the handshake, in either era.
	"no-initialize": {take: func(f *fakeServer, m fakeMessage) bool {
		return m.Method == "initialize" || m.Method == "server/discover"
	}},
}

// Tests with real children.

func TestNewMCPClientDefaults(t *testing.T) {
	if got := NewMCPClient(ClientConfig{}).cfg.RequestTimeout; got != 30*time.Second {
		t.Errorf("RequestTimeout: got %v, want 30s", got)
	}
	if got := NewMCPClient(ClientConfig{RequestTimeout: -time.Second}).cfg.RequestTimeout; got != 30*time.Second {
		t.Errorf("negative RequestTimeout: got %v, want 30s", got)
	}
	m := NewManager([]ServerConfig{{Name: "a"}, {Name: "b", RequestTimeout: time.Minute}}, ManagerOptions{})
	if got := m.clientConfig(m.servers[0].cfg).RequestTimeout; got != 0 {
		t.Errorf("the Manager fills in %v; that default belongs to NewMCPClient alone", got)
	}
	if got := m.Client("a").cfg.RequestTimeout; got != 30*time.Second {
		t.Errorf("through the Manager: got %v, want 30s", got)
	}
	if got := m.Client("b").cfg.RequestTimeout; got != time.Minute {
		t.Errorf("configured: got %v, want 1m", got)
	}
	if m.opts.RequestTimeout != 0 {
		t.Errorf("the options fill in %v", m.opts.RequestTimeout)
	}
	checkSingleDefault(t)
}

// checkSingleDefault looks for the number in the sources: it may stand in one
// line of code.
func checkSingleDefault(t *testing.T) {
	t.Helper()
	files, err := filepath.Glob("*.go")
	if err != nil || len(files) == 0 {
		t.Fatalf("no sources: %v", err)
	}
	var found []string
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for i, line := range strings.Split(string(text), "\n") {
			code, _, _ := strings.Cut(line, "//")
			if strings.Contains(strings.ReplaceAll(code, " ", ""), "30*time.Second") {
				found = append(found, fmt.Sprintf("%s:%d", file, i+1))
			}
		}
	}
	if len(found) != 1 || !strings.HasPrefix(found[0], "client.go:") {
		t.Errorf("the default stands in %v, want one line of client.go", found)
	}
}

func TestIsAliveStaysRaceFreeWhileShutdownReapsChild(t *testing.T) {
	c := readyFakeClient(t, "plain", nil)
	s := c.current.Load()
	stop := make(chan struct{})
	var readers sync.WaitGroup
	for range 4 {
		readers.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					c.IsAlive()
				}
			}
		})
	}
	if !c.IsAlive() {
		t.Error("a ready client is not alive")
	}
	if err := c.Shutdown(within(t)); err != nil {
		t.Errorf("shutdown: %v", err)
	}
	close(stop)
	readers.Wait()
	if c.IsAlive() {
		t.Error("alive after Shutdown returned")
	}
	for name, done := range map[string]chan struct{}{"readLoop": s.outputDone, "writeLoop": s.inputDone, "watch": s.done} {
		if !isClosed(done) {
			t.Errorf("Shutdown returned before %s", name)
		}
	}
	if !isClosed(s.peer.Exited()) {
		t.Error("Shutdown returned before the child was reaped")
	}
}

func TestCallToolBeforeReadyIsIndexBuilding(t *testing.T) {
	c := newFakeClient(t, "no-initialize", nil)
	_, err := c.CallTool(t.Context(), "echo", nil)
	checkIndexBuilding(t, err)

	m := NewManager([]ServerConfig{fakeConfig(t, "any", "no-initialize")}, ManagerOptions{})
	if err := m.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	_, err = m.Call(t.Context(), "any", "echo", nil)
	checkIndexBuilding(t, err)
	if err := m.ForceClose(within(t)); err != nil {
		t.Error(err)
	}

	_, err = NewMCPClient(ClientConfig{Name: "none"}).CallTool(t.Context(), "echo", nil)
	if errors.Is(err, ErrIndexBuilding) || !errors.Is(err, ErrOffline) {
		t.Errorf("without a process: got %v, want ErrOffline", err)
	}
}

func checkIndexBuilding(t *testing.T, err error) {
	t.Helper()
	if !errors.Is(err, ErrIndexBuilding) {
		t.Fatalf("got %v, want ErrIndexBuilding", err)
	}
	const golden = "This server is still starting and may be building its index, so its tools cannot answer yet. " +
		"Do the work without it for now, for example by searching and reading the files directly, and try this tool again in a minute."
	if err.Error() != golden {
		t.Errorf("the text is %q, want the golden sentence alone", err)
	}
	if err == ErrIndexBuilding {
		t.Error("the sentinel itself came back; it should be wrapped")
	}
}
