package main

import (
	"fmt"
	"io"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"yagent/mcp"
)

// panel returns what a host shows for /mcp: the status text, the same that the
// model gets, and below it details that are for people alone.
func panel(status string, health []mcp.ServerHealth) string {
	width := 0 // of the longest name
	for _, h := range health {
		width = max(width, utf8.RuneCountInString(h.Name))
	}
	var text strings.Builder
	text.WriteString(status + "\n\ndetails")
	for _, h := range health {
		if details := serverDetails(h); len(details) > 0 {
			fmt.Fprintf(&text, "\n  %-*s  %s", width, printable(h.Name), strings.Join(details, ", "))
		}
	}
	return text.String()
}

// serverDetails are the facts about one server, as far as there are any. What
// servers wrote is made printable: a terminal obeys escape sequences.
func serverDetails(h mcp.ServerHealth) []string {
	var details []string
	add := func(there bool, format string, args ...any) {
		if there {
			details = append(details, fmt.Sprintf(format, args...))
		}
	}
	add(h.PID != 0, "process %d", h.PID)
	add(h.Server.Name != "", "%s %s", printable(h.Server.Name), printable(h.Server.Version))
	add(h.ProtocolVersion != "", "protocol %s", printable(h.ProtocolVersion))
	add(h.Attempts > 0, "reconnects: %d", h.Attempts)
	add(h.DroppedTools > 0, "tools left out: %d", h.DroppedTools)
	add(h.Detail != "", "last fault: %s", printable(h.Detail))
	return details
}

// panel is the /mcp panel of this moment.
func (h *host) panel() string { return panel(h.manager.StatusLines(), h.manager.Health()) }

// printable returns a server's text on one line, without characters that a
// terminal would obey. The library cleans its errors; what it hands on as data,
// such as descriptions, instructions and results, is as the server wrote it.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return ' '
	}, text)
}

const (
	maxExcerptLines = 12
	maxExcerptRunes = 400 // of one line
)

// excerpt returns the beginning of an answer for the screen. The model gets all
// of it.
func excerpt(text string) string {
	lines := strings.Split(text, "\n")
	if left := len(lines) - maxExcerptLines; left > 0 {
		lines = append(lines[:maxExcerptLines], fmt.Sprintf("… %d more lines", left))
	}
	for i, line := range lines {
		runes := []rune(printable(line))
		if len(runes) > maxExcerptRunes {
			runes = append(runes[:maxExcerptRunes], '…')
		}
		lines[i] = string(runes)
	}
	return strings.Join(lines, "\n")
}

// screen is what the program shows, in sections. It has no lock, because the
// main goroutine alone writes to it.
type screen struct {
	out     io.Writer
	started time.Time
}

func newScreen(out io.Writer) *screen { return &screen{out: out, started: time.Now()} }

// elapsed is the time on the program's own clock.
func (s *screen) elapsed() time.Duration { return time.Since(s.started) }

// section writes a heading.
func (s *screen) section(title string) { fmt.Fprintf(s.out, "\n== %s ==\n", title) }

// printf writes a line, or several, into the section.
func (s *screen) printf(format string, args ...any) { s.block(fmt.Sprintf(format, args...)) }

// block writes text, each line indented under its section.
func (s *screen) block(text string) {
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		fmt.Fprintln(s.out, strings.TrimRight("  "+line, " "))
	}
}
