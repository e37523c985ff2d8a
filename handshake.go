package mcp

import (
	"context"
	"encoding/json"
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
	hello, err := s.initialize(ctx)
	switch {
	case err == nil:
		s.welcome(hello)
	case ctx.Err() == nil:
		s.fail(&HandshakeError{Server: s.client.cfg.Name, Err: fmt.Errorf("%w%s", err, s.hint())})
	}
}

// welcome makes the session ready. The server must hear so before the first
// request, and the queue keeps the order.
func (s *session) welcome(hello handshakeResult) {
	s.hello, s.opened = hello, time.Now()
	s.client.instructions.Store(hello.instructions)
	s.sendJSON(&outgoing{line: appendNotification(nil, "notifications/initialized", nil)})
	close(s.ready)
	s.client.wake()
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
	info, err := json.Marshal(s.client.cfg.ClientInfo)
	if err != nil {
		return handshakeResult{}, err
	}
	raw, err := s.doRequest(ctx, request{
		method: "initialize",
		params: func(dst []byte) ([]byte, error) {
			dst = appendString(append(dst, `{"protocolVersion":`...), version)
			dst = append(dst, `,"capabilities":{},"clientInfo":`...)
			return append(append(dst, info...), '}'), nil
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
	newest := -1
	data := newObjectCursor(refusal.Data)
	for name, value, ok := data.next(); ok; name, value, ok = data.next() {
		if string(name) == "supported" {
			newest = newestVersion(value)
		}
	}
	if newest < 0 {
		return ""
	}
	return legacyVersions[newest]
}

// newestVersion finds the newest version of ours but the latest in a JSON array.
func newestVersion(raw []byte) int {
	newest := -1
	supported := newArrayCursor(raw)
	for value, ok := supported.next(); ok; value, ok = supported.next() {
		version := slices.Index(legacyVersions, decodeString(value))
		if version < len(legacyVersions)-1 {
			newest = max(newest, version)
		}
	}
	return newest
}
