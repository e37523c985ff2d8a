package mcp

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// Why a line is no message. A reader skips such lines and counts them.
var (
	errSyntax    = errors.New("not valid JSON")
	errNotObject = errors.New("valid JSON, but not an object")
)

// maxBatch bounds the elements of one batch. The slice that names them costs
// twelve times the text of the shortest ones, and a real batch answers calls in
// flight, of which there are far fewer.
const maxBatch = 100_000

// message is one JSON-RPC message, taken apart as far as routing needs. The
// slices are raw JSON values; nil means that the member is absent. They alias
// the line they were parsed from.
type message struct {
	jsonrpc bool // the member "jsonrpc" is there and says "2.0"
	deep    bool // it nests deeper than maxDepth
	id      []byte
	method  []byte
	params  []byte
	result  []byte
	err     []byte
}

// maxDepth is how deep an answer may nest. This package knows no such limit, but
// encoding/json does, and the host is to encode again what it gets.
const maxDepth = 10_000

// parseMessage takes apart one line, which must hold one valid JSON object and
// nothing else but white space and a byte order mark in front. One pass checks
// the syntax and finds the members; names count exactly as spelled, and of a
// member that comes twice the last one counts, whole.
//
// Bytes that are not UTF-8 and lone halves of surrogate pairs are legal for
// encoding/json but break other parsers. A line that has them is parsed from a
// copy in which they are U+FFFD, so that whatever is kept raw can be encoded
// again anywhere.
func parseMessage(line []byte) (message, error) {
	s := scanner{data: trimBOM(line)}
	s.space()
	if s.peek() != '{' {
		return message{}, notObject(s.data)
	}
	var m message
	if !s.members(&m) || !s.atEnd() {
		return message{}, errSyntax
	}
	if s.illFormed() {
		return parseMessage(repair(s.data))
	}
	m.deep = s.deepest >= maxDepth // an empty innermost level does not count
	return m, nil
}

// notObject says why data, which does not start like an object, is no message.
func notObject(data []byte) error {
	if validJSON(data) {
		return errNotObject
	}
	return errSyntax
}

// set remembers the raw value of a member that routing needs.
func (m *message) set(name, value []byte) {
	switch string(name) {
	case "jsonrpc":
		m.jsonrpc = string(value) == `"2.0"` || decodeString(value) == "2.0"
	case "id":
		m.id = value
	case "method":
		m.method = value
	case "params":
		m.params = value
	case "result":
		m.result = value
	case "error":
		m.err = value
	}
}

// isBlank reports whether a line holds nothing, which is harmless.
func isBlank(line []byte) bool {
	s := scanner{data: trimBOM(line)}
	return s.atEnd()
}

// isBatch reports whether a line starts like a JSON array.
func isBatch(line []byte) bool {
	s := scanner{data: trimBOM(line)}
	s.space()
	return s.peek() == '['
}

// parseBatch gives the elements of a line that holds one valid JSON array.
// They alias the line, and each is a matter for parseMessage.
func parseBatch(line []byte) ([][]byte, error) {
	data := trimBOM(line)
	if !isBatch(data) || !validJSON(data) {
		return nil, errSyntax
	}
	var elements [][]byte
	c := newArrayCursor(data)
	for value, ok := c.next(); ok; value, ok = c.next() {
		if len(elements) == maxBatch {
			return nil, fmt.Errorf("a batch of more than %d messages", maxBatch)
		}
		elements = append(elements, value)
	}
	return elements, nil
}

// parseID gives the integer that a raw id stands for. Servers echo the number 7
// as 7, as 7.0 (their numbers are floats) or as "7" (their ids are strings);
// nothing else can be an id of ours.
func parseID(raw []byte) (int64, bool) {
	if n, ok := parseDigits(raw); ok {
		return n, true
	}
	if kindOf(raw) == '"' {
		text, _ := unquote(raw)
		n, err := strconv.ParseInt(text, 10, 64)
		return n, err == nil && strconv.FormatInt(n, 10) == text
	}
	return parseIntegral(raw)
}

// parseDigits reads the form that nearly every id has, without allocating.
func parseDigits(raw []byte) (n int64, ok bool) {
	if len(raw) == 0 || len(raw) > 18 || raw[0] == '0' {
		return 0, false
	}
	for _, c := range raw {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = n*10 + int64(c-'0')
	}
	return n, true
}

// parseIntegral reads any JSON number whose value is an integer that fits in 64
// bits. It works on the digits: a float64 is not exact past 2^53.
func parseIntegral(raw []byte) (int64, bool) {
	number := bytes.ToLower(raw)
	if kindOf(number) != '0' || !validJSON(number) {
		return 0, false
	}
	mantissa, exponent, _ := strings.Cut(string(bytes.TrimSpace(number)), "e")
	mantissa, negative := strings.CutPrefix(mantissa, "-")
	whole, fraction, _ := strings.Cut(mantissa, ".")
	digits := strings.TrimLeft(whole+fraction, "0")
	if digits == "" {
		return 0, true
	}
	shift, ok := parseShift(exponent)
	trimmed := strings.TrimRight(digits, "0")
	shift += len(digits) - len(trimmed) - len(fraction)
	if !ok || shift < 0 || len(trimmed)+shift > 19 {
		return 0, false
	}
	if negative {
		trimmed = "-" + trimmed
	}
	n, err := strconv.ParseInt(trimmed+strings.Repeat("0", shift), 10, 64)
	return n, err == nil
}

// parseShift reads the exponent of a number, none being 0. The bound keeps sums
// with lengths of text from overflowing.
func parseShift(exponent string) (int, bool) {
	if exponent == "" {
		return 0, true
	}
	n, err := strconv.ParseInt(exponent, 10, 32)
	return int(n), err == nil && -1<<30 < n && n < 1<<30
}

// validJSON reports whether b is one JSON value. It accepts and refuses what
// json.Valid does, except that it knows no limit of depth: encoding/json gives
// up on a whole line that nests 10,000 deep, and the call it answers would hang.
func validJSON(b []byte) bool {
	s := scanner{data: b}
	s.space()
	return s.value() && s.atEnd()
}

// scanner checks JSON text from left to right. It does not recurse, so a line
// of a million opening brackets costs a bit for each and no stack.
type scanner struct {
	data []byte
	pos  int

	// The open containers, one bit each, 1 for an object. inner holds the
	// innermost ones (its lowest bit is the innermost), outer, 64 a word,
	// those further out.
	depth   int
	deepest int
	inner   uint64
	outer   []uint64

	wide bool // a string holds bytes beyond ASCII
	lone bool // a string holds an escaped half of a surrogate pair
}

// step is what a piece of a value leaves the scanner with.
type step uint8

const (
	stepFail  step = iota // the text is not JSON
	stepValue             // a value is due
	stepDone              // a value is complete
)

// value checks one value of any depth, which starts at pos.
func (s *scanner) value() bool {
	for at := s.begin(); at != stepFail; {
		switch {
		case at == stepValue:
			at = s.begin()
		case s.depth > 0:
			at = s.follow()
		default:
			return true
		}
	}
	return false
}

// begin reads a scalar, or the opening of a container up to its first value.
func (s *scanner) begin() step {
	switch c := s.peek(); c {
	case '"':
		return s.done(s.quoted())
	case '{':
		return s.open(1, '}')
	case '[':
		return s.open(0, ']')
	case 't':
		return s.done(s.literal("true"))
	case 'f':
		return s.done(s.literal("false"))
	case 'n':
		return s.done(s.literal("null"))
	default:
		return s.done(s.number())
	}
}

func (s *scanner) done(ok bool) step {
	if ok {
		return stepDone
	}
	return stepFail
}

// open enters a container, unless it is empty.
func (s *scanner) open(kind uint64, closing byte) step {
	s.pos++
	s.space()
	if s.peek() == closing {
		s.pos++
		return stepDone
	}
	s.push(kind)
	return s.due()
}

// due moves to where the next value of the innermost container starts.
func (s *scanner) due() step {
	if s.inner&1 == 0 || s.name() {
		return stepValue
	}
	return stepFail
}

// follow reads what comes after a value inside of a container.
func (s *scanner) follow() step {
	s.space()
	switch c := s.peek(); {
	case c == ',':
		s.pos++
		s.space()
		return s.due()
	case c == '}' && s.inner&1 == 1, c == ']' && s.inner&1 == 0:
		s.pos++
		s.pop()
		return stepDone
	}
	return stepFail
}

func (s *scanner) push(kind uint64) {
	if s.depth > 0 && s.depth%64 == 0 {
		s.outer = append(s.outer, s.inner)
	}
	s.inner = s.inner<<1 | kind
	s.depth++
	s.deepest = max(s.deepest, s.depth)
}

func (s *scanner) pop() {
	s.inner >>= 1
	s.depth--
	if s.depth > 0 && s.depth%64 == 0 {
		last := len(s.outer) - 1
		s.inner, s.outer = s.outer[last], s.outer[:last]
	}
}

// members reads an object and hands its members to m.
func (s *scanner) members(m *message) bool {
	s.pos++
	s.space()
	if s.peek() == '}' {
		s.pos++
		return true
	}
	for {
		start := s.pos
		if !s.name() {
			return false
		}
		name, value := s.data[start:], s.pos
		if !s.value() {
			return false
		}
		m.set(memberName(name[:skipString(name, 0)]), s.data[value:s.pos:s.pos])
		s.space()
		switch c := s.peek(); c {
		case '}':
			s.pos++
			return true
		case ',':
			s.pos++
			s.space()
		default:
			return false
		}
	}
}

// name reads a member's name and its colon.
func (s *scanner) name() bool {
	if s.peek() != '"' || !s.quoted() {
		return false
	}
	s.space()
	if s.peek() != ':' {
		return false
	}
	s.pos++
	s.space()
	return true
}

// peek gives the next byte, or 0, which starts nothing, at the end.
func (s *scanner) peek() byte {
	if s.pos < len(s.data) {
		return s.data[s.pos]
	}
	return 0
}

func (s *scanner) space() {
	s.pos = skipSpace(s.data, s.pos)
}

func (s *scanner) atEnd() bool {
	s.space()
	return s.pos == len(s.data)
}

func (s *scanner) literal(word string) bool {
	if len(s.data)-s.pos < len(word) || string(s.data[s.pos:s.pos+len(word)]) != word {
		return false
	}
	s.pos += len(word)
	return true
}

func (s *scanner) number() bool {
	if s.peek() == '-' {
		s.pos++
	}
	if s.peek() == '0' {
		s.pos++
	} else if !s.digits() {
		return false
	}
	if s.peek() == '.' {
		s.pos++
		if !s.digits() {
			return false
		}
	}
	if s.peek()|0x20 == 'e' {
		s.pos++
		if c := s.peek(); c == '+' || c == '-' {
			s.pos++
		}
		return s.digits()
	}
	return true
}

// digits reads one digit or more.
func (s *scanner) digits() bool {
	start := s.pos
	for s.pos < len(s.data) && s.data[s.pos]-'0' <= 9 {
		s.pos++
	}
	return s.pos > start
}

// quoted reads a string, whose opening quote is at pos.
func (s *scanner) quoted() bool {
	s.pos++
	for {
		s.plain()
		switch s.peek() {
		case '"':
			s.pos++
			return true
		case '\\':
			if !s.escape() {
				return false
			}
		default:
			return false
		}
	}
}

// plain moves over what stands for itself in a string, eight bytes at a time,
// and over most short escapes, so that text full of them need not come back here
// for each.
func (s *scanner) plain() {
	data, pos, seen := s.data, s.pos, uint64(0)
	for words := 0; len(data)-pos >= 8; {
		word := binary.LittleEndian.Uint64(data[pos:])
		seen |= word
		marks := endsPlain(word)
		if marks == 0 {
			pos += 8
			if words++; words%4 == 0 {
				pos, seen = plainBlocks(data, pos, seen)
			}
			continue
		}
		pos += bits.TrailingZeros64(marks) / 8
		if data[pos] != '\\' || len(data)-pos < 2 || escaped[data[pos+1]] == 0 {
			break
		}
		pos += 2
	}
	for ; pos < len(data) && endsPlain(uint64(data[pos])|evenSpaces) == 0; pos++ {
		seen |= uint64(data[pos])
	}
	s.pos = pos
	s.wide = s.wide || seen&topBits != 0
}

// plainBlocks moves over plain blocks of four words: a long text is not to wait
// for a branch at each of them. The top bits of seen collect what is not ASCII.
func plainBlocks(data []byte, pos int, seen uint64) (int, uint64) {
	for ; len(data)-pos >= 32; pos += 32 {
		block := data[pos : pos+32 : pos+32]
		a := binary.LittleEndian.Uint64(block)
		b := binary.LittleEndian.Uint64(block[8:])
		c := binary.LittleEndian.Uint64(block[16:])
		d := binary.LittleEndian.Uint64(block[24:])
		if endsPlain(a)|endsPlain(b)|endsPlain(c)|endsPlain(d) != 0 {
			break
		}
		seen |= a | b | c | d
	}
	return pos, seen
}

// escaped gives the character that a short escape stands for, by the letter
// behind its backslash.
var escaped = [256]byte{
	'"': '"', '\\': '\\', '/': '/', 'b': '\b', 'f': '\f', 'n': '\n', 'r': '\r', 't': '\t',
}

const (
	eachByte   = 0x0101010101010101
	topBits    = 0x8080808080808080
	evenSpaces = ' ' * (eachByte - 1) // spaces in all bytes but the lowest
)

// endsPlain marks, by their top bits, the bytes of a word that a string cannot
// hold as they are: quote, backslash, control characters. A borrow may mark a
// byte too many above a true one, so only the lowest mark counts.
func endsPlain(word uint64) uint64 {
	controlOrQuote := word ^ 2*eachByte - ('"'-1)*eachByte
	return controlOrQuote&^word&topBits | hasBackslash(word)
}

// escape reads one escape, or both when they are the halves of a pair.
func (s *scanner) escape() bool {
	if s.pos+1 >= len(s.data) {
		return false
	}
	if escaped[s.data[s.pos+1]] != 0 {
		s.pos += 2
		return true
	}
	unit := hexUnit(s.data[s.pos:])
	if unit < 0 {
		return false
	}
	s.pos += s.unitLength(unit)
	return true
}

// unitLength tells how many bytes the escape of unit takes, and notes a half
// that has lost its other half.
func (s *scanner) unitLength(unit rune) int {
	if !utf16.IsSurrogate(unit) {
		return 6
	}
	if utf16.DecodeRune(unit, hexUnit(s.data[s.pos+6:])) != utf8.RuneError {
		return 12
	}
	s.lone = true
	return 6
}

// illFormed reports whether what was scanned, though valid for encoding/json,
// is no well-formed Unicode.
func (s *scanner) illFormed() bool {
	return s.lone || s.wide && !utf8.Valid(s.data)
}

// repair copies JSON text with U+FFFD for each byte that is not UTF-8 and each
// escaped half of a surrogate pair: the values that encoding/json decodes to.
func repair(data []byte) []byte {
	fixed := make([]byte, 0, len(data)+64)
	for len(data) > 0 {
		n, sound := leadingUnit(data)
		if sound {
			fixed = append(fixed, data[:n]...)
		} else {
			fixed = utf8.AppendRune(fixed, utf8.RuneError)
		}
		data = data[n:]
	}
	return fixed
}

// leadingUnit measures the character or the escape at the start of data, and
// tells whether it is well formed.
func leadingUnit(data []byte) (n int, sound bool) {
	if data[0] != '\\' || len(data) < 2 {
		r, size := utf8.DecodeRune(data)
		return size, r != utf8.RuneError || size > 1
	}
	unit := hexUnit(data)
	if unit < 0 {
		return 2, true
	}
	s := scanner{data: data}
	n = s.unitLength(unit)
	return n, !s.lone
}

// hexUnit reads the escape \uXXXX at the start of b, or gives -1.
func hexUnit(b []byte) rune {
	if len(b) < 6 || b[0] != '\\' || b[1] != 'u' {
		return -1
	}
	var unit rune
	for _, c := range b[2:6] {
		switch {
		case '0' <= c && c <= '9':
			c -= '0'
		case 'a' <= c|0x20 && c|0x20 <= 'f':
			c = c | 0x20 - 'a' + 10
		default:
			return -1
		}
		unit = unit<<4 | rune(c)
	}
	return unit
}

// trimBOM takes away a byte order mark, which some runtimes write first.
func trimBOM(line []byte) []byte {
	return bytes.TrimPrefix(line, []byte("\xef\xbb\xbf"))
}

func skipSpace(b []byte, i int) int {
	for i < len(b) && (b[i] == ' ' || b[i] == '\n' || b[i] == '\r' || b[i] == '\t') {
		i++
	}
	return i
}

// kindOf tells what a raw value is by its first byte: one of { [ " t f n, or the
// digit 0 for every number. An empty value, which is that of an absent member,
// gives the byte 0.
func kindOf(raw []byte) byte {
	i := skipSpace(raw, 0)
	switch {
	case i == len(raw):
		return 0
	case raw[i] == '-' || raw[i]-'0' <= 9:
		return '0'
	}
	return raw[i]
}

// isNull reports whether a member is absent or null, which mean the same
// nearly everywhere.
func isNull(raw []byte) bool {
	kind := kindOf(raw)
	return kind == 'n' || kind == 0
}

// objectCursor walks over the members of an object that was found valid. Text
// may follow the object: when next has given false, pos is where it starts. On
// other input the cursor may stop early, but it never leaves the slice.
type objectCursor struct {
	raw []byte
	pos int
}

// newObjectCursor starts at the first member; what is no object has none.
func newObjectCursor(raw []byte) objectCursor {
	return objectCursor{raw: raw, pos: enter(raw, '{')}
}

// next gives the next member: its unescaped name and its raw value, both
// aliasing the object where they can.
func (c *objectCursor) next() (name, value []byte, ok bool) {
	start := skipSeparator(c.raw, c.pos)
	if start == len(c.raw) || c.raw[start] != '"' {
		c.pos = min(start+1, len(c.raw)) // behind the closing bracket
		return nil, nil, false
	}
	end := skipString(c.raw, start)
	name = memberName(c.raw[start:end])
	start = skipSeparator(c.raw, end)
	c.pos = skipValue(c.raw, start)
	return name, c.raw[start:c.pos:c.pos], true
}

// arrayCursor walks over the elements of an array that was found valid, as
// objectCursor does over members.
type arrayCursor struct {
	raw []byte
	pos int
}

// newArrayCursor starts at the first element; what is no array has none.
func newArrayCursor(raw []byte) arrayCursor {
	return arrayCursor{raw: raw, pos: enter(raw, '[')}
}

// next gives the next raw element.
func (c *arrayCursor) next() (value []byte, ok bool) {
	rest := c.rest()
	n := skipValue(rest, 0)
	c.pos += n
	return rest[:n:n], n > 0
}

// rest gives what starts with the next element, or nothing at the end. A decoder
// that walks over the element anyway says with skip where it ended: to find that
// out beforehand would be one more pass over it.
func (c *arrayCursor) rest() []byte {
	c.pos = skipSeparator(c.raw, c.pos)
	if c.pos == len(c.raw) || c.raw[c.pos] == ']' {
		return nil
	}
	return c.raw[c.pos:]
}

// skip moves behind the next element, which takes n bytes.
func (c *arrayCursor) skip(n int) {
	c.pos += n
}

// enter gives the place behind the opening bracket of raw, or its end.
func enter(raw []byte, opening byte) int {
	i := skipSpace(raw, 0)
	if i == len(raw) || raw[i] != opening {
		return len(raw)
	}
	return i + 1
}

// skipSeparator moves over white space and one comma or colon.
func skipSeparator(b []byte, i int) int {
	i = skipSpace(b, i)
	if i < len(b) && (b[i] == ',' || b[i] == ':') {
		i = skipSpace(b, i+1)
	}
	return i
}

// skipValue gives the end of the valid value that starts at i. It trusts the
// check made before, so it only counts brackets.
func skipValue(b []byte, i int) int {
	for depth := 0; i < len(b); {
		switch b[i] {
		case '"':
			i = skipString(b, i)
		case '{', '[':
			depth++
			i++
			continue
		case '}', ']':
			depth--
			i++
		case ' ', '\t', '\r', '\n', ',', ':':
			i++
			continue
		default:
			i = skipScalar(b, i)
		}
		if depth <= 0 {
			break
		}
	}
	return i
}

// skipScalar gives the end of a number or literal.
func skipScalar(b []byte, i int) int {
	for ; i < len(b); i++ {
		switch b[i] {
		case ',', '}', ']', ' ', '\t', '\r', '\n':
			return i
		}
	}
	return i
}

// skipString gives the end of the valid string that starts at i. Most strings
// end within a few words; what is longer is searched for quotes.
func skipString(b []byte, i int) int {
	i++
	for words := 0; words < 4 && len(b)-i >= 8; words++ {
		marks := endsPlain(binary.LittleEndian.Uint64(b[i:]))
		i += bits.TrailingZeros64(marks) / 8
		if marks == 0 {
			continue
		}
		if b[i] == '"' {
			return i + 1
		}
		i = min(i+2, len(b))
	}
	return skipToQuote(b, i)
}

// skipToQuote gives the end of a valid string from a place inside of it, which
// is not behind the backslash of an escape: behind the first quote that an even
// number of backslashes precedes.
func skipToQuote(b []byte, i int) int {
	for start := i; i < len(b); i++ {
		n := bytes.IndexByte(b[i:], '"')
		if n < 0 {
			break
		}
		i += n
		if !isEscaped(b[start:], i-start) {
			return i + 1
		}
	}
	return len(b)
}

// isEscaped reports whether the byte at i of a string stands behind an odd
// number of backslashes.
func isEscaped(b []byte, i int) bool {
	start := i
	for start > 0 && b[start-1] == '\\' {
		start--
	}
	return (i-start)%2 == 1
}

// memberName unescapes a raw name; nearly none has an escape.
func memberName(raw []byte) []byte {
	if bytes.IndexByte(raw, '\\') >= 0 {
		name, _ := unquote(raw)
		return []byte(name)
	}
	return raw[min(1, len(raw)):max(1, len(raw)-1)]
}

// unquote decodes a raw JSON string that was found valid, to the value that
// encoding/json gives: bytes that are not UTF-8 and lone halves of surrogate
// pairs become U+FFFD. What is no string gives false.
func unquote(raw []byte) (string, bool) {
	if len(raw) < 2 || raw[0] != '"' || raw[len(raw)-1] != '"' {
		return "", false
	}
	body := raw[1 : len(raw)-1]
	if !utf8.Valid(body) {
		body = repair(body)
	}
	first := bytes.IndexByte(body, '\\')
	if first < 0 {
		return string(body), true
	}
	return unescape(body, first)
}

// unescape copies the body of a string, whose first escape is at next. Source
// code has an escape every dozen bytes, so what lies between two of them goes
// through a small buffer, word by word, instead of the builder.
func unescape(body []byte, next int) (string, bool) {
	var text strings.Builder
	text.Grow(len(body))
	text.Write(body[:next])
	var chunk [1024]byte
	for body = body[next:]; len(body) > 0; {
		n, used := unescapeChunk(chunk[:], body)
		if used == 0 {
			return "", false
		}
		text.Write(chunk[:n])
		body = body[used:]
	}
	return text.String(), true
}

// unescapeChunk fills dst from src. It stops short of an escape that is none.
func unescapeChunk(dst, src []byte) (n, used int) {
	for len(dst)-n >= 8 && len(src)-used >= 8 {
		word := binary.LittleEndian.Uint64(src[used:])
		binary.LittleEndian.PutUint64(dst[n:], word)
		marks := hasBackslash(word)
		if marks == 0 {
			n, used = n+8, used+8
			continue
		}
		plain := bits.TrailingZeros64(marks) / 8
		n, used = n+plain, used+plain
		if len(src)-used >= 2 && escaped[src[used+1]] != 0 {
			dst[n] = escaped[src[used+1]]
			n, used = n+1, used+2
			continue
		}
		r, size := decodeEscape(src[used:])
		if size == 0 || len(dst)-n < utf8.UTFMax {
			return n, used
		}
		n += utf8.EncodeRune(dst[n:], r)
		used += size
	}
	return unescapeBytes(dst, src, n, used)
}

// unescapeBytes goes on from n and used where there is no room for a word.
func unescapeBytes(dst, src []byte, n, used int) (int, int) {
	for n < len(dst)-utf8.UTFMax && used < len(src) {
		if src[used] != '\\' {
			dst[n] = src[used]
			n, used = n+1, used+1
			continue
		}
		r, size := decodeEscape(src[used:])
		if size == 0 {
			break
		}
		n += utf8.EncodeRune(dst[n:], r)
		used += size
	}
	return n, used
}

// hasBackslash marks backslashes as endsPlain does.
func hasBackslash(word uint64) uint64 {
	return (word ^ '\\'*eachByte - eachByte) &^ word & topBits
}

// decodeEscape decodes the escape at the start of b, which takes n bytes. It
// gives 0 for n if there is none.
func decodeEscape(b []byte) (r rune, n int) {
	if len(b) >= 2 && escaped[b[1]] != 0 {
		return rune(escaped[b[1]]), 2
	}
	return decodeUnits(b)
}

// decodeUnits decodes \uXXXX, and the pair if it is the first half of one.
func decodeUnits(b []byte) (r rune, n int) {
	unit := hexUnit(b)
	if unit < 0 {
		return 0, 0
	}
	if !utf16.IsSurrogate(unit) {
		return unit, 6
	}
	if pair := utf16.DecodeRune(unit, hexUnit(b[6:])); pair != utf8.RuneError {
		return pair, 12
	}
	return utf8.RuneError, 6
}
