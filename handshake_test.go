package mcp

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// hello is a server's answer to the handshake in one version.
func hello(version string) string {
	return `{"protocolVersion":"` + version + `","capabilities":{"tools":{}},"serverInfo":{"name":"s","version":"1"}}`
}

func TestHandshakeGoesOutAsItShould(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := startScript(t, func(cfg *ClientConfig) {
			cfg.ClientInfo = Implementation{Name: `ho"st`, Title: "A host", Version: "3"}
		})
		// No capability is announced: nothing here handles what one would allow.
		const want = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},` +
			`"clientInfo":{"name":"ho\"st","title":"A host","version":"3"}}}`
		request := s.expect("initialize")
		if request.raw != want {
			t.Errorf("got  %s\nwant %s", request.raw, want)
		}
		s.silent()
		s.answer(request, scriptHello)
		if got, want := s.next().raw, `{"jsonrpc":"2.0","method":"notifications/initialized"}`; got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
		s.silent()
	})
}

func TestAcceptedVersions(t *testing.T) {
	for _, version := range []string{"2024-10-07", "2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"} {
		t.Run(version, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := startScript(t, nil)
				s.answer(s.expect("initialize"), hello(version))
				s.expect("notifications/initialized")
				s.roundTrip()
			})
		})
	}
}

// However the server declares, or fails to declare, what it can do, the
// handshake is done.
func TestAcceptedHandshakes(t *testing.T) {
	for _, result := range []string{
		`{"protocolVersion":"2025-11-25"}`,
		`{"protocolVersion":"2025-11-25","capabilities":null,"serverInfo":null,"instructions":null}`,
		`{"protocolVersion":"2025-11-25","capabilities":{},"serverInfo":{}}`,
		`{"protocolVersion":"2025-11-25","capabilities":[],"serverInfo":"s","instructions":7}`,
		`{"protocolVersion":"2025-11-25","capabilities":{"tools":null},"extra":{"deep":[[]]}}`,
		`{"capabilities":{"tools":{"listChanged":true}},"protocolVersion":"2025-11-25","_meta":{}}`,
	} {
		synctest.Test(t, func(t *testing.T) {
			s := startScript(t, nil)
			s.answer(s.expect("initialize"), result)
			s.expect("notifications/initialized")
			if err := s.client.WaitForReady(t.Context()); err != nil {
				t.Errorf("%s: %v", result, err)
			}
			if got := s.client.Instructions(); got != "" {
				t.Errorf("%s: instructions %q", result, got)
			}
			s.roundTrip()
		})
	}
}

// ready is a WaitForReady that the test has not waited for yet.
func (s *script) ready(ctx context.Context) *inFlight {
	f := &inFlight{tool: "ready", done: make(chan struct{})}
	begin := time.Now()
	go func() {
		defer close(f.done)
		f.err = s.client.WaitForReady(ctx)
		f.took = time.Since(begin)
	}()
	synctest.Wait()
	return f
}

// An answer that refuses the handshake, or makes no sense, ends the connection
// with a text that tells why.
func TestRefusedHandshakes(t *testing.T) {
	tests := []struct {
		name, answer string
		kind         error // beside ErrHandshakeFailed
		says         []string
	}{
		{"a later version", `"result":` + hello("2099-01-01"), ErrNoCommonVersion, []string{`"2099-01-01"`, "2025-11-25", "2024-10-07"}},
		{"a version that is no string", `"result":{"protocolVersion":20251125}`, ErrMalformed, []string{"protocolVersion"}},
		{"no version", `"result":{"capabilities":{}}`, ErrMalformed, []string{"protocolVersion"}},
		{"no object", `"result":[]`, ErrMalformed, []string{"not an object"}},
		{"nothing", `"jsonrpc":"2.0"`, ErrMalformed, []string{"neither a result nor an error"}},
		{"an error", `"error":{"code":-32000,"message":"no license","data":{"file":"license.key"}}`, nil,
			[]string{"code -32000: no license", `{"file":"license.key"}`}},
		{"an error with versions unknown", `"error":{"code":-32602,"message":"Unsupported","data":{"supported":["2099-01-01"]}}`, nil,
			[]string{"Unsupported", "2099-01-01"}},
		{"an error with the version refused", `"error":{"code":-32602,"message":"Unsupported","data":{"supported":["2025-11-25"]}}`, nil,
			[]string{"Unsupported"}},
		{"an error with odd data", `"error":{"code":-32602,"message":"Unsupported","data":["supported"]}`, nil, []string{"Unsupported"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := startScript(t, nil)
				f := s.ready(t.Context())
				s.write("starting up\n" + `{"id":` + string(s.expect("initialize").ID) + `,` + test.answer + "}\n")
				want := []error{ErrNotReady, ErrHandshakeFailed}
				if test.kind != nil {
					want = append(want, test.kind)
				}
				f.wantEnd(t, 0, want...)
				wantSays(t, f.err, test.says...)
				wantSays(t, f.err, `"starting up"`) // what it wrote besides may be the reason
				if s.client.IsAlive() {
					t.Error("alive after a refused handshake")
				}
				if _, ok := errors.AsType[*HandshakeError](f.err); !ok {
					t.Errorf("no *HandshakeError: %v", f.err)
				}
				s.silent() // neither initialized nor cancelled
			})
		})
	}
}

// A server that refuses the newest version and names others is asked once more.
func TestHandshakeRetriesWithASupportedVersion(t *testing.T) {
	tests := []struct{ name, supported, offered string }{
		{"one", `["2025-03-26"]`, "2025-03-26"},
		{"newest of several", `["2024-11-05","2025-06-18","2025-03-26"]`, "2025-06-18"},
		{"among unknown ones", `["2099-01-01",7,null,"2024-11-05"]`, "2024-11-05"},
		{"not the one refused", `["2025-11-25","2025-06-18"]`, "2025-06-18"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := startScript(t, nil)
				refuse := func(request wireLine) {
					s.write(`{"id":` + string(request.ID) + `,"error":{"code":-32022,"message":"Unsupported","data":{"supported":` + test.supported + "}}}\n")
				}
				refuse(s.expect("initialize"))
				again := s.expect("initialize")
				if !strings.Contains(again.raw, `"protocolVersion":"`+test.offered+`"`) {
					t.Errorf("offered %s, want %s", again.raw, test.offered)
				}
				s.answer(again, hello(test.offered))
				s.expect("notifications/initialized")
				s.roundTrip()

				s = startScript(t, nil)
				f := s.ready(t.Context())
				refuse(s.expect("initialize"))
				refuse(s.expect("initialize"))
				f.wantEnd(t, 0, ErrNotReady, ErrHandshakeFailed)
				s.silent()
			})
		})
	}
}

// What a server sends before its answer neither counts as one nor does harm.
func TestMessagesBeforeTheHandshake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := startScript(t, nil)
		request := s.expect("initialize")
		for _, line := range []string{
			"Server started", "",
			`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"up"}}`,
			`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`,
			`{"jsonrpc":"2.0","id":1,"method":"ping"}`, // the id of our initialize
			`{"jsonrpc":"2.0","id":2,"result":{}}`,
		} {
			s.write(line + "\n")
		}
		if got, want := s.next().raw, `{"jsonrpc":"2.0","id":1,"result":{}}`; got != want {
			t.Errorf("the ping got %s", got)
		}
		if s.client.current.Load().isReady() {
			t.Fatal("ready without an answer")
		}
		s.answer(request, scriptHello)
		s.expect("notifications/initialized")
		s.roundTrip()
	})
}

// The server must hear that it is initialized before it gets a request, however
// eager the caller is: this one spins, and keeps the handshake from going on past
// the point at which it tells that the server is ready. It waits for a mutex, so
// it is in no bubble.
func TestInitializedComesBeforeAnyRequest(t *testing.T) {
	s := startScript(t, nil)
	sess := s.client.current.Load()
	_, _ = s.lines.ReadString('\n')
	s.client.mu.Lock()
	s.write(`{"id":1,"result":` + scriptHello + "}\n")
	for !sess.isReady() {
		runtime.Gosched()
	}
	sess.sendJSON(&outgoing{line: []byte(`{"method":"eager"}` + "\n")})
	s.client.mu.Unlock()
	if line, _ := s.lines.ReadString('\n'); !strings.Contains(line, `"notifications/initialized"`) {
		t.Errorf("the first line after the handshake is %s", line)
	}
}

// Each handshake replaces the instructions, also by nothing.
func TestInstructionsAreThoseOfTheLastHandshake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScript(t, nil)
		for _, test := range []struct{ member, want string }{
			{`,"instructions":"first"`, "first"}, {`,"instructions":"second"`, "second"}, {``, ""}, {`,"instructions":null`, ""},
		} {
			s.connect(nil)
			before := s.client.Instructions()
			request := s.expect("initialize")
			if got := s.client.Instructions(); got != before {
				t.Errorf("before the answer they are %q, want %q", got, before)
			}
			s.answer(request, `{"protocolVersion":"2025-11-25","capabilities":{}`+test.member+`}`)
			s.expect("notifications/initialized")
			s.roundTrip()
			if got := s.client.Instructions(); got != test.want {
				t.Errorf("instructions %q, want %q", got, test.want)
			}
			s.die(0, "")
			<-s.client.current.Load().done
		}
	})
}

// A slow handshake is bounded by nothing but its waiter's patience, and never
// cancelled.
func TestHandshakeMayTakeItsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := startScript(t, nil)
		request := s.expect("initialize")
		for range 3 {
			s.ready(bounded(t, time.Minute)).wantEnd(t, time.Minute, ErrNotReady, context.DeadlineExceeded)
		}
		s.ready(expired(t.Context())).wantEnd(t, 0, ErrNotReady, context.Canceled)
		f := s.call(t.Context(), "early", nil)
		<-f.done
		checkIndexBuilding(t, f.err)
		s.silent()

		time.Sleep(24 * time.Hour)
		patient := s.ready(t.Context())
		s.answer(request, scriptHello)
		<-patient.done
		if patient.err != nil {
			t.Error(patient.err)
		}
		s.expect("notifications/initialized")
		s.roundTrip()
	})
}

func TestWaitForReadyEndsWithTheServer(t *testing.T) {
	tests := []struct {
		name  string
		end   func(s *script)
		after time.Duration
		kinds []error
		says  string
	}{
		{"exit", func(s *script) { s.die(42, "") }, 0, []error{ErrNotReady}, "status 42"},
		{"end of its output", func(s *script) { s.output.end() }, exitWait, []error{ErrNotReady}, "closed its output"},
		{"shutdown", func(s *script) { _ = s.client.ForceShutdown(context.Background()) }, 0, []error{ErrNotReady, ErrClosed}, "closed by the host"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := startScript(t, nil)
				s.expect("initialize")
				f := s.ready(t.Context())
				test.end(s)
				f.wantEnd(t, test.after, test.kinds...)
				wantSays(t, f.err, test.says)
				s.ready(t.Context()).wantEnd(t, 0, test.kinds...) // and so does the next
			})
		})
	}
}

func TestWaitForReadyBeforeStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScript(t, nil)
		s.ready(t.Context()).wantEnd(t, 0, ErrNotReady, ErrOffline)
	})
}
