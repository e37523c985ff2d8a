package mcp

import (
	"cmp"
	"context"
	"reflect"
	"time"
)

const (
	// refreshPause is the least time between two listings of one server. While
	// a server goes on saying that its list changed, the pause doubles up to
	// maxRefreshPause: a server whose every list provokes the next notice must
	// not keep a core busy.
	refreshPause    = 100 * time.Millisecond
	maxRefreshPause = 5 * time.Second
)

// refreshState says what a connection's refreshes are at. Guarded by Manager.mu.
type refreshState struct {
	running bool          // a goroutine refreshes
	wanted  bool          // one more listing is due
	failed  int           // listings in a row that failed
	last    time.Time     // when the last one ended
	pause   time.Duration // between the last one and the next
}

// ask wants one more listing, and reports whether a goroutine has to be started
// for it. Any number of notices during a listing ask for one more.
func (r *refreshState) ask() (start bool) {
	r.wanted = true
	start = !r.running
	r.running = true
	return start
}

// next returns how long to wait before what is wanted; false ends the goroutine.
func (r *refreshState) next(now time.Time) (wait time.Duration, again bool) {
	if !r.wanted {
		r.running = false
		return 0, false
	}
	quiet := now.Sub(r.last)
	if quiet >= 2*max(r.pause, refreshPause) {
		r.pause = 0
		return 0, true
	}
	r.pause = min(max(2*r.pause, refreshPause), maxRefreshPause)
	return max(r.pause-quiet, 0), true
}

// listChanged hears a server say that its list changed. It comes on the read
// loop, which must read the answer to tools/list: so it only asks.
func (l *life) listChanged(sess *session) {
	m, start := l.manager, false
	m.mu.Lock()
	switch {
	case l.over || l.sess != sess:
	case !l.settled:
		l.listChangedPending = true
	default:
		start = l.refresh.ask()
	}
	m.mu.Unlock()
	if start {
		m.startRefresh(l, sess)
	}
}

// startRefresh runs the refreshes of one connection. The group refuses only
// when the server is being stopped.
func (m *Manager) startRefresh(l *life, sess *session) {
	_ = l.grp.Go("mcp/refresh-"+l.server.cfg.Name, func(ctx context.Context) {
		for m.awaitRefresh(ctx, l, sess) {
			list, err := m.list(ctx, sess)
			if ctx.Err() == nil {
				m.markRefreshed(l, sess, list, err)
			}
		}
	})
}

// awaitRefresh waits until the next listing is due, and reports false when none
// is, or the connection is gone.
func (m *Manager) awaitRefresh(ctx context.Context, l *life, sess *session) bool {
	wait, failed, again := m.nextRefresh(l, sess)
	if !again {
		return false
	}
	if failed > 0 {
		wait = max(wait, m.backoff(failed))
	}
	return sleep(ctx, wait) && m.beginRefresh(l, sess)
}

func (m *Manager) nextRefresh(l *life, sess *session) (wait time.Duration, failed int, again bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !l.isCurrent(sess) {
		return 0, 0, false // what is wanted now is the business of another connection
	}
	wait, again = l.refresh.next(time.Now())
	return wait, l.refresh.failed, again
}

// beginRefresh takes what is wanted, at the last moment: the listing that begins
// now makes good whatever notice came before it.
func (m *Manager) beginRefresh(l *life, sess *session) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	current := l.isCurrent(sess)
	if current {
		l.refresh.wanted = false
	}
	return current
}

// markRefreshed takes in a later listing. One that failed is tried again, a few
// times and with backoff; the process is alive, so it is never a restart.
func (m *Manager) markRefreshed(l *life, sess *session, list toolList, err error) {
	m.update(l.server, func() {
		if !l.isCurrent(sess) {
			return
		}
		m.applyListLocked(l, list, err)
		if err != nil && l.refresh.failed <= m.opts.MaxReconnectAttempts {
			l.refresh.wanted = true
		}
	})
}

// applyListLocked makes a listing the server's tools and state. A failed one
// keeps the tools.
func (m *Manager) applyListLocked(l *life, list toolList, err error) {
	s := l.server
	l.refresh.last = time.Now()
	if err != nil {
		l.refresh.failed++
		m.changeLocked(s, StateDegraded, ReasonListFailed, err)
		return
	}
	l.refresh.failed = 0
	l.dropped = len(list.dropped)
	before := s.now.Load().tools
	state, reason := StateReady, Reason("")
	if len(list.tools) == 0 {
		state, reason = StateDegraded, ReasonNoTools
	}
	m.publishLocked(s, state, reason, nil, list.tools)
	if m.opts.OnToolsChanged != nil {
		s.events.pushTools(s.cfg.Name, before, list.tools)
	}
}

// diffTools names what differs between two lists sorted by name.
func diffTools(server string, before, after []DiscoveredTool) ToolsChange {
	change := ToolsChange{Server: server}
	for len(before) > 0 || len(after) > 0 {
		switch order := firstName(before, after); {
		case order < 0:
			change.Removed = append(change.Removed, before[0].Name)
			before = before[1:]
		case order > 0:
			change.Added = append(change.Added, after[0].Name)
			after = after[1:]
		default:
			if !reflect.DeepEqual(before[0], after[0]) {
				change.Changed = append(change.Changed, after[0].Name)
			}
			before, after = before[1:], after[1:]
		}
	}
	return change
}

// firstName says which of two lists has the smaller name in front; an empty one
// has none.
func firstName(before, after []DiscoveredTool) int {
	switch {
	case len(before) == 0:
		return 1
	case len(after) == 0:
		return -1
	}
	return cmp.Compare(before[0].Name, after[0].Name)
}

// isEmpty reports whether nothing differs.
func (c ToolsChange) isEmpty() bool { return len(c.Added)+len(c.Removed)+len(c.Changed) == 0 }
