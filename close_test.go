package mcp

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"yagent/mcp/supervise"
)

// phases are the conditions in which a Close may find a Manager: those of one
// server, and a few that only a Close can meet.
func phases() map[string]func(t *testing.T, st *stage) *Manager {
	all := map[string]func(t *testing.T, st *stage) *Manager{
		"not started": func(t *testing.T, st *stage) *Manager { return st.opened(ManagerOptions{}, oneServer) },
		"starting slowly": func(t *testing.T, st *stage) *Manager { // past ReadyTimeout
			st.onStart = func(_ context.Context, a *actor) error { a.hold("initialize"); return nil }
			m := st.started(ManagerOptions{ReadyTimeout: time.Second}, oneServer)
			time.Sleep(time.Minute)
			return m
		},
		"parked spawn": func(t *testing.T, st *stage) *Manager {
			st.onStart = parked
			m := st.opened(ManagerOptions{}, oneServer, ServerConfig{Name: "next"})
			go func() {
				if err := m.Start(context.Background()); err != nil {
					t.Errorf("Start: %v", err)
				}
			}()
			return m
		},
		"parked respawn": func(t *testing.T, st *stage) *Manager {
			m := st.started(ManagerOptions{}, oneServer)
			wantReady(t, m, "s")
			st.onStart = parked
			st.actor("s").die(1, "")
			time.Sleep(time.Minute)
			st.wantStarts("s", 2)
			return m
		},
		"relisting after a failure": func(t *testing.T, st *stage) *Manager {
			st.onStart = func(_ context.Context, a *actor) error { a.refuse("tools/list"); return nil }
			m := st.started(ManagerOptions{ReconnectBackoff: after(time.Hour)}, oneServer)
			wantText(t, m, "s: degraded — tools/list failed")
			return m
		},
		"being reconnected": func(t *testing.T, st *stage) *Manager {
			m := st.started(ManagerOptions{}, oneServer)
			wantReady(t, m, "s")
			st.actor("s").beStubborn()
			if err := m.Reconnect("s"); err != nil {
				t.Error(err)
			}
			return m
		},
		"being shut down": func(t *testing.T, st *stage) *Manager {
			m := st.started(ManagerOptions{}, oneServer)
			wantReady(t, m, "s")
			st.actor("s").beStubborn()
			go m.Client("s").Shutdown(context.Background())
			return m
		},
		"stubborn": func(t *testing.T, st *stage) *Manager {
			m := st.started(ManagerOptions{}, oneServer)
			wantReady(t, m, "s")
			st.actor("s").beStubborn()
			return m
		},
	}
	maps.Copy(all, ways)
	return all
}

// parked is a start that ends with its context alone.
func parked(ctx context.Context, _ *actor) error {
	<-ctx.Done()
	return context.Cause(ctx)
}

func TestClose_InEveryPhase(t *testing.T) {
	kinds := map[string]struct {
		close func(*Manager) error
		most  time.Duration
	}{
		"Close":      {func(m *Manager) error { return m.Close(context.Background()) }, 4 * time.Second},
		"ForceClose": {func(m *Manager) error { return m.ForceClose(context.Background()) }, 0},
		"short Close": {func(m *Manager) error {
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			defer cancel()
			return m.Close(ctx)
		}, time.Second},
		"Close twice": {func(m *Manager) error {
			first := make(chan error, 1)
			go func() { first <- m.Close(context.Background()) }()
			time.Sleep(time.Second)
			return errors.Join(m.Close(context.Background()), <-first)
		}, time.Second},
		"many at once": {func(m *Manager) error {
			errs := make(chan error, 10)
			for range 10 {
				go func() { errs <- m.Close(context.Background()) }()
			}
			var all error
			for range 10 {
				all = errors.Join(all, <-errs)
			}
			return all
		}, 0},
	}
	for phase, reach := range phases() {
		for kind, k := range kinds {
			t.Run(kind+"/"+phase, func(t *testing.T) {
				staged(t, func(t *testing.T, st *stage) {
					m := reach(t, st)
					synctest.Wait()
					inFlight := make(chan error, 1)
					if m.Health()[0].State.CountsTools() {
						st.actor("s").hold("tools/call")
						go func() {
							_, err := m.Call(context.Background(), "s", "echo", nil)
							inFlight <- err
						}()
						synctest.Wait()
					} else {
						inFlight <- ErrClosed
					}
					waiting := make(chan error, 1)
					go func() { waiting <- waitUnlessReady(m) }()
					synctest.Wait()

					begin := time.Now()
					if err := k.close(m); err != nil {
						t.Errorf("close: %v", err)
					}
					if took := time.Since(begin); took > k.most {
						t.Errorf("it took %v, want %v at most", took, k.most)
					}
					st.wantAllExited()
					before := st.starts("s")
					if err := <-inFlight; !errors.Is(err, ErrClosed) {
						t.Errorf("the call in flight got %v, want ErrClosed", err)
					}
					if err := <-waiting; !errors.Is(err, ErrClosed) {
						t.Errorf("who waited got %v, want ErrClosed", err)
					}
					wantClosed(t, m, "s")
					time.Sleep(24 * time.Hour)
					st.wantStarts("s", before)
					st.wantStarts("next", 0)
					st.wantAllExited()
				})
			})
		}
	}
}

// waitUnlessReady waits for a server where there is something to wait for.
func waitUnlessReady(m *Manager) error {
	if h := m.Health()[0]; h.State.CountsTools() || h.Reason == ReasonGaveUp {
		return ErrClosed
	}
	return m.WaitForReady(context.Background(), "s")
}

// wantClosed checks what is left of a closed Manager.
func wantClosed(t *testing.T, m *Manager, server string) {
	t.Helper()
	if _, err := m.Call(t.Context(), server, "echo", nil); !errors.Is(err, ErrClosed) || !errors.Is(err, ErrNotSent) {
		t.Errorf("a call gives %v, want ErrClosed and ErrNotSent", err)
	}
	if _, err := m.Client(server).CallTool(t.Context(), "echo", nil); !errors.Is(err, ErrClosed) {
		t.Errorf("a call through the handle gives %v, want ErrClosed", err)
	}
	if err := m.WaitForReady(t.Context(), server); !errors.Is(err, ErrClosed) {
		t.Errorf("WaitForReady gives %v, want ErrClosed", err)
	}
	if err := m.Reconnect(server); !errors.Is(err, ErrClosed) {
		t.Errorf("Reconnect gives %v, want ErrClosed", err)
	}
	if err := m.Start(t.Context()); !errors.Is(err, ErrClosed) {
		t.Errorf("Start gives %v, want ErrClosed", err)
	}
	if m.Client(server).IsAlive() {
		t.Error("the client is alive")
	}
	for _, h := range m.Health() {
		if h.State != StateOffline || h.Reason != ReasonStopped || h.Tools != 0 || h.PID != 0 {
			t.Errorf("health is %+v", h)
		}
	}
}

// TestClose_Graces: the end of input, 2 s, SIGTERM, 2 s, SIGKILL; all servers
// at the same time. By force, SIGKILL at once.
func TestClose_Graces(t *testing.T) {
	for name, c := range map[string]struct {
		close func(*Manager) error
		took  time.Duration
	}{
		"Close":      {func(m *Manager) error { return m.Close(context.Background()) }, 4 * time.Second},
		"ForceClose": {func(m *Manager) error { return m.ForceClose(context.Background()) }, 0},
	} {
		t.Run(name, func(t *testing.T) {
			staged(t, func(t *testing.T, st *stage) {
				var servers []ServerConfig
				for i := range 20 {
					servers = append(servers, ServerConfig{Name: fmt.Sprint(i)})
				}
				m := st.started(ManagerOptions{}, servers...)
				for _, cfg := range servers {
					wantReady(t, m, cfg.Name)
					st.actor(cfg.Name).beStubborn()
				}
				begin := time.Now()
				if err := c.close(m); err != nil {
					t.Error(err)
				}
				if took := time.Since(begin); took != c.took {
					t.Errorf("it took %v, want %v", took, c.took)
				}
				if exit := st.actor("7").ExitError(); exit.Signal != "killed" {
					t.Errorf("it ended with %v, want SIGKILL", exit)
				}
			})
		})
	}
}

func TestClose_OfPeacefulServersIsQuiet(t *testing.T) {
	staged(t, func(t *testing.T, st *stage) {
		var seen recorder
		m := st.started(ManagerOptions{OnStateChange: seen.onState}, oneServer)
		wantReady(t, m, "s")
		begin := time.Now()
		if err := m.Close(context.Background()); err != nil || time.Since(begin) != 0 {
			t.Errorf("%v after %v", err, time.Since(begin))
		}
		if exit := st.actor("s").ExitError(); exit.Status != 0 || exit.Signal != "" {
			t.Errorf("it ended with %v", exit)
		}
		wantChanges(t, &seen, "s", "offline starting ready offline")
	})
}

// TestClose_DefaultLimit: a Close without a deadline has one.
func TestClose_DefaultLimit(t *testing.T) {
	staged(t, func(t *testing.T, st *stage) {
		release := make(chan struct{})
		m := st.opened(ManagerOptions{OnStateChange: func(StateChange) { <-release }}, oneServer)
		if err := m.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		begin := time.Now()
		err := m.Close(context.Background())
		drain, ok := errors.AsType[*supervise.DrainError](err)
		if !ok || len(drain.Left) != 1 || !strings.Contains(err.Error(), `"mcp/callbacks-s"`) {
			t.Errorf("got %v, want a report that names the callback", err)
		}
		if took := time.Since(begin); took != closeTimeout+killWait {
			t.Errorf("it took %v", took)
		}
		st.wantAllExited()
		close(release)
		if err := m.Close(context.Background()); err != nil {
			t.Errorf("once the callback has returned: %v", err)
		}
	})
}

// TestClose_BeforeStart: Start then fails, and starts nothing.
func TestClose_BeforeStart(t *testing.T) {
	staged(t, func(t *testing.T, st *stage) {
		m := st.opened(ManagerOptions{}, oneServer)
		for range 2 {
			if err := m.Close(t.Context()); err != nil {
				t.Error(err)
			}
		}
		if err := m.Start(t.Context()); !errors.Is(err, ErrClosed) {
			t.Errorf("Start gives %v, want ErrClosed", err)
		}
		st.wantStarts("s", 0)
		wantClosed(t, m, "s")
	})
}

// TestClose_RacesWithEverything closes while all else is going on.
func TestClose_RacesWithEverything(t *testing.T) {
	for i := range 40 {
		staged(t, func(t *testing.T, st *stage) {
			m := st.opened(ManagerOptions{ReconnectBackoff: after(time.Millisecond)}, oneServer, ServerConfig{Name: "o"})
			go m.Start(context.Background())
			var others sync.WaitGroup
			for range 4 {
				others.Go(func() {
					for n := range 10 {
						_ = m.Reconnect("s")
						m.Health()
						_, _ = m.Call(t.Context(), "o", "echo", nil)
						if n == 5 {
							_ = m.Client("o").Shutdown(t.Context())
						}
					}
				})
			}
			time.Sleep(time.Duration(i%3) * time.Millisecond)
			if err := m.Close(context.Background()); err != nil {
				t.Error(err)
			}
			st.wantAllExited()
			others.Wait()
			wantClosed(t, m, "s")
			st.wantAllExited()
		})
	}
}

// TestClose_LateBirthGetsNoGrace: a process that comes up when its Manager was
// told to hurry is killed like the others.
func TestClose_LateBirthGetsNoGrace(t *testing.T) {
	staged(t, func(t *testing.T, st *stage) {
		release := make(chan struct{})
		st.onStart = func(_ context.Context, a *actor) error { a.beStubborn(); return nil }
		m := st.opened(ManagerOptions{}, oneServer)
		m.start = func(ctx context.Context, grp *supervise.Group, cfg ClientConfig) (peer, error) {
			p, err := st.start(ctx, grp, cfg)
			<-release // born, but not yet known to anybody
			return p, err
		}
		go m.Start(context.Background())
		synctest.Wait()
		begin := time.Now()
		closed := make(chan error, 1)
		go func() { closed <- m.ForceClose(context.Background()) }()
		time.Sleep(time.Second)
		close(release)
		if err := <-closed; err != nil {
			t.Error(err)
		}
		if took := time.Since(begin); took != time.Second {
			t.Errorf("it took %v: the late one had its graces", took)
		}
	})
}

func TestStart_Errors(t *testing.T) {
	staged(t, func(t *testing.T, st *stage) {
		m := st.started(ManagerOptions{}, oneServer)
		if err := m.Start(t.Context()); !errors.Is(err, ErrStarted) || errors.Is(err, ErrClosed) {
			t.Errorf("a second Start gives %v, want ErrStarted", err)
		}
		wantText(t, m, "s: ready — 2 tools")
		st.wantStarts("s", 1)
	})
}

// TestStart_IntoADrainingHost fails, and nobody waits for what will never come.
func TestStart_IntoADrainingHost(t *testing.T) {
	staged(t, func(t *testing.T, st *stage) {
		host := supervise.New(context.Background(), "host", nil)
		if err := host.Drain(context.Background()); err != nil {
			t.Fatal(err)
		}
		m := st.opened(ManagerOptions{}, oneServer)
		if err := m.Start(host.Context()); !errors.Is(err, ErrClosed) {
			t.Errorf("Start gives %v, want ErrClosed", err)
		}
		st.wantStarts("s", 0)
		wantClosed(t, m, "s")
	})
}

// TestStart_ContextBoundsTheActAlone: its end before Start, during it and after.
func TestStart_ContextBoundsTheActAlone(t *testing.T) {
	t.Run("before", func(t *testing.T) {
		staged(t, func(t *testing.T, st *stage) {
			m := st.opened(ManagerOptions{}, oneServer)
			ctx, cancel := context.WithCancel(context.Background())
			cancel()
			if err := m.Start(ctx); err != nil {
				t.Errorf("Start gives %v; a server's failure is its own", err)
			}
			st.wantStarts("s", 0)
			wantText(t, m, "s: offline — could not be started; reconnecting")
			wantReady(t, m, "s")
		})
	})
	t.Run("during", func(t *testing.T) {
		staged(t, func(t *testing.T, st *stage) {
			st.onStart = func(ctx context.Context, a *actor) error {
				if a.n == 1 && a.name == "s" {
					return parked(ctx, a)
				}
				return nil
			}
			m := st.opened(ManagerOptions{}, ServerConfig{Name: "before"}, oneServer, ServerConfig{Name: "next"})
			ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
			defer cancel()
			begin := time.Now()
			if err := m.Start(ctx); err != nil {
				t.Errorf("Start gives %v", err)
			}
			if took := time.Since(begin); took != 5*time.Second {
				t.Errorf("it took %v", took)
			}
			st.wantStarts("next", 0)
			if h := m.Health()[1]; !strings.Contains(h.Detail, context.DeadlineExceeded.Error()) {
				t.Errorf("the detail is %q", h.Detail)
			}
			wantReady(t, m, "before", "s", "next")
		})
	})
	t.Run("after", func(t *testing.T) {
		staged(t, func(t *testing.T, st *stage) {
			m := st.opened(ManagerOptions{}, oneServer)
			ctx, cancel := context.WithCancel(context.Background())
			if err := m.Start(ctx); err != nil {
				t.Fatal(err)
			}
			wantReady(t, m, "s")
			cancel()
			time.Sleep(time.Hour)
			wantEcho(t, m, "s", `plain echo {"a":1}`)
			st.actor("s").die(1, "")
			time.Sleep(time.Minute)
			wantEcho(t, m, "s", `plain echo {"a":1}`)
		})
	})
}

// TestStart_OneFailureIsItsOwn, and the processes come one after another.
func TestStart_OneFailureIsItsOwn(t *testing.T) {
	staged(t, func(t *testing.T, st *stage) {
		var order []string
		inSpawn := 0
		st.onStart = func(_ context.Context, a *actor) error {
			inSpawn++
			if inSpawn > 1 {
				t.Error("two spawns at once")
			}
			order = append(order, a.name)
			time.Sleep(time.Second)
			inSpawn--
			if a.name == "b" {
				return &StartError{Server: "b", Command: "nope", Reason: ReasonCommandNotFound}
			}
			return nil
		}
		m := st.started(ManagerOptions{}, ServerConfig{Name: "a"}, ServerConfig{Name: "b"}, ServerConfig{Name: "c"})
		wantText(t, m, "a: ready — 2 tools", "b: offline — command not found", "c: ready — 2 tools")
		if got := strings.Join(order, " "); got != "a b c" {
			t.Errorf("the order is %s", got)
		}
		wantEcho(t, m, "c", `plain echo {"a":1}`)
		if _, err := m.Call(t.Context(), "b", "echo", nil); !errors.Is(err, ErrOffline) {
			t.Errorf("a call gives %v", err)
		} else if start, ok := errors.AsType[*StartError](err); !ok || start.Command != "nope" {
			t.Errorf("the error %v does not carry its cause", err)
		}
	})
}

// TestStart_WhileOthersWaitTheirTurn: they are starting, and say what to do.
func TestStart_WhileOthersWaitTheirTurn(t *testing.T) {
	staged(t, func(t *testing.T, st *stage) {
		release := make(chan struct{})
		st.onStart = func(context.Context, *actor) error { <-release; return nil }
		m := st.opened(ManagerOptions{}, oneServer, ServerConfig{Name: "next"})
		go m.Start(context.Background())
		wantText(t, m, "s: starting — waiting for the handshake", "next: starting — waiting for the handshake")
		for _, name := range []string{"s", "next"} {
			if _, err := m.Call(t.Context(), name, "echo", nil); !errors.Is(err, ErrIndexBuilding) {
				t.Errorf("a call to %s gives %v, want ErrIndexBuilding", name, err)
			}
		}
		close(release)
		wantReady(t, m, "s", "next")
	})
}

// TestHost_DrainClosesTheManager: it counts in the host's group.
func TestHost_DrainClosesTheManager(t *testing.T) {
	for phase, reach := range map[string]func(st *stage){
		"ready": func(*stage) {},
		"handshake": func(st *stage) {
			st.onStart = func(_ context.Context, a *actor) error { a.hold("initialize"); return nil }
		},
		"listing": func(st *stage) {
			st.onStart = func(_ context.Context, a *actor) error { a.hold("tools/list"); return nil }
		},
		"backoff":  func(st *stage) { st.onStart = func(context.Context, *actor) error { return errors.New("no") } },
		"stubborn": func(st *stage) { st.onStart = func(_ context.Context, a *actor) error { a.beStubborn(); return nil } },
	} {
		t.Run(phase, func(t *testing.T) {
			staged(t, func(t *testing.T, st *stage) {
				var seen recorder
				host := supervise.New(context.Background(), "host", nil)
				reach(st)
				m := st.opened(ManagerOptions{OnStateChange: seen.onState, ReconnectBackoff: after(time.Hour)}, oneServer)
				if err := m.Start(supervise.With(t.Context(), host)); err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Second)
				empty := make(chan struct{})
				go func() { host.Wait(); close(empty) }()
				synctest.Wait()
				if isClosed(empty) {
					t.Error("the Manager does not count in the host's group")
				}
				if err := host.Drain(context.Background()); err != nil {
					t.Error(err)
				}
				st.wantAllExited()
				wantClosed(t, m, "s")
				if changes := seen.stateChanges(); len(changes) == 0 || !strings.HasSuffix(changes[len(changes)-1], "→ offline") {
					t.Errorf("the host heard %q", changes)
				}
				if err := m.Close(t.Context()); err != nil {
					t.Errorf("Close after it: %v", err)
				}
			})
		})
	}
}

// TestConfig_LaterDuplicateReplacesEarlier, in its place, before any spawn.
func TestConfig_LaterDuplicateReplacesEarlier(t *testing.T) {
	staged(t, func(t *testing.T, st *stage) {
		var commands []string
		m := NewManager([]ServerConfig{
			{Name: "s", Command: "first"}, {Name: "o", Command: "other"}, {Name: "s", Command: "second"},
			{Name: "o", Command: "off", Disabled: true}, {Name: "p", Command: "off", Disabled: true}, {Name: "p", Command: "on"},
		}, ManagerOptions{})
		m.start = func(ctx context.Context, grp *supervise.Group, cfg ClientConfig) (peer, error) {
			commands = append(commands, cfg.Command)
			return st.start(ctx, grp, cfg)
		}
		if err := m.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		wantText(t, m, "s: ready — 2 tools", "p: ready — 2 tools")
		if got := strings.Join(commands, " "); got != "second on" {
			t.Errorf("started %s", got)
		}
		if h := m.Health(); len(h) != 3 || h[1].Name != "o" || h[1].State != StateDisabled {
			t.Errorf("health is %+v", h)
		}
		if err := m.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

func TestWaitForReady_Outcomes(t *testing.T) {
	staged(t, func(t *testing.T, st *stage) {
		st.onStart = func(_ context.Context, a *actor) error {
			switch a.name {
			case "empty":
				a.lists()
			case "unlisted":
				a.refuse("tools/list")
			case "slow":
				a.hold("initialize")
			case "later":
				if a.n < 3 {
					return errors.New("not yet")
				}
			case "missing":
				return &StartError{Reason: ReasonCommandNotFound}
			case "hopeless":
				return errors.New("never")
			}
			return nil
		}
		names := []string{"good", "empty", "unlisted", "slow", "later", "missing", "hopeless"}
		servers := []ServerConfig{{Name: "off", Disabled: true}}
		for _, name := range names {
			servers = append(servers, ServerConfig{Name: name})
		}
		m := st.opened(ManagerOptions{ReconnectBackoff: after(time.Second), MaxReconnectAttempts: 3}, servers...)
		results := map[string]chan error{}
		wait := func(name string) {
			result := make(chan error, 1)
			results[name] = result
			go func() {
				ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
				defer cancel()
				result <- m.WaitForReady(ctx, name)
			}()
		}
		for _, name := range names { // before Start: they wait for it
			wait(name)
		}
		synctest.Wait()
		if err := m.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		begin := time.Now()
		for _, c := range []struct {
			name  string
			want  error
			after time.Duration
		}{
			{"good", nil, 0}, {"empty", nil, 0}, {"unlisted", nil, 0}, {"missing", ErrNotReady, 0},
			{"later", nil, 2 * time.Second}, {"hopeless", ErrNotReady, 3 * time.Second}, {"slow", context.DeadlineExceeded, time.Hour},
		} {
			err := <-results[c.name]
			if !errors.Is(err, c.want) {
				t.Errorf("%s: got %v, want %v", c.name, err, c.want)
			}
			if c.want != nil && (!errors.Is(err, ErrNotReady) || !strings.Contains(err.Error(), fmt.Sprintf("%q", c.name))) {
				t.Errorf("%s: the error is %v", c.name, err)
			}
			if took := time.Since(begin); took != c.after {
				t.Errorf("%s: it took %v, want %v", c.name, took, c.after)
			}
		}
		if err := m.WaitForReady(t.Context(), "off"); !errors.Is(err, ErrDisabled) {
			t.Errorf("disabled: %v", err)
		}
		if err := m.WaitForReady(t.Context(), "nobody"); !errors.Is(err, ErrUnknownServer) {
			t.Errorf("unknown: %v", err)
		}
	})
}

// TestUnknownServer_ListsTheNames, those that can be used, and not too many.
func TestUnknownServer_ListsTheNames(t *testing.T) {
	servers := []ServerConfig{{Name: "files"}, {Name: "co\nde"}, {Name: "off", Disabled: true}}
	m := NewManager(servers, ManagerOptions{})
	_, err := m.Call(t.Context(), "flies", "read", nil)
	if !errors.Is(err, ErrUnknownServer) || !errors.Is(err, ErrNotSent) {
		t.Errorf("got %v, want ErrUnknownServer and ErrNotSent", err)
	}
	for _, want := range []string{`"flies"`, `"read"`, "files, co de"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error %q does not say %q", err, want)
		}
	}
	if strings.Contains(err.Error(), "off") {
		t.Errorf("the error %q offers a disabled server", err)
	}
	for i := range 5000 {
		servers = append(servers, ServerConfig{Name: fmt.Sprintf("server-%d", i)})
	}
	_, err = NewManager(servers, ManagerOptions{}).Call(t.Context(), "flies", "read", nil)
	if len(err.Error()) > 1000 {
		t.Errorf("the error has %d bytes", len(err.Error()))
	}
}
