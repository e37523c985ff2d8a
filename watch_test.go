package mcp

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"yagent/mcp/supervise"
)

// exitHolding ends the server's process while another one holds its output.
func (s *script) exitHolding(status int) {
	s.killOnce.Do(func() {
		s.mu.Lock()
		s.exit.Status = status
		s.mu.Unlock()
		close(s.killed)
		s.input.cut()
		close(s.exited)
	})
}

// However a connection ends, every call in flight hears of it, with the cause.
func TestEndsOfAConnection(t *testing.T) {
	tests := []struct {
		name  string
		end   func(s *script)
		after time.Duration // until the calls fail
		kinds []error       // beside ErrOutcomeUnknown
		says  string
		exit  *ExitError
	}{
		{name: "exit", end: func(s *script) {
			fmt.Fprint(stderrWriter{s.memoryPeer}, "panic: no such table")
			s.die(3, "")
		}, says: `exited with status 3 (the server's last words on stderr: "panic: no such table")`, exit: &ExitError{Status: 3}},
		{name: "exit 0", end: func(s *script) { s.die(0, "") }, says: "exited with status 0", exit: &ExitError{Status: 0}},
		{name: "signal", end: func(s *script) { s.die(-1, "segmentation fault") },
			says: "ended by signal segmentation fault", exit: &ExitError{Status: -1, Signal: "segmentation fault"}},
		{name: "end of its output", end: func(s *script) { s.output.end() }, after: exitWait, says: "the server closed its output"},
		{name: "end of its output, then exit", end: func(s *script) {
			s.output.end()
			time.Sleep(exitWait / 2)
			s.die(4, "")
		}, after: exitWait / 2, says: "status 4", exit: &ExitError{Status: 4}},
		{name: "output held by another process", end: func(s *script) { s.exitHolding(5) },
			after: deliveryWait, says: "status 5", exit: &ExitError{Status: 5}},
		{name: "shutdown", end: func(s *script) { _ = s.client.ForceShutdown(context.Background()) },
			kinds: []error{ErrClosed}, says: "closed by the host"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := readyScript(t, nil)
				inFlight := []*inFlight{s.call(t.Context(), "a", nil), s.call(t.Context(), "b", nil)}
				begin := time.Now()
				test.end(s)
				for _, f := range inFlight {
					<-f.done
					if took := time.Since(begin); took != test.after {
						t.Errorf("the call ended after %v, want %v", took, test.after)
					}
					wantKinds(t, f.err, append(test.kinds, ErrOutcomeUnknown)...)
					wantSays(t, f.err, test.says)
					exit, ok := errors.AsType[*ExitError](f.err)
					if ok != (test.exit != nil) || ok && (exit.Status != test.exit.Status || exit.Signal != test.exit.Signal || exit.Server != "srv") {
						t.Errorf("as an *ExitError: %+v", exit)
					}
				}
				next := s.call(t.Context(), "next", nil)
				<-next.done
				wantKinds(t, next.err, append(test.kinds, ErrNotSent, ErrOffline)...)
				wantSays(t, next.err, test.says)
				<-s.client.current.Load().done
				if !isClosed(s.exited) {
					t.Error("the process outlived its connection")
				}
			})
		})
	}
}

// IsAlive is false from the moment at which the end is seen, before any call
// has failed.
func TestIsAliveIsFalseAtTheEnd(t *testing.T) {
	for name, end := range map[string]func(*script){
		"exit":                           func(s *script) { s.die(1, "") },
		"end of its output":              func(s *script) { s.output.end() },
		"output held by another process": func(s *script) { s.exitHolding(1) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := readyScript(t, nil)
				if !s.client.IsAlive() {
					t.Fatal("not alive to begin with")
				}
				end(s)
				synctest.Wait() // no time passes
				if s.client.IsAlive() {
					t.Error("alive at its end")
				}
			})
		})
	}
}

// What a server wrote before its end still counts.
func TestLastAnswersAreDelivered(t *testing.T) {
	for name, end := range map[string]func(*script){
		"exit":                           func(s *script) { s.die(1, "") },
		"end of its output":              func(s *script) { s.output.end() },
		"output held by another process": func(s *script) { s.exitHolding(1) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := readyScript(t, nil)
				var calls []*inFlight
				for n := range 10 {
					calls = append(calls, s.call(t.Context(), fmt.Sprint(n), nil))
				}
				lost := s.call(t.Context(), "lost", nil)
				var last strings.Builder
				for _, f := range calls {
					fmt.Fprintf(&last, `{"id":%s,"result":%s}`+"\n", s.expectCall(f.tool).ID, textResult(f.tool))
				}
				s.write(strings.TrimSuffix(last.String(), "\n")) // the last line without its end
				end(s)
				<-lost.done
				wantKinds(t, lost.err, ErrOutcomeUnknown)
				for _, f := range calls[:9] {
					f.wantText(t, f.tool)
				}
				if name != "output held by another process" { // only there the last line may go on
					calls[9].wantText(t, "9")
				}
			})
		})
	}
}

// A late answer over an output that another process holds still counts, within
// the time that such an output is given.
func TestAnswerOverAHeldOutput(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := readyScript(t, nil)
		a, b := s.call(t.Context(), "a", nil), s.call(t.Context(), "b", nil)
		first := s.expectCall("a")
		s.exitHolding(1)
		time.Sleep(deliveryWait - time.Millisecond)
		s.answer(first, textResult("in time"))
		a.wantText(t, "in time")
		b.wantEnd(t, deliveryWait, ErrOutcomeUnknown)
		<-s.client.current.Load().done
	})
}

// A closed input is told as such, and never as a bare broken pipe.
func TestEndOfTheInput(t *testing.T) {
	for name, exits := range map[string]bool{"the process lives": false, "the process exits": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := readyScript(t, nil)
				waiting := s.call(t.Context(), "waiting", nil)
				s.expectCall("waiting")
				s.input.cut()
				synctest.Wait()
				if !s.client.IsAlive() {
					t.Fatal("an idle pipe told of its end")
				}
				f := s.call(t.Context(), "f", nil)
				if exits {
					time.Sleep(exitWait / 2)
					s.die(6, "")
					f.wantEnd(t, exitWait/2, ErrNotSent)
					wantSays(t, f.err, "status 6")
				} else {
					f.wantEnd(t, exitWait, ErrNotSent)
					wantSays(t, f.err, "the server closed its input", io.ErrClosedPipe.Error())
				}
				<-waiting.done
				wantKinds(t, waiting.err, ErrOutcomeUnknown)
			})
		})
	}
}

// faultyPeer is a script whose pipes fail in ways of their own.
type faultyPeer struct {
	*script
	read, write func([]byte) (int, error)
}

func (p faultyPeer) Read(b []byte) (int, error) {
	if p.read != nil {
		return p.read(b)
	}
	return p.script.Read(b)
}

func (p faultyPeer) Write(b []byte) (int, error) {
	if p.write != nil {
		return p.write(b)
	}
	return p.script.Write(b)
}

// A write that fails half-way has sent the lines in front, a part of one line,
// and nothing of those behind.
func TestFailedWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScript(t, nil)
		s.connect(func(s *script) peer {
			return faultyPeer{script: s, write: func(b []byte) (int, error) {
				before, _, ok := bytes.Cut(b, []byte("torn"))
				if !ok {
					return s.memoryPeer.Write(b)
				}
				n, _ := s.memoryPeer.Write(before)
				return n, syscall.EPIPE
			}}
		})
		s.handshake()
		// All three wait behind a line that the pipe does not take, and then
		// share a write that fails within the second of them.
		first := s.call(t.Context(), "large", pipeful)
		whole := s.call(t.Context(), "whole", nil)
		torn := s.call(t.Context(), "torn", nil)
		unsent := s.call(t.Context(), "unsent", nil)
		s.answer(s.expectCall("large"), textResult("ok"))
		first.wantText(t, "ok")
		whole.wantEnd(t, exitWait, ErrOutcomeUnknown)
		torn.wantEnd(t, exitWait, ErrOutcomeUnknown)
		unsent.wantEnd(t, exitWait, ErrNotSent)
		for _, f := range []*inFlight{whole, torn, unsent} {
			wantSays(t, f.err, "the server closed its input")
			if !errors.Is(f.err, syscall.EPIPE) {
				t.Errorf("%s: the cause is gone: %v", f.tool, f.err)
			}
		}
	})
}

// Lines that wait together go out together, as far as a pipe takes them whole.
func TestWaitingLinesShareAWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScript(t, nil)
		var writes []int
		s.connect(func(s *script) peer {
			return faultyPeer{script: s, write: func(b []byte) (int, error) {
				writes = append(writes, len(b))
				return s.memoryPeer.Write(b)
			}}
		})
		s.handshake()
		first := s.call(t.Context(), "large", pipeful)
		var calls []*inFlight
		for n := range 10 {
			calls = append(calls, s.call(t.Context(), strconv.Itoa(n), map[string]string{"filler": strings.Repeat("x", 900)}))
		}
		before := len(writes)
		s.answer(s.expectCall("large"), textResult("ok"))
		first.wantText(t, "ok")
		for _, f := range calls {
			s.answer(s.expectCall(f.tool), textResult("ok"))
			f.wantText(t, "ok")
		}
		for _, size := range writes[before:] {
			if size > writeChunk {
				t.Errorf("a write of %d bytes", size)
			}
		}
		large := (200<<10)/writeChunk + 1
		if got := len(writes) - before; got > large+4 {
			t.Errorf("%d writes, want %d for the large line at most and 3 or 4 for the others", got, large)
		}
	})
}

// A goroutine that panics ends its session, and says so in the log.
func TestPanicEndsTheSession(t *testing.T) {
	boom := func([]byte) (int, error) { panic("boom") }
	tests := []struct {
		name  string
		stand func(s *script, broken *bool) peer
	}{
		{"reading", func(s *script, broken *bool) peer {
			return faultyPeer{script: s, read: func(b []byte) (int, error) {
				n, err := s.memoryPeer.Read(b)
				if *broken {
					return boom(b)
				}
				return n, err
			}}
		}},
		{"writing", func(s *script, broken *bool) peer {
			return faultyPeer{script: s, write: func(b []byte) (int, error) {
				if *broken {
					return boom(b)
				}
				return s.memoryPeer.Write(b)
			}}
		}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var log bytes.Buffer
				s := newScript(t, func(cfg *ClientConfig) { cfg.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
				broken := false
				s.connect(func(s *script) peer { return test.stand(s, &broken) })
				s.handshake()
				synctest.Wait()
				broken = true
				f := s.call(t.Context(), "a", nil)
				_, _ = io.WriteString(s.output, "wake up\n") // nobody may read it any more
				<-f.done
				wantKinds(t, f.err, ErrOutcomeUnknown)
				wantSays(t, f.err, "panicked: boom")
				<-s.client.current.Load().done
				if !isClosed(s.exited) || s.client.IsAlive() {
					t.Error("the session did not end")
				}
				for _, want := range []string{"boom", "goroutine=mcp/", "watch_test.go"} {
					if !strings.Contains(log.String(), want) {
						t.Errorf("the log does not say %q", want)
					}
				}
			})
		})
	}
}

// brokenOwner is an owner that panics when it hears of the end.
type brokenOwner struct{ noOwner }

func (brokenOwner) connectionLost(*session, error) { panic("boom") }

func TestPanicOfTheOwnerKeepsNothingAlive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScript(t, nil)
		s.memoryPeer = newMemoryPeer(s.client.cfg, "plain")
		grp := supervise.New(t.Context(), "test", nil)
		start := func(context.Context, *supervise.Group, ClientConfig) (peer, error) { return s, nil }
		sess, err := s.client.connect(t.Context(), grp, start, brokenOwner{noOwner{s.client}})
		if err != nil {
			t.Fatal(err)
		}
		s.output.end()
		<-sess.lost
		<-sess.done
		if !isClosed(s.exited) {
			t.Error("the process lives on")
		}
		if err := grp.Drain(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// The graceful end lets the server go by itself; the forced one does not wait.
func TestShutdownInMemory(t *testing.T) {
	tests := []struct {
		name  string
		close func(*MCPClient) error
		takes time.Duration // of a server that ignores the end of its input
	}{
		{"graceful", func(c *MCPClient) error { return c.Shutdown(context.Background()) }, 2 * defaultShutdownGrace},
		{"forced", func(c *MCPClient) error { return c.ForceShutdown(context.Background()) }, 0},
		{"with an ended context", func(c *MCPClient) error { return c.Shutdown(expired(context.Background())) }, 0},
		{"within a context", func(c *MCPClient) error {
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			defer cancel()
			return c.Shutdown(ctx)
		}, time.Second},
		{"hurried by another", func(c *MCPClient) error {
			time.AfterFunc(time.Second/2, func() { _ = c.ForceShutdown(context.Background()) })
			return c.Shutdown(context.Background())
		}, time.Second / 2},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := readyScript(t, nil)
				f := s.call(t.Context(), "a", nil)
				begin := time.Now()
				if err := test.close(s.client); err != nil {
					t.Error(err)
				}
				if took := time.Since(begin); took != test.takes {
					t.Errorf("it took %v, want %v", took, test.takes)
				}
				f.wantEnd(t, 0, ErrOutcomeUnknown, ErrClosed)
				if !isClosed(s.exited) || !s.client.current.Load().isDone() {
					t.Error("something runs after the shutdown")
				}
				s.call(t.Context(), "b", nil).wantEnd(t, 0, ErrNotSent, ErrOffline, ErrClosed)
				for range 2 {
					if err := s.client.Shutdown(context.Background()); err != nil {
						t.Error(err)
					}
				}
			})
		})
	}
}

func TestShutdownAtOnceFromManySides(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := readyScript(t, nil)
		var closers sync.WaitGroup
		for n := range 10 {
			closers.Go(func() {
				end := s.client.Shutdown
				if n%2 == 1 {
					time.Sleep(time.Duration(n) * time.Millisecond)
					end = s.client.ForceShutdown
				}
				if err := end(context.Background()); err != nil {
					t.Error(err)
				}
				if !isClosed(s.exited) {
					t.Error("a shutdown returned before the end")
				}
			})
		}
		closers.Wait()
	})
}

func TestShutdownBeforeStart(t *testing.T) {
	c := NewMCPClient(ClientConfig{Name: "srv"})
	if err := c.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	wantKinds(t, c.WaitForReady(t.Context()), ErrNotReady, ErrClosed)
}

// A standalone client can be started again once it is down, for whatever reason,
// and at no other time.
func TestStartAgain(t *testing.T) {
	c := readyFakeClient(t, "die-on-call", nil)
	wantKinds(t, c.Start(t.Context()), ErrStarted)
	if !c.IsAlive() {
		t.Error("the second Start harmed the first")
	}
	for _, end := range []func(){
		func() { // a death
			_, err := c.CallTool(within(t), "echo", nil)
			if exit, ok := errors.AsType[*ExitError](err); !ok || exit.Status != 3 || !strings.Contains(exit.Stderr, "the database is gone") {
				t.Errorf("the call got %v", err)
			}
			<-c.current.Load().done
		},
		func() {
			if err := c.Shutdown(within(t)); err != nil {
				t.Error(err)
			}
		},
		func() {
			if err := c.ForceShutdown(within(t)); err != nil {
				t.Error(err)
			}
		},
	} {
		before := c.current.Load()
		end()
		if err := c.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := c.WaitForReady(within(t)); err != nil {
			t.Fatal(err)
		}
		if c.current.Load() == before || !c.IsAlive() {
			t.Error("no new connection")
		}
	}
}

func TestStartThatFails(t *testing.T) {
	c := NewMCPClient(ClientConfig{Name: "srv", Command: "/does/not/exist"})
	err := c.Start(t.Context())
	wantKinds(t, err)
	if fault, ok := errors.AsType[*StartError](err); !ok || fault.Reason != ReasonCommandNotFound {
		t.Errorf("got %v, want the command not found", err)
	}
	wantKinds(t, c.WaitForReady(t.Context()), ErrNotReady)
	_, err = c.CallTool(t.Context(), "a", nil)
	wantKinds(t, err, ErrOffline, ErrNotSent)
	wantSays(t, err, "/does/not/exist")
	wantKinds(t, c.Start(expired(t.Context())), context.Canceled)
	if err := c.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
}

// The context of Start bounds the start, and nothing lives by it.
func TestStartContextBoundsTheStartAlone(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	c := NewMCPClient(ClientConfig{Name: "fake", Command: os.Args[0], Env: fakeEnv(t, "plain")})
	if err := c.Start(ctx); err != nil {
		t.Fatal(err)
	}
	cancel()
	if err := c.WaitForReady(within(t)); err != nil {
		t.Error(err)
	}
	if err := c.Shutdown(within(t)); err != nil {
		t.Error(err)
	}
}

// A host that drains its own group ends a client that was started in it.
func TestClientEndsWithTheGroupOfItsHost(t *testing.T) {
	host := supervise.New(context.Background(), "host", nil)
	c := NewMCPClient(ClientConfig{Name: "fake", Command: os.Args[0], Env: fakeEnv(t, "plain")})
	if err := c.Start(supervise.With(t.Context(), host)); err != nil {
		t.Fatal(err)
	}
	if err := host.Drain(within(t)); err != nil {
		t.Error(err)
	}
	if c.IsAlive() || !isClosed(c.current.Load().peer.Exited()) {
		t.Error("the client outlived its host")
	}
	wantKinds(t, c.Start(supervise.With(t.Context(), host)))
}

// Start and shutdown leave nothing behind, however often and in whatever state.
func TestNothingIsLeftBehind(t *testing.T) {
	before := takeInventory()
	inParallel(100, func(n int) {
		c := NewMCPClient(ClientConfig{Name: "fake", Command: os.Args[0], Env: fakeEnv(t, "plain")})
		if err := c.Start(t.Context()); err != nil {
			t.Error(err)
			return
		}
		end := c.ForceShutdown
		if n%10 == 0 {
			if err := c.WaitForReady(within(t)); err != nil {
				t.Error(err)
			}
			end = c.Shutdown
		}
		if err := end(within(t)); err != nil {
			t.Error(err)
		}
	})
	inParallel(100, func(int) {
		c := NewMCPClient(ClientConfig{Name: "fake", Command: "/does/not/exist"})
		if err := c.Start(t.Context()); err == nil {
			t.Error("a missing command was started")
		}
		if err := c.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
	})
	after := settle(before)
	if after.goroutines > before.goroutines || after.files > before.files || after.children > before.children {
		t.Errorf("before %+v, after %+v", before, after)
	}
}

// inParallel runs do twice n times, from two sides.
func inParallel(n int, do func(n int)) {
	var sides sync.WaitGroup
	for range 2 {
		sides.Go(func() {
			for i := range n {
				do(i)
			}
		})
	}
	sides.Wait()
}

// lossOwner is told of the end of a connection, and nothing else.
type lossOwner struct {
	noOwner
	atLoss func()
}

func (o lossOwner) connectionLost(*session, error) { o.atLoss() }

// A caller that learns of a death asks its owner next, who must know by then.
func TestOwnerLearnsOfADeathBeforeAnyCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newMemoryHost(t)
		c := NewMCPClient(ClientConfig{Name: "s", Command: "hang"})
		grp := supervise.New(t.Context(), "test", nil)
		returned := make(chan struct{})
		told, first := false, false
		owner := lossOwner{noOwner{c}, func() {
			time.Sleep(time.Millisecond) // whoever is free to run has run then
			told, first = true, !isClosed(returned)
		}}
		c.setFault(nil) // as Start does
		sess, err := c.connect(t.Context(), grp, h.start, owner)
		if err != nil {
			t.Fatal(err)
		}
		<-sess.ready
		go func() {
			defer close(returned)
			_, _ = c.CallTool(t.Context(), "echo", nil)
		}()
		synctest.Wait()
		h.last("s").die(3, "")
		<-returned
		if !told || !first {
			t.Errorf("the owner was told: %v, before the caller: %v", told, first)
		}
		if err := grp.Drain(within(t)); err != nil {
			t.Error(err)
		}
	})
}

// panickyPeer panics the first time that it is asked how its process ended.
type panickyPeer struct {
	*memoryPeer
	once sync.Once
}

func (p *panickyPeer) ExitError() *ExitError {
	p.once.Do(func() { panic("no such exit") })
	return p.memoryPeer.ExitError()
}

// The goroutine that ends a session may panic on its way, too. It leaves no
// caller waiting then, and nothing running.
func TestPanicOfTheWatchEndsTheSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newMemoryHost(t)
		c := NewMCPClient(ClientConfig{Name: "s", Command: "hang"})
		grp := supervise.New(t.Context(), "test", nil)
		c.setFault(nil) // as Start does
		start := func(ctx context.Context, grp *supervise.Group, cfg ClientConfig) (peer, error) {
			p, err := h.start(ctx, grp, cfg)
			if err != nil {
				return nil, err
			}
			return &panickyPeer{memoryPeer: p.(*memoryPeer)}, nil
		}
		sess, err := c.connect(t.Context(), grp, start, noOwner{c})
		if err != nil {
			t.Fatal(err)
		}
		<-sess.ready
		failed := make(chan error, 1)
		go func() {
			_, err := c.CallTool(t.Context(), "echo", nil)
			failed <- err
		}()
		synctest.Wait()
		died := time.Now()
		h.last("s").die(3, "")
		if err := <-failed; !errors.Is(err, ErrOutcomeUnknown) || time.Since(died) > deliveryWait {
			t.Errorf("the call got %v after %v", err, time.Since(died))
		}
		<-sess.done
		if c.IsAlive() {
			t.Error("the client is alive")
		}
		if err := grp.Drain(within(t)); err != nil {
			t.Error(err)
		}
	})
}
