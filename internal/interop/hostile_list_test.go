package interop

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"yagent/mcp"
)

// What a server lists, and how it says that its list has changed.

func TestHostile_cursor_empty_end(t *testing.T) {
	h := connected(t, "cursor-empty-end")
	if got := len(h.toolNames("bad")); got != 8 {
		t.Errorf("got %d tools, want 8: %q", got, h.toolNames("bad"))
	}
	if lines := h.received("bad", "tools/list"); len(lines) != 1 {
		t.Errorf("the server was asked %q", lines)
	}
}

// A list without an end is no list, not a part of one.
func TestHostile_cursor_without_end(t *testing.T) {
	for _, test := range []struct {
		mode     string
		flags    []string
		requests int
		named    string // by the error
	}{
		{"cursor-loop", nil, 2, `"again"`},
		{"cursor-forever", nil, 20, "20 pages"},
		{"many-tools", []string{flagInt("n", 2001)}, 20, "20 pages"},
	} {
		t.Run(test.mode, func(t *testing.T) {
			t.Parallel()
			h := newHost(t, once(), in(test.mode, test.flags...))
			h.awaitState("bad", mcp.StateDegraded)
			if got, want := h.line("bad"), "bad: degraded — tools/list failed"; got != want {
				t.Errorf("line is %q, want %q", got, want)
			}
			if got := h.health("bad").Detail; !strings.Contains(got, test.named) {
				t.Errorf("the detail is %q, want it to name %s", got, test.named)
			}
			if names := h.toolNames("bad"); len(names) != 0 {
				t.Errorf("a part of the list was kept: %q", names)
			}
			h.echoes("bad")
			if lines := h.received("bad", "tools/list"); len(lines) != test.requests {
				t.Errorf("the server was asked %d times, want %d", len(lines), test.requests)
			}
			if _, _, err := h.Client("bad").ListTools(h.patient()); err == nil || !strings.Contains(err.Error(), test.named) {
				t.Errorf("ListTools: got %v, want an error that names %s", err, test.named)
			}
		})
	}
}

func TestHostile_many_tools(t *testing.T) {
	h := connected(t, "many-tools")
	names := h.toolNames("bad")
	if len(names) != 2000 || !slices.IsSorted(names) || len(slices.Compact(names)) != 2000 {
		t.Errorf("got %d tools, sorted %v", len(names), slices.IsSorted(names))
	}
	if lines := h.received("bad", "tools/list"); len(lines) != 20 {
		t.Errorf("%d requests, want 20", len(lines))
	}
}

func TestHostile_bad_tools(t *testing.T) {
	h := connected(t, "bad-tools")
	names := h.toolNames("bad")
	for _, want := range []string{"first_good", "last_good", "no_schema", "null_schema", "true_schema", "string_schema", "typeless_schema", "anyof_schema", "null_description", "number_description", "odd name/with:chars é"} {
		if !slices.Contains(names, want) {
			t.Errorf("%q was lost", want)
		}
	}
	for _, name := range []string{"no_schema", "null_schema"} {
		if got := string(h.tool("bad", name).InputSchema); got != `{"type":"object"}` {
			t.Errorf("the schema of %s is %s", name, got)
		}
	}
	if got := h.tool("bad", "number_description").Description; got != "" {
		t.Errorf("the description that is a number became %q", got)
	}
	const listed = 18
	dropped := h.health("bad").DroppedTools
	if len(names)+dropped != listed || dropped < 6 {
		t.Errorf("%d kept and %d dropped of %d: %q", len(names), dropped, listed, names)
	}
	if n := h.records.count("level=WARN", fmt.Sprintf("dropped=%d", dropped)); n != 1 {
		t.Errorf("%d warnings that tell of %d dropped tools:\n%s", n, dropped, h.records)
	}
}

func TestHostile_shuffle(t *testing.T) {
	h := connected(t, "shuffle")
	first := h.toolNames("bad")
	h.awaitChange()
	for lists := 2; lists <= 4; lists++ {
		h.call("bad", "grow", nil)
		eventually(t, "another list", func() bool { return len(h.received("bad", "tools/list")) >= lists })
	}
	h.echoes("bad")
	if got := h.toolNames("bad"); !slices.Equal(got, first) || !slices.IsSorted(got) {
		t.Errorf("the tools were %q and are %q", first, got)
	}
	h.close() // has made all callbacks
	if len(h.changes) != 0 {
		t.Errorf("an event for a change of order: %+v", <-h.changes)
	}
}

func TestHostile_list_error(t *testing.T) {
	t.Parallel()
	h := newHost(t, eager(3), in("list-error"))
	h.awaitState("bad", mcp.StateDegraded)
	if got := h.health("bad").Detail; !strings.Contains(got, "catalogue is broken") {
		t.Errorf("the detail is %q", got)
	}
	if got, want := h.line("bad"), "bad: degraded — tools/list failed"; got != want {
		t.Errorf("line is %q, want %q", got, want)
	}
	_, _, err := h.Client("bad").ListTools(h.patient())
	if answer, ok := errors.AsType[*mcp.RPCError](err); !ok || answer.Code != -32603 {
		t.Errorf("ListTools: got %v, want the server's error", err)
	}
	h.survives("bad", func() {
		// The first one, three more, and ours.
		eventually(t, "the last list", func() bool { return len(h.received("bad", "tools/list")) == 5 })
	})
	h.close()
	if n := len(h.received("bad", "tools/list")); n != 5 || h.starts("bad") != 1 {
		t.Errorf("%d lists and %d starts, want 5 and 1", n, h.starts("bad"))
	}
}

func TestHostile_list_hang(t *testing.T) {
	t.Parallel()
	opts := once()
	opts.StartupTimeout = 200 * time.Millisecond
	h := newHost(t, opts, in("list-hang"), mcp.ServerConfig{Name: "good", Command: badserver})
	h.ready("good")
	h.ready("bad") // that is: connected
	if got, want := h.line("bad"), "bad: degraded — tools/list failed"; got != want {
		t.Errorf("line is %q, want %q", got, want)
	}
	h.survives("bad", func() {})
	if n := h.starts("bad"); n != 1 {
		t.Errorf("%d starts, want 1", n)
	}
}

func TestHostile_grow(t *testing.T) {
	h := connected(t, "normal")
	if first := h.awaitChange(); len(first.Added) != 8 || len(first.Removed)+len(first.Changed) != 0 {
		t.Errorf("the first change is %+v", first)
	}
	h.call("bad", "grow", nil)
	change := h.awaitChange()
	if !slices.Equal(change.Added, []string{"extra1"}) || len(change.Removed)+len(change.Changed) != 0 || change.Server != "bad" {
		t.Errorf("the change is %+v", change)
	}
	if got, want := h.line("bad"), "bad: ready — 9 tools"; got != want || !slices.Contains(h.toolNames("bad"), "extra1") {
		t.Errorf("line is %q, tools %q", got, h.toolNames("bad"))
	}
	h.close()
	if len(h.changes) != 0 {
		t.Errorf("a second event: %+v", <-h.changes)
	}
}

func TestHostile_list_midcall(t *testing.T) {
	h := connected(t, "list-midcall")
	h.awaitChange()
	if got := h.call("bad", "echo", nil).Text(); got != "done" {
		t.Errorf("got %q", got)
	}
	if change := h.awaitChange(); !slices.Equal(change.Added, []string{"mid1"}) {
		t.Errorf("the change is %+v", change)
	}
}

func TestHostile_list_storm(t *testing.T) {
	h := connected(t, "list-storm")
	eventually(t, "the tool that comes last", func() bool { return slices.Contains(h.toolNames("bad"), "storm_done") })
	h.echoes("bad")
	if n := len(h.received("bad", "tools/list")); n > 10 {
		t.Errorf("%d lists for a storm, want a handful", n)
	}
}

func TestHostile_list_feedback(t *testing.T) {
	h := connected(t, "list-feedback")
	begun := time.Now()
	for time.Since(begun) < time.Second {
		h.echoes("bad")
	}
	if n := len(h.received("bad", "tools/list")); n < 2 || n > 12 {
		t.Errorf("%d lists in a second, want a few", n)
	}
}

func TestHostile_list_shrink(t *testing.T) {
	h := connected(t, "list-shrink")
	h.awaitChange()
	h.call("bad", "echo", nil)
	change := h.awaitChange()
	if len(change.Removed) != 8 || !slices.Equal(change.Added, []string{"only"}) {
		t.Errorf("the change is %+v", change)
	}
	if got := h.toolNames("bad"); !slices.Equal(got, []string{"only"}) {
		t.Errorf("the tools are %q", got)
	}
}
