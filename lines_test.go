package mcp

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"
	"testing"
	"testing/iotest"
)

// chunkReader gives its text in pieces of one size, whatever there is room for.
type chunkReader struct {
	text  []byte
	chunk int
}

func (c *chunkReader) Read(b []byte) (int, error) {
	if len(c.text) == 0 {
		return 0, io.EOF
	}
	n := copy(b, c.text[:min(c.chunk, len(c.text))])
	c.text = c.text[n:]
	return n, nil
}

// readEvents reads all lines and reports, in order, each line or error. It also
// checks that owned lines stay as they were.
func readEvents(t *testing.T, l *lineReader) []string {
	t.Helper()
	var events []string
	var kept [][]byte
	var texts []string
	for {
		line, owned, err := l.next()
		if owned {
			kept, texts = append(kept, line), append(texts, string(line))
		}
		if err == nil {
			events = append(events, "line "+string(line))
			continue
		}
		over, ok := errors.AsType[*overlongLine](err)
		if !ok {
			events = append(events, "end "+err.Error())
			break
		}
		events = append(events, fmt.Sprintf("over %d %v %q %q", over.limit, over.ended, over.head, over.tail))
	}
	for i, line := range kept {
		if string(line) != texts[i] {
			t.Errorf("an owned line of %d bytes has changed", len(line))
		}
	}
	return events
}

// wantEvents is readEvents as it should be, worked out on the whole text.
func wantEvents(text []byte, limit int) []string {
	var events []string
	for len(text) > 0 {
		line, rest, ended := bytes.Cut(text, []byte("\n"))
		text = rest
		if len(line) <= limit {
			events = append(events, "line "+string(line))
			continue
		}
		head := line[:min(overlongHead, limit+1)]
		events = append(events, fmt.Sprintf("over %d false %q %q", limit, head, ""))
		if ended {
			events = append(events, fmt.Sprintf("over %d true %q %q", limit, head, line[max(0, len(line)-overlongTail):]))
		}
	}
	return append(events, "end EOF")
}

// splittings are ways to read the same bytes.
func splittings(text []byte) map[string]io.Reader {
	readers := map[string]io.Reader{
		"whole":           bytes.NewReader(text),
		"halves":          iotest.HalfReader(bytes.NewReader(text)),
		"end with data":   iotest.DataErrReader(bytes.NewReader(text)),
		"with empty ones": io.MultiReader(bytes.NewReader(text), strings.NewReader("")),
	}
	for _, chunk := range []int{1000, 4095, 4096, 4097, 65535, 65536, 65537} {
		readers[fmt.Sprint("chunks of ", chunk)] = &chunkReader{text, chunk}
	}
	if len(text) < 150_000 { // more would take seconds with the race detector
		readers["single bytes"] = iotest.OneByteReader(bytes.NewReader(text))
		readers["chunks of 7"] = &chunkReader{text, 7}
	}
	return readers
}

func checkSplittings(t *testing.T, text []byte, limit int) {
	t.Helper()
	want := wantEvents(text, limit)
	for name, reader := range splittings(text) {
		if got := readEvents(t, newLineReader(reader, limit)); !reflect.DeepEqual(got, want) {
			t.Errorf("%d bytes with a limit of %d, %s: got %.300q, want %.300q", len(text), limit, name, got, want)
		}
	}
}

func TestLineReaderDoesNotShowHowBytesWereSplit(t *testing.T) {
	t.Parallel()
	small := "{\"id\":1}\n\n \r\n{\"id\":2}\r\nlast"
	checkSplittings(t, []byte(small), 100)
	checkSplittings(t, []byte(small+"\n"), 100)
	checkSplittings(t, nil, 100)
	checkSplittings(t, []byte("\n"), 0)
	for _, size := range []int{4095, 4096, 4097, 16384, 16385, 40_000, 65_535, 65_536, 65_537, 131_072, 200_000} {
		long := strings.Repeat("0123456789abcdef", size/16+1)[:size]
		checkSplittings(t, []byte("first\n"+long+"\nsecond\n"+long+"\n"+long), 1<<20)
	}
}

func TestLineReaderKeepsTheLimit(t *testing.T) {
	t.Parallel()
	for _, limit := range []int{1, 100, 1023, 1024, 1025, 4095, 4096, 4097, 65_535, 65_537, 150_000} {
		for _, size := range []int{limit - 1, limit, limit + 1, limit + 300, limit + 90_000} {
			long := strings.Repeat("0123456789abcde,", size/16+1)[:size]
			checkSplittings(t, []byte("a\n"+long+"\nb\n"+long), limit)
		}
	}
}

// heldBy counts the memory that a reader holds on to.
func heldBy(l *lineReader) int {
	held := cap(l.buf) + cap(l.tail)
	for _, piece := range l.pieces {
		held += cap(piece)
	}
	return held
}

// A server that never ends its line costs the limit and a buffer, no more, and a
// buffer once the limit is passed.
func TestLineReaderMemoryIsBounded(t *testing.T) {
	t.Parallel()
	const limit = 1 << 20
	var l *lineReader
	var most, after int
	flood := readerFunc(func(b []byte) (int, error) {
		if most = max(most, heldBy(l)); l.overlong != nil {
			after = max(after, heldBy(l))
		}
		return copy(b, bytes.Repeat([]byte("x"), 10_000)), nil
	})
	l = newLineReader(flood, limit)
	l.drainLimit = 8 << 20
	if _, _, err := l.next(); !isOverlong(err, false) {
		t.Fatalf("at the limit: %v", err)
	}
	for range 2 {
		if _, _, err := l.next(); !errors.Is(err, errEndlessLine) {
			t.Fatalf("past the drain limit: %v", err)
		}
	}
	if most > limit+largeBuffer || after > largeBuffer+4*overlongTail+overlongHead {
		t.Errorf("%d bytes held at most, %d after the limit", most, after)
	}
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(b []byte) (int, error) { return f(b) }

func isOverlong(err error, ended bool) bool {
	over, ok := errors.AsType[*overlongLine](err)
	return ok && over.ended == ended
}

// An idle connection must not keep what its last long message needed: by the
// time the next read may block, that has been given back.
func TestLineReaderGivesBuffersBack(t *testing.T) {
	t.Parallel()
	for _, size := range []int{5_000, 20_000, 40_000, 300_000, 2_000_000} {
		source := &chunkReader{[]byte(strings.Repeat("x", size) + "\n"), 50_000}
		held := -1
		var l *lineReader
		l = newLineReader(readerFunc(func(b []byte) (int, error) {
			if len(source.text) == 0 {
				held = heldBy(l)
			}
			return source.Read(b)
		}), 1<<20)
		events := readEvents(t, l)
		if held < 0 || held > smallBuffer {
			t.Errorf("after a line of %d bytes (%d events) an idle reader holds %d", size, len(events), held)
		}
	}
}

// A burst of small messages gets a large buffer, and quiet takes it back.
func TestLineReaderBufferFollowsTheTraffic(t *testing.T) {
	t.Parallel()
	burst := bytes.Repeat([]byte("{\"a message\":1}\n"), 64<<10/16)
	quiet := bytes.Repeat([]byte("{}\n"), 3*calmReads)
	l := newLineReader(io.MultiReader(bytes.NewReader(burst), &chunkReader{quiet, 3}), 1<<20)
	most := 0
	for {
		if _, _, err := l.next(); err != nil {
			break
		}
		most = max(most, heldBy(l))
	}
	if most != largeBuffer || heldBy(l) != smallBuffer {
		t.Errorf("%d bytes in the burst, %d after it", most, heldBy(l))
	}
}

func TestLineReaderSmallLinesAllocateNothing(t *testing.T) {
	l := newLineReader(readerFunc(func(b []byte) (int, error) {
		return copy(b, "{\"jsonrpc\":\"2.0\",\"id\":7,\"result\":{}}\n"), nil
	}), 1<<20)
	if n := testing.AllocsPerRun(200, func() {
		if _, owned, err := l.next(); owned || err != nil {
			t.Fatalf("owned %v, %v", owned, err)
		}
	}); n != 0 {
		t.Errorf("%v allocations a line", n)
	}
}

func TestLineReaderErrors(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	tests := []struct {
		name   string
		reader io.Reader
		want   []string
	}{
		{"error behind a part", io.MultiReader(strings.NewReader("a\npart"), iotest.ErrReader(broken)), []string{"line a", "line part", "end broken"}},
		{"error at once", iotest.ErrReader(broken), []string{"end broken"}},
		{"a reader that gives nothing", readerFunc(func([]byte) (int, error) { return 0, nil }), []string{"end " + io.ErrNoProgress.Error()}},
		{"end inside of a long line", strings.NewReader("a\n0123456789"), []string{"line a", `over 8 false "012345678" ""`, "end EOF"}},
	}
	for _, test := range tests {
		l := newLineReader(test.reader, 8)
		if got := readEvents(t, l); !reflect.DeepEqual(got, test.want) {
			t.Errorf("%s: %q, want %q", test.name, got, test.want)
		}
		_, _, again := l.next()
		if end := "end " + again.Error(); end != test.want[len(test.want)-1] {
			t.Errorf("%s: then %q", test.name, end)
		}
	}
}

func FuzzLineReader(f *testing.F) {
	f.Add([]byte("a\nbb\r\n\nccc"), 2, 1)
	f.Add([]byte("0123456789\n0123456789"), 9, 3)
	f.Add(append(bytes.Repeat([]byte("x"), 5_000), "\ny\n"...), 4_999, 4_096)
	f.Add(append(bytes.Repeat([]byte("x"), 70_000), "\ny\n"...), 70_000, 1_000)
	f.Fuzz(func(t *testing.T, text []byte, limit, chunk int) {
		if limit < 0 || chunk < 1 {
			return
		}
		limit %= 1 << 20
		want := wantEvents(text, limit)
		if got := readEvents(t, newLineReader(&chunkReader{text, chunk}, limit)); !reflect.DeepEqual(got, want) {
			t.Errorf("got %.300q, want %.300q", got, want)
		}
	})
}

func TestOverlongLineTellsWhichCallItAnswers(t *testing.T) {
	t.Parallel()
	const none = "none"
	big := strings.Repeat(`x\"},\\`, 1_000)
	tests := []struct {
		name, line string
		early      string // while the line goes on
		want       string // when it has ended
	}{
		{"id first", `{"jsonrpc":"2.0","id":7,"result":{"content":"` + big + `"}}`, "7", "7"},
		{"id last", `{"result":{"content":["` + big + `"]},"jsonrpc":"2.0","id":7}`, none, "7"},
		{"id before the version", `{"result":"` + big + `","id":7,"jsonrpc":"2.0"}`, none, "7"},
		{"space", "\ufeff { \"jsonrpc\" : \"2.0\" , \"id\" : 7 , \"result\" : \"" + big + "\" } \r", "7", "7"},
		{"space, last", "{\"result\" : \"" + big + "\" , \"id\" : 7 , \"jsonrpc\" : \"2.0\" } \r", none, "7"},
		{"string id", `{"id":"a\"b","error":"` + big + `"}`, `"a\"b"`, `"a\"b"`},
		{"string id, last", `{"error":"` + big + `","id":"a\\\"b,"}`, none, `"a\\\"b,"`},
		{"escaped name", `{"i\u0064":7,"result":"` + big + `"}`, "7", "7"},
		{"escaped name, last", `{"result":"` + big + `","i\u0064":7}`, none, "7"},
		{"both: the last counts", `{"id":6,"result":"` + big + `","id":7}`, "6", "7"},
		{"twice at the end", `{"result":"` + big + `","id":6,"id":7}`, none, "7"},
		{"negative and float", `{"result":"` + big + `","id":-7.0e0}`, none, "-7.0e0"},
		{"null", `{"id":null,"error":"` + big + `"}`, "null", "null"},
		{"scalars behind", `{"result":"` + big + `","id":7,"a":true,"b":null,"c":"x","d":1}`, none, "7"},
		{"an object behind", `{"result":"` + big + `","id":7,"a":{}}`, none, none},
		{"id further in", `{"result":{"id":8,"text":"` + big + `","id":7}}`, none, none},
		{"id inside of a text", `{"result":"` + big + `\",\"id\":7}"}`, none, none},
		{"other spelling", `{"ID":7,"result":"` + big + `","Id":7}`, none, none},
		{"a request", `{"jsonrpc":"2.0","id":7,"method":"x","params":"` + big + `"}`, none, none},
		{"a request, method last", `{"id":7,"params":"` + big + `","method":"x"}`, none, none},
		{"a request, all last", `{"params":"` + big + `","method":"x","id":7}`, none, none},
		{"id, then something else", `{"id":7,"extra":"` + big + `"}`, none, "7"},
		{"id cut off", `{"result":1,"x":"` + strings.Repeat("y", 994) + `","id":123456,"z":"` + big + `"}`, none, none},
		{"a batch", `[{"id":7,"result":"` + big + `"}]`, none, none},
		{"noise", "id 7 " + big + `,"id":7}`, none, none},
		{"noise like an object", "{ starting: " + big, none, none},
		{"nothing but an end", "{" + strings.Repeat(" ", 5_000) + "}", none, none},
		{"a quote without a start", `{"a":` + strings.Repeat("y", 5_000) + `"}`, none, none},
	}
	for _, test := range tests {
		l := newLineReader(strings.NewReader(test.line+"\n"), 2_000)
		for _, want := range []string{test.early, test.want} {
			_, _, err := l.next()
			over, ok := errors.AsType[*overlongLine](err)
			if !ok {
				t.Fatalf("%s: %v", test.name, err)
			}
			id, ok := over.id()
			if got := string(id); ok != (want != none) || ok && got != want {
				t.Errorf("%s, ended %v: id %q, %v, want %s", test.name, over.ended, got, ok, want)
			}
		}
	}
}

func TestOverlongLineLooksLikeMessage(t *testing.T) {
	t.Parallel()
	for head, want := range map[string]bool{`{"id"`: true, "\ufeff [{": true, "  {": true, "log": false, "": false, `"{`: false} {
		if got := (&overlongLine{head: []byte(head)}).looksLikeMessage(); got != want {
			t.Errorf("%q: %v", head, got)
		}
	}
	if text := (&overlongLine{limit: 64 << 20}).Error(); !strings.Contains(text, "67108864") {
		t.Errorf("%q does not name the limit", text)
	}
}

// BenchmarkLineReader reads as from a pipe, 64 KiB at a time.
func BenchmarkLineReader(b *testing.B) {
	for _, size := range []int{100, 40_000, 1 << 20, 16 << 20} {
		text := append(bytes.Repeat([]byte("x"), size-1), '\n')
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			b.SetBytes(int64(size))
			b.ReportAllocs()
			source := &chunkReader{nil, largeBuffer}
			l := newLineReader(source, 64<<20)
			for b.Loop() {
				source.text = text
				if line, _, err := l.next(); len(line) != size-1 || err != nil {
					b.Fatal(len(line), err)
				}
			}
		})
	}
}
