package interop

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"yagent/mcp"
)

// patience bounds every wait of these tests. None should come near it, however
// slow the machine; it turns a hang into a failure.
const patience = 30 * time.Second

// Paths of the binaries that TestMain builds.
var badserver, puppet string

// TestMain builds the servers of ours, and fails the run when the tests leave goroutines
// of the library or processes behind.
func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "interop")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	badserver, puppet = filepath.Join(dir, "badserver"), filepath.Join(dir, "puppet")
	if out, err := exec.Command("go", "build", "-o", dir, "./badserver", "./puppet").CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "go build: %v\n%s", err, out)
		return 1
	}
	code := m.Run()
	if left := leftovers(); code == 0 && left != "" {
		fmt.Fprintln(os.Stderr, left)
		return 1
	}
	return code
}

// leftovers describes what a run left behind: goroutines of the library, and
// children of this process, zombies too.
func leftovers() string {
	var left string
	deadline := time.Now().Add(5 * time.Second)
	for time.Now().Before(deadline) {
		if left = libraryGoroutines() + children(); left == "" {
			return ""
		}
		time.Sleep(10 * time.Millisecond)
	}
	return "left behind: " + left
}

// libraryGoroutines returns the stacks of the goroutines that run code of the
// library.
func libraryGoroutines() string {
	stacks := make([]byte, 4<<20)
	stacks = stacks[:runtime.Stack(stacks, true)]
	var left strings.Builder
	for stack := range bytes.SplitSeq(stacks, []byte("\n\n")) {
		if bytes.Contains(stack, []byte("\nyagent/mcp.")) || bytes.Contains(stack, []byte("\nyagent/mcp/supervise.")) {
			fmt.Fprintf(&left, "%s\n\n", stack)
		}
	}
	return left.String()
}

// A host is a Manager in a test: it records what a host is told, and marks all
// processes that come of it.
type host struct {
	*mcp.Manager
	t       *testing.T
	dir     string // the servers' logs
	mark    string // in the environment of every process that comes of this host
	states  chan mcp.StateChange
	changes chan mcp.ToolsChange
	records *records
}

// newHost starts a Manager. At the end of the test it is closed, and the test
// fails when a process of it is left.
func newHost(t *testing.T, opts mcp.ManagerOptions, servers ...mcp.ServerConfig) *host {
	t.Helper()
	h := &host{
		t:       t,
		dir:     t.TempDir(),
		mark:    "INTEROP_MARK=" + rand.Text(),
		states:  make(chan mcp.StateChange, 1<<10),
		changes: make(chan mcp.ToolsChange, 1<<10),
		records: new(records),
	}
	for i := range servers {
		h.prepare(&servers[i])
	}
	opts.OnStateChange = func(c mcp.StateChange) { h.states <- c }
	opts.OnToolsChanged = func(c mcp.ToolsChange) { h.changes <- c }
	opts.Logger = slog.New(slog.NewTextHandler(h.records, nil))
	h.Manager = mcp.NewManager(servers, opts)
	if err := h.Start(t.Context()); err != nil {
		t.Fatalf("Start: %v", err)
	}
	t.Cleanup(h.finish)
	return h
}

// prepare marks a server's environment and gives a badserver its log.
func (h *host) prepare(cfg *mcp.ServerConfig) {
	if cfg.Env == nil {
		cfg.Env = os.Environ()
	}
	cfg.Env = append(slices.Clip(cfg.Env), h.mark)
	if cfg.Command == badserver {
		cfg.Args = append([]string{"-log", h.logFile(cfg.Name)}, cfg.Args...)
	}
}

// finish is the end of every test.
func (h *host) finish() {
	if got, want := h.StatusLines(), mcp.RenderStatusLines(h.Health(), 0); got != want {
		h.t.Errorf("StatusLines is\n%s\nbut Health renders to\n%s", got, want)
	}
	h.close()
	h.noProcesses()
}

// close closes the Manager within a bound and returns how long it took.
func (h *host) close() time.Duration {
	h.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	began := time.Now()
	if err := h.Close(ctx); err != nil {
		h.t.Errorf("Close: %v", err)
	}
	return time.Since(began)
}

// noProcesses fails the test unless all that came of this host is gone. What
// was killed with its group may still be on its way out.
func (h *host) noProcesses() {
	h.t.Helper()
	eventually(h.t, "the end of all its processes", func() bool { return len(marked(h.mark)) == 0 })
}

// ready waits for a server.
func (h *host) ready(name string) {
	h.t.Helper()
	if err := h.WaitForReady(h.patient(), name); err != nil {
		h.t.Fatalf("WaitForReady: %v\nlog:\n%s", err, h.records)
	}
}

// patient is a context with the bound of all waits.
func (h *host) patient() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	h.t.Cleanup(cancel)
	return ctx
}

// call calls a tool that must give a result.
func (h *host) call(server, tool string, args any) *mcp.CallToolResult {
	h.t.Helper()
	result, err := h.Call(h.patient(), server, tool, args)
	if err != nil {
		h.t.Fatalf("call %q: %v\nlog:\n%s", tool, err, h.records)
	}
	return result
}

// callError calls a tool that must fail.
func (h *host) callError(ctx context.Context, server, tool string, args any) error {
	h.t.Helper()
	result, err := h.Call(ctx, server, tool, args)
	if err == nil {
		h.t.Fatalf("call %q: got the result %s, want an error", tool, result.Raw)
	}
	return err
}

// health returns one server's health.
func (h *host) health(name string) mcp.ServerHealth {
	h.t.Helper()
	for _, health := range h.Health() {
		if health.Name == name {
			return health
		}
	}
	h.t.Fatalf("no server %q in Health", name)
	return mcp.ServerHealth{}
}

// line returns one server's line of the status text.
func (h *host) line(name string) string {
	h.t.Helper()
	return mcp.FormatServerLine(h.health(name))
}

// toolNames returns the names of one server's tools in the order of Tools.
func (h *host) toolNames(server string) []string {
	var names []string
	for _, tool := range h.Tools() {
		if tool.Server == server {
			names = append(names, tool.Name)
		}
	}
	return names
}

// tool returns one tool of a server.
func (h *host) tool(server, name string) mcp.DiscoveredTool {
	h.t.Helper()
	for _, tool := range h.Tools() {
		if tool.Server == server && tool.Name == name {
			return tool.DiscoveredTool
		}
	}
	h.t.Fatalf("server %q has no tool %q", server, name)
	return mcp.DiscoveredTool{}
}

// awaitState takes the events up to the first that enters a state.
func (h *host) awaitState(server string, want mcp.ServerState) mcp.StateChange {
	h.t.Helper()
	deadline := time.After(patience)
	for {
		select {
		case change := <-h.states:
			if change.Server == server && change.To == want {
				return change
			}
		case <-deadline:
			h.t.Fatalf("server %q never became %v; its line is %q\nlog:\n%s", server, want, h.line(server), h.records)
		}
	}
}

// awaitChange takes the next change of tools.
func (h *host) awaitChange() mcp.ToolsChange {
	h.t.Helper()
	select {
	case change := <-h.changes:
		return change
	case <-time.After(patience):
		h.t.Fatalf("no change of tools came\nlog:\n%s", h.records)
		return mcp.ToolsChange{}
	}
}

// eventually waits for what nothing announces: the reason within a state,
// another process, a file.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !holds(); {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain for %s", what)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// shortly is a context for an operation that is expected to run into its end.
func shortly(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

// records is what the library logged, as text.
type records struct {
	mu   sync.Mutex // guards the field below
	text strings.Builder
}

func (r *records) Write(b []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.text.Write(b)
}

func (r *records) String() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.text.String()
}

// count returns how many records contain all of the parts.
func (r *records) count(parts ...string) int {
	n := 0
	for line := range strings.Lines(r.String()) {
		if !slices.ContainsFunc(parts, func(part string) bool { return !strings.Contains(line, part) }) {
			n++
		}
	}
	return n
}
