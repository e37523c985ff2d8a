package mcp

import (
	"bytes"
	"encoding/json"
	"errors"
	"math/big"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"
)

// jsonSamples are texts at which JSON parsers disagree or go wrong, valid and not.
var jsonSamples = []string{
	``, ` `, `null`, `true`, `false`, `nul`, `nulll`, `True`, `"`, `""`, `"a`, `"\"`, `"\\"`, `"\\\"`, `"\x"`,
	`"\u12"`, `"\u12g4"`, `"\u1234"`, `"\ud83d\ude00"`, `"\ud83d"`, `"\ude00\ud83d"`, `"\ud83d\ud83d\ude00"`, `"\uD83Dx"`,
	"\"tab\tin\"", "\"nul\x00in\"", "\"del\x7f\"", "\"\xff\"", "\"abc\xe2\x82\"", "\"\u2028\u2029\u0085\"", "\"long enough for a word\x1f\"",
	`"exactly8"`, `"seven77"`, `"nine99999"`, `"\b\f\n\r\t\/\\\""`, `"a long run of plain text, longer than four words of eight bytes each\n and more"`,
	`0`, `-0`, `01`, `-`, `+1`, `1.`, `.5`, `1.5`, `1e`, `1e+`, `1e+5`, `1E-5`, `1e400`, `0x10`, `NaN`, `--1`, `1 2`, `-a`,
	`[]`, `[ ]`, `[,]`, `[1,]`, `[,1]`, `[1 2]`, `[1,2]`, `[`, `]`, `[[]`, `[}`, `[]]`, `[1}`, `["a",{"b":[]},null]`,
	`{}`, `{ }`, `{,}`, `{"a"}`, `{"a":}`, `{"a":1,}`, `{a:1}`, `{1:1}`, `{"a":1 "b":2}`, `{"a":1,"b":2}`, `{"a":{"b":{}}}`, `{"a":1]`, `{"a" : 1 }`, `{"":0}`, `}`, `{`, `{"a":1}}`,
	" \t\r\n{ \"a\" \n:\r[ 1 , 2 ] } \n", "\ufeff{}", "\f1", "\v1", "1\x00", "// comment\n1",
	`{"jsonrpc":"2.0","id":7,"result":{"content":[{"type":"text","text":"hello"}]}}`,
	`{"jsonrpc":"2.0","id":7,"result":1,"result":{"a":[]},"error":null}`,
	`{"\u0069d":7,"meth\u006fd":"x","ID":8,"reſult":1}`,
	"{\"id\":\"\xff\",\"result\":\"\\ud800\"}",
}

// deepest is below the depth at which encoding/json gives up.
const deepest = 9_000

func nesting(data []byte) int {
	return bytes.Count(data, []byte("[")) + bytes.Count(data, []byte("{"))
}

func TestValidJSONAgreesWithEncodingJSON(t *testing.T) {
	t.Parallel()
	for _, sample := range jsonSamples {
		// Before and behind other text, so that words start at every place.
		for pad := range 9 {
			text := strings.Repeat(" ", pad) + sample + strings.Repeat(" ", 8-pad)
			if got, want := validJSON([]byte(text)), json.Valid([]byte(text)); got != want {
				t.Errorf("validJSON(%q) = %v, want %v", text, got, want)
			}
		}
		for cut := range len(sample) {
			if got, want := validJSON([]byte(sample[:cut])), json.Valid([]byte(sample[:cut])); got != want {
				t.Errorf("validJSON(%q) = %v, want %v", sample[:cut], got, want)
			}
		}
	}
}

func TestValidJSONTellsEveryByteOfAString(t *testing.T) {
	t.Parallel()
	for at := range 40 {
		for c := range 256 {
			text := []byte(`"` + strings.Repeat("x", 40) + `"`)
			text[1+at] = byte(c)
			if got, want := validJSON(text), json.Valid(text); got != want {
				t.Fatalf("validJSON(%q) = %v, want %v", text, got, want)
			}
		}
	}
}

// encoding/json refuses what nests deeper than 10,000, and so a call whose answer
// does that would never end.
func TestValidJSONKnowsNoLimitOfDepth(t *testing.T) {
	t.Parallel()
	for _, depth := range []int{1, 63, 64, 65, 127, 128, 129, 10_001, 100_000} {
		for _, pair := range [][2]string{{"[", "]"}, {`{"a":`, "}"}, {`[{"a":`, "}]"}} {
			text := strings.Repeat(pair[0], depth) + "1" + strings.Repeat(pair[1], depth)
			if !validJSON([]byte(text)) {
				t.Errorf("%d times %q was refused", depth, pair[0])
			}
			if validJSON([]byte(text[:len(text)-1])) {
				t.Errorf("%d times %q without the last bracket was accepted", depth, pair[0])
			}
			wrong := strings.Replace(text, "1", "1"+map[byte]string{']': "}", '}': "]"}[pair[1][0]], 1)
			if validJSON([]byte(wrong)) {
				t.Errorf("%d times %q with a wrong bracket inside was accepted", depth, pair[0])
			}
		}
	}
}

func TestParseMessage(t *testing.T) {
	t.Parallel()
	type parts struct {
		jsonrpc                           bool
		id, method, params, result, error string // "-": absent
	}
	tests := []struct {
		name, line string
		want       parts
	}{
		{"response", `{"jsonrpc":"2.0","id":7,"result":{"a":1}}`, parts{true, "7", "-", "-", `{"a":1}`, "-"}},
		{"result first", `{"result":{"a":1},"jsonrpc":"2.0","id":7}`, parts{true, "7", "-", "-", `{"a":1}`, "-"}},
		{"error", `{"jsonrpc":"2.0","id":"x","error":{"code":1}}`, parts{true, `"x"`, "-", "-", "-", `{"code":1}`}},
		{"request", `{"jsonrpc":"2.0","id":0,"method":"ping","params":{}}`, parts{true, "0", `"ping"`, "{}", "-", "-"}},
		{"null is not absent", `{"id":null,"result":null,"error":null}`, parts{false, "null", "-", "-", "null", "null"}},
		{"space, CR and BOM", "\ufeff \t{ \"id\" : 7 , \"result\" : [ 1 ] } \r", parts{false, "7", "-", "-", "[ 1 ]", "-"}},
		{"another version", `{"jsonrpc":"1.0","id":7}`, parts{false, "7", "-", "-", "-", "-"}},
		{"an escaped version", `{"jsonrpc":"\u0032.0","id":7}`, parts{true, "7", "-", "-", "-", "-"}},
		{"escaped names", `{"\u0069d":7,"\u0072esult":{}}`, parts{false, "7", "-", "-", "{}", "-"}},
		{"names in other cases", `{"ID":8,"Id":9,"Result":1,"reſult":2,"re\u017fult":3,"ERROR":4,"id ":5}`, parts{false, "-", "-", "-", "-", "-"}},
		{"the last of two counts", `{"id":1,"id":2,"result":{"a":1,"b":2},"result":{"c":3}}`, parts{false, "2", "-", "-", `{"c":3}`, "-"}},
		{"members further in", `{"id":1,"params":{"id":2,"method":"x"},"x":[{"result":1}]}`, parts{false, "1", "-", `{"id":2,"method":"x"}`, "-", "-"}},
		{"numbers as they are", `{"id":1,"result":[18446744073709551615,-0,1E2,1e400,0.10]}`, parts{false, "1", "-", "-", "[18446744073709551615,-0,1E2,1e400,0.10]", "-"}},
		{"nothing", `{}`, parts{false, "-", "-", "-", "-", "-"}},
		{"not UTF-8", "{\"id\":1,\"result\":\"a\xffb\xe2\x82\"}", parts{false, "1", "-", "-", "\"a\ufffdb\ufffd\ufffd\"", "-"}},
		{"half pairs", `{"id":1,"result":"\ud83d \ud83d\ude00 \ude00"}`, parts{false, "1", "-", "-", "\"\ufffd \\ud83d\\ude00 \ufffd\"", "-"}},
		{"line separators", "{\"id\":1,\"result\":\"\u2028\u2029\u0085\"}", parts{false, "1", "-", "-", "\"\u2028\u2029\u0085\"", "-"}},
	}
	show := func(raw []byte) string {
		if raw == nil {
			return "-"
		}
		return string(raw)
	}
	for _, test := range tests {
		m, err := parseMessage([]byte(test.line))
		got := parts{m.jsonrpc, show(m.id), show(m.method), show(m.params), show(m.result), show(m.err)}
		if err != nil || got != test.want {
			t.Errorf("%s: parseMessage(%q) = %+v, %v, want %+v", test.name, test.line, got, err, test.want)
		}
	}
}

func TestParseMessageRefuses(t *testing.T) {
	t.Parallel()
	tests := []struct {
		line string
		want error
	}{
		{``, errSyntax}, {`  `, errSyntax}, {`starting up`, errSyntax}, {`{"id":7`, errSyntax}, {`{"id":7}}`, errSyntax},
		{`{"id":7} {"id":8}`, errSyntax}, {`{"id":7,}`, errSyntax}, {`Content-Length: 50`, errSyntax}, {"\xff\xfe\x80 broken", errSyntax},
		{`[DEBUG] {"id":7}`, errSyntax}, {`{id:7}`, errSyntax}, {`{"id":07}`, errSyntax}, {`{"a":"` + "\x01" + `"}`, errSyntax},
		{`7`, errNotObject}, {`"text"`, errNotObject}, {`null`, errNotObject}, {`[{"id":7}]`, errNotObject}, {" true\r", errNotObject},
	}
	for _, test := range tests {
		if m, err := parseMessage([]byte(test.line)); !errors.Is(err, test.want) || !reflect.DeepEqual(m, message{}) {
			t.Errorf("parseMessage(%q) = %+v, %v, want %v", test.line, m, err, test.want)
		}
	}
}

func TestParseMessageOfASmallLineAllocatesNothing(t *testing.T) {
	line := []byte(`{"jsonrpc":"2.0","id":7,"result":{"content":[{"type":"text","text":"hello, wörld\n"}],"isError":false}}`)
	var id int64
	if n := testing.AllocsPerRun(100, func() {
		m, _ := parseMessage(line)
		id, _ = parseID(m.id)
	}); n != 0 || id != 7 {
		t.Errorf("%v allocations, id %d", n, id)
	}
}

func TestIsBlank(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]bool{"": true, " \t\r": true, "\ufeff": true, "\ufeff \r": true, "x": false, "{}": false, "\x00": false} {
		if got := isBlank([]byte(line)); got != want {
			t.Errorf("isBlank(%q) = %v", line, got)
		}
	}
}

func TestParseBatch(t *testing.T) {
	t.Parallel()
	tests := []struct {
		line string
		want []string // nil: refused
	}{
		{`[]`, []string{}},
		{" \ufeff", nil},
		{"\ufeff [ {\"id\":1} , 2,\"a,]\", [3,[4]] ,{\"b\":{\"c\":[]}}]\r", []string{`{"id":1}`, `2`, `"a,]"`, `[3,[4]]`, `{"b":{"c":[]}}`}},
		{`[INFO] started`, nil}, {`[1,2`, nil}, {`[1,]`, nil}, {`{"id":1}`, nil}, {``, nil},
		{"[" + strings.Repeat("0,", maxBatch) + "0]", nil},
	}
	for _, test := range tests {
		elements, err := parseBatch([]byte(test.line))
		if (err == nil) != (test.want != nil) || len(elements) != len(test.want) {
			t.Errorf("parseBatch(%.60q) = %d elements, %v", test.line, len(elements), err)
			continue
		}
		for i, element := range elements {
			if string(element) != test.want[i] {
				t.Errorf("parseBatch(%q)[%d] = %q", test.line, i, element)
			}
		}
	}
	for line, want := range map[string]bool{"[": true, "\ufeff \t[1": true, "{}": false, "": false, "1[": false} {
		if isBatch([]byte(line)) != want {
			t.Errorf("isBatch(%q) is not %v", line, want)
		}
	}
}

func TestParseID(t *testing.T) {
	t.Parallel()
	const refused = -99
	tests := map[string]int64{
		`7`: 7, `"7"`: 7, `7.0`: 7, `7e0`: 7, `7E+0`: 7, `70e-1`: 7, `0.7e1`: 7, `7.000`: 7, `"\u0037"`: 7, ` 7 `: 7, `700000000000000000000e-20`: 7,
		`0`: 0, `-0`: 0, `0.0`: 0, `0e99999999999`: 0, `-7`: -7, `"-7"`: -7, `"0"`: 0,
		`9007199254740993`: 9007199254740993, `9007199254740993.0`: 9007199254740993, `9223372036854775807`: 9223372036854775807, `-9223372036854775808`: -9223372036854775808,
		`9223372036854775808`: refused, `1e19`: refused, `1e400`: refused, `1e99999999999`: refused, `7.5`: refused, `75e-1`: refused, `7e-1`: refused,
		``: refused, `null`: refused, `true`: refused, `""`: refused, `"07"`: refused, `"+7"`: refused, `" 7"`: refused, `"7.0"`: refused, `"x"`: refused, `"-0"`: refused,
		`[7]`: refused, `{}`: refused, `07`: refused, `+7`: refused, `7.`: refused, `-`: refused, `7x`: refused, `"7`: refused,
	}
	for raw, want := range tests {
		n, ok := parseID([]byte(raw))
		if ok != (want != refused) || ok && n != want {
			t.Errorf("parseID(%q) = %d, %v", raw, n, ok)
		}
	}
}

func TestCursors(t *testing.T) {
	t.Parallel()
	raw := []byte(` { "a" : 1 ,"b\u0063":"x\"},]" , "":[ {"q":"]"} , [] ],"d":{ },"e":true, "a":null}`)
	var got []string
	c := newObjectCursor(raw)
	for name, value, ok := c.next(); ok; name, value, ok = c.next() {
		got = append(got, string(name)+"="+string(value))
	}
	want := []string{`a=1`, `bc="x\"},]"`, `=[ {"q":"]"} , [] ]`, `d={ }`, `e=true`, `a=null`}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("members %q, want %q", got, want)
	}
	for _, other := range []string{``, `[]`, `7`, `"x"`, `null`} {
		if c := newObjectCursor([]byte(other)); func() bool { _, _, ok := c.next(); return ok }() {
			t.Errorf("%q has a member", other)
		}
	}
	for _, other := range []string{``, `{}`, `7`, `[]`, ` [ ] `} {
		if c := newArrayCursor([]byte(other)); func() bool { _, ok := c.next(); return ok }() {
			t.Errorf("%q has an element", other)
		}
	}
}

// A value cannot be written past its end by an append: the message around it
// belongs to others.
func TestValuesAreFullSlices(t *testing.T) {
	t.Parallel()
	line := []byte(`{"id":7,"result":{"a":[1,2]}}`)
	m, _ := parseMessage(line)
	c := newObjectCursor(m.result)
	_, value, _ := c.next()
	for _, raw := range [][]byte{m.id, m.result, value} {
		if cap(raw) != len(raw) {
			t.Errorf("%s has room for %d bytes more", raw, cap(raw)-len(raw))
		}
	}
}

func TestUnquote(t *testing.T) {
	t.Parallel()
	for _, sample := range jsonSamples {
		checkUnquote(t, []byte(sample))
	}
	// Escapes and odd bytes at every place of a word and of a chunk.
	for _, part := range []string{`\n`, `\"`, `\\`, `\u00e9`, `\ud83d\ude00`, `\ud83d`, "\xff", "é", "\u2028"} {
		for pad := range 20 {
			checkUnquote(t, []byte(`"`+strings.Repeat("x", pad)+part+`"`))
			checkUnquote(t, []byte(`"\t`+strings.Repeat("x", 1000+pad)+part+strings.Repeat("y", pad)+`"`))
			checkUnquote(t, []byte(`"`+strings.Repeat(part, 300+pad)+`"`))
		}
	}
}

// checkUnquote holds unquote against encoding/json, for any text.
func checkUnquote(t *testing.T, raw []byte) {
	t.Helper()
	got, ok := unquote(raw)
	var want string
	trimmed := len(raw) > 0 && raw[0] == '"' && raw[len(raw)-1] == '"'
	if !trimmed || json.Unmarshal(raw, &want) != nil {
		return
	}
	if !ok || got != want {
		t.Errorf("unquote(%q) = %q, %v, want %q", raw, got, ok, want)
	}
	if n := skipString(raw, 0); n != len(raw) {
		t.Errorf("skipString(%q) = %d", raw, n)
	}
}

func FuzzUnquote(f *testing.F) {
	for _, sample := range jsonSamples {
		f.Add([]byte(sample))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		checkUnquote(t, data)
		checkUnquote(t, []byte(`"`+string(data)+`"`))
		quoted := appendString(nil, string(data))
		if encoded := encodedLikeJSON(t, string(data)); string(quoted) != encoded {
			t.Errorf("appendString gives %s, encoding/json %s", quoted, encoded)
		}
		checkUnquote(t, quoted)
	})
}

// encodedLikeJSON is what encoding/json makes of v without its escapes for HTML.
func encodedLikeJSON(t *testing.T, v any) string {
	t.Helper()
	var encoded strings.Builder
	encoder := json.NewEncoder(&encoded)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(v); err != nil {
		t.Fatal(err)
	}
	return strings.TrimSuffix(encoded.String(), "\n")
}

func FuzzParseMessage(f *testing.F) {
	for _, sample := range jsonSamples {
		f.Add([]byte(sample))
	}
	f.Add([]byte(strings.Repeat(`{"a":[`, 70) + strings.Repeat(`]}`, 70)))
	f.Fuzz(func(t *testing.T, data []byte) {
		if nesting(data) > deepest {
			return
		}
		if validJSON(data) != json.Valid(data) {
			t.Fatalf("validJSON(%q) = %v", data, !json.Valid(data))
		}
		if elements, err := parseBatch(data); err == nil {
			checkElements(t, data, elements)
		}
		m, err := parseMessage(data)
		body := bytes.TrimPrefix(data, []byte("\ufeff"))
		var want map[string]json.RawMessage
		isObject := json.Valid(body) && bytes.TrimLeft(body, " \t\r\n")[0] == '{'
		if isObject != (err == nil) {
			t.Fatalf("parseMessage(%q): %v", data, err)
		}
		if err != nil || json.Unmarshal(body, &want) != nil {
			return
		}
		for name, got := range map[string][]byte{"id": m.id, "method": m.method, "params": m.params, "result": m.result, "error": m.err} {
			checkSameValue(t, name, got, want[name])
		}
	})
}

func checkElements(t *testing.T, data []byte, elements [][]byte) {
	t.Helper()
	var want []json.RawMessage
	if json.Unmarshal(bytes.TrimPrefix(data, []byte("\ufeff")), &want) != nil || len(want) != len(elements) {
		t.Fatalf("parseBatch(%q) gives %d elements, want %d", data, len(elements), len(want))
	}
	for i := range want {
		if !bytes.Equal(elements[i], want[i]) {
			t.Errorf("element %d of %q is %q", i, data, elements[i])
		}
	}
}

// checkSameValue compares raw values by what they decode to, as a value may have
// been repaired on the way.
func checkSameValue(t *testing.T, name string, got, want []byte) {
	t.Helper()
	if (got == nil) != (want == nil) {
		t.Fatalf("%s is %q, want %q", name, got, want)
	}
	if got == nil || bytes.Equal(got, want) {
		return
	}
	if !utf8.Valid(got) {
		t.Errorf("%s was not repaired: %q", name, got)
	}
	if a, b := decodedExactly(t, got), decodedExactly(t, want); !reflect.DeepEqual(a, b) {
		t.Errorf("%s decodes to %v, want %v", name, a, b)
	}
}

func decodedExactly(t *testing.T, raw []byte) (v any) {
	t.Helper()
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.UseNumber()
	if err := decoder.Decode(&v); err != nil {
		t.Fatalf("%q: %v", raw, err)
	}
	return v
}

func FuzzParseID(f *testing.F) {
	for _, seed := range []string{`7`, `"7"`, `7.0`, `70e-1`, `-0.0e7`, `1e18`, `1e19`, `9223372036854775807`, `-9223372036854775808.0`, `0.000001e6`, `"07"`, `null`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		got, ok := parseID(raw)
		if !validJSON(raw) {
			if ok && kindOf(raw) != '"' {
				t.Fatalf("parseID(%q) = %d", raw, got)
			}
			return
		}
		text := strings.ToLower(strings.TrimSpace(string(raw)))
		if _, exponent, _ := strings.Cut(text, "e"); kindOf(raw) != '0' || len(exponent) > 4 {
			return
		}
		value, _ := new(big.Rat).SetString(text)
		want := value.IsInt() && value.Num().IsInt64()
		if ok != want || ok && got != value.Num().Int64() {
			t.Errorf("parseID(%q) = %d, %v, want %v", raw, got, ok, value)
		}
	})
}

// mebibyte gives a text of 1 MiB, plain or one that needs many escapes.
func mebibyte(piece string) string {
	return strings.Repeat(piece, 1<<20/len(piece)+1)[:1<<20]
}

var bigTexts = []struct{ name, text string }{
	{"plain", mebibyte("lorem ipsum dolor sit amet, ")},
	{"source", mebibyte("\tif err != nil {\n\t\treturn fmt.Errorf(\"reading %q: %w\", name, err)\n\t}\n")},
	{"wide", mebibyte("汉字编码, ")},
}

func BenchmarkScanMiB(b *testing.B) {
	for _, big := range bigTexts {
		line := []byte(`{"jsonrpc":"2.0","id":7,"result":{"content":[{"type":"text","text":`)
		line = append(appendString(line, big.text), `}]}}`...)
		b.Run(big.name, func(b *testing.B) {
			b.SetBytes(1 << 20)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := parseMessage(line); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkUnquoteMiB(b *testing.B) {
	for _, big := range bigTexts {
		raw := appendString(nil, big.text)
		b.Run(big.name, func(b *testing.B) {
			b.SetBytes(1 << 20)
			b.ReportAllocs()
			for b.Loop() {
				if _, ok := unquote(raw); !ok {
					b.Fatal("no string")
				}
			}
		})
	}
}

func BenchmarkQuoteMiB(b *testing.B) {
	for _, big := range bigTexts {
		b.Run(big.name, func(b *testing.B) {
			buffer := make([]byte, 0, 2<<20)
			b.SetBytes(1 << 20)
			b.ReportAllocs()
			for b.Loop() {
				buffer = appendString(buffer[:0], big.text)
			}
		})
	}
}
