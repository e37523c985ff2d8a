package mcp

import (
	"fmt"
	"strconv"
	"strings"
)

// oddities are what came from a server that was no message for us: counted, and
// one of each kind kept to explain a silence. Guarded by session.mu.
type oddities struct {
	noise      int    // lines that are no JSON-RPC messages
	firstNoise string // the first of them, cleaned
	orphan     string // the last error without a usable id, cleaned
	strays     int    // answers to no pending request: late ones, doubles, made-up ids
	stringIDs  bool   // ids came back as strings
	madeUp     string // the last id among them that was never ours
}

// maxSample bounds a line that is quoted in an error or a log.
const maxSample = 200

// noteNoise counts a line that is no message, and logs it once in a while.
func (s *session) noteNoise(line []byte) {
	sample := cleanText(string(line[:min(len(line), 2*maxSample)]), maxSample)
	s.mu.Lock()
	s.oddity.noise++
	n := s.oddity.noise
	if n == 1 {
		s.oddity.firstNoise = sample
	}
	s.mu.Unlock()
	if isPowerOfTen(n) {
		s.log.Warn("skipped output that is not a JSON-RPC message", "line", sample, "skipped", n)
	}
}

// noteOrphan keeps an answer whose id cannot be used: most likely the server
// could not read what we sent, and somebody waits for an answer in vain.
func (s *session) noteOrphan(line []byte, m message) {
	if isNull(m.err) {
		s.noteNoise(line)
		return
	}
	text := cleanText(decodeRPCError(m.err).Error(), maxSample)
	s.mu.Lock()
	s.oddity.orphan = text
	s.mu.Unlock()
	s.log.Warn("the server sent an error that names no request", "error", text)
}

// noteStringID logs once that the server gives our ids back as strings, which is
// accepted.
func (s *session) noteStringID(id []byte) {
	s.mu.Lock()
	first := !s.oddity.stringIDs
	s.oddity.stringIDs = true
	s.mu.Unlock()
	if first {
		s.log.Warn("the server answers an integer id with a string", "id", cleanText(string(id), 64))
	}
}

// noteStray counts an answer that nobody waits for.
func (s *session) noteStray(id int64) {
	known := id >= 1 && id <= s.lastID.Load() || isProbeID(id)
	s.mu.Lock()
	s.oddity.strays++
	n := s.oddity.strays
	if !known {
		s.oddity.madeUp = strconv.FormatInt(id, 10)
	}
	s.mu.Unlock()
	if isPowerOfTen(n) {
		s.log.Debug("dropped an answer that nobody waits for", "id", id, "dropped", n)
	}
}

func isPowerOfTen(n int) bool {
	for n >= 10 && n%10 == 0 {
		n /= 10
	}
	return n == 1
}

// hint is what may explain to a caller why its answer did not come; empty when
// nothing odd was seen.
func (s *session) hint() string {
	s.mu.Lock()
	seen := s.oddity
	s.mu.Unlock()
	var text strings.Builder
	if seen.noise > 0 {
		were := "were not JSON-RPC messages"
		if seen.noise == 1 {
			were = "was not a JSON-RPC message"
		}
		fmt.Fprintf(&text, "; %s of its output %s, the first: %q", plural(seen.noise, "line"), were, seen.firstNoise)
	}
	if seen.orphan != "" {
		fmt.Fprintf(&text, "; it sent an error that names no request: %q", seen.orphan)
	}
	if seen.madeUp != "" {
		fmt.Fprintf(&text, "; it answered a request that was never made (id %s)", seen.madeUp)
	}
	return text.String()
}
