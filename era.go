package mcp

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"yagent/mcp/supervise"
)

// Protocol says in which era of the protocol a server is spoken to. The legacy
// era opens a connection with the initialize handshake; in the modern one there
// is none, and each request says for itself who asks, and in which version.
type Protocol uint8

const (
	// ProtocolAuto finds out: a server is asked with server/discover, which the
	// modern era answers, and gets initialize if it does not. What was found is
	// remembered for reconnects.
	ProtocolAuto Protocol = iota

	// ProtocolLegacy sends initialize, and nothing before it.
	ProtocolLegacy

	// ProtocolModern sends server/discover, and never initialize.
	ProtocolModern
)

// era is what a Protocol has led to.
type era uint8

const (
	eraUnknown era = iota
	eraLegacy
	eraModern
)

// defaultProbeTimeout is ample: a server that is up answers within milliseconds.
// It ends nothing when it passes, since initialize only joins the probe then.
const defaultProbeTimeout = 5 * time.Second

// opening is how a session opens its connection.
type opening struct {
	era        era  // eraUnknown: to be found out
	remembered bool // the era is that of the last connection, and may be out of date

	// before is why the process before this one has ended, where one attempt
	// has taken two.
	before error
}

// endOfAttempt is the cause of an attempt's failure, with that of its first process.
func (o opening) endOfAttempt(cause error) error {
	if o.before == nil || cause == nil {
		return cause
	}
	return &attemptError{last: cause, first: o.before}
}

// nextOpening is how the next attempt to connect begins.
func (c *MCPClient) nextOpening() opening {
	switch c.cfg.Protocol {
	case ProtocolLegacy:
		return opening{era: eraLegacy}
	case ProtocolModern:
		return opening{era: eraModern}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return opening{era: c.verdict, remembered: c.verdict != eraUnknown}
}

// eraOf is the era of a version that is known.
func eraOf(version string) era {
	if slices.Contains(modernVersions, version) {
		return eraModern
	}
	return eraLegacy
}

// isModern reports whether the connection is known to be modern.
func (s *session) isModern() bool {
	if s.isReady() {
		return s.era == eraModern
	}
	return s.opening.era == eraModern
}

// remember keeps a connection's era for the next one; eraUnknown forgets it.
func (c *MCPClient) remember(verdict era) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.verdict = verdict
}

// open opens the connection, in the era that is pinned, remembered or found.
func (s *session) open(ctx context.Context) (handshakeResult, error) {
	switch s.opening.era {
	case eraLegacy:
		return s.initialize(ctx)
	case eraModern:
		return s.discover(ctx)
	}
	return s.chooseEra(ctx)
}

// discover opens a connection that has to be modern. Like any handshake it may
// take as long as it likes.
func (s *session) discover(ctx context.Context) (handshakeResult, error) {
	found := s.probe(ctx, 1)
	if found.step() == stepProbeAgain {
		found = s.probe(ctx, 2)
	}
	switch found.step() {
	case stepModern:
		return found.hello, nil
	case stepFresh, stepGiveUp:
		return handshakeResult{}, found.noCommonVersion(modernVersions)
	}
	return handshakeResult{}, found.err
}

// choice is the search for a server's era while it goes on.
type choice struct {
	s       *session
	silence *time.Timer

	probe  <-chan finding  // the unanswered probe; nil if there is none
	probes int64           // sent so far
	legacy <-chan greeting // the unanswered initialize; nil if there is none
	asked  bool            // initialize was sent

	over   bool
	result greeting
}

// chooseEra finds out which era the server speaks. It asks in the modern way
// and, where that leads nowhere, in the legacy way, in the same process; then it
// listens for both answers. Silence alone ends neither the wait nor the server.
func (s *session) chooseEra(ctx context.Context) (handshakeResult, error) {
	ctx, done := context.WithCancel(ctx)
	defer done() // an answer may still be due that nobody waits for any more
	c := choice{s: s, silence: time.NewTimer(s.client.cfg.ProbeTimeout)}
	defer c.silence.Stop()
	c.sendProbe(ctx)
	for !c.over {
		select {
		case found := <-c.probe:
			c.hearProbe(ctx, found)
		case answer := <-c.legacy:
			c.hearInitialize(ctx, answer)
		case <-c.silence.C:
			c.sendInitialize(ctx)
		case <-ctx.Done():
			return handshakeResult{}, endOf(ctx)
		}
	}
	return c.result.hello, c.result.err
}

func (c *choice) settle(hello handshakeResult, err error) {
	c.over, c.result = true, greeting{hello, err}
}

func (c *choice) sendProbe(ctx context.Context) {
	c.probes++
	n := c.probes
	c.probe = beside(c.s, "mcp/probe-", func() finding { return c.s.probe(ctx, n) })
	c.silence.Reset(c.s.client.cfg.ProbeTimeout)
}

// sendInitialize falls back on the legacy era, once.
func (c *choice) sendInitialize(ctx context.Context) {
	if c.asked {
		return
	}
	c.asked = true
	c.legacy = beside(c.s, "mcp/initialize-", func() greeting {
		hello, err := c.s.initialize(ctx)
		return greeting{hello, err}
	})
}

// hearProbe acts on the answer to a probe. One that comes after initialize was
// sent still counts, if it shows that the server is modern.
func (c *choice) hearProbe(ctx context.Context, found finding) {
	c.probe = nil
	step := found.step()
	switch {
	case step == stepModern || step == stepLost:
		c.settle(found.hello, found.err)
	case step == stepGiveUp:
		c.settle(handshakeResult{}, found.noCommonVersion(slices.Concat(legacyVersions, modernVersions)))
	case step == stepProbeAgain && c.probes == 1:
		c.sendProbe(ctx)
	case step == stepFresh && !c.asked:
		c.settle(handshakeResult{}, found.onlyLegacy())
	default:
		c.sendInitialize(ctx)
	}
}

// hearInitialize acts on the answer to initialize. A server that woke up and
// answered both in their order is a modern one.
func (c *choice) hearInitialize(ctx context.Context, answer greeting) {
	c.legacy = nil
	if c.probe != nil && !c.s.isPending(probeID(c.probes)) {
		select {
		case found := <-c.probe:
			c.hearProbe(ctx, found)
		case <-ctx.Done():
		}
	}
	switch {
	case c.over:
	case c.probe != nil && namesModern(answer.err):
		// It was not made for initialize, so its answer to the probe will come.
	default:
		c.settle(answer.hello, answer.err)
	}
}

// greeting is how a handshake ended.
type greeting struct {
	hello handshakeResult
	err   error
}

// beside runs a part of the handshake beside the others. Where the group
// refuses, it drains, and so the context of the part is done.
func beside[T any](s *session, name string, part func() T) <-chan T {
	result := make(chan T, 1)
	_ = s.grp.Go(name+s.client.cfg.Name, func(context.Context) { result <- part() })
	return result
}

// probe sends the n-th server/discover of a connection and waits for its answer.
// Like initialize it is never cancelled on the wire.
func (s *session) probe(ctx context.Context, n int64) finding {
	raw, err := s.doRequest(ctx, request{
		method: "server/discover", id: probeID(n), meta: appendMeta(nil, latestModern, s.client.cfg.ClientInfo), forever: true,
	})
	return readFinding(raw, err)
}

// finding is what a probe has brought to light.
type finding struct {
	hello    handshakeResult // of a result that can be used
	versions []string        // those that the server says to speak, in a result or a refusal
	err      error           // it was no result that can be used
}

func readFinding(raw []byte, err error) finding {
	if err == nil {
		hello, versions, fault := decodeDiscoverResult(raw)
		if fault != nil {
			return finding{err: fmt.Errorf("%w: %w", ErrMalformed, fault)}
		}
		hello.version, _ = newestOf(modernVersions, versions)
		return finding{hello: hello, versions: versions}
	}
	refusal, ok := errors.AsType[*RPCError](err)
	if ok && refusal.Code == codeUnsupportedVersion {
		return finding{versions: decodeSupported(refusal.Data), err: err}
	}
	return finding{err: err}
}

// probeStep is what to do about the answer to a probe.
type probeStep uint8

const (
	stepInitialize probeStep = iota // it says nothing: try the legacy era in the same process
	stepModern                      // a modern version is common to both
	stepProbeAgain                  // there is one, but the server wants to be asked once more
	stepFresh                       // legacy versions alone are common: the process has seen what it does not know
	stepGiveUp                      // no version is
	stepLost                        // there was no answer, and will be none
)

// step decides by what the server says to speak, if it says so, and never by
// the code of an error alone: there are too many for a method that is not known.
func (f finding) step() probeStep {
	_, modern := newestOf(modernVersions, f.versions)
	_, legacy := newestOf(legacyVersions, f.versions)
	switch {
	case errors.Is(f.err, ErrOutcomeUnknown) || errors.Is(f.err, ErrNotSent):
		return stepLost
	case len(f.versions) == 0:
		return stepInitialize
	case modern && f.err == nil:
		return stepModern
	case modern:
		return stepProbeAgain
	case legacy:
		return stepFresh
	}
	return stepGiveUp
}

// newestOf finds the newest of the known versions, which are in order, among
// those that are supported.
func newestOf(known, supported []string) (version string, ok bool) {
	for _, version := range slices.Backward(known) {
		if slices.Contains(supported, version) {
			return version, true
		}
	}
	return "", false
}

// namesModern reports whether a refusal of initialize shows a modern server.
func namesModern(err error) bool {
	refusal, ok := errors.AsType[*RPCError](err)
	if !ok {
		return false
	}
	_, ok = newestOf(modernVersions, decodeSupported(refusal.Data))
	return ok
}

func (f finding) onlyLegacy() error {
	return fmt.Errorf("it answers server/discover, but speaks legacy versions alone: %s", f.speaks())
}

func (f finding) noCommonVersion(ours []string) error {
	return fmt.Errorf("%w: the server speaks %s, this client %s", ErrNoCommonVersion, f.speaks(), strings.Join(ours, ", "))
}

// speaks quotes the server's versions.
func (f finding) speaks() string {
	return fmt.Sprintf("%q", cleanText(strings.Join(f.versions, ", "), 200))
}

// exchange is one request of an open connection, with what its era puts into
// each of them.
func (s *session) exchange(ctx context.Context, r request) ([]byte, error) {
	r.meta = s.meta
	return s.doRequest(ctx, r)
}

// checkFinal refuses a result that is not the last word. The legacy era knows
// no other.
func (s *session) checkFinal(kind resultKind, raw []byte) error {
	switch {
	case s.era != eraModern || kind == resultComplete:
		return nil
	case kind == resultInputRequired:
		return fmt.Errorf("%w (%s)", ErrInputRequired, cleanText(strings.Join(decodeInputMethods(raw), ", "), 200))
	}
	return fmt.Errorf("%w: its resultType is not known", ErrMalformed)
}

// startsAfresh reports whether this end of a session is part of finding out the
// era: the server may have taken the probe badly, so it is started once more
// without one. That is no crash.
func (s *session) startsAfresh(cause error) bool {
	if s.opening.era != eraUnknown || s.isReady() || errors.Is(cause, ErrNoCommonVersion) {
		return false
	}
	if _, exited := errors.AsType[*ExitError](cause); exited {
		return true
	}
	return slices.ContainsFunc([]error{errExited, errOutputClosed, errInputClosed, ErrHandshakeFailed}, func(kind error) bool {
		return errors.Is(cause, kind)
	})
}

// isRenewable reports whether the session has ended for that.
func (s *session) isRenewable() bool { return isClosed(s.lost) && s.afresh != nil }

// renew starts the server once more, without a probe, in the place of a session
// that has ended for that. An error tells of both.
func (c *MCPClient) renew(ctx context.Context, grp *supervise.Group, start startFunc, old *session) (*session, error) {
	defer c.renewing.Store(false)
	by := opening{era: eraLegacy, before: old.afresh}
	s, err := c.connectBy(ctx, grp, start, old.owner, by)
	return s, by.endOfAttempt(err)
}

// awaitRenewal starts a client's server once more if finding out its era takes
// that. A Manager sees to its own.
func (c *MCPClient) awaitRenewal(ctx context.Context, grp *supervise.Group, start startFunc, s *session) {
	select {
	case <-s.lost: // also when the group drains
	case <-s.ready:
	}
	if !s.isRenewable() {
		return
	}
	_, err := c.renew(ctx, grp, start, s)
	switch {
	case err != nil && ctx.Err() != nil:
		c.setFault(ErrClosed)
	case err != nil:
		c.setFault(err)
	}
}
