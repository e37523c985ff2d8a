package mcp

import (
	"fmt"
	"strings"
)

// ServerState is one of the five conditions a server can be in. The zero value
// is StateOffline, so that whatever is unknown or forgotten promises nothing.
type ServerState uint8

const (
	// StateOffline: no usable connection. Reason says whether it comes back by
	// itself. Next: StateReady, StateDegraded, or StateStarting at the first
	// start and when a reconnected process takes longer than ReadyTimeout over
	// its handshake.
	StateOffline ServerState = iota

	// StateDisabled: switched off by configuration; no process, no line in the
	// status text, no tools. Final.
	StateDisabled

	// StateStarting: the process was started; the handshake or the first list
	// is still due. Next: StateReady, StateDegraded, StateOffline.
	StateStarting

	// StateReady: connected, with at least one tool. Next: StateDegraded,
	// StateOffline.
	StateReady

	// StateDegraded: connected, but the list is empty or could not be had.
	// Calls go through. Next: StateReady, StateOffline.
	StateDegraded

	stateCount
)

// stateNames are the strings that travel in a host's events.
var stateNames = [stateCount]string{
	StateOffline:  "offline",
	StateDisabled: "disabled",
	StateStarting: "starting",
	StateReady:    "ready",
	StateDegraded: "degraded",
}

// legalTransitions is the only table of what may follow what.
var legalTransitions = [stateCount][stateCount]bool{
	StateOffline:  {StateStarting: true, StateReady: true, StateDegraded: true},
	StateStarting: {StateOffline: true, StateReady: true, StateDegraded: true},
	StateReady:    {StateOffline: true, StateDegraded: true},
	StateDegraded: {StateOffline: true, StateReady: true},
}

// canBecome reports whether a server may go from one state to the other.
// Staying is no transition.
func (s ServerState) canBecome(to ServerState) bool {
	return s < stateCount && to < stateCount && legalTransitions[s][to]
}

// String returns the state's name; a value outside the five reads "offline".
func (s ServerState) String() string {
	if s >= stateCount {
		s = StateOffline
	}
	return stateNames[s]
}

// ServerStateFromString is the inverse of [ServerState.String]. An unknown
// string is StateOffline: any other guess would promise tools that never come.
func ServerStateFromString(name string) ServerState {
	for state, known := range stateNames {
		if name == known {
			return ServerState(state)
		}
	}
	return StateOffline
}

// MarshalText encodes the state as its name.
func (s ServerState) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText decodes as [ServerStateFromString] does; it never fails.
func (s *ServerState) UnmarshalText(text []byte) error {
	*s = ServerStateFromString(string(text))
	return nil
}

// CountsTools reports whether a server in this state has a list of tools that
// may be counted: only a connected one has, so only ready and degraded do.
func (s ServerState) CountsTools() bool { return s == StateReady || s == StateDegraded }

// Reason says why a server is in its state. The set is fixed and no server can
// add to it, which is what makes the status text safe in a prompt. A ready
// server has none.
type Reason string

const (
	ReasonHandshake         Reason = "waiting for the handshake"          // starting
	ReasonListing           Reason = "listing tools"                      // starting
	ReasonSlowHandshake     Reason = "still no answer to the handshake"   // starting, ReadyTimeout has passed
	ReasonNoTools           Reason = "connected, but it lists no tools"   // degraded
	ReasonListFailed        Reason = "tools/list failed"                  // degraded; the last good list is kept
	ReasonExited            Reason = "the process exited; reconnecting"   // offline
	ReasonOutputClosed      Reason = "it closed its output; reconnecting" // offline
	ReasonHandshakeFailed   Reason = "the handshake failed; reconnecting" // offline
	ReasonStartFailed       Reason = "could not be started; reconnecting" // offline
	ReasonCommandNotFound   Reason = "command not found"                  // offline, not retried
	ReasonNotExecutable     Reason = "not executable"                     // offline, not retried
	ReasonDirectoryNotFound Reason = "directory not found"                // offline, not retried
	ReasonNoVersion         Reason = "no common protocol version"         // offline, not retried
	ReasonGaveUp            Reason = "gave up"                            // offline, not retried; the line adds the attempts
	ReasonStopped           Reason = "stopped"                            // offline: by Shutdown or Close, or not started yet
)

// Permanent reports whether the package leaves a server in this condition
// alone until the host calls [Manager.Reconnect].
func (r Reason) Permanent() bool {
	switch r {
	case ReasonCommandNotFound, ReasonNotExecutable, ReasonDirectoryNotFound, ReasonNoVersion, ReasonGaveUp, ReasonStopped:
		return true
	}
	return false
}

// ServerHealth is what is known about one server at one moment. It is plain
// data: a copy that the reader may keep and change.
type ServerHealth struct {
	Name   string
	State  ServerState
	Reason Reason // empty when ready or disabled

	// Tools counts the server's tools, also those of the last good list while a
	// later one failed; Curated counts those of them that are named in
	// ServerConfig.Curated. Both are 0 unless State.CountsTools.
	Tools   int
	Curated int

	// Instructions are what the server said about its use in its last
	// handshake: its own words, unchanged.
	Instructions string

	// The fields below are details for a long view. Texts in them may be the
	// server's own words: cleaned of control characters and bounded, but never
	// to be put into a prompt as if they were the host's.

	Detail          string         // the fault behind the reason, at most 2 KiB; empty when ready
	DroppedTools    int            // listed tools that cannot be used
	Attempts        int            // reconnects since the last proven connection
	ProtocolVersion string         // of the current connection; empty before its handshake
	Server          Implementation // as the server announced itself in that handshake
	PID             int            // of the current connection's process; 0 without one
}

// FormatServerLine returns the one line that the status text has for a server:
// its name, its state, and the counts or the reason. Nothing that the server
// wrote is in it, and it changes only when the state, the reason or a count
// does.
func FormatServerLine(h ServerHealth) string {
	line := cleanText(h.Name, maxNameBytes) + ": " + h.State.String()
	if detail := lineDetail(h); detail != "" {
		line += " — " + detail
	}
	return line
}

// maxNameBytes bounds a configured name in the status text.
const maxNameBytes = 128

func lineDetail(h ServerHealth) string {
	switch {
	case h.State == StateReady:
		return formatCounts(h.Tools, h.Curated)
	case h.Reason == ReasonListFailed && h.Tools > 0:
		return fmt.Sprintf("%s, last known %s kept", h.Reason, plural(h.Tools, "tool"))
	case h.Reason == ReasonGaveUp:
		return fmt.Sprintf("%s after %s", h.Reason, plural(h.Attempts, "attempt"))
	}
	return string(h.Reason)
}

func formatCounts(tools, curated int) string {
	if curated == 0 {
		return plural(tools, "tool")
	}
	return fmt.Sprintf("%s (%d curated, %d external)", plural(tools, "tool"), curated, tools-curated)
}

func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// RenderStatusLines is the one renderer of the status text: a line for each
// enabled server, in the order given, without a final line break. At most limit
// servers get a line; one more line then counts the rest. A limit of 0 or less
// is none. This is the only place that cuts.
func RenderStatusLines(servers []ServerHealth, limit int) string {
	var text strings.Builder
	shown, hidden := 0, 0
	for _, h := range servers {
		if h.State == StateDisabled {
			continue
		}
		if limit > 0 && shown == limit {
			hidden++
			continue
		}
		appendLine(&text, FormatServerLine(h))
		shown++
	}
	if hidden > 0 {
		appendLine(&text, fmt.Sprintf("+%d more servers", hidden))
	}
	return text.String()
}

func appendLine(text *strings.Builder, line string) {
	if text.Len() > 0 {
		text.WriteByte('\n')
	}
	text.WriteString(line)
}
