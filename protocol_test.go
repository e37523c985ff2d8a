package mcp

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestDecodeCallToolResult(t *testing.T) {
	t.Parallel()
	text := func(s string) Content { return Content{Type: "text", Text: s} }
	tests := []struct {
		name, raw  string
		contents   []Content // without Raw
		structured string
		isError    bool
		meta       string
	}{
		{"a text", `{"content":[{"type":"text","text":"hi"}]}`, []Content{text("hi")}, "", false, ""},
		{"texts with escapes", `{"content":[{"type":"text","text":"a\n\"b\""},{"text":"\ud83d\ude00\ud83d","type":"text"}]}`, []Content{text("a\n\"b\""), text("😀\ufffd")}, "", false, ""},
		{"an error of the tool", `{"content":[{"type":"text","text":"no"}],"isError":true}`, []Content{text("no")}, "", true, ""},
		{"all kinds in place", `{"content":[{"type":"image","data":""},{"type":"hologram","x":1},{"type":"resource_link"},{"type":"resource"},{"type":"audio"}]}`,
			[]Content{{Type: "image"}, {Type: "hologram"}, {Type: "resource_link"}, {Type: "resource"}, {Type: "audio"}}, "", false, ""},
		{"odd pieces in place", `{"content":[7,null,"x",[1],{},{"type":7},{"type":"text"},{"type":"text","text":null},{"type":"text","text":[1]}]}`,
			[]Content{{}, {}, {}, {}, {}, {}, text(""), text(""), text("[1]")}, "", false, ""},
		{"no content", `{}`, []Content{}, "", false, ""},
		{"null content", `{"content":null,"isError":null,"structuredContent":null,"_meta":null}`, []Content{}, "", false, ""},
		{"empty content", `{"content":[ ]}`, []Content{}, "", false, ""},
		{"structured", `{"structuredContent":{"n":18446744073709551615,"z":-0,"e":1E2},"_meta":{"a":1},"content":[]}`, []Content{}, `{"n":18446744073709551615,"z":-0,"e":1E2}`, false, `{"a":1}`},
		{"structured is any JSON", `{"structuredContent":[1, 2]}`, []Content{}, `[1, 2]`, false, ""},
		{"exact names", `{"Content":[{}],"CONTENT":7,"IsError":true,"content":[{"type":"text","Text":"evil","text":"good","TEXT":"evil"}]}`, []Content{text("good")}, "", false, ""},
		{"the last of two, whole", `{"content":[{},{}],"isError":true,"content":[{"type":"text","text":"a","text":"b"}],"isError":false}`, []Content{text("b")}, "", false, ""},
		{"space", " {\n\"content\" : [ { \"type\" : \"text\" , \"text\" : \"x\" } , { } ] } ", []Content{text("x"), {}}, "", false, ""},
	}
	for _, test := range tests {
		result, err := decodeCallToolResult([]byte(test.raw))
		if err != nil {
			t.Errorf("%s: %v", test.name, err)
			continue
		}
		for i := range result.Content {
			if content := &result.Content[i]; !strings.Contains(test.raw, string(content.Raw)) || !json.Valid(content.Raw) {
				t.Errorf("%s: content %d is %q", test.name, i, content.Raw)
			} else {
				content.Raw = nil
			}
		}
		if !reflect.DeepEqual(result.Content, test.contents) {
			t.Errorf("%s: contents %+v, want %+v", test.name, result.Content, test.contents)
		}
		if string(result.StructuredContent) != test.structured || result.IsError != test.isError || string(result.Meta) != test.meta || string(result.Raw) != test.raw {
			t.Errorf("%s: %+v", test.name, result)
		}
	}
}

func TestDecodeCallToolResultRefuses(t *testing.T) {
	t.Parallel()
	for _, raw := range []string{
		``, `null`, `[]`, `"text"`, `7`, `true`, `{"content":{}}`, `{"content":"text"}`, `{"content":7}`, `{"content":true}`,
		`{"isError":"true"}`, `{"isError":1}`, `{"content":[` + strings.Repeat("0,", maxContents) + `0]}`,
	} {
		if result, err := decodeCallToolResult([]byte(raw)); err == nil || result != nil {
			t.Errorf("decodeCallToolResult(%.40q) = %+v, %v", raw, result, err)
		}
	}
}

func TestDecodeCallToolResultAllocations(t *testing.T) {
	raw := []byte(`{"content":[{"type":"text","text":"hello, world"}],"isError":false}`)
	if n := testing.AllocsPerRun(100, func() {
		if _, err := decodeCallToolResult(raw); err != nil {
			t.Fatal(err)
		}
	}); n > 3 {
		t.Errorf("%v allocations, want the result, its contents and the text", n)
	}
}

func TestCallToolResultText(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]string{
		`{"content":[]}`: "",
		`{"content":[{"type":"text","text":"a"}]}`:                                                          "a",
		`{"content":[{"type":"image","text":"a"}]}`:                                                         "",
		`{"content":[{"type":"text","text":"a"},{"type":"x","text":"b"},{"type":"text","text":"c\nd"},{}]}`: "a\nc\nd",
	} {
		result, err := decodeCallToolResult([]byte(raw))
		if err != nil || result.Text() != want {
			t.Errorf("%s: %q, %v, want %q", raw, result.Text(), err, want)
		}
	}
}

// What the host encodes again must be what the server wrote, also in parts that
// this package does not know, and valid for every parser.
func TestCallToolResultEncodesAgain(t *testing.T) {
	t.Parallel()
	line := "{\"id\":1,\"result\":{\"content\":[{\"type\":\"text\",\"text\":\"half \\ud83d \xff\",\"annotations\":{\"priority\":1}},{\"type\":\"new\",\"x\":[1e400]}],\"structuredContent\":{\"a\":\"\\udc00\"}}}"
	m, err := parseMessage([]byte(line))
	if err != nil {
		t.Fatal(err)
	}
	result, err := decodeCallToolResult(m.result)
	if err != nil {
		t.Fatal(err)
	}
	encoded, err := json.Marshal(result)
	want := "{\"content\":[{\"type\":\"text\",\"text\":\"half \ufffd \ufffd\",\"annotations\":{\"priority\":1}},{\"type\":\"new\",\"x\":[1e400]}],\"structuredContent\":{\"a\":\"\ufffd\"}}"
	if err != nil || string(encoded) != want || string(result.Raw) != want {
		t.Errorf("encoded %s, %v,\nwant    %s", encoded, err, want)
	}
	encoded, err = json.Marshal(&CallToolResult{Content: []Content{{Type: "text", Text: "own \"words\""}}})
	if want := `{"content":[{"type":"text","text":"own \"words\""}]}`; err != nil || string(encoded) != want {
		t.Errorf("encoded %s, %v, want %s", encoded, err, want)
	}
}

func TestContentKinds(t *testing.T) {
	t.Parallel()
	decode := func(raw string) Content { return decodeContent([]byte(raw)) }
	blob, err := decode(`{"type":"image","data":"aGk=","mimeType":"image/png"}`).Blob()
	if want := (Blob{Data: []byte("hi"), MIMEType: "image/png"}); err != nil || !reflect.DeepEqual(blob, want) {
		t.Errorf("image %+v, %v", blob, err)
	}
	link, err := decode(`{"type":"resource_link","uri":"file:///a","name":"a","title":"A","description":"d","mimeType":"text/plain","size":1e3,"Uri":"x"}`).ResourceLink()
	if want := (ResourceLink{"file:///a", "a", "A", "d", "text/plain", 1000}); err != nil || link != want {
		t.Errorf("link %+v, %v", link, err)
	}
	link, err = decode(`{"type":"resource_link","uri":"u","size":-5}`).ResourceLink()
	if want := (ResourceLink{URI: "u", Size: -1}); err != nil || link != want {
		t.Errorf("bare link %+v, %v", link, err)
	}
	resource, err := decode(`{"type":"resource","resource":{"uri":"u","mimeType":"m","text":"t"}}`).Resource()
	if want := (ResourceContents{URI: "u", MIMEType: "m", Text: "t"}); err != nil || !reflect.DeepEqual(resource, want) {
		t.Errorf("text resource %+v, %v", resource, err)
	}
	resource, err = decode(`{"type":"resource","resource":{"uri":"u","blob":""}}`).Resource()
	if err != nil || resource.Blob == nil || len(resource.Blob) != 0 {
		t.Errorf("empty blob %+v, %v", resource, err)
	}
}

func TestContentKindsRefuse(t *testing.T) {
	t.Parallel()
	tests := []struct {
		raw  string
		read func(Content) error
	}{
		{`{"type":"text","text":"x"}`, blobError}, {`{"type":"image"}`, blobError}, {`{"type":"image","data":7}`, blobError}, {`{"type":"audio","data":"?"}`, blobError},
		{`{"type":"resource"}`, linkError}, {`{"type":"resource_link"}`, linkError}, {`{"type":"resource_link","uri":7}`, linkError},
		{`{"type":"resource_link"}`, resourceError}, {`{"type":"resource"}`, resourceError}, {`{"type":"resource","resource":[]}`, resourceError},
		{`{"type":"resource","resource":{"blob":7}}`, resourceError}, {`{}`, resourceError}, {`7`, blobError},
	}
	for _, test := range tests {
		if err := test.read(decodeContent([]byte(test.raw))); err == nil {
			t.Errorf("%s was accepted", test.raw)
		}
	}
}

func blobError(c Content) error     { _, err := c.Blob(); return err }
func linkError(c Content) error     { _, err := c.ResourceLink(); return err }
func resourceError(c Content) error { _, err := c.Resource(); return err }

func TestDecodeRPCError(t *testing.T) {
	t.Parallel()
	tests := []struct {
		raw     string
		code    int64
		message string
		data    string
		text    string
	}{
		{`{"code":-32000,"message":"boom"}`, -32000, "boom", "", "code -32000: boom"},
		{`{"code":-32602,"message":"bad","data":{"field":"x"}}`, -32602, "bad", `{"field":"x"}`, `code -32602: bad; data: {"field":"x"}`},
		{`{"code":0,"message":"zero","data":null}`, 0, "zero", "", "code 0: zero"},
		{`{"code":"-32000","message":"m"}`, -32000, "m", "", "code -32000: m"},
		{`{"code":-3.2e4,"message":"m"}`, -32000, "m", "", "code -32000: m"},
		{`{"code":"E_BAD","message":"m"}`, 0, "m", "", "error without a code: m"},
		{`{"code":-32000}`, -32000, "", "", "code -32000"},
		{`{"message":"no code"}`, 0, "no code", "", "error without a code: no code"},
		{`"just a string"`, 0, "just a string", "", "error without a code: just a string"},
		{`{"code":-32000.5,"message":"fraction"}`, 0, "fraction", "", "error without a code: fraction"},
		{`{"code":1e30,"message":"overflow"}`, 0, "overflow", "", "error without a code: overflow"},
		{`{"code":1,"message":{"en":"x"}}`, 1, `{"en":"x"}`, "", `code 1: {"en":"x"}`},
		{`[]`, 0, "", "", "error without a code: []"},
		{`{}`, 0, "", "", "error without a code: {}"},
		{`7`, 0, "", "", "error without a code: 7"},
		{`{"Code":1,"MESSAGE":"evil","code":2,"message":"a","message":"\u001b[31mred\u001b[0m\nline"}`, 2, "\x1b[31mred\x1b[0m\nline", "", "code 2: red line"},
	}
	for _, test := range tests {
		e := decodeRPCError([]byte(test.raw))
		if e.Code != test.code || e.Message != test.message || string(e.Data) != test.data || string(e.Raw) != test.raw || e.Error() != test.text {
			t.Errorf("decodeRPCError(%s) = %+v, %q, want %q", test.raw, e, e.Error(), test.text)
		}
	}
	if text := (&RPCError{Code: 5, Message: "own"}).Error(); text != "code 5: own" {
		t.Errorf("an error of one's own reads %q", text)
	}
}

func TestRPCErrorTextIsBounded(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("é", 1<<20)
	for _, raw := range []string{`{"code":1,"message":"` + long + `","data":"` + long + `"}`, `["` + long + `"]`} {
		text := decodeRPCError([]byte(raw)).Error()
		if len(text) > maxQuotedMessage+maxQuotedData+100 || !utf8.ValidString(text) {
			t.Errorf("%d bytes, valid: %v", len(text), utf8.ValidString(text))
		}
	}
}

func TestDecodeInitializeResult(t *testing.T) {
	t.Parallel()
	raw := []byte(`{"protocolVersion":"2025-06-18","capabilities":{"tools":{"listChanged":true},"prompts":{},"resources":null,"x":1},
		"serverInfo":{"name":"n","title":"t","version":"1","Name":"evil"},"instructions":"do\nthis","Instructions":"evil"}`)
	got, err := decodeInitializeResult(raw)
	clear(raw) // nothing of it may still be in use
	want := initializeResult{
		version: "2025-06-18", server: Implementation{Name: "n", Title: "t", Version: "1"}, instructions: "do\nthis",
		tools: true, listChanged: true, prompts: true,
		capabilities: json.RawMessage(`{"tools":{"listChanged":true},"prompts":{},"resources":null,"x":1}`),
	}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, %v, want %+v", got, err, want)
	}
	for _, bare := range []string{`{"protocolVersion":"x"}`, `{"protocolVersion":"x","capabilities":null,"serverInfo":null,"instructions":null}`, `{"protocolVersion":"x","serverInfo":[],"instructions":7}`} {
		if got, err := decodeInitializeResult([]byte(bare)); err != nil || !reflect.DeepEqual(got, initializeResult{version: "x"}) {
			t.Errorf("%s: %+v, %v", bare, got, err)
		}
	}
	for _, capabilities := range []string{`{"tools":{"listChanged":true},"tools":null}`, `{"tools":false}`, `[]`, `{"tools":null,"Tools":{}}`} {
		got, err := decodeInitializeResult([]byte(`{"protocolVersion":"x","capabilities":` + capabilities + `}`))
		if err != nil || got.tools || got.listChanged {
			t.Errorf("%s declares tools: %+v, %v", capabilities, got, err)
		}
	}
	for _, bad := range []string{`null`, `[]`, `"x"`, `{}`, `{"protocolVersion":7}`, `{"protocolVersion":""}`, `{"ProtocolVersion":"x"}`} {
		if got, err := decodeInitializeResult([]byte(bad)); err == nil {
			t.Errorf("%s was accepted: %+v", bad, got)
		}
	}
}

func TestDecodeToolsPageKeepsWhatAToolCarries(t *testing.T) {
	t.Parallel()
	raw := []byte(`{"tools":[{"name":"n","title":"t","description":"d","inputSchema":{"type":"object","x":1e400},"outputSchema":{"a":[ 1 ]},
		"annotations":{"title":"at","readOnlyHint":true,"destructiveHint":false,"idempotentHint":null,"openWorldHint":"yes"},
		"icons":[{"src":"s"}],"execution":{"taskSupport":"optional"},"_meta":{"k":1},"Name":"evil","InputSchema":true}],"nextCursor":"c","NextCursor":"evil"}`)
	page, err := decodeToolsPage(raw)
	clear(raw)
	yes, no := true, false
	want := toolsPage{nextCursor: "c", hasCursor: true, tools: []DiscoveredTool{{
		Name: "n", Title: "t", Description: "d",
		InputSchema: json.RawMessage(`{"type":"object","x":1e400}`), OutputSchema: json.RawMessage(`{"a":[ 1 ]}`),
		Annotations: &ToolAnnotations{Title: "at", ReadOnlyHint: &yes, DestructiveHint: &no},
		Icons:       json.RawMessage(`[{"src":"s"}]`), Execution: json.RawMessage(`{"taskSupport":"optional"}`), Meta: json.RawMessage(`{"k":1}`),
	}}}
	if err != nil || !reflect.DeepEqual(page, want) {
		t.Errorf("got %+v, %v,\nwant %+v", page, err, want)
	}
}

func TestDecodeToolsPageDecodesToolByTool(t *testing.T) {
	t.Parallel()
	const object = `{"type":"object"}`
	tests := []struct {
		tool   string
		schema string // of the tool that is kept; empty: dropped
		why    string
	}{
		{`{"name":"a","inputSchema":{"type":"object","p":[]}}`, `{"type":"object","p":[]}`, ""},
		{`{"name":"a"}`, object, ""},
		{`{"name":"a","inputSchema":null}`, object, ""},
		{`{"name":"a","inputSchema":true}`, `true`, ""},
		{`{"name":"a","inputSchema":{}}`, `{}`, ""},
		{`{"name":"a","description":null,"title":7,"annotations":[],"outputSchema":7,"icons":null}`, object, ""},
		{`{"name":"a","description":7,"inputSchema":{"type":"string"}}`, `{"type":"string"}`, ""},
		{`{"name":"` + strings.Repeat("n", 300) + `"}`, object, ""},
		{`{"name":"odd name/with:chars é"}`, object, ""},
		{`{"name":"a","inputSchema":[]}`, "", `"a": its inputSchema is no JSON Schema`},
		{`{"name":"a\u001b[1m\nb","inputSchema":"x"}`, "", `"a b": its inputSchema is no JSON Schema`},
		{`{"name":"a","inputSchema":7}`, "", `"a": its inputSchema is no JSON Schema`},
		{`{"inputSchema":{}}`, "", "tool 2 of the page: it has no name"},
		{`{"name":""}`, "", "tool 2 of the page: it has no name"},
		{`{"name":42}`, "", "tool 2 of the page: it has no name"},
		{`{"Name":"a"}`, "", "tool 2 of the page: it has no name"},
		{`null`, "", "tool 2 of the page: it is not an object"},
		{`"a"`, "", "tool 2 of the page: it is not an object"},
		{`[{"name":"a"}]`, "", "tool 2 of the page: it is not an object"},
	}
	for _, test := range tests {
		page, err := decodeToolsPage([]byte(`{"tools":[{"name":"first"}, ` + test.tool + ` ,{"name":"last"}]}`))
		if err != nil || page.tools[0].Name != "first" || page.tools[len(page.tools)-1].Name != "last" {
			t.Errorf("%s: %+v, %v", test.tool, page, err)
			continue
		}
		kept := len(page.tools) == 3
		if kept != (test.schema != "") || kept && string(page.tools[1].InputSchema) != test.schema {
			t.Errorf("%s: kept %+v", test.tool, page.tools)
		}
		if why := strings.Join(page.dropped, "; "); why != test.why {
			t.Errorf("%s: dropped because %q, want %q", test.tool, why, test.why)
		}
	}
}

func TestDecodeToolsPageShapes(t *testing.T) {
	t.Parallel()
	tests := []struct {
		raw       string
		tools     int
		cursor    string
		hasCursor bool
	}{
		{`{}`, 0, "", false}, {`{"tools":null}`, 0, "", false}, {`{"tools":[]}`, 0, "", false},
		{`{"tools":[],"nextCursor":null}`, 0, "", false}, {`{"tools":[],"nextCursor":""}`, 0, "", true},
		{`{"nextCursor":"a\u0062","tools":[{"name":"x"}]}`, 1, "ab", true},
		{`{"tools":[{"name":"x"},{"name":"y"}],"tools":[{"name":"z"}]}`, 1, "", false},
		{`{"tools":[` + strings.Repeat(`{"name":"x"},`, maxPageTools-1) + `{"name":"x"}]}`, maxPageTools, "", false},
	}
	for _, test := range tests {
		page, err := decodeToolsPage([]byte(test.raw))
		if err != nil || len(page.tools) != test.tools || page.nextCursor != test.cursor || page.hasCursor != test.hasCursor {
			t.Errorf("%.60s: %d tools, cursor %q %v, %v", test.raw, len(page.tools), page.nextCursor, page.hasCursor, err)
		}
	}
	for _, raw := range []string{
		``, `null`, `[]`, `"x"`, `{"tools":{}}`, `{"tools":"x"}`, `{"nextCursor":7}`, `{"nextCursor":{}}`,
		`{"tools":[` + strings.Repeat(`0,`, maxPageTools) + `{"name":"x"}]}`,
	} {
		if page, err := decodeToolsPage([]byte(raw)); err == nil {
			t.Errorf("%.60q was accepted: %+v", raw, page)
		}
	}
}

func FuzzDecodeToolsPage(f *testing.F) {
	f.Add([]byte(`{"tools":[{"name":"a","inputSchema":{"type":"object"},"annotations":{"readOnlyHint":true}},{"name":7},null,[{}]],"nextCursor":"c"}`))
	f.Add([]byte(`{"tools":[{"name":"a","icons":[1],"_meta":{},"execution":null} , {"inputSchema":true,"name":"\u0062"}],"tools":[]}`))
	f.Add([]byte(`{"tools":[{"name":"a"`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		page, err := decodeToolsPage(raw) // must not panic, whatever it gets
		var want struct{ Tools []json.RawMessage }
		if err != nil || nesting(raw) > deepest || !json.Valid(raw) {
			return
		}
		want.Tools = elementsOf(t, raw, "tools")
		if len(page.tools)+len(page.dropped) != len(want.Tools) {
			t.Fatalf("%d tools and %d dropped of %d", len(page.tools), len(page.dropped), len(want.Tools))
		}
		for _, tool := range page.tools {
			if tool.Name == "" || !isSchema(tool.InputSchema) {
				t.Errorf("kept %+v", tool)
			}
			if _, err := json.Marshal(tool); err != nil {
				t.Errorf("%+v: %v", tool, err)
			}
		}
	})
}

// elementsOf gives the elements of an array in an object by way of encoding/json.
func elementsOf(t *testing.T, raw []byte, member string) (elements []json.RawMessage) {
	t.Helper()
	var members map[string]json.RawMessage
	if err := json.Unmarshal(raw, &members); err != nil {
		t.Fatal(err)
	}
	if value, ok := members[member]; ok {
		if err := json.Unmarshal(value, &elements); err != nil {
			t.Fatal(err)
		}
	}
	return elements
}

func FuzzDecodeCallToolResult(f *testing.F) {
	f.Add([]byte(`{"content":[{"type":"text","text":"a\n"},{"type":"image","data":"aGk="},7,[],{"type":"resource","resource":{"uri":"u"}}],"isError":false}`))
	f.Add([]byte(`{"content":[{"type":"resource_link","uri":"u","size":1}],"structuredContent":[1,"]"],"_meta":{}}`))
	f.Add([]byte(`{"content":[{"type":"te\u0078t","text":"\ud83d"}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		result, err := decodeCallToolResult(raw) // must not panic, whatever it gets
		if err != nil {
			return
		}
		for _, content := range result.Content {
			_, _, _ = blobError(content), linkError(content), resourceError(content)
		}
		if nesting(raw) > deepest || !json.Valid(raw) {
			return
		}
		elements := elementsOf(t, raw, "content")
		if len(elements) != len(result.Content) {
			t.Fatalf("%d contents, want %d", len(result.Content), len(elements))
		}
		for i, content := range result.Content {
			checkContent(t, content, elements[i])
		}
	})
}

func checkContent(t *testing.T, content Content, raw []byte) {
	t.Helper()
	if !bytes.Equal(content.Raw, raw) {
		t.Errorf("content %q, want %q", content.Raw, raw)
	}
	var members map[string]any
	if json.Unmarshal(raw, &members) != nil { // a number out of range, or no object
		return
	}
	kind, _ := members["type"].(string)
	text, isText := members["text"].(string)
	if content.Type != kind || kind == "text" && isText && content.Text != text {
		t.Errorf("%q decodes to %q, %q", raw, content.Type, content.Text)
	}
}

func TestEncodeMessages(t *testing.T) {
	t.Parallel()
	before := []byte("kept\n")
	tests := []struct{ got, want string }{
		{encodedRequest(t, before, 7, "tools/list", nil), `{"jsonrpc":"2.0","id":7,"method":"tools/list"}`},
		{encodedRequest(t, before, math.MaxInt64, "a\"b", []byte(`{"x":1}`)), `{"jsonrpc":"2.0","id":9223372036854775807,"method":"a\"b","params":{"x":1}}`},
		{string(appendNotification(before, "notifications/initialized", nil)), `{"jsonrpc":"2.0","method":"notifications/initialized"}`},
		{string(appendNotification(before, "n", []byte(`{}`))), `{"jsonrpc":"2.0","method":"n","params":{}}`},
		{string(appendResult(before, []byte(`"a\u0062"`), []byte(`{}`))), `{"jsonrpc":"2.0","id":"a\u0062","result":{}}`},
		{string(appendErrorReply(before, []byte(`7.0`), -32601, "no <such>\nmethod")), `{"jsonrpc":"2.0","id":7.0,"error":{"code":-32601,"message":"no <such>\nmethod"}}`},
	}
	for _, test := range tests {
		if test.got != "kept\n"+test.want+"\n" {
			t.Errorf("got %q, want %q and a line feed", test.got, test.want)
		}
		if m, err := parseMessage([]byte(test.want)); err != nil || !m.jsonrpc {
			t.Errorf("%s is no message: %v", test.want, err)
		}
	}
}

func TestAppendString(t *testing.T) {
	t.Parallel()
	parts := []string{"", "a", "\"", "\\", "/", "\n", "\x00", "\x1f", "\x7f", "<&>", "é", "汉", "😀", "\u2028", "\u2029", "\u0085", "\xff", "\xe2\x82", "\ufffd"}
	for _, part := range parts {
		for pad := range 18 {
			for _, text := range []string{strings.Repeat("x", pad) + part, part + strings.Repeat("y", pad), strings.Repeat(part+"z", pad)} {
				if got, want := string(appendString([]byte("kept"), text)), "kept"+encodedLikeJSON(t, text); got != want {
					t.Errorf("appendString(%q) = %s, want %s", text, got, want)
				}
			}
		}
	}
}

func TestAppendCallParams(t *testing.T) {
	t.Parallel()
	type typed struct {
		Path string `json:"path"`
		Raw  json.RawMessage
	}
	deep := any("end")
	for range 3 * plainDepth {
		deep = map[string]any{"a": []any{deep}}
	}
	tests := []struct {
		name string
		args any
		want string
	}{
		{"nil", nil, `{}`},
		{"nil map", map[string]any(nil), `{}`},
		{"nil pointer", (*typed)(nil), `{}`},
		{"nil raw", json.RawMessage(nil), `{}`},
		{"bytes", []byte(`{"a": 1}`), `{"a": 1}`},
		{"nil bytes", []byte(nil), `{}`},
		{"empty raw", json.RawMessage{}, `{}`},
		{"raw", json.RawMessage(` { "b" : 1E2, "a":"<\u0041>" , "a" : 18446744073709551616} `), ` { "b" : 1E2, "a":"<\u0041>" , "a" : 18446744073709551616} `},
		{"raw with line breaks", json.RawMessage("{\r\n\t\"a\\n\":\n1}\n"), "{  \t\"a\\n\": 1} "},
		{"deep raw", json.RawMessage(`{"a":` + strings.Repeat("[", 20_000) + strings.Repeat("]", 20_000) + `}`), `{"a":` + strings.Repeat("[", 20_000) + strings.Repeat("]", 20_000) + `}`},
		{"map", map[string]any{"z": 1, "a": "<é\u2028\xff>", "m": map[string]any{"n": nil, "t": true, "l": []any{1.5, int64(7), "x"}}}, `{"a":"<é\u2028\ufffd>","m":{"l":[1.5,7,"x"],"n":null,"t":true},"z":1}`},
		{"empty things", map[string]any{"m": map[string]any{}, "l": []any{}, "nl": []any(nil), "nm": map[string]any(nil)}, `{"l":[],"m":{},"nl":null,"nm":null}`},
		{"struct", typed{"a<b", json.RawMessage(`{"x": 1}`)}, `{"path":"a<b","Raw":{"x":1}}`},
		{"pointer", &typed{Path: "p"}, `{"path":"p","Raw":null}`},
		{"other map", map[string]int{"b": 2, "a": 1}, `{"a":1,"b":2}`},
		{"deep map", deep, encodedLikeJSON(t, deep)},
	}
	for _, test := range tests {
		got, err := appendCallParams([]byte("kept"), "a\"b", test.args)
		if want := `kept{"name":"a\"b","arguments":` + test.want + `}`; err != nil || string(got) != want {
			t.Errorf("%s: %.200s, %v, want %.200s", test.name, got, err, want)
		}
	}
}

func TestAppendCallParamsRefuses(t *testing.T) {
	t.Parallel()
	cycle := map[string]any{}
	cycle["self"] = cycle
	for _, args := range []any{
		"text", 7, true, []any{}, []byte("[]"), []map[string]any{{}}, json.Number("7"),
		json.RawMessage(`[]`), json.RawMessage(`null`), json.RawMessage(`7`), json.RawMessage(`"{}"`), json.RawMessage(` `),
		json.RawMessage(`{"a":1`), json.RawMessage(`{"a":1}}`), json.RawMessage(`{}{}`), json.RawMessage("{}\x00"), json.RawMessage("{\"a\":\"\n\"}"),
		json.RawMessage("{\"a\":\"\xff\"}"), map[string]any{"a": json.RawMessage("\"\xff\"")},
		map[string]any{"f": func() {}}, map[string]any{"n": math.NaN()}, map[string]any{"r": json.RawMessage(`{`)}, cycle,
	} {
		if got, err := appendCallParams(nil, "t", args); err == nil {
			t.Errorf("%T was accepted: %.100s", args, got)
		}
	}
}

func TestCleanText(t *testing.T) {
	t.Parallel()
	tests := []struct{ in, want string }{
		{"plain é 汉 😀", "plain é 汉 😀"},
		{"a\nb\r\nc\td", "a b  c d"},
		{"\x1b[31;1mred\x1b[0m \u009b2Jx", "red x"},
		{"\x1b]0;title\athen \x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "then link"},
		{"\x1bPdevice\x1b\\x\x1b(By\x1b7z", "xByz"},
		{"\x1b]never ended", "never ended"},
		{"\x1b[12 \x01x", "12  x"},
		{"\x1b", " "},
		{"\x1b\n", " "},
		{"\x1bé", "é"},
		{"a\u202eb\u2066c\u200bd\ufeffe\u00adf\u200dg\U000e0041h", "abcdefgh"},
		{"a\u2028b\u2029c\u0085d\x00e\x7ff", "a b c d e f"},
		{"a\xffb\xe2\x82", "a\ufffdb\ufffd\ufffd"},
		{"", ""},
	}
	for _, test := range tests {
		if got := cleanText(test.in, 1000); got != test.want {
			t.Errorf("cleanText(%q) = %q, want %q", test.in, got, test.want)
		}
	}
}

func TestCleanTextIsBounded(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		in    string
		limit int
		want  string
	}{
		{"abcdef", 6, "abcdef"}, {"abcdefg", 6, "abc…"}, {"ééé", 6, "ééé"}, {"éééé", 6, "é…"}, {"ééééé", 7, "éé…"}, {"abcd", 3, "…"}, {"abc\u200b\u200b", 3, "abc"},
	} {
		if got := cleanText(test.in, test.limit); got != test.want {
			t.Errorf("cleanText(%q, %d) = %q, want %q", test.in, test.limit, got, test.want)
		}
	}
	for _, limit := range []int{0, 1, 2} {
		if got := cleanText("abcdef", limit); len(got) > limit || !utf8.ValidString(got) {
			t.Errorf("a limit of %d gives %q", limit, got)
		}
	}
}

// manyTools is a page of about 600 kB.
func manyTools(n int) []byte {
	page := []byte(`{"tools":[`)
	for i := range n {
		if i > 0 {
			page = append(page, ',')
		}
		page = fmt.Appendf(page, `{"name":"tool_%04d","description":"Looks for something in the files of a project and tells where it is","inputSchema":`+
			`{"type":"object","properties":{"path":{"type":"string","description":"the path of a file"},"limit":{"type":"integer"}},"required":["path"]},`+
			`"annotations":{"readOnlyHint":true}}`, i)
	}
	return append(page, `]}`...)
}

func BenchmarkDecodeToolsPage(b *testing.B) {
	page := manyTools(2000)
	b.SetBytes(int64(len(page)))
	b.ReportAllocs()
	for b.Loop() {
		if got, err := decodeToolsPage(page); err != nil || len(got.tools) != 2000 {
			b.Fatal(len(got.tools), err)
		}
	}
}

func BenchmarkDecodeCallToolResult(b *testing.B) {
	texts := append([]struct{ name, text string }{{"small", "hello, world"}}, bigTexts...)
	for _, test := range texts {
		raw := append(appendString([]byte(`{"content":[{"type":"text","text":`), test.text), `}]}`...)
		b.Run(test.name, func(b *testing.B) {
			b.SetBytes(int64(len(raw)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := decodeCallToolResult(raw); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func encodedRequest(t *testing.T, dst []byte, id int64, method string, params []byte) string {
	t.Helper()
	var encode func([]byte) ([]byte, error)
	if params != nil {
		encode = func(dst []byte) ([]byte, error) { return append(dst, params...), nil }
	}
	line, err := appendRequest(dst, id, method, nil, encode)
	if err != nil {
		t.Fatal(err)
	}
	return string(line)
}
