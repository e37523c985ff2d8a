package mcp

import (
	"bytes"
	"errors"
	"fmt"
	"io"
)

// Sizes of a lineReader, in bytes unless said otherwise.
const (
	smallBuffer = 4 << 10  // what an idle connection holds
	largeBuffer = 64 << 10 // as much as a pipe holds on Linux
	calmReads   = 8        // so many small reads in a row give a larger buffer back

	overlongHead = 1 << 10 // kept of the start of a line over the limit
	overlongTail = 256     // kept of its end

	defaultDrainLimit = 1 << 30 // thrown away of one line before it counts as endless
	maxEmptyReads     = 100     // reads in a row that may give neither bytes nor an error
)

// errEndlessLine ends a connection whose server writes on and on without a
// newline: no answer can come after that.
var errEndlessLine = errors.New("the server writes a line without end")

// lineReader cuts what a server writes into lines. Only a line feed ends a line;
// how the bytes were cut into writes and reads never shows.
//
// An idle connection holds a small buffer, a busy one a larger. A line longer
// than that is kept as pieces and joined once, so that it costs twice its size
// at most; a buffer that doubles would peak at three times.
type lineReader struct {
	r          io.Reader
	limit      int // of one line, without its line feed
	drainLimit int

	buf        []byte
	start, end int   // the unread part of buf
	seen       int   // buf[start:seen] holds no line feed
	calm       int   // small reads in a row
	err        error // what the reader ended with

	// The line under way, as far as it did not fit in buf.
	pieces [][]byte
	size   int

	// The line being thrown away; overlong is nil if there is none.
	overlong *overlongLine
	tail     []byte
	dropped  int
}

func newLineReader(r io.Reader, limit int) *lineReader {
	return &lineReader{r: r, limit: limit, drainLimit: defaultDrainLimit}
}

// next gives the next line without its line feed. The caller may keep an owned
// line; any other is valid until the next call. A last line without a line feed
// counts, and then comes the reader's error, io.EOF at a plain end.
//
// A line over the limit gives an *overlongLine, twice: at once when the limit is
// passed, while the rest may take its time, and again with the tail when its
// end was reached. After that the next line follows. errEndlessLine is final.
func (l *lineReader) next() (line []byte, owned bool, err error) {
	if l.overlong != nil {
		return nil, false, l.drain()
	}
	for {
		stop, found := l.lineEnd()
		if l.size+stop-l.start > l.limit {
			return nil, false, l.overflow(stop)
		}
		if found {
			line, owned = l.take(stop)
			return line, owned, nil
		}
		if err := l.fill(); err != nil {
			return l.last(err)
		}
	}
}

// lineEnd finds the next line feed, or the end of what was read.
func (l *lineReader) lineEnd() (stop int, found bool) {
	n := bytes.IndexByte(l.buf[l.seen:l.end], '\n')
	if n < 0 {
		l.seen = l.end
		return l.end, false
	}
	return l.seen + n, true
}

// take cuts the line that ends at stop. A line larger than the small buffer is
// handed over, so that its buffer can go: the server may be idle from now on.
func (l *lineReader) take(stop int) (line []byte, owned bool) {
	line = l.buf[l.start:stop:stop]
	l.advance(stop + 1)
	switch {
	case l.pieces != nil:
		line = bytes.Join(append(l.pieces, line), nil)
		l.pieces, l.size = nil, 0
	case len(line) <= smallBuffer:
		return line, false
	case l.start == l.end && len(line) > len(l.buf)/2:
		l.buf, l.start, l.end, l.seen = nil, 0, 0, 0
	default:
		line = bytes.Clone(line)
	}
	l.calm = calmReads
	return line, true
}

// advance moves behind what was used. There is no line feed behind a last line.
func (l *lineReader) advance(to int) {
	l.start = min(to, l.end)
	l.seen = l.start
}

// last gives the line that the reader's end cut off, or else that end.
func (l *lineReader) last(err error) (line []byte, owned bool, _ error) {
	if l.size+l.end-l.start == 0 {
		return nil, false, err
	}
	line, owned = l.take(l.end)
	return line, owned, nil
}

// fill reads once, more often only if nothing comes.
func (l *lineReader) fill() error {
	if l.err != nil {
		return l.err
	}
	l.makeRoom()
	for range maxEmptyReads {
		n, err := l.r.Read(l.buf[l.end:])
		l.end += n
		l.err = err
		if n > 0 {
			l.observe(n)
			return nil
		}
		if err != nil {
			return err
		}
	}
	l.err = io.ErrNoProgress
	return l.err
}

// observe counts small reads: after a few, a larger buffer has done its work.
func (l *lineReader) observe(n int) {
	l.calm++
	if n > smallBuffer {
		l.calm = 0
	}
}

// makeRoom sees to it that a read has room, and no more than it needs.
func (l *lineReader) makeRoom() {
	partial := l.end - l.start
	switch {
	case l.buf == nil || l.calm >= calmReads && l.pieces == nil && len(l.buf) > smallBuffer && partial < smallBuffer:
		l.use(make([]byte, smallBuffer))
	case partial == largeBuffer:
		l.keepPiece()
	case l.end == len(l.buf) && len(l.buf) < largeBuffer:
		l.use(make([]byte, 4*len(l.buf)))
	case l.start > 0:
		l.use(l.buf)
	}
}

// use goes on in buf with the unread bytes at its start.
func (l *lineReader) use(buf []byte) {
	l.seen -= l.start
	l.end = copy(buf, l.buf[l.start:l.end])
	l.start, l.buf = 0, buf
}

// keepPiece sets a full buffer aside as a part of a long line.
func (l *lineReader) keepPiece() {
	l.pieces = append(l.pieces, l.buf)
	l.size += len(l.buf)
	l.buf = make([]byte, largeBuffer)
	l.start, l.end, l.seen = 0, 0, 0
}

// overflow gives up the line under way, read up to stop, and frees what was kept
// of it.
func (l *lineReader) overflow(stop int) error {
	l.overlong = &overlongLine{limit: l.limit}
	l.dropped, l.tail = 0, nil
	room := min(overlongHead, l.limit+1) // so much there is, however it was read
	for _, piece := range append(l.pieces, l.buf[l.start:stop]) {
		n := min(room, len(piece))
		l.overlong.head = append(l.overlong.head, piece[:n]...)
		room -= n
	}
	for _, piece := range l.pieces {
		l.drop(piece)
	}
	l.pieces, l.size = nil, 0
	return l.overlong
}

// drop counts bytes thrown away, and keeps the last of them.
func (l *lineReader) drop(b []byte) {
	l.dropped += len(b)
	l.tail = append(l.tail, b[max(0, len(b)-overlongTail):]...)
	l.tail = append(l.tail[:0], l.tail[max(0, len(l.tail)-overlongTail):]...)
}

// drain throws away the rest of a line over the limit.
func (l *lineReader) drain() error {
	for {
		stop, found := l.lineEnd()
		l.drop(l.buf[l.start:stop])
		l.advance(stop)
		if found {
			l.advance(stop + 1)
			return l.drained()
		}
		if l.dropped > l.drainLimit {
			l.err = errEndlessLine
		}
		if err := l.fill(); err != nil {
			l.overlong = nil
			return err
		}
	}
}

// drained reports the end of a line over the limit. The first report is the
// caller's, so this is another value.
func (l *lineReader) drained() error {
	whole := *l.overlong
	whole.tail, whole.ended = l.tail, true
	l.overlong, l.tail = nil, nil
	l.calm = calmReads
	return &whole
}

// overlongLine says that a line passed the limit, and holds what may tell which
// call it answers.
type overlongLine struct {
	limit int
	head  []byte // its first bytes
	tail  []byte // its last bytes, once it has ended
	ended bool
}

func (o *overlongLine) Error() string {
	return fmt.Sprintf("a message is longer than the limit of %d bytes", o.limit)
}

// looksLikeMessage tells an answer that was too long from noise that was.
func (o *overlongLine) looksLikeMessage() bool {
	kind := kindOf(trimBOM(o.head))
	return kind == '{' || kind == '['
}

// isFromServer tells a request or a notification, which answers no call.
func (o *overlongLine) isFromServer() bool {
	var head message
	readHead(o.head, &head)
	return head.method != nil
}

// id gives the raw id of the call that the line answers, if it shows. Most
// servers write the id first, those on the TypeScript SDK last, so it is looked
// for among the members before the large one and among those behind it. A line
// that shows a method is no answer.
func (o *overlongLine) id() (raw []byte, ok bool) {
	if kindOf(trimBOM(o.head)) != '{' {
		return nil, false
	}
	var head, tail message
	readHead(o.head, &head)
	if o.ended {
		readTail(o.tail, &tail)
	}
	switch {
	case head.method != nil || tail.method != nil:
		return nil, false
	case tail.id != nil:
		return tail.id, true
	case head.id != nil && (o.ended || head.result != nil || head.err != nil):
		return head.id, true
	}
	return nil, false
}

// readHead collects the members that the start of an object holds. The one that
// was cut off counts as there, but not as an id.
func readHead(head []byte, m *message) {
	s := scanner{data: trimBOM(head)}
	s.space()
	for s.peek() == '{' || s.peek() == ',' {
		s.pos++
		s.space()
		start := s.pos
		if !s.name() {
			return
		}
		name, value := s.data[start:], s.pos
		name = memberName(name[:skipString(name, 0)])
		whole := s.value()
		if whole && s.pos < len(s.data) || string(name) != "id" {
			m.set(name, s.data[value:s.pos:s.pos])
		}
		if !whole {
			return
		}
		s.space()
	}
}

// readTail collects the members at the end of an object, from the last one
// backwards as long as their values are scalars. In valid JSON a quote without
// an odd number of backslashes before it is the end of a string or its start, so
// walking backwards is as sure as walking forwards.
func readTail(tail []byte, m *message) {
	rest, ok := bytes.CutSuffix(bytes.TrimSpace(tail), []byte("}"))
	for ok {
		var name, value []byte
		rest, name, value, ok = cutLastMember(rest)
		if ok {
			keepLast(m, memberName(name), value)
		}
	}
}

// keepLast is set for a walk backwards, where what comes first is what counts.
func keepLast(m *message, name, value []byte) {
	switch string(name) {
	case "id":
		if m.id == nil {
			m.id = value
		}
	default:
		m.set(name, value)
	}
}

// cutLastMember takes a comma, a name and a scalar value off the end of b.
func cutLastMember(b []byte) (rest, name, value []byte, ok bool) {
	b = bytes.TrimSpace(b)
	start := lastScalar(b)
	value = b[start:]
	b, ok = bytes.CutSuffix(bytes.TrimSpace(b[:start]), []byte(":"))
	if !ok || len(value) == 0 {
		return nil, nil, nil, false
	}
	b = bytes.TrimSpace(b)
	start = lastScalar(b)
	name = b[start:]
	rest, ok = bytes.CutSuffix(bytes.TrimSpace(b[:start]), []byte(","))
	return rest, name, value, ok && kindOf(name) == '"'
}

// lastScalar finds where the string, number or literal that ends b starts. It
// gives len(b) if there is none that is whole.
func lastScalar(b []byte) int {
	if len(b) > 0 && b[len(b)-1] == '"' {
		return lastString(b)
	}
	i := len(b)
	for i > 0 && bytes.IndexByte([]byte("+-.0123456789Eaeflnrstu"), b[i-1]) >= 0 {
		i--
	}
	return i
}

// lastString finds the opening quote of the string that ends b.
func lastString(b []byte) int {
	for i := len(b) - 2; i >= 0; i-- {
		if b[i] == '"' && !isEscaped(b, i) {
			return i
		}
	}
	return len(b)
}
