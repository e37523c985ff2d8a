package mcp

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// wantTools compares a server's tools, names in the order of Tools.
func wantTools(t *testing.T, m *Manager, want ...string) {
	t.Helper()
	synctest.Wait()
	got := []string{}
	for _, tool := range m.Tools() {
		got = append(got, tool.Server+"/"+tool.Name)
	}
	if !slices.Equal(got, want) {
		t.Errorf("tools are %q, want %q", got, want)
	}
}

// wantToolChanges compares all changes so far, each written as "+a -b ~c".
func wantToolChanges(t *testing.T, seen *recorder, want ...string) {
	t.Helper()
	synctest.Wait()
	got := []string{}
	for _, c := range seen.toolChanges() {
		var parts []string
		for sign, names := range map[string][]string{"+": c.Added, "-": c.Removed, "~": c.Changed} {
			for _, name := range names {
				parts = append(parts, sign+name)
			}
			if !slices.IsSorted(names) {
				t.Errorf("%q is not sorted", names)
			}
		}
		slices.Sort(parts)
		got = append(got, strings.Join(parts, " "))
	}
	if !slices.Equal(got, want) {
		t.Errorf("changes are %q, want %q", got, want)
	}
}

func TestRefresh_StormIsAHandfulOfListings(t *testing.T) {
	staged(t, func(t *testing.T, st *stage) {
		m := st.started(ManagerOptions{}, oneServer)
		wantReady(t, m, "s")
		a := st.actor("s")
		time.Sleep(time.Minute)
		for i := range 1000 {
			a.lists("echo", fmt.Sprintf("tool-%d", i))
			a.notice()
			time.Sleep(time.Millisecond)
		}
		during := a.asked("tools/list") - 1
		time.Sleep(10 * time.Second)
		wantTools(t, m, "s/echo", "s/tool-999")
		if all := a.asked("tools/list") - 1; during < 2 || all > 8 {
			t.Errorf("%d listings during the storm, %d in all; want a handful", during, all)
		}
	})
}

func TestRefresh_FirstNoticeIsServedAtOnce(t *testing.T) {
	staged(t, func(t *testing.T, st *stage) {
		m := st.started(ManagerOptions{}, oneServer)
		wantReady(t, m, "s")
		for i := range 10 {
			time.Sleep(time.Minute)
			st.actor("s").lists(fmt.Sprintf("tool-%d", i))
			st.actor("s").notice()
			wantTools(t, m, fmt.Sprintf("s/tool-%d", i))
		}
	})
}

// TestRefresh_FeedbackIsBounded: each listing provokes the next notice.
func TestRefresh_FeedbackIsBounded(t *testing.T) {
	staged(t, func(t *testing.T, st *stage) {
		m := st.started(ManagerOptions{}, oneServer)
		wantReady(t, m, "s")
		a := st.actor("s")
		a.play("tools/list", func(msg fakeMessage) {
			a.server.result(msg, fakeTools("echo"))
			a.notice()
		})
		a.notice()
		time.Sleep(time.Minute)
		first := a.asked("tools/list")
		time.Sleep(time.Hour)
		if perHour := a.asked("tools/list") - first; first > 25 || perHour > 721 || perHour < 60 {
			t.Errorf("%d listings in the first minute, %d in the next hour", first, perHour)
		}
		wantText(t, m, "s: ready — 1 tool")
		// Once the server is quiet, the next notice is served at once again.
		a.play("tools/list", nil)
		time.Sleep(time.Hour)
		a.lists("late")
		a.notice()
		wantTools(t, m, "s/late")
		a.lists("later")
		a.notice()
		time.Sleep(refreshPause)
		wantTools(t, m, "s/later")
	})
}

func TestRefresh_NoticeDuringAListing(t *testing.T) {
	staged(t, func(t *testing.T, st *stage) {
		m := st.started(ManagerOptions{}, oneServer)
		wantReady(t, m, "s")
		time.Sleep(time.Minute)
		a := st.actor("s")
		held := a.hold("tools/list")
		a.notice()
		old := <-held
		for range 5 {
			a.notice()
		}
		time.Sleep(time.Second)
		wantEcho(t, m, "s", `plain echo {"a":1}`) // calls go on meanwhile
		if n := a.asked("tools/list"); n != 2 {
			t.Fatalf("%d tools/list, want no second listing beside the first", n)
		}
		a.server.result(old, fakeTools("old"))
		wantTools(t, m, "s/old")
		time.Sleep(time.Second)
		a.server.result(<-held, fakeTools("new"))
		wantTools(t, m, "s/new")
		time.Sleep(time.Minute)
		if n := a.asked("tools/list"); n != 3 {
			t.Errorf("%d tools/list, want one more for any number of notices", n)
		}
	})
}

// TestRefresh_LateAnswerIsDropped: an answer that comes after its listing was
// given up does not overwrite the newer list.
func TestRefresh_LateAnswerIsDropped(t *testing.T) {
	staged(t, func(t *testing.T, st *stage) {
		m := st.started(ManagerOptions{StartupTimeout: 5 * time.Second, ReconnectBackoff: after(time.Second)}, oneServer)
		wantReady(t, m, "s")
		time.Sleep(time.Minute)
		a := st.actor("s")
		held := a.hold("tools/list")
		a.notice()
		old := <-held
		time.Sleep(5500 * time.Millisecond)
		wantText(t, m, "s: degraded — tools/list failed, last known 2 tools kept")
		time.Sleep(time.Second)
		a.server.result(<-held, fakeTools("new"))
		wantText(t, m, "s: ready — 1 tool")
		a.server.result(old, fakeTools("old"))
		time.Sleep(time.Minute)
		wantTools(t, m, "s/new")
	})
}

// TestRefresh_OldConnectionsRefreshTakesNothing: a refresh that was under way
// when its connection ended does not use up what the next connection wants.
func TestRefresh_OldConnectionsRefreshTakesNothing(t *testing.T) {
	staged(t, func(t *testing.T, st *stage) {
		m := st.started(ManagerOptions{}, oneServer)
		wantReady(t, m, "s")
		l := m.byName["s"].life
		old := l.sess
		st.actor("s").die(1, "")
		synctest.Wait()
		wantReady(t, m, "s")
		for _, anew := range []refreshState{{running: true}, {running: true, wanted: true}} {
			m.mu.Lock()
			l.refresh = anew
			m.mu.Unlock()
			if m.awaitRefresh(t.Context(), l, old) || m.beginRefresh(l, old) {
				t.Error("the old connection goes on refreshing")
			}
			m.mu.Lock()
			if l.refresh != anew {
				t.Errorf("it touched the new connection's: %+v, want %+v", l.refresh, anew)
			}
			m.mu.Unlock()
		}
	})
}

func TestRefresh_FailureKeepsTheLastList(t *testing.T) {
	staged(t, func(t *testing.T, st *stage) {
		var seen recorder
		var pauses []int
		m := st.started(ManagerOptions{
			OnToolsChanged: seen.onTools, OnStateChange: seen.onState, MaxReconnectAttempts: 3,
			ReconnectBackoff: func(attempt int) time.Duration { pauses = append(pauses, attempt); return time.Second },
		}, ServerConfig{Name: "s", Curated: []string{"echo"}})
		wantReady(t, m, "s")
		time.Sleep(time.Minute)
		a := st.actor("s")
		a.refuse("tools/list")
		a.notice()
		for range 40 {
			synctest.Wait()
			if text := m.StatusLines(); text != "s: degraded — tools/list failed, last known 2 tools kept" {
				t.Fatalf("the text is %q", text)
			}
			time.Sleep(time.Second)
		}
		if !slices.Equal(pauses, []int{1, 2, 3}) || a.asked("tools/list") != 5 {
			t.Errorf("%d listings, pauses %v; want the first, the refresh, and 3 more", a.asked("tools/list"), pauses)
		}
		if h := m.Health()[0]; h.Tools != 2 || h.Curated != 1 || !strings.Contains(h.Detail, "not today") {
			t.Errorf("health is %+v", h)
		}
		wantEcho(t, m, "s", `plain echo {"a":1}`)
		wantTools(t, m, "s/echo", "s/write")
		st.wantStarts("s", 1)

		// A later notice is a new occasion.
		a.play("tools/list", nil)
		a.notice()
		time.Sleep(2 * time.Second)
		wantText(t, m, "s: ready — 2 tools (1 curated, 1 external)")
		wantChanges(t, &seen, "s", "offline starting ready degraded ready")
		wantToolChanges(t, &seen, "+echo +write")
	})
}

// TestRefresh_RetryHeals: a listing that failed is tried again by itself, the
// first as well as a later one.
func TestRefresh_RetryHeals(t *testing.T) {
	staged(t, func(t *testing.T, st *stage) {
		st.onStart = func(_ context.Context, a *actor) error { a.refuse("tools/list"); return nil }
		m := st.started(ManagerOptions{ReconnectBackoff: after(time.Second)}, oneServer)
		want := "s: degraded — tools/list failed"
		for range 3 {
			wantText(t, m, want)
			want = "s: degraded — tools/list failed, last known 2 tools kept"
			st.actor("s").play("tools/list", nil)
			time.Sleep(1500 * time.Millisecond)
			wantText(t, m, "s: ready — 2 tools")
			time.Sleep(time.Minute)
			st.actor("s").refuse("tools/list")
			st.actor("s").notice()
		}
		st.wantStarts("s", 1)
	})
}

// TestRefresh_ReallyEmpty: a list that is empty now empties what is kept.
func TestRefresh_ReallyEmpty(t *testing.T) {
	staged(t, func(t *testing.T, st *stage) {
		var seen recorder
		m := st.started(ManagerOptions{OnToolsChanged: seen.onTools}, oneServer)
		wantReady(t, m, "s")
		a := st.actor("s")
		a.lists()
		a.notice()
		time.Sleep(time.Second)
		wantText(t, m, "s: degraded — connected, but it lists no tools")
		wantTools(t, m)
		a.refuse("tools/list")
		a.notice()
		time.Sleep(time.Second)
		wantText(t, m, "s: degraded — tools/list failed")
		a.play("tools/list", nil)
		a.lists("back")
		time.Sleep(time.Minute)
		wantText(t, m, "s: ready — 1 tool")
		wantToolChanges(t, &seen, "+echo +write", "-echo -write", "+back")
	})
}

func TestRefresh_EventsOnRealDifferencesOnly(t *testing.T) {
	tool := func(name, more string) string {
		return `{"name":"` + name + `","inputSchema":{"type":"object"}` + more + `}`
	}
	list := func(tools ...string) string { return `{"tools":[` + strings.Join(tools, ",") + `]}` }
	a, b := tool("a", ""), tool("b", "")
	for _, c := range []struct{ name, next, want string }{
		{"same", list(a, b), ""},
		{"shuffled", list(b, a), ""},
		{"listed twice", list(a, b, tool("a", `,"description":"x"`)), ""},
		{"added", list(a, b, tool("c", "")), "+c"},
		{"removed", list(b), "-a"},
		{"replaced", list(b, tool("c", "")), "+c -a"},
		{"description", list(a, tool("b", `,"description":"x"`)), "~b"},
		{"title", list(a, tool("b", `,"title":"x"`)), "~b"},
		{"schema", list(a, `{"name":"b","inputSchema":{"type":"object","required":["x"]}}`), "~b"},
		{"output schema", list(a, tool("b", `,"outputSchema":{"type":"object"}`)), "~b"},
		{"annotation", list(a, tool("b", `,"annotations":{"readOnlyHint":false}`)), "~b"},
		{"all at once", list(tool("b", `,"title":"x"`), tool("c", ""), tool("d", "")), "+c +d -a ~b"},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, by := range []string{"notice", "reconnect"} {
				staged(t, func(t *testing.T, st *stage) {
					var seen recorder
					answer := list(a, b)
					st.onStart = func(_ context.Context, a *actor) error {
						a.play("tools/list", func(m fakeMessage) { a.server.result(m, answer) })
						return nil
					}
					m := st.started(ManagerOptions{OnToolsChanged: seen.onTools}, oneServer)
					wantReady(t, m, "s")
					time.Sleep(time.Minute)
					answer = c.next
					if by == "notice" {
						st.actor("s").notice()
					} else {
						st.actor("s").die(1, "")
					}
					time.Sleep(time.Second)
					want := []string{"+a +b"}
					if c.want != "" {
						want = append(want, c.want)
					}
					wantToolChanges(t, &seen, want...)
				})
			}
		})
	}
}

// TestRefresh_AnnotationChanges: absent and false are two facts to a host.
func TestRefresh_AnnotationChanges(t *testing.T) {
	yes, no := true, false
	hints := []*bool{nil, &yes, &no}
	for i, x := range hints {
		for j, y := range hints {
			before := []DiscoveredTool{{Name: "t", Annotations: &ToolAnnotations{ReadOnlyHint: x}}}
			next := []DiscoveredTool{{Name: "t", Annotations: &ToolAnnotations{ReadOnlyHint: y}}}
			if change := diffTools("s", before, next); change.isEmpty() != (i == j) {
				t.Errorf("hint %d to hint %d: %v", i, j, change)
			}
		}
	}
}

func TestRefresh_OrderIsStable(t *testing.T) {
	staged(t, func(t *testing.T, st *stage) {
		st.onStart = func(_ context.Context, a *actor) error {
			a.lists("m", "b", "z", "B", "a")
			return nil
		}
		var servers []ServerConfig
		var want []string
		for _, name := range []string{"zeta", "alpha", "mid"} {
			servers = append(servers, ServerConfig{Name: name})
			for _, tool := range []string{"B", "a", "b", "m", "z"} {
				want = append(want, name+"/"+tool)
			}
		}
		m := st.started(ManagerOptions{}, servers...)
		wantTools(t, m, want...)
		wantText(t, m, "zeta: ready — 5 tools", "alpha: ready — 5 tools", "mid: ready — 5 tools")
	})
}

// TestRefresh_NoticeBeforeTheFirstList is remembered, whether it comes before
// the handshake is done or during the listing, and made good once.
func TestRefresh_NoticeBeforeTheFirstList(t *testing.T) {
	for _, method := range []string{"initialize", "tools/list"} {
		staged(t, func(t *testing.T, st *stage) {
			st.onStart = func(_ context.Context, a *actor) error {
				a.play(method, func(m fakeMessage) {
					a.play(method, nil)
					for range 3 {
						a.notice()
					}
					if method == "initialize" {
						a.server.normal(m)
						return
					}
					a.server.result(m, fakeTools("old"))
				})
				return nil
			}
			m := st.started(ManagerOptions{}, oneServer)
			time.Sleep(time.Minute)
			wantTools(t, m, "s/echo", "s/write")
			if n := st.actor("s").asked("tools/list"); n != 2 {
				t.Errorf("notices during %s led to %d listings, want 2", method, n)
			}
		})
	}
}

// TestRefresh_NeverOnATimer: without a notice nothing is listed again.
func TestRefresh_NeverOnATimer(t *testing.T) {
	staged(t, func(t *testing.T, st *stage) {
		m := st.started(ManagerOptions{}, legacyServer)
		wantReady(t, m, "s")
		time.Sleep(100 * time.Hour)
		if n := st.actor("s").asked("tools/list"); n != 1 {
			t.Errorf("%d listings", n)
		}
		if lines := st.actor("s").server.seen; len(lines) != 3 {
			t.Errorf("an idle server received %q", lines)
		}
	})
}

// TestRefresh_ToolsAreTheWire: what a server said of a tool reaches the host.
func TestRefresh_ToolsAreTheWire(t *testing.T) {
	staged(t, func(t *testing.T, st *stage) {
		const wire = `{"name":"t","title":"T","description":"does","inputSchema":{"type":"object","x":1.0},"annotations":{"readOnlyHint":true}}`
		st.onStart = func(_ context.Context, a *actor) error {
			a.play("tools/list", func(m fakeMessage) { a.server.result(m, `{"tools":[`+wire+`,{"description":"no name"}]}`) })
			return nil
		}
		m := st.started(ManagerOptions{}, oneServer)
		wantText(t, m, "s: ready — 1 tool")
		tool := m.Tools()[0]
		if back, err := json.Marshal(tool.DiscoveredTool); err != nil || string(back) != wire || tool.Server != "s" {
			t.Errorf("got %s (%v) of %s, want %s", back, err, tool.Server, wire)
		}
		if n := m.Health()[0].DroppedTools; n != 1 {
			t.Errorf("%d tools counted as dropped, want 1", n)
		}
	})
}
