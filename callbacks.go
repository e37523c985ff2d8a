package mcp

import (
	"context"

	"yagent/mcp/supervise"
)

// state returns the server's published state.
func (s *server) state() ServerState { return s.now.Load().health.State }

// update puts a change together under the lock and lets the callbacks out after
// it. Every change of a server's standing goes through here.
func (m *Manager) update(s *server, change func()) {
	func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		change()
	}()
	m.dispatch(s)
}

// changeLocked moves a server to a state, or gives its state another reason,
// with the tools it had.
func (m *Manager) changeLocked(s *server, to ServerState, reason Reason, cause error) {
	m.publishLocked(s, to, reason, cause, s.now.Load().tools)
}

// publishLocked is the one place that applies a transition. What the table does
// not allow does not happen.
func (m *Manager) publishLocked(s *server, to ServerState, reason Reason, cause error, tools []DiscoveredTool) {
	was := s.now.Load().health
	if was.State != to && !was.State.canBecome(to) {
		return
	}
	health := s.describeLocked()
	health.State, health.Reason = to, reason
	if cause != nil && to != StateReady {
		health.Detail = cleanText(cause.Error(), maxDetail)
	}
	if to.CountsTools() {
		health.Tools, health.Curated = len(tools), s.countCurated(tools)
	}
	s.now.Store(&standing{health: health, cause: cause, tools: tools})
	s.client.wake()
	if was.State != to && m.opts.OnStateChange != nil {
		s.events.pushState(StateChange{Server: s.cfg.Name, From: was.State, To: to, Reason: reason})
	}
}

// describeLocked returns what does not depend on the state.
func (s *server) describeLocked() ServerHealth {
	health := ServerHealth{Name: s.cfg.Name, Instructions: s.client.Instructions(), Attempts: s.attempts}
	l := s.life
	if l == nil || l.sess == nil {
		return health
	}
	if !l.lost && !l.over {
		health.PID = l.sess.peer.PID()
	}
	if l.sess.isReady() {
		health.ProtocolVersion, health.Server = l.sess.hello.version, l.sess.hello.server.cleaned()
	}
	health.DroppedTools = l.dropped
	return health
}

func (s *server) countCurated(tools []DiscoveredTool) int {
	n := 0
	for _, tool := range tools {
		if s.curated[tool.Name] {
			n++
		}
	}
	return n
}

// event is one callback to be made: of the two kinds, one is set.
type event struct {
	state *StateChange
	tools *toolsEvent
}

// toolsEvent keeps both lists, so that two events in a row can become one.
type toolsEvent struct {
	server        string
	before, after []DiscoveredTool
}

// eventQueue holds a server's callbacks until they are made. A callback that
// hangs must not make it grow for ever: changes of tools merge, and the oldest
// changes of state are dropped.
type eventQueue struct {
	waiting    []event
	delivering bool // a goroutine makes the callbacks
	dropped    int  // changes of state that nobody will hear of
}

// maxEvents bounds the queue.
const maxEvents = 128

func (q *eventQueue) pushState(change StateChange) { q.push(event{state: &change}) }

func (q *eventQueue) pushTools(server string, before, after []DiscoveredTool) {
	if last := len(q.waiting) - 1; last >= 0 && q.waiting[last].tools != nil {
		q.waiting[last].tools.after = after
		return
	}
	q.push(event{tools: &toolsEvent{server, before, after}})
}

func (q *eventQueue) push(e event) {
	q.waiting = append(q.waiting, e)
	if len(q.waiting) > maxEvents {
		q.dropOldestState()
	}
}

// dropOldestState makes room. Changes of tools that become neighbours merge, so
// there are never more of them than changes of state, and one.
func (q *eventQueue) dropOldestState() {
	kept, dropped := eventQueue{}, false
	for _, e := range q.waiting {
		switch {
		case e.tools != nil:
			kept.pushTools(e.tools.server, e.tools.before, e.tools.after)
		case dropped:
			kept.waiting = append(kept.waiting, e)
		default:
			dropped = true
		}
	}
	q.waiting = kept.waiting
	q.dropped++
}

// claim makes the caller the one that delivers, if there is something to
// deliver and nobody does.
func (q *eventQueue) claim() bool {
	if q.delivering || len(q.waiting) == 0 {
		return false
	}
	q.delivering = true
	return true
}

// pop takes the next event, or ends the delivery.
func (q *eventQueue) pop() (e event, dropped int, ok bool) {
	if len(q.waiting) == 0 {
		q.waiting, q.delivering = nil, false
		return event{}, 0, false
	}
	e, dropped = q.waiting[0], q.dropped
	q.waiting, q.dropped = q.waiting[1:], 0
	return e, dropped, true
}

// dispatch has a server's waiting callbacks made by a goroutine of their own.
// While the Manager's group drains none can be started; closeWithHost then
// delivers.
func (m *Manager) dispatch(s *server) {
	m.mu.Lock()
	defer m.mu.Unlock()
	// Claiming and starting are one step, so that no claim is ever without a
	// goroutine that makes good on it.
	if m.grp != nil && s.events.claim() && !m.startDelivery(s) {
		s.events.delivering = false
	}
}

// startDelivery reports false when the group drains.
func (m *Manager) startDelivery(s *server) bool {
	return m.grp.Go("mcp/callbacks-"+s.cfg.Name, func(context.Context) { m.deliver(s) }) == nil
}

// deliverLast makes the callbacks that no goroutine could be started for. If one
// delivers already, it makes these too.
func (m *Manager) deliverLast(s *server) {
	m.mu.Lock()
	mine := s.events.claim()
	m.mu.Unlock()
	if mine {
		m.deliver(s)
	}
}

// deliver makes a server's callbacks, one after another, until none waits. The
// caller has claimed the queue.
func (m *Manager) deliver(s *server) {
	finished := false
	defer func() {
		// A callback ended this goroutine by runtime.Goexit. The claim goes to
		// another one, or is made good on the way out.
		if !finished && !m.startDelivery(s) {
			m.deliver(s)
		}
	}()
	for m.deliverNext(s) {
	}
	finished = true
}

func (m *Manager) deliverNext(s *server) bool {
	m.mu.Lock()
	e, dropped, ok := s.events.pop()
	m.mu.Unlock()
	if !ok {
		return false
	}
	if dropped > 0 {
		m.log.Warn("changes of state were dropped: the callback is too slow", "server", s.cfg.Name, "dropped", dropped)
	}
	if p := supervise.Try("mcp/callbacks-"+s.cfg.Name, func() { m.make(e) }); p != nil {
		m.reportPanic(p)
	}
	return true
}

// make makes one callback.
func (m *Manager) make(e event) {
	if e.state != nil {
		m.opts.OnStateChange(*e.state)
		return
	}
	change := diffTools(e.tools.server, e.tools.before, e.tools.after)
	if !change.isEmpty() { // the same list again, or two changes that undid each other
		m.opts.OnToolsChanged(change)
	}
}
