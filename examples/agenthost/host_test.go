package main

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"yagent/mcp"
)

func newQuietHost() (*host, *strings.Builder) {
	var out strings.Builder
	return newHost(newScreen(&out), fakeServers("notes"), mcp.ManagerOptions{}), &out
}

// Expectations are met in any order, each by an event of its own.
func TestAwait(t *testing.T) {
	t.Parallel()
	h, out := newQuietHost()
	h.toolsChanged(mcp.ToolsChange{Server: "b", Added: []string{"x", "y"}, Removed: []string{"z"}})
	h.stateChanged(mcp.StateChange{Server: "a", From: mcp.StateStarting, To: mcp.StateOffline, Reason: mcp.ReasonExited})
	h.stateChanged(mcp.StateChange{Server: "a", To: mcp.StateReady})
	h.stateChanged(mcp.StateChange{Server: "later", To: mcp.StateReady})
	if err := h.await(t.Context(), reached("a", mcp.StateReady), listed("b")); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"b: tools: 2 added, 1 removed\n", "a: starting → offline (the process exited; reconnecting)\n", "a: offline → ready\n"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the screen lacks %q:\n%s", want, out)
		}
	}
	if strings.Contains(out.String(), "later") {
		t.Error("await took more events than it needed")
	}
	if h.seen["a"] != mcp.StateReady {
		t.Errorf("a was seen %v", h.seen["a"])
	}
}

// An end of the wait names what did not come.
func TestAwaitEndsWithContext(t *testing.T) {
	t.Parallel()
	h, _ := newQuietHost()
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("enough"))
	err := h.await(ctx, reached("a", mcp.StateReady), listed("b"))
	if err == nil || !strings.Contains(err.Error(), "a to be ready, the tools of b: enough") {
		t.Errorf("error %v, want what was missing and why", err)
	}
}

// A callback must not block, whatever the host is doing.
func TestNotifyNeverBlocks(t *testing.T) {
	t.Parallel()
	h, _ := newQuietHost()
	for range cap(h.events) + 10 {
		h.notify(event{server: "a"})
	}
	if len(h.events) != cap(h.events) {
		t.Errorf("%d events wait, want %d", len(h.events), cap(h.events))
	}
}

// Events that were dropped hold nobody up for long: Health decides.
func TestCatchUpIsBounded(t *testing.T) {
	t.Parallel()
	h, _ := newQuietHost()
	h.seen["notes"] = mcp.StateReady // and Health says offline, of which no event comes
	began := time.Now()
	h.catchUp(t.Context(), "notes")
	if took := time.Since(began); took > 10*catchUpTime {
		t.Errorf("it took %v", took)
	}
	h.notify(event{server: "notes", state: mcp.StateOffline})
	h.catchUp(t.Context(), "notes")
	if len(h.events) != 0 || h.seen["notes"] != mcp.StateOffline {
		t.Error("the event that was due was not shown")
	}
}

// A tool that may write runs only when somebody approved it.
func TestCallAsksBeforeWriting(t *testing.T) {
	t.Parallel()
	h, _ := newQuietHost()
	ran := 0
	run := func(context.Context, any) (string, error) { ran++; return "ran", nil }
	h.static = []tool{{name: "r", effect: reads, call: run}, {name: "w", effect: writes, call: run}, {name: "p", call: run}}
	tests := map[string]struct {
		tool     string
		approved bool
		runs     bool
	}{
		"reads":                    {"r", false, true},
		"writes":                   {"w", false, false},
		"writes, approved":         {"w", true, true},
		"does not say":             {"p", false, false},
		"does not say, approved":   {"p", true, true},
		"is not there, whatever":   {"x", true, false},
		"is not there, unapproved": {"x", false, false},
	}
	for name, test := range tests {
		ran = 0
		_, err := h.call(t.Context(), test.tool, nil, test.approved)
		if (ran == 1) != test.runs || (err == nil) != test.runs {
			t.Errorf("%s: ran %d times, error %v, want it to run: %v", name, ran, err, test.runs)
		}
	}
}

// The text for a model is the library's, word for word.
func TestShowCallShowsErrorsWordForWord(t *testing.T) {
	t.Parallel()
	h, out := newQuietHost()
	h.static = []tool{{name: "slow", effect: reads, call: func(context.Context, any) (string, error) {
		return "", mcp.ErrIndexBuilding
	}}}
	if err := h.showCall(t.Context(), "slow", nil, false); !errors.Is(err, mcp.ErrIndexBuilding) {
		t.Errorf("error %v", err)
	}
	if want := "  > slow {}\n  " + mcp.ErrIndexBuilding.Error() + "\n"; out.String() != want {
		t.Errorf("got %q, want %q", out.String(), want)
	}
}
