package interop

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"yagent/mcp"
)

// What arrives on the pipe: lines, bytes, encodings.

func TestHostile_normal(t *testing.T) {
	h := connected(t, "normal")
	if got := len(h.toolNames("bad")); got != 8 {
		t.Errorf("got %d tools, want 8: %q", got, h.toolNames("bad"))
	}
	if got, want := h.line("bad"), "bad: ready — 8 tools"; got != want {
		t.Errorf("line is %q, want %q", got, want)
	}
	if got := h.health("bad"); got.Instructions != "mode normal" || got.ProtocolVersion != "2025-11-25" || got.Server.Name != "badserver" {
		t.Errorf("health is %+v", got)
	}
	h.echoes("bad")
}

// Whatever its chunks, its line ends and the lines around it, a message counts.
func TestHostile_framing(t *testing.T) {
	for _, mode := range []string{"coalesce", "crlf", "blank-lines", "utf8-line", "stdout-noise", "binary-noise", "dup-response", "id-string", "no-jsonrpc", "version-old", "odd-notify", "reply-to-notification"} {
		t.Run(mode, func(t *testing.T) {
			h := connected(t, mode)
			h.survives("bad", func() {
				for i := range 30 {
					args := fmt.Sprintf(`{"n":%d}`, i)
					if got := h.call("bad", "echo", json.RawMessage(args)).Text(); got != args {
						t.Fatalf("call %d: got %q, want %q", i, got, args)
					}
				}
			})
			if got := h.line("bad"); got != "bad: ready — 8 tools" {
				t.Errorf("line is %q", got)
			}
		})
	}
}

func TestHostile_big_line(t *testing.T) {
	// A line of n bytes has so many bytes of text less than n.
	frame := len(`{"jsonrpc":"2.0","id":3,"result":{"content":[{"type":"text","text":""}]}}`)
	for _, size := range []int{1, 4095, 4096, 4097, 65535, 65536, 65537, 1<<20 + 1, 5 << 20} {
		for _, n := range []int{size, size - frame} {
			if n < 1 {
				continue
			}
			t.Run(fmt.Sprintf("%d text bytes", n), func(t *testing.T) {
				h := connected(t, "big-line", flagInt("n", n))
				want := strings.Repeat("0123456789abcdef", n/16+1)[:n]
				if got := h.call("bad", "echo", nil).Text(); got != want {
					t.Errorf("got %d bytes, want %d bytes; or they differ", len(got), len(want))
				}
			})
		}
	}
}

func TestHostile_over_limit(t *testing.T) {
	for _, test := range []struct {
		name  string
		limit int // of the host; 0: the default
		size  int // of the answer
		named string
	}{
		{"a limit of the host's", 1 << 20, 8 << 20, "1048576"},
		{"just over", 1 << 20, 1 << 20, "1048576"},
		{"the default", 0, 100 << 20, "67108864"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			opts := once()
			opts.MaxMessageBytes = test.limit
			h := newHost(t, opts, in("over-limit", flagInt("n", test.size)))
			h.ready("bad")
			h.survives("bad", func() {
				err := h.callError(h.patient(), "bad", "echo", nil)
				if !errors.Is(err, mcp.ErrTooLarge) || !strings.Contains(err.Error(), test.named) {
					t.Errorf("got %v, want ErrTooLarge that names %s", err, test.named)
				}
			})
		})
	}
}

// A limit reached exactly is not passed.
func TestHostile_at_the_limit(t *testing.T) {
	t.Parallel()
	frame := len(`{"jsonrpc":"2.0","id":3,"result":{"content":[{"type":"text","text":""}]}}`)
	opts := once()
	opts.MaxMessageBytes = 1 << 20
	h := newHost(t, opts, in("big-line", flagInt("n", 1<<20-frame)))
	h.ready("bad")
	if got := len(h.call("bad", "echo", nil).Raw); got < 1<<20-frame {
		t.Errorf("got a result of %d bytes", got)
	}
}

func TestHostile_no_newline_flood(t *testing.T) {
	t.Parallel()
	opts := once()
	opts.MaxMessageBytes = 1 << 20
	h := newHost(t, opts, in("no-newline-flood"))
	h.ready("bad")
	pid := h.health("bad").PID
	err := h.callError(h.patient(), "bad", "echo", nil)
	if !errors.Is(err, mcp.ErrTooLarge) || !strings.Contains(err.Error(), "1048576") {
		t.Errorf("got %v, want ErrTooLarge that names the limit", err)
	}
	h.awaitState("bad", mcp.StateOffline)
	eventually(t, "the end of the process", func() bool { _, parent := status(pid); return parent == 0 })
	for _, e := range h.ending("bad") {
		if e != "eof" { // the rest of its life is too short for more
			t.Errorf("the server saw %q, want nothing but its SIGKILL", e)
		}
	}
}

func TestHostile_stall_midline(t *testing.T) {
	t.Run("within the deadline", func(t *testing.T) {
		h := connected(t, "stall-midline", flagTime("delay", 300*time.Millisecond))
		h.survives("bad", func() {
			if got := h.call("bad", "echo", nil).Text(); got != "slow but whole" {
				t.Errorf("got %q", got)
			}
		})
	})
	t.Run("past the deadline", func(t *testing.T) {
		h := connected(t, "stall-midline", flagTime("delay", 1200*time.Millisecond))
		h.survives("bad", func() {
			err := h.callError(shortly(t, 400*time.Millisecond), "bad", "echo", nil)
			if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, mcp.ErrOutcomeUnknown) {
				t.Errorf("got %v, want DeadlineExceeded and ErrOutcomeUnknown", err)
			}
		})
	})
}

func TestHostile_stdout_noise(t *testing.T) {
	h := connected(t, "stdout-noise")
	for range 20 {
		h.echoes("bad")
	}
	if n := h.records.count("not a JSON-RPC message"); n < 1 || n > 5 {
		t.Errorf("the noise was logged %d times, want once in a while:\n%s", n, h.records)
	}
}

func TestHostile_blank_lines(t *testing.T) {
	h := connected(t, "blank-lines")
	h.echoes("bad")
	if n := h.records.count("level=WARN"); n != 0 {
		t.Errorf("blank lines are no news, but were logged:\n%s", h.records)
	}
}

func TestHostile_u2028(t *testing.T) {
	h := connected(t, "u2028")
	if got, want := h.call("bad", "echo", nil).Text(), "a\u2028b\u2029c\u0085d\r end"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	t.Run("both ways", func(t *testing.T) {
		h := connected(t, "normal")
		for _, args := range []any{
			json.RawMessage("{\"text\":\"a\u2028b\u2029c\u0085d\"}"),
			map[string]string{"text": "a\u2028b\u2029c\u0085d\r\n"},
		} {
			var sent, back map[string]string
			raw, err := json.Marshal(args)
			if err == nil {
				err = json.Unmarshal(raw, &sent)
			}
			if err == nil {
				err = json.Unmarshal([]byte(h.call("bad", "echo", args).Text()), &back)
			}
			if err != nil || back["text"] != sent["text"] {
				t.Errorf("sent %q, got %q back (%v)", sent, back, err)
			}
		}
	})
}

func TestHostile_surrogate(t *testing.T) {
	h := connected(t, "surrogate")
	result := h.call("bad", "echo", nil)
	if got, want := result.Text(), "half \uFFFD and whole \U0001F600"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	encoded, err := json.Marshal(result)
	if err != nil {
		t.Fatal(err)
	}
	// Parsers that are stricter than Go's refuse the escaped half.
	if !utf8.Valid(encoded) || strings.Contains(string(encoded), `\ud83d `) {
		t.Errorf("re-encoded it is not valid everywhere: %s", encoded)
	}
}

func TestHostile_batch(t *testing.T) {
	h := connected(t, "batch")
	if got := h.call("bad", "echo", nil).Text(); got != "from a batch" {
		t.Errorf("got %q", got)
	}
}

// A server that never writes a usable line keeps the host waiting (it might be
// building an index), but whoever waits with a deadline is shown what came.
func TestHostile_unreadable(t *testing.T) {
	for mode, shown := range map[string]string{"pretty": `"{"`, "content-length": "Content-Length"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			h := newHost(t, once(), in(mode))
			var err error
			eventually(t, "a line that was skipped", func() bool {
				err = h.WaitForReady(shortly(t, 50*time.Millisecond), "bad")
				return err == nil || strings.Contains(err.Error(), "JSON-RPC message")
			})
			if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, mcp.ErrNotReady) || !strings.Contains(err.Error(), shown) {
				t.Errorf("got %v, want ErrNotReady at the deadline that shows %s", err, shown)
			}
			if got, want := h.line("bad"), "bad: starting — waiting for the handshake"; got != want {
				t.Errorf("line is %q, want %q", got, want)
			}
			h.close()
			h.wantEnding("bad", "eof", "exit 0")
		})
	}
}

func TestHostile_no_final_newline(t *testing.T) {
	h := connected(t, "no-final-newline")
	if got := h.call("bad", "echo", nil).Text(); got != "last words" {
		t.Errorf("got %q", got)
	}
	h.awaitState("bad", mcp.StateOffline)
	if got, want := h.line("bad"), "bad: offline — the process exited; reconnecting"; got != want {
		t.Errorf("line is %q, want %q", got, want)
	}
}

func TestHostile_buffered(t *testing.T) {
	t.Parallel()
	h := newHost(t, once(), in("buffered"))
	eventually(t, "the handshake's request", func() bool { return len(h.received("bad", "initialize")) == 1 })
	err := h.WaitForReady(shortly(t, 100*time.Millisecond), "bad")
	if !errors.Is(err, mcp.ErrNotReady) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v, want ErrNotReady at the deadline", err)
	}
	h.close()
	h.wantEnding("bad", "eof", "exit 0")
}

func TestHostile_bigint(t *testing.T) {
	h := connected(t, "bigint")
	want := `{"id":9007199254740993,"max":18446744073709551615,"wide":123456789012345678901234567890,"dec":0.1000000000000000055511151231257827,"neg":-0,"exp":1E2}`
	if got := string(h.call("bad", "echo", nil).StructuredContent); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// Arguments reach the server as they were given.
func TestHostile_raw(t *testing.T) {
	numbers := `{"id":9007199254740993,"max":18446744073709551615,"wide":123456789012345678901234567890,"dec":0.1000000000000000055511151231257827,"neg":-0,"exp":1E2,"huge":1e400}`
	for _, test := range []struct {
		name string
		args any
		want string // as the server reads it
	}{
		{"numbers", json.RawMessage(numbers), numbers},
		{"duplicates", json.RawMessage(`{"a":1,"a":2}`), `{"a":1,"a":2}`},
		{"white space", json.RawMessage(`{ "a" :  [ 1 , 2 ] }`), `{ "a" :  [ 1 , 2 ] }`},
		{"escapes", json.RawMessage(`{"a":"\u003c\/\u00e9<&>"}`), `{"a":"\u003c\/\u00e9<&>"}`},
		{"line breaks", json.RawMessage("{\n\"a\":\r\n1}"), `{ "a":  1}`},
		{"HTML", map[string]string{"a": "<b>&amp;</b>"}, `{"a":"<b>&amp;</b>"}`},
		{"control characters", map[string]string{"a": "1\n2\r3"}, `{"a":"1\n2\r3"}`},
		{"a struct", struct {
			Query string `json:"query"`
			Limit int64  `json:"limit"`
		}{"x", 9007199254740993}, `{"query":"x","limit":9007199254740993}`},
		{"nil", nil, `{}`},
		{"a nil map", map[string]any(nil), `{}`},
		{"an empty struct", struct{}{}, `{}`},
	} {
		t.Run(test.name, func(t *testing.T) {
			h := connected(t, "normal")
			if got := h.call("bad", "echo", test.args).Text(); got != test.want {
				t.Errorf("the server read %s, want %s", got, test.want)
			}
			line := h.call("bad", "raw", test.args).Text()
			if !strings.HasSuffix(line, `"arguments":`+test.want+`}}`) || strings.ContainsAny(line, "\r\n") {
				t.Errorf("the request line was %q", line)
			}
		})
	}
}

func TestHostile_deep(t *testing.T) {
	for _, depth := range []int{9_990, 10_001, 20_000, 1_000_000} {
		t.Run(fmt.Sprint(depth), func(t *testing.T) {
			h := connected(t, "deep", flagInt("n", depth))
			h.survives("bad", func() {
				// Either outcome will do, but it must come at once.
				result, err := h.Call(shortly(t, 10*time.Second), "bad", "echo", nil)
				if errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("got %v", err)
				}
				if err == nil && len(result.StructuredContent) != 2*depth {
					t.Errorf("got %d bytes of structured content, want %d", len(result.StructuredContent), 2*depth)
				}
			})
		})
	}
}

func TestHostile_case_smuggle(t *testing.T) {
	h := connected(t, "case-smuggle")
	if got := h.toolNames("bad"); len(got) != 1 || got[0] != "good" {
		t.Fatalf("tools are %q, want only good", got)
	}
	if got := h.tool("bad", "good"); got.Description != "real" || string(got.InputSchema) != `{"type":"object"}` {
		t.Errorf("the tool is %+v", got)
	}
	result := h.call("bad", "good", nil)
	if result.IsError || result.Text() != "good" || len(result.Content) != 1 {
		t.Errorf("got %s, decoded to %q, IsError %v", result.Raw, result.Text(), result.IsError)
	}
}
