package mcp

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"yagent/mcp/supervise"
)

// after is a backoff of always the same pause.
func after(pause time.Duration) func(int) time.Duration {
	return func(int) time.Duration { return pause }
}

var oneServer = ServerConfig{Name: "s", Command: "s"}

// legacyServer is the same with its era pinned, for tests that count starts:
// finding the era out may take two of them.
var legacyServer = ServerConfig{Name: "s", Command: "s", Protocol: ProtocolLegacy}

func TestDefaultBackoff(t *testing.T) {
	want := []time.Duration{500 * time.Millisecond, time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second, 16 * time.Second, 32 * time.Second, time.Minute, time.Minute}
	for i, middle := range want {
		low, high := middle, middle
		for range 500 {
			pause := defaultBackoff(i + 1)
			low, high = min(low, pause), max(high, pause)
		}
		if low < middle*8/10 || high > middle*12/10 {
			t.Errorf("attempt %d: pauses from %v to %v, want %v ±20 %%", i+1, low, high, middle)
		}
		if low > middle*9/10 || high < middle*11/10 {
			t.Errorf("attempt %d: pauses from %v to %v hardly spread", i+1, low, high)
		}
	}
	for _, attempt := range []int{-1, 0, 63, 64, 1 << 40} {
		if pause := defaultBackoff(attempt); pause < 400*time.Millisecond || pause > 72*time.Second {
			t.Errorf("attempt %d: %v", attempt, pause)
		}
	}
}

func TestReconnect_DefaultSequenceThenGivesUp(t *testing.T) {
	staged(t, func(t *testing.T, st *stage) {
		var births []time.Time
		st.onStart = func(_ context.Context, a *actor) error {
			births = append(births, time.Now())
			return errors.New("out of memory")
		}
		var seen recorder
		m := st.started(ManagerOptions{OnStateChange: seen.onState}, oneServer)
		time.Sleep(24 * time.Hour)
		wantText(t, m, "s: offline — gave up after 5 attempts")
		if len(births) != 6 {
			t.Fatalf("%d starts, want the first and 5 more", len(births))
		}
		for i, middle := 0, 500*time.Millisecond; i < 5; i, middle = i+1, 2*middle {
			if pause := births[i+1].Sub(births[i]); pause < middle*8/10 || pause > middle*12/10 {
				t.Errorf("pause %d is %v, want %v ±20 %%", i+1, pause, middle)
			}
		}
		wantChanges(t, &seen, "s", "offline starting offline")
		if h := m.Health()[0]; h.Attempts != 5 || !strings.Contains(h.Detail, "out of memory") {
			t.Errorf("health is %+v", h)
		}
	})
}

// TestReconnect_BaseIsASeam: the package's own backoff starts at
// reconnectBackoffBase, unless the host brings its own.
func TestReconnect_BaseIsASeam(t *testing.T) {
	defer func(base time.Duration) { reconnectBackoffBase = base }(reconnectBackoffBase)
	reconnectBackoffBase = time.Hour
	for _, c := range []struct {
		backoff     func(int) time.Duration
		least, most time.Duration
	}{{nil, 48 * time.Second, 72 * time.Second}, {after(3 * time.Second), 3 * time.Second, 3 * time.Second}} {
		staged(t, func(t *testing.T, st *stage) {
			m := st.started(ManagerOptions{ReconnectBackoff: c.backoff}, oneServer)
			wantReady(t, m, "s")
			died := time.Now()
			st.actor("s").die(1, "")
			time.Sleep(2 * time.Minute)
			if pause := st.actors("s")[1].born.Sub(died); pause < c.least || pause > c.most {
				t.Errorf("the pause is %v, want %v to %v", pause, c.least, c.most)
			}
		})
	}
}

func TestReconnect_PointerIsGoodForLife(t *testing.T) {
	staged(t, func(t *testing.T, st *stage) {
		st.onStart = func(_ context.Context, a *actor) error {
			if a.n == 1 {
				return errors.New("no")
			}
			return nil
		}
		m := st.opened(ManagerOptions{}, oneServer, ServerConfig{Name: "off", Disabled: true})
		client := m.Client("s")
		if client == nil || m.Client("off") != nil || m.Client("unknown") != nil {
			t.Fatal("nil is for unknown and disabled servers, and for them alone")
		}
		same := func(when string, alive bool) {
			t.Helper()
			if m.Client("s") != client {
				t.Errorf("%s: another pointer", when)
			}
			if client.IsAlive() != alive {
				t.Errorf("%s: IsAlive is %v", when, !alive)
			}
			if _, err := client.CallTool(t.Context(), "echo", nil); (err == nil) != alive {
				t.Errorf("%s: a call through the pointer gives %v", when, err)
			}
		}
		same("before Start", false)
		if err := m.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		same("after a failed spawn", false)
		wantReady(t, m, "s")
		same("after the reconnect", true)
		st.actor("s").die(1, "")
		synctest.Wait()
		same("after a crash", false)
		wantReady(t, m, "s")
		same("after another reconnect", true)
		if err := client.Shutdown(t.Context()); err != nil {
			t.Fatal(err)
		}
		same("after Shutdown", false)
		if err := m.Reconnect("s"); err != nil {
			t.Fatal(err)
		}
		wantReady(t, m, "s")
		same("after Reconnect", true)
	})
}

// TestReconnect_OneDeathIsOneReconnect lets the event, Health and failing calls
// see the same death.
func TestReconnect_OneDeathIsOneReconnect(t *testing.T) {
	for name, die := range map[string]func(*actor){
		"exit 0":        func(a *actor) { a.die(0, "") },
		"exit 1":        func(a *actor) { a.die(1, "") },
		"signal":        func(a *actor) { a.kill() },
		"output closed": func(a *actor) { a.output.end() },
	} {
		t.Run(name, func(t *testing.T) {
			staged(t, func(t *testing.T, st *stage) {
				var seen recorder
				m := st.started(ManagerOptions{OnStateChange: seen.onState, ReconnectBackoff: after(time.Second)}, oneServer)
				wantReady(t, m, "s")
				st.actor("s").hold("tools/call")
				var hammers sync.WaitGroup
				for range 4 {
					hammers.Go(func() {
						for range 200 {
							m.Health()
							time.Sleep(time.Millisecond)
						}
					})
					hammers.Go(func() {
						for range 200 {
							ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
							_, _ = m.Call(ctx, "s", "echo", nil)
							cancel()
						}
					})
				}
				time.Sleep(10 * time.Millisecond)
				die(st.actor("s"))
				hammers.Wait()
				wantChanges(t, &seen, "s", "offline starting ready offline")
				wantReady(t, m, "s")
				wantChanges(t, &seen, "s", "offline starting ready offline ready")
				st.wantStarts("s", 2)
				if h := m.Health()[0]; h.Attempts != 1 {
					t.Errorf("%d attempts were counted for one death", h.Attempts)
				}
			})
		})
	}
}

// TestReconnect_CallSeesDeathFirst: a call that meets a dead connection turns
// the server offline before it returns, and so does a look at Health, however
// long the details of the death take.
func TestReconnect_CallSeesDeathFirst(t *testing.T) {
	looks := map[string]func(*testing.T, *Manager){
		"call":   func(t *testing.T, m *Manager) { _, _ = m.Call(t.Context(), "s", "echo", nil) },
		"health": func(_ *testing.T, m *Manager) { m.Health() },
	}
	deaths := map[string]struct {
		die    func(*actor)
		detail string
	}{
		"somebody holds stderr": {func(a *actor) { a.die(1, "") }, "status 1"},
		"only its output ended": {func(a *actor) { a.output.end() }, "closed its output"},
	}
	for how, death := range deaths {
		for who, look := range looks {
			t.Run(how+"/"+who, func(t *testing.T) {
				staged(t, func(t *testing.T, st *stage) {
					m := st.opened(ManagerOptions{ReconnectBackoff: after(time.Second), MaxReconnectAttempts: 1}, oneServer)
					lingering := make(chan struct{})
					defer close(lingering)
					m.start = lingeringStderr(st.start, lingering)
					if err := m.Start(t.Context()); err != nil {
						t.Fatal(err)
					}
					wantReady(t, m, "s")
					died := time.Now()
					death.die(st.actor("s"))
					synctest.Wait()
					if state := m.byName["s"].state(); state != StateReady {
						t.Fatalf("the state is %v; this test is about the moments before", state)
					}
					look(t, m)
					if state := m.byName["s"].state(); state != StateOffline || time.Since(died) != 0 {
						t.Errorf("%v after the death the state is %v", time.Since(died), state)
					}
					time.Sleep(500 * time.Millisecond)
					if h := m.Health()[0]; !strings.Contains(h.Detail, death.detail) {
						t.Errorf("the later report should tell more; the detail is %q", h.Detail)
					}
					wantReady(t, m, "s")
					st.wantStarts("s", 2)
				})
			})
		}
	}
}

// lingeringPeer is one whose stderr is held by somebody else.
type lingeringPeer struct {
	peer
	until chan struct{}
}

func (p lingeringPeer) StderrDone() <-chan struct{} { return p.until }

func lingeringStderr(start startFunc, until chan struct{}) startFunc {
	return func(ctx context.Context, grp *supervise.Group, cfg ClientConfig) (peer, error) {
		p, err := start(ctx, grp, cfg)
		if err != nil {
			return nil, err
		}
		return lingeringPeer{p, until}, nil
	}
}

// TestReconnect_LateReportStartsNothing: the death that used up the last attempt
// was seen by Health first; the event that comes after it must not begin again.
func TestReconnect_LateReportStartsNothing(t *testing.T) {
	staged(t, func(t *testing.T, st *stage) {
		var seen recorder
		m := st.opened(ManagerOptions{ReconnectBackoff: after(time.Second), MaxReconnectAttempts: 1, OnStateChange: seen.onState}, oneServer)
		lingering := make(chan struct{})
		defer close(lingering)
		m.start = lingeringStderr(st.start, lingering)
		if err := m.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		wantReady(t, m, "s")
		st.actor("s").die(1, "")
		time.Sleep(2 * time.Second)
		wantReady(t, m, "s")
		st.actor("s").die(1, "")
		synctest.Wait()
		m.Health()
		time.Sleep(noticeWait) // giving up waits for the report with the details
		synctest.Wait()
		wantText(t, m, "s: offline — gave up after 1 attempt")
		if _, ok := errors.AsType[*ExitError](m.WaitForReady(t.Context(), "s")); !ok {
			t.Error("what Health saw first has hidden how the process ended")
		}
		m.mu.Lock()
		l := m.byName["s"].life
		m.mu.Unlock()
		l.connectionLost(l.sess, l.sess.peer.ExitError())
		if text := m.StatusLines(); text != "s: offline — gave up after 1 attempt" {
			t.Errorf("after the late report: %s", text)
		}
		time.Sleep(time.Minute)
		wantText(t, m, "s: offline — gave up after 1 attempt")
		st.wantStarts("s", 2)
	})
}

func TestReconnect_CountReturnsToZeroOnlyAfterProof(t *testing.T) {
	call := func(t *testing.T, m *Manager) { wantEcho(t, m, "s", `plain echo {"a":1}`) }
	for _, c := range []struct {
		name   string
		live   func(t *testing.T, m *Manager) // one session, from ready to its death
		proven bool
	}{
		{"dies at once", func(*testing.T, *Manager) {}, false},
		{"59 s", func(*testing.T, *Manager) { time.Sleep(59 * time.Second) }, false},
		{"60 s", func(*testing.T, *Manager) { time.Sleep(60 * time.Second) }, true},
		{"call after 9 s", func(t *testing.T, m *Manager) { time.Sleep(9 * time.Second); call(t, m) }, false},
		{"call after 10 s", func(t *testing.T, m *Manager) { time.Sleep(10 * time.Second); call(t, m) }, true},
		{"failed call after 10 s", func(t *testing.T, m *Manager) {
			time.Sleep(10 * time.Second)
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			if _, err := m.Call(ctx, "s", "never", nil); err == nil {
				t.Error("the call did not fail")
			}
		}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			staged(t, func(t *testing.T, st *stage) {
				st.onStart = func(_ context.Context, a *actor) error {
					a.play("tools/call", func(m fakeMessage) {
						if m.Params.Name != "never" {
							a.server.echo(m)
						}
					})
					return nil
				}
				m := st.started(ManagerOptions{ReconnectBackoff: after(time.Second)}, oneServer)
				for range 20 {
					if err := m.WaitForReady(within(t), "s"); err != nil {
						break
					}
					c.live(t, m)
					st.actor("s").die(1, "")
					synctest.Wait()
				}
				if c.proven {
					st.wantStarts("s", 20)
				} else {
					st.wantStarts("s", 6)
					wantText(t, m, "s: offline — gave up after 5 attempts")
				}
			})
		})
	}
}

// TestReconnect_LongHandshakeProvesNothing: a server that takes minutes over its
// handshake and dies right after it, or of it, does so for ever otherwise.
func TestReconnect_LongHandshakeProvesNothing(t *testing.T) {
	for name, end := range map[string]func(*actor, fakeMessage){
		"dies after the list":   func(a *actor, m fakeMessage) { a.server.normal(m); time.Sleep(time.Second); a.die(1, "") },
		"dies instead":          func(a *actor, m fakeMessage) { a.die(1, "") },
		"refuses the handshake": func(a *actor, m fakeMessage) { a.server.fail(m, -32000, "no") },
	} {
		t.Run(name, func(t *testing.T) {
			staged(t, func(t *testing.T, st *stage) {
				st.onStart = func(_ context.Context, a *actor) error {
					a.play("initialize", func(m fakeMessage) {
						go func() { a.server.sleep(5 * time.Minute); end(a, m) }()
					})
					return nil
				}
				m := st.started(ManagerOptions{}, legacyServer)
				time.Sleep(2 * time.Hour)
				wantText(t, m, "s: offline — gave up after 5 attempts")
				st.wantStarts("s", 6)
			})
		})
	}
}

func TestReconnect_NoFlickerWhileReconnecting(t *testing.T) {
	staged(t, func(t *testing.T, st *stage) {
		var seen recorder
		st.onStart = func(_ context.Context, a *actor) error {
			switch a.n {
			case 2:
				return errors.New("no")
			case 3: // up to the handshake
				a.play("initialize", func(fakeMessage) { a.die(1, "") })
			case 4: // up to the list
				a.play("tools/list", func(fakeMessage) { time.Sleep(time.Second); a.die(1, "") })
			case 5:
				a.refuse("initialize")
			case 6: // slow, but well
				a.play("initialize", func(m fakeMessage) { time.Sleep(time.Minute); a.server.normal(m) })
			}
			return nil
		}
		m := st.started(ManagerOptions{OnStateChange: seen.onState, OnToolsChanged: seen.onTools, ReconnectBackoff: after(time.Second)}, oneServer)
		wantReady(t, m, "s")
		st.actor("s").die(1, "")
		synctest.Wait()
		for m.byName["s"].state() == StateOffline {
			if h := m.Health()[0]; h.Tools != 0 || !strings.HasSuffix(string(h.Reason), "; reconnecting") {
				t.Errorf("while reconnecting health is %+v", h)
			}
			if len(m.Tools()) != 2 {
				t.Error("the tools are gone")
			}
			time.Sleep(100 * time.Millisecond)
		}
		wantText(t, m, "s: ready — 2 tools")
		wantChanges(t, &seen, "s", "offline starting ready offline ready")
		if changes := seen.toolChanges(); len(changes) != 1 {
			t.Errorf("tool changes %+v, want the first list alone", changes)
		}
	})
}

func TestReconnect_RoundThatOutlastsReadyTimeout(t *testing.T) {
	staged(t, func(t *testing.T, st *stage) {
		var seen recorder
		var held <-chan fakeMessage
		st.onStart = func(_ context.Context, a *actor) error {
			if a.n > 1 {
				held = a.hold("initialize")
			}
			return nil
		}
		m := st.started(ManagerOptions{OnStateChange: seen.onState, ReadyTimeout: time.Minute}, oneServer)
		wantReady(t, m, "s")
		st.actor("s").die(1, "")
		time.Sleep(59 * time.Second)
		wantText(t, m, "s: offline — the process exited; reconnecting")
		time.Sleep(2 * time.Second)
		wantText(t, m, "s: starting — still no answer to the handshake")
		time.Sleep(time.Hour)
		wantText(t, m, "s: starting — still no answer to the handshake")
		st.wantStarts("s", 2)
		if len(m.Tools()) != 2 {
			t.Error("the tools are gone")
		}
		if _, err := m.Call(t.Context(), "s", "echo", nil); !errors.Is(err, ErrIndexBuilding) {
			t.Errorf("a call gives %v, want ErrIndexBuilding", err)
		}
		st.actor("s").server.normal(<-held)
		wantText(t, m, "s: ready — 2 tools")
		wantChanges(t, &seen, "s", "offline starting ready offline starting ready")

		// The loop has ended, but the next death begins another.
		st.actor("s").die(1, "")
		wantText(t, m, "s: offline — the process exited; reconnecting")
		time.Sleep(2 * time.Second)
		st.wantStarts("s", 3)
	})
}

// TestReconnect_DeathAtReadyTimeout: when the process ends in the very moment
// that ReadyTimeout passes, somebody must go on.
func TestReconnect_DeathAtReadyTimeout(t *testing.T) {
	for range 30 {
		staged(t, func(t *testing.T, st *stage) {
			st.onStart = func(_ context.Context, a *actor) error {
				if a.n == 2 {
					a.play("initialize", func(fakeMessage) { time.Sleep(time.Minute); a.die(1, "") })
				}
				return nil
			}
			m := st.started(ManagerOptions{ReadyTimeout: time.Minute, ReconnectBackoff: after(time.Second)}, oneServer)
			wantReady(t, m, "s")
			st.actor("s").die(1, "")
			time.Sleep(5 * time.Minute)
			wantText(t, m, "s: ready — 2 tools")
			st.wantStarts("s", 3)
		})
	}
}

func TestReconnect_FaultsThatCannotHeal(t *testing.T) {
	for _, c := range []struct {
		reason    Reason
		permanent bool
	}{
		{ReasonCommandNotFound, true}, {ReasonNotExecutable, true}, {ReasonDirectoryNotFound, true}, {ReasonStartFailed, false},
	} {
		t.Run(string(c.reason), func(t *testing.T) {
			staged(t, func(t *testing.T, st *stage) {
				st.onStart = func(_ context.Context, a *actor) error {
					return fmt.Errorf("spawn: %w", &StartError{Server: a.name, Command: "cmd", Dir: "/dir", Reason: c.reason})
				}
				m := st.started(ManagerOptions{}, oneServer)
				wantText(t, m, "s: offline — "+string(c.reason))
				time.Sleep(time.Hour)
				if !c.permanent {
					st.wantStarts("s", 6)
					return
				}
				wantText(t, m, "s: offline — "+string(c.reason))
				st.wantStarts("s", 1)
				wantPermanent(t, m, st, string(c.reason))
			})
		})
	}
}

// wantPermanent checks what a host learns of a permanent fault, and that it can
// start over.
func wantPermanent(t *testing.T, m *Manager, st *stage, reason string) {
	t.Helper()
	if err := m.WaitForReady(t.Context(), "s"); !errors.Is(err, ErrNotReady) {
		t.Errorf("WaitForReady gives %v, want ErrNotReady", err)
	}
	_, err := m.Call(t.Context(), "s", "echo", nil)
	if !errors.Is(err, ErrOffline) || !strings.Contains(err.Error(), reason) || !strings.Contains(err.Error(), "does not come back by itself") {
		t.Errorf("a call gives %v", err)
	}
	st.onStart = func(_ context.Context, a *actor) error {
		a.play("initialize", func(m fakeMessage) { time.Sleep(time.Minute); a.server.normal(m) })
		return nil
	}
	if err := m.Reconnect("s"); err != nil {
		t.Fatal(err)
	}
	synctest.Wait()
	if text := m.StatusLines(); !strings.Contains(text, "; reconnecting") {
		t.Errorf("while it is reconnected the text is %q", text)
	}
	time.Sleep(2 * time.Minute)
	wantText(t, m, "s: ready — 2 tools")
}

func TestReconnect_NoCommonVersionIsPermanent(t *testing.T) {
	staged(t, func(t *testing.T, st *stage) {
		st.onStart = func(_ context.Context, a *actor) error {
			a.play("initialize", func(m fakeMessage) {
				a.server.result(m, `{"protocolVersion":"1999-01-01","capabilities":{},"serverInfo":{"name":"x","version":"1"}}`)
			})
			return nil
		}
		m := st.started(ManagerOptions{}, oneServer)
		wantText(t, m, "s: offline — no common protocol version")
		time.Sleep(time.Hour)
		st.wantStarts("s", 1)
		st.wantAllExited()
		if h := m.Health()[0]; !strings.Contains(h.Detail, "1999-01-01") || !strings.Contains(h.Detail, latestVersion) {
			t.Errorf("the detail %q does not name both versions", h.Detail)
		}
		if err := m.WaitForReady(t.Context(), "s"); !errors.Is(err, ErrNoCommonVersion) {
			t.Errorf("WaitForReady gives %v", err)
		}
		wantPermanent(t, m, st, "no common protocol version")
	})
}

func TestReconnect_RefusedHandshakeIsAFailedRound(t *testing.T) {
	staged(t, func(t *testing.T, st *stage) {
		st.onStart = func(_ context.Context, a *actor) error {
			if a.n < 3 {
				a.refuse("initialize")
			}
			return nil
		}
		m := st.started(ManagerOptions{ReconnectBackoff: after(time.Second)}, legacyServer)
		wantText(t, m, "s: offline — the handshake failed; reconnecting")
		st.wantAllExited()
		time.Sleep(1500 * time.Millisecond)
		wantText(t, m, "s: offline — the handshake failed; reconnecting")
		st.wantAllExited()
		wantReady(t, m, "s")
		st.wantStarts("s", 3)
	})
}

// ways are the conditions out of which Reconnect and Shutdown have to work.
var ways = map[string]func(t *testing.T, st *stage) *Manager{
	"ready": func(t *testing.T, st *stage) *Manager {
		m := st.started(ManagerOptions{}, oneServer)
		wantReady(t, m, "s")
		return m
	},
	"starting": func(t *testing.T, st *stage) *Manager {
		st.onStart = func(_ context.Context, a *actor) error {
			if a.n == 1 {
				a.hold("initialize")
			}
			return nil
		}
		m := st.started(ManagerOptions{}, oneServer)
		wantText(t, m, "s: starting — waiting for the handshake")
		return m
	},
	"listing": func(t *testing.T, st *stage) *Manager {
		st.onStart = func(_ context.Context, a *actor) error {
			if a.n == 1 {
				a.hold("tools/list")
			}
			return nil
		}
		m := st.started(ManagerOptions{}, oneServer)
		wantText(t, m, "s: starting — listing tools")
		return m
	},
	"backoff": func(t *testing.T, st *stage) *Manager {
		m := st.started(ManagerOptions{ReconnectBackoff: after(time.Hour)}, oneServer)
		wantReady(t, m, "s")
		st.actor("s").die(1, "")
		wantText(t, m, "s: offline — the process exited; reconnecting")
		return m
	},
	"reconnecting": func(t *testing.T, st *stage) *Manager {
		st.onStart = func(_ context.Context, a *actor) error {
			if a.n == 2 {
				a.hold("initialize")
			}
			return nil
		}
		m := st.started(ManagerOptions{}, oneServer)
		wantReady(t, m, "s")
		st.actor("s").die(1, "")
		time.Sleep(time.Minute)
		st.wantStarts("s", 2)
		return m
	},
	"given up": func(t *testing.T, st *stage) *Manager {
		st.onStart = func(_ context.Context, a *actor) error {
			if a.n < 3 {
				return errors.New("no")
			}
			return nil
		}
		m := st.started(ManagerOptions{MaxReconnectAttempts: 1}, oneServer)
		time.Sleep(time.Minute)
		wantText(t, m, "s: offline — gave up after 1 attempt")
		return m
	},
	"refreshing": func(t *testing.T, st *stage) *Manager {
		m := st.started(ManagerOptions{}, oneServer)
		wantReady(t, m, "s")
		st.actor("s").hold("tools/list")
		st.actor("s").notice()
		time.Sleep(time.Second)
		return m
	},
	"degraded": func(t *testing.T, st *stage) *Manager {
		st.onStart = func(_ context.Context, a *actor) error { a.lists(); return nil }
		m := st.started(ManagerOptions{}, oneServer)
		wantText(t, m, "s: degraded — connected, but it lists no tools")
		st.onStart = nil
		return m
	},
}

func TestReconnect_StartsOverAtOnce(t *testing.T) {
	for name, reach := range ways {
		t.Run(name, func(t *testing.T) {
			staged(t, func(t *testing.T, st *stage) {
				m := reach(t, st)
				before, begin := st.starts("s"), time.Now()
				if err := m.Reconnect("s"); err != nil {
					t.Fatal(err)
				}
				// The new process may be up already.
				if _, err := m.Call(t.Context(), "s", "echo", nil); err != nil && !errors.Is(err, ErrOffline) {
					t.Errorf("a call right after it gives %v, want ErrOffline", err)
				}
				wantText(t, m, "s: ready — 2 tools")
				if took := time.Since(begin); took != 0 {
					t.Errorf("it took %v", took)
				}
				st.wantStarts("s", before+1)
				if h := m.Health()[0]; h.Attempts != 0 {
					t.Errorf("attempts are counted anew, but they are %d", h.Attempts)
				}
				time.Sleep(2 * time.Hour)
				st.wantStarts("s", before+1) // nothing of the old life is left
				wantText(t, m, "s: ready — 2 tools")
			})
		})
	}
}

// TestReconnect_ManyAtOnce: any number of requests leave one process, and no
// two at a time (which the stage sees to).
func TestReconnect_ManyAtOnce(t *testing.T) {
	for name, reach := range ways {
		t.Run(name, func(t *testing.T) {
			staged(t, func(t *testing.T, st *stage) {
				m := reach(t, st)
				var callers sync.WaitGroup
				for range 100 {
					callers.Go(func() {
						if err := m.Reconnect("s"); err != nil {
							t.Error(err)
						}
					})
				}
				callers.Wait()
				time.Sleep(time.Second)
				wantText(t, m, "s: ready — 2 tools")
				alive := 0
				for _, a := range st.actors("s") {
					if !isClosed(a.Exited()) {
						alive++
					}
				}
				if alive != 1 {
					t.Errorf("%d processes are alive", alive)
				}
				wantEcho(t, m, "s", `plain echo {"a":1}`)
			})
		})
	}
}

// TestReconnect_StubbornServerEndsFirst: the old process has its graces, and the
// new one waits for its end.
func TestReconnect_StubbornServerEndsFirst(t *testing.T) {
	staged(t, func(t *testing.T, st *stage) {
		m := st.started(ManagerOptions{}, oneServer)
		wantReady(t, m, "s")
		st.actor("s").beStubborn()
		begin := time.Now()
		for range 3 {
			if err := m.Reconnect("s"); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		wantReady(t, m, "s")
		if took := time.Since(begin); took != 4*time.Second {
			t.Errorf("it took %v, want both graces", took)
		}
		st.wantStarts("s", 2)
	})
}

// TestReconnect_OldProcessIsReapedFirst: one that closed its output and goes on
// has its graces too, however short the backoff (the stage looks for two).
func TestReconnect_OldProcessIsReapedFirst(t *testing.T) {
	staged(t, func(t *testing.T, st *stage) {
		m := st.started(ManagerOptions{ReconnectBackoff: after(time.Millisecond)}, oneServer)
		wantReady(t, m, "s")
		st.actor("s").beStubborn()
		st.actor("s").output.end()
		time.Sleep(time.Second)
		wantText(t, m, "s: offline — it closed its output; reconnecting")
		st.wantStarts("s", 1)
		time.Sleep(10 * time.Second)
		wantText(t, m, "s: ready — 2 tools")
		st.wantStarts("s", 2)
	})
}

func TestReconnect_ShutdownKeepsDown(t *testing.T) {
	for name, reach := range ways {
		for kind, shutdown := range map[string]func(*MCPClient) error{
			"Shutdown":      func(c *MCPClient) error { return c.Shutdown(context.Background()) },
			"ForceShutdown": func(c *MCPClient) error { return c.ForceShutdown(context.Background()) },
		} {
			t.Run(kind+"/"+name, func(t *testing.T) {
				staged(t, func(t *testing.T, st *stage) {
					m := reach(t, st)
					before := st.starts("s")
					for range 2 {
						if err := shutdown(m.Client("s")); err != nil {
							t.Fatal(err)
						}
						if text := m.StatusLines(); text != "s: offline — stopped" {
							t.Errorf("right after it the text is %q", text)
						}
					}
					st.wantAllExited()
					time.Sleep(3 * time.Hour)
					wantText(t, m, "s: offline — stopped")
					st.wantStarts("s", before)
					_, err := m.Call(t.Context(), "s", "echo", nil)
					if !errors.Is(err, ErrOffline) || !strings.Contains(err.Error(), "(stopped)") {
						t.Errorf("a call gives %v", err)
					}
					if err := m.WaitForReady(t.Context(), "s"); !errors.Is(err, ErrNotReady) {
						t.Errorf("WaitForReady gives %v", err)
					}
					if err := m.Client("s").Start(t.Context()); err == nil {
						t.Error("a Manager's client could be started by itself")
					}
					if err := m.Reconnect("s"); err != nil {
						t.Fatal(err)
					}
					wantText(t, m, "s: ready — 2 tools")
				})
			})
		}
	}
}

func TestReconnect_ShutdownBeforeStart(t *testing.T) {
	staged(t, func(t *testing.T, st *stage) {
		m := st.opened(ManagerOptions{}, oneServer, ServerConfig{Name: "other"})
		if err := m.Client("s").Shutdown(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := m.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		wantText(t, m, "s: offline — stopped", "other: ready — 2 tools")
		st.wantStarts("s", 0)
		if err := m.Reconnect("s"); err != nil {
			t.Fatal(err)
		}
		wantReady(t, m, "s")
	})
}

// TestReconnect_DuringStart: while Start is still busy with one server, another
// one that waits for its turn, or the same, is reconnected or stopped.
func TestReconnect_DuringStart(t *testing.T) {
	for _, busy := range []string{"a", "s"} {
		for _, stop := range []bool{false, true} {
			t.Run(fmt.Sprintf("busy with %s, stop %v", busy, stop), func(t *testing.T) {
				staged(t, func(t *testing.T, st *stage) {
					release := make(chan struct{})
					st.onStart = func(ctx context.Context, a *actor) error {
						if a.name == busy && a.n == 1 {
							select {
							case <-release:
							case <-ctx.Done():
								return context.Cause(ctx)
							}
						}
						return nil
					}
					m := st.opened(ManagerOptions{}, ServerConfig{Name: "a"}, oneServer)
					started := make(chan error, 1)
					go func() { started <- m.Start(context.Background()) }()
					synctest.Wait()
					if stop {
						if err := m.Client("s").Shutdown(t.Context()); err != nil {
							t.Error(err)
						}
						st.wantExited("s")
					} else if err := m.Reconnect("s"); err != nil {
						t.Error(err)
					}
					synctest.Wait()
					close(release)
					if err := <-started; err != nil {
						t.Error(err)
					}
					want := "s: ready — 2 tools"
					if stop {
						want = "s: offline — stopped"
					}
					wantText(t, m, "a: ready — 2 tools", want)
					if !stop {
						wantEcho(t, m, "s", `plain echo {"a":1}`)
					}
					time.Sleep(time.Hour)
					wantText(t, m, "a: ready — 2 tools", want)
				})
			})
		}
	}
}

func TestReconnect_BackoffThatPanics(t *testing.T) {
	staged(t, func(t *testing.T, st *stage) {
		m := st.started(ManagerOptions{ReconnectBackoff: func(int) time.Duration { panic("no idea") }}, oneServer)
		wantReady(t, m, "s")
		st.actor("s").die(1, "")
		time.Sleep(time.Second) // the default's first pause is 0.6 s at most
		wantText(t, m, "s: ready — 2 tools")
	})
}

func TestReconnect_Errors(t *testing.T) {
	staged(t, func(t *testing.T, st *stage) {
		m := st.opened(ManagerOptions{}, oneServer, ServerConfig{Name: "off", Disabled: true})
		want := func(name string, want error) {
			t.Helper()
			if err := m.Reconnect(name); !errors.Is(err, want) {
				t.Errorf("Reconnect(%q) gives %v, want %v", name, err, want)
			}
		}
		want("s", ErrNotReady)
		if err := m.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		want("off", ErrDisabled)
		want("nobody", ErrUnknownServer)
		if err := m.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		want("s", ErrClosed)
		st.wantStarts("s", 1)
	})
}

// TestReconnect_NeighboursAreLeftAlone: nothing that happens to one server
// touches the other.
func TestReconnect_NeighboursAreLeftAlone(t *testing.T) {
	staged(t, func(t *testing.T, st *stage) {
		var seen recorder
		m := st.started(ManagerOptions{OnStateChange: seen.onState, MaxReconnectAttempts: 2}, ServerConfig{Name: "good"}, oneServer)
		wantReady(t, m, "good", "s")
		for range 3 {
			st.actor("s").die(1, "")
			time.Sleep(10 * time.Second)
			wantEcho(t, m, "good", `plain echo {"a":1}`)
		}
		if err := m.Client("s").Shutdown(t.Context()); err != nil {
			t.Fatal(err)
		}
		wantText(t, m, "good: ready — 2 tools", "s: offline — stopped")
		wantChanges(t, &seen, "good", "offline starting ready")
		st.wantStarts("good", 1)
		if tools := m.Tools(); len(tools) != 4 || !slices.IsSortedFunc(tools, func(a, b ServerTool) int {
			return strings.Compare(a.Server+" "+a.Name, b.Server+" "+b.Name)
		}) {
			t.Errorf("tools are %v", tools)
		}
	})
}
