package mcp

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"yagent/mcp/supervise"
)

// stage is a start seam for tests that say step by step what a server does. It
// also sees to it, in every test, that no server ever has two processes.
type stage struct {
	t testing.TB

	// onStart is called for each start, before there is a process. It may wait,
	// refuse with an error, or tell the actor its part. Set before Manager.Start.
	onStart func(ctx context.Context, a *actor) error

	mu    sync.Mutex // guards the fields below
	tries map[string]int
	cast  map[string][]*actor
}

// actor is one process of a server. It does what the plain fake server does,
// but for the methods that it was given another part in.
type actor struct {
	*memoryPeer
	name string
	n    int       // which start of its server this is, from 1
	born time.Time // when it was started

	script   sync.Mutex // guards the fields below
	tools    []string
	plays    map[string]func(fakeMessage)
	stubborn bool // goes on after the end of its input, until it is killed
}

// staged runs a test in a bubble. Whatever still runs at its end fails it.
func staged(t *testing.T, test func(t *testing.T, st *stage)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		test(t, &stage{t: t, tries: map[string]int{}, cast: map[string][]*actor{}})
	})
}

func (st *stage) start(ctx context.Context, grp *supervise.Group, cfg ClientConfig) (peer, error) {
	a := &actor{memoryPeer: newMemoryPeer(cfg, useMode(st.t, "plain")), name: cfg.Name, born: time.Now(), tools: []string{"echo", "write"}, plays: map[string]func(fakeMessage){}}
	a.server.how = fakeMode{take: a.take}
	st.mu.Lock()
	st.tries[cfg.Name]++
	a.n = st.tries[cfg.Name]
	st.mu.Unlock()
	if st.onStart != nil {
		if err := st.onStart(ctx, a); err != nil {
			return nil, err
		}
	}
	for _, before := range st.actors(cfg.Name) {
		if !isClosed(before.Exited()) {
			st.t.Errorf("start %d of %s: the process of start %d has not ended", a.n, cfg.Name, before.n)
		}
	}
	if err := grp.Go("actor-"+cfg.Name, func(context.Context) { a.run() }); err != nil {
		return nil, err
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	st.cast[cfg.Name] = append(st.cast[cfg.Name], a)
	return a, nil
}

// actors returns a server's processes, oldest first.
func (st *stage) actors(name string) []*actor {
	st.mu.Lock()
	defer st.mu.Unlock()
	return slices.Clone(st.cast[name])
}

// actor is a server's newest process.
func (st *stage) actor(name string) *actor {
	st.t.Helper()
	all := st.actors(name)
	if len(all) == 0 {
		st.t.Fatalf("%s was never started", name)
	}
	return all[len(all)-1]
}

// starts is how often a server was started, or tried to be.
func (st *stage) starts(name string) int {
	st.mu.Lock()
	defer st.mu.Unlock()
	return st.tries[name]
}

// opened returns a Manager on this stage that is closed at the end of the test,
// and started one that is started too.
func (st *stage) opened(opts ManagerOptions, servers ...ServerConfig) *Manager {
	m := NewManager(servers, opts)
	m.start = st.start
	st.t.Cleanup(func() {
		if err := m.ForceClose(context.Background()); err != nil {
			st.t.Errorf("close: %v", err)
		}
		st.wantAllExited()
	})
	return m
}

func (st *stage) started(opts ManagerOptions, servers ...ServerConfig) *Manager {
	st.t.Helper()
	m := st.opened(opts, servers...)
	if err := m.Start(context.Background()); err != nil {
		st.t.Fatal(err)
	}
	return m
}

func (st *stage) wantAllExited() {
	st.t.Helper()
	st.mu.Lock()
	names := slices.Collect(maps.Keys(st.cast))
	st.mu.Unlock()
	for _, name := range names {
		st.wantExited(name)
	}
}

func (st *stage) wantExited(name string) {
	st.t.Helper()
	for _, a := range st.actors(name) {
		if !isClosed(a.Exited()) {
			st.t.Errorf("process %d of %s has not ended", a.n, name)
		}
	}
}

func (st *stage) wantStarts(name string, want int) {
	st.t.Helper()
	synctest.Wait()
	if got := st.starts(name); got != want {
		st.t.Errorf("%s was started %d times, want %d", name, got, want)
	}
}

// run is the process.
func (a *actor) run() {
	done := make(chan struct{})
	go func() {
		defer close(done)
		a.server.serve()
		if a.isStubborn() {
			<-a.killed
		}
		a.die(0, "")
	}()
	<-done
}

func (a *actor) take(f *fakeServer, m fakeMessage) bool {
	a.script.Lock()
	play, tools := a.plays[m.Method], a.tools
	a.script.Unlock()
	switch {
	case play != nil:
		play(m)
	case m.Method == "tools/list":
		f.result(m, fakeTools(tools...))
	default:
		return false
	}
	return true
}

// play gives the actor its part in a method; nil is the plain one again.
func (a *actor) play(method string, part func(fakeMessage)) {
	a.script.Lock()
	defer a.script.Unlock()
	a.plays[method] = part
}

// hold leaves the requests of a method to the test.
func (a *actor) hold(method string) <-chan fakeMessage {
	held := make(chan fakeMessage, 100)
	a.play(method, func(m fakeMessage) { held <- m })
	return held
}

// refuse answers the requests of a method with an error.
func (a *actor) refuse(method string) {
	a.play(method, func(m fakeMessage) { a.server.fail(m, -32000, "not today") })
}

// lists sets the answer to tools/list.
func (a *actor) lists(tools ...string) {
	a.script.Lock()
	defer a.script.Unlock()
	a.tools = tools
}

// notice says that the list changed.
func (a *actor) notice() { a.server.send(fakeListChanged) }

// asked counts the requests of a method.
func (a *actor) asked(method string) int { return len(a.server.received(method)) }

// beStubborn makes the actor ignore everything but being killed.
func (a *actor) beStubborn() {
	a.script.Lock()
	defer a.script.Unlock()
	a.stubborn = true
}

func (a *actor) isStubborn() bool {
	a.script.Lock()
	defer a.script.Unlock()
	return a.stubborn
}

// wantChanges compares the changes of state seen so far, written as
// "offline starting ready".
func wantChanges(t *testing.T, seen *recorder, server, want string) {
	t.Helper()
	synctest.Wait()
	path := []string{}
	for _, change := range seen.stateChanges() {
		name, step, _ := strings.Cut(change, ": ")
		if name != server {
			continue
		}
		from, to, _ := strings.Cut(step, " → ")
		if len(path) == 0 {
			path = append(path, from)
		}
		if path[len(path)-1] != from {
			t.Errorf("%s went from %s, but it was %s", server, from, path[len(path)-1])
		}
		path = append(path, to)
	}
	if got := strings.Join(path, " "); got != want {
		t.Errorf("%s went %s, want %s", server, got, want)
	}
}
