package mcp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"
)

// In the modern era a server tells of changes only those who asked to be told,
// with a request that stays open for as long as they want to hear.

// Why a subscription is no more, where the server gives no error.
var (
	errNotAcknowledged   = errors.New("the server did not acknowledge it")
	errSubscriptionEnded = errors.New("the server ended the subscription")
)

// startListening asks to be told when the list of tools changes, if the server
// says that it can. Each connection asks anew.
func (s *session) startListening() {
	if s.era == eraModern && s.hello.listChanged {
		_ = s.grp.Go("mcp/listen-"+s.client.cfg.Name, s.listen) // refused only when the group drains
	}
}

// listen holds the subscription open. That it fails or ends harms nobody: the
// list is then as old as the connection.
func (s *session) listen(life context.Context) {
	ctx, hangUp := context.WithCancelCause(life)
	defer hangUp(nil)
	_ = s.grp.Go("mcp/listen-ack-"+s.client.cfg.Name, func(context.Context) { s.awaitAcknowledged(ctx, hangUp) })
	_, err := s.exchange(ctx, request{
		method: "subscriptions/listen",
		params: func(dst []byte) ([]byte, error) {
			return append(dst, `{"notifications":{"toolsListChanged":true}}`...), nil
		},
	})
	if life.Err() == nil && !isClosed(s.closing) {
		s.log.Warn("the server will not tell when its tools change", "cause", cmp.Or(err, errSubscriptionEnded))
	}
}

// awaitAcknowledged hangs up on a server that does not open the subscription in
// time. Once opened it has no limit.
func (s *session) awaitAcknowledged(ctx context.Context, hangUp context.CancelCauseFunc) {
	limit := s.client.cfg.RequestTimeout
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-s.acked:
	case <-ctx.Done():
	case <-timer.C:
		hangUp(fmt.Errorf("%w within %v", errNotAcknowledged, limit))
	}
}

// noteAcknowledged hears that a subscription was opened, if it is ours.
func (s *session) noteAcknowledged(params []byte) {
	if id, ok := decodeSubscription(params); !ok || !s.isPending(id) {
		return
	}
	select {
	case s.acked <- struct{}{}:
	default:
	}
}
