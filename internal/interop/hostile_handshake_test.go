package interop

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"yagent/mcp"
)

// From the start of the process to the end of the handshake.

func TestHostile_early_notify(t *testing.T) {
	h := connected(t, "early-notify")
	h.echoes("bad")
	h.close()
	h.wantEnding("bad", "early-ping true", "eof", "exit 0")
}

// A server of another time is a fault that no restart mends.
func TestHostile_version_new(t *testing.T) {
	t.Parallel()
	h := newHost(t, eager(5), in("version-new"))
	err := h.WaitForReady(h.patient(), "bad")
	if !errors.Is(err, mcp.ErrNoCommonVersion) || !strings.Contains(err.Error(), "2099-01-01") || !strings.Contains(err.Error(), "2025-11-25") {
		t.Errorf("got %v, want ErrNoCommonVersion that names both versions", err)
	}
	if got, want := h.line("bad"), "bad: offline — no common protocol version"; got != want {
		t.Errorf("line is %q, want %q", got, want)
	}
	h.noProcesses() // before the Manager closes
	if n := h.starts("bad"); n != 1 {
		t.Errorf("%d starts, want 1", n)
	}
	if lines := h.received("bad", "notifications/initialized"); len(lines) != 0 {
		t.Errorf("the server was told %q", lines)
	}
}

func TestHostile_version_old(t *testing.T) {
	h := connected(t, "version-old")
	if got := h.health("bad").ProtocolVersion; got != "2024-11-05" {
		t.Errorf("the version is %q", got)
	}
	h.echoes("bad")
}

func TestHostile_version_error(t *testing.T) {
	h := connected(t, "version-error")
	if got := h.health("bad").ProtocolVersion; got != "2024-11-05" {
		t.Errorf("the version is %q", got)
	}
	if lines := h.received("bad", "initialize"); len(lines) != 2 || h.starts("bad") != 1 {
		t.Errorf("%d starts, requests %q; want a second try in the same process", h.starts("bad"), lines)
	}
}

func TestHostile_modern_only(t *testing.T) {
	h := connected(t, "modern-only")
	if got := h.health("bad").ProtocolVersion; got != "2026-07-28" {
		t.Errorf("the version is %q", got)
	}
	if lines := h.received("bad", "initialize"); len(lines) != 0 || h.starts("bad") != 1 {
		t.Errorf("%d starts, requests %q; want neither a second process nor the legacy handshake", h.starts("bad"), lines)
	}
	h.echoes("bad")
}

// Whether a server that dies at once does so because of the probe, only a second
// process can tell. An attempt takes no more than that, and its error has both ends.
func TestHostile_die_at_start_twice(t *testing.T) {
	t.Parallel()
	h := newHost(t, eager(2), in("die-at-start"))
	err := h.WaitForReady(h.patient(), "bad")
	if err == nil || strings.Count(err.Error(), "status 42") != 2 {
		t.Errorf("got %v, want the ends of two processes", err)
	}
	if n := h.starts("bad"); n != 6 {
		t.Errorf("%d starts, want 2 in each of 3 attempts", n)
	}
}

// A handshake that is refused is told in the server's words, and tried again so
// many times.
func TestHostile_handshake_refused(t *testing.T) {
	for _, test := range []struct {
		mode, words string
		code        int64
	}{
		{"init-error", "no licence", -32603},
		{"modern-only", "this server speaks 2026-07-28", -32601}, // it is taken for a legacy one
	} {
		t.Run(test.mode, func(t *testing.T) {
			t.Parallel()
			h := newHost(t, eager(2), legacyIn(test.mode), mcp.ServerConfig{Name: "good", Command: badserver})
			err := h.WaitForReady(h.patient(), "bad")
			answer, ok := errors.AsType[*mcp.RPCError](err)
			if !ok || answer.Code != test.code || !errors.Is(err, mcp.ErrNotReady) || !errors.Is(err, mcp.ErrHandshakeFailed) || !strings.Contains(err.Error(), test.words) {
				t.Errorf("got %v, want the server's %d %q", err, test.code, test.words)
			}
			if got, want := h.line("bad"), "bad: offline — gave up after 2 attempts"; got != want {
				t.Errorf("line is %q, want %q", got, want)
			}
			if n := h.starts("bad"); n != 3 {
				t.Errorf("%d starts, want the first and 2 more", n)
			}
			eventually(t, "the end of the last process", func() bool { return h.countEvents("bad", "exit") == 3 })
			h.wantEnding("bad", "eof", "exit 0", "eof", "exit 0", "eof", "exit 0")
			h.ready("good")
		})
	}
}

// Between two rounds the line says why.
func TestHostile_init_error_line(t *testing.T) {
	t.Parallel()
	h := newHost(t, once(), in("init-error"))
	change := h.awaitState("bad", mcp.StateOffline)
	if change.Reason != mcp.ReasonHandshakeFailed {
		t.Errorf("the reason is %q", change.Reason)
	}
	if got, want := h.line("bad"), "bad: offline — the handshake failed; reconnecting"; got != want {
		t.Errorf("line is %q, want %q", got, want)
	}
	if got := h.health("bad").Detail; !strings.Contains(got, "no licence") {
		t.Errorf("the detail is %q", got)
	}
	if strings.Contains(h.StatusLines(), "licence") {
		t.Errorf("the server's words are in the status text: %s", h.StatusLines())
	}
	err := h.callError(h.patient(), "bad", "echo", nil)
	if !errors.Is(err, mcp.ErrOffline) || !errors.Is(err, mcp.ErrNotSent) {
		t.Errorf("got %v, want ErrOffline and ErrNotSent", err)
	}
}

// However long a handshake takes, nothing but its answer ends the wait.
func TestHostile_init_hang(t *testing.T) {
	t.Parallel()
	opts := once()
	opts.RequestTimeout = 50 * time.Millisecond // does not bound a handshake
	opts.ReadyTimeout = 200 * time.Millisecond
	h := newHost(t, opts, in("init-hang"), mcp.ServerConfig{Name: "good", Command: badserver})
	if err := h.callError(h.patient(), "bad", "echo", nil); !errors.Is(err, mcp.ErrIndexBuilding) || err.Error() != mcp.ErrIndexBuilding.Error() {
		t.Errorf("got %v, want ErrIndexBuilding word for word", err)
	}
	if _, _, err := h.Client("bad").ListTools(h.patient()); !errors.Is(err, mcp.ErrNotReady) {
		t.Errorf("ListTools: got %v, want ErrNotReady", err)
	}
	h.ready("good")
	h.echoes("good")
	eventually(t, "the end of ReadyTimeout", func() bool {
		return h.line("bad") == "bad: starting — still no answer to the handshake"
	})
	if n := h.starts("bad"); n != 1 || !h.Client("bad").IsAlive() {
		t.Errorf("%d starts, alive %v: the process must be left alone", n, h.Client("bad").IsAlive())
	}
	h.close()
	h.noProcesses()
	h.wantEnding("bad", "eof", "exit 0")
	if n := h.starts("bad"); n != 1 {
		t.Errorf("%d starts after Close, want 1", n)
	}
	if lines := h.received("bad", "notifications/cancelled"); len(lines) != 0 {
		t.Errorf("a handshake is never cancelled, but the server received %q", lines)
	}
}

func TestHostile_init_slow(t *testing.T) {
	t.Parallel()
	opts := once()
	opts.ReadyTimeout = 300 * time.Millisecond
	h := newHost(t, opts, in("init-slow", flagTime("delay", time.Second)), mcp.ServerConfig{Name: "good", Command: badserver})
	h.ready("good")
	if got := h.health("bad"); got.State != mcp.StateStarting || got.Tools != 0 {
		t.Errorf("the slow one is %+v, want starting", got)
	}
	// Its answer comes after ReadyTimeout and still leads to a list.
	h.ready("bad")
	h.echoes("bad")
	if n := h.starts("bad"); n != 1 {
		t.Errorf("%d starts, want 1", n)
	}
}

func TestHostile_die_at_start(t *testing.T) {
	t.Parallel()
	h := newHost(t, eager(2), legacyIn("die-at-start"), mcp.ServerConfig{Name: "good", Command: badserver})
	err := h.WaitForReady(h.patient(), "bad")
	exit, ok := errors.AsType[*mcp.ExitError](err)
	if !ok || exit.Status != 42 || exit.Signal != "" || !strings.Contains(exit.Stderr, "the database is gone") {
		t.Errorf("got %v, want an ExitError with status 42 and the stderr tail", err)
	}
	if exit, ok := errors.AsType[interface {
		error
		ExitCode() int
	}](err); !ok || exit.ExitCode() != 42 {
		t.Errorf("got %v, want an *exec.ExitError in it", err)
	}
	if got, want := h.line("bad"), "bad: offline — gave up after 2 attempts"; got != want {
		t.Errorf("line is %q, want %q", got, want)
	}
	if n := h.starts("bad"); n != 3 {
		t.Errorf("%d starts, want the first and 2 more", n)
	}
	h.ready("good")
	h.echoes("good")
}

// A call that meets the dead server is told how it died.
func TestHostile_die_at_start_call(t *testing.T) {
	t.Parallel()
	h := newHost(t, once(), in("die-at-start"))
	h.awaitState("bad", mcp.StateOffline)
	eventually(t, "the exit status", func() bool {
		exit, ok := errors.AsType[*mcp.ExitError](h.callError(h.patient(), "bad", "echo", nil))
		return ok && exit.Status == 42
	})
	err := h.callError(h.patient(), "bad", "echo", nil)
	if !errors.Is(err, mcp.ErrOffline) || !errors.Is(err, mcp.ErrNotSent) || !strings.Contains(err.Error(), "the database is gone") {
		t.Errorf("got %v, want ErrOffline and ErrNotSent with the stderr tail", err)
	}
}

func TestHostile_no_tools_cap(t *testing.T) {
	t.Parallel()
	h := newHost(t, eager(5), in("no-tools-cap"))
	h.awaitState("bad", mcp.StateDegraded)
	if got, want := h.line("bad"), "bad: degraded — connected, but it lists no tools"; got != want {
		t.Errorf("line is %q, want %q", got, want)
	}
	if err := h.WaitForReady(h.patient(), "bad"); err != nil {
		t.Errorf("WaitForReady: %v", err)
	}
	h.close()
	if n, lists := h.starts("bad"), h.received("bad", "tools/list"); n != 1 || len(lists) != 1 {
		t.Errorf("%d starts, %d lists; want one of each", n, len(lists))
	}
	if n := h.records.count("level=ERROR") + h.records.count("level=WARN"); n != 0 {
		t.Errorf("an empty server is no fault, but was logged:\n%s", h.records)
	}
}

// The context of Start bounds the start, and no process lives by it.
func TestHostile_context_of_start(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(context.Background())
	m := mcp.NewManager([]mcp.ServerConfig{{Name: "bad", Command: badserver}}, once())
	if err := m.Start(ctx); err != nil {
		t.Fatal(err)
	}
	defer m.ForceClose(context.Background())
	cancel()
	if err := m.WaitForReady(shortly(t, patience), "bad"); err != nil {
		t.Fatal(err)
	}
	if _, err := m.Call(shortly(t, patience), "bad", "echo", nil); err != nil {
		t.Error(err)
	}
}
