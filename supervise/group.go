package supervise

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

// ErrDraining is the error of [Group.Go] once a drain of the group, or of one
// of its ancestors, began. It is also the cause of the end of their contexts.
var ErrDraining = errors.New("supervise: the group is draining, nothing new may start")

// A Group is a collection of named tasks that end together. Groups are made by
// [New] and [Group.Sub]; the zero value is of no use.
type Group struct {
	// Set once, when the group is made.
	name    string
	parent  *Group // nil for a root
	onPanic func(*PanicError)
	ctx     context.Context // carries the group
	cancel  context.CancelCauseFunc

	// One mutex serves a whole tree, since a task that starts or ends is counted
	// in all its ancestors. It guards the fields below, in every group of it.
	mu       *sync.Mutex
	draining bool                // no task may start; true for all sub-groups too
	running  int                 // tasks of this group and of its sub-groups
	tasks    map[*Task]struct{}  // tasks of this group alone
	subs     map[*Group]struct{} // sub-groups in which something runs, or may yet
	emptied  chan struct{}       // closed when running falls to 0; nil while nobody waits
}

// New returns an empty group, the root of a tree. Its context ends with ctx, or
// when the group is drained; the end of ctx alone refuses no task.
//
// Each abnormal end of a task is reported to onPanic, in the goroutine of the
// task and while the task still counts as running. Reports of several tasks may
// run at the same time. If onPanic == nil, reports go to the default logger of
// log/slog; they go there too if onPanic itself panics.
func New(ctx context.Context, name string, onPanic func(*PanicError)) *Group {
	if onPanic == nil {
		onPanic = logPanic
	}
	return newGroup(ctx, name, onPanic, nil, new(sync.Mutex))
}

func newGroup(ctx context.Context, name string, onPanic func(*PanicError), parent *Group, mu *sync.Mutex) *Group {
	g := &Group{
		name:    name,
		parent:  parent,
		onPanic: onPanic,
		mu:      mu,
		tasks:   make(map[*Task]struct{}),
		subs:    make(map[*Group]struct{}),
	}
	ctx, g.cancel = context.WithCancelCause(ctx)
	g.ctx = With(ctx, g)
	return g
}

// Sub returns an empty sub-group of g. Its context ends with that of g. If
// onPanic == nil, it reports where g does. A sub-group of a group that is
// draining is draining from birth.
//
// A sub-group that is no longer needed should be drained, even when it is
// empty: until then g keeps it.
func (g *Group) Sub(name string, onPanic func(*PanicError)) *Group {
	if onPanic == nil {
		onPanic = g.onPanic
	}
	sub := newGroup(g.ctx, name, onPanic, g, g.mu)
	if !g.adopt(sub) {
		sub.cancel(ErrDraining)
	}
	return sub
}

// adopt makes sub a sub-group of g, and reports whether tasks may start in it.
func (g *Group) adopt(sub *Group) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.draining {
		sub.draining = true // nothing will ever run in it, so g need not know it
		return false
	}
	g.subs[sub] = struct{}{}
	return true
}

// Context returns the context of the tasks of g, which carries g: [From] finds
// it there. It is never nil.
func (g *Group) Context() context.Context { return g.ctx }

// Go runs fn in a new goroutine, under a name for reports and drains, which
// need not be unique. The argument of fn is the context of g. Once a drain
// began, Go starts nothing and returns [ErrDraining].
func (g *Group) Go(name string, fn func(ctx context.Context)) error {
	task := &Task{Name: name, Started: time.Now()}
	if !g.admit(task) {
		return ErrDraining
	}
	go g.run(task, fn)
	return nil
}

// admit counts task in g and its ancestors, and reports whether it may start.
// Being counted before its goroutine exists is what no drain can miss.
func (g *Group) admit(task *Task) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.draining {
		return false
	}
	g.tasks[task] = struct{}{}
	for group := g; group != nil; group = group.parent {
		group.running++
	}
	return true
}

// run is the goroutine of a task. The deferred call holds against a panic and
// against runtime.Goexit, in fn as well as in the report.
func (g *Group) run(task *Task, fn func(context.Context)) {
	defer g.finish(task)
	guard(task.Name, func() { fn(g.ctx) }, g.report)
}

// finish takes task out of the count of g and its ancestors.
func (g *Group) finish(task *Task) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.tasks, task)
	for group := g; group != nil; group = group.parent {
		group.running--
		if group.running == 0 {
			group.restLocked()
		}
	}
}

// restLocked is called when nothing runs in g, or below it. It wakes those who
// wait, and takes a group whose life is over out of its parent.
func (g *Group) restLocked() {
	if g.emptied != nil {
		close(g.emptied)
		g.emptied = nil
	}
	if g.draining && g.parent != nil {
		delete(g.parent.subs, g)
	}
}

// Wait returns when nothing runs in g or in its sub-groups, at once if that is
// so already. It neither refuses tasks nor cancels them, and a task may start
// right after it returned; use [Group.Drain] to end a group.
func (g *Group) Wait() { <-g.idle() }

// idle returns a channel that is closed as soon as nothing runs in g. It is
// made for the first who waits, not with the group: a channel that is made in a
// testing/synctest bubble belongs to it, and so does the wait.
func (g *Group) idle() <-chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.running == 0 {
		closed := make(chan struct{})
		close(closed)
		return closed
	}
	if g.emptied == nil {
		g.emptied = make(chan struct{})
	}
	return g.emptied
}

// Drain ends g and its sub-groups: from now on they refuse tasks, their
// contexts end with [ErrDraining] as the cause, and Drain returns nil when
// nothing runs in them any more.
//
// If ctx ends first, Drain returns a *[DrainError] that names what is left. The
// drain is not undone by that. Drain may be called again to finish the join,
// and from several goroutines.
func (g *Group) Drain(ctx context.Context) error {
	g.refuse()
	g.cancel(ErrDraining) // ends the contexts of the sub-groups too
	select {
	case <-g.idle():
		return nil
	case <-ctx.Done():
	}
	// Both may have happened; then the join counts.
	if left := g.left(); len(left) > 0 {
		return &DrainError{Group: g.name, Left: left, Err: context.Cause(ctx), when: time.Now()}
	}
	return nil
}

// refuse makes g and its sub-groups refuse tasks.
func (g *Group) refuse() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.refuseLocked()
}

func (g *Group) refuseLocked() {
	g.draining = true
	for sub := range g.subs {
		sub.refuseLocked()
	}
	if g.running == 0 {
		g.restLocked()
	}
}

// left returns the tasks that run in g and its sub-groups, oldest first.
func (g *Group) left() []Task {
	g.mu.Lock()
	left := g.appendTasksLocked(nil)
	g.mu.Unlock()
	slices.SortFunc(left, func(a, b Task) int {
		return cmp.Or(a.Started.Compare(b.Started), cmp.Compare(a.Name, b.Name))
	})
	return left
}

func (g *Group) appendTasksLocked(dst []Task) []Task {
	for task := range g.tasks {
		dst = append(dst, *task)
	}
	for sub := range g.subs {
		dst = sub.appendTasksLocked(dst)
	}
	return dst
}

// A Task describes a running task.
type Task struct {
	Name    string
	Started time.Time
}

// A DrainError reports that the context of a [Group.Drain] ended while tasks
// were still running.
type DrainError struct {
	Group string // the name of the group that was to be drained
	Left  []Task // what still ran in it and in its sub-groups, oldest first
	Err   error  // the cause of the end of the context

	when time.Time // when the drain gave up; the ages in the text are as of then
}

// Error names the group and each task that is left, with its start and its age.
func (e *DrainError) Error() string {
	left := make([]string, len(e.Left))
	for i, task := range e.Left {
		age := e.when.Sub(task.Started).Round(time.Millisecond)
		left[i] = fmt.Sprintf("%q (since %s, for %v)", task.Name, task.Started.Format(time.RFC3339), age)
	}
	return fmt.Sprintf("supervise: drain of group %q gave up (%v); still running: %s",
		e.Group, e.Err, strings.Join(left, ", "))
}

// Unwrap returns e.Err.
func (e *DrainError) Unwrap() error { return e.Err }

type groupKey struct{}

// With returns a context derived from ctx that carries g.
func With(ctx context.Context, g *Group) context.Context {
	return context.WithValue(ctx, groupKey{}, g)
}

// From returns the group that ctx carries. If there is none, it returns a new
// root with the values of ctx but not its end, which the caller has to drain;
// two calls then return two groups. It never returns nil.
func From(ctx context.Context) *Group {
	if g, _ := ctx.Value(groupKey{}).(*Group); g != nil {
		return g
	}
	return New(context.WithoutCancel(ctx), "detached", nil)
}
