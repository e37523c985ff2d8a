package mcp

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

var modelSeed = flag.Uint64("model.seed", 0, "run the model test with this seed alone")

// The times of the model test. Odd ones, so that no two things fall together.
const (
	modelTick    = 250 * time.Millisecond
	modelBackoff = time.Second + 310*time.Microsecond
	modelReady   = 10*time.Second + 13*time.Millisecond
	modelStartup = 5*time.Second + 1700*time.Microsecond
	modelTries   = 3
)

// model is a second, far simpler account of what becomes of one server. It is
// told what happens, learns from the server's process which lists were asked
// for, and says what a host must see.
type model struct {
	now   time.Time
	state ServerState
	tools []string // kept through an outage
	why   Reason   // where the model knows it; empty otherwise

	closed   bool
	refusing bool // starts fail
	starts   int
	attempts int
	start    time.Time // when the next start is due; zero: none is

	alive, ready, settled bool // the process, its handshake, its first list
	readyBy               time.Time
	readyAt               time.Time
	served                bool // a call, late enough

	wanted    bool      // a list has to be asked for
	wantedAt  time.Time // since when
	listBy    time.Time // when the list that was asked for fails; zero: none is under way
	failed    int       // lists in a row
	announced bool      // a change, before the first list
}

func (w *model) down(why Reason) {
	if w.ready && (w.served || w.now.Sub(w.readyAt) >= provenByAge) {
		w.attempts = 0
	}
	w.leave(why)
	w.nextRound()
}

// leave forgets the process.
func (w *model) leave(why Reason) {
	*w = model{now: w.now, tools: w.tools, closed: w.closed, refusing: w.refusing, starts: w.starts, attempts: w.attempts, why: why, state: StateOffline}
}

func (w *model) nextRound() {
	if w.attempts >= modelTries {
		w.why = ReasonGaveUp
		return
	}
	w.attempts++
	w.start = w.now.Add(modelBackoff)
}

func (w *model) spawn() {
	w.starts++
	w.start = time.Time{}
	if w.refusing {
		w.why = ReasonStartFailed
		w.nextRound()
		return
	}
	w.alive = true
	w.readyBy = w.now.Add(modelReady)
}

func (w *model) want() {
	if !w.wanted {
		w.wanted, w.wantedAt = true, w.now
	}
}

func (w *model) handshaken() {
	w.ready, w.readyAt, w.readyBy = true, w.now, time.Time{}
	if w.state == StateStarting {
		w.why = ReasonListing
	}
	w.want()
}

// listed takes in a list, or with ok false the lack of one.
func (w *model) listed(tools []string, ok bool) {
	first := !w.settled
	w.settled, w.listBy = true, time.Time{}
	if first && w.announced {
		w.want()
	}
	if !ok {
		w.state, w.why = StateDegraded, ReasonListFailed
		w.failed++
		if w.failed <= modelTries {
			w.want()
		}
		return
	}
	w.failed, w.tools, w.state, w.why = 0, tools, StateReady, ""
	if len(tools) == 0 {
		w.state, w.why = StateDegraded, ReasonNoTools
	}
}

// pass lets time go by: whatever falls due happens, in order.
func (w *model) pass(until time.Time) {
	for {
		due := until
		for _, at := range []time.Time{w.start, w.readyBy, w.listBy} {
			if !at.IsZero() && at.Before(due) {
				due = at
			}
		}
		w.now = due
		switch due {
		case w.start:
			w.spawn()
		case w.readyBy:
			w.readyBy = time.Time{}
			w.state, w.why = StateStarting, ReasonSlowHandshake
		case w.listBy:
			w.listed(nil, false)
		default:
			return
		}
	}
}

// call says what a call comes to.
func (w *model) call() error {
	switch {
	case w.closed:
		return ErrClosed
	case w.state == StateOffline:
		return ErrOffline
	case !w.ready:
		return ErrIndexBuilding
	}
	if w.now.Sub(w.readyAt) >= provenByCall {
		w.served = true
	}
	return nil
}

// desk holds the requests that one process leaves to the test.
type desk struct {
	mu    sync.Mutex // guards the fields below
	inits []fakeMessage
	lists []fakeMessage
	asked time.Time // when the newest list was asked for
}

func (d *desk) take(a *actor) {
	a.play("initialize", func(m fakeMessage) {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.inits = append(d.inits, m)
	})
	a.play("tools/list", func(m fakeMessage) {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.lists, d.asked = append(d.lists, m), time.Now()
	})
}

// round is one run of the model test.
type round struct {
	t     *testing.T
	seed  uint64
	rand  *rand.Rand
	stage *stage
	m     *Manager
	model model
	trace []string

	mu    sync.Mutex // guards the fields below
	desk  *desk      // of the newest process
	heard []string   // the tools, by the changes that were announced
	state ServerState
	fail  bool // starts fail
}

func (r *round) errorf(format string, args ...any) {
	r.t.Helper()
	r.t.Errorf("seed %d: %s\nafter %s", r.seed, fmt.Sprintf(format, args...), strings.Join(r.trace, ", "))
}

// TestModel_RandomLives plays random lives of a server, and compares at each
// step what a host sees with what a model says.
func TestModel_RandomLives(t *testing.T) {
	first, lives := rand.Uint64(), 250
	if *modelSeed != 0 {
		first, lives = *modelSeed, 1
	}
	t.Logf("seeds from %d (replay one with -model.seed)", first)
	reached := map[string]bool{}
	for i := range lives {
		staged(t, func(t *testing.T, st *stage) {
			r := &round{t: t, seed: first + uint64(i), rand: rand.New(rand.NewPCG(first+uint64(i), 0)), stage: st}
			r.play(reached)
		})
		if t.Failed() {
			return
		}
	}
	if *modelSeed != 0 {
		return
	}
	for pair := range legal {
		if !reached[pair] {
			t.Errorf("no life went from %s", strings.Replace(pair, " ", " to ", 1))
		}
	}
}

func (r *round) play(reached map[string]bool) {
	r.stage.onStart = func(_ context.Context, a *actor) error {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.fail {
			return errors.New("no")
		}
		r.desk = &desk{}
		r.desk.take(a)
		return nil
	}
	r.m = r.stage.opened(ManagerOptions{
		ReadyTimeout: modelReady, StartupTimeout: modelStartup, ReconnectBackoff: after(modelBackoff), MaxReconnectAttempts: modelTries,
		OnStateChange: func(c StateChange) {
			r.mu.Lock()
			defer r.mu.Unlock()
			if c.From != r.state || !c.From.canBecome(c.To) {
				r.errorf("a change from %v to %v was announced, but it was %v", c.From, c.To, r.state)
			}
			r.state = c.To
			reached[c.From.String()+" "+c.To.String()] = true
		},
		OnToolsChanged: func(c ToolsChange) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.heard = slices.DeleteFunc(r.heard, func(name string) bool { return slices.Contains(c.Removed, name) })
			r.heard = append(r.heard, c.Added...)
			slices.Sort(r.heard)
		},
	}, legacyServer)
	r.model = model{now: time.Now(), state: StateStarting, why: ReasonHandshake}
	if err := r.m.Start(context.Background()); err != nil {
		r.t.Fatal(err)
	}
	r.model.spawn()
	for range 40 {
		r.step()
		r.check()
		if r.t.Failed() {
			return
		}
	}
	r.closing()
}

// step makes one thing happen, in the Manager's world and in the model's.
func (r *round) step() {
	w := &r.model
	switch n := r.rand.IntN(20); {
	case n < 7:
		r.time()
	case n < 13:
		r.answer()
	case n == 13:
		r.note("notice")
		if w.alive {
			r.stage.actor("s").notice()
			switch {
			case w.settled:
				w.want()
			default:
				w.announced = true
			}
		}
	case n < 16:
		r.call()
	case n == 16 && w.alive:
		r.note("exit")
		r.stage.actor("s").die(r.rand.IntN(2), "")
		w.down(ReasonExited)
	case n == 17:
		r.note("reconnect")
		if err := r.m.Reconnect("s"); err != nil {
			r.errorf("reconnect: %v", err)
		}
		w.leave("")
		w.attempts = 0
		w.spawn()
	case n == 18 && r.rand.IntN(2) == 0:
		r.note("shutdown")
		if err := r.m.Client("s").Shutdown(context.Background()); err != nil {
			r.errorf("shutdown: %v", err)
		}
		w.leave(ReasonStopped)
	case n == 19:
		r.mu.Lock()
		r.fail = !r.fail
		w.refusing = r.fail
		r.mu.Unlock()
		r.note(fmt.Sprintf("starts fail: %v", w.refusing))
	}
}

func (r *round) note(what string) { r.trace = append(r.trace, what) }

// time passes, tick by tick, since the model looks at the desk only then.
func (r *round) time() {
	ticks := 1 + r.rand.IntN(8)
	if r.rand.IntN(12) == 0 {
		ticks = 60 + r.rand.IntN(200)
	}
	r.note(fmt.Sprintf("%v pass", time.Duration(ticks)*modelTick))
	for range ticks {
		time.Sleep(modelTick)
		synctest.Wait()
		r.model.pass(time.Now())
		r.observe()
	}
}

// observe tells the model which list was asked for, and complains about one
// that was not wanted, and about one that does not come.
func (r *round) observe() {
	synctest.Wait()
	w := &r.model
	r.mu.Lock()
	d := r.desk
	r.mu.Unlock()
	if d == nil || !w.alive {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	by := d.asked.Add(modelStartup)
	switch {
	case len(d.lists) > 0 && w.listBy.IsZero() && by.After(w.now):
		if !w.wanted {
			r.errorf("a list was asked for that nothing called for")
		}
		w.wanted, w.listBy = false, by
	case w.wanted && w.listBy.IsZero() && w.now.Sub(w.wantedAt) > 2*maxRefreshPause+modelBackoff:
		r.errorf("a list has not been asked for in %v", w.now.Sub(w.wantedAt))
	}
}

// answer lets the process answer what it was asked, well or badly.
func (r *round) answer() {
	w := &r.model
	r.observe()
	if !w.alive {
		return
	}
	a, d := r.stage.actor("s"), r.desk
	d.mu.Lock()
	inits, lists := d.inits, d.lists
	d.inits = nil
	if !w.listBy.IsZero() || r.rand.IntN(4) == 0 {
		d.lists = nil
	} else {
		lists = nil
	}
	d.mu.Unlock()
	switch ok := r.rand.IntN(5) > 0; {
	case len(inits) > 0 && ok:
		r.note("handshake")
		a.server.normal(inits[0])
		w.handshaken()
	case len(inits) > 0:
		r.note("refused handshake")
		a.server.fail(inits[0], -32000, "no")
		w.down(ReasonHandshakeFailed)
	case len(lists) > 0:
		// What was asked for before was given up: late answers, that change nothing.
		late := lists
		if !w.listBy.IsZero() {
			late = lists[:len(lists)-1]
		}
		for _, m := range late {
			r.note("late list")
			a.server.result(m, fakeTools("late"))
		}
		if !w.listBy.IsZero() {
			r.list(a, lists[len(lists)-1], ok)
		}
	}
	r.observe()
}

func (r *round) list(a *actor, m fakeMessage, ok bool) {
	if !ok {
		r.note("failed list")
		a.server.fail(m, -32000, "no")
		r.model.listed(nil, false)
		return
	}
	tools := []string{}
	for _, name := range []string{"a", "b", "c"} {
		if r.rand.IntN(3) > 0 {
			tools = append(tools, name)
		}
	}
	if r.rand.IntN(4) == 0 {
		tools = []string{}
	}
	r.note(fmt.Sprintf("list %v", tools))
	a.server.result(m, fakeTools(tools...))
	r.model.listed(tools, true)
}

func (r *round) call() {
	r.note("call")
	synctest.Wait()
	want := r.model.call()
	if _, err := r.m.Call(context.Background(), "s", "echo", nil); !errors.Is(err, want) {
		r.errorf("a call gives %v, want %v", err, want)
	}
}

// check compares what a host sees with what the model says.
func (r *round) check() {
	r.observe()
	w := &r.model
	h := r.m.Health()[0]
	if h.State != w.state || w.why != "" && h.Reason != w.why {
		r.errorf("it is %v (%s), want %v (%s)", h.State, h.Reason, w.state, w.why)
	}
	want := 0
	if w.state.CountsTools() {
		want = len(w.tools)
	}
	if h.Tools != want {
		r.errorf("health counts %d tools, want %d", h.Tools, want)
	}
	names := []string{}
	for _, tool := range r.m.Tools() {
		names = append(names, tool.Name)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if !slices.Equal(names, w.tools) && len(names)+len(w.tools) > 0 {
		r.errorf("the tools are %v, want %v", names, w.tools)
	}
	if !slices.Equal(r.heard, names) && len(names)+len(r.heard) > 0 {
		r.errorf("the announced changes lead to %v, but the tools are %v", r.heard, names)
	}
	if r.state != w.state {
		r.errorf("the announced changes lead to %v, want %v", r.state, w.state)
	}
	if got := r.stage.starts("s"); got != w.starts {
		r.errorf("%d starts, want %d", got, w.starts)
	}
	if alive := r.m.Client("s").IsAlive(); alive != w.alive {
		r.errorf("IsAlive is %v, want %v", alive, w.alive)
	}
}

// closing ends the life, and looks that it stays ended.
func (r *round) closing() {
	r.note("close")
	if err := r.m.Close(context.Background()); err != nil {
		r.errorf("close: %v", err)
	}
	r.stage.wantAllExited()
	r.model.leave(ReasonStopped)
	r.model.closed = true
	r.check()
	r.call()
	time.Sleep(time.Hour)
	r.check()
}
