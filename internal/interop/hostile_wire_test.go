package interop

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"yagent/mcp"
)

// Single messages, byte for byte. In all of them %ID stands for the id of the
// call that made the server write.

// say is a script for puppet.
type say struct {
	Write string `json:"write,omitempty"`
	Hex   string `json:"hex,omitempty"`
	Chunk int    `json:"chunk,omitempty"`
	Pause int    `json:"pause,omitempty"`
	Close bool   `json:"close,omitempty"`
	Exit  *int   `json:"exit,omitempty"`
}

const (
	okResult = `{"content":[{"type":"text","text":"ok"}]}`
	okAnswer = `{"jsonrpc":"2.0","id":%ID,"result":` + okResult + "}\n"
)

// puppeteer starts a puppet and waits until it is ready.
func puppeteer(t *testing.T, opts mcp.ManagerOptions) *host {
	t.Helper()
	t.Parallel()
	h := newHost(t, opts, mcp.ServerConfig{Name: "puppet", Command: puppet})
	h.ready("puppet")
	return h
}

// Whatever a message looks like in detail, it is delivered.
func TestHostile_wire_delivered(t *testing.T) {
	result := `"result":` + okResult
	for name, script := range map[string]say{
		"plain":                      {Write: okAnswer},
		"id as a string":             {Write: `{"jsonrpc":"2.0","id":"%ID",` + result + "}\n"},
		"id as 3.0":                  {Write: `{"jsonrpc":"2.0","id":%ID.0,` + result + "}\n"},
		"id as 3.00e0":               {Write: `{"jsonrpc":"2.0","id":%ID.00e0,` + result + "}\n"},
		"id as 30E-1":                {Write: `{"jsonrpc":"2.0","id":%ID0E-1,` + result + "}\n"},
		"id last":                    {Write: `{"jsonrpc":"2.0",` + result + `,"id":%ID}` + "\n"},
		"no jsonrpc":                 {Write: `{"id":%ID,` + result + "}\n"},
		"jsonrpc last":               {Write: `{"id":%ID,` + result + `,"jsonrpc":"2.0"}` + "\n"},
		"white space":                {Write: " \t{ \"jsonrpc\" : \"2.0\" ,\t\"id\" : %ID , " + result + " } \t\r\n"},
		"byte order mark":            {Write: "\uFEFF" + okAnswer},
		"id twice":                   {Write: `{"jsonrpc":"2.0","id":999,"id":%ID,` + result + "}\n"},
		"result twice":               {Write: `{"jsonrpc":"2.0","id":%ID,"result":{"isError":true,"content":[]},` + result + "}\n"},
		"escaped names":              {Write: `{"jsonrpc":"2.0","\u0069d":%ID,"\u0072esul\u0074":{"\u0063ontent":[{"typ\u0065":"text","t\u0065xt":"ok"}]}}` + "\n"},
		"error null":                 {Write: `{"jsonrpc":"2.0","id":%ID,"error":null,` + result + "}\n"},
		"members nobody knows":       {Write: `{"jsonrpc":"2.0","id":%ID,"traceId":[1,{"id":5}],"x":{"result":7},` + result + "}\n"},
		"batch of one":               {Write: `[{"jsonrpc":"2.0","id":%ID,` + result + "}]\n"},
		"batch with noise":           {Write: `[1,null,"x",[],{},{"jsonrpc":"2.0","method":"notifications/x"},{"jsonrpc":"2.0","id":%ID,` + result + "}]\n"},
		"byte by byte":               {Write: "noise\r\n" + okAnswer, Chunk: 1},
		"two halves":                 {Write: okAnswer, Chunk: 40, Pause: 20},
		"cut after the line":         {Write: okAnswer + okAnswer, Chunk: len(okAnswer) - 2, Pause: 5},
		"twice":                      {Write: okAnswer + okAnswer},
		"half a line before":         {Write: `{"jsonrpc":"2.0","id":%ID,"resu` + "\n" + okAnswer},
		"garbage after the object":   {Write: `{"jsonrpc":"2.0","id":%ID,"result":{"content":[]}} trailing` + "\n" + okAnswer},
		"two objects on a line":      {Write: `{"jsonrpc":"2.0","id":%ID,"result":{}}{"jsonrpc":"2.0","id":%ID,"result":{}}` + "\n" + okAnswer},
		"single quotes before":       {Write: "{'jsonrpc':'2.0','id':%ID,'result':{}}\n" + okAnswer},
		"NaN before":                 {Write: `{"jsonrpc":"2.0","id":%ID,"result":{"a":NaN}}` + "\n" + okAnswer},
		"empty arrays before":        {Write: "[]\n[[]]\n[ ]\n" + okAnswer},
		"bare values before":         {Write: "null\ntrue\n%ID\n\"%ID\"\n1e400\n" + okAnswer},
		"deep noise before":          {Write: strings.Repeat("[", 100_000) + "\n" + okAnswer},
		"deep and valid before":      {Write: strings.Repeat("[", 20_000) + strings.Repeat("]", 20_000) + "\n" + okAnswer},
		"long noise before":          {Write: strings.Repeat("x", 300_000) + "\n" + okAnswer},
		"a log line with the id":     {Write: `{"id":%ID,"level":"info","msg":"about call %ID"}` + "\n" + okAnswer},
		"an answer to nobody before": {Write: `{"jsonrpc":"2.0","id":-%ID,"result":{}}` + "\n" + okAnswer},
		"a fraction of the id":       {Write: `{"jsonrpc":"2.0","id":%ID.5,"result":{}}` + "\n" + okAnswer},
		"an id out of range":         {Write: `{"jsonrpc":"2.0","id":1e999999999,"result":{}}` + "\n" + `{"jsonrpc":"2.0","id":99999999999999999999%ID,"result":{}}` + "\n" + okAnswer},
		"ids of other kinds":         {Write: `{"jsonrpc":"2.0","id":true,"result":{}}` + "\n" + `{"jsonrpc":"2.0","id":[%ID],"result":{}}` + "\n" + `{"jsonrpc":"2.0","id":{"id":%ID},"result":{}}` + "\n" + okAnswer},
		"an error without an id":     {Write: `{"jsonrpc":"2.0","error":{"code":-32700,"message":"Parse error"}}` + "\n" + okAnswer},
		"bytes that are no text":     {Write: "ok is next: ", Hex: hex.EncodeToString([]byte("\xff\xfe\x00\x01\x80\n{\"jsonrpc\":\"2.0\",\"id\":3,\"result\":" + okResult + "}\n"))},
		"UTF-16":                     {Write: "\uFEFF", Hex: hex.EncodeToString([]byte("{\x00}\x00\n\x00\n{\"jsonrpc\":\"2.0\",\"id\":3,\"result\":" + okResult + "}\n"))},
		"no line feed, exit":         {Write: strings.TrimSuffix(okAnswer, "\n"), Exit: new(int)},
		"no line feed, close":        {Write: strings.TrimSuffix(okAnswer, "\n"), Close: true},
		"progress for nobody":        {Write: `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%ID,"progress":1}}` + "\n" + okAnswer},
		"a notification with an id":  {Write: `{"jsonrpc":"2.0","id":%ID,"method":"notifications/message","result":{}}` + "\n" + okAnswer},
		"isError null":               {Write: `{"jsonrpc":"2.0","id":%ID,"result":{"isError":null,"structuredContent":null,"_meta":null,"content":[{"type":"text","text":"ok"}]}}` + "\n"},
	} {
		t.Run(name, func(t *testing.T) {
			h := puppeteer(t, once())
			if got := h.call("puppet", "say", script).Text(); got != "ok" {
				t.Errorf("got %q", got)
			}
			if !script.Close && script.Exit == nil {
				h.survives("puppet", func() {})
			}
		})
	}
}

// An answer that is none fails its call at once, and no other.
func TestHostile_wire_malformed(t *testing.T) {
	for name, members := range map[string]string{
		"neither result nor error": ``,
		"result null":              `,"result":null`,
		"both null":                `,"result":null,"error":null`,
		"result a string":          `,"result":"ok"`,
		"result a number":          `,"result":7`,
		"result true":              `,"result":true`,
		"result an array":          `,"result":[{"type":"text","text":"ok"}]`,
		"content a string":         `,"result":{"content":"ok"}`,
		"content an object":        `,"result":{"content":{"type":"text","text":"ok"}}`,
		"isError a string":         `,"result":{"content":[],"isError":"yes"}`,
		"isError a number":         `,"result":{"content":[],"isError":1}`,
		"a result too deep":        `,"result":{"x":` + strings.Repeat("[", 20_000) + strings.Repeat("]", 20_000) + `}`,
		"an error too deep":        `,"error":{"data":` + strings.Repeat("[", 20_000) + strings.Repeat("]", 20_000) + `}`,
	} {
		t.Run(name, func(t *testing.T) {
			h := puppeteer(t, once())
			h.survives("puppet", func() {
				err := h.callError(h.patient(), "puppet", "say", say{Write: `{"jsonrpc":"2.0","id":%ID` + members + "}\n"})
				if !errors.Is(err, mcp.ErrMalformed) || !strings.Contains(err.Error(), `"puppet"`) {
					t.Errorf("got %v, want ErrMalformed that names the server", err)
				}
			})
		})
	}
}

// Any error that is not null is one.
func TestHostile_wire_errors(t *testing.T) {
	for _, raw := range []string{
		`false`, `true`, `0`, `""`, `"text"`, `[]`, `[1]`, `{}`, `{"code":0,"message":"zero"}`, `{"code":null,"message":null}`,
		`{"code":"-32000","message":{"text":"an object"}}`, `{"code":-32000,"message":"line\nbreak \u001b[31mred"}`,
		`{"code":9223372036854775808,"message":"over int64"}`, `{"code":-32042,"message":"url","data":{"elicitations":[{"url":"https://example.com"}]}}`,
		`{"message":"half \ud83d"}`, `{"data":` + strings.Repeat("[", 9_000) + strings.Repeat("]", 9_000) + `}`,
	} {
		t.Run(fmt.Sprintf("%.40s", raw), func(t *testing.T) {
			h := puppeteer(t, once())
			h.survives("puppet", func() {
				err := h.callError(h.patient(), "puppet", "say", say{Write: `{"jsonrpc":"2.0","id":%ID,"error":` + raw + "}\n"})
				answer, ok := errors.AsType[*mcp.RPCError](err)
				if !ok {
					t.Fatalf("got %v, want an RPCError", err)
				}
				if want := strings.ReplaceAll(raw, `\ud83d`, "\uFFFD"); string(answer.Raw) != want && string(answer.Raw) != strings.ReplaceAll(raw, `\ud83d`, `\ufffd`) {
					t.Errorf("the raw error is %.100s", answer.Raw)
				}
				if answer.Error() == "" || strings.ContainsAny(err.Error(), "\n\x1b") || len(err.Error()) > 8<<10 {
					t.Errorf("the text is %.300q", err)
				}
			})
		})
	}
}

// Contents of kinds that nobody knows keep their place and their bytes.
func TestHostile_wire_contents(t *testing.T) {
	pieces := []string{
		`{"type":"text","text":"first"}`, `{"type":"hologram","depth":[1,2,{"x":1.50}]}`, `{"type":"text"}`, `{"type":"text","text":null}`,
		`{"no":"type"}`, `null`, `7`, `"a string"`, `[]`, `{"type":7}`, `{"Type":"text","type":"text","text":"last","annotations":{"priority":1}}`,
	}
	h := puppeteer(t, once())
	result := h.call("puppet", "say", say{Write: `{"jsonrpc":"2.0","id":%ID,"result":{"content":[` + strings.Join(pieces, ",") + `]}}` + "\n"})
	if len(result.Content) != len(pieces) {
		t.Fatalf("got %d contents, want %d", len(result.Content), len(pieces))
	}
	for i, want := range pieces {
		encoded, err := result.Content[i].MarshalJSON()
		if err != nil || string(result.Content[i].Raw) != want || string(encoded) != want {
			t.Errorf("content %d is %s, encodes to %s (%v), want %s", i, result.Content[i].Raw, encoded, err, want)
		}
	}
	if got := result.Text(); !strings.HasPrefix(got, "first\n") || !strings.HasSuffix(got, "\nlast") {
		t.Errorf("the text is %q", got)
	}
}

// A line over the limit fails the call that it answers, if its id can be seen;
// what shows that it is none is thrown away; anything else ends the connection,
// since its answers cannot be told from noise any more.
func TestHostile_wire_over_limit(t *testing.T) {
	const limit = 64 << 10
	const callFails, dropped, connectionEnds = "the call fails", "dropped", "the connection ends"
	big := strings.Repeat("x", 3*limit)
	for _, test := range []struct {
		name, line string
		fate       string
	}{
		{"id first", `{"jsonrpc":"2.0","id":%ID,"result":{"content":[{"type":"text","text":"` + big + `"}]}}`, callFails},
		{"id a string", `{"jsonrpc":"2.0","id":"%ID","result":{"content":[{"type":"text","text":"` + big + `"}]}}`, callFails},
		{"id last", `{"jsonrpc":"2.0","result":{"content":[{"type":"text","text":"` + big + `"}]},"id":%ID}`, callFails},
		{"id before jsonrpc", `{"result":{"content":[{"type":"text","text":"` + big + `"}]},"id":%ID,"jsonrpc":"2.0"}`, callFails},
		{"an id inside the result is not one", `{"jsonrpc":"2.0","result":{"id":999,"content":[{"type":"text","text":"` + big + `"}]},"id":%ID}`, callFails},
		{"an error", `{"jsonrpc":"2.0","id":%ID,"error":{"code":1,"message":"` + big + `"}}`, callFails},
		{"white space before", strings.Repeat(" ", 100) + `{"jsonrpc":"2.0","id":%ID,"result":{"content":[{"type":"text","text":"` + big + `"}]}}`, callFails},
		{"a notification", `{"jsonrpc":"2.0","method":"notifications/message","params":{"data":"` + big + `"}}`, dropped},
		{"a notification that mentions the id", `{"jsonrpc":"2.0","method":"notifications/message","params":{"data":"` + big + `","id":%ID}}`, dropped},
		{"noise", big, connectionEnds},
		{"noise in JSON", `"` + big + `"`, connectionEnds},
		{"an answer to nobody", `{"jsonrpc":"2.0","id":999,"result":{"text":"` + big + `"}}`, dropped},
	} {
		t.Run(test.name, func(t *testing.T) {
			opts := once()
			opts.MaxMessageBytes = limit
			h := puppeteer(t, opts)
			before := h.health("puppet").PID
			script := say{Write: test.line + "\n"}
			if test.fate != connectionEnds {
				script.Write += okAnswer
			}
			result, err := h.Call(h.patient(), "puppet", "say", script)
			if test.fate == dropped {
				if err != nil {
					t.Errorf("got %v, want the answer after the long line", err)
				}
			} else if !errors.Is(err, mcp.ErrTooLarge) || !strings.Contains(err.Error(), fmt.Sprint(limit)) {
				t.Errorf("got %v, %v, want ErrTooLarge that names the limit", result, err)
			}
			if test.fate == connectionEnds {
				h.awaitState("puppet", mcp.StateOffline)
				h.noProcesses() // before Close
				return
			}
			h.echoes("puppet")
			if after := h.health("puppet").PID; after != before {
				t.Errorf("the process is %d, was %d", after, before)
			}
		})
	}
}

// A line of exactly the limit is within it, one byte more is not.
func TestHostile_wire_limit_exactly(t *testing.T) {
	const limit = 64 << 10
	frame := `{"jsonrpc":"2.0","id":%ID,"result":{"content":[{"type":"text","text":""}]}}`
	for over := range 2 {
		t.Run(fmt.Sprintf("%d over", over), func(t *testing.T) {
			opts := once()
			opts.MaxMessageBytes = limit
			h := puppeteer(t, opts)
			text := strings.Repeat("x", limit-len(strings.Replace(frame, "%ID", "3", 1))+over)
			_, err := h.Call(h.patient(), "puppet", "say", say{Write: strings.Replace(frame, `text":""`, `text":"`+text+`"`, 1) + "\n"})
			if (over == 0 && err != nil) || (over == 1 && !errors.Is(err, mcp.ErrTooLarge)) {
				t.Errorf("got %v", err)
			}
		})
	}
}

// Requests of the server's own are answered with their ids, byte for byte.
func TestHostile_wire_server_requests(t *testing.T) {
	h := puppeteer(t, once())
	var script strings.Builder
	var want []string
	for _, id := range []string{`1`, `"1"`, `0`, `-0`, `1.50`, `9007199254740993`, `"a\u0041\/ é"`, `1e400`, `"\ud83d\ude00"`} {
		fmt.Fprintf(&script, `{"jsonrpc":"2.0","id":%s,"method":"ping"}`+"\n", id)
		fmt.Fprintf(&script, `{"jsonrpc":"2.0","method":"ping","params":null,"id":%s}`+"\n", id)
		pong := fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{}}`, id)
		want = append(want, pong, pong)
	}
	for _, silent := range []string{
		`{"jsonrpc":"2.0","id":null,"method":"ping"}`, `{"jsonrpc":"2.0","method":"ping"}`,
		`{"jsonrpc":"2.0","method":"notifications/unknown","params":7}`,
	} {
		script.WriteString(silent + "\n")
	}
	script.WriteString(okAnswer)
	h.call("puppet", "say", say{Write: script.String()})
	var heard []string
	eventually(t, "the pongs", func() bool {
		heard = nil
		err := json.Unmarshal([]byte(h.call("puppet", "heard", nil).Text()), &heard)
		return err != nil || len(heard) >= len(want)
	})
	if !slices.Equal(heard, want) {
		t.Errorf("the server heard\n%s\nwant\n%s", strings.Join(heard, "\n"), strings.Join(want, "\n"))
	}
}

// What the client cannot do it says, whatever was asked for.
func TestHostile_wire_server_requests_refused(t *testing.T) {
	for _, method := range []string{`"roots/list"`, `"sampling/createMessage"`, `""`, `"tools/list"`, `"initialize"`, `"ping "`, `"Ping"`, `"line\nbreak"`} {
		t.Run(method, func(t *testing.T) {
			h := puppeteer(t, once())
			h.call("puppet", "say", say{Write: `{"jsonrpc":"2.0","id":"q","method":` + method + `}` + "\n" + okAnswer})
			var heard []string
			eventually(t, "an answer", func() bool {
				err := json.Unmarshal([]byte(h.call("puppet", "heard", nil).Text()), &heard)
				return err != nil || len(heard) > 0
			})
			var answer struct {
				ID    string
				Error struct{ Code int }
			}
			if err := json.Unmarshal([]byte(heard[0]), &answer); err != nil || len(heard) != 1 || answer.ID != "q" || answer.Error.Code != -32601 {
				t.Errorf("the server heard %q", heard)
			}
		})
	}
}

// The end of the output, and of the process, in the middle of a call.
func TestHostile_wire_end(t *testing.T) {
	status := func(n int) *int { return &n }
	for _, test := range []struct {
		name   string
		script say
		status int // -1: no exit
		reason mcp.Reason
	}{
		{"exit 0", say{Exit: status(0)}, 0, mcp.ReasonExited},
		{"exit 255", say{Exit: status(255)}, 255, mcp.ReasonExited},
		{"half a line, exit", say{Write: okAnswer[:len(okAnswer)/2], Exit: status(4)}, 4, mcp.ReasonExited},
		{"noise, exit", say{Write: "panic: oh no\n\ngoroutine 1\n", Exit: status(2)}, 2, mcp.ReasonExited},
		{"close", say{Close: true}, -1, mcp.ReasonOutputClosed},
		{"half a line, close", say{Write: okAnswer[:len(okAnswer)/2], Close: true}, -1, mcp.ReasonOutputClosed},
	} {
		t.Run(test.name, func(t *testing.T) {
			h := puppeteer(t, once())
			err := h.callError(h.patient(), "puppet", "say", test.script)
			exit, ok := errors.AsType[*mcp.ExitError](err)
			if !errors.Is(err, mcp.ErrOutcomeUnknown) || ok != (test.status >= 0) || (ok && exit.Status != test.status) {
				t.Errorf("got %v, want ErrOutcomeUnknown and status %d", err, test.status)
			}
			if change := h.awaitState("puppet", mcp.StateOffline); change.Reason != test.reason {
				t.Errorf("the reason is %q, want %q", change.Reason, test.reason)
			}
			h.noProcesses() // before Close
		})
	}
}

// What a result says is safe to show and to encode again.
func TestHostile_wire_text(t *testing.T) {
	for name, test := range map[string]struct{ raw, want string }{
		"escapes":      {`"\u0061\n\t\"\\\/\u00e9\u2028"`, "a\n\t\"\\/é\u2028"},
		"pairs":        {`"\ud83d\ude00 \uD83D\uDE00"`, "\U0001F600 \U0001F600"},
		"lone halves":  {`"\ud83d \ude00 \ude00\ud83d\u0041"`, "\uFFFD \uFFFD \uFFFD\uFFFDA"},
		"NUL":          {`"a\u0000b"`, "a\x00b"},
		"noncharacter": {`"\uffff\ufffe"`, "\uFFFF\uFFFE"},
	} {
		t.Run(name, func(t *testing.T) {
			h := puppeteer(t, once())
			result := h.call("puppet", "say", say{Write: `{"jsonrpc":"2.0","id":%ID,"result":{"content":[{"type":"text","text":` + test.raw + `}]}}` + "\n"})
			if got := result.Text(); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
			if encoded, err := json.Marshal(result); err != nil || strings.Contains(string(encoded), `\ud83d `) {
				t.Errorf("encoded again it is %s (%v)", encoded, err)
			}
		})
	}
}

// Bytes that are no UTF-8 inside a string become U+FFFD, and cost nothing else.
func TestHostile_wire_invalid_utf8(t *testing.T) {
	h := puppeteer(t, once())
	line := "{\"jsonrpc\":\"2.0\",\"id\":3,\"result\":{\"content\":[{\"type\":\"text\",\"text\":\"a\xffb\xc3\"}],\"structuredContent\":{\"k\":\"\xf0\x9f\"}}}\n"
	result := h.call("puppet", "say", say{Hex: hex.EncodeToString([]byte(line))})
	if got := strings.ToValidUTF8(result.Text(), "?"); got != "a\uFFFDb\uFFFD" {
		t.Errorf("got %q", result.Text())
	}
	if !json.Valid(result.StructuredContent) || strings.ToValidUTF8(string(result.StructuredContent), "?") != string(result.StructuredContent) {
		t.Errorf("the structured content is %q", result.StructuredContent)
	}
}

// A caller whose context has ended is not sent at all.
func TestHostile_wire_ended_context(t *testing.T) {
	h := puppeteer(t, once())
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := h.callError(ctx, "puppet", "echo", nil); !errors.Is(err, context.Canceled) || !errors.Is(err, mcp.ErrNotSent) {
		t.Errorf("got %v, want Canceled and ErrNotSent", err)
	}
}
