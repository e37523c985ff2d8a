package main

import (
	"bufio"
	"encoding/json"
	"io"
	"os"
	"slices"
	"strings"
	"testing"
)

// TestMain is also the program under test: the end-to-end tests start this
// binary as the host, and the host starts it as its demo servers.
func TestMain(m *testing.M) {
	isServer := len(os.Args) > 1 && os.Args[1] == demoCommand
	if isServer || os.Getenv(hostVariable) != "" {
		main()
	}
	os.Exit(m.Run())
}

// hostVariable makes the test binary the host.
const hostVariable = "AGENTHOST_TEST_HOST"

// exchange feeds lines to a demo server and returns what it wrote.
func exchange(t *testing.T, name string, lines ...string) (answers []map[string]any, stderr string, status int) {
	t.Helper()
	var out, diagnostics strings.Builder
	status = serveDemo(name, strings.NewReader(strings.Join(lines, "\n")+"\n"), &out, &diagnostics)
	scanner := bufio.NewScanner(strings.NewReader(out.String()))
	for scanner.Scan() {
		var answer map[string]any
		if err := json.Unmarshal(scanner.Bytes(), &answer); err != nil {
			t.Fatalf("the server wrote %q", scanner.Text())
		}
		answers = append(answers, answer)
	}
	return answers, diagnostics.String(), status
}

func TestDemoServerAnswers(t *testing.T) {
	t.Parallel()
	answers, _, status := exchange(t, "notes",
		`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{}}`,
		`{"jsonrpc":"2.0","method":"notifications/initialized"}`,
		`nonsense`,
		`{"jsonrpc":"2.0","id":"two","method":"server/discover"}`,
		`{"jsonrpc":"2.0","id":3,"method":"ping"}`,
		`{"jsonrpc":"2.0","id":4,"method":"tools/call","params":{"name":"nothing"}}`,
	)
	if len(answers) != 4 || status != exitDone {
		t.Fatalf("%d answers, status %d, want 4 and 0: %v", len(answers), status, answers)
	}
	hello := answers[0]["result"].(map[string]any)
	if hello["protocolVersion"] != "2025-11-25" || hello["instructions"] == "" {
		t.Errorf("the handshake says %v", hello)
	}
	if answers[1]["id"] != "two" || answers[1]["error"] == nil {
		t.Errorf("an unknown method got %v, want an error with its id", answers[1])
	}
	if answers[3]["result"].(map[string]any)["isError"] != true {
		t.Errorf("an unknown tool got %v, want a failed result", answers[3])
	}
}

// An empty list must be a list, and no null.
func TestDemoServerWithoutTools(t *testing.T) {
	t.Parallel()
	answers, _, _ := exchange(t, "inbox", `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`)
	tools, ok := answers[0]["result"].(map[string]any)["tools"].([]any)
	if !ok || len(tools) != 0 {
		t.Errorf("got %v, want an empty list", answers[0])
	}
}

func TestDemoServerCrashes(t *testing.T) {
	t.Parallel()
	answers, stderr, status := exchange(t, "calc",
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"divide","arguments":{"a":6,"b":3}}}`,
		`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"divide","arguments":{"a":1,"b":0}}}`,
		`{"jsonrpc":"2.0","id":3,"method":"ping"}`,
	)
	if len(answers) != 1 || status != demoCrash || !strings.Contains(stderr, "division by zero") {
		t.Errorf("%d answers, status %d, stderr %q, want 1, %d and the reason", len(answers), status, stderr, demoCrash)
	}
}

func TestDemoServerUnknown(t *testing.T) {
	t.Parallel()
	if status := serveDemo("nobody", strings.NewReader(""), io.Discard, io.Discard); status != exitUsage {
		t.Errorf("status %d, want %d", status, exitUsage)
	}
}

// The cast has every role, and the bridges' servers really have their tools.
func TestDemoServersFitTheBridges(t *testing.T) {
	t.Parallel()
	var slow, empty, disabled bool
	for _, s := range demoServers() {
		slow = slow || s.lingers
		empty = empty || len(s.tools) == 0 && !s.disabled
		disabled = disabled || s.disabled
		for _, name := range curated[s.name] {
			if !slices.ContainsFunc(s.tools, func(t demoTool) bool { return t.Name == name }) {
				t.Errorf("%s has no %s", s.name, name)
			}
		}
	}
	if !slow || !empty || !disabled {
		t.Errorf("slow %v, empty %v, disabled %v, want all", slow, empty, disabled)
	}
}

func TestChangedLines(t *testing.T) {
	t.Parallel()
	tests := map[string]struct{ before, after, want string }{
		"the same":     {"a\nb", "a\nb", ""},
		"one changed":  {"a\nb\nc", "a\nB\nc", "- b\n+ B"},
		"one is added": {"a", "a\nb", "+ b"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := changedLines(test.before, test.after); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}
