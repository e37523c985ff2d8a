package mcp

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
)

func TestIsPowerOfTen(t *testing.T) {
	for n, want := range map[int]bool{0: false, 1: true, 2: false, 10: true, 11: false, 20: false, 100: true, 101: false, 110: false, 1000: true, 1_000_000: true} {
		if got := isPowerOfTen(n); got != want {
			t.Errorf("isPowerOfTen(%d) = %v", n, got)
		}
	}
}

// loggedScript is a ready script whose log the test reads.
func loggedScript(t *testing.T) (*script, *bytes.Buffer) {
	t.Helper()
	log := new(bytes.Buffer)
	s := readyScript(t, func(cfg *ClientConfig) {
		cfg.Logger = slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	})
	return s, log
}

// However much a server writes that is no message, the log stays short, and the
// first line is what explains a silence.
func TestNoiseIsLoggedOnceInAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, log := loggedScript(t)
		for n := range 1234 {
			s.write(fmt.Sprintf("noise %d\n", n))
		}
		synctest.Wait()
		for _, want := range []string{`line="noise 0" skipped=1`, `line="noise 9" skipped=10`, `line="noise 99" skipped=100`, `line="noise 999" skipped=1000`, `server=srv`} {
			if !strings.Contains(log.String(), want) {
				t.Errorf("the log does not say %q", want)
			}
		}
		if got := strings.Count(log.String(), "\n"); got != 4 {
			t.Errorf("%d lines in the log, want 4:\n%s", got, log)
		}
		if got, want := s.client.hint(), `; 1234 lines of its output were not JSON-RPC messages, the first: "noise 0"`; got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
		s.roundTrip()
	})
}

// Answers to nobody are counted, and only those that were never asked for tell
// of a confused server.
func TestStrayAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, log := loggedScript(t)
		f := s.call(expiredSoon(t), "a", nil)
		request := s.expectCall("a")
		<-f.done
		s.expect("notifications/cancelled")
		for range 12 {
			s.answer(request, textResult("late"))
		}
		synctest.Wait()
		if got := s.client.hint(); got != "" {
			t.Errorf("late answers give the hint %q", got)
		}
		if got := strings.Count(log.String(), "dropped an answer"); got != 2 {
			t.Errorf("%d lines in the log, want 2:\n%s", got, log)
		}
		s.write(`{"jsonrpc":"2.0","id":3,"result":{}}` + "\n") // the next one, too early
		synctest.Wait()
		if got, want := s.client.hint(), "; it answered a request that was never made (id 3)"; got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
		s.roundTrip()
	})
}

func expiredSoon(t *testing.T) context.Context { return bounded(t, 1) }

// All that was odd is told, in one sentence each, and what a server wrote there
// is cleaned and bounded.
func TestHintTellsAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := loggedScript(t)
		if got := s.client.hint(); got != "" {
			t.Errorf("a hint about nothing: %q", got)
		}
		s.write("\x1b[1mhello\x1b[0m\x07" + strings.Repeat("!", 10_000) + "\n")
		s.write(`{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"first"}}` + "\n")
		s.write(`{"jsonrpc":"2.0","id":"abc","error":{"code":-32700,"message":"Parse\u001b[31m error` + strings.Repeat("?", 10_000) + `"}}` + "\n")
		s.write(`{"jsonrpc":"2.0","id":77,"result":{}}` + "\n")
		synctest.Wait()
		hint := s.client.hint()
		for _, want := range []string{
			`; 1 line of its output was not a JSON-RPC message, the first: "hello !!!`,
			`; it sent an error that names no request: "code -32700: Parse error???`,
			`; it answered a request that was never made (id 77)`,
		} {
			if !strings.Contains(hint, want) {
				t.Errorf("the hint does not say %q: %s", want, hint)
			}
		}
		if len(hint) > 2*maxSample+300 {
			t.Errorf("the hint has %d bytes", len(hint))
		}
	})
}

// A host's log handler that panics loses its record and ends nothing.
func TestPanicOfTheLogHandler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := readyScript(t, func(cfg *ClientConfig) { cfg.Logger = slog.New(brokenHandler{slog.DiscardHandler}) })
		s.write("noise\n")
		s.roundTrip()
	})
}

type brokenHandler struct{ slog.Handler }

func (brokenHandler) Enabled(context.Context, slog.Level) bool  { return true }
func (brokenHandler) Handle(context.Context, slog.Record) error { panic("boom") }
func (h brokenHandler) WithAttrs([]slog.Attr) slog.Handler      { return h }
func (h brokenHandler) WithGroup(string) slog.Handler           { return h }
