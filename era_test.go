package mcp

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// discovered is a modern server's answer to a probe.
func discovered(versions ...string) string {
	list, _ := json.Marshal(versions)
	return `{"resultType":"complete","supportedVersions":` + string(list) + `,"capabilities":{"tools":{}},"instructions":"modern words",` +
		`"ttlMs":0,"cacheScope":"public","_meta":{"io.modelcontextprotocol/serverInfo":{"name":"new","version":"2"}}}`
}

const wantMeta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28",` +
	`"io.modelcontextprotocol/clientInfo":{"name":"yagent-mcp","version":"0"},"io.modelcontextprotocol/clientCapabilities":{}}`

// beModern makes the actor a modern server, which does not know initialize.
func (a *actor) beModern() {
	a.answers("server/discover", discovered("2026-07-28"))
	a.fails("initialize", -32601, "")
}

// answers gives the actor one answer to a method.
func (a *actor) answers(method, result string) {
	a.play(method, func(m fakeMessage) { a.server.result(m, result) })
}

// fails gives the actor one refusal of a method, with data if there is any.
func (a *actor) fails(method string, code int, data string) {
	if data != "" {
		data = `,"data":` + data
	}
	a.play(method, func(m fakeMessage) {
		a.server.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"error":{"code":%d,"message":"no"%s}}`, m.ID, code, data))
	})
}

// dies ends the actor when a method comes.
func (a *actor) dies(method string) { a.play(method, func(fakeMessage) { a.die(1, "") }) }

// later lets the actor take its time over a method.
func (a *actor) later(method string, pause time.Duration, then func(fakeMessage)) {
	a.play(method, func(m fakeMessage) {
		go func() { a.server.sleep(pause); then(m) }()
	})
}

// ignore leaves a method without an answer.
func (a *actor) ignore(method string) { a.play(method, func(fakeMessage) {}) }

// eraTests are what servers make of a probe. What is not said is done in the
// legacy way: an unknown method is refused, initialize is answered.
var eraTests = []struct {
	name   string
	act    func(a *actor)
	want   string        // the version in the end
	starts int           // of the first attempt
	took   time.Duration // until the server was ready
	probes int           // the last process received
}{
	{"legacy only", func(*actor) {}, latestVersion, 1, 0, 1},
	{"modern only", (*actor).beModern, latestModern, 1, 0, 1},
	{"both", func(a *actor) {
		a.answers("server/discover", discovered("2024-11-05", "2025-11-25", "2026-07-28", "2099-01-01"))
	}, latestModern, 1, 0, 1},

	{"silent on the probe", func(a *actor) { a.ignore("server/discover") }, latestVersion, 1, 5 * time.Second, 1},
	{"silent, then slow", func(a *actor) {
		a.ignore("server/discover")
		a.later("initialize", 3*time.Minute, a.server.normal)
	}, latestVersion, 1, 3*time.Minute + 5*time.Second, 1},
	{"late", func(a *actor) {
		a.later("server/discover", 7*time.Second, func(m fakeMessage) { a.server.result(m, discovered("2026-07-28")) })
		a.ignore("initialize")
	}, latestModern, 1, 7 * time.Second, 1},
	{"late, and answering both at once", func(a *actor) {
		probe := a.hold("server/discover")
		a.play("initialize", func(m fakeMessage) {
			first := `{"jsonrpc":"2.0","id":` + string((<-probe).ID) + `,"result":` + discovered("2026-07-28") + "}\n"
			a.server.send(first + `{"jsonrpc":"2.0","id":` + string(m.ID) + `,"result":` + scriptHello + "}")
		})
	}, latestModern, 1, 5 * time.Second, 1},
	{"late, after it has refused initialize", func(a *actor) {
		a.later("server/discover", time.Minute, func(m fakeMessage) { a.server.result(m, discovered("2026-07-28")) })
		a.fails("initialize", -32601, `{"supported":["2026-07-28"]}`)
	}, latestModern, 1, time.Minute, 1},
	{"late, with an error", func(a *actor) {
		a.later("server/discover", time.Minute, func(m fakeMessage) { a.server.fail(m, -32601, "no") })
		a.later("initialize", 2*time.Minute, a.server.normal)
	}, latestVersion, 1, 2*time.Minute + 5*time.Second, 1},
	{"late, with legacy versions alone", func(a *actor) {
		a.later("server/discover", time.Minute, func(m fakeMessage) { a.server.result(m, discovered("2025-11-25")) })
		a.later("initialize", 2*time.Minute, a.server.normal)
	}, latestVersion, 1, 2*time.Minute + 5*time.Second, 1},

	{"dies on the probe", func(a *actor) { a.dies("server/discover") }, latestVersion, 2, 0, 0},
	{"closes its output on the probe", func(a *actor) {
		a.play("server/discover", func(fakeMessage) { a.output.end() })
	}, latestVersion, 2, exitWait, 0},
	{"dies a minute after the probe", func(a *actor) {
		a.later("server/discover", time.Minute, func(fakeMessage) { a.die(1, "") })
		if a.n == 1 {
			a.ignore("initialize")
		}
	}, latestVersion, 2, time.Minute, 0},
	{"refuses initialize after a probe", func(a *actor) {
		if a.n == 1 {
			a.fails("initialize", -32600, "")
		}
	}, latestVersion, 2, 0, 0},
	{"refuses initialize after a silent probe", func(a *actor) {
		a.ignore("server/discover")
		if a.n == 1 {
			a.fails("initialize", -32600, "")
		}
	}, latestVersion, 2, 5 * time.Second, 0},
	{"dies on initialize after a probe", func(a *actor) {
		if a.n == 1 {
			a.dies("initialize")
		}
	}, latestVersion, 2, 0, 0},
	{"lists legacy versions alone", func(a *actor) { a.answers("server/discover", discovered("2024-11-05", "2025-06-18")) }, latestVersion, 2, 0, 0},
	{"refuses and lists legacy versions alone", func(a *actor) {
		a.fails("server/discover", -32022, `{"supported":["2025-06-18"]}`)
	}, latestVersion, 2, 0, 0},

	{"-32601", func(a *actor) { a.fails("server/discover", -32601, "") }, latestVersion, 1, 0, 1},
	{"-32602", func(a *actor) { a.fails("server/discover", -32602, `{"supported":["2099-01-01"]}`) }, latestVersion, 1, 0, 1},
	{"-32001", func(a *actor) { a.fails("server/discover", -32001, "") }, latestVersion, 1, 0, 1},
	{"0", func(a *actor) { a.fails("server/discover", 0, "") }, latestVersion, 1, 0, 1},
	{"an error of no shape", func(a *actor) {
		a.play("server/discover", func(m fakeMessage) { a.server.send(`{"id":` + string(m.ID) + `,"error":"what?"}`) })
	}, latestVersion, 1, 0, 1},
	{"a result of no shape", func(a *actor) { a.answers("server/discover", `{}`) }, latestVersion, 1, 0, 1},
	{"a result that is not final", func(a *actor) {
		a.answers("server/discover", `{"resultType":"input_required","supportedVersions":["2026-07-28"]}`)
	}, latestVersion, 1, 0, 1},

	{"-32022 with a known version", func(a *actor) {
		a.play("server/discover", func(m fakeMessage) {
			if a.asked("server/discover") > 1 {
				a.server.result(m, discovered("2026-07-28"))
				return
			}
			a.server.send(`{"jsonrpc":"2.0","id":` + string(m.ID) + `,"error":{"code":-32022,"message":"no","data":{"supported":["2099-01-01","2026-07-28"]}}}`)
		})
	}, latestModern, 1, 0, 2},
	{"-32022 with a known version, for ever", func(a *actor) {
		a.fails("server/discover", -32022, `{"supported":["2026-07-28"]}`)
	}, latestVersion, 1, 0, 2},
	{"-32022 with no version", func(a *actor) { a.fails("server/discover", -32022, `{}`) }, latestVersion, 1, 0, 1},
}

// TestEra_IsFoundOut, with no process more than is due, no other state than
// starting on the way, and without a probe at the next connect.
func TestEra_IsFoundOut(t *testing.T) {
	for _, test := range eraTests {
		t.Run(test.name, func(t *testing.T) {
			staged(t, func(t *testing.T, st *stage) {
				var seen recorder
				var log syncBuffer
				st.onStart = func(_ context.Context, a *actor) error { test.act(a); return nil }
				begin := time.Now()
				m := st.started(ManagerOptions{OnStateChange: seen.onState, Logger: log.logger(), ReconnectBackoff: after(time.Second)}, oneServer)
				if err := m.WaitForReady(t.Context(), "s"); err != nil {
					t.Fatal(err)
				}
				if took := time.Since(begin); took != test.took {
					t.Errorf("ready after %v, want %v", took, test.took)
				}
				st.wantStarts("s", test.starts)
				wantChanges(t, &seen, "s", "offline starting ready")
				wantEra(t, m, st.actor("s"), test.want)
				wantEcho(t, m, "s", `plain echo {"a":1}`)
				if got := strings.Count(log.String(), "\n"); got != test.starts { // the last tells of the connection
					t.Errorf("%d lines in the log, want one for each start:\n%s", got, log.String())
				}
				if got := st.actor("s").asked("server/discover"); got != test.probes {
					t.Errorf("the last process was probed %d times, want %d", got, test.probes)
				}
				for _, a := range st.actors("s") {
					if got := a.server.received("notifications/cancelled"); len(got) > 0 {
						t.Errorf("the handshake was cancelled: %q", got)
					}
				}

				// The verdict is remembered: one start, and one question.
				st.onStart = func(_ context.Context, a *actor) error {
					if test.want == latestModern {
						a.beModern()
					} else {
						a.dies("server/discover")
					}
					return nil
				}
				st.actor("s").die(1, "")
				synctest.Wait()
				wantReady(t, m, "s")
				st.wantStarts("s", test.starts+1)
				wantEra(t, m, st.actor("s"), test.want)
				wantChanges(t, &seen, "s", "offline starting ready offline ready")
			})
		})
	}
}

// wantEra checks what is known of a server, and that it was spoken to in its era.
func wantEra(t *testing.T, m *Manager, a *actor, version string) {
	t.Helper()
	health := m.Health()[0]
	if health.ProtocolVersion != version {
		t.Errorf("the version is %q, want %q", health.ProtocolVersion, version)
	}
	modern := version == latestModern
	server, words, greetings := Implementation{Name: "fake", Version: "1"}, fakeInstructions, 1
	if modern {
		server, words, greetings = Implementation{Name: "new", Version: "2"}, "modern words", 0
	}
	if health.Server != server || health.Instructions != words {
		t.Errorf("the server is %+v and says %q", health.Server, health.Instructions)
	}
	if got := a.asked("notifications/initialized"); got != greetings {
		t.Errorf("%d notifications/initialized, want %d", got, greetings)
	}
	for _, method := range []string{"tools/list", "tools/call", "server/discover"} {
		for _, line := range a.server.received(method) {
			if got := strings.Contains(line, wantMeta); got != (modern || method == "server/discover") {
				t.Errorf("version %s: the server received %s", version, line)
			}
		}
	}
}

// syncBuffer is a log that may be read while it is written.
type syncBuffer struct {
	mu  sync.Mutex // guards buf
	buf bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

func (b *syncBuffer) logger() *slog.Logger { return slog.New(slog.NewTextHandler(b, nil)) }

// TestEra_Fails: a server that speaks none of our versions is given up at once;
// one that takes no handshake at all has two processes in each attempt, and the
// error tells of both.
func TestEra_Fails(t *testing.T) {
	tests := []struct {
		name   string
		act    func(a *actor)
		line   string
		starts int
		says   []string
	}{
		{"unknown versions", func(a *actor) { a.answers("server/discover", discovered("2099-01-01", "2099-06-01")) },
			"no common protocol version", 1, []string{"2099-01-01, 2099-06-01", "2026-07-28", "2025-11-25"}},
		{"refuses with unknown versions", func(a *actor) { a.fails("server/discover", -32022, `{"supported":["2099-01-01"]}`) },
			"no common protocol version", 1, []string{"2099-01-01", "2026-07-28"}},
		{"an unknown legacy version", func(a *actor) { a.answers("initialize", hello("1999-01-01")) },
			"no common protocol version", 1, []string{"1999-01-01", "2025-11-25"}},
		{"dies at once", func(a *actor) {
			a.dies("server/discover")
			a.play("initialize", func(fakeMessage) { a.die(2, "") })
		}, "gave up after 2 attempts", 6, []string{"status 2", "status 1", "server/discover"}},
		{"refuses initialize", func(a *actor) { a.fails("initialize", -32000, fmt.Sprint(a.n)) },
			"gave up after 2 attempts", 6, []string{"code -32000: no; data: 6", "code -32000: no; data: 5"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			staged(t, func(t *testing.T, st *stage) {
				var seen recorder
				st.onStart = func(_ context.Context, a *actor) error { test.act(a); return nil }
				m := st.started(ManagerOptions{OnStateChange: seen.onState, MaxReconnectAttempts: 2}, oneServer)
				time.Sleep(time.Hour)
				wantText(t, m, "s: offline — "+test.line)
				wantChanges(t, &seen, "s", "offline starting offline")
				st.wantStarts("s", test.starts)
				st.wantAllExited()
				wantSays(t, errors.New(m.Health()[0].Detail), test.says...)
			})
		})
	}
}

// TestEra_SecondStartFails: the error tells of the process before, too, and the
// reason is that of the start.
func TestEra_SecondStartFails(t *testing.T) {
	staged(t, func(t *testing.T, st *stage) {
		st.onStart = func(_ context.Context, a *actor) error {
			a.dies("server/discover")
			if a.n == 2 {
				return errors.New("out of processes")
			}
			return nil
		}
		m := st.started(ManagerOptions{ReconnectBackoff: after(time.Second)}, oneServer)
		wantText(t, m, "s: offline — could not be started; reconnecting")
		wantSays(t, errors.New(m.Health()[0].Detail), "out of processes", "status 1")
		_, err := m.Client("s").CallTool(t.Context(), "echo", nil)
		wantKinds(t, err, ErrOffline, ErrNotSent)
		wantReady(t, m, "s")
		st.wantStarts("s", 4)
	})
}

// TestEra_BetweenTwoProcesses a server is starting, and nothing else, for whoever
// asks.
func TestEra_BetweenTwoProcesses(t *testing.T) {
	staged(t, func(t *testing.T, st *stage) {
		spawn := make(chan struct{})
		st.onStart = func(_ context.Context, a *actor) error {
			a.dies("server/discover")
			if a.n == 2 {
				<-spawn
			}
			return nil
		}
		m := st.started(ManagerOptions{}, oneServer)
		wantText(t, m, "s: starting — waiting for the handshake")
		_, err := m.Call(t.Context(), "s", "echo", nil)
		checkIndexBuilding(t, err)
		_, err = m.Client("s").CallTool(t.Context(), "echo", nil)
		checkIndexBuilding(t, err)
		if m.Client("s").IsAlive() {
			t.Error("alive without a process")
		}
		close(spawn)
		wantReady(t, m, "s")
		wantEcho(t, m, "s", `plain echo {"a":1}`)
	})
}

// TestEra_StoppedBetweenTwoProcesses: no process comes after the shutdown.
func TestEra_StoppedBetweenTwoProcesses(t *testing.T) {
	for name, stop := range map[string]func(m *Manager) error{
		"close":    func(m *Manager) error { return m.Close(context.Background()) },
		"shutdown": func(m *Manager) error { return m.Client("s").Shutdown(context.Background()) },
	} {
		t.Run(name, func(t *testing.T) {
			staged(t, func(t *testing.T, st *stage) {
				st.onStart = func(ctx context.Context, a *actor) error {
					a.dies("server/discover")
					if a.n == 2 {
						<-ctx.Done()
						return context.Cause(ctx)
					}
					return nil
				}
				m := st.started(ManagerOptions{}, oneServer)
				st.wantStarts("s", 2)
				if err := stop(m); err != nil {
					t.Error(err)
				}
				wantText(t, m, "s: offline — stopped")
				_, err := m.Client("s").CallTool(t.Context(), "echo", nil)
				wantKinds(t, err, ErrOffline, ErrNotSent, ErrClosed)
				time.Sleep(time.Hour)
				st.wantStarts("s", 2)
			})
		})
	}
}

// TestEra_SlowSecondProcess: ReadyTimeout holds for it as for any other, and so
// does the patience after it.
func TestEra_SlowSecondProcess(t *testing.T) {
	staged(t, func(t *testing.T, st *stage) {
		st.onStart = func(_ context.Context, a *actor) error {
			a.later("server/discover", 20*time.Minute, func(fakeMessage) { a.die(1, "") })
			if a.n == 1 {
				a.ignore("initialize")
			} else {
				a.later("initialize", 20*time.Minute, a.server.normal)
			}
			return nil
		}
		m := st.started(ManagerOptions{}, oneServer)
		time.Sleep(16 * time.Minute)
		wantText(t, m, "s: starting — still no answer to the handshake")
		time.Sleep(10 * time.Minute)
		st.wantStarts("s", 2)
		wantText(t, m, "s: starting — still no answer to the handshake")
		time.Sleep(15 * time.Minute)
		wantText(t, m, "s: ready — 2 tools")
	})
}

// TestEra_RememberedVerdictIsDropped when it is refused: the next attempt finds
// out anew.
func TestEra_RememberedVerdictIsDropped(t *testing.T) {
	modern := func(a *actor) { a.beModern() }
	legacy := func(a *actor) {}
	mute := func(a *actor) { a.fails("server/discover", -32601, ""); a.fails("initialize", -32601, "") }
	tests := []struct {
		name   string
		lives  []func(*actor) // the last stays
		starts int
		want   string
	}{
		{"modern becomes legacy", []func(*actor){modern, legacy}, 3, latestVersion},
		{"legacy becomes modern", []func(*actor){legacy, modern}, 3, latestModern},
		{"modern dies on the probe", []func(*actor){modern, func(a *actor) { a.dies("server/discover") }}, 4, latestVersion},
		{"modern lists legacy versions alone", []func(*actor){modern, func(a *actor) { a.answers("server/discover", discovered("2025-11-25")) }}, 4, latestVersion},
		{"legacy answers with a modern version", []func(*actor){legacy, func(a *actor) {
			a.beModern()
			a.answers("initialize", hello("2026-07-28"))
		}}, 3, latestModern},
		{"modern is mute for a while", []func(*actor){modern, mute, mute, mute, modern}, 5, latestModern},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			staged(t, func(t *testing.T, st *stage) {
				var seen recorder
				st.onStart = func(_ context.Context, a *actor) error {
					test.lives[min(a.n, len(test.lives))-1](a)
					return nil
				}
				m := st.started(ManagerOptions{OnStateChange: seen.onState}, oneServer)
				wantReady(t, m, "s")
				st.actor("s").die(1, "")
				synctest.Wait()
				wantReady(t, m, "s")
				st.wantStarts("s", test.starts)
				wantEra(t, m, st.actor("s"), test.want)
				wantChanges(t, &seen, "s", "offline starting ready offline ready")
			})
		})
	}
}

// TestEra_Pinned servers are asked in one way only.
func TestEra_Pinned(t *testing.T) {
	t.Run("legacy", func(t *testing.T) {
		staged(t, func(t *testing.T, st *stage) {
			st.onStart = func(_ context.Context, a *actor) error {
				a.answers("server/discover", discovered("2026-07-28"))
				return nil
			}
			m := st.started(ManagerOptions{}, legacyServer)
			wantReady(t, m, "s")
			wantEra(t, m, st.actor("s"), latestVersion)
			if st.actor("s").asked("server/discover") > 0 {
				t.Error("it was probed")
			}
		})
	})
	pinned := ServerConfig{Name: "s", Protocol: ProtocolModern}
	t.Run("modern and slow", func(t *testing.T) {
		staged(t, func(t *testing.T, st *stage) {
			st.onStart = func(_ context.Context, a *actor) error {
				a.later("server/discover", time.Hour, func(m fakeMessage) { a.server.result(m, discovered("2026-07-28")) })
				return nil
			}
			m := st.started(ManagerOptions{}, pinned)
			time.Sleep(59 * time.Minute)
			wantText(t, m, "s: starting — still no answer to the handshake")
			time.Sleep(time.Minute)
			wantReady(t, m, "s")
			wantEra(t, m, st.actor("s"), latestModern)
			if st.actor("s").asked("initialize") > 0 || st.starts("s") != 1 {
				t.Error("it got initialize, or was started again")
			}
		})
	})
	for name, test := range map[string]struct {
		act    func(a *actor)
		line   string
		starts int
	}{
		"modern and refused": {func(*actor) {}, "gave up after 1 attempt", 2},
		"modern and dead":    {func(a *actor) { a.dies("server/discover") }, "gave up after 1 attempt", 2},
		"modern and legacy":  {func(a *actor) { a.answers("server/discover", discovered("2025-11-25")) }, "no common protocol version", 1},
	} {
		t.Run(name, func(t *testing.T) {
			staged(t, func(t *testing.T, st *stage) {
				st.onStart = func(_ context.Context, a *actor) error { test.act(a); return nil }
				m := st.started(ManagerOptions{MaxReconnectAttempts: 1}, pinned)
				time.Sleep(time.Hour)
				wantText(t, m, "s: offline — "+test.line)
				st.wantStarts("s", test.starts)
				for _, a := range st.actors("s") {
					if a.asked("initialize") > 0 {
						t.Error("it got initialize")
					}
				}
			})
		})
	}
}

// TestEra_ProbeTimeout is an option, and no more than a pause.
func TestEra_ProbeTimeout(t *testing.T) {
	staged(t, func(t *testing.T, st *stage) {
		st.onStart = func(_ context.Context, a *actor) error { a.ignore("server/discover"); return nil }
		m := st.started(ManagerOptions{ProbeTimeout: 250 * time.Millisecond}, oneServer)
		begin := time.Now()
		wantReady(t, m, "s")
		if took := time.Since(begin); took != 250*time.Millisecond {
			t.Errorf("ready after %v", took)
		}
		if got := NewMCPClient(ClientConfig{}).cfg.ProbeTimeout; got != 5*time.Second {
			t.Errorf("the default is %v", got)
		}
	})
}

// TestEra_ClientStartsAfterItsProbeWasCutShort: a shutdown while a process dies
// of the probe leaves nothing behind that would refuse the next start.
func TestEra_ClientStartsAfterItsProbeWasCutShort(t *testing.T) {
	staged(t, func(t *testing.T, st *stage) {
		st.onStart = func(_ context.Context, a *actor) error { a.dies("server/discover"); return nil }
		c := st.launched(ClientConfig{Name: "s"})
		<-c.current.Load().closing // its end was noticed, and maybe not told yet
		c.setFault(ErrClosed)
		if err := drainDomain(t.Context(), c.grp, c.kill); err != nil {
			t.Fatal(err)
		}
		if c.renewing.Load() {
			t.Error("it says that it is started once more")
		}
		_, err := c.CallTool(t.Context(), "echo", nil)
		wantKinds(t, err, ErrOffline, ErrNotSent, ErrClosed)
		if !c.claimStart() {
			t.Error("the next start is refused")
		}
		c.releaseStart()
	})
}

// launched is a client of its own whose servers are on the stage.
func (st *stage) launched(cfg ClientConfig) *MCPClient {
	st.t.Helper()
	c := NewMCPClient(cfg)
	st.t.Cleanup(func() {
		if err := c.ForceShutdown(context.Background()); err != nil {
			st.t.Errorf("shutdown: %v", err)
		}
	})
	grp, err := c.openDomain(context.Background())
	if err != nil {
		st.t.Fatal(err)
	}
	c.setFault(nil)
	if err := c.launch(context.Background(), grp, st.start); err != nil {
		st.t.Fatal(err)
	}
	return c
}

// TestEra_ClientOfItsOwn finds the era out as one of a Manager's does.
func TestEra_ClientOfItsOwn(t *testing.T) {
	for _, test := range eraTests {
		t.Run(test.name, func(t *testing.T) {
			staged(t, func(t *testing.T, st *stage) {
				st.onStart = func(_ context.Context, a *actor) error { test.act(a); return nil }
				c := st.launched(ClientConfig{Name: "s"})
				if err := c.WaitForReady(t.Context()); err != nil {
					t.Fatal(err)
				}
				st.wantStarts("s", test.starts)
				if got := c.current.Load().hello.version; got != test.want {
					t.Errorf("the version is %s, want %s", got, test.want)
				}
			})
		})
	}
}

func TestEra_ClientOfItsOwnFails(t *testing.T) {
	staged(t, func(t *testing.T, st *stage) {
		spawn := make(chan struct{})
		st.onStart = func(_ context.Context, a *actor) error {
			a.dies("server/discover")
			if a.n == 2 {
				<-spawn
				return errors.New("out of processes")
			}
			return nil
		}
		c := st.launched(ClientConfig{Name: "s"})
		synctest.Wait()
		_, err := c.CallTool(t.Context(), "echo", nil)
		checkIndexBuilding(t, err)
		if err := c.Start(t.Context()); !errors.Is(err, ErrStarted) {
			t.Errorf("a second Start gives %v", err)
		}
		close(spawn)
		err = c.WaitForReady(t.Context())
		wantKinds(t, err, ErrNotReady)
		wantSays(t, err, "out of processes", "status 1")
		_, err = c.CallTool(t.Context(), "echo", nil)
		wantKinds(t, err, ErrOffline, ErrNotSent)
	})
}

// TestProbeStep is the whole of what an answer to a probe can mean.
func TestProbeStep(t *testing.T) {
	refusal := func(code int, data string) error {
		return decodeRPCError(fmt.Appendf(nil, `{"code":%d,"message":"no","data":%s}`, code, data))
	}
	tests := []struct {
		name   string
		result string
		err    error
		want   probeStep
	}{
		{"modern", discovered("2026-07-28"), nil, stepModern},
		{"modern among others", discovered("2024-11-05", "2099-01-01", "2026-07-28"), nil, stepModern},
		{"legacy alone", discovered("2025-11-25", "2024-11-05"), nil, stepFresh},
		{"legacy and unknown", discovered("2099-01-01", "2024-11-05"), nil, stepFresh},
		{"unknown alone", discovered("2099-01-01"), nil, stepGiveUp},
		{"none", discovered(), nil, stepInitialize},
		{"strings alone count", `{"supportedVersions":[7,null,{}]}`, nil, stepInitialize},
		{"no list", `{"supportedVersions":"2026-07-28"}`, nil, stepInitialize},
		{"names as they are spelled", `{"SupportedVersions":["2026-07-28"]}`, nil, stepInitialize},
		{"no object", `[]`, nil, stepInitialize},
		{"no result type", `{"supportedVersions":["2026-07-28"]}`, nil, stepModern},
		{"another result type", `{"resultType":"later","supportedVersions":["2026-07-28"]}`, nil, stepInitialize},
		{"method not found", "", refusal(-32601, "null"), stepInitialize},
		{"versions with another code", "", refusal(-32602, `{"supported":["2026-07-28"]}`), stepInitialize},
		{"unsupported, modern", "", refusal(-32022, `{"supported":["2026-07-28","2025-11-25"]}`), stepProbeAgain},
		{"unsupported, legacy", "", refusal(-32022, `{"supported":["2025-11-25"]}`), stepFresh},
		{"unsupported, unknown", "", refusal(-32022, `{"supported":["2099-01-01"]}`), stepGiveUp},
		{"unsupported, silent", "", refusal(-32022, `{"supported":[]}`), stepInitialize},
		{"unsupported, odd", "", refusal(-32022, `"2026-07-28"`), stepInitialize},
		{"malformed", "", ErrMalformed, stepInitialize},
		{"too large", "", ErrTooLarge, stepInitialize},
		{"lost", "", unknownOutcome(errExited), stepLost},
		{"not sent", "", notSent(errExited), stepLost},
	}
	for _, test := range tests {
		if got := readFinding([]byte(test.result), test.err).step(); got != test.want {
			t.Errorf("%s: step %d, want %d", test.name, got, test.want)
		}
	}
}

// TestProbeIDs are strings that no number leads to.
func TestProbeIDs(t *testing.T) {
	for n, wire := range map[int64]string{1: `"probe-1"`, 2: `"probe-2"`} {
		if got := string(appendID(nil, probeID(n))); got != wire {
			t.Errorf("probe %d is %s on the wire", n, got)
		}
		if got, ok := parseAnswerID([]byte(wire)); !ok || got != probeID(n) {
			t.Errorf("%s leads to %d, %v", wire, got, ok)
		}
	}
	if got, ok := parseAnswerID([]byte(`"prob\u0065-1"`)); !ok || got != probeID(1) {
		t.Errorf("an escaped one leads to %d, %v", got, ok)
	}
	for _, raw := range []string{`"probe-0"`, `"probe--1"`, `"probe-"`, `"probe"`, `"1-probe"`, `"probe-99999999999999999999"`, `-9223372036854775807`, `"-9223372036854775807"`, `null`, `{}`, ``} {
		if id, ok := parseAnswerID([]byte(raw)); ok {
			t.Errorf("%s leads to %d", raw, id)
		}
	}
}

// TestEra_DiesOnTheProbe, with real children.
func TestEra_DiesOnTheProbe(t *testing.T) {
	c := readyFakeClient(t, "die-on-probe", nil)
	result, err := c.CallTool(within(t), "echo", nil)
	if err != nil || result.Text() != "die-on-probe echo {}" {
		t.Errorf("got %v, %v", result, err)
	}
	m := NewManager([]ServerConfig{fakeConfig(t, "s", "die-on-probe")}, ManagerOptions{
		ReconnectBackoff: func(int) time.Duration { t.Error("that was no crash"); return 0 },
	})
	if err := m.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer m.Close(context.Background())
	wantReady(t, m, "s")
	wantEcho(t, m, "s", `die-on-probe echo {"a":1}`)
}
