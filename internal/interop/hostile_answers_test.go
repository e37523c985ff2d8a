package interop

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"yagent/mcp"
)

// Which answer belongs to which call, and what an answer says.

func TestHostile_id_zero(t *testing.T) {
	t.Parallel()
	h := newHost(t, once(), legacyIn("id-zero"))
	var err error
	eventually(t, "the answer to nobody", func() bool {
		err = h.WaitForReady(shortly(t, 50*time.Millisecond), "bad")
		return err == nil || strings.Contains(err.Error(), "id 0")
	})
	if !errors.Is(err, mcp.ErrNotReady) {
		t.Errorf("got %v, want ErrNotReady that mentions id 0", err)
	}
	lines := h.received("bad", "initialize")
	if len(lines) != 1 || requestID(t, lines[0]) != "1" {
		t.Errorf("the requests were %q, want one with id 1", lines)
	}
}

func TestHostile_id_null(t *testing.T) {
	t.Parallel()
	h := newHost(t, once(), in("id-null"))
	var err error
	eventually(t, "the answer without an id", func() bool {
		err = h.WaitForReady(shortly(t, 50*time.Millisecond), "bad")
		return err == nil || strings.Contains(err.Error(), "null")
	})
	if !errors.Is(err, mcp.ErrNotReady) {
		t.Errorf("got %v, want ErrNotReady that shows the answer without an id", err)
	}
}

func TestHostile_id_string(t *testing.T) {
	h := connected(t, "id-string")
	for range 10 {
		h.echoes("bad")
	}
	if n := h.records.count("id", "string"); n != 1 {
		t.Errorf("that ids come back as strings was logged %d times, want once:\n%s", n, h.records)
	}
}

func TestHostile_reply_to_notification(t *testing.T) {
	h := connected(t, "reply-to-notification")
	h.echoes("bad")
}

func TestHostile_dup_response(t *testing.T) {
	h := connected(t, "dup-response")
	h.survives("bad", func() { h.callsTogether("bad", 50) })
}

// callsTogether makes calls at the same time, each of which must get its own
// arguments back.
func (h *host) callsTogether(server string, n int) {
	h.t.Helper()
	var calls sync.WaitGroup
	ctx := h.patient()
	for i := range n {
		calls.Go(func() {
			args := fmt.Sprintf(`{"caller":%d}`, i)
			result, err := h.Call(ctx, server, "echo", json.RawMessage(args))
			if err != nil {
				h.t.Errorf("call %d: %v", i, err)
			} else if got := result.Text(); got != args {
				h.t.Errorf("call %d got the answer %s", i, got)
			}
		})
	}
	calls.Wait()
}

func TestHostile_reverse(t *testing.T) {
	for _, n := range []int{4, 100} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			// The server answers when it has all of them, and only then.
			h := connected(t, "reverse", flagInt("n", n), flagTime("delay", time.Hour))
			h.callsTogether("bad", n)
		})
	}
}

func TestHostile_reverse_max_in_flight(t *testing.T) {
	t.Parallel()
	cfg := in("reverse", flagInt("n", 4), flagTime("delay", time.Hour))
	cfg.MaxInFlight = 4
	h := newHost(t, once(), cfg)
	h.ready("bad")
	h.callsTogether("bad", 40)
}

func TestHostile_late(t *testing.T) {
	const delay = 1200 * time.Millisecond
	h := connected(t, "late", flagTime("delay", delay))
	begun := time.Now()
	err := h.callError(shortly(t, 400*time.Millisecond), "bad", "echo", nil)
	if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, mcp.ErrOutcomeUnknown) {
		t.Errorf("got %v, want DeadlineExceeded and ErrOutcomeUnknown", err)
	}
	// The late answer comes among these.
	for n := 2; time.Since(begun) < delay+delay/2; n++ {
		if got, want := h.call("bad", "echo", nil).Text(), fmt.Sprintf("call-%d", n); got != want {
			t.Fatalf("got %q, want %q", got, want)
		}
	}
	if n := h.starts("bad"); n != 1 {
		t.Errorf("%d starts, want 1", n)
	}
}

func TestHostile_id_collision(t *testing.T) {
	h := connected(t, "id-collision")
	for range 3 {
		if got := h.call("bad", "echo", nil).Text(); got != "pong seen" {
			t.Errorf("got %q", got)
		}
	}
}

// An answer with an error is one, whatever stands beside it.
func TestHostile_result_and_error(t *testing.T) {
	for _, mode := range []string{"result-null", "result-and-error"} {
		t.Run(mode, func(t *testing.T) {
			h := connected(t, mode)
			err := h.callError(h.patient(), "bad", "echo", nil)
			answer, ok := errors.AsType[*mcp.RPCError](err)
			if !ok || answer.Code != -32000 || answer.Message != "boom" {
				t.Errorf("got %v, want the error -32000 boom", err)
			}
		})
	}
}

func TestHostile_odd_error(t *testing.T) {
	h := connected(t, "odd-error")
	for _, want := range []struct {
		raw  string
		code int64
		text string // what a reader must be shown
	}{
		{`{"code":"E_BAD","message":"code is a string"}`, 0, "code is a string"},
		{`{"code":-32000}`, -32000, "-32000"},
		{`{"message":"no code"}`, 0, "no code"},
		{`"just a string"`, 0, "just a string"},
		{`{"code":-32000.5,"message":"fraction"}`, 0, "fraction"},
		{`{"code":1e30,"message":"overflow"}`, 0, "overflow"},
		{`[]`, 0, "[]"},
		{`{}`, 0, "{}"},
	} {
		err := h.callError(h.patient(), "bad", "echo", nil)
		answer, ok := errors.AsType[*mcp.RPCError](err)
		if !ok {
			t.Errorf("%s: got %v, want an RPCError", want.raw, err)
			continue
		}
		if string(answer.Raw) != want.raw || answer.Code != want.code || !strings.Contains(err.Error(), want.text) {
			t.Errorf("%s: got code %d, raw %s, text %q", want.raw, answer.Code, answer.Raw, err)
		}
	}
	if n := h.starts("bad"); n != 1 {
		t.Errorf("%d starts, want 1", n)
	}
}

func TestHostile_iserror(t *testing.T) {
	h := connected(t, "iserror")
	result := h.call("bad", "echo", nil)
	if !result.IsError || result.Text() != "quota exceeded" || string(result.StructuredContent) != `{"code":"RATE_LIMITED","retry_after":30}` {
		t.Errorf("got %s, IsError %v", result.Raw, result.IsError)
	}
}

func TestHostile_call_error(t *testing.T) {
	h := connected(t, "call-error")
	err := h.callError(h.patient(), "bad", "echo", nil)
	answer, ok := errors.AsType[*mcp.RPCError](err)
	if !ok || answer.Code != -32000 || answer.Message != "upstream down" || string(answer.Data) != `{"hint":"retry"}` {
		t.Errorf("got %v, want the RPCError -32000 with its data", err)
	}
	if !strings.Contains(err.Error(), `"bad"`) || errors.Is(err, mcp.ErrOutcomeUnknown) || errors.Is(err, mcp.ErrNotSent) {
		t.Errorf("got %v: it names the server, and its outcome is known", err)
	}
}

func TestHostile_no_content(t *testing.T) {
	h := connected(t, "no-content")
	for i, structured := range []string{"", "", `{"rows":3}`, ""} {
		result := h.call("bad", "echo", nil)
		if result.IsError || result.Content == nil || len(result.Content) != 0 || string(result.StructuredContent) != structured {
			t.Errorf("call %d: got %+v", i+1, result)
		}
	}
}

func TestHostile_strict_args(t *testing.T) {
	for name, args := range map[string]any{
		"nil": nil, "a nil RawMessage": json.RawMessage(nil), "an empty RawMessage": json.RawMessage(""),
		"a nil map": map[string]string(nil), "a nil pointer": (*struct{ A int })(nil), "an empty map": map[string]any{},
	} {
		t.Run(name, func(t *testing.T) {
			h := connected(t, "strict-args")
			if got := h.call("bad", "echo", args).Text(); got != "{}" {
				t.Errorf("the server read %s", got)
			}
		})
	}
}

// What is no object is refused before anything is sent.
func TestHostile_strict_args_refused(t *testing.T) {
	for name, args := range map[string]any{
		"a string": "text", "a number": 7, "an array": []int{1}, "true": true, "raw null": json.RawMessage("null"), "a raw array": json.RawMessage(" [1]"),
		"raw nonsense": json.RawMessage(`{"a":`), "two values": json.RawMessage(`{} {}`), "a channel": make(chan int), "a cycle's channel": map[string]any{"a": make(chan int)},
	} {
		t.Run(name, func(t *testing.T) {
			h := connected(t, "strict-args")
			err := h.callError(h.patient(), "bad", "echo", args)
			if !errors.Is(err, mcp.ErrInvalidArguments) || !errors.Is(err, mcp.ErrNotSent) {
				t.Errorf("got %v, want ErrInvalidArguments and ErrNotSent", err)
			}
			h.echoes("bad")
			if lines := h.received("bad", "tools/call"); len(lines) != 1 {
				t.Errorf("the server received %q, want the good call only", lines)
			}
		})
	}
}
