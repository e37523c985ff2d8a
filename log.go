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

// Enabled takes a panic for a no.
func (h guardedHandler) Enabled(ctx context.Context, level slog.Level) (enabled bool) {
	defer func() { _ = recover() }()
	return h.Handler.Enabled(ctx, level)
}

func (h guardedHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return h.guarded(func() slog.Handler { return h.Handler.WithAttrs(attrs) })
}

func (h guardedHandler) WithGroup(name string) slog.Handler {
	return h.guarded(func() slog.Handler { return h.Handler.WithGroup(name) })
}

// guarded returns h itself for a derived handler that could not be made.
func (h guardedHandler) guarded(derive func() slog.Handler) (derived slog.Handler) {
	derived = h
	defer func() { _ = recover() }()
	return guardedHandler{derive()}
}
