package main

import (
	"strings"
	"testing"

	"yagent/mcp"
)

func TestPanelShowsDetailsBelow(t *testing.T) {
	t.Parallel()
	health := []mcp.ServerHealth{
		{Name: "a", State: mcp.StateReady, Tools: 2, PID: 17, ProtocolVersion: "2025-11-25", DroppedTools: 3,
			Server: mcp.Implementation{Name: "evil\x1b]0;title\x07", Version: "1\n2"}},
		{Name: "b", State: mcp.StateOffline, Reason: mcp.ReasonExited, Attempts: 2, Detail: "status 3"},
		{Name: "off", State: mcp.StateDisabled},
	}
	status := mcp.RenderStatusLines(health, 0)
	text := panel(status, health)
	above, below, _ := strings.Cut(text, "\n\ndetails\n")
	if above != status {
		t.Errorf("the panel begins with\n%s\nand not with the status text", above)
	}
	for _, want := range []string{"process 17", "protocol 2025-11-25", "tools left out: 3", "evil ]0;title  1 2", "reconnects: 2", "last fault: status 3"} {
		if !strings.Contains(below, want) {
			t.Errorf("the details lack %q:\n%s", want, below)
		}
	}
	if strings.ContainsAny(below, "\x1b\x07") {
		t.Error("a server's control characters reach the terminal")
	}
	if strings.Contains(text, "off") && strings.Contains(below, "off ") {
		t.Error("a disabled server has details")
	}
}

func TestExcerpt(t *testing.T) {
	t.Parallel()
	tests := map[string]struct{ text, want string }{
		"short":       {"a\nb", "a\nb"},
		"many lines":  {strings.Repeat("x\n", 14), strings.Repeat("x\n", maxExcerptLines) + "… 3 more lines"},
		"a long line": {strings.Repeat("é", maxExcerptRunes+1), strings.Repeat("é", maxExcerptRunes) + "…"},
		"an escape":   {"a\x1b[31mb", "a [31mb"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := excerpt(test.text); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

func TestScreen(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	s := newScreen(&out)
	s.section("title")
	s.block("one\n\ntwo\n")
	s.printf("%d", 3)
	if want := "\n== title ==\n  one\n\n  two\n  3\n"; out.String() != want {
		t.Errorf("got %q, want %q", out.String(), want)
	}
}
