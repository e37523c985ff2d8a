package supervise

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// untilDone is the task that behaves: it ends when its group is drained.
func untilDone(ctx context.Context) { <-ctx.Done() }

// untilClosed returns a task that does not care for its context.
func untilClosed(release <-chan struct{}) func(context.Context) {
	return func(context.Context) { <-release }
}

func mustGo(t *testing.T, g *Group, name string, fn func(context.Context)) {
	t.Helper()
	if err := g.Go(name, fn); err != nil {
		t.Fatalf("Go(%q) = %v, want a started task", name, err)
	}
}

func mustDrain(t *testing.T, g *Group) {
	t.Helper()
	if err := g.Drain(t.Context()); err != nil {
		t.Fatalf("Drain = %v, want nil", err)
	}
}

// expired returns a context whose time is up.
func expired(t *testing.T) context.Context {
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errImpatient)
	return ctx
}

var errImpatient = errors.New("the caller lost its patience")

// collector is an onPanic that keeps what it is told.
type collector struct {
	mu     sync.Mutex // guards the field below
	failed []*PanicError
}

func (c *collector) onPanic(e *PanicError) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.failed = append(c.failed, e)
}

// only returns the one report that c got.
func (c *collector) only(t *testing.T) *PanicError {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.failed) != 1 {
		t.Fatalf("got %d reports, want 1: %v", len(c.failed), c.failed)
	}
	return c.failed[0]
}

// leftNames returns the names in a DrainError, which err must be.
func leftNames(t *testing.T, err error) string {
	t.Helper()
	var drain *DrainError
	if !errors.As(err, &drain) {
		t.Fatalf("got error %v, want a *DrainError", err)
	}
	names := make([]string, len(drain.Left))
	for i, task := range drain.Left {
		names[i] = task.Name
	}
	return strings.Join(names, " ")
}

// captureLog sends the default logger of log/slog to a buffer. The tests that
// use it are not parallel.
func captureLog(t *testing.T, handler func(*bytes.Buffer) slog.Handler) *bytes.Buffer {
	buf := new(bytes.Buffer)
	old := slog.Default()
	t.Cleanup(func() { slog.SetDefault(old) })
	slog.SetDefault(slog.New(handler(buf)))
	return buf
}

func textHandler(buf *bytes.Buffer) slog.Handler { return slog.NewTextHandler(buf, nil) }

func TestGroup_RunsTasksWithItsContext(t *testing.T) {
	type key struct{}
	g := New(context.WithValue(t.Context(), key{}, "value"), "host", nil)
	got := make(chan context.Context, 1)
	mustGo(t, g, "task", func(ctx context.Context) { got <- ctx })
	g.Wait()
	ctx := <-got
	if ctx != g.Context() {
		t.Error("the task got another context than that of its group")
	}
	if From(ctx) != g {
		t.Error("From in a task does not give the group it runs in")
	}
	if ctx.Value(key{}) != "value" {
		t.Error("a value of the context given to New is lost")
	}
	mustDrain(t, g)
}

func TestGroup_EndOfContext(t *testing.T) {
	tests := []struct {
		name string
		end  func(t *testing.T, host, sub *Group, cancel context.CancelCauseFunc)
		host error // cause of the end of the context of host, nil if it lives
		sub  error
	}{
		{"nothing ended", func(*testing.T, *Group, *Group, context.CancelCauseFunc) {}, nil, nil},
		{"outer context", func(_ *testing.T, _, _ *Group, cancel context.CancelCauseFunc) { cancel(errImpatient) }, errImpatient, errImpatient},
		{"drain of the root", func(t *testing.T, host, _ *Group, _ context.CancelCauseFunc) { mustDrain(t, host) }, ErrDraining, ErrDraining},
		{"drain of the sub-group", func(t *testing.T, _, sub *Group, _ context.CancelCauseFunc) { mustDrain(t, sub) }, nil, ErrDraining},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			ctx, cancel := context.WithCancelCause(t.Context())
			host := New(ctx, "host", nil)
			sub := host.Sub("sub", nil)
			test.end(t, host, sub, cancel)
			if got := context.Cause(host.Context()); got != test.host {
				t.Errorf("cause of the root = %v, want %v", got, test.host)
			}
			if got := context.Cause(sub.Context()); got != test.sub {
				t.Errorf("cause of the sub-group = %v, want %v", got, test.sub)
			}
			mustDrain(t, host)
		})
	}
}

// The end of the context that a group was made with is a request to its tasks,
// not a drain: work that cleans up may still need a goroutine.
func TestGroup_EndOfOuterContextRefusesNothing(t *testing.T) {
	g := New(expired(t), "host", nil)
	ran := false
	mustGo(t, g, "late", func(context.Context) { ran = true })
	mustDrain(t, g)
	if !ran {
		t.Error("the task did not run")
	}
}

func TestGroup_RefusesOnceDraining(t *testing.T) {
	tests := []struct {
		name string
		// group returns a group after a drain that was its own or an ancestor's.
		group func(t *testing.T) *Group
	}{
		{"drained", func(t *testing.T) *Group {
			g := New(t.Context(), "host", nil)
			mustDrain(t, g)
			return g
		}},
		{"parent drained", func(t *testing.T) *Group {
			g := New(t.Context(), "host", nil)
			sub := g.Sub("sub", nil)
			mustDrain(t, g)
			return sub
		}},
		{"grandparent drained", func(t *testing.T) *Group {
			g := New(t.Context(), "host", nil)
			sub := g.Sub("sub", nil).Sub("subsub", nil)
			mustDrain(t, g)
			return sub
		}},
		{"born draining", func(t *testing.T) *Group {
			g := New(t.Context(), "host", nil)
			mustDrain(t, g)
			return g.Sub("sub", nil)
		}},
		{"born of one born draining", func(t *testing.T) *Group {
			g := New(t.Context(), "host", nil)
			mustDrain(t, g)
			return g.Sub("sub", nil).Sub("subsub", nil)
		}},
		{"born while a drain begins", func(t *testing.T) *Group {
			g := New(t.Context(), "host", nil)
			g.refuse() // the first half of Drain, before it cancels
			t.Cleanup(func() { g.cancel(nil) })
			return g.Sub("sub", nil)
		}},
		{"drain out of time", func(t *testing.T) *Group {
			g := New(t.Context(), "host", nil)
			release := make(chan struct{})
			t.Cleanup(func() { close(release); g.Wait() })
			mustGo(t, g, "stubborn", untilClosed(release))
			if err := g.Drain(expired(t)); err == nil {
				t.Fatal("Drain = nil while a task runs")
			}
			return g
		}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			g := test.group(t)
			err := g.Go("late", func(context.Context) { t.Error("a refused task ran") })
			if err != ErrDraining {
				t.Errorf("Go = %v, want %v", err, ErrDraining)
			}
			if context.Cause(g.Context()) != ErrDraining {
				t.Errorf("the context of the group ended with %v, want %v", context.Cause(g.Context()), ErrDraining)
			}
		})
	}
}

// The drain of a sub-group is its own matter.
func TestGroup_DrainOfSubLeavesTheRestAlone(t *testing.T) {
	host := New(t.Context(), "host", nil)
	sub, sibling := host.Sub("sub", nil), host.Sub("sibling", nil)
	mustGo(t, sub, "in sub", untilDone)
	mustGo(t, sibling, "in sibling", untilDone)
	mustDrain(t, sub)
	for _, g := range []*Group{host, sibling} {
		if err := g.Context().Err(); err != nil {
			t.Errorf("the context of %s ended: %v", g.name, err)
		}
		mustGo(t, g, "more", untilDone)
	}
	mustDrain(t, host)
}

func TestGroup_WaitReturnsAtOnceWhenNothingRuns(t *testing.T) {
	tests := []struct {
		name    string
		prepare func(t *testing.T, g *Group)
	}{
		{"nothing started", func(*testing.T, *Group) {}},
		{"an empty sub-group", func(_ *testing.T, g *Group) { g.Sub("sub", nil) }},
		{"all ended", func(t *testing.T, g *Group) { mustGo(t, g, "short", func(context.Context) {}); g.Wait() }},
		{"drained", mustDrain},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := New(t.Context(), "host", nil)
				test.prepare(t, g)
				g.Wait() // a bubble in which this blocked would report a deadlock
			})
		})
	}
}

// A wait covers the tasks of sub-groups, and as many rounds as one likes.
func TestGroup_WaitsForSubGroups(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		host := New(t.Context(), "host", nil)
		deep := host.Sub("sub", nil).Sub("subsub", nil)
		for round := range 3 {
			start := time.Now()
			mustGo(t, host, "short", func(context.Context) { time.Sleep(time.Second) })
			mustGo(t, deep, "long", func(context.Context) { time.Sleep(time.Minute) })
			host.Wait()
			if took := time.Since(start); took != time.Minute {
				t.Errorf("round %d: Wait returned after %v, want 1m", round, took)
			}
		}
	})
}

// A group that is waited for may still grow, from inside as well.
func TestGroup_WaitCoversTasksThatStartTasks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := New(t.Context(), "host", nil)
		var ended atomic.Int32
		var chain func(left int) func(context.Context)
		chain = func(left int) func(context.Context) {
			return func(ctx context.Context) {
				defer ended.Add(1)
				time.Sleep(time.Second)
				if left > 0 {
					mustGo(t, From(ctx), "link", chain(left-1))
				}
			}
		}
		mustGo(t, g, "link", chain(9))
		g.Wait()
		if got := ended.Load(); got != 10 {
			t.Errorf("Wait returned after %d of 10 tasks", got)
		}
	})
}

func TestGroup_DrainCancelsAndJoins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		host := New(t.Context(), "host", nil)
		sub := host.Sub("sub", nil)
		var ended atomic.Int32
		for _, g := range []*Group{host, sub, sub.Sub("subsub", nil)} {
			mustGo(t, g, "tidy", func(ctx context.Context) {
				<-ctx.Done()
				time.Sleep(time.Second) // it needs its time to clean up
				ended.Add(1)
			})
		}
		mustDrain(t, host)
		if got := ended.Load(); got != 3 {
			t.Errorf("Drain returned after %d of 3 tasks", got)
		}
	})
}

func TestGroup_DrainOutOfTimeNamesWhatIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		host := New(t.Context(), "host", nil)
		sub := host.Sub("sub", nil)
		// Started in an order that is neither that of the tree nor of the names,
		// the last two at the same time.
		mustGo(t, sub.Sub("subsub", nil), "oldest", untilClosed(release))
		time.Sleep(time.Second)
		mustGo(t, host, "older", untilClosed(release))
		mustGo(t, host, "behaves", untilDone)
		time.Sleep(time.Second)
		mustGo(t, sub, "b", untilClosed(release))
		mustGo(t, sub, "a", untilClosed(release))

		ctx, cancel := context.WithTimeoutCause(t.Context(), 3*time.Second, errImpatient)
		defer cancel()
		err := host.Drain(ctx)
		if got, want := leftNames(t, err), "oldest older a b"; got != want {
			t.Errorf("left: %q, want %q", got, want)
		}
		if !errors.Is(err, errImpatient) {
			t.Errorf("the error does not wrap the cause of the end of the context: %v", err)
		}
		if got, want := leftNames(t, sub.Drain(ctx)), "oldest a b"; got != want {
			t.Errorf("left in the sub-group: %q, want %q", got, want)
		}

		close(release)
		mustDrain(t, host)
		mustDrain(t, sub)
	})
}

// With the join done there is nothing to complain about, however late it is.
func TestGroup_DrainOfNothingWithExpiredContext(t *testing.T) {
	for range 100 { // select picks at random
		g := New(t.Context(), "host", nil)
		mustGo(t, g, "short", func(context.Context) {})
		g.Wait()
		if err := g.Drain(expired(t)); err != nil {
			t.Fatalf("Drain = %v, want nil", err)
		}
	}
}

// Each of several drains ends by what comes first: the join or its own context.
func TestGroup_DrainConcurrently(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := New(t.Context(), "host", nil)
		mustGo(t, g, "slow", func(context.Context) { time.Sleep(5500 * time.Millisecond) })
		var drains sync.WaitGroup
		for seconds := range 10 {
			drains.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(seconds)*time.Second)
				defer cancel()
				err := g.Drain(ctx)
				if late := seconds <= 5; late != errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("Drain with %d s = %v", seconds, err)
				}
			})
		}
		drains.Wait()
	})
}

// The parent and the child are drained at the same time, in any order.
func TestGroup_DrainParentAndSubConcurrently(t *testing.T) {
	for range 100 {
		host := New(t.Context(), "host", nil)
		sub := host.Sub("sub", nil)
		mustGo(t, sub, "task", untilDone)
		var drains sync.WaitGroup
		for _, g := range []*Group{host, sub, host, sub} {
			drains.Go(func() {
				if err := g.Drain(t.Context()); err != nil {
					t.Errorf("Drain of %s = %v", g.name, err)
				}
			})
		}
		drains.Wait()
		wantEmpty(t, host)
	}
}

// wantEmpty checks that g keeps nothing.
func wantEmpty(t *testing.T, g *Group) {
	t.Helper()
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.running != 0 || len(g.tasks) != 0 || len(g.subs) != 0 || g.emptied != nil {
		t.Errorf("group %s keeps running=%d, %d tasks, %d sub-groups, a channel to wait: %t",
			g.name, g.running, len(g.tasks), len(g.subs), g.emptied != nil)
	}
}

func TestGroup_ReleasesDrainedSubGroups(t *testing.T) {
	busy := func(t *testing.T, g *Group) { mustGo(t, g, "task", untilDone) }
	tests := []struct {
		name  string
		drain func(t *testing.T, host *Group)
	}{
		{"empty", func(t *testing.T, host *Group) {
			mustDrain(t, host.Sub("sub", nil))
		}},
		{"busy", func(t *testing.T, host *Group) {
			sub := host.Sub("sub", nil)
			busy(t, sub)
			mustDrain(t, sub)
		}},
		{"its own sub-groups undrained", func(t *testing.T, host *Group) {
			sub := host.Sub("sub", nil)
			busy(t, sub.Sub("busy", nil))
			sub.Sub("empty", nil)
			mustDrain(t, sub)
		}},
		{"out of time, ended later", func(t *testing.T, host *Group) {
			sub := host.Sub("sub", nil)
			release := make(chan struct{})
			mustGo(t, sub, "stubborn", untilClosed(release))
			if got := leftNames(t, sub.Drain(expired(t))); got != "stubborn" {
				t.Errorf("left: %q", got)
			}
			close(release)
			host.Wait()
		}},
		{"of a group that was drained first", func(t *testing.T, host *Group) {
			sub := host.Sub("sub", nil)
			mustDrain(t, sub)
			mustDrain(t, sub.Sub("late", nil))
			wantEmpty(t, sub)
		}},
		{"of a parent that is drained", func(t *testing.T, host *Group) {
			middle := host.Sub("middle", nil)
			for range 10 {
				busy(t, middle.Sub("busy", nil))
				middle.Sub("empty", nil)
			}
			mustDrain(t, middle)
			wantEmpty(t, middle)
		}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			host := New(t.Context(), "host", nil)
			for range 100 {
				test.drain(t, host)
			}
			wantEmpty(t, host)
			mustDrain(t, host)
		})
	}
}

// An empty sub-group that nobody drained is no garbage: it may be used yet.
func TestGroup_KeepsUndrainedSubGroups(t *testing.T) {
	host := New(t.Context(), "host", nil)
	sub := host.Sub("sub", nil)
	mustGo(t, sub, "short", func(context.Context) {})
	host.Wait()
	release := make(chan struct{})
	mustGo(t, sub, "stubborn", untilClosed(release))
	if got := leftNames(t, host.Drain(expired(t))); got != "stubborn" {
		t.Errorf("left: %q, want the task of the sub-group", got)
	}
	if err := sub.Go("late", untilDone); err != ErrDraining {
		t.Errorf("Go in the sub-group = %v, want %v", err, ErrDraining)
	}
	close(release)
	mustDrain(t, host)
	wantEmpty(t, host)
	wantEmpty(t, sub)
}

func TestGroup_ReportsTasksThatDoNotReturn(t *testing.T) {
	boom := errors.New("boom")
	tests := []struct {
		name   string
		fn     func(context.Context)
		value  any
		goexit bool
		text   string
	}{
		{"panic with a string", func(context.Context) { panic("boom") }, "boom", false, `supervise: "task" panicked: boom`},
		{"panic with an error", func(context.Context) { panic(boom) }, boom, false, `supervise: "task" panicked: boom`},
		{"panic in a deferred call", func(context.Context) { defer panic(boom) }, boom, false, `supervise: "task" panicked: boom`},
		{"Goexit", func(context.Context) { runtime.Goexit() }, nil, true, `supervise: "task" called runtime.Goexit`},
		{"panic during Goexit", func(context.Context) { defer panic(boom); runtime.Goexit() }, boom, false, `supervise: "task" panicked: boom`},
		{"Goexit during panic", func(context.Context) { defer runtime.Goexit(); panic(boom) }, nil, true, `supervise: "task" called runtime.Goexit`},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			var reports collector
			g := New(t.Context(), "host", reports.onPanic)
			mustGo(t, g, "task", test.fn)
			mustDrain(t, g)
			got := reports.only(t)
			if got.Name != "task" || got.Value != test.value || got.Goexit != test.goexit {
				t.Errorf("report is {%q %v %t}, want {task %v %t}", got.Name, got.Value, got.Goexit, test.value, test.goexit)
			}
			if got.Error() != test.text {
				t.Errorf("text is %q, want %q", got, test.text)
			}
			if err, _ := test.value.(error); !errors.Is(got, err) && err != nil {
				t.Errorf("%v does not wrap %v", got, err)
			}
			if !bytes.Contains(got.Stack, []byte("TestGroup_ReportsTasksThatDoNotReturn")) {
				t.Errorf("the stack does not show the task:\n%s", got.Stack)
			}
		})
	}
}

func TestGroup_ReportsPanicWithNil(t *testing.T) {
	var reports collector
	g := New(t.Context(), "host", reports.onPanic)
	mustGo(t, g, "task", func(context.Context) { panic(nil) })
	mustDrain(t, g)
	var isNil *runtime.PanicNilError
	if got := reports.only(t); got.Goexit || !errors.As(got, &isNil) {
		t.Errorf("report is %v, Goexit %t; want a panic with nil", got, got.Goexit)
	}
}

func TestGroup_ReturnIsNoReport(t *testing.T) {
	g := New(t.Context(), "host", func(e *PanicError) { t.Errorf("reported: %v", e) })
	mustGo(t, g, "task", func(context.Context) {
		defer func() { _ = recover() }() // its own affair
		panic("boom")
	})
	mustDrain(t, g)
}

func TestGroup_SubReportsToTheNearest(t *testing.T) {
	var ofHost, ofSub collector
	host := New(t.Context(), "host", ofHost.onPanic)
	fail := func(context.Context) { panic("boom") }
	mustGo(t, host.Sub("inherits", nil).Sub("too", nil), "to host", fail)
	mustGo(t, host.Sub("own", ofSub.onPanic).Sub("inherits", nil), "to sub", fail)
	mustDrain(t, host)
	if got := ofHost.only(t).Name; got != "to host" {
		t.Errorf("the host was told of %q", got)
	}
	if got := ofSub.only(t).Name; got != "to sub" {
		t.Errorf("the sub-group was told of %q", got)
	}
}

// The report belongs to the task: a join includes it, and until it is done the
// task is among those left.
func TestGroup_JoinIncludesTheReport(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reported := false
		g := New(t.Context(), "host", func(*PanicError) {
			time.Sleep(time.Second)
			reported = true
		})
		mustGo(t, g, "task", func(context.Context) { panic("boom") })
		synctest.Wait()
		if got := leftNames(t, g.Drain(expired(t))); got != "task" {
			t.Errorf("left during the report: %q", got)
		}
		mustDrain(t, g)
		if !reported {
			t.Error("Drain did not wait for the report")
		}
	})
}

// No lock is held during a report: it may use the group, and other groups.
func TestGroup_ReportMayUseTheGroup(t *testing.T) {
	var g *Group
	var restarted atomic.Bool
	ready := make(chan struct{})
	g = New(t.Context(), "host", func(*PanicError) {
		defer close(ready)
		mustDrain(t, g.Sub("sub", nil))
		mustGo(t, g, "again", func(context.Context) { restarted.Store(true) })
		if got := leftNames(t, g.Drain(expired(t))); !strings.Contains(got, "first") {
			t.Errorf("left during the report: %q", got)
		}
	})
	mustGo(t, g, "first", func(context.Context) { panic("boom") })
	<-ready
	mustDrain(t, g)
	if !restarted.Load() {
		t.Error("the task that the report started was lost")
	}
}

// brokenHandler is a slog.Handler that always panics.
type brokenHandler struct{ slog.Handler }

func (brokenHandler) Handle(context.Context, slog.Record) error { panic("the log is broken") }

// Whatever a report does, the process goes on, the join completes, and the
// default logger tells what it can.
func TestGroup_ReportThatFails(t *testing.T) {
	tests := []struct {
		name    string
		onPanic func(*PanicError)
		logged  []string
	}{
		{"none given", nil, []string{"task=task", "panicked: boom", "TestGroup_ReportThatFails"}},
		{"panics", func(*PanicError) { panic("bang") }, []string{"panicked: boom", "onPanic of host", "panicked: bang"}},
		{"panics with the report", func(e *PanicError) { panic(e) }, []string{"panicked: boom", "onPanic of host"}},
		{"calls Goexit", func(*PanicError) { runtime.Goexit() }, []string{"panicked: boom", "onPanic of host", "called runtime.Goexit"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			log := captureLog(t, textHandler)
			g := New(t.Context(), "host", test.onPanic)
			mustGo(t, g, "task", func(context.Context) { panic("boom") })
			mustDrain(t, g)
			for _, want := range test.logged {
				if !strings.Contains(log.String(), want) {
					t.Errorf("the log does not contain %q:\n%s", want, log)
				}
			}
			wantEmpty(t, g)
		})
		t.Run(test.name+", log broken", func(t *testing.T) {
			captureLog(t, func(buf *bytes.Buffer) slog.Handler { return brokenHandler{textHandler(buf)} })
			g := New(t.Context(), "host", test.onPanic)
			mustGo(t, g, "task", func(context.Context) { panic("boom") })
			mustDrain(t, g)
			wantEmpty(t, g)
		})
	}
}

func TestTry(t *testing.T) {
	boom := errors.New("boom")
	if got := Try("fine", func() {}); got != nil {
		t.Errorf("Try of a function that returns = %v", got)
	}
	got := Try("broken", func() { panic(boom) })
	if got == nil || got.Name != "broken" || got.Goexit || !errors.Is(got, boom) {
		t.Fatalf("Try of a function that panics = %v", got)
	}
	if !bytes.Contains(got.Stack, []byte("TestTry")) {
		t.Errorf("the stack does not show the function:\n%s", got.Stack)
	}
	if got := Try("broken", func() { panic("no error") }).Unwrap(); got != nil {
		t.Errorf("a string unwraps to %v", got)
	}
	var none *PanicError
	if got := Try("broken", func() { _ = none.Name }); got == nil {
		t.Error("Try of a function that dereferences nil = nil")
	}
}

// Nothing can stop a Goexit. It ends the task around the Try, and is reported.
func TestTry_Goexit(t *testing.T) {
	var reports collector
	g := New(t.Context(), "host", reports.onPanic)
	mustGo(t, g, "task", func(context.Context) {
		Try("inner", runtime.Goexit)
		t.Error("Try returned")
	})
	mustDrain(t, g)
	if got := reports.only(t); !got.Goexit || got.Name != "task" {
		t.Errorf("report is %v", got)
	}
}

func TestFrom(t *testing.T) {
	host := New(t.Context(), "host", nil)
	sub := host.Sub("sub", nil)
	other := New(t.Context(), "other", nil)
	type key struct{}
	tests := []struct {
		name string
		ctx  context.Context
		want *Group // nil for a new root
	}{
		{"root", host.Context(), host},
		{"sub-group", sub.Context(), sub},
		{"derived", context.WithValue(context.WithoutCancel(sub.Context()), key{}, 1), sub},
		{"other group on top", With(sub.Context(), other), other},
		{"none", t.Context(), nil},
		{"nil group", With(t.Context(), nil), nil},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got := From(test.ctx)
			if test.want != nil {
				if got != test.want {
					t.Errorf("From = %p, want %p", got, test.want)
				}
				return
			}
			if got == nil || got.parent != nil || got == From(test.ctx) {
				t.Errorf("From = %v, want a root of its own for each call", got)
			}
		})
	}
}

// A root that From makes keeps the values of the context, and outlives it.
func TestFrom_DetachedFromTheEndOfTheContext(t *testing.T) {
	type key struct{}
	g := From(context.WithValue(expired(t), key{}, "value"))
	if err := g.Context().Err(); err != nil {
		t.Errorf("the context of the group ended: %v", err)
	}
	if got := g.Context().Value(key{}); got != "value" {
		t.Errorf("value is %v", got)
	}
	mustGo(t, g, "task", untilDone)
	mustDrain(t, g)
}

func TestDrainError_Error(t *testing.T) {
	start := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	err := &DrainError{
		Group: "host",
		Left: []Task{
			{Name: "mcp/wait-docs", Started: start},
			{Name: "a \"b\"\n", Started: start.Add(90 * time.Second)},
		},
		Err:  context.DeadlineExceeded,
		when: start.Add(2*time.Minute + 1500*time.Microsecond),
	}
	want := `supervise: drain of group "host" gave up (context deadline exceeded); still running: ` +
		`"mcp/wait-docs" (since 2026-03-01T12:00:00Z, for 2m0.002s), ` +
		`"a \"b\"\n" (since 2026-03-01T12:01:30Z, for 30.002s)`
	if got := err.Error(); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// The ages are those of the moment when the drain gave up, whenever one reads.
func TestDrainError_AgesStandStill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := New(t.Context(), "host", nil)
		release := make(chan struct{})
		mustGo(t, g, "stubborn", untilClosed(release))
		time.Sleep(90 * time.Second)
		err := g.Drain(expired(t))
		time.Sleep(time.Hour)
		if got := err.Error(); !strings.HasSuffix(got, ", for 1m30s)") {
			t.Errorf("got %q", got)
		}
		close(release)
		mustDrain(t, g)
	})
}

// A task that is started while a drain begins is refused or joined, never lost:
// when Drain returned, no accepted task may still be on its way.
func TestGroup_GoRacingWithDrain(t *testing.T) {
	const callers, rounds = 1000, 10
	for round := range rounds {
		host := New(t.Context(), "host", nil)
		sub := host.Sub("sub", nil)
		groups := []*Group{host, sub, sub.Sub("subsub", nil)}
		var accepted, ended, joined atomic.Int64
		var all sync.WaitGroup
		for i := range callers {
			if i == callers*round/rounds {
				all.Go(func() {
					mustDrainQuietly(t, host)
					joined.Store(ended.Load())
				})
			}
			all.Go(func() {
				switch err := groups[i%len(groups)].Go("task", func(context.Context) { ended.Add(1) }); err {
				case nil:
					accepted.Add(1)
				case ErrDraining:
				default:
					t.Errorf("Go = %v", err)
				}
			})
		}
		all.Wait()
		if a, e, j := accepted.Load(), ended.Load(), joined.Load(); a != e || e != j {
			t.Errorf("%d tasks were accepted, %d ran, %d of them before Drain returned", a, e, j)
		}
		wantEmpty(t, host)
	}
}

// mustDrainQuietly is mustDrain for other goroutines than that of the test.
func mustDrainQuietly(t *testing.T, g *Group) {
	if err := g.Drain(t.Context()); err != nil {
		t.Errorf("Drain = %v, want nil", err)
	}
}

// Many short lives under one parent, all at once: the sums come out even.
func TestGroup_StressSubGroups(t *testing.T) {
	const lives = 1000
	var reports atomic.Int64
	host := New(t.Context(), "host", func(*PanicError) { reports.Add(1) })
	var all sync.WaitGroup
	for i := range lives {
		all.Go(func() {
			sub := host.Sub("sub", nil)
			_ = sub.Go("behaves", untilDone)
			switch i % 4 {
			case 0:
				_ = sub.Go("panics", func(context.Context) { panic(i) })
			case 1:
				_ = sub.Go("exits", func(context.Context) { runtime.Goexit() })
			case 2:
				_ = sub.Drain(expired(t))
			}
			mustDrainQuietly(t, sub)
			wantEmpty(t, sub)
		})
	}
	all.Wait()
	if got := reports.Load(); got != lives/2 {
		t.Errorf("got %d reports, want %d", got, lives/2)
	}
	wantEmpty(t, host)
	mustDrain(t, host)
}
