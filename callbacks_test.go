package mcp

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"yagent/mcp/supervise"
)

// busy fails the test when it is entered twice at once.
type busy struct{ in atomic.Int32 }

func (b *busy) enter(t *testing.T) func() {
	if b.in.Add(1) != 1 {
		t.Error("two callbacks of one server run at once")
	}
	return func() { b.in.Add(-1) }
}

// TestCallbacks_InOrderOneAtATime: both kinds, for each server, though each call
// takes long.
func TestCallbacks_InOrderOneAtATime(t *testing.T) {
	staged(t, func(t *testing.T, st *stage) {
		var mu sync.Mutex // guards heard
		heard := map[string][]string{}
		running := map[string]*busy{"a": {}, "b": {}}
		hear := func(server, what string) {
			defer running[server].enter(t)()
			mu.Lock()
			heard[server] = append(heard[server], what)
			mu.Unlock()
			time.Sleep(time.Second)
		}
		m := st.started(ManagerOptions{
			ReconnectBackoff: after(time.Second),
			OnStateChange:    func(c StateChange) { hear(c.Server, c.To.String()) },
			OnToolsChanged:   func(c ToolsChange) { hear(c.Server, fmt.Sprint(len(c.Added), len(c.Removed))) },
		}, ServerConfig{Name: "a"}, ServerConfig{Name: "b"})
		wantReady(t, m, "a", "b")
		for range 3 {
			for _, name := range []string{"a", "b"} {
				st.actor(name).die(1, "")
			}
			time.Sleep(1500 * time.Millisecond)
			for _, name := range []string{"a", "b"} {
				st.actor(name).lists(fmt.Sprint(st.actor(name).n))
				st.actor(name).notice()
			}
			time.Sleep(2 * time.Second)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		for name := range running {
			states := slices.DeleteFunc(slices.Clone(heard[name]), func(s string) bool { return strings.Contains(s, " ") })
			if want := "starting ready offline ready offline ready offline ready"; strings.Join(states, " ") != want {
				t.Errorf("%s: heard the states %q, want %s", name, states, want)
			}
			if i := slices.Index(heard[name], "2 0"); i != 2 {
				t.Errorf("%s: heard %q, want the first tools right after the state", name, heard[name])
			}
		}
	})
}

// TestCallbacks_UnderNoLock: a callback may use the Manager.
func TestCallbacks_UnderNoLock(t *testing.T) {
	staged(t, func(t *testing.T, st *stage) {
		var m *Manager
		var used atomic.Int32
		use := func(server string) {
			m.Health()
			m.Tools()
			m.StatusLines()
			if _, err := m.Call(within(t), server, "echo", nil); err != nil && !errors.Is(err, ErrOffline) {
				t.Errorf("call: %v", err)
			}
			if _, _, err := m.Client(server).ListTools(within(t)); err != nil && !errors.Is(err, ErrOffline) {
				t.Errorf("list: %v", err)
			}
			if used.Add(1) == 3 {
				if err := m.Reconnect(server); err != nil {
					t.Errorf("reconnect: %v", err)
				}
				if err := m.WaitForReady(within(t), server); err != nil {
					t.Errorf("wait: %v", err)
				}
			}
			if used.Load() == 5 {
				if err := m.Client(server).Shutdown(within(t)); err != nil {
					t.Errorf("shutdown: %v", err)
				}
			}
		}
		m = st.opened(ManagerOptions{
			OnStateChange: func(c StateChange) {
				if c.To != StateStarting {
					use(c.Server)
				}
			},
			OnToolsChanged: func(c ToolsChange) { use(c.Server) },
		}, oneServer)
		if err := m.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		st.actor("s").lists("other")
		st.actor("s").notice()
		time.Sleep(time.Minute)
		wantText(t, m, "s: offline — stopped")
		if n := used.Load(); n < 5 {
			t.Errorf("%d callbacks", n)
		}
	})
}

// TestCallbacks_BlockedOneDelaysNothing: no call, no other server, no refresh,
// no reconnect.
func TestCallbacks_BlockedOneDelaysNothing(t *testing.T) {
	staged(t, func(t *testing.T, st *stage) {
		release := make(chan struct{})
		var seen recorder
		m := st.started(ManagerOptions{
			OnStateChange: func(c StateChange) {
				if c.Server == "stuck" {
					<-release
				}
				seen.onState(c)
			},
			OnToolsChanged: seen.onTools,
		}, ServerConfig{Name: "stuck"}, ServerConfig{Name: "free"})
		wantText(t, m, "stuck: ready — 2 tools", "free: ready — 2 tools")
		begin := time.Now()
		wantEcho(t, m, "stuck", `plain echo {"a":1}`)
		if took := time.Since(begin); took != 0 {
			t.Errorf("a call took %v", took)
		}
		for _, name := range []string{"stuck", "free"} {
			st.actor(name).die(1, "")
			time.Sleep(time.Second)
			st.actor(name).lists("x")
			st.actor(name).notice()
			time.Sleep(time.Second)
		}
		wantText(t, m, "stuck: ready — 1 tool", "free: ready — 1 tool")
		wantChanges(t, &seen, "free", "offline starting ready offline ready")
		wantChanges(t, &seen, "stuck", "")
		close(release)
		wantChanges(t, &seen, "stuck", "offline starting ready offline ready")
	})
}

// TestCallbacks_PanicAndGoexitLoseNothingElse: the one that fails was made, and
// so are all others, each once.
func TestCallbacks_PanicAndGoexitLoseNothingElse(t *testing.T) {
	for name, fail := range map[string]func(){"panic": func() { panic("host") }, "goexit": runtime.Goexit} {
		t.Run(name, func(t *testing.T) {
			staged(t, func(t *testing.T, st *stage) {
				var seen recorder
				var running busy
				m := st.opened(ManagerOptions{
					ReconnectBackoff: after(time.Second),
					OnStateChange: func(c StateChange) {
						defer running.enter(t)()
						seen.onState(c)
						time.Sleep(time.Millisecond)
						fail()
					},
					OnToolsChanged: func(c ToolsChange) {
						defer running.enter(t)()
						seen.onTools(c)
						fail()
					},
				}, oneServer)
				if err := m.Start(t.Context()); err != nil {
					t.Fatal(err)
				}
				wantReady(t, m, "s")
				for range 3 {
					st.actor("s").die(1, "")
					time.Sleep(2 * time.Second)
				}
				if err := m.Close(t.Context()); err != nil {
					t.Error(err)
				}
				wantChanges(t, &seen, "s", "offline starting ready offline ready offline ready offline ready offline")
				wantToolChanges(t, &seen, "+echo +write")
			})
		})
	}
}

// TestCallbacks_QueueIsBounded: while a callback hangs, changes of tools merge
// into one and the oldest changes of state are dropped.
func TestCallbacks_QueueIsBounded(t *testing.T) {
	staged(t, func(t *testing.T, st *stage) {
		release := make(chan struct{})
		var seen recorder
		m := st.started(ManagerOptions{
			ReconnectBackoff: after(time.Second),
			OnStateChange:    func(c StateChange) { <-release; seen.onState(c) },
			OnToolsChanged:   seen.onTools,
		}, oneServer)
		wantReady(t, m, "s")
		for i := range 5 * maxEvents {
			a := st.actor("s")
			a.lists(fmt.Sprintf("tool-%d", i))
			if i%2 == 1 {
				a.lists()
			}
			a.notice()
			time.Sleep(10 * time.Second)
			m.mu.Lock()
			n := len(m.byName["s"].events.waiting)
			m.mu.Unlock()
			if n > maxEvents {
				t.Errorf("%d events wait, want %d at most", n, maxEvents)
				break
			}
		}
		a := st.actor("s")
		a.lists("last")
		a.notice()
		time.Sleep(time.Minute)
		close(release)
		synctest.Wait()
		states := seen.stateChanges()
		if len(states) > maxEvents+1 || states[len(states)-1] != "s: degraded → ready" {
			t.Errorf("%d changes of state, the last is %q", len(states), states[len(states)-1])
		}
		// Whatever was merged: the changes together lead to the last list.
		have := map[string]bool{}
		for _, c := range seen.toolChanges() {
			for _, name := range c.Removed {
				if !have[name] {
					t.Errorf("%s was removed before it was added", name)
				}
				delete(have, name)
			}
			for _, name := range c.Added {
				if have[name] {
					t.Errorf("%s was added twice", name)
				}
				have[name] = true
			}
		}
		if len(have) != 1 || !have["last"] {
			t.Errorf("all changes together leave %v", have)
		}
	})
}

func TestCallbacks_ToolChangesMerge(t *testing.T) {
	staged(t, func(t *testing.T, st *stage) {
		release := make(chan struct{})
		var seen recorder
		m := st.started(ManagerOptions{OnToolsChanged: func(c ToolsChange) { <-release; seen.onTools(c) }}, oneServer)
		wantReady(t, m, "s")
		for _, tools := range [][]string{{"a"}, {"b"}, {"b", "c"}, {"c", "echo"}} {
			st.actor("s").lists(tools...)
			st.actor("s").notice()
			time.Sleep(time.Second)
		}
		close(release)
		wantToolChanges(t, &seen, "+echo +write", "+c -write")
	})
}

// TestCallbacks_ThereAndBackIsNoChange: what merges into nothing is not told.
func TestCallbacks_ThereAndBackIsNoChange(t *testing.T) {
	staged(t, func(t *testing.T, st *stage) {
		release := make(chan struct{})
		var seen recorder
		m := st.started(ManagerOptions{OnToolsChanged: func(c ToolsChange) { <-release; seen.onTools(c) }}, oneServer)
		wantReady(t, m, "s")
		for _, tools := range [][]string{{"a"}, {"echo", "write"}} {
			st.actor("s").lists(tools...)
			st.actor("s").notice()
			time.Sleep(time.Second)
		}
		close(release)
		wantToolChanges(t, &seen, "+echo +write")
	})
}

func TestEventQueue_DropsOldestStatesAndMerges(t *testing.T) {
	list := func(i int) []DiscoveredTool { return []DiscoveredTool{{Name: fmt.Sprint(i)}} }
	var q eventQueue
	for i := range 10 * maxEvents {
		q.pushState(StateChange{Reason: Reason(fmt.Sprint(i))})
		q.pushTools("s", list(i), list(i+1))
		if len(q.waiting) > maxEvents {
			t.Fatalf("after %d: %d events", i, len(q.waiting))
		}
	}
	next, states, reached, dropped := -1, 0, 0, 0
	for {
		e, lost, ok := q.pop()
		if !ok {
			break
		}
		dropped += lost
		if e.tools != nil {
			if !reflect.DeepEqual(e.tools.before, list(reached)) {
				t.Errorf("the tools go from %v, but they were %d", e.tools.before, reached)
			}
			_, _ = fmt.Sscan(e.tools.after[0].Name, &reached)
			continue
		}
		n := 0
		_, _ = fmt.Sscan(string(e.state.Reason), &n)
		if next >= 0 && n != next {
			t.Errorf("state %d after %d: one in the middle is missing", n, next-1)
		}
		next = n + 1
		states++
	}
	if next != 10*maxEvents || reached != 10*maxEvents || dropped+states != 10*maxEvents {
		t.Errorf("ended at state %d and list %d, with %d states and %d dropped", next, reached, states, dropped)
	}
}

// TestCallbacks_CloseDeliversTheLast: what happened before Close is told before
// it returns, also when the callbacks are slow.
func TestCallbacks_CloseDeliversTheLast(t *testing.T) {
	for name, end := range map[string]func(m *Manager, host *supervise.Group) error{
		"Close":      func(m *Manager, _ *supervise.Group) error { return m.Close(context.Background()) },
		"host drain": func(_ *Manager, host *supervise.Group) error { return host.Drain(context.Background()) },
		"both": func(m *Manager, host *supervise.Group) error {
			closed := make(chan error, 1)
			go func() { closed <- m.Close(context.Background()) }()
			return errors.Join(host.Drain(context.Background()), <-closed)
		},
	} {
		t.Run(name, func(t *testing.T) {
			for range 10 {
				staged(t, func(t *testing.T, st *stage) {
					var seen recorder
					var running [3]busy
					names := []string{"a", "b", "c"}
					host := supervise.New(context.Background(), "host", nil)
					m := st.opened(ManagerOptions{
						OnStateChange: func(c StateChange) {
							defer running[slices.Index(names, c.Server)].enter(t)()
							time.Sleep(time.Second)
							seen.onState(c)
						},
						OnToolsChanged: func(c ToolsChange) {
							defer running[slices.Index(names, c.Server)].enter(t)()
							time.Sleep(time.Second)
							seen.onTools(c)
						},
					}, ServerConfig{Name: "a"}, ServerConfig{Name: "b"}, ServerConfig{Name: "c"})
					if err := m.Start(host.Context()); err != nil {
						t.Fatal(err)
					}
					wantReady(t, m, names...)
					if err := end(m, host); err != nil {
						t.Error(err)
					}
					for _, server := range names {
						wantChanges(t, &seen, server, "offline starting ready offline")
					}
					wantToolChanges(t, &seen, "+echo +write", "+echo +write", "+echo +write")
				})
			}
		})
	}
}

// TestCallbacks_GoexitDuringHostDrain: where no goroutine can be started any
// more, one that a callback ends makes the others on its way out.
func TestCallbacks_GoexitDuringHostDrain(t *testing.T) {
	for _, late := range []time.Duration{0, time.Second} {
		staged(t, func(t *testing.T, st *stage) {
			var seen recorder
			host := supervise.New(context.Background(), "host", func(*supervise.PanicError) {})
			quit := func(c StateChange) {
				if late > 0 { // every callback waits for the drain
					<-host.Context().Done()
					time.Sleep(late)
				}
				seen.onState(c)
				runtime.Goexit()
			}
			m := st.opened(ManagerOptions{OnStateChange: quit}, ServerConfig{Name: "a"}, ServerConfig{Name: "b"})
			if err := m.Start(host.Context()); err != nil {
				t.Fatal(err)
			}
			wantReady(t, m, "a", "b")
			if err := host.Drain(context.Background()); err != nil {
				t.Error(err)
			}
			wantChanges(t, &seen, "a", "offline starting ready offline")
			wantChanges(t, &seen, "b", "offline starting ready offline")
		})
	}
}

// TestCallbacks_CloseFromACallback waits for itself until its context ends, and
// then says so. A later Close finishes the work.
func TestCallbacks_CloseFromACallback(t *testing.T) {
	for name, closeIt := range map[string]func(*Manager, context.Context) error{"Close": (*Manager).Close, "ForceClose": (*Manager).ForceClose} {
		t.Run(name, func(t *testing.T) {
			staged(t, func(t *testing.T, st *stage) {
				var m *Manager
				var took time.Duration
				result := make(chan error, 1)
				m = st.opened(ManagerOptions{OnStateChange: func(c StateChange) {
					if c.To != StateReady {
						return
					}
					ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
					defer cancel()
					begin := time.Now()
					err := closeIt(m, ctx)
					took = time.Since(begin)
					result <- err
				}}, oneServer)
				if err := m.Start(t.Context()); err != nil {
					t.Fatal(err)
				}
				err := <-result
				drain, ok := errors.AsType[*supervise.DrainError](err)
				if !ok || len(drain.Left) != 1 || drain.Left[0].Name != "mcp/callbacks-s" {
					t.Errorf("got %v, want a drain error that names the callback", err)
				}
				if took > 3*time.Second+killWait {
					t.Errorf("it took %v", took)
				}
				st.wantAllExited()
				if err := m.Close(context.Background()); err != nil {
					t.Errorf("from outside: %v", err)
				}
			})
		})
	}
}

// TestCallbacks_NilOnes: a host that wants no callbacks costs no goroutine.
func TestCallbacks_NilOnes(t *testing.T) {
	staged(t, func(t *testing.T, st *stage) {
		m := st.started(ManagerOptions{}, oneServer)
		wantReady(t, m, "s")
		st.actor("s").die(1, "")
		time.Sleep(time.Minute)
		wantText(t, m, "s: ready — 2 tools")
		m.mu.Lock()
		defer m.mu.Unlock()
		if q := m.byName["s"].events; len(q.waiting) > 0 || q.delivering {
			t.Errorf("the queue is %+v", q)
		}
	})
}
