package mcp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"yagent/mcp/supervise"
)

// reconnectBackoffBase is the first pause of the default backoff. It is a
// variable for tests alone; nothing else writes it.
var reconnectBackoffBase = 500 * time.Millisecond

// maxBackoff bounds the default pause before jitter.
const maxBackoff = 60 * time.Second

// defaultBackoff doubles with each attempt, from 1, and spreads by ±20 %, so
// that servers which died together do not come back together.
func defaultBackoff(attempt int) time.Duration {
	pause := maxBackoff
	if doublings := attempt - 1; doublings < 20 {
		pause = min(reconnectBackoffBase<<max(doublings, 0), maxBackoff)
	}
	return time.Duration(float64(pause) * (0.8 + 0.4*rand.Float64()))
}

// backoff asks the host's function, which may panic like any callback.
func (m *Manager) backoff(attempt int) time.Duration {
	pause := defaultBackoff(attempt)
	if p := supervise.Try("mcp/backoff", func() { pause = m.opts.ReconnectBackoff(attempt) }); p != nil {
		m.reportPanic(p)
	}
	return pause
}

// reasonOf names the end of a connection in the words of the status text.
func reasonOf(cause error) Reason {
	if attempt, ok := errors.AsType[*attemptError](cause); ok {
		cause = attempt.last
	}
	switch {
	case errors.Is(cause, ErrNoCommonVersion):
		return ReasonNoVersion
	case errors.Is(cause, ErrHandshakeFailed):
		return ReasonHandshakeFailed
	case errors.Is(cause, errOutputClosed):
		return ReasonOutputClosed
	case errors.Is(cause, ErrClosed):
		return ReasonStopped // the host drains the group we live in
	}
	return ReasonExited
}

// reasonNotStarted names a failed start in the words of the status text.
func reasonNotStarted(cause error) Reason {
	if start, ok := errors.AsType[*StartError](cause); ok {
		return start.Reason
	}
	return ReasonStartFailed
}

// connected makes sess the life's current session, and its process known.
func (l *life) connected(sess *session) {
	m, s := l.manager, l.server
	m.update(s, func() {
		l.connection = connection{sess: sess}
		if now := s.now.Load(); !l.over {
			m.changeLocked(s, now.health.State, now.health.Reason, now.cause)
		}
	})
}

// connectionLost turns the server offline and starts its reconnect. The event,
// Health and a failed Call may all report the same death: the first makes the
// transition, a later one that knows more refines the reason.
func (l *life) connectionLost(sess *session, cause error) {
	l.manager.wentDown(l, reasonOf(cause), cause, func() bool {
		switch {
		case l.sess != sess:
			return false
		case l.lost:
			return l.reconnecting && cause != errExited // otherwise it is settled, or known better
		case sess.isProven():
			l.server.attempts = 0
		}
		l.lost = true
		return true
	})
}

// startFailed turns the server offline because its process did not come up.
func (m *Manager) startFailed(l *life, cause error) {
	m.wentDown(l, reasonNotStarted(cause), cause, func() bool { return true })
}

// wentDown is the one way to StateOffline short of a stop. Under the lock it
// asks whether the news still holds; afterwards it starts a reconnect, unless
// one runs or none can help.
func (m *Manager) wentDown(l *life, reason Reason, cause error, holds func() bool) {
	s, changed, start := l.server, false, false
	m.update(s, func() {
		if changed = !l.over && holds(); !changed {
			return
		}
		m.changeLocked(s, StateOffline, reason, cause)
		if reason.Permanent() {
			l.reconnecting = false
			s.client.setFault(cause)
			return
		}
		start = !l.reconnecting
		l.reconnecting = true
	})
	if changed {
		m.log.Warn("server offline", "server", s.cfg.Name, "reason", reason, "cause", cause)
	}
	if start {
		m.startReconnect(l, m.nextRound)
	}
}

// startReconnect runs the reconnect loop; first decides about its first round.
// The group refuses only when the server is being stopped.
func (m *Manager) startReconnect(l *life, first func(context.Context, *life) bool) {
	_ = l.grp.Go("mcp/reconnect-"+l.server.cfg.Name, func(ctx context.Context) {
		for again := first(ctx, l); again; again = m.nextRound(ctx, l) {
			if m.tryConnect(ctx, l) {
				return
			}
		}
	})
}

// nextRound counts an attempt and sleeps its backoff. It reports false when
// there is nothing more to try.
func (m *Manager) nextRound(ctx context.Context, l *life) bool {
	s, attempt, gaveUp := l.server, 0, false
	m.awaitReport(ctx, l)
	m.update(s, func() {
		switch {
		case l.over || !l.reconnecting:
		case s.attempts >= m.opts.MaxReconnectAttempts:
			gaveUp = true
			m.giveUpLocked(l)
		default:
			s.attempts++
			attempt = s.attempts
		}
	})
	if gaveUp {
		m.log.Warn("gave up", "server", s.cfg.Name, "attempts", m.opts.MaxReconnectAttempts)
	}
	if attempt == 0 {
		return false
	}
	pause := m.backoff(attempt)
	m.log.Info("reconnecting", "server", s.cfg.Name, "attempt", attempt, "in", pause)
	return sleep(ctx, pause)
}

// awaitReport waits until the end of the last session is told with its details:
// Health or a Call may have seen it first, and known less. That takes
// milliseconds.
func (m *Manager) awaitReport(ctx context.Context, l *life) {
	m.mu.Lock()
	sess := l.sess
	m.mu.Unlock()
	if sess != nil {
		awaitLost(ctx, sess)
	}
}

// giveUpLocked leaves the server offline until the host asks for a reconnect.
func (m *Manager) giveUpLocked(l *life) {
	s := l.server
	l.reconnecting = false
	cause := s.now.Load().cause
	m.changeLocked(s, StateOffline, ReasonGaveUp, cause)
	s.client.setFault(fmt.Errorf("gave up after %s: %w", plural(s.attempts, "attempt"), cause))
}

// sleep reports whether it slept to the end.
func sleep(ctx context.Context, pause time.Duration) bool {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}

// tryConnect is one round: a new process, its handshake, its list, all waited
// for, since the loop must know how it went. It reports whether the loop is
// done. The server stays offline until then.
func (m *Manager) tryConnect(ctx context.Context, l *life) (done bool) {
	sess, err := l.server.client.connect(ctx, l.grp, m.start, l)
	if err != nil {
		m.startFailed(l, err)
		return false
	}
	sess, how := m.awaitDiscovery(ctx, l, sess)
	switch how {
	case discoveryDone:
		return true
	case discoverySlow:
		_ = l.grp.Go("mcp/discover-"+l.server.cfg.Name, func(ctx context.Context) { m.discoverLate(ctx, l, sess) })
		return true
	}
	return false // connectionLost has recorded why
}

// discovery is how a discovery ended.
type discovery int

const (
	discoveryLost discovery = iota // the connection ended, or the server was stopped
	discoveryDone                  // markConnected has settled it
	discoverySlow                  // ReadyTimeout passed before the handshake, as markSlow has said
)

// awaitDiscovery waits for the handshake, for ReadyTimeout at most, and for the
// first list. It returns the session that this was about in the end: finding out
// a server's era may take a second process.
func (m *Manager) awaitDiscovery(ctx context.Context, l *life, sess *session) (*session, discovery) {
	for ; sess != nil; sess = m.renew(ctx, l, sess) {
		switch awaitHandshake(ctx, sess, m.opts.ReadyTimeout) {
		case handshakeDone:
			return sess, m.firstList(ctx, l, sess)
		case handshakeSlow:
			if m.markSlow(l, sess) {
				return sess, discoverySlow
			}
			awaitLost(ctx, sess)
		}
	}
	return nil, discoveryLost
}

// awaitLost waits until the owner was told that the connection has ended.
func awaitLost(ctx context.Context, sess *session) {
	select {
	case <-sess.lost:
	case <-ctx.Done():
	}
}

type handshakeOutcome int

const (
	handshakeLost handshakeOutcome = iota
	handshakeDone
	handshakeSlow
)

// awaitHandshake waits for limit at most; 0 is no limit.
func awaitHandshake(ctx context.Context, sess *session, limit time.Duration) handshakeOutcome {
	var slow <-chan time.Time
	if limit > 0 {
		timer := time.NewTimer(limit)
		defer timer.Stop()
		slow = timer.C
	}
	select {
	case <-sess.ready:
		return handshakeDone
	case <-slow:
		return handshakeSlow
	case <-sess.lost:
	case <-ctx.Done():
	}
	return handshakeLost
}

// firstList lists a new connection's tools and settles it.
func (m *Manager) firstList(ctx context.Context, l *life, sess *session) discovery {
	m.noteListing(l, sess)
	list, err := m.list(ctx, sess)
	if ctx.Err() == nil && m.markConnected(l, sess, list, err) {
		return discoveryDone
	}
	// A list that failed with its connection is no news beside that.
	awaitLost(ctx, sess)
	return discoveryLost
}

// list is one whole tools/list within StartupTimeout.
func (m *Manager) list(ctx context.Context, sess *session) (toolList, error) {
	ctx, cancel := context.WithTimeout(ctx, m.opts.StartupTimeout)
	defer cancel()
	list, err := sess.listTools(ctx)
	if n := len(list.dropped); n > 0 {
		m.log.Warn("dropped tools that cannot be used", "server", sess.client.cfg.Name, "dropped", n, "first", list.dropped[:min(n, 10)])
	}
	return list, err
}

// noteListing shows a first start's progress. A reconnecting server stays offline meanwhile: the text must not
// flicker.
func (m *Manager) noteListing(l *life, sess *session) {
	m.update(l.server, func() {
		if !l.isCurrent(sess) {
			return
		}
		if l.server.state() == StateStarting {
			m.changeLocked(l.server, StateStarting, ReasonListing, nil)
		}
	})
}

// markSlow says that the handshake takes longer than ReadyTimeout, and leaves
// the process alone. It reports whether the connection was still the current
// one: it may have ended in the same moment.
func (m *Manager) markSlow(l *life, sess *session) (current bool) {
	m.log.Warn("still no answer to the handshake", "server", l.server.cfg.Name, "after", m.opts.ReadyTimeout)
	m.update(l.server, func() {
		if current = l.isCurrent(sess); current {
			l.reconnecting = false
			m.changeLocked(l.server, StateStarting, ReasonSlowHandshake, fmt.Errorf("no answer to the handshake for %v%s", m.opts.ReadyTimeout, sess.hint()))
		}
	})
	return current
}

// markConnected settles a connection with its first list, or the lack of one,
// and reports whether it was still the current one. A list_changed that came
// before is made good here, once.
func (m *Manager) markConnected(l *life, sess *session, list toolList, err error) (current bool) {
	refresh := false
	m.update(l.server, func() {
		if current = l.isCurrent(sess); !current {
			return
		}
		l.reconnecting, l.settled = false, true
		m.applyListLocked(l, list, err)
		if l.listChangedPending || err != nil {
			l.listChangedPending = false
			refresh = l.refresh.ask()
		}
	})
	if current {
		health := l.server.now.Load().health
		m.log.Info("connected", "server", health.Name, "state", health.State.String(), "tools", health.Tools)
	}
	if refresh {
		m.startRefresh(l, sess)
	}
	return current
}

// isCurrent reports whether sess is the one that this server lives by. The
// caller holds Manager.mu.
func (l *life) isCurrent(sess *session) bool {
	return !l.over && l.sess == sess && !l.lost && !isClosed(sess.closing)
}

// Reconnect starts a server over at once, with its attempts counted anew: out of
// a pause, after it was given up or stopped, or while it runs, in which case its
// process is ended first. It returns without waiting; see WaitForReady. The
// errors are [ErrUnknownServer], [ErrDisabled], [ErrClosed], and [ErrNotReady]
// before Start.
func (m *Manager) Reconnect(name string) error {
	s := m.byName[name]
	switch {
	case s == nil:
		return m.unknown(name, "reconnect", ErrUnknownServer)
	case s.client == nil:
		return &ServerError{Server: name, Op: "reconnect", Err: ErrDisabled, Advice: s.advice()}
	}
	err := ErrClosed
	m.update(s, func() {
		switch {
		case m.closed.Load():
		case s.life == nil:
			err = fmt.Errorf("%w: the Manager was not started", ErrNotReady)
		default:
			err = nil
			old := s.life
			l := m.replaceLifeLocked(s)
			// It starts under the lock: whoever ends this life next must find
			// its goroutine there, and joins the lives before through it.
			m.startReconnect(l, func(ctx context.Context, _ *life) bool { return m.retire(ctx, old) })
		}
	})
	if err != nil {
		return &ServerError{Server: name, Op: "reconnect", Err: err}
	}
	return nil
}

// errReconnect is why a server that was well is offline for a moment.
var errReconnect = errors.New("the host asked for a reconnect")

// replaceLifeLocked begins a new life, which reconnects.
func (m *Manager) replaceLifeLocked(s *server) *life {
	now := s.now.Load()
	s.life.over = true
	s.life = m.newLife(s)
	s.life.reconnecting = true
	s.attempts = 0
	s.client.setFault(nil)
	m.changeLocked(s, StateOffline, reasonAnew(now.health), cmp.Or(now.cause, errReconnect))
	return s.life
}

// reasonAnew is why a server is offline that is started over: what it was
// before, in the words that say it is being reconnected.
func reasonAnew(before ServerHealth) Reason {
	switch {
	case before.State != StateOffline:
		return ReasonExited
	case !before.Reason.Permanent():
		return before.Reason
	case before.Reason == ReasonNoVersion:
		return ReasonHandshakeFailed
	case before.Reason == ReasonGaveUp || before.Reason == ReasonStopped:
		return ReasonExited
	}
	return ReasonStartFailed
}

// retire joins what is left of the life before, whose sessions end in peace
// however short this life turns out to be, and reports whether to go on.
func (m *Manager) retire(ctx context.Context, old *life) bool {
	// The error can only be the context's, and this one has no end.
	_ = old.grp.Drain(context.WithoutCancel(ctx))
	return ctx.Err() == nil
}

// stop ends a server, joins what served it, and keeps it down until Reconnect.
func (s *server) stop(ctx context.Context, force bool) error {
	m, grp := s.manager, (*supervise.Group)(nil)
	m.update(s, func() {
		s.client.setFault(ErrClosed)
		s.stopped = s.life == nil
		if s.life != nil {
			grp = s.life.grp
			s.life.over = true
			m.changeLocked(s, StateOffline, ReasonStopped, ErrClosed)
		}
	})
	if grp == nil {
		return nil
	}
	if force {
		ctx = expired(ctx)
	}
	return drainDomain(ctx, grp, s.client.kill)
}
