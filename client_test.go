package mcp

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"yagent/mcp/supervise"
)

// script is a server that the test itself plays: it reads the lines that the
// client wrote, one by one or not at all, and writes bytes as it likes.
type script struct {
	*memoryPeer
	t      *testing.T
	client *MCPClient
	lines  *bufio.Reader
}

// wireLine is one line that the client wrote.
type wireLine struct {
	raw string
	fakeMessage
}

const (
	scriptTimeout = 10 * time.Second
	scriptHello   = `{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"s","version":"1"},"instructions":"read first"}`
)

// newScript makes a client that is not started yet. It is pinned to the legacy
// era, so that the first line of each connection is initialize.
func newScript(t *testing.T, change func(*ClientConfig)) *script {
	t.Helper()
	cfg := ClientConfig{Name: "srv", RequestTimeout: scriptTimeout, Protocol: ProtocolLegacy}
	if change != nil {
		change(&cfg)
	}
	s := &script{t: t, client: NewMCPClient(cfg)}
	t.Cleanup(func() {
		if err := s.client.ForceShutdown(context.Background()); err != nil {
			t.Errorf("shutdown: %v", err)
		}
	})
	return s
}

// connect gives the client a new connection, as Start does it with a process.
func (s *script) connect(stand func(*script) peer) {
	s.t.Helper()
	c := s.client
	if !c.claimStart() {
		s.t.Fatal("the connection before is still there")
	}
	defer c.releaseStart()
	grp, err := c.openDomain(s.t.Context())
	if err != nil {
		s.t.Fatal(err)
	}
	c.setFault(nil)
	s.memoryPeer = newMemoryPeer(c.cfg, "plain")
	s.lines = bufio.NewReader(s.input)
	var p peer = s
	if stand != nil {
		p = stand(s)
	}
	start := func(context.Context, *supervise.Group, ClientConfig) (peer, error) { return p, nil }
	if _, err := c.connect(s.t.Context(), grp, start, noOwner{c}); err != nil {
		s.t.Fatal(err)
	}
}

func startScript(t *testing.T, change func(*ClientConfig)) *script {
	t.Helper()
	s := newScript(t, change)
	s.connect(nil)
	return s
}

// readyScript is past the handshake.
func readyScript(t *testing.T, change func(*ClientConfig)) *script {
	t.Helper()
	s := startScript(t, change)
	s.handshake()
	return s
}

func (s *script) handshake() {
	s.t.Helper()
	s.answer(s.expect("initialize"), scriptHello)
	s.expect("notifications/initialized")
	if err := s.client.WaitForReady(s.t.Context()); err != nil {
		s.t.Fatal(err)
	}
}

// next reads one line, which must be whole.
func (s *script) next() wireLine {
	s.t.Helper()
	if s.lines.Buffered() == 0 {
		synctest.Wait()
		if s.unread() == 0 {
			s.t.Fatal("the client wrote no further line")
		}
	}
	raw, err := s.lines.ReadString('\n')
	if err != nil {
		s.t.Fatalf("the client's last line has no end: %v", err)
	}
	line := wireLine{raw: strings.TrimSuffix(raw, "\n")}
	if err := json.Unmarshal([]byte(raw), &line.fakeMessage); err != nil {
		s.t.Fatalf("the client wrote a line that is no message: %.200q", raw)
	}
	return line
}

func (s *script) expect(method string) wireLine {
	s.t.Helper()
	line := s.next()
	if line.Method != method {
		s.t.Fatalf("the client wrote %.200s, want %s", line.raw, method)
	}
	return line
}

// expectCall reads the request for one tool.
func (s *script) expectCall(tool string) wireLine {
	s.t.Helper()
	line := s.expect("tools/call")
	if line.Params.Name != tool {
		s.t.Fatalf("the client called %q, want %q", line.Params.Name, tool)
	}
	return line
}

// silent fails the test if the client has written anything that was not read.
func (s *script) silent() {
	s.t.Helper()
	synctest.Wait()
	if s.unread() > 0 {
		s.t.Errorf("the client also wrote %.200s", s.next().raw)
	}
}

// unread is how much of what the client wrote was not read yet, in bytes.
func (s *script) unread() int {
	s.input.mu.Lock()
	defer s.input.mu.Unlock()
	return len(s.input.data) + s.lines.Buffered()
}

func (s *script) write(raw string) {
	s.t.Helper()
	if _, err := io.WriteString(s.output, raw); err != nil {
		s.t.Fatal(err)
	}
}

func (s *script) answer(request wireLine, result string) {
	s.t.Helper()
	s.write(`{"jsonrpc":"2.0","id":` + string(request.ID) + `,"result":` + result + "}\n")
}

func textResult(text string) string {
	return `{"content":[{"type":"text","text":` + strconv.Quote(text) + `}]}`
}

// inFlight is a call that the test has not waited for yet.
type inFlight struct {
	tool   string
	done   chan struct{}
	result *CallToolResult
	err    error
	took   time.Duration
}

// call calls a tool in the background, and returns when its line is queued.
func (s *script) call(ctx context.Context, tool string, args any) *inFlight {
	f := &inFlight{tool: tool, done: make(chan struct{})}
	begin := time.Now()
	go func() {
		defer close(f.done)
		f.result, f.err = s.client.CallTool(ctx, tool, args)
		f.took = time.Since(begin)
	}()
	synctest.Wait()
	return f
}

func (f *inFlight) wantText(t *testing.T, want string) {
	t.Helper()
	<-f.done
	if f.err != nil {
		t.Errorf("%s: %v", f.tool, f.err)
	} else if got := f.result.Text(); got != want {
		t.Errorf("%s: got %q, want %q", f.tool, got, want)
	}
}

// wantEnd checks when a call failed and what kinds its error is.
func (f *inFlight) wantEnd(t *testing.T, after time.Duration, kinds ...error) {
	t.Helper()
	<-f.done
	if f.took != after {
		t.Errorf("%s ended after %v, want %v", f.tool, f.took, after)
	}
	wantKinds(t, f.err, kinds...)
}

// roundTrip shows that the connection still works.
func (s *script) roundTrip() {
	s.t.Helper()
	f := s.call(s.t.Context(), "still-there", nil)
	s.answer(s.expectCall("still-there"), textResult("yes"))
	f.wantText(s.t, "yes")
}

// kinds are all the errors that a caller can tell apart with errors.Is.
var kinds = []error{
	ErrUnknownServer, ErrDisabled, ErrOffline, ErrNotReady, ErrClosed, ErrStarted, ErrNotSent, ErrOutcomeUnknown, ErrMalformed,
	ErrTooLarge, ErrInvalidArguments, ErrInputRequired, ErrNoCommonVersion, ErrHandshakeFailed, ErrIndexBuilding, context.Canceled, context.DeadlineExceeded,
}

// wantKinds checks that err is of the kinds given and of no other, and that its
// text names the server and ends with advice.
func wantKinds(t *testing.T, err error, want ...error) {
	t.Helper()
	if err == nil {
		t.Errorf("no error, want %v", want)
		return
	}
	for _, kind := range kinds {
		if got := errors.Is(err, kind); got != slices.Contains(want, kind) {
			t.Errorf("errors.Is(err, %q) = %v; err is %v", kind, got, err)
		}
	}
	wrapped, ok := errors.AsType[*ServerError](err)
	if !ok {
		t.Errorf("%T is no *ServerError: %v", err, err)
		return
	}
	if wrapped.Advice == "" || !strings.HasSuffix(err.Error(), wrapped.Advice) {
		t.Errorf("the text gives no advice: %v", err)
	}
	if !strings.HasPrefix(err.Error(), "mcp: server "+strconv.Quote(wrapped.Server)+": ") || wrapped.Server == "" {
		t.Errorf("the text does not name the server: %v", err)
	}
}

func wantSays(t *testing.T, err error, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(fmt.Sprint(err), part) {
			t.Errorf("the error does not say %q: %v", part, err)
		}
	}
}

func TestCallEndsAtTheEarlierLimit(t *testing.T) {
	second := func(n int) func(context.Context) (context.Context, context.CancelFunc) {
		return func(ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithTimeout(ctx, time.Duration(n)*time.Second)
		}
	}
	tests := []struct {
		name  string
		bound func(context.Context) (context.Context, context.CancelFunc)
		after time.Duration
		kind  error
	}{
		{"no deadline", context.WithCancel, scriptTimeout, context.DeadlineExceeded},
		{"deadline earlier", second(3), 3 * time.Second, context.DeadlineExceeded},
		{"deadline later", second(30), scriptTimeout, context.DeadlineExceeded},
		{"cancelled", func(ctx context.Context) (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancel(ctx)
			time.AfterFunc(2*time.Second, cancel)
			return ctx, cancel
		}, 2 * time.Second, context.Canceled},
		{"cancelled with a cause", func(ctx context.Context) (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancelCause(ctx)
			time.AfterFunc(2*time.Second, func() { cancel(errors.New("the user pressed escape")) })
			return ctx, func() { cancel(nil) }
		}, 2 * time.Second, context.Canceled},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := readyScript(t, nil)
				ctx, cancel := test.bound(t.Context())
				defer cancel()
				f := s.call(ctx, "slow", nil)
				request := s.expectCall("slow")
				f.wantEnd(t, test.after, ErrOutcomeUnknown, test.kind)
				wantSays(t, f.err, `call "slow"`, context.Cause(ctxOrTimeout(ctx, test.kind)).Error())

				// The server hears of it once, and its late answer meets nobody.
				cancelled := s.expect("notifications/cancelled")
				if want := `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":` + string(request.ID) + `}}`; cancelled.raw != want {
					t.Errorf("the client wrote %s, want %s", cancelled.raw, want)
				}
				s.answer(request, textResult("late"))
				s.roundTrip()
				s.silent()
			})
		})
	}
}

// ctxOrTimeout is the context whose cause a call's text should show: ctx, or an
// ended one where RequestTimeout came first.
func ctxOrTimeout(ctx context.Context, kind error) context.Context {
	if ctx.Err() != nil {
		return ctx
	}
	ended, cancel := context.WithCancelCause(context.Background())
	cancel(kind)
	return ended
}

func TestCallWithAnEndedContextIsNotSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := readyScript(t, nil)
		late, cancel := context.WithTimeout(t.Context(), 0)
		defer cancel()
		wantKindsOf(t, s.call(late, "late", nil), ErrNotSent, context.DeadlineExceeded)
		wantKindsOf(t, s.call(expired(t.Context()), "gone", nil), ErrNotSent, context.Canceled)
		s.silent()
	})
}

func wantKindsOf(t *testing.T, f *inFlight, kinds ...error) {
	t.Helper()
	<-f.done
	wantKinds(t, f.err, kinds...)
}

func bounded(t *testing.T, limit time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	t.Cleanup(cancel)
	return ctx
}

// pipeful is an argument that no pipe takes whole.
var pipeful = map[string]any{"filler": strings.Repeat("x", 200<<10)}

func TestDeafServerFreesEachCallerAtItsOwnDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := readyScript(t, func(cfg *ClientConfig) { cfg.RequestTimeout = time.Minute })
		begun := s.call(bounded(t, 1*time.Second), "begun", pipeful)
		queued := s.call(bounded(t, 3*time.Second), "queued", nil)
		large := s.call(bounded(t, 2*time.Second), "large", pipeful)
		patient := s.call(t.Context(), "patient", nil)
		begun.wantEnd(t, 1*time.Second, ErrOutcomeUnknown, context.DeadlineExceeded)
		large.wantEnd(t, 2*time.Second, ErrNotSent, context.DeadlineExceeded)
		queued.wantEnd(t, 3*time.Second, ErrNotSent, context.DeadlineExceeded)

		// The server reads again: the line begun comes whole, and of those
		// withdrawn nothing.
		request := s.expectCall("begun")
		if want, _ := json.Marshal(pipeful); string(request.Params.Arguments) != string(want) {
			t.Error("the line begun is not whole")
		}
		s.answer(s.expectCall("patient"), textResult("worth it"))
		patient.wantText(t, "worth it")
		if got := s.expect("notifications/cancelled"); string(got.Params.RequestID) != string(request.ID) {
			t.Errorf("%s cancels another request than %s", got.raw, request.ID)
		}
		s.roundTrip()
		s.silent()
	})
}

func TestHalfWrittenLine(t *testing.T) {
	const timeout = 8 * time.Second
	// Each step lasts half a timeout; none of them reads the line to its end.
	tests := []struct {
		name  string
		step  func(s *script)
		alive bool
	}{
		{"nothing moves", func(*script) {}, false},
		{"the server reads some", func(s *script) {
			if _, err := io.ReadFull(s.input, make([]byte, 9<<10)); err != nil {
				s.t.Error(err)
			}
		}, true},
		{"the server writes some", func(s *script) { s.write(" ") }, true},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := readyScript(t, func(cfg *ClientConfig) { cfg.RequestTimeout = timeout })
				begun := s.call(bounded(t, time.Second), "begun", pipeful)
				begun.wantEnd(t, time.Second, ErrOutcomeUnknown, context.DeadlineExceeded)
				for range 20 {
					time.Sleep(timeout / 2)
					if test.alive {
						test.step(s)
					}
				}
				synctest.Wait()
				if s.client.IsAlive() != test.alive {
					t.Errorf("alive: %v, want %v", s.client.IsAlive(), test.alive)
				}
			})
		})
	}
}

// When the stall of a half-written line ends the connection, everybody learns
// why, and that is neither early nor much too late.
func TestStallEndsTheConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const timeout = 8 * time.Second
		s := readyScript(t, func(cfg *ClientConfig) { cfg.RequestTimeout = timeout })
		begin := time.Now()
		begun := s.call(t.Context(), "begun", pipeful)
		time.Sleep(timeout / 2)
		queued := s.call(t.Context(), "queued", nil)
		begun.wantEnd(t, timeout, ErrOutcomeUnknown, context.DeadlineExceeded)
		<-queued.done
		if took := time.Since(begin); took < timeout || took > timeout*3/2 {
			t.Errorf("the connection ended %v after the last byte, want %v or a little more", took, timeout)
		}
		wantKinds(t, queued.err, ErrNotSent)
		wantSays(t, queued.err, "no byte moved in either direction for 8s", "half written")
		if s.client.IsAlive() {
			t.Error("alive after the stall")
		}
	})
}

func TestSilenceAloneEndsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := readyScript(t, nil)
		time.Sleep(100 * scriptTimeout)
		s.roundTrip()
		time.Sleep(100 * scriptTimeout)
		s.roundTrip()
	})
}

func TestIdsCountFromOneAndAreNeverReused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := startScript(t, nil)
		hello := s.expect("initialize")
		if string(hello.ID) != "1" {
			t.Errorf("the first id is %s", hello.ID)
		}
		s.answer(hello, scriptHello)
		s.expect("notifications/initialized")
		last := 1
		for round := range 30 {
			tool := "tool-" + strconv.Itoa(round)
			f := s.call(bounded(t, time.Second), tool, nil)
			request := s.expectCall(tool)
			id, err := strconv.Atoi(string(request.ID))
			if err != nil || id != last+1 {
				t.Fatalf("after the id %d comes %s", last, request.ID)
			}
			last = id
			switch round % 3 {
			case 0:
				s.answer(request, textResult(tool))
				f.wantText(t, tool)
			case 1:
				<-f.done
				s.expect("notifications/cancelled")
			default:
				s.write(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"error":{"code":1,"message":"no"}}`+"\n", id))
				<-f.done
			}
		}
	})
}

// Whatever is written at the same time, the server reads whole lines only.
func TestConcurrentLinesNeverMix(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const callers, rounds, pings = 64, 8, 200
		s := readyScript(t, nil)
		go func() {
			for n := range pings {
				s.write(fmt.Sprintf(`{"jsonrpc":"2.0","id":"ping-%d","method":"ping"}`+"\n", n))
			}
		}()
		var waiting sync.WaitGroup
		for caller := range callers {
			waiting.Go(func() {
				for round := range rounds {
					want := fmt.Sprintf("%d/%d", caller, round)
					filler := strings.Repeat("y", rand.IntN(9<<10)*rand.IntN(2))
					result, err := s.client.CallTool(t.Context(), "echo", map[string]any{"text": want, "filler": filler})
					if err != nil {
						t.Error(err)
						return
					}
					if got := result.Text(); got != want {
						t.Errorf("%s got the answer for %s", want, got)
					}
				}
			})
		}
		pongs := 0
		for range callers*rounds + pings {
			line := s.next()
			if line.Method == "" {
				pongs++
				continue
			}
			var args struct{ Text string }
			if err := json.Unmarshal(line.Params.Arguments, &args); err != nil {
				t.Fatal(err)
			}
			s.answer(line, textResult(args.Text))
		}
		waiting.Wait()
		if pongs != pings {
			t.Errorf("%d pings were answered, want %d", pongs, pings)
		}
		s.silent()
	})
}

// expandID puts a request's id in the place of "ID".
func expandID(line string, id json.RawMessage) string {
	return strings.ReplaceAll(line, "ID", string(id))
}

// Whatever form an answer has, its call gets it, and nobody else is disturbed.
func TestAnswers(t *testing.T) {
	const ok = `"result":{"content":[{"type":"text","text":"hi"}]}`
	tests := []struct{ name, wire, want string }{
		{"plain", `{"jsonrpc":"2.0","id":ID,` + ok + `}`, "hi"},
		{"id last", `{` + ok + `,"jsonrpc":"2.0","id":ID}`, "hi"},
		{"id as a string", `{"jsonrpc":"2.0","id":"ID",` + ok + `}`, "hi"},
		{"id as a float", `{"jsonrpc":"2.0","id":ID.0,` + ok + `}`, "hi"},
		{"id with an exponent", `{"jsonrpc":"2.0","id":IDe0,` + ok + `}`, "hi"},
		{"no jsonrpc", `{"id":ID,` + ok + `}`, "hi"},
		{"another jsonrpc", `{"jsonrpc":"1.0","id":ID,` + ok + `}`, "hi"},
		{"error null", `{"jsonrpc":"2.0","id":ID,"error":null,` + ok + `}`, "hi"},
		{"method null", `{"jsonrpc":"2.0","id":ID,"method":null,"params":null,"error":null,` + ok + `}`, "hi"},
		{"unknown members", `{"jsonrpc":"2.0","id":ID,"trace":{"id":99,"method":"x"},` + ok + `}`, "hi"},
		{"members in another case", `{"jsonrpc":"2.0","id":ID,"ID":99,"Result":null,"Error":{"code":1},"METHOD":"x",` + ok + `}`, "hi"},
		{"last of two members", `{"jsonrpc":"2.0","id":99,"result":{"content":3},"id":ID,` + ok + `}`, "hi"},
		{"escaped names", `{"jsonrpc":"2.0","\u0069d":ID,"resul\u0074":{"content":[{"type":"text","text":"hi"}]}}`, "hi"},
		{"CR LF", `{"jsonrpc":"2.0","id":ID,` + ok + "}\r", "hi"},
		{"byte order mark", "\xef\xbb\xbf" + `{"jsonrpc":"2.0","id":ID,` + ok + `}`, "hi"},
		{"white space", " \t" + `{ "jsonrpc" : "2.0" , "id" : ID , ` + ok + ` } `, "hi"},
		{"blank lines", "\n \n\r\n\t\n" + `{"jsonrpc":"2.0","id":ID,` + ok + `}`, "hi"},
		{"batch", `[{"jsonrpc":"2.0","method":"notifications/x"},{"jsonrpc":"2.0","id":ID,` + ok + `}]`, "hi"},
		{"batch with noise", `[1,"two",null,{"jsonrpc":"2.0","id":ID,` + ok + `}]`, "hi"},
		{"after noise", "Listening on stdio\n42\n[1,\n\x00\xff\n" + `{"jsonrpc":"2.0","id":ID,` + ok + `}`, "hi"},
		{"twice", `{"jsonrpc":"2.0","id":ID,` + ok + `}` + "\n" + `{"jsonrpc":"2.0","id":ID,"result":{"content":[]}}`, "hi"},
		{"ignorable parts", `{"jsonrpc":"2.0","id":ID,"result":{"content":[{"type":"text","text":"hi","annotations":null}],"isError":null,"_meta":null}}`, "hi"},
		{"not UTF-8", `{"jsonrpc":"2.0","id":ID,"result":{"content":[{"type":"text","text":"a` + "\xff" + `b"}]}}`, "a\uFFFDb"},
		{"half a surrogate pair", `{"jsonrpc":"2.0","id":ID,"result":{"content":[{"type":"text","text":"a\ud83db"}]}}`, "a\uFFFDb"},
		{"line separators", `{"jsonrpc":"2.0","id":ID,"result":{"content":[{"type":"text","text":"a` + "\u2028\u2029\u0085" + `b"}]}}`, "a\u2028\u2029\u0085b"},
		{"no content", `{"jsonrpc":"2.0","id":ID,"result":{}}`, ""},
		{"deep", `{"jsonrpc":"2.0","id":ID,"result":{"structuredContent":` + strings.Repeat("[", 9_000) + strings.Repeat("]", 9_000) + `}}`, ""},
		{"1 MiB", `{"jsonrpc":"2.0","id":ID,"result":{"content":[{"type":"text","text":"` + strings.Repeat("z", 1<<20) + `"}]}}`, strings.Repeat("z", 1<<20)},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := readyScript(t, nil)
				f := s.call(t.Context(), "a", nil)
				other := s.call(t.Context(), "b", nil)
				s.write(expandID(test.wire, s.expectCall("a").ID) + "\n")
				<-f.done
				if f.err != nil {
					t.Fatal(f.err)
				}
				if got := f.result.Text(); got != test.want || f.took != 0 {
					t.Errorf("got %.100q after %v, want %.100q at once", got, f.took, test.want)
				}
				if !json.Valid(f.result.Raw) {
					t.Error("the raw result is not valid JSON")
				}
				s.answer(s.expectCall("b"), textResult("own"))
				other.wantText(t, "own")
			})
		})
	}
}

// An answer of the wrong shape fails its call at once, and nothing else.
func TestFailedAnswers(t *testing.T) {
	var rpc error // any *RPCError
	tests := []struct {
		name, members string
		kind          error
		says          string
	}{
		{"neither result nor error", `"jsonrpc":"2.0"`, ErrMalformed, "neither a result nor an error"},
		{"nested too deep", `"jsonrpc":"2.0","result":{"a":` + strings.Repeat("[", 10_000) + strings.Repeat("]", 10_000) + `}`, ErrMalformed, "10000 levels"},
		{"only nulls", `"jsonrpc":"2.0","error":null,"method":null`, ErrMalformed, "neither a result nor an error"},
		{"result null", `"jsonrpc":"2.0","result":null`, ErrMalformed, "not an object"},
		{"result a string", `"jsonrpc":"2.0","result":"fine"`, ErrMalformed, "not an object"},
		{"result an array", `"jsonrpc":"2.0","result":[]`, ErrMalformed, "not an object"},
		{"result a number", `"result":7`, ErrMalformed, "not an object"},
		{"content a string", `"result":{"content":"fine"}`, ErrMalformed, "content"},
		{"isError a string", `"result":{"isError":"yes"}`, ErrMalformed, "isError"},
		{"error", `"jsonrpc":"2.0","error":{"code":-32000,"message":"boom","data":{"why":"x"}}`, rpc, `code -32000: boom; data: {"why":"x"}`},
		{"error and result", `"result":{"content":[]},"error":{"code":-5,"message":"boom"}`, rpc, "code -5: boom"},
		{"error beside result null", `"result":null,"error":{"code":-5,"message":"boom"}`, rpc, "code -5: boom"},
		{"no jsonrpc", `"error":{"code":-5,"message":"boom"}`, rpc, "code -5: boom"},
		{"code 0", `"jsonrpc":"2.0","error":{"code":0,"message":"zero"}`, rpc, "code 0: zero"},
		{"code a string", `"jsonrpc":"2.0","error":{"code":"E_FAIL","message":"boom"}`, rpc, "boom"},
		{"message null", `"jsonrpc":"2.0","error":{"code":4,"message":null}`, rpc, "code 4"},
		{"message an object", `"jsonrpc":"2.0","error":{"code":4,"message":{"text":"boom"}}`, rpc, "boom"},
		{"error empty", `"jsonrpc":"2.0","error":{}`, rpc, "error without a code"},
		{"error a string", `"jsonrpc":"2.0","error":"boom"`, rpc, "boom"},
		{"error a number", `"jsonrpc":"2.0","error":17`, rpc, "17"},
		{"error false", `"jsonrpc":"2.0","error":false`, rpc, "false"},
		{"error an array", `"jsonrpc":"2.0","error":["boom"]`, rpc, "boom"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := readyScript(t, nil)
				f := s.call(t.Context(), "a", nil)
				s.write(`{"id":` + string(s.expectCall("a").ID) + `,` + test.members + "}\n")
				if test.kind != nil {
					f.wantEnd(t, 0, test.kind)
				} else {
					f.wantEnd(t, 0)
				}
				if _, ok := errors.AsType[*RPCError](f.err); ok != (test.kind == rpc) {
					t.Errorf("as an *RPCError: %v; %v", ok, f.err)
				}
				wantSays(t, f.err, test.says)
				s.roundTrip()
				s.silent() // a finished call is not cancelled
			})
		})
	}
}

func TestRPCErrorKeepsWhatTheServerSaid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := readyScript(t, nil)
		f := s.call(t.Context(), "a", nil)
		const raw = `{"message":"gone","code":-32002,"data":{"n":1e400},"more":true}`
		s.write(`{"jsonrpc":"2.0","id":` + string(s.expectCall("a").ID) + `,"error":` + raw + "}\n")
		<-f.done
		answer, ok := errors.AsType[*RPCError](f.err)
		if !ok {
			t.Fatal(f.err)
		}
		if answer.Code != -32002 || answer.Message != "gone" || string(answer.Data) != `{"n":1e400}` || string(answer.Raw) != raw {
			t.Errorf("got %+v", answer)
		}
	})
}

func TestIsErrorIsAResult(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := readyScript(t, nil)
		f := s.call(t.Context(), "a", nil)
		s.answer(s.expectCall("a"), `{"content":[{"type":"text","text":"disk full"}],"isError":true}`)
		f.wantText(t, "disk full")
		if f.result != nil && !f.result.IsError {
			t.Error("the result does not say that the tool failed")
		}
	})
}

func TestAnswersComeInAnyOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := readyScript(t, nil)
		var calls []*inFlight
		var requests []wireLine
		for n := range 20 {
			tool := strconv.Itoa(n)
			calls = append(calls, s.call(t.Context(), tool, nil))
			requests = append(requests, s.expectCall(tool))
		}
		rand.Shuffle(len(requests), func(i, j int) { requests[i], requests[j] = requests[j], requests[i] })
		for _, request := range requests {
			s.answer(request, textResult("for "+request.Params.Name))
			s.answer(request, textResult("again"))
		}
		for _, f := range calls {
			f.wantText(t, "for "+f.tool)
		}
		s.roundTrip()
	})
}

// ownID is the id that a hostile server guesses: that of the next request.
func (s *script) ownID() string {
	return strconv.FormatInt(s.client.current.Load().lastID.Load(), 10)
}

// A server that guesses ids can answer requests that it has not read. The
// callers are served, and the lines of later calls are not mixed up with theirs.
func TestAnswerBeforeItsRequestWasWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := readyScript(t, nil)
		begun := s.call(t.Context(), "begun", pipeful)
		s.write(`{"jsonrpc":"2.0","id":` + s.ownID() + `,"result":` + textResult("guess 1") + "}\n")
		begun.wantText(t, "guess 1")
		queued := s.call(t.Context(), "queued", nil)
		s.write(`{"jsonrpc":"2.0","id":` + s.ownID() + `,"result":` + textResult("guess 2") + "}\n")
		queued.wantText(t, "guess 2")

		var calls []*inFlight
		for _, tool := range []string{"one", "two", "three"} {
			calls = append(calls, s.call(t.Context(), tool, nil))
		}
		if got, _ := json.Marshal(pipeful); string(s.expectCall("begun").Params.Arguments) != string(got) {
			t.Error("the line begun was overwritten")
		}
		for _, f := range calls {
			s.answer(s.expectCall(f.tool), textResult(f.tool))
			f.wantText(t, f.tool)
		}
		s.silent()
	})
}

// The same for a short line, whose buffer would be used again by the next call.
func TestAnswerWhileItsRequestIsWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := readyScript(t, nil)
		// Answers of 4 KiB each fill the pipe to its last byte.
		id := strconv.Quote(strings.Repeat("i", 4<<10-len(`{"jsonrpc":"2.0","id":"","result":{}}`)-1))
		pings := s.input.room / (4 << 10)
		for range pings {
			s.write(`{"jsonrpc":"2.0","id":` + id + `,"method":"ping"}` + "\n")
		}
		synctest.Wait()
		begun := s.call(t.Context(), "begun", nil)
		s.write(`{"jsonrpc":"2.0","id":` + s.ownID() + `,"result":` + textResult("guess") + "}\n")
		begun.wantText(t, "guess")
		later := s.call(t.Context(), "later", nil)
		for range pings {
			s.nextAnswer()
		}
		s.expectCall("begun")
		s.answer(s.expectCall("later"), textResult("ok"))
		later.wantText(t, "ok")
		s.silent()
	})
}

func TestServerRequestsAreAnswered(t *testing.T) {
	ids := []string{`1`, `2`, `0`, `-7`, `1.50`, `123456789012345678901234567890`, `"2"`, `"a\u0062\/\"c"`, `""`, `{"n":[1, 2]}`, strconv.Quote(strings.Repeat("i", 9000))}
	for _, at := range []string{"before initialized", "in a call"} {
		t.Run(at, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := startScript(t, nil)
				hello := s.expect("initialize")
				if at == "in a call" {
					s.answer(hello, scriptHello)
					s.expect("notifications/initialized")
					defer s.call(t.Context(), "busy", nil)
				}
				for _, id := range ids {
					s.write(`{"jsonrpc":"2.0","id":` + id + `,"method":"ping"}` + "\n")
					if got, want := s.nextAnswer(), `{"jsonrpc":"2.0","id":`+id+`,"result":{}}`; got != want {
						t.Errorf("ping: got %.200s, want %.200s", got, want)
					}
					for _, method := range []string{"roots/list", "sampling/createMessage", "elicitation/create", "made/up"} {
						s.write(`{"jsonrpc":"2.0","method":"` + method + `","params":{},"id":` + id + `}` + "\n")
						got := s.nextAnswer()
						if start := `{"jsonrpc":"2.0","id":` + id + `,"error":{"code":-32601,`; !strings.HasPrefix(got, start) {
							t.Errorf("%s: got %.200s, want %.200s", method, got, start)
						}
					}
				}
			})
		})
	}
}

// nextAnswer reads a line that answers a request of the server's.
func (s *script) nextAnswer() string {
	s.t.Helper()
	line := s.next()
	for line.Method == "tools/call" {
		line = s.next()
	}
	return line.raw
}

func TestNotificationsGetNoAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := readyScript(t, nil)
		for _, line := range []string{
			`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info"}}`,
			`{"jsonrpc":"2.0","method":"notifications/progress","params":[]}`,
			`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`,
			`{"jsonrpc":"2.0","method":"made/up","id":null}`,
			`{"jsonrpc":"2.0","method":17}`,
			`{"jsonrpc":"2.0","method":{},"id":5}`,
		} {
			s.write(line + "\n")
		}
		s.silent()
		s.roundTrip()
	})
}

// A server that asks without reading the answers must not fill the host's memory.
func TestBacklogOfAnswersIsBounded(t *testing.T) {
	tests := []struct {
		name  string
		id    string
		count int
		ends  bool
	}{
		{"lines within the bound", `1`, maxBacklogLines, false},
		{"one line more", `1`, maxBacklogLines + 1, true},
		{"bytes within the bound", strconv.Quote(strings.Repeat("i", 60<<10)), maxBacklogBytes / (61 << 10), false},
		{"more bytes", strconv.Quote(strings.Repeat("i", 60<<10)), maxBacklogBytes/(60<<10) + 1, true},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := readyScript(t, nil)
				f := s.call(t.Context(), "begun", pipeful)
				for range test.count {
					s.write(`{"jsonrpc":"2.0","id":` + test.id + `,"method":"ping"}` + "\n")
				}
				if test.ends {
					f.wantEnd(t, 0, ErrOutcomeUnknown, ErrTooLarge)
					wantSays(t, f.err, "1024 lines", "4194304 bytes", "does not read")
					return
				}
				request := s.expectCall("begun")
				for range test.count {
					s.nextAnswer()
				}
				s.answer(request, textResult("read"))
				f.wantText(t, "read")
			})
		})
	}
}

func TestOddLinesAreNoAnswers(t *testing.T) {
	const result = `"result":{"content":[]}`
	tests := []struct{ name, wire, says string }{
		{"id 0", `{"jsonrpc":"2.0","id":0,` + result + `}`, "a request that was never made (id 0)"},
		{"made-up id", `{"jsonrpc":"2.0","id":4711,` + result + `}`, "a request that was never made (id 4711)"},
		{"negative id", `{"jsonrpc":"2.0","id":-ID,` + result + `}`, "a request that was never made (id -ID)"},
		{"id null with an error", `{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"Parse error"}}`, "an error that names no request: \"code -32700: Parse error\""},
		{"no id with an error", `{"jsonrpc":"2.0","error":{"code":-32600,"message":"Invalid"}}`, "an error that names no request: \"code -32600: Invalid\""},
		{"id null with a result", `{"jsonrpc":"2.0","id":null,` + result + `}`, "1 line of its output was not a JSON-RPC message"},
		{"id of another shape", `{"jsonrpc":"2.0","id":[ID],"error":{"code":1,"message":"odd id"}}`, "odd id"},
		{"id not integral", `{"jsonrpc":"2.0","id":ID.5,"error":{"code":1,"message":"odd id"}}`, "odd id"},
		{"log line in JSON", `{"level":"info","id":ID,"msg":"working"}`, "working"},
		{"log line with nulls", `{"level":"info","id":ID,"msg":"working","error":null}`, "working"},
		{"request with our id", `{"jsonrpc":"2.0","id":ID,"method":"ping"}`, ""},
		{"request with a result", `{"jsonrpc":"2.0","id":ID,"method":"made/up",` + result + `}`, ""},
		{"names in another case", `{"jsonrpc":"2.0","ID":ID,"Id":ID,"RESULT":{}}`, ""},
		{"plain text", "Listening on\tport 80", `1 line of its output was not a JSON-RPC message, the first: "Listening on port 80"`},
		{"headers", "Content-Length: 44\r\n\r\n", "Content-Length: 44"},
		{"pretty", "{\n  \"jsonrpc\": \"2.0\",\n  \"id\": ID,\n  \"result\": {}\n}", `5 lines of its output were not JSON-RPC messages, the first: "{"`},
		{"cut off", `{"jsonrpc":"2.0","id":ID,"result":{`, "JSON-RPC message"},
		{"two in one line", `{"jsonrpc":"2.0","id":ID,` + result + `}{}`, "JSON-RPC message"},
		{"escape sequences", "\x1b[31mred\x1b[0m \u202edetrever", `"red detrever"`},
		{"long", strings.Repeat("long ", 1000), "…"},
		{"empty batch", `[]`, `"[]"`},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := readyScript(t, nil)
				f := s.call(t.Context(), "a", nil)
				id := s.expectCall("a").ID
				s.write(expandID(test.wire, id) + "\n")
				f.wantEnd(t, scriptTimeout, ErrOutcomeUnknown, context.DeadlineExceeded)
				wantSays(t, f.err, expandID(test.says, id), "no answer within 10s")
				if len(f.err.Error()) > 800 {
					t.Errorf("the text has %d bytes", len(f.err.Error()))
				}
				if line := s.next(); line.Method == "" {
					s.expect("notifications/cancelled") // it answered a request before
				}
				s.roundTrip()
			})
		})
	}
}

func TestLineOverTheLimit(t *testing.T) {
	const limit = 4 << 10
	filler := strings.Repeat("x", 3*limit)
	large := `"result":{"content":[{"type":"text","text":"` + filler + `"}]}`
	tests := []struct {
		name, wire string
		fails      bool // the call that the line answers
		ends       bool // the connection
	}{
		{"id first", `{"jsonrpc":"2.0","id":ID,` + large + `}`, true, false},
		{"id last", `{"jsonrpc":"2.0",` + large + `,"id":ID}`, true, false},
		{"id before jsonrpc at the end", `{` + large + `,"id":ID,"jsonrpc":"2.0"}`, true, false},
		{"id as a string", `{` + large + `,"jsonrpc":"2.0","id":"ID"}`, true, false},
		{"error", `{"id":ID,"error":{"code":1,"message":"` + filler + `"}}`, true, false},
		{"late answer", `{"jsonrpc":"2.0","id":1,` + large + `}`, false, false},
		{"notification", `{"jsonrpc":"2.0","method":"notifications/message","params":{"data":"` + filler + `"}}`, false, false},
		{"request", `{"jsonrpc":"2.0","id":ID,"method":"sampling/createMessage","params":{"data":"` + filler + `"}}`, false, false},
		{"no id", `{"jsonrpc":"2.0",` + large + `}`, true, true},
		{"batch", `[{"jsonrpc":"2.0","id":ID,` + large + `}]`, true, true},
		{"no message", filler, true, true},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := readyScript(t, func(cfg *ClientConfig) { cfg.MaxMessageBytes = limit })
				f := s.call(t.Context(), "a", nil)
				other := s.call(t.Context(), "b", nil)
				request := s.expectCall("a")
				otherRequest := s.expectCall("b")
				s.write(expandID(test.wire, request.ID) + "\n")
				if test.ends {
					for _, lost := range []*inFlight{f, other} {
						lost.wantEnd(t, 0, ErrOutcomeUnknown, ErrTooLarge)
						wantSays(t, lost.err, "4096 bytes")
					}
					if s.client.IsAlive() {
						t.Error("alive after a line that nobody can be told of")
					}
					return
				}
				if test.fails {
					f.wantEnd(t, 0, ErrTooLarge)
					wantSays(t, f.err, "4096 bytes")
				} else {
					s.answer(request, textResult("fine"))
					f.wantText(t, "fine")
				}
				s.answer(otherRequest, textResult("undisturbed"))
				other.wantText(t, "undisturbed")
				s.roundTrip()
			})
		})
	}
}

// A line at the limit passes: the limit is what a message may have.
func TestLineAtTheLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := readyScript(t, func(cfg *ClientConfig) { cfg.MaxMessageBytes = 4 << 10 })
		for extra, want := range []error{nil, ErrTooLarge} {
			f := s.call(t.Context(), "a", nil)
			line := `{"jsonrpc":"2.0","id":` + string(s.expectCall("a").ID) + `,"result":{"x":"`
			line += strings.Repeat("x", 4<<10-len(line)-len(`"}}`)+extra) + `"}}`
			s.write(line + "\n")
			<-f.done
			if !errors.Is(f.err, want) {
				t.Errorf("%d bytes: %v", len(line), f.err)
			}
		}
	})
}

// A flood without a line end fails the calls at the limit, while it goes on.
func TestFloodWithoutLineEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := readyScript(t, func(cfg *ClientConfig) { cfg.MaxMessageBytes = 1 << 20 })
		f := s.call(t.Context(), "a", nil)
		request := s.expectCall("a")
		go func() {
			for err := error(nil); err == nil; {
				_, err = io.WriteString(s.output, strings.Repeat("flood", 1000))
			}
		}()
		f.wantEnd(t, 0, ErrOutcomeUnknown, ErrTooLarge)
		wantSays(t, f.err, "1048576 bytes")
		time.Sleep(10 * time.Second)
		if !isClosed(s.exited) {
			t.Errorf("the server lives on after its flood; request %s", request.ID)
		}
	})
}

// An answer that shows its id before its large part fails the call at the
// limit, though the rest takes its time.
func TestOverlongAnswerFailsBeforeItsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := readyScript(t, func(cfg *ClientConfig) { cfg.MaxMessageBytes = 4 << 10 })
		f := s.call(t.Context(), "a", nil)
		s.write(`{"jsonrpc":"2.0","id":` + string(s.expectCall("a").ID) + `,"result":{"x":"` + strings.Repeat("x", 8<<10))
		f.wantEnd(t, 0, ErrTooLarge)
		s.write(strings.Repeat("x", 8<<10) + "\"}}\n")
		s.roundTrip()
	})
}

func TestArgumentsThatAreNoObjectAreNotSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := readyScript(t, nil)
		for _, args := range []any{42, "text", []int{1}, true, json.RawMessage(`[1]`), json.RawMessage(`{"a":`), func() {}} {
			f := s.call(t.Context(), "a", args)
			f.wantEnd(t, 0, ErrNotSent, ErrInvalidArguments)
		}
		s.silent()
		for _, good := range []struct {
			args any
			wire string
		}{
			{nil, `{}`}, {json.RawMessage(nil), `{}`}, {map[string]any(nil), `{}`}, {struct{ A string }{"<&>"}, `{"A":"<&>"}`},
			{json.RawMessage("{ \"n\": 1.50e400,\n\"n\":2 }"), `{ "n": 1.50e400, "n":2 }`},
		} {
			f := s.call(t.Context(), "a", good.args)
			request := s.expectCall("a")
			if !strings.Contains(request.raw, `"arguments":`+good.wire+`}`) {
				t.Errorf("%v went out as %s, want %s", good.args, request.raw, good.wire)
			}
			s.answer(request, textResult("ok"))
			f.wantText(t, "ok")
		}
	})
}

// The main texts as a model or a person reads them.
func TestErrorTexts(t *testing.T) {
	tests := []struct {
		name string
		fail func(s *script) error
		want string
	}{
		{"timeout", func(s *script) error {
			return s.failing(func(wireLine) {})
		}, `mcp: server "srv": call "find": the outcome is unknown: the request was written, but not answered: ` +
			`no answer within 10s: context deadline exceeded. It may or may not have taken effect: check before you repeat it`},
		{"exit", func(s *script) error {
			return s.failing(func(wireLine) {
				fmt.Fprint(stderrWriter{s.memoryPeer}, "no such table")
				s.die(3, "")
			})
		}, `mcp: server "srv": call "find": the outcome is unknown: the request was written, but not answered: ` +
			`the process exited with status 3 (the server's last words on stderr: "no such table"). It may or may not have taken effect: check before you repeat it`},
		{"after the exit", func(s *script) error {
			s.die(-1, "segmentation fault")
			time.Sleep(time.Second)
			_, err := s.client.CallTool(s.t.Context(), "find", nil)
			return err
		}, `mcp: server "srv": call "find": the request was not sent: the server is offline: ` +
			`the process was ended by signal segmentation fault. It had no effect: it may be repeated`},
		{"not started", func(s *script) error {
			_, err := NewMCPClient(ClientConfig{Name: "srv"}).CallTool(s.t.Context(), "find", nil)
			return err
		}, `mcp: server "srv": call "find": the request was not sent: the server is offline: it was not started. It had no effect: it may be repeated`},
		{"arguments", func(s *script) error {
			_, err := s.client.CallTool(s.t.Context(), "find", 42)
			return err
		}, `mcp: server "srv": call "find": the request was not sent: invalid arguments: the arguments are not a JSON object. Pass a JSON object`},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				if got := test.fail(readyScript(t, nil)); got == nil || got.Error() != test.want {
					t.Errorf("got\n%v\nwant\n%s", got, test.want)
				}
			})
		})
	}
}

// failing calls a tool, does something about it, and returns the call's error.
func (s *script) failing(do func(request wireLine)) error {
	s.t.Helper()
	f := s.call(s.t.Context(), "find", nil)
	do(s.expectCall("find"))
	<-f.done
	return f.err
}

// Tests with real children.

func TestJunkBeforeTheHandshakeIsSkipped(t *testing.T) {
	c := readyFakeClient(t, "junk-first", nil)
	result, err := c.CallTool(within(t), "echo", nil)
	if err != nil || result.Text() != "junk-first echo {}" {
		t.Errorf("got %v, %v", result, err)
	}
	wantSays(t, errors.New(c.hint()), "4 lines", "Server started on stdio")
}

func TestReversedAnswersFindTheirCallers(t *testing.T) {
	c := readyFakeClient(t, "reverse", nil)
	var callers sync.WaitGroup
	for n := range 4 {
		callers.Go(func() {
			args := fmt.Sprintf(`{"n":%d}`, n)
			result, err := c.CallTool(within(t), "echo", json.RawMessage(args))
			if err != nil || result.Text() != "reverse echo "+args {
				t.Errorf("%s: got %v, %v", args, result, err)
			}
		})
	}
	callers.Wait()
}

// An impatient caller of a slow server leaves at its own limit, and the late
// answer harms nobody.
func TestSlowServerOutlastsItsCaller(t *testing.T) {
	c := readyFakeClient(t, "slow", func(cfg *ClientConfig) { cfg.RequestTimeout = 50 * time.Millisecond })
	_, err := c.CallTool(t.Context(), "echo", nil)
	wantKinds(t, err, ErrOutcomeUnknown, context.DeadlineExceeded)
	if !c.IsAlive() {
		t.Error("a slow call ended the connection")
	}
}

func TestHangingCallEndsWithItsContextOrTheClient(t *testing.T) {
	c := readyFakeClient(t, "hang", nil)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := c.CallTool(ctx, "echo", nil)
	wantKinds(t, err, ErrOutcomeUnknown, context.DeadlineExceeded)

	result := make(chan error)
	go func() {
		_, err := c.CallTool(context.Background(), "echo", nil)
		result <- err
	}()
	s := c.current.Load()
	for s.lastID.Load() < 3 {
		runtime.Gosched()
	}
	if err := c.Shutdown(within(t)); err != nil {
		t.Error(err)
	}
	if err := <-result; !errors.Is(err, ErrClosed) {
		t.Errorf("the call in flight got %v, want ErrClosed", err)
	}
}
