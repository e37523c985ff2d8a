package interop

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"yagent/mcp"
)

// installed installs the real servers on first use and returns their directory.
// Without node there is nothing to run, which is a failure: a skipped test
// would look like a passed one.
var installed = sync.OnceValues(func() (dir string, err error) {
	for _, tool := range []string{"node", "npm", "npx"} {
		if _, err := exec.LookPath(tool); err != nil {
			return "", fmt.Errorf("the real servers need Node.js 20 or later with npm; install it and run the tests again: %w", err)
		}
	}
	if dir, err = filepath.Abs("servers"); err != nil || upToDate(dir) {
		return dir, err
	}
	npm := exec.Command("npm", "ci")
	npm.Dir = dir
	if out, err := npm.CombinedOutput(); err != nil {
		return "", fmt.Errorf("npm ci in %s: %w\n%s", dir, err, out)
	}
	return dir, nil
})

// upToDate reports whether npm has finished an install since the lock file was
// written.
func upToDate(dir string) bool {
	lock, err := os.Stat(filepath.Join(dir, "package-lock.json"))
	if err != nil {
		return false
	}
	done, err := os.Stat(filepath.Join(dir, "node_modules", ".package-lock.json"))
	return err == nil && !done.ModTime().Before(lock.ModTime())
}

// realServer is the configuration of a server from npm.
func realServer(t *testing.T, name string, args ...string) mcp.ServerConfig {
	t.Helper()
	dir, err := installed()
	if err != nil {
		t.Fatal(err)
	}
	return mcp.ServerConfig{Name: name, Command: filepath.Join(dir, "node_modules", ".bin", "mcp-server-"+name), Args: args, Env: os.Environ()}
}

// memory is server-memory with a file of the test's own.
func memory(t *testing.T) mcp.ServerConfig {
	cfg := realServer(t, "memory")
	cfg.Env = append(cfg.Env, "MEMORY_FILE_PATH="+filepath.Join(t.TempDir(), "memory.jsonl"))
	return cfg
}

// filesystem is server-filesystem on a directory of the test's own.
func filesystem(t *testing.T) (cfg mcp.ServerConfig, dir string) {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return realServer(t, "filesystem", dir), dir
}

// allReal returns the four servers.
func allReal(t *testing.T) []mcp.ServerConfig {
	files, _ := filesystem(t)
	return []mcp.ServerConfig{realServer(t, "everything"), files, memory(t), realServer(t, "sequential-thinking")}
}

// hint spells a hint of three values.
func hint(h *bool) string {
	if h == nil {
		return "absent"
	}
	return fmt.Sprint(*h)
}

func TestReal_Discovery(t *testing.T) {
	t.Parallel()
	h := newHost(t, once(), allReal(t)...)
	for _, want := range []struct {
		server, announced   string
		tools               int
		tool                string
		readOnly, destroyer string
		title               string
		hasOutputSchema     bool
	}{
		{"everything", "mcp-servers/everything", 13, "echo", "true", "false", "Echo Tool", false},
		{"everything", "mcp-servers/everything", 13, "get-structured-content", "true", "false", "", true},
		{"filesystem", "secure-filesystem-server", 14, "read_text_file", "true", "absent", "", true},
		{"filesystem", "secure-filesystem-server", 14, "write_file", "false", "true", "", true},
		{"memory", "memory-server", 9, "delete_entities", "false", "true", "", true},
		{"sequential-thinking", "sequential-thinking-server", 1, "sequentialthinking", "true", "false", "", true},
	} {
		h.ready(want.server)
		health := h.health(want.server)
		if health.Tools != want.tools || len(h.toolNames(want.server)) != want.tools || health.DroppedTools != 0 {
			t.Errorf("%s has %d tools, %d dropped: %q", want.server, health.Tools, health.DroppedTools, h.toolNames(want.server))
		}
		if health.Server.Name != want.announced || health.ProtocolVersion != "2025-11-25" {
			t.Errorf("%s is %+v", want.server, health)
		}
		tool := h.tool(want.server, want.tool)
		if tool.Annotations == nil || hint(tool.Annotations.ReadOnlyHint) != want.readOnly || hint(tool.Annotations.DestructiveHint) != want.destroyer {
			t.Errorf("%s %s: the hints are %+v", want.server, want.tool, tool.Annotations)
		}
		if want.title != "" && tool.Title != want.title {
			t.Errorf("%s %s: the title is %q, want %q", want.server, want.tool, tool.Title, want.title)
		}
		if (tool.OutputSchema != nil) != want.hasOutputSchema || !json.Valid(tool.InputSchema) || tool.Description == "" {
			t.Errorf("%s %s is incomplete: %+v", want.server, want.tool, tool)
		}
	}
	if text := h.health("everything").Instructions; !strings.Contains(text, "Everything Server") {
		t.Errorf("the instructions are %q", text)
	}
}

func TestReal_Everything(t *testing.T) {
	t.Parallel()
	h := newHost(t, once(), realServer(t, "everything"))
	h.ready("everything")
	call := func(tool string, args any) *mcp.CallToolResult {
		t.Helper()
		return h.call("everything", tool, args)
	}

	if got := call("echo", map[string]string{"message": "grüße"}).Text(); got != "Echo: grüße" {
		t.Errorf("echo: got %q", got)
	}
	if got := call("get-sum", map[string]int{"a": 40, "b": 2}).Text(); !strings.Contains(got, "42") {
		t.Errorf("get-sum: got %q", got)
	}
	long := strings.Repeat("0123456789abcdef", 1<<17)
	if got := call("echo", map[string]string{"message": long}).Text(); got != "Echo: "+long {
		t.Errorf("echo of %d bytes came back as %d bytes", len(long), len(got))
	}

	var weather struct{ Temperature float64 }
	result := call("get-structured-content", map[string]string{"location": "Chicago"})
	if err := json.Unmarshal(result.StructuredContent, &weather); err != nil || weather.Temperature == 0 {
		t.Errorf("get-structured-content: got %s (%v)", result.StructuredContent, err)
	}

	// A tool's failure is a result, and so is a refusal of its arguments.
	for tool, args := range map[string]any{"get-sum": map[string]string{"a": "x"}, "no-such-tool": nil} {
		if result := call(tool, args); !result.IsError || result.Text() == "" {
			t.Errorf("%s: got %s, want an error in the result", tool, result.Raw)
		}
	}
}

func TestReal_EverythingContents(t *testing.T) {
	t.Parallel()
	h := newHost(t, once(), realServer(t, "everything"))
	h.ready("everything")

	result := h.call("everything", "get-annotated-message", map[string]any{"messageType": "error", "includeImage": true})
	if len(result.Content) != 2 || result.Content[0].Text != "Error: Operation failed" || !strings.Contains(string(result.Content[0].Raw), `"priority"`) {
		t.Fatalf("get-annotated-message: got %.300s", result.Raw)
	}
	image, err := result.Content[1].Blob()
	if err != nil || image.MIMEType != "image/png" || !strings.HasPrefix(string(image.Data), "\x89PNG") {
		t.Errorf("the image: %q, %v", image.MIMEType, err)
	}

	result = h.call("everything", "get-resource-links", map[string]int{"count": 3})
	var links []string
	for _, content := range result.Content[1:] {
		link, err := content.ResourceLink()
		if err != nil {
			t.Fatal(err)
		}
		links = append(links, link.URI)
	}
	if len(links) != 3 || !strings.HasPrefix(links[0], "demo://resource/") {
		t.Errorf("get-resource-links: got %q", links)
	}

	result = h.call("everything", "get-resource-reference", map[string]any{"resourceType": "Text", "resourceId": 7})
	resource, err := result.Content[1].Resource()
	if err != nil || !strings.HasPrefix(resource.Text, "Resource 7") {
		t.Errorf("get-resource-reference: got %+v, %v", resource, err)
	}
}

// server-everything says that its list has changed before it answers the
// handshake, and asks for roots soon after.
func TestReal_EverythingListChangedAtOnce(t *testing.T) {
	t.Parallel()
	h := newHost(t, once(), realServer(t, "everything"))
	h.ready("everything")
	first := h.awaitChange()
	if len(first.Added) != len(h.toolNames("everything")) {
		t.Errorf("the first change is %+v", first)
	}
	// It asks 350 ms after the handshake; this call outlasts that.
	h.call("everything", "trigger-long-running-operation", map[string]float64{"duration": 0.6, "steps": 2})
	h.close()
	if len(h.changes) != 0 {
		t.Errorf("a change of tools that were the same: %+v", <-h.changes)
	}
	if n := h.records.count("level=WARN") + h.records.count("level=ERROR"); n != 0 {
		t.Errorf("a well-behaved server was complained about:\n%s", h.records)
	}
}

// A caller that gives up costs the others nothing.
func TestReal_EverythingTimeout(t *testing.T) {
	t.Parallel()
	h := newHost(t, once(), realServer(t, "everything"))
	h.ready("everything")
	before := h.health("everything").PID
	err := h.callError(shortly(t, 200*time.Millisecond), "everything", "trigger-long-running-operation", map[string]int{"duration": 2, "steps": 2})
	if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, mcp.ErrOutcomeUnknown) {
		t.Errorf("got %v, want DeadlineExceeded and ErrOutcomeUnknown", err)
	}
	if got := h.call("everything", "echo", map[string]string{"message": "next"}).Text(); got != "Echo: next" {
		t.Errorf("got %q", got)
	}
	if after := h.health("everything").PID; after != before {
		t.Errorf("the process is %d, was %d", after, before)
	}
}

func TestReal_Filesystem(t *testing.T) {
	t.Parallel()
	cfg, dir := filesystem(t)
	h := newHost(t, once(), cfg)
	h.ready("filesystem")
	call := func(tool string, args any) *mcp.CallToolResult {
		t.Helper()
		return h.call("filesystem", tool, args)
	}

	small, big := filepath.Join(dir, "small.txt"), filepath.Join(dir, "big.txt")
	text := map[string]string{small: "one\r\ntwo <&> \"three\" \u2028 é\n", big: strings.Repeat("all work and no play\n", 150_000)}
	for file, want := range text {
		if result := call("write_file", map[string]string{"path": file, "content": want}); result.IsError {
			t.Fatalf("write_file: %s", result.Text())
		}
		if got, err := os.ReadFile(file); err != nil || string(got) != want {
			t.Errorf("%s: %d bytes were written, want %d (%v)", file, len(got), len(want), err)
		}
		result := call("read_text_file", map[string]string{"path": file})
		var structured struct{ Content string }
		if err := json.Unmarshal(result.StructuredContent, &structured); err != nil || structured.Content != want || result.Text() != want {
			t.Errorf("%s: %d bytes were read, want %d (%v)", file, len(result.Text()), len(want), err)
		}
	}
	if got := call("list_directory", map[string]string{"path": dir}).Text(); !strings.Contains(got, "small.txt") || !strings.Contains(got, "big.txt") {
		t.Errorf("list_directory: got %q", got)
	}
	for _, outside := range []string{"/etc/passwd", filepath.Join(dir, "..", "..")} {
		if result := call("read_text_file", map[string]string{"path": outside}); !result.IsError || !strings.Contains(result.Text(), "denied") {
			t.Errorf("%s: got %s, want a refusal", outside, result.Raw)
		}
	}
}

// What one process stored the next one finds.
func TestReal_Memory(t *testing.T) {
	t.Parallel()
	h := newHost(t, once(), memory(t))
	h.ready("memory")
	h.call("memory", "create_entities", json.RawMessage(`{"entities":[{"name":"Ada","entityType":"person","observations":["wrote programs"]},{"name":"Engine","entityType":"machine","observations":[]}]}`))
	h.call("memory", "create_relations", json.RawMessage(`{"relations":[{"from":"Ada","to":"Engine","relationType":"programs"}]}`))
	if err := h.Reconnect("memory"); err != nil {
		t.Fatal(err)
	}
	h.ready("memory")
	var graph struct {
		Entities  []struct{ Name string }
		Relations []struct{ From, To string }
	}
	result := h.call("memory", "read_graph", nil)
	if err := json.Unmarshal(result.StructuredContent, &graph); err != nil || len(graph.Entities) != 2 || len(graph.Relations) != 1 || graph.Relations[0].To != "Engine" {
		t.Errorf("the graph is %s (%v)", result.StructuredContent, err)
	}
}

func TestReal_SequentialThinking(t *testing.T) {
	t.Parallel()
	h := newHost(t, once(), realServer(t, "sequential-thinking"))
	h.ready("sequential-thinking")
	for n := 1; n <= 3; n++ {
		var state struct{ ThoughtNumber, ThoughtHistoryLength int }
		result := h.call("sequential-thinking", "sequentialthinking", map[string]any{
			"thought": fmt.Sprintf("thought %d", n), "thoughtNumber": n, "totalThoughts": 3, "nextThoughtNeeded": n < 3,
		})
		if err := json.Unmarshal(result.StructuredContent, &state); err != nil || state.ThoughtNumber != n || state.ThoughtHistoryLength != n {
			t.Errorf("thought %d: got %s (%v)", n, result.StructuredContent, err)
		}
	}
	if got := h.line("sequential-thinking"); got != "sequential-thinking: ready — 1 tool" {
		t.Errorf("line is %q", got)
	}
}

// All four in one host, which has bridges of its own for two tools.
func TestReal_Together(t *testing.T) {
	t.Parallel()
	servers := allReal(t)
	servers[1].Curated = []string{"read_text_file", "write_file", "not there"}
	servers = append(servers, mcp.ServerConfig{Name: "off", Command: "mcp-server-everything", Disabled: true})
	h := newHost(t, once(), servers...)
	for _, server := range servers[:4] {
		h.ready(server.Name)
	}
	want := strings.Join([]string{
		"everything: ready — 13 tools",
		"filesystem: ready — 14 tools (2 curated, 12 external)",
		"memory: ready — 9 tools",
		"sequential-thinking: ready — 1 tool",
	}, "\n")
	if got := h.StatusLines(); got != want {
		t.Errorf("the status is\n%s\nwant\n%s", got, want)
	}
	if n := len(h.Tools()); n != 13+14+9+1 {
		t.Errorf("%d tools", n)
	}
	took := h.close()
	if took > 6*time.Second {
		t.Errorf("Close took %v", took)
	}
	for _, server := range servers[:4] {
		if got, want := h.line(server.Name), server.Name+": offline — stopped"; got != want {
			t.Errorf("line is %q, want %q", got, want)
		}
	}
}

// A process that is killed is news at once, and its successor does the work.
func TestReal_CrashAndRecovery(t *testing.T) {
	t.Parallel()
	opts := eager(5)
	h := newHost(t, opts, realServer(t, "everything"))
	h.ready("everything")
	before := h.health("everything").PID
	inFlight := make(chan error, 1)
	go func() {
		_, err := h.Call(h.patient(), "everything", "trigger-long-running-operation", map[string]int{"duration": 20, "steps": 1})
		inFlight <- err
	}()
	h.call("everything", "echo", map[string]string{"message": "it reads"})
	if err := syscall.Kill(before, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	h.awaitState("everything", mcp.StateOffline)
	if names := h.toolNames("everything"); len(names) != 13 {
		t.Errorf("%d tools are kept through the outage", len(names))
	}
	err := <-inFlight
	if exit, ok := errors.AsType[*mcp.ExitError](err); !ok || exit.Signal != "killed" || exit.Status != -1 {
		t.Errorf("the call in flight: got %v, want the signal", err)
	}
	h.ready("everything")
	if got := h.call("everything", "echo", map[string]string{"message": "back"}).Text(); got != "Echo: back" {
		t.Errorf("got %q", got)
	}
	if after := h.health("everything").PID; after == before || after == 0 {
		t.Errorf("the process is %d, was %d", after, before)
	}
	h.awaitChange() // the first list
	h.close()
	if len(h.changes) != 0 {
		t.Errorf("a change of tools that are the same: %+v", <-h.changes)
	}
}

// npx and npm are what configurations name: wrappers with a shell in between.
// Nothing of the tree outlives Close, or the wrapper's own death.
func TestReal_Npx(t *testing.T) {
	for name, command := range map[string][]string{
		"npx":      {"npx", "--no-install", "mcp-server-everything"},
		"npm exec": {"npm", "exec", "--offline", "--", "mcp-server-everything"},
	} {
		start := func(t *testing.T) *host {
			t.Parallel()
			cfg := realServer(t, "everything")
			cfg.Dir = filepath.Dir(filepath.Dir(filepath.Dir(cfg.Command)))
			cfg.Command, cfg.Args = command[0], command[1:]
			h := newHost(t, once(), cfg)
			h.ready("everything")
			if got := h.call("everything", "echo", map[string]string{"message": "through"}).Text(); got != "Echo: through" {
				t.Errorf("got %q", got)
			}
			if tree := marked(h.mark); len(tree) < 2 || !slices.Contains(tree, h.health("everything").PID) {
				t.Fatalf("the tree is %v, want a wrapper and its child", tree)
			}
			return h
		}
		t.Run(name+", Close", func(t *testing.T) {
			h := start(t)
			if took := h.close(); took > 2*once().ShutdownGrace+2*time.Second {
				t.Errorf("Close took %v", took)
			}
			h.noProcesses()
		})
		t.Run(name+", ForceClose", func(t *testing.T) {
			h := start(t)
			if err := h.ForceClose(h.patient()); err != nil {
				t.Error(err)
			}
			h.noProcesses()
		})
		t.Run(name+", SIGKILL to the wrapper", func(t *testing.T) {
			h := start(t)
			if err := syscall.Kill(h.health("everything").PID, syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			h.awaitState("everything", mcp.StateOffline)
			h.noProcesses() // before Close
		})
	}
}

// Answers come in any order and each finds its caller.
func TestReal_ConcurrentCalls(t *testing.T) {
	t.Parallel()
	h := newHost(t, once(), realServer(t, "everything"), memory(t))
	h.ready("everything")
	h.ready("memory")
	var calls sync.WaitGroup
	ctx := h.patient()
	for i := range 100 {
		calls.Go(func() {
			message := strings.Repeat(fmt.Sprintf("caller %d ", i), 1+i*10)
			result, err := h.Call(ctx, "everything", "echo", map[string]string{"message": message})
			if err != nil || result.Text() != "Echo: "+message {
				t.Errorf("caller %d got another answer or none (%v)", i, err)
			}
		})
		calls.Go(func() {
			result, err := h.Call(ctx, "memory", "search_nodes", map[string]string{"query": fmt.Sprint(i)})
			if err != nil || !strings.Contains(result.Text(), "entities") {
				t.Errorf("caller %d: got %v, %v", i, result, err)
			}
		})
	}
	calls.Wait()
}

// A client without a Manager runs the same code.
func TestReal_ClientAlone(t *testing.T) {
	t.Parallel()
	cfg := realServer(t, "everything")
	mark := "INTEROP_MARK=" + t.Name() + filepath.Base(t.TempDir())
	c := mcp.NewMCPClient(mcp.ClientConfig{Name: cfg.Name, Command: cfg.Command, Env: append(cfg.Env, mark)})
	ctx := shortly(t, patience)
	if err := c.Start(ctx); err != nil {
		t.Fatal(err)
	}
	if err := c.WaitForReady(ctx); err != nil {
		t.Fatal(err)
	}
	tools, instructions, err := c.ListTools(ctx)
	if err != nil || len(tools) != 13 || instructions != c.Instructions() || instructions == "" {
		t.Errorf("ListTools: %d tools, %v", len(tools), err)
	}
	if result, err := c.CallTool(ctx, "get-sum", map[string]int{"a": 1, "b": 2}); err != nil || !strings.Contains(result.Text(), "3") {
		t.Errorf("get-sum: %v, %v", result, err)
	}
	if err := c.Shutdown(ctx); err != nil || c.IsAlive() {
		t.Errorf("Shutdown: %v, alive %v", err, c.IsAlive())
	}
	if _, err := c.CallTool(ctx, "echo", nil); err == nil || errors.Is(err, mcp.ErrIndexBuilding) {
		t.Errorf("a call afterwards: got %v", err)
	}
	eventually(t, "the end of all its processes", func() bool { return len(marked(mark)) == 0 })
}
