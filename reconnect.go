package mcp

import (
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
	switch {
	case errors.Is(cause, ErrNoCommonVersion):
		return ReasonNoVersion
	case errors.Is(cause, ErrHandshakeFailed):
		return ReasonHandshakeFailed
	case errors.Is(cause, errOutputClosed):
		return ReasonOutputClosed
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

// connected makes sess the life's current session.
func (l *life) connected(sess *session) {
	l.manager.mu.Lock()
	defer l.manager.mu.Unlock()
	l.connection = connection{sess: sess}
}

// connectionLost turns the server offline and starts its reconnect. The event,
// Health and a failed Call may all report the same death: the first makes the
// transition, a later one that knows more refines the reason.
func (l *life) connectionLost(sess *session, cause error) {
	m := l.manager
	m.log.Info("connection lost", "server", l.server.cfg.Name, "cause", cause)
	m.wentDown(l, reasonOf(cause), cause, func() bool {
		if l.sess != sess {
			return false
		}
		if !l.lost && sess.isProven() {
			l.server.attempts = 0
		}
		l.lost = true
		return true
	})
}

// startFailed turns the server offline because its process did not come up.
func (m *Manager) startFailed(l *life, cause error) {
	m.log.Warn("server not started", "server", l.server.cfg.Name, "cause", cause)
	m.wentDown(l, reasonNotStarted(cause), cause, func() bool { return true })
}

// wentDown is the one way to StateOffline short of a stop. Under the lock it
// asks whether the news still holds; afterwards it starts a reconnect, unless
// one runs or none can help.
func (m *Manager) wentDown(l *life, reason Reason, cause error, holds func() bool) {
	s, start := l.server, false
	m.update(s, func() {
		if l.over || !holds() {
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
	s, attempt := l.server, 0
	m.update(s, func() {
		switch {
		case l.over || !l.reconnecting:
		case s.attempts >= m.opts.MaxReconnectAttempts:
			m.giveUpLocked(l)
		default:
			s.attempts++
			attempt = s.attempts
		}
	})
	if attempt == 0 {
		return false
	}
	pause := m.backoff(attempt)
	m.log.Info("reconnecting", "server", s.cfg.Name, "attempt", attempt, "in", pause)
	return sleep(ctx, pause)
}

// giveUpLocked leaves the server offline until the host asks for a reconnect.
func (m *Manager) giveUpLocked(l *life) {
	s := l.server
	l.reconnecting = false
	cause := fmt.Errorf("gave up after %s: %w", plural(s.attempts, "attempt"), s.now.Load().cause)
	m.changeLocked(s, StateOffline, ReasonGaveUp, cause)
	s.client.setFault(cause)
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
	switch m.awaitDiscovery(ctx, l, sess) {
	case discoveryDone:
		return true
	case discoverySlow:
		m.markSlow(l, sess)
		_ = l.grp.Go("mcp/discover-"+l.server.cfg.Name, func(ctx context.Context) { m.discover(ctx, l, sess) })
		return true
	}
	return false // connectionLost has recorded why
}

// discovery is how a discovery ended.
type discovery int

const (
	discoveryLost discovery = iota // the connection ended, or the server was stopped
	discoveryDone                  // markConnected has settled it
	discoverySlow                  // ReadyTimeout passed before the handshake
)

// awaitDiscovery waits for the handshake, for ReadyTimeout at most, and for the
// first list.
func (m *Manager) awaitDiscovery(ctx context.Context, l *life, sess *session) discovery {
	switch awaitHandshake(ctx, sess, m.opts.ReadyTimeout) {
	case handshakeDone:
		return m.firstList(ctx, l, sess)
	case handshakeSlow:
		return discoverySlow
	}
	return discoveryLost
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
	select {
	case <-sess.lost:
	case <-ctx.Done():
	}
	return discoveryLost
}

// list is one whole tools/list within StartupTimeout.
func (m *Manager) list(ctx context.Context, sess *session) (toolList, error) {
	ctx, cancel := context.WithTimeout(ctx, m.opts.StartupTimeout)
	defer cancel()
	list, err := sess.listTools(ctx)
	for _, dropped := range list.dropped {
		m.log.Warn("dropped a tool that cannot be used", "server", sess.client.cfg.Name, "tool", dropped)
	}
	return list, err
}

// noteListing shows a first start's progress. A reconnecting server stays
// offline meanwhile: the text must not flicker.
func (m *Manager) noteListing(l *life, sess *session) {
	m.update(l.server, func() {
		if l.isCurrent(sess) && l.server.state() == StateStarting {
			m.changeLocked(l.server, StateStarting, ReasonListing, nil)
		}
	})
}

// markSlow says that the handshake takes longer than ReadyTimeout, and leaves
// the process alone.
func (m *Manager) markSlow(l *life, sess *session) {
	m.log.Warn("still no answer to the handshake", "server", l.server.cfg.Name, "after", m.opts.ReadyTimeout)
	m.update(l.server, func() {
		if l.isCurrent(sess) {
			l.reconnecting = false
			m.changeLocked(l.server, StateStarting, ReasonSlowHandshake, fmt.Errorf("no answer to the handshake for %v%s", m.opts.ReadyTimeout, sess.hint()))
		}
	})
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
		return m.unknown(name, "reconnect")
	case s.client == nil:
		return &ServerError{Server: name, Op: "reconnect", Err: ErrDisabled, Advice: s.advice()}
	}
	var old, l *life
	err := ErrClosed
	m.update(s, func() {
		switch {
		case m.closed.Load():
		case s.life == nil:
			err = fmt.Errorf("%w: the Manager was not started", ErrNotReady)
		default:
			old, err = s.life, nil
			l = m.replaceLifeLocked(s)
		}
	})
	if err != nil {
		return &ServerError{Server: name, Op: "reconnect", Err: err}
	}
	m.startReconnect(l, func(ctx context.Context, _ *life) bool { return m.retire(ctx, old) })
	return nil
}

// replaceLifeLocked begins a new life, which reconnects.
func (m *Manager) replaceLifeLocked(s *server) *life {
	now := s.now.Load()
	reason := now.health.Reason
	if now.health.State != StateOffline || reason == ReasonStopped || reason == ReasonGaveUp {
		reason = ReasonExited
	}
	s.life.over = true
	s.life = m.newLife(s)
	s.life.reconnecting = true
	s.attempts = 0
	s.client.setFault(nil)
	m.changeLocked(s, StateOffline, reason, now.cause)
	return s.life
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
