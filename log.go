package mcp

import (
	"context"
	"log/slog"
)

// guardedLogger returns a logger that can be used from any goroutine of ours:
// nil discards, and a host's handler that panics loses its record and nothing
// else.
func guardedLogger(logger *slog.Logger) *slog.Logger {
	if logger == nil {
		return slog.New(slog.DiscardHandler)
	}
	return slog.New(guardedHandler{logger.Handler()})
}

type guardedHandler struct{ slog.Handler }

func (h guardedHandler) Handle(ctx context.Context, r slog.Record) (err error) {
	defer func() {
		_ = recover() // there is no place left to report it
	}()
	return h.Handler.Handle(ctx, r)
}

func (h guardedHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return guardedHandler{h.Handler.WithAttrs(attrs)}
}

func (h guardedHandler) WithGroup(name string) slog.Handler {
	return guardedHandler{h.Handler.WithGroup(name)}
}
