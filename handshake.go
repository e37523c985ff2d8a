package mcp

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// handshakeResult is what a server said of itself.
type handshakeResult = initializeResult

// handshake opens the session to requests, or ends it. Nothing but an answer,
// the end of the connection or a shutdown ends the wait: a server may build an
// index first. It is the one place that knows how a connection is opened.
func (s *session) handshake(ctx context.Context) {
	hello, err := s.open(ctx)
	switch {
	case err == nil:
		s.welcome(hello)
	case ctx.Err() == nil:
		s.fail(s.handshakeFault(err))
	}
}

// handshakeFault ends a session whose handshake came to nothing. That a
// remembered era does not fit any more is no lasting fault: it will be found out
// anew.
func (s *session) handshakeFault(err error) error {
	if s.opening.remembered && errors.Is(err, ErrNoCommonVersion) {
		err = errors.New(err.Error())
	}
	return &HandshakeError{Server: s.client.cfg.Name, Err: fmt.Errorf("%w%s", err, s.hint())}
}

// welcome makes the session ready. A legacy server must hear so before the first
// request, and the queue keeps the order.
func (s *session) welcome(hello handshakeResult) {
	if !s.fated.CompareAndSwap(false, true) {
		return // it died with its answer, and is being started once more
	}
	s.hello, s.era, s.opened = hello, eraOf(hello.version), time.Now()
	s.client.instructions.Store(hello.instructions)
	if s.era == eraModern {
		s.meta = appendMeta(nil, hello.version, s.client.cfg.ClientInfo)
	} else {
		s.sendJSON(&outgoing{line: appendNotification(nil, "notifications/initialized", nil)})
	}
	close(s.ready)
	s.client.remember(s.era)
	s.client.wake()
	s.startListening()
}

// initialize agrees on a protocol version. A server that refuses the newest and
// names what it speaks is asked once more.
func (s *session) initialize(ctx context.Context) (handshakeResult, error) {
	hello, err := s.offer(ctx, latestVersion)
	if version := supportedVersion(err); version != "" {
		hello, err = s.offer(ctx, version)
	}
	if err != nil {
		return handshakeResult{}, err
	}
	if !slices.Contains(legacyVersions, hello.version) {
		return handshakeResult{}, fmt.Errorf("%w: the server speaks %q, this client %s", ErrNoCommonVersion,
			cleanText(hello.version, 64), strings.Join(legacyVersions, ", "))
	}
	return hello, nil
}

// offer sends initialize with one version.
func (s *session) offer(ctx context.Context, version string) (handshakeResult, error) {
	raw, err := s.doRequest(ctx, request{
		method: "initialize",
		params: func(dst []byte) ([]byte, error) {
			dst = appendString(append(dst, `{"protocolVersion":`...), version)
			dst = append(dst, `,"capabilities":{},"clientInfo":`...)
			return append(appendImplementation(dst, s.client.cfg.ClientInfo), '}'), nil
		},
		forever: true,
	})
	if err != nil {
		return handshakeResult{}, err
	}
	hello, err := decodeInitializeResult(raw)
	if err != nil {
		return handshakeResult{}, fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	return hello, nil
}

// supportedVersion finds the newest version of ours in the data of a refusal,
// except for the one that was refused.
func supportedVersion(err error) string {
	refusal, ok := errors.AsType[*RPCError](err)
	if !ok {
		return ""
	}
	version, _ := newestOf(legacyVersions[:len(legacyVersions)-1], decodeSupported(refusal.Data))
	return version
}
