package mcp

import (
	"context"
	"strconv"

	"yagent/mcp/supervise"
)

const codeMethodNotFound = -32601

func appendRequestWith(dst []byte, id int64, method string, params func([]byte) ([]byte, error)) ([]byte, error) {
	dst = append(dst, `{"jsonrpc":"2.0","id":`...)
	dst = strconv.AppendInt(dst, id, 10)
	dst = append(dst, `,"method":`...)
	dst = appendString(dst, method)
	if params != nil {
		dst = append(dst, `,"params":`...)
		var err error
		if dst, err = params(dst); err != nil {
			return dst, err
		}
	}
	return append(dst, "}\n"...), nil
}

func appendCancelled(dst []byte, id int64) []byte {
	return appendNotification(dst, "notifications/cancelled", append(strconv.AppendInt([]byte(`{"requestId":`), id, 10), '}'))
}

func (o *overlongLine) isFromServer() bool {
	var head message
	readHead(o.head, &head)
	return head.method != nil
}

func (s *spawner) startPeer(ctx context.Context, grp *supervise.Group, cfg ClientConfig) (peer, error) {
	p, err := s.start(ctx, grp, processSpec{
		name: cfg.Name, command: cfg.Command, args: cfg.Args, env: cfg.Env, dir: cfg.Dir, grace: cfg.ShutdownGrace,
	})
	if err != nil {
		return nil, err
	}
	return p, nil
}
