package mcp

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"yagent/mcp/supervise"
)

const (
	// exitWait is how long the end of a server's output may precede the end of
	// its process, and still be told as the same event.
	exitWait = 100 * time.Millisecond

	// noticeWait is how long the owner waits for the last words of a dead
	// process before it is told without them.
	noticeWait = 20 * time.Millisecond

	// deliveryWait is how long what a dead process had written may take to
	// arrive, noticeWait included. Only another process that holds the pipe can
	// use it up.
	deliveryWait = 500 * time.Millisecond
)

// watch waits for whatever ends the session first and then ends it, step by
// step. Nothing else ends a session.
func (s *session) watch(ctx context.Context) {
	defer s.abort()
	cause := s.awaitEnd(ctx)
	s.client.renewing.Store(s.startsAfresh(cause))
	cause = s.exitBehind(cause)
	s.closeToCalls()
	cause = s.lastWords(cause, noticeWait)
	s.tellOwner(cause)
	cause = s.lastWords(cause, deliveryWait-noticeWait)
	s.failPending(cause)
	s.bury(cause)
}

// abort does the rest when watch itself has panicked: no caller may be left
// waiting, and no process.
func (s *session) abort() {
	if isClosed(s.done) {
		return
	}
	cause := errors.New("the connection was lost to a fault of its own")
	s.closeToCalls()
	if !isClosed(s.lost) {
		s.reportEnd(cause)
		close(s.lost)
	}
	s.failPending(cause)
	s.bury(cause)
}

// errExited stands for the end of the process until its details are known.
var errExited = errors.New("the process exited")

// awaitEnd blocks for the life of the session and returns why it ends.
func (s *session) awaitEnd(ctx context.Context) error {
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-s.peer.Exited():
			return errExited
		case <-s.outputDone:
			return errOutputClosed
		case err := <-s.faults:
			return err
		case <-s.stall.timer.C:
			if s.stall.tick() {
				return fmt.Errorf("no byte moved in either direction for %v while a line was half written", s.stall.period)
			}
		}
	}
	return ErrClosed // also when the loops never ran, because the group drains
}

// exitBehind finds what is behind the end of a pipe: the exit of the process,
// which the system often reports later, or a fault of ours that ended the loop.
func (s *session) exitBehind(cause error) error {
	if !errors.Is(cause, errOutputClosed) && !errors.Is(cause, errInputClosed) {
		return cause
	}
	s.client.closed.Store(true) // dead already, whatever the details
	if s.wait(s.peer.Exited(), exitWait) {
		return errExited
	}
	select {
	case fault := <-s.faults:
		return fault
	default:
		return cause
	}
}

// closeToCalls flips the bit that IsAlive reads and lets no new request in.
func (s *session) closeToCalls() {
	s.client.closed.Store(true)
	if !isClosed(s.closing) {
		close(s.closing)
	}
	ended := fmt.Errorf("%w: its connection has just ended", ErrOffline)
	s.refuse(ended)
	s.endQueue(ended)
}

// lastWords lets a dead process's output arrive, within limit, and returns the
// cause with the details known by then.
func (s *session) lastWords(cause error, limit time.Duration) error {
	if _, known := errors.AsType[*ExitError](cause); !known && cause != errExited {
		return cause
	}
	deadline := time.Now().Add(limit)
	s.wait(s.outputDone, limit)
	s.wait(s.peer.StderrDone(), time.Until(deadline))
	return s.peer.ExitError()
}

// tellOwner reports the end, before any caller learns of it: a caller that asks
// the owner next must not be sent to the dead connection again. An owner that
// panics keeps no process alive. The end of a server that is to be started once
// more is none for the owner.
func (s *session) tellOwner(cause error) {
	if s.startsAfresh(cause) && s.fated.CompareAndSwap(false, true) {
		s.afresh = cause
		s.client.renewing.Store(true)
		s.log.Info("the server did not take a probe of its era; it is started once more, without one", "cause", cause)
	} else {
		s.reportEnd(s.opening.endOfAttempt(cause))
	}
	close(s.lost)
	s.client.wake()
}

func (s *session) reportEnd(cause error) {
	if !s.isReady() && !errors.Is(cause, ErrClosed) {
		s.client.remember(eraUnknown) // if it was remembered, it was refused
	}
	if failed := supervise.Try("mcp/watch-"+s.client.cfg.Name, func() { s.owner.connectionLost(s, cause) }); failed != nil {
		s.client.reportPanic(failed)
	}
	s.client.renewing.Store(false)
}

// bury ends the process and joins the loops.
func (s *session) bury(cause error) {
	if !deservesGrace(cause) {
		s.kill()
	}
	s.peer.Stop(s.hurry)
	s.wait(s.outputDone, deliveryWait)
	s.peer.CloseOutput()
	<-s.outputDone
	<-s.inputDone
	s.client.running.Store(false)
	close(s.done)
}

// deservesGrace tells an end in peace from one where the server broke a bound
// and would use a grace to go on.
func deservesGrace(cause error) bool {
	for _, peaceful := range []error{ErrClosed, errOutputClosed, errInputClosed, ErrHandshakeFailed} {
		if errors.Is(cause, peaceful) {
			return true
		}
	}
	return false
}

// wait waits for done, for limit at most and not at all once the session is
// hurried; it reports whether done came.
func (s *session) wait(done <-chan struct{}, limit time.Duration) bool {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-done:
		return true
	case <-s.hurry:
	case <-timer.C:
	}
	return isClosed(done)
}

// stallClock notices a write that hangs while no byte moves in either direction
// for a whole period. It costs an idle session nothing, and a busy one a timer
// each eighth of a period.
type stallClock struct {
	period time.Duration
	timer  *time.Timer // received from by watch alone

	writing atomic.Bool   // the writer is in a write
	armed   atomic.Bool   // the timer runs
	moves   atomic.Uint64 // reads and writes that ended

	// Used by watch alone.
	seen  uint64 // moves at the last tick
	quiet int    // ticks in a row without a move
}

// stallTicks is how many quiet ticks make a period. A stall takes one more: the
// caller whose line hangs has the same limit, and is to hear of its own first.
const stallTicks = 8

func (c *stallClock) init(period time.Duration) {
	c.period = period
	c.timer = time.NewTimer(time.Hour)
	c.timer.Stop()
}

func (c *stallClock) moved() { c.moves.Add(1) }

func (c *stallClock) endWrite() { c.writing.Store(false) }

func (c *stallClock) beginWrite() {
	c.writing.Store(true)
	c.arm()
}

func (c *stallClock) arm() {
	if c.armed.CompareAndSwap(false, true) {
		c.timer.Reset(c.period / stallTicks)
	}
}

// tick looks at the clock after an eighth of a period and reports a stall.
func (c *stallClock) tick() bool {
	c.armed.Store(false)
	moves := c.moves.Load()
	if !c.writing.Load() || moves != c.seen {
		c.seen, c.quiet = moves, 0
	} else {
		c.quiet++
	}
	if c.writing.Load() {
		c.arm()
	}
	return c.quiet > stallTicks
}
