package interop

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"yagent/mcp"
)

// What else goes over the wire during a call, and the end of a caller's patience.

func TestHostile_ping_midcall(t *testing.T) {
	h := connected(t, "ping-midcall")
	if got := h.call("bad", "echo", nil).Text(); got != "pong {}" {
		t.Errorf("got %q", got)
	}
}

func TestHostile_ask_client(t *testing.T) {
	h := connected(t, "ask-client")
	want := "sampling/createMessage=-32601 roots/list=-32601 elicitation/create=-32601 made/up=-32601"
	if got := h.call("bad", "echo", nil).Text(); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	var hello struct {
		Params struct{ Capabilities json.RawMessage }
	}
	if err := json.Unmarshal([]byte(h.received("bad", "initialize")[0]), &hello); err != nil || string(hello.Params.Capabilities) != "{}" {
		t.Errorf("announced %s (%v), but nothing has a handler", hello.Params.Capabilities, err)
	}
}

func TestHostile_late_progress(t *testing.T) {
	h := connected(t, "late-progress")
	h.survivesWith("done", func() {
		if got := h.call("bad", "echo", nil).Text(); got != "done" {
			t.Errorf("got %q", got)
		}
	})
	if line := h.received("bad", "tools/call")[0]; strings.Contains(line, "progressToken") {
		t.Errorf("nobody asked for progress, but the request was %s", line)
	}
}

// survivesWith is survives for a server that answers each call with a text of
// its own.
func (h *host) survivesWith(text string, ordeal func()) {
	h.t.Helper()
	before := h.health("bad").PID
	ordeal()
	if got := h.call("bad", "echo", nil).Text(); got != text {
		h.t.Errorf("afterwards: got %q, want %q", got, text)
	}
	if after := h.health("bad").PID; after != before {
		h.t.Errorf("the process is %d, was %d: it must not be restarted", after, before)
	}
}

// Progress alone extends no call.
func TestHostile_progress_alive(t *testing.T) {
	t.Parallel()
	cfg := in("progress-alive", flagTime("delay", 100*time.Millisecond))
	cfg.RequestTimeout = 300 * time.Millisecond
	h := newHost(t, once(), cfg)
	h.ready("bad")
	err := h.callError(h.patient(), "bad", "echo", nil)
	if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, mcp.ErrOutcomeUnknown) || !strings.Contains(err.Error(), "300ms") {
		t.Errorf("got %v, want the end of RequestTimeout", err)
	}
	eventually(t, "the cancellation", func() bool { return len(h.received("bad", "notifications/cancelled")) == 1 })
	if n := h.starts("bad"); n != 1 || h.health("bad").State != mcp.StateReady {
		t.Errorf("%d starts, line %q", n, h.line("bad"))
	}
}

func TestHostile_notify_flood(t *testing.T) {
	h := connected(t, "notify-flood")
	h.survives("bad", func() { h.callsTogether("bad", 5) })
}

func TestHostile_odd_notify(t *testing.T) {
	h := connected(t, "odd-notify")
	h.survives("bad", func() { h.echoes("bad") })
}

func TestHostile_stderr_flood(t *testing.T) {
	h := connected(t, "stderr-flood")
	h.survives("bad", func() {
		for range 5 {
			h.echoes("bad")
		}
	})
}

// The tail of a flood is kept, and no more than that.
func TestHostile_stderr_flood_tail(t *testing.T) {
	h := connected(t, "exit-midcall")
	err := h.callError(h.patient(), "bad", "echo", nil)
	if exit, ok := errors.AsType[*mcp.ExitError](err); !ok || len(exit.Stderr) > 8<<10 || !strings.Contains(exit.Stderr, "the database is gone") {
		t.Errorf("got %v", err)
	}
}

// cancelledIDs returns the ids of the calls that the server was told to drop.
func (h *host) cancelledIDs() []string {
	h.t.Helper()
	var ids []string
	for _, line := range h.received("bad", "notifications/cancelled") {
		var m struct {
			Params struct{ RequestID json.RawMessage }
		}
		if err := json.Unmarshal([]byte(line), &m); err != nil {
			h.t.Fatal(err)
		}
		ids = append(ids, string(m.Params.RequestID))
	}
	return ids
}

// A caller that leaves is free at once, and the server hears of it once.
func TestHostile_cancel(t *testing.T) {
	for _, mode := range []string{"normal", "cancel-ignored"} {
		for name, leave := range map[string]func(h *host) (context.Context, error){
			"deadline": func(h *host) (context.Context, error) {
				return shortly(h.t, 400*time.Millisecond), context.DeadlineExceeded
			},
			"cancelled": func(h *host) (context.Context, error) {
				ctx, cancel := context.WithCancelCause(context.Background())
				h.t.Cleanup(func() { cancel(nil) })
				go func() {
					for len(h.received("bad", "tools/call")) == 0 {
						time.Sleep(time.Millisecond)
					}
					cancel(errUserLeft)
				}()
				return ctx, errUserLeft
			},
		} {
			t.Run(mode+" "+name, func(t *testing.T) {
				h := connected(t, mode)
				h.survives("bad", func() {
					ctx, want := leave(h)
					begun := time.Now()
					err := h.callError(ctx, "bad", "sleep", map[string]int{"ms": 1500})
					if !errors.Is(err, want) || !errors.Is(err, mcp.ErrOutcomeUnknown) {
						t.Errorf("got %v, want %v and ErrOutcomeUnknown", err, want)
					}
					if took := time.Since(begun); took > 1400*time.Millisecond {
						t.Errorf("the caller was kept for %v", took)
					}
				})
				h.call("bad", "sleep", map[string]int{"ms": 1500}) // a late answer comes meanwhile
				h.close()
				sleeping := requestID(t, h.received("bad", "tools/call")[0])
				if ids := h.cancelledIDs(); !slices.Equal(ids, []string{sleeping}) {
					t.Errorf("the server was told to cancel %q, want only %s", ids, sleeping)
				}
			})
		}
	}
}

var errUserLeft = errors.New("the user left")

func TestHostile_request_timeout(t *testing.T) {
	t.Parallel()
	opts := once()
	opts.RequestTimeout = 150 * time.Millisecond
	h := newHost(t, opts, in("normal"))
	h.ready("bad")
	h.survives("bad", func() {
		err := h.callError(context.Background(), "bad", "sleep", map[string]int{"ms": 60_000})
		if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "150ms") {
			t.Errorf("got %v, want the end of RequestTimeout", err)
		}
	})
}

// tear makes the connection to a deaf server hold a line that was begun and
// cannot be finished: it is longer than a pipe.
func (h *host) tear() {
	h.t.Helper()
	big := map[string]string{"text": strings.Repeat("x", 1<<20)}
	eventually(h.t, "a line that is begun", func() bool {
		err := h.callError(shortly(h.t, 300*time.Millisecond), "bad", "echo", big)
		if !errors.Is(err, context.DeadlineExceeded) {
			h.t.Fatalf("got %v, want DeadlineExceeded", err)
		}
		return errors.Is(err, mcp.ErrOutcomeUnknown) // otherwise it was withdrawn in time
	})
}

// A server that does not read keeps nobody beyond his own deadline, and a line
// that stands still ends the connection.
func TestHostile_deaf(t *testing.T) {
	t.Parallel()
	opts := once()
	opts.RequestTimeout = 3 * time.Second
	opts.ShutdownGrace = 100 * time.Millisecond
	h := newHost(t, opts, in("deaf"))
	h.ready("bad")
	pid := h.health("bad").PID
	h.tear()
	err := h.callError(shortly(t, 200*time.Millisecond), "bad", "echo", nil)
	if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, mcp.ErrNotSent) || errors.Is(err, mcp.ErrOutcomeUnknown) {
		t.Errorf("the one behind the torn line: got %v, want ErrNotSent", err)
	}
	h.awaitState("bad", mcp.StateOffline)
	if got := h.health("bad").Detail; !strings.Contains(got, "no byte moved") {
		t.Errorf("the detail is %q", got)
	}
	eventually(t, "the end of the process", func() bool { _, parent := status(pid); return parent == 0 })
}

// Behind a torn line nothing is sent, and Close is bounded.
func TestHostile_deaf_close(t *testing.T) {
	t.Parallel()
	opts := once()
	opts.ShutdownGrace = 100 * time.Millisecond
	h := newHost(t, opts, in("deaf"))
	h.ready("bad")
	h.tear()
	waiting := make(chan error, 1)
	go func() {
		_, err := h.Call(h.patient(), "bad", "echo", nil)
		waiting <- err
	}()
	if took := h.close(); took > 5*time.Second {
		t.Errorf("Close took %v", took)
	}
	if err := <-waiting; !errors.Is(err, mcp.ErrClosed) || !errors.Is(err, mcp.ErrNotSent) {
		t.Errorf("the call that waited: got %v, want ErrClosed and ErrNotSent", err)
	}
}

// Every line a server reads is whole, whoever wrote it.
func TestHostile_stats(t *testing.T) {
	h := connected(t, "normal")
	h.callsTogether("bad", 200)
	h.callError(shortly(t, 50*time.Millisecond), "bad", "sleep", map[string]int{"ms": 60_000})
	h.call("bad", "echo", map[string]string{"text": strings.Repeat("x", 1<<20)})
	var stats struct{ Lines, Bad int }
	if err := json.Unmarshal([]byte(h.call("bad", "stats", nil).Text()), &stats); err != nil || stats.Bad != 0 || stats.Lines < 200 {
		t.Errorf("the server counts %+v (%v)", stats, err)
	}
}

// Answers to the server's own requests are whole lines too.
func TestHostile_ping_midcall_together(t *testing.T) {
	h := connected(t, "ping-midcall")
	calls := make(chan string, 50)
	for range cap(calls) {
		go func() {
			result, err := h.Call(h.patient(), "bad", "echo", map[string]string{"text": strings.Repeat("x", 10_000)})
			if err != nil {
				calls <- err.Error()
				return
			}
			calls <- result.Text()
		}()
	}
	for range cap(calls) {
		if got := <-calls; got != "pong {}" {
			t.Errorf("got %q", got)
		}
	}
	for _, e := range h.events("bad") {
		if e.kind == "recv" && !json.Valid([]byte(e.data)) {
			t.Errorf("a torn line: %.200q", e.data)
		}
	}
}

// Nobody asked for pings, so there are none, and silence is no death.
func TestHostile_no_ping(t *testing.T) {
	for _, mode := range []string{"no-ping", "ping-error"} {
		t.Run(mode, func(t *testing.T) {
			h := connected(t, mode)
			h.survives("bad", func() { h.callsTogether("bad", 20) })
			if lines := h.received("bad", "ping"); len(lines) != 0 {
				t.Errorf("the server received %q", lines)
			}
		})
	}
}
