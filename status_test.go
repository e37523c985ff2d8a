package mcp

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

var allStates = []ServerState{StateOffline, StateDisabled, StateStarting, StateReady, StateDegraded}

// reasonsOf are all reasons, by the state they belong to.
var reasonsOf = map[ServerState][]Reason{
	StateStarting: {ReasonHandshake, ReasonListing, ReasonSlowHandshake},
	StateDegraded: {ReasonNoTools, ReasonListFailed},
	StateOffline: {ReasonExited, ReasonOutputClosed, ReasonHandshakeFailed, ReasonStartFailed, ReasonCommandNotFound,
		ReasonNotExecutable, ReasonDirectoryNotFound, ReasonNoVersion, ReasonGaveUp, ReasonStopped},
}

func TestServerState_NamesTravelAndParseBack(t *testing.T) {
	names := []string{"offline", "disabled", "starting", "ready", "degraded"}
	for i, state := range allStates {
		if state.String() != names[i] || ServerStateFromString(names[i]) != state {
			t.Errorf("state %d: %q parses to %v; want %q and itself", i, state, ServerStateFromString(state.String()), names[i])
		}
		text, err := json.Marshal(map[string]ServerState{"s": state})
		if want := fmt.Sprintf(`{"s":%q}`, names[i]); err != nil || string(text) != want {
			t.Errorf("encoded: %s (%v), want %s", text, err, want)
		}
		var back map[string]ServerState
		if err := json.Unmarshal(text, &back); err != nil || back["s"] != state {
			t.Errorf("decoded: %v (%v), want %v", back, err, state)
		}
	}
	for _, unknown := range []string{"", "Ready", "READY", " ready", "ready\n", "up", "0", "3", "läuft"} {
		if state := ServerStateFromString(unknown); state != StateOffline {
			t.Errorf("%q parses to %v, want offline", unknown, state)
		}
	}
	var zero ServerState
	if zero != StateOffline {
		t.Errorf("the zero value is %v", zero)
	}
	for _, beyond := range []ServerState{stateCount, 77, 255} {
		if beyond.String() != "offline" || beyond.CountsTools() || beyond.canBecome(StateReady) || StateReady.canBecome(beyond) {
			t.Errorf("state %d is taken for one of the five", uint8(beyond))
		}
	}
}

func TestServerState_CountsTools(t *testing.T) {
	for _, state := range allStates {
		if want := state == StateReady || state == StateDegraded; state.CountsTools() != want {
			t.Errorf("%v counts tools: %v", state, !want)
		}
	}
}

// legal are the transitions that the table of states allows, all others are not.
var legal = map[string]bool{
	"starting ready": true, "starting degraded": true, "starting offline": true,
	"ready degraded": true, "ready offline": true,
	"degraded ready": true, "degraded offline": true,
	"offline ready": true, "offline degraded": true, "offline starting": true,
}

func TestServerState_Transitions(t *testing.T) {
	for _, from := range allStates {
		for _, to := range allStates {
			pair := from.String() + " " + to.String()
			if got := from.canBecome(to); got != legal[pair] {
				t.Errorf("%s: %v", pair, got)
			}
		}
	}
}

// TestManager_IllegalTransitionDoesNotHappen asks the one place that applies
// transitions for all pairs, and looks at the counts on the way.
func TestManager_IllegalTransitionDoesNotHappen(t *testing.T) {
	for _, from := range allStates {
		for _, to := range allStates {
			var seen recorder
			m := NewManager([]ServerConfig{{Name: "s", Curated: []string{"a"}}}, ManagerOptions{OnStateChange: seen.onState})
			s := m.byName["s"]
			s.now.Store(&standing{health: ServerHealth{Name: "s", State: from}, tools: []DiscoveredTool{{Name: "a"}, {Name: "b"}}})
			m.mu.Lock()
			m.changeLocked(s, to, ReasonExited, nil)
			events := len(s.events.waiting)
			m.mu.Unlock()
			pair := from.String() + " " + to.String()
			health, want := s.now.Load().health, from
			if legal[pair] {
				want = to
			}
			if health.State != want {
				t.Errorf("%s: the state is %v", pair, health.State)
			}
			if (events == 1) != legal[pair] {
				t.Errorf("%s: %d events", pair, events)
			}
			if legal[pair] || from == to {
				tools, curated := 0, 0
				if to.CountsTools() {
					tools, curated = 2, 1
				}
				if health.Tools != tools || health.Curated != curated {
					t.Errorf("%s: counts %d and %d, want %d and %d", pair, health.Tools, health.Curated, tools, curated)
				}
			}
			if tools := m.Tools(); len(tools) != 2 {
				t.Errorf("%s: the tools are gone", pair)
			}
		}
	}
}

func TestFormatServerLine(t *testing.T) {
	for _, c := range []struct {
		health ServerHealth
		want   string
	}{
		{ServerHealth{Name: "codeseek", State: StateReady, Tools: 12, Curated: 3}, "codeseek: ready — 12 tools (3 curated, 9 external)"},
		{ServerHealth{Name: "files", State: StateReady, Tools: 1}, "files: ready — 1 tool"},
		{ServerHealth{Name: "files", State: StateReady, Tools: 2}, "files: ready — 2 tools"},
		{ServerHealth{Name: "files", State: StateReady, Tools: 1, Curated: 1}, "files: ready — 1 tool (1 curated, 0 external)"},
		{ServerHealth{Name: "docs", State: StateStarting, Reason: ReasonHandshake}, "docs: starting — waiting for the handshake"},
		{ServerHealth{Name: "docs", State: StateStarting, Reason: ReasonListing}, "docs: starting — listing tools"},
		{ServerHealth{Name: "docs", State: StateStarting, Reason: ReasonSlowHandshake}, "docs: starting — still no answer to the handshake"},
		{ServerHealth{Name: "notes", State: StateDegraded, Reason: ReasonNoTools}, "notes: degraded — connected, but it lists no tools"},
		{ServerHealth{Name: "jira", State: StateDegraded, Reason: ReasonListFailed, Tools: 4, Curated: 2}, "jira: degraded — tools/list failed, last known 4 tools kept"},
		{ServerHealth{Name: "jira", State: StateDegraded, Reason: ReasonListFailed, Tools: 1}, "jira: degraded — tools/list failed, last known 1 tool kept"},
		{ServerHealth{Name: "wiki", State: StateDegraded, Reason: ReasonListFailed}, "wiki: degraded — tools/list failed"},
		{ServerHealth{Name: "web", State: StateOffline, Reason: ReasonExited}, "web: offline — the process exited; reconnecting"},
		{ServerHealth{Name: "db", State: StateOffline, Reason: ReasonCommandNotFound}, "db: offline — command not found"},
		{ServerHealth{Name: "mail", State: StateOffline, Reason: ReasonGaveUp, Attempts: 5}, "mail: offline — gave up after 5 attempts"},
		{ServerHealth{Name: "mail", State: StateOffline, Reason: ReasonGaveUp, Attempts: 1}, "mail: offline — gave up after 1 attempt"},
		{ServerHealth{Name: "x", State: StateOffline, Reason: ReasonNotExecutable}, "x: offline — not executable"},
		{ServerHealth{Name: "x", State: StateOffline, Reason: ReasonDirectoryNotFound}, "x: offline — directory not found"},
		{ServerHealth{Name: "x", State: StateOffline, Reason: ReasonNoVersion}, "x: offline — no common protocol version"},
		{ServerHealth{Name: "x", State: StateOffline, Reason: ReasonHandshakeFailed}, "x: offline — the handshake failed; reconnecting"},
		{ServerHealth{Name: "x", State: StateOffline, Reason: ReasonStartFailed}, "x: offline — could not be started; reconnecting"},
		{ServerHealth{Name: "x", State: StateOffline, Reason: ReasonOutputClosed}, "x: offline — it closed its output; reconnecting"},
		{ServerHealth{Name: "x", State: StateOffline, Reason: ReasonStopped}, "x: offline — stopped"},
		{ServerHealth{Name: "x", State: StateDisabled}, "x: disabled"},
		{ServerHealth{Name: "x"}, "x: offline"},
	} {
		if got := FormatServerLine(c.health); got != c.want {
			t.Errorf("got  %s\nwant %s", got, c.want)
		}
		// Nothing of the long view is in the line.
		detailed := c.health
		detailed.Detail, detailed.Instructions, detailed.PID, detailed.DroppedTools = "a detail", "instructions", 4711, 17
		detailed.Server, detailed.ProtocolVersion = Implementation{Name: "announced", Version: "9"}, latestVersion
		if detailed.Reason != ReasonGaveUp {
			detailed.Attempts = 99
		}
		if got := FormatServerLine(detailed); got != c.want {
			t.Errorf("with details the line is %s, want %s", got, c.want)
		}
	}
}

// TestReason_Permanent: exactly the reasons whose text promises a reconnect
// lead to one.
func TestReason_Permanent(t *testing.T) {
	for state, reasons := range reasonsOf {
		for _, reason := range reasons {
			promises := strings.HasSuffix(string(reason), "; reconnecting")
			if want := state == StateOffline && !promises; reason.Permanent() != want {
				t.Errorf("%q is permanent: %v", reason, !want)
			}
		}
	}
	if Reason("").Permanent() {
		t.Error("no reason is permanent")
	}
}

// TestReasonAnew: whatever a server was, while it is started over the text
// promises a reconnect.
func TestReasonAnew(t *testing.T) {
	for _, state := range []ServerState{StateStarting, StateReady, StateDegraded} {
		if got := reasonAnew(ServerHealth{State: state}); got != ReasonExited {
			t.Errorf("%v: %q", state, got)
		}
	}
	for _, reason := range reasonsOf[StateOffline] {
		anew := reasonAnew(ServerHealth{State: StateOffline, Reason: reason})
		if anew.Permanent() || !slices.Contains(reasonsOf[StateOffline], anew) {
			t.Errorf("%q: %q", reason, anew)
		}
		if !reason.Permanent() && anew != reason {
			t.Errorf("%q turns into %q: it flickers", reason, anew)
		}
	}
}

func TestFormatServerLine_CleansNames(t *testing.T) {
	for name, want := range map[string]string{
		"plain":                          "plain",
		"two\nlines":                     "two lines",
		"tab\tand\rreturn":               "tab and return",
		"nul\x00":                        "nul ",
		"\x1b[31mred\x1b[0m":             "red",
		"c1\u009b31m":                    "c1",
		"rtl\u202eevil":                  "rtlevil",
		"zero\u200bwidth":                "zerowidth",
		"line\u2028separator":            "line separator",
		"bad\xffutf8":                    "bad\ufffdutf8",
		"größe":                          "größe",
		strings.Repeat("x", 128):         strings.Repeat("x", 128),
		strings.Repeat("x", 129):         strings.Repeat("x", 125) + "…",
		"a: ready — 9 tools\nb: ready":   "a: ready — 9 tools b: ready",
		strings.Repeat("ä", 1<<20)[:300]: strings.Repeat("ä", 62) + "…",
	} {
		if got := FormatServerLine(ServerHealth{Name: name, State: StateOffline, Reason: ReasonStopped}); got != want+": offline — stopped" {
			t.Errorf("%q gives %q, want the name %q", name, got, want)
		}
	}
}

func TestRenderStatusLines(t *testing.T) {
	line := func(name string) ServerHealth {
		return ServerHealth{Name: name, State: StateOffline, Reason: ReasonStopped}
	}
	off := ServerHealth{Name: "off", State: StateDisabled}
	four := []ServerHealth{off, line("d"), line("a"), off, line("c"), line("b"), off}
	for _, c := range []struct {
		servers []ServerHealth
		limit   int
		want    string // names of the lines, then what is hidden
	}{
		{nil, 0, ""}, {nil, 1, ""}, {[]ServerHealth{off}, 1, ""},
		{four, -1, "d a c b"}, {four, 0, "d a c b"}, {four, 5, "d a c b"}, {four, 4, "d a c b"},
		{four, 3, "d a c +1"}, {four, 2, "d a +2"}, {four, 1, "d +3"},
		{[]ServerHealth{line("x"), off, off}, 1, "x"},
	} {
		var want []string
		for name := range strings.FieldsSeq(c.want) {
			if hidden, ok := strings.CutPrefix(name, "+"); ok {
				want = append(want, "+"+hidden+" more servers")
			} else {
				want = append(want, name+": offline — stopped")
			}
		}
		if got := RenderStatusLines(c.servers, c.limit); got != strings.Join(want, "\n") {
			t.Errorf("limit %d: got\n%s\nwant\n%s", c.limit, got, strings.Join(want, "\n"))
		}
	}
}

// FuzzFormatServerLine: a line is one line, of bounded length, without anything
// that moves a cursor or hides text, and a count of lines is a count of servers.
func FuzzFormatServerLine(f *testing.F) {
	f.Add("name", uint8(3), uint8(0), 12, 3, "detail")
	f.Add("a\nb\x1b[2J", uint8(0), uint8(8), -1, 1<<40, "x\ny")
	f.Add("\u202e\xff\u009b\u2029", uint8(4), uint8(1), 0, 0, "")
	f.Fuzz(func(t *testing.T, name string, state, reason uint8, tools, curated int, detail string) {
		h := ServerHealth{Name: name, State: ServerState(state % uint8(stateCount)), Tools: tools, Curated: curated, Attempts: curated, Detail: detail, Instructions: detail}
		if reasons := reasonsOf[h.State]; len(reasons) > 0 {
			h.Reason = reasons[int(reason)%len(reasons)]
		}
		line := FormatServerLine(h)
		if !utf8.ValidString(line) || len(line) > maxNameBytes+200 {
			t.Errorf("%d bytes, valid %v: %q", len(line), utf8.ValidString(line), line)
		}
		if i := strings.IndexFunc(line, func(r rune) bool { return unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp) }); i >= 0 {
			t.Errorf("a control character at %d in %q", i, line)
		}
		if again := FormatServerLine(h); again != line {
			t.Errorf("%q, then %q", line, again)
		}
		h.Detail, h.Instructions = "", ""
		if without := FormatServerLine(h); without != line {
			t.Errorf("the detail changes the line: %q, without it %q", line, without)
		}
		text := RenderStatusLines([]ServerHealth{h, h, h}, 2)
		want := 3
		if h.State == StateDisabled {
			want = 0
		}
		if got := len(strings.FieldsFunc(text, func(r rune) bool { return r == '\n' })); got != want {
			t.Errorf("%d lines, want %d: %q", got, want, text)
		}
	})
}
