package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
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
	s.hello = hello
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

// supportedVersion finds the newest version of ours in the data of a refusal.
func supportedVersion(err error) string {
	refusal, ok := errors.AsType[*RPCError](err)
	if !ok {
		return ""
	}
	var data struct {
		Supported []string `json:"supported"`
	}
	if json.Unmarshal(refusal.Data, &data) != nil {
		return ""
	}
	for _, version := range slices.Backward(legacyVersions) {
		if slices.Contains(data.Supported, version) {
			return version
		}
	}
	return ""
}
