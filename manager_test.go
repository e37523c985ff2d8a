package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// policy runs a test of the Manager in a bubble, on servers in memory.
func policy(t *testing.T, test func(t *testing.T, h *memoryHost)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { test(t, newMemoryHost(t)) })
}

// recorder collects callbacks.
type recorder struct {
	mu     sync.Mutex // guards the fields below
	states []string
	tools  []ToolsChange
}

func (r *recorder) onState(c StateChange) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.states = append(r.states, fmt.Sprintf("%s: %v → %v", c.Server, c.From, c.To))
}

func (r *recorder) onTools(c ToolsChange) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.tools = append(r.tools, c)
}

func (r *recorder) stateChanges() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.states)
}

func (r *recorder) toolChanges() []ToolsChange {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.tools)
}

// started starts a Manager on servers in memory, whose Command is their mode,
// and closes it at the end of the test.
func (h *memoryHost) started(t *testing.T, opts ManagerOptions, servers ...ServerConfig) *Manager {
	t.Helper()
	m := h.manager(t, opts, servers...)
	if err := m.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	return m
}

func (h *memoryHost) manager(t *testing.T, opts ManagerOptions, servers ...ServerConfig) *Manager {
	t.Helper()
	m := NewManager(servers, opts)
	m.start = h.start
	t.Cleanup(func() {
		if err := m.ForceClose(context.Background()); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return m
}

// wantText compares the status text once everything has come to rest.
func wantText(t *testing.T, m *Manager, lines ...string) {
	t.Helper()
	synctest.Wait()
	if got, want := m.StatusLines(), strings.Join(lines, "\n"); got != want {
		t.Errorf("the status text is\n%s\nwant\n%s", got, want)
	}
}

func wantReady(t *testing.T, m *Manager, names ...string) {
	t.Helper()
	for _, name := range names {
		if err := m.WaitForReady(within(t), name); err != nil {
			t.Fatal(err)
		}
	}
}

func wantEcho(t *testing.T, m *Manager, server, want string) {
	t.Helper()
	result, err := m.Call(within(t), server, "echo", json.RawMessage(`{"a":1}`))
	if err != nil {
		t.Fatal(err)
	}
	if got := result.Text(); got != want {
		t.Errorf("%s answered %q, want %q", server, got, want)
	}
}

func TestManager_DisabledServerStaysOutOfFaces(t *testing.T) {
	policy(t, func(t *testing.T, h *memoryHost) {
		m := h.started(t, ManagerOptions{StatusMaxLines: 1},
			ServerConfig{Name: "off", Command: "plain", Disabled: true}, ServerConfig{Name: "on", Command: "plain"})
		wantReady(t, m, "on")
		wantText(t, m, "on: ready — 2 tools")
		if h.starts("off") != 0 {
			t.Error("a disabled server was started")
		}
		if m.Client("off") != nil {
			t.Error("a disabled server has a client")
		}
		for _, tool := range m.Tools() {
			if tool.Server == "off" {
				t.Errorf("a disabled server has the tool %s", tool.Name)
			}
		}
		health := m.Health()
		if len(health) != 2 || health[0].State != StateDisabled || health[0].Tools != 0 {
			t.Errorf("health is %+v", health)
		}
		_, err := m.Call(t.Context(), "off", "echo", nil)
		if !errors.Is(err, ErrDisabled) || errors.Is(err, ErrOffline) {
			t.Errorf("a call gives %v, want ErrDisabled", err)
		}
	})
}

func TestManager_CallToOfflineServerExplains(t *testing.T) {
	policy(t, func(t *testing.T, h *memoryHost) {
		h.modeOf = func(cfg ClientConfig, n int) (string, error) {
			if n > 1 {
				return "no-initialize", nil // a new process is up, and not ready
			}
			return cfg.Command, nil
		}
		m := h.started(t, ManagerOptions{}, ServerConfig{Name: "db", Command: "die-on-call"})
		wantReady(t, m, "db")
		_, err := m.Call(t.Context(), "db", "echo", nil)
		exit, ok := errors.AsType[*ExitError](err)
		if !ok || exit.Status != 3 || !strings.Contains(exit.Stderr, "the database is gone") || !errors.Is(err, ErrOutcomeUnknown) {
			t.Fatalf("the call in flight got %v", err)
		}
		for range 2 { // at once, and while a new process works on its handshake
			_, err = m.Call(t.Context(), "db", "echo", nil)
			if !errors.Is(err, ErrOffline) || !errors.Is(err, ErrNotSent) || errors.Is(err, ErrIndexBuilding) {
				t.Errorf("got %v, want ErrOffline and ErrNotSent", err)
			}
			for _, want := range []string{`"db"`, "the process exited; reconnecting", "status 3", "try again later"} {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("the error %q does not say %q", err, want)
				}
			}
			time.Sleep(time.Minute)
			synctest.Wait()
		}
		if h.starts("db") != 2 {
			t.Errorf("%d starts, want 2", h.starts("db"))
		}
	})
}

func TestManager_ReconnectsAfterCrash(t *testing.T) {
	policy(t, func(t *testing.T, h *memoryHost) {
		var seen recorder
		h.modeOf = func(cfg ClientConfig, n int) (string, error) {
			if n > 1 {
				return "plain", nil
			}
			return cfg.Command, nil
		}
		m := h.started(t, ManagerOptions{OnStateChange: seen.onState, OnToolsChanged: seen.onTools}, ServerConfig{Name: "s", Command: "die-on-call"})
		client := m.Client("s")
		wantReady(t, m, "s")
		if _, err := m.Call(t.Context(), "s", "echo", nil); err == nil {
			t.Fatal("the call survived its server")
		}
		wantText(t, m, "s: offline — the process exited; reconnecting")
		if got := len(m.Tools()); got != 2 {
			t.Errorf("%d tools are listed through the outage, want the last 2", got)
		}
		wantReady(t, m, "s")
		wantText(t, m, "s: ready — 2 tools")
		wantEcho(t, m, "s", `plain echo {"a":1}`)
		if m.Client("s") != client || !client.IsAlive() {
			t.Error("the handle did not outlive the crash")
		}
		want := []string{"s: offline → starting", "s: starting → ready", "s: ready → offline", "s: offline → ready"}
		if got := seen.stateChanges(); !slices.Equal(got, want) {
			t.Errorf("state changes %q, want %q", got, want)
		}
		if got := seen.toolChanges(); len(got) != 1 || !slices.Equal(got[0].Added, []string{"echo", "write"}) {
			t.Errorf("tool changes %+v, want the first list alone", got)
		}
	})
}

func TestManager_GivesUpAfterMaxAttempts(t *testing.T) {
	policy(t, func(t *testing.T, h *memoryHost) {
		var pauses []int
		h.modeOf = func(ClientConfig, int) (string, error) { return "", errors.New("fork: out of something") }
		m := h.started(t, ManagerOptions{
			MaxReconnectAttempts: 3,
			ReconnectBackoff:     func(attempt int) time.Duration { pauses = append(pauses, attempt); return time.Second },
		}, ServerConfig{Name: "s", Command: "plain"})
		wantText(t, m, "s: offline — could not be started; reconnecting")
		time.Sleep(time.Hour)
		wantText(t, m, "s: offline — gave up after 3 attempts")
		if h.starts("s") != 4 {
			t.Errorf("%d starts, want the first and 3 more", h.starts("s"))
		}
		if !slices.Equal(pauses, []int{1, 2, 3}) {
			t.Errorf("backoff was asked for %v", pauses)
		}
		err := m.WaitForReady(t.Context(), "s")
		if !errors.Is(err, ErrNotReady) || !strings.Contains(err.Error(), "gave up after 3 attempts") {
			t.Errorf("WaitForReady says %v", err)
		}
		h.modeOf = nil
		if err := m.Reconnect("s"); err != nil {
			t.Fatal(err)
		}
		wantReady(t, m, "s")
	})
}

// The log tells the whole story of an outage, and how it ended.
func TestManager_LogTellsOfTheEnds(t *testing.T) {
	policy(t, func(t *testing.T, h *memoryHost) {
		var log strings.Builder
		h.modeOf = func(cfg ClientConfig, n int) (string, error) {
			if n > 1 {
				return "", errors.New("out of something")
			}
			return cfg.Command, nil
		}
		m := h.started(t, ManagerOptions{Logger: slog.New(slog.NewTextHandler(&log, nil))}, ServerConfig{Name: "s", Command: "plain"})
		wantReady(t, m, "s")
		h.last("s").die(3, "")
		time.Sleep(time.Hour)
		synctest.Wait()
		rest := log.String()
		for _, want := range []string{"msg=connected server=s state=ready tools=2", `msg="server offline" server=s`, "msg=reconnecting server=s attempt=1", `msg="gave up" server=s attempts=5`} {
			_, after, found := strings.Cut(rest, want)
			if !found {
				t.Errorf("the log does not say %q in its turn:\n%s", want, log.String())
			}
			rest = after
		}
	})
}

// A goroutine that panics ends what it serves, here the round, and is counted as
// a failed one: the server neither hangs nor tries for ever.
func TestManager_PanicIsAFailedRound(t *testing.T) {
	policy(t, func(t *testing.T, h *memoryHost) {
		h.modeOf = func(ClientConfig, int) (string, error) { panic("no such luck") }
		m := h.started(t, ManagerOptions{}, ServerConfig{Name: "s", Command: "plain"}, ServerConfig{Name: "t", Command: "plain"})
		wantText(t, m, "s: offline — could not be started; reconnecting", "t: offline — could not be started; reconnecting")
		time.Sleep(time.Hour)
		wantText(t, m, "s: offline — gave up after 5 attempts", "t: offline — gave up after 5 attempts")
		if h.starts("s") != 6 {
			t.Errorf("%d starts, want the first and 5 more", h.starts("s"))
		}
		h.modeOf = nil
		if err := m.Reconnect("s"); err != nil {
			t.Fatal(err)
		}
		wantReady(t, m, "s")
	})
}

func TestManager_DegradedOnEmptyList(t *testing.T) {
	policy(t, func(t *testing.T, h *memoryHost) {
		m := h.started(t, ManagerOptions{}, ServerConfig{Name: "notes", Command: "empty-list"})
		wantReady(t, m, "notes")
		wantText(t, m, "notes: degraded — connected, but it lists no tools")
		time.Sleep(time.Hour)
		wantText(t, m, "notes: degraded — connected, but it lists no tools")
		if h.starts("notes") != 1 {
			t.Errorf("%d starts: an empty list is no reason to restart", h.starts("notes"))
		}
		wantEcho(t, m, "notes", `empty-list echo {"a":1}`)
	})
}

func TestManager_StartDoesNotBlockOnDiscovery(t *testing.T) {
	policy(t, func(t *testing.T, h *memoryHost) {
		begin := time.Now()
		m := h.started(t, ManagerOptions{}, ServerConfig{Name: "never", Command: "no-initialize"}, ServerConfig{Name: "list", Command: "slow-list"}, ServerConfig{Name: "good", Command: "plain"})
		if took := time.Since(begin); took != 0 {
			t.Errorf("Start took %v", took)
		}
		for _, name := range []string{"never", "list", "good"} {
			if m.Client(name) == nil {
				t.Errorf("no client for %s right after Start", name)
			}
		}
		wantText(t, m, "never: starting — waiting for the handshake", "list: starting — listing tools", "good: ready — 2 tools")
	})
}

func TestManager_SlowInitializeStaysStarting(t *testing.T) {
	policy(t, func(t *testing.T, h *memoryHost) {
		m := h.started(t, ManagerOptions{}, ServerConfig{Name: "cold", Command: "no-initialize"})
		wantText(t, m, "cold: starting — waiting for the handshake")
		time.Sleep(14 * time.Minute)
		wantText(t, m, "cold: starting — waiting for the handshake")
		time.Sleep(2 * time.Minute)
		wantText(t, m, "cold: starting — still no answer to the handshake")
		time.Sleep(time.Hour)
		wantText(t, m, "cold: starting — still no answer to the handshake")
		p := h.last("cold")
		if h.starts("cold") != 1 || isClosed(p.Exited()) {
			t.Fatal("a slow start was judged dead")
		}
		if got := p.server.received("notifications/cancelled"); len(got) > 0 {
			t.Errorf("the handshake was cancelled: %q", got)
		}
		p.server.send(`{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"cold","version":"1"}}}`)
		wantText(t, m, "cold: ready — 2 tools")
	})
}

func TestManager_LiveServerWithFailedListIsDegradedNotRestarted(t *testing.T) {
	policy(t, func(t *testing.T, h *memoryHost) {
		m := h.started(t, ManagerOptions{MaxReconnectAttempts: 2}, ServerConfig{Name: "wiki", Command: "slow-list"})
		time.Sleep(61 * time.Second)
		wantText(t, m, "wiki: degraded — tools/list failed")
		wantEcho(t, m, "wiki", `slow-list echo {"a":1}`)
		time.Sleep(time.Hour)
		wantText(t, m, "wiki: degraded — tools/list failed")
		if h.starts("wiki") != 1 || isClosed(h.last("wiki").Exited()) {
			t.Error("a live server was restarted for its list")
		}
		if got := len(h.last("wiki").server.received("tools/list")); got != 3 {
			t.Errorf("%d tools/list, want the first and 2 more", got)
		}
	})
}

func TestManager_StartingIsNotReportedAsReady(t *testing.T) {
	policy(t, func(t *testing.T, h *memoryHost) {
		m := h.started(t, ManagerOptions{}, ServerConfig{Name: "a", Command: "no-initialize", Curated: []string{"echo"}}, ServerConfig{Name: "b", Command: "slow-list"})
		synctest.Wait()
		for _, health := range m.Health() {
			if health.State != StateStarting || health.State.CountsTools() || health.Tools != 0 || health.Curated != 0 {
				t.Errorf("health is %+v", health)
			}
		}
		if text := m.StatusLines(); strings.Contains(text, "ready") || strings.Contains(text, "0 tools") {
			t.Errorf("the text promises what has not happened:\n%s", text)
		}
		if tools := m.Tools(); len(tools) != 0 {
			t.Errorf("tools: %v", tools)
		}
	})
}

func TestManager_CallRoutesToRightServer(t *testing.T) {
	policy(t, func(t *testing.T, h *memoryHost) {
		names := []string{"one", "two", "three"}
		var servers []ServerConfig
		for _, name := range names {
			servers = append(servers, ServerConfig{Name: name, Command: "plain"})
		}
		m := h.started(t, ManagerOptions{}, servers...)
		wantReady(t, m, names...)
		var callers sync.WaitGroup
		for i := range 300 {
			callers.Go(func() {
				name := names[i%len(names)]
				args := fmt.Sprintf(`{"to":%q,"n":%d}`, name, i)
				result, err := m.Call(t.Context(), name, "echo", json.RawMessage(args))
				if err != nil {
					t.Error(err)
				} else if want := "plain echo " + args; result.Text() != want {
					t.Errorf("asked %s, got %q", want, result.Text())
				}
			})
		}
		callers.Wait()
		for _, name := range names {
			for _, line := range h.last(name).server.received("tools/call") {
				if !strings.Contains(line, fmt.Sprintf("%q", name)) {
					t.Errorf("%s received %s", name, line)
				}
			}
		}
	})
}

func TestManager_StatusLinesIsSingleSource(t *testing.T) {
	policy(t, func(t *testing.T, h *memoryHost) {
		servers := []ServerConfig{{Name: "a", Command: "plain", Curated: []string{"echo", "missing"}}, {Name: "b", Command: "empty-list"}, {Name: "c", Command: "no-initialize"}, {Name: "d", Command: "plain"}}
		for _, limit := range []int{-1, 0, 1, 3, 4, 9} {
			m := h.started(t, ManagerOptions{StatusMaxLines: limit}, servers...)
			synctest.Wait()
			if got, want := m.StatusLines(), RenderStatusLines(m.Health(), limit); got != want {
				t.Errorf("limit %d: StatusLines is\n%s\nRenderStatusLines of Health is\n%s", limit, got, want)
			}
		}
		m := h.started(t, ManagerOptions{StatusMaxLines: 3}, servers...)
		wantText(t, m, "a: ready — 2 tools (1 curated, 1 external)", "b: degraded — connected, but it lists no tools",
			"c: starting — waiting for the handshake", "+1 more servers")
	})
}

func TestManager_ConcurrentCallsStayFramed(t *testing.T) {
	m := NewManager([]ServerConfig{fakeConfig(t, "s", "plain")}, ManagerOptions{})
	if err := m.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer m.Close(context.Background())
	wantReady(t, m, "s")
	filler := strings.Repeat("long ", 5000)
	var callers sync.WaitGroup
	for i := range 64 {
		callers.Go(func() {
			for n := range 20 {
				args := fmt.Sprintf(`{"caller":%d,"n":%d,"filler":%q}`, i, n, filler[:(i*n*97)%len(filler)])
				result, err := m.Call(within(t), "s", "echo", json.RawMessage(args))
				if err != nil {
					t.Error(err)
					return
				}
				if want := "plain echo " + args; result.Text() != want {
					t.Errorf("caller %d got somebody else's answer, or a torn one", i)
				}
			}
		})
	}
	callers.Wait()
}

func TestManager_ListChangedRefreshesTools(t *testing.T) {
	policy(t, func(t *testing.T, h *memoryHost) {
		var seen recorder
		m := h.started(t, ManagerOptions{OnToolsChanged: seen.onTools}, ServerConfig{Name: "s", Command: "list-changed"})
		wantReady(t, m, "s")
		time.Sleep(time.Second)
		wantText(t, m, "s: ready — 1 tool")
		server := h.last("s").server
		if got := len(server.received("tools/list")); got != 2 {
			t.Errorf("%d tools/list: the notice from before the first list is due once more", got)
		}
		wantEcho(t, m, "s", `list-changed echo {"a":1}`)
		time.Sleep(time.Second)
		wantText(t, m, "s: ready — 2 tools")
		changes := seen.toolChanges()
		if len(changes) != 2 || !slices.Equal(changes[0].Added, []string{"echo"}) || !slices.Equal(changes[1].Added, []string{"added-1"}) ||
			len(changes[1].Removed)+len(changes[1].Changed) != 0 {
			t.Errorf("changes are %+v", changes)
		}
	})
}

func TestMCPClient_ListToolsPaginates(t *testing.T) {
	c := readyFakeClient(t, "tools-list-paged", nil)
	tools, instructions, err := c.ListTools(within(t))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, tool := range tools {
		names = append(names, tool.Name)
	}
	if want := []string{"tool-", "tool-second", "tool-third"}; !slices.Equal(names, want) {
		t.Errorf("got %v, want %v", names, want)
	}
	if instructions != fakeInstructions {
		t.Errorf("instructions %q, want %q", instructions, fakeInstructions)
	}
}

func TestMCPClient_ListToolsPageCapErrors(t *testing.T) {
	c := readyFakeClient(t, "tools-list-endless", nil)
	tools, _, err := c.ListTools(within(t))
	if !errors.Is(err, ErrTooLarge) || !strings.Contains(err.Error(), "20 pages") {
		t.Errorf("got %v, want the cap of 20 pages named", err)
	}
	if len(tools) != 0 {
		t.Errorf("a cut list came back: %d tools", len(tools))
	}
}

func TestMCPClient_ListToolsRequiresReady(t *testing.T) {
	c := newFakeClient(t, "no-initialize", nil)
	tools, _, err := c.ListTools(within(t))
	if !errors.Is(err, ErrNotReady) || errors.Is(err, ErrIndexBuilding) || tools != nil {
		t.Errorf("got %v, %v; want ErrNotReady", tools, err)
	}
}

func TestMCPClient_ListToolsCarriesAnnotations(t *testing.T) {
	c := readyFakeClient(t, "tools-list", nil)
	tools, _, err := c.ListTools(within(t))
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, tool := range tools {
		switch {
		case tool.Annotations == nil:
			got[tool.Name] = "no annotations"
		case tool.Annotations.ReadOnlyHint == nil:
			got[tool.Name] = "absent"
		default:
			got[tool.Name] = fmt.Sprint(*tool.Annotations.ReadOnlyHint)
		}
	}
	want := map[string]string{"reads": "true", "writes": "false", "unsaid": "absent", "bare": "no annotations"}
	for name, hint := range want {
		if got[name] != hint {
			t.Errorf("%s: readOnlyHint %s, want %s", name, got[name], hint)
		}
	}
}
