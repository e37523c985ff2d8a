package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// With a bound on calls in flight, the others wait in the order in which they
// came, and whoever ends lets the next one go.
func TestMaxInFlightKeepsTheOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := readyScript(t, func(cfg *ClientConfig) { cfg.MaxInFlight = 2 })
		var calls []*inFlight
		for n := range 6 {
			calls = append(calls, s.call(t.Context(), strconv.Itoa(n), nil))
		}
		requests := []wireLine{s.expectCall("0"), s.expectCall("1")}
		for n := range calls {
			s.silent()
			s.answer(requests[n], textResult("ok"))
			calls[n].wantText(t, "ok")
			if next := n + 2; next < len(calls) {
				requests = append(requests, s.expectCall(strconv.Itoa(next)))
			}
		}
	})
}

func TestMaxInFlightHonoursTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := readyScript(t, func(cfg *ClientConfig) { cfg.MaxInFlight, cfg.RequestTimeout = 1, time.Hour })
		holder := s.call(t.Context(), "holder", nil)
		impatient := s.call(bounded(t, time.Second), "impatient", nil)
		patient := s.call(t.Context(), "patient", nil)
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(errors.New("changed my mind"))
		cancelled := s.call(ctx, "cancelled", nil)

		cancelled.wantEnd(t, 0, ErrNotSent, context.Canceled)
		wantSays(t, cancelled.err, "changed my mind")
		impatient.wantEnd(t, time.Second, ErrNotSent, context.DeadlineExceeded)
		wantSays(t, impatient.err, "all 1 calls in flight")
		s.answer(s.expectCall("holder"), textResult("held"))
		holder.wantText(t, "held")
		s.answer(s.expectCall("patient"), textResult("at last"))
		patient.wantText(t, "at last")
		s.silent()
	})
}

// However a call ends, it gives its place up.
func TestMaxInFlightIsGivenBack(t *testing.T) {
	tests := []struct {
		name string
		args any
		ctx  time.Duration
		do   func(s *script)
	}{
		{"an error", nil, time.Hour, func(s *script) {
			s.write(`{"id":` + string(s.expectCall("a").ID) + `,"error":{"code":1,"message":"no"}}` + "\n")
		}},
		{"a malformed answer", nil, time.Hour, func(s *script) { s.answer(s.expectCall("a"), `7`) }},
		{"bad arguments", 7, time.Hour, func(*script) {}},
		{"a timeout", nil, time.Second, func(s *script) {
			s.expectCall("a")
			time.Sleep(time.Second)
			s.expect("notifications/cancelled")
		}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := readyScript(t, func(cfg *ClientConfig) { cfg.MaxInFlight = 1 })
				for range 3 {
					f := s.call(bounded(t, test.ctx), "a", test.args)
					test.do(s)
					<-f.done
					if f.err == nil {
						t.Error("the call was to fail")
					}
				}
				s.roundTrip()
			})
		})
	}
}

// The end of the server frees those who wait for their turn, too.
func TestMaxInFlightEndsWithTheServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := readyScript(t, func(cfg *ClientConfig) { cfg.MaxInFlight = 1 })
		holder := s.call(t.Context(), "holder", nil)
		var waiting []*inFlight
		for range 5 {
			waiting = append(waiting, s.call(t.Context(), "waiting", nil))
		}
		s.die(1, "")
		holder.wantEnd(t, 0, ErrOutcomeUnknown)
		for _, f := range waiting {
			f.wantEnd(t, 0, ErrNotSent, ErrOffline)
		}
	})
}

// listing is a ListTools that the test has not waited for yet.
type listing struct {
	inFlight
	tools []DiscoveredTool
}

func (s *script) list(ctx context.Context) *listing {
	f := &listing{inFlight: inFlight{tool: "list", done: make(chan struct{})}}
	begin := time.Now()
	go func() {
		defer close(f.done)
		f.tools, _, f.err = s.client.ListTools(ctx)
		f.took = time.Since(begin)
	}()
	synctest.Wait()
	return f
}

func (l *listing) names() []string {
	<-l.done
	var names []string
	for _, tool := range l.tools {
		names = append(names, tool.Name)
	}
	return names
}

func (l *listing) wantNames(t *testing.T, want ...string) {
	t.Helper()
	if got := l.names(); l.err != nil || !slices.Equal(got, want) {
		t.Errorf("got %q, %v; want %q", got, l.err, want)
	}
}

// page is a page of tools without a schema, with the raw cursor of the next one.
func page(cursor string, names ...string) string {
	var tools []string
	for _, name := range names {
		tools = append(tools, `{"name":`+strconv.Quote(name)+`}`)
	}
	if cursor != "" {
		cursor = `,"nextCursor":` + cursor
	}
	return `{"tools":[` + strings.Join(tools, ",") + `]` + cursor + `}`
}

func TestListToolsEnds(t *testing.T) {
	for name, cursor := range map[string]string{"no cursor": "", "null": "null", "empty cursor": `""`} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := readyScript(t, nil)
				l := s.list(t.Context())
				request := s.expect("tools/list")
				if want := `{"jsonrpc":"2.0","id":2,"method":"tools/list"}`; request.raw != want {
					t.Errorf("got %s, want %s", request.raw, want)
				}
				s.answer(request, page(cursor, "b", "c", "a"))
				l.wantNames(t, "a", "b", "c")
				s.silent()
			})
		})
	}
}

// A cursor is the server's own, and goes back as it came.
func TestListToolsSendsCursorsBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := readyScript(t, nil)
		cursors := []string{"2", " ", `"\/` + "\b\n\t\x00", "<&>\u2028é😀", "eyJvZmZzZXQiOjUwfQ==", strings.Repeat("long", 5000)}
		l := s.list(t.Context())
		last := ""
		for n, cursor := range cursors {
			request := s.expect("tools/list")
			if request.Params.Cursor != last {
				t.Errorf("page %d was asked for with %.50q, want %.50q", n, request.Params.Cursor, last)
			}
			quoted, _ := json.Marshal(cursor)
			s.answer(request, page(string(quoted), strconv.Itoa(n)))
			last = cursor
		}
		request := s.expect("tools/list")
		if request.Params.Cursor != last {
			t.Error("the last cursor did not come back")
		}
		s.answer(request, page(""))
		l.wantNames(t, "0", "1", "2", "3", "4", "5")
	})
}

// Twenty pages are a list. More, or a cursor that comes again, are an error and
// never a part of one.
func TestListToolsIsBounded(t *testing.T) {
	tests := []struct {
		name  string
		page  func(n int) string // counts from 1
		asked int
		tools int
		kind  error
		says  string
	}{
		{name: "20 pages", page: func(n int) string {
			if n == maxPages {
				return page("", "tool-20")
			}
			return page(strconv.Quote(strconv.Itoa(n)), fmt.Sprint("tool-", n))
		}, asked: 20, tools: 20},
		{name: "21 pages", page: func(n int) string {
			return page(strconv.Quote(strconv.Itoa(n)), fmt.Sprint("tool-", n))
		}, asked: 20, kind: ErrTooLarge, says: "no end after 20 pages"},
		{name: "the same cursor twice", page: func(n int) string {
			return page(`"again"`, fmt.Sprint("tool-", n))
		}, asked: 2, kind: ErrMalformed, says: `cursor "again" came a second time`},
		{name: "in circles", page: func(n int) string {
			return page(strconv.Quote(strconv.Itoa(n%3)), fmt.Sprint("tool-", n))
		}, asked: 4, kind: ErrMalformed, says: `cursor "1" came a second time`},
		{name: "10,000 tools", page: func(n int) string { return tenThousand(n, 10) }, asked: 10, tools: 10_000},
		{name: "more tools", page: func(n int) string { return tenThousand(n, 11) }, asked: 11, kind: ErrTooLarge, says: "more than 10000 tools"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := readyScript(t, nil)
				l := s.list(t.Context())
				for n := range test.asked {
					s.answer(s.expect("tools/list"), test.page(n+1))
				}
				<-l.done
				if len(l.tools) != test.tools {
					t.Errorf("%d tools, want %d", len(l.tools), test.tools)
				}
				if test.kind == nil {
					if l.err != nil {
						t.Error(l.err)
					}
				} else {
					wantKinds(t, l.err, test.kind)
					wantSays(t, l.err, test.says, "tools/list")
				}
				s.silent()
				s.roundTrip()
			})
		})
	}
}

// tenThousand is the n-th of some pages with a thousand tools each.
func tenThousand(n, pages int) string {
	var names []string
	for i := range 1000 {
		names = append(names, fmt.Sprintf("tool-%d-%d", n, i))
	}
	if n == pages {
		return page("", names...)
	}
	return page(strconv.Quote(strconv.Itoa(n)), names...)
}

// One tool that cannot be used costs the others nothing, and is counted.
func TestListToolsKeepsWhatCanBeUsed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := readyScript(t, nil)
		done := make(chan struct{})
		var list toolList
		var err error
		go func() {
			defer close(done)
			list, err = s.client.current.Load().listTools(t.Context())
		}()
		s.answer(s.expect("tools/list"), `{"tools":[{"name":"b","description":"first"},{"name":""},7,{"name":"bad","inputSchema":[]},{"name":"a"}],"nextCursor":"2"}`)
		s.answer(s.expect("tools/list"), `{"tools":[null,{"name":"b","description":"second"},{"name":"c"},{"name":"b"}]}`)
		<-done
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, tool := range list.tools {
			got = append(got, tool.Name+":"+tool.Description)
		}
		if want := []string{"a:", "b:first", "c:"}; !slices.Equal(got, want) {
			t.Errorf("tools %q, want %q", got, want)
		}
		if len(list.dropped) != 6 {
			t.Errorf("dropped %q, want 6", list.dropped)
		}
		for _, want := range []string{`"bad"`, `"b": listed twice`, "it has no name"} {
			if !strings.Contains(strings.Join(list.dropped, "\n"), want) {
				t.Errorf("what was dropped does not say %q: %q", want, list.dropped)
			}
		}
	})
}

// A server that does not know tools/list has no tools, unless it said that it
// has some.
func TestListToolsUnknownToTheServer(t *testing.T) {
	tests := []struct {
		name, capabilities string
		code               int
		fails              bool
	}{
		{"not declared", `{}`, -32601, false},
		{"declared null", `{"tools":null}`, -32601, false},
		{"declared", `{"tools":{}}`, -32601, true},
		{"another error", `{}`, -32603, true},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := startScript(t, nil)
				s.answer(s.expect("initialize"), `{"protocolVersion":"2025-11-25","capabilities":`+test.capabilities+`}`)
				s.expect("notifications/initialized")
				l := s.list(t.Context())
				s.write(fmt.Sprintf(`{"id":%s,"error":{"code":%d,"message":"sorry"}}`+"\n", s.expect("tools/list").ID, test.code))
				<-l.done
				if !test.fails {
					l.wantNames(t)
					return
				}
				answer, ok := errors.AsType[*RPCError](l.err)
				if !ok || answer.Code != int64(test.code) || l.tools != nil {
					t.Errorf("got %v, %v; want the server's error", l.tools, l.err)
				}
			})
		})
	}
}

func TestListToolsMalformed(t *testing.T) {
	for _, result := range []string{`[]`, `null`, `"tools"`, `{"tools":{}}`, `{"tools":"a"}`, `{"tools":[],"nextCursor":7}`} {
		synctest.Test(t, func(t *testing.T) {
			s := readyScript(t, nil)
			l := s.list(t.Context())
			s.answer(s.expect("tools/list"), result)
			<-l.done
			if l.tools != nil {
				t.Errorf("%s: %v", result, l.tools)
			}
			wantKinds(t, l.err, ErrMalformed)
			s.roundTrip()
		})
	}
}

// Each page has the RequestTimeout, and all of them together the context.
func TestListToolsLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := readyScript(t, nil)
		l := s.list(t.Context())
		for n := range 3 {
			time.Sleep(scriptTimeout - time.Second)
			s.answer(s.expect("tools/list"), page(strconv.Quote(strconv.Itoa(n)), "a"))
		}
		l.wantEnd(t, 3*(scriptTimeout-time.Second)+scriptTimeout, ErrOutcomeUnknown, context.DeadlineExceeded)
		request := s.expect("tools/list")
		if got := s.expect("notifications/cancelled"); string(got.Params.RequestID) != string(request.ID) {
			t.Errorf("%s was cancelled, want %s", got.raw, request.ID)
		}

		l = s.list(bounded(t, scriptTimeout))
		time.Sleep(scriptTimeout - time.Second)
		s.answer(s.expect("tools/list"), page(`"2"`, "a"))
		l.wantEnd(t, scriptTimeout, ErrOutcomeUnknown, context.DeadlineExceeded)
	})
}

func TestListToolsWithoutAConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScript(t, nil)
		l := s.list(t.Context())
		l.wantEnd(t, 0, ErrNotSent, ErrOffline)
		s.connect(nil)
		l = s.list(t.Context())
		l.wantEnd(t, 0, ErrNotSent, ErrNotReady)
		s.handshake()
		s.die(1, "")
		synctest.Wait()
		l = s.list(t.Context())
		l.wantEnd(t, 0, ErrNotSent, ErrOffline)
		wantSays(t, l.err, "status 1")
	})
}
