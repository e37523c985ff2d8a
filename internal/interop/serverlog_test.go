package interop

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"yagent/mcp"
)

// once are the options of a host that connects one time: what fails is not
// tried again while a test lasts.
func once() mcp.ManagerOptions {
	return mcp.ManagerOptions{
		ReconnectBackoff: func(int) time.Duration { return time.Hour },
		ShutdownGrace:    3 * time.Second, // more than a busy machine needs to end a process
	}
}

// eager are the options of a host that tries again at once, so many times.
func eager(attempts int) mcp.ManagerOptions {
	opts := once()
	opts.ReconnectBackoff = func(int) time.Duration { return time.Millisecond }
	opts.MaxReconnectAttempts = attempts
	return opts
}

// in is the configuration of a badserver in one of its modes.
func in(mode string, flags ...string) mcp.ServerConfig {
	return mcp.ServerConfig{Name: "bad", Command: badserver, Args: append([]string{"-mode", mode}, flags...)}
}

// legacyIn is the same for a server that is known to be legacy, so that finding
// out its era costs no start.
func legacyIn(mode string, flags ...string) mcp.ServerConfig {
	cfg := in(mode, flags...)
	cfg.Protocol = mcp.ProtocolLegacy
	return cfg
}

// connected starts one badserver and waits until it is ready.
func connected(t *testing.T, mode string, flags ...string) *host {
	t.Helper()
	t.Parallel()
	h := newHost(t, once(), in(mode, flags...))
	h.ready("bad")
	return h
}

// echoes fails the test unless an ordinary call works.
func (h *host) echoes(server string) {
	h.t.Helper()
	if got, want := h.call(server, "echo", json.RawMessage(`{"still":"here"}`)).Text(), `{"still":"here"}`; got != want {
		h.t.Errorf("echo: got %q, want %q", got, want)
	}
}

// survives runs what a server must not be hurt by: it must answer afterwards,
// from the same process.
func (h *host) survives(server string, ordeal func()) {
	h.t.Helper()
	before := h.health(server).PID
	ordeal()
	h.echoes(server)
	if after := h.health(server).PID; after != before {
		h.t.Errorf("the process is %d, was %d: it must not be restarted", after, before)
	}
}

// event is a line of badserver's log.
type event struct {
	pid  int
	kind string // start, recv, signal, eof, exit, spawned, early-ping
	data string
}

func (e event) String() string { return strings.TrimSpace(e.kind + " " + e.data) }

func (h *host) logFile(server string) string { return filepath.Join(h.dir, server+".log") }

// events returns what a badserver has logged so far.
func (h *host) events(server string) []event {
	h.t.Helper()
	text, err := os.ReadFile(h.logFile(server))
	if err != nil && !os.IsNotExist(err) {
		h.t.Fatal(err)
	}
	var events []event
	for line := range strings.Lines(string(text)) {
		pid, rest, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		kind, data, _ := strings.Cut(rest, " ")
		e := event{kind: kind, data: data}
		if e.pid, err = strconv.Atoi(pid); err != nil {
			h.t.Fatalf("log of %q: %q has no pid", server, line)
		}
		events = append(events, e)
	}
	return events
}

// starts counts a server's processes so far.
func (h *host) starts(server string) int { return h.countEvents(server, "start") }

func (h *host) countEvents(server, kind string) int {
	h.t.Helper()
	n := 0
	for _, e := range h.events(server) {
		if e.kind == kind {
			n++
		}
	}
	return n
}

// received returns the lines with this method that a server has read.
func (h *host) received(server, method string) []string {
	h.t.Helper()
	var lines []string
	for _, e := range h.events(server) {
		var m struct {
			Method string `json:"method"`
		}
		if e.kind == "recv" && json.Unmarshal([]byte(e.data), &m) == nil && m.Method == method {
			lines = append(lines, e.data)
		}
	}
	return lines
}

// ending returns how a server's log says that it ended: its events but for the
// lines it read.
func (h *host) ending(server string) []string {
	h.t.Helper()
	var kinds []string
	for _, e := range h.events(server) {
		if e.kind != "recv" && e.kind != "start" {
			kinds = append(kinds, e.String())
		}
	}
	return kinds
}

// wantEnding compares the end of a server with the one it should have had.
func (h *host) wantEnding(server string, want ...string) {
	h.t.Helper()
	if got := h.ending(server); !slices.Equal(got, want) {
		h.t.Errorf("the server's log ends with %q, want %q", got, want)
	}
}

// requestID returns the id of a line that a server has read.
func requestID(t *testing.T, line string) string {
	t.Helper()
	var m struct {
		ID json.RawMessage `json:"id"`
	}
	if err := json.Unmarshal([]byte(line), &m); err != nil {
		t.Fatalf("%v: %s", err, line)
	}
	return string(m.ID)
}

// flagInt and flagTime spell a badserver flag.
func flagInt(name string, n int) string            { return fmt.Sprintf("-%s=%d", name, n) }
func flagTime(name string, d time.Duration) string { return fmt.Sprintf("-%s=%v", name, d) }
