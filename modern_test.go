package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// What is different once a connection is known to be modern.

// modernScript is a script past its server/discover, with these capabilities.
func modernScript(t *testing.T, capabilities string) *script {
	t.Helper()
	s := startScript(t, func(cfg *ClientConfig) { cfg.Protocol = ProtocolModern })
	probe := s.expect("server/discover")
	if want := `{"jsonrpc":"2.0","id":"probe-1","method":"server/discover","params":{` + wantMeta + `}}`; probe.raw != want {
		t.Errorf("got  %s\nwant %s", probe.raw, want)
	}
	s.answer(probe, `{"supportedVersions":["2026-07-28"],"capabilities":`+capabilities+`}`)
	if err := s.client.WaitForReady(t.Context()); err != nil {
		t.Fatal(err)
	}
	return s
}

// TestModern_Requests say who asks, each for itself, and nothing goes out that
// the era does not know.
func TestModern_Requests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := modernScript(t, `{"tools":{}}`)
		s.silent()
		f := s.call(t.Context(), "a", json.RawMessage(`{ "x" : 1 }`))
		request := s.expectCall("a")
		if want := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a","arguments":{ "x" : 1 },` + wantMeta + `}}`; request.raw != want {
			t.Errorf("got  %s\nwant %s", request.raw, want)
		}
		s.answer(request, `{"resultType":"complete","content":[{"type":"text","text":"yes"}],"structuredContent":[1,null]}`)
		f.wantText(t, "yes")
		if got := string(f.result.StructuredContent); got != "[1,null]" {
			t.Errorf("structured content %s", got)
		}

		go func() { _, _, _ = s.client.ListTools(t.Context()) }()
		list := s.expect("tools/list")
		if want := `{"jsonrpc":"2.0","id":2,"method":"tools/list","params":{` + wantMeta + `}}`; list.raw != want {
			t.Errorf("got  %s\nwant %s", list.raw, want)
		}
		s.answer(list, `{"tools":[]}`)

		for _, method := range []string{"ping", "roots/list", "elicitation/create", "nonsense"} {
			s.write(`{"jsonrpc":"2.0","id":3,"method":"` + method + `"}` + "\n")
		}
		s.silent()
		s.roundTrip()
	})
}

// TestModern_Results are final, or an error that tells what they are.
func TestModern_Results(t *testing.T) {
	tests := []struct {
		name, result string
		kind         error // nil: it is a result
		says         string
	}{
		{"no type", `{"content":[]}`, nil, ""},
		{"null", `{"content":[],"resultType":null}`, nil, ""},
		{"complete", `{"content":[],"resultType":"complete"}`, nil, ""},
		{"input required", `{"resultType":"input_required","inputRequests":{"b":{"method":"roots/list"},"a":{"method":"elicitation/create","params":{}},"c":{"method":"roots/list"}}}`,
			ErrInputRequired, "(elicitation/create, roots/list)"},
		{"state alone", `{"resultType":"input_required","requestState":"s"}`, ErrInputRequired, "input"},
		{"odd requests", `{"resultType":"input_required","inputRequests":[7]}`, ErrInputRequired, "input"},
		{"another", `{"content":[],"resultType":"task"}`, ErrMalformed, "resultType"},
		{"no string", `{"content":[],"resultType":7}`, ErrMalformed, "resultType"},
		{"the last counts", `{"content":[],"resultType":"task","resultType":"complete"}`, nil, ""},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := modernScript(t, `{}`)
				f := s.call(t.Context(), "a", nil)
				s.answer(s.expectCall("a"), test.result)
				if test.kind == nil {
					f.wantText(t, "")
				} else {
					f.wantEnd(t, 0, test.kind)
					wantSays(t, f.err, test.says)
				}
				s.roundTrip()

				// The legacy era does not know the member.
				s = readyScript(t, nil)
				f = s.call(t.Context(), "a", nil)
				s.answer(s.expectCall("a"), test.result)
				f.wantText(t, "")
			})
		})
	}
}

// TestModern_Pages: an empty cursor is one, and is sent back; a second one in a
// row ends the list.
func TestModern_Pages(t *testing.T) {
	tests := []struct {
		name  string
		pages []string // answers
		asked []string // cursors; "-" is none
		want  string   // tools, or what the error says
	}{
		{"no cursor", []string{`{"tools":[T1]}`}, []string{"-"}, "t1"},
		{"null", []string{`{"tools":[T1],"nextCursor":null}`}, []string{"-"}, "t1"},
		{"an empty one", []string{`{"tools":[T1],"nextCursor":""}`, `{"tools":[T2]}`}, []string{"-", ""}, "t1 t2"},
		{"two in a row", []string{`{"tools":[T1,T2],"nextCursor":""}`, `{"tools":[T1,T2],"nextCursor":""}`}, []string{"-", ""}, "t1 t2"},
		{"two apart", []string{`{"tools":[T1],"nextCursor":""}`, `{"tools":[T2],"nextCursor":"x"}`, `{"tools":[T3],"nextCursor":""}`, `{"tools":[T4]}`},
			[]string{"-", "", "x", ""}, "t1 t2 t3 t4"},
		{"others go in circles", []string{`{"tools":[T1],"nextCursor":"x"}`, `{"tools":[T2],"nextCursor":"x"}`}, []string{"-", "x"}, `"x" came a second time`},
		{"not final", []string{`{"tools":[T1],"resultType":"input_required"}`}, []string{"-"}, "resultType"},
		{"not known", []string{`{"tools":[T1],"resultType":"task"}`}, []string{"-"}, "resultType"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := modernScript(t, `{}`)
				var list toolList
				done := make(chan error, 1)
				go func() {
					var err error
					list, err = s.client.current.Load().listTools(t.Context())
					done <- err
				}()
				for i, page := range test.pages {
					request := s.expect("tools/list")
					if got := cursorOf(t, request); got != test.asked[i] {
						t.Errorf("request %d has the cursor %q, want %q", i, got, test.asked[i])
					}
					for n := range 5 {
						page = strings.ReplaceAll(page, fmt.Sprintf("T%d", n), fmt.Sprintf(`{"name":"t%d"}`, n))
					}
					s.answer(request, page)
				}
				if err := <-done; err != nil {
					wantSays(t, err, test.want)
					return
				}
				var names []string
				for _, tool := range list.tools {
					names = append(names, tool.Name)
				}
				if got := strings.Join(names, " "); got != test.want || len(list.dropped) > 0 {
					t.Errorf("tools %s, dropped %q; want %s", got, list.dropped, test.want)
				}
				s.silent()
			})
		})
	}
}

func TestModern_PagesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := modernScript(t, `{}`)
		done := make(chan error, 1)
		go func() {
			_, _, err := s.client.ListTools(t.Context())
			done <- err
		}()
		for i := range maxPages {
			s.answer(s.expect("tools/list"), `{"tools":[],"nextCursor":"`+strings.Repeat("x", i%2*(i+1))+`"}`)
		}
		if err := <-done; !errors.Is(err, ErrTooLarge) {
			t.Errorf("got %v", err)
		}
		s.silent()
	})
}

// cursorOf tells an absent cursor from an empty one.
func cursorOf(t *testing.T, request wireLine) string {
	t.Helper()
	var line struct{ Params struct{ Cursor *string } }
	if err := json.Unmarshal([]byte(request.raw), &line); err != nil {
		t.Fatal(err)
	}
	if line.Params.Cursor == nil {
		return "-"
	}
	return *line.Params.Cursor
}

const listens = `{"tools":{"listChanged":true}}`

// acknowledge opens the subscription.
func (s *script) acknowledge(request wireLine) {
	s.t.Helper()
	s.write(`{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{"notifications":{"toolsListChanged":true},` + subscription(request) + "}}\n")
}

func subscription(request wireLine) string {
	return `"_meta":{"io.modelcontextprotocol/subscriptionId":` + string(request.ID) + `}`
}

// TestModern_Listen: the subscription is a request like any other, which no
// limit ends once it was opened, and nothing of it is an answer to a call.
func TestModern_Listen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := modernScript(t, listens)
		request := s.expect("subscriptions/listen")
		if want := `{"jsonrpc":"2.0","id":1,"method":"subscriptions/listen","params":{"notifications":{"toolsListChanged":true},` + wantMeta + `}}`; request.raw != want {
			t.Errorf("got  %s\nwant %s", request.raw, want)
		}
		s.acknowledge(request)
		time.Sleep(24 * time.Hour)
		s.silent()
		s.roundTrip()
		s.answer(request, `{"resultType":"complete"}`) // the server ends it
		time.Sleep(24 * time.Hour)
		s.silent()
		s.roundTrip()
	})
}

// TestModern_ListenIsNotAcknowledged: it is cancelled, and all else goes on. An
// acknowledgement of something else is none.
func TestModern_ListenIsNotAcknowledged(t *testing.T) {
	for name, meta := range map[string]string{
		"none": "", "of nothing": `{}`, "of another": `{"_meta":{"io.modelcontextprotocol/subscriptionId":77}}`, "odd": `{"_meta":[]}`,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := modernScript(t, listens)
				request := s.expect("subscriptions/listen")
				if meta != "" {
					s.write(`{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":` + meta + "}\n")
				}
				time.Sleep(scriptTimeout - time.Nanosecond)
				s.silent()
				time.Sleep(time.Nanosecond)
				if got := s.expect("notifications/cancelled"); string(got.Params.RequestID) != string(request.ID) {
					t.Errorf("cancelled %s", got.raw)
				}
				s.answer(request, `{}`)
				s.roundTrip()
				s.silent()
			})
		})
	}
}

func TestModern_ListenIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := modernScript(t, listens)
		s.write(`{"jsonrpc":"2.0","id":` + string(s.expect("subscriptions/listen").ID) + `,"error":{"code":-32601,"message":"no"}}` + "\n")
		time.Sleep(time.Hour)
		s.silent()
		s.roundTrip()
	})
}

// listening makes the actor a modern server whose subscriptions the test answers.
func (a *actor) listening() <-chan fakeMessage {
	a.beModern()
	a.answers("server/discover", strings.Replace(discovered("2026-07-28"), `"tools":{}`, `"tools":{"listChanged":true}`, 1))
	return a.hold("subscriptions/listen")
}

// TestModern_ListChanged comes over the subscription, which each connection
// opens anew, and leads where the legacy notification leads.
func TestModern_ListChanged(t *testing.T) {
	staged(t, func(t *testing.T, st *stage) {
		var seen recorder
		var held <-chan fakeMessage
		st.onStart = func(_ context.Context, a *actor) error { held = a.listening(); return nil }
		m := st.started(ManagerOptions{OnToolsChanged: seen.onTools}, oneServer)
		for life := range 2 {
			wantReady(t, m, "s")
			request := <-held
			meta := `"_meta":{"io.modelcontextprotocol/subscriptionId":` + string(request.ID) + `}`
			a := st.actor("s")
			a.server.send(`{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{"notifications":{"toolsListChanged":true},` + meta + `}}`)
			a.lists("echo", fmt.Sprint("new-", life))
			a.server.send(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":{` + meta + `}}`)
			time.Sleep(time.Second)
			synctest.Wait()
			if n := a.asked("tools/list"); n != 2 {
				t.Errorf("life %d: %d listings, want 2", life, n)
			}
			changes := seen.toolChanges()
			if last := changes[len(changes)-1]; !slices.Equal(last.Added, []string{fmt.Sprint("new-", life)}) {
				t.Errorf("life %d: the last change is %+v", life, last)
			}
			a.die(1, "")
			synctest.Wait()
		}
	})
}
