//go:build unix

package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"yagent/mcp"
)

// hostCommand is the program with arguments. Its variable is on no list of what
// servers inherit, so it makes a host of this process alone.
func hostCommand(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self, args...)
	// Under the race detector a process would sleep for a second as it exits.
	cmd.Env = append(os.Environ(), hostVariable+"=1", "GORACE=atexit_sleep_ms=0")
	return cmd
}

// runHost runs the program to its end.
func runHost(t *testing.T, args ...string) (stdout, stderr string, status int) {
	t.Helper()
	var out, diagnostics bytes.Buffer
	cmd := hostCommand(t, args...)
	cmd.Stdout, cmd.Stderr = &out, &diagnostics
	if err := cmd.Run(); err != nil {
		if _, exited := errors.AsType[*exec.ExitError](err); !exited {
			t.Fatal(err)
		}
	}
	return out.String(), diagnostics.String(), cmd.ProcessState.ExitCode()
}

// inOrder reports the first of the texts that does not follow the ones before.
func inOrder(text string, wanted ...string) string {
	for _, want := range wanted {
		_, rest, found := strings.Cut(text, want)
		if !found {
			return want
		}
		text = rest
	}
	return ""
}

// The first command of a newcomer shows a whole life and leaves nothing behind.
func TestDemoRun(t *testing.T) {
	t.Parallel()
	began := time.Now()
	out, stderr, status := runHost(t)
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("it took %v", took)
	}
	if status != exitDone || stderr != "" {
		t.Fatalf("status %d, stderr %q:\n%s", status, stderr, out)
	}
	missing := inOrder(out,
		"== start log ==\n  notes: starting — waiting for the handshake\n  index: starting",
		"\n== as servers settle ==",
		"== /mcp panel, while one server still starts ==\n  notes: ready — 4 tools (1 curated, 3 external)\n  index: starting",
		"inbox: degraded — connected, but it lists no tools\n  calc: ready — 1 tool\n",
		"> find_symbol", mcp.ErrIndexBuilding.Error(),
		"index: starting → ready",
		"== system prompt ==", "index: ready — 1 tool (1 curated, 0 external)",
		"== tools for the model ==", "mcp__notes__add_note (writes)", "mcp__notes__sync_notes (no hint, taken as writing)",
		"== tool calls ==", "main is declared in main.go", "tea: water first", "6 / 3 = 2", "not run: ",
		"== crash ==", "the outcome is unknown", "calc: ready → offline",
		"- calc: ready — 1 tool\n  + calc: offline — the process exited; reconnecting\n",
		"the request was not sent",
		"== recovery ==", "calc: offline → ready", "+ calc: ready — 1 tool", "6 / 3 = 2",
		"== /mcp panel, after the recovery ==", "reconnects: 1",
		"== shutdown ==", "notes: offline — stopped", "every process has ended",
	)
	if missing != "" {
		t.Errorf("the run lacks %q, or has it in another place:\n%s", missing, out)
	}
	if strings.Contains(out, "mcp__notes__read_note") || strings.Contains(out, "archive: ") {
		t.Errorf("a curated tool is there twice, or a disabled server is shown:\n%s", out)
	}
	checkProcessesGone(t, out)
}

// checkProcessesGone looks for the processes that a panel named.
func checkProcessesGone(t *testing.T, out string) {
	t.Helper()
	found := regexp.MustCompile(`process (\d+)`).FindAllStringSubmatch(out, -1)
	if len(found) == 0 {
		t.Error("the panel names no process")
	}
	for _, match := range found {
		pid, err := strconv.Atoi(match[1])
		if err != nil {
			t.Fatal(err)
		}
		if syscall.Kill(pid, 0) == nil {
			t.Errorf("process %d is left", pid)
		}
	}
}

// writeConfig writes a configuration file and returns its path.
func writeConfig(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "mcp.json")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// With a file, a server that cannot start is no failure of the others.
func TestConfigRun(t *testing.T) {
	t.Parallel()
	self, err := json.Marshal(os.Args[0])
	if err != nil {
		t.Fatal(err)
	}
	file := writeConfig(t, fmt.Sprintf(`{"mcpServers": {
		"my notes": {"command": %[1]s, "args": ["%[2]s", "notes"], "x": 1},
		"index": {"command": %[1]s, "args": ["%[2]s", "index"], "timeout": 5000, "env": {"KEY": "${KEY}"}},
		"gone": {"command": "no-such-program-anywhere"},
		"off": {"command": "no-such-program-anywhere", "disabled": true},
		"far": {"url": "https://example.com"}
	}}`, self, demoCommand))
	out, stderr, status := runHost(t, "-config", file, "-call", `my notes:add_note:{"text":"x"}`, "-call", "gone:x", "-call", "my notes:y")
	if status != exitFailed || stderr != "agenthost: -call gone:x failed\n-call my notes:y failed\n" {
		t.Fatalf("status %d, stderr %q:\n%s", status, stderr, out)
	}
	missing := inOrder(out,
		`skipped: server "far"`,
		`note: server "my notes": unknown member "x" is ignored`,
		`note: server "index": "env": "KEY" has a ${...}`,
		"== start log ==", "my notes: starting", "gone: offline — command not found",
		"== as servers settle ==", "waiting for: my notes, index, gone (up to 1m0s)", "index: starting → ready",
		"== /mcp panel ==", "my notes: ready — 4 tools\n",
		"== system prompt ==", "my notes: ready — 4 tools\n", "> Search before you add a note",
		"== tools for the model ==", "find_symbol (reads)",
		"== calls ==", `{"text":"x"}`, "added",
		"> mcp__gone__x {}\n  mcp: server \"gone\": call \"x\": ", "command not found",
		"there is no tool \"mcp__my", // the server is there, and the tool is not
		`> find_symbol {"name":"hello"}`, "hello is declared in main.go",
		"== shutdown ==",
	)
	if missing != "" {
		t.Errorf("the run lacks %q, or has it in another place:\n%s", missing, out)
	}
	checkProcessesGone(t, out)
}

func TestRunFails(t *testing.T) {
	t.Parallel()
	empty := writeConfig(t, `{"mcpServers": {}}`)
	disabled := writeConfig(t, `{"mcpServers": {"a": {"disabled": true}, "b": {"url": "https://example.com"}}}`)
	gone := writeConfig(t, `{"mcpServers": {"a": {"command": "no-such-program-anywhere"}}}`)
	broken := writeConfig(t, "{\n\"mcpServers\": {}\n\"x\": 1}")
	tests := map[string]struct {
		args   []string
		status int
		stderr string
	}{
		"a broken file":          {[]string{"-config", broken}, exitFailed, broken + ":3:1: not valid JSON"},
		"no file":                {[]string{"-config", broken + ".not"}, exitFailed, "read the configuration"},
		"an unknown flag":        {[]string{"-what"}, exitUsage, "-what"},
		"an argument":            {[]string{"file"}, exitUsage, `unexpected argument "file"`},
		"a bad call":             {[]string{"-call", "x"}, exitUsage, "want server:tool"},
		"a call that cannot be":  {[]string{"-config", gone, "-call", "b:c"}, exitFailed, "-call b:c failed"},
		"help is no failure":     {[]string{"-h"}, exitDone, "-config"},
		"no server":              {[]string{"-config", empty}, exitFailed, "no server to start: 0 skipped, 0 disabled"},
		"no server that starts":  {[]string{"-config", disabled}, exitFailed, "no server to start: 1 skipped, 1 disabled"},
		"no server that is well": {[]string{"-config", gone}, exitFailed, "no server became ready or degraded"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, stderr, status := runHost(t, test.args...)
			if status != test.status || !strings.Contains(stderr, test.stderr) {
				t.Errorf("status %d, stderr %q, want %d and %q", status, stderr, test.status, test.stderr)
			}
		})
	}
}

// runningHost is a demo that has just started its servers.
type runningHost struct {
	cmd    *exec.Cmd
	stdout *bufio.Reader
	stderr *bytes.Buffer
}

// startHost starts the program and returns when it has written a line with text.
func startHost(t *testing.T, text string, args ...string) *runningHost {
	t.Helper()
	h := &runningHost{cmd: hostCommand(t, args...), stderr: new(bytes.Buffer)}
	pipe, err := h.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	h.cmd.Stderr = h.stderr
	if err := h.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	h.stdout = bufio.NewReader(pipe)
	for {
		line, err := h.stdout.ReadString('\n')
		if err != nil {
			t.Fatalf("the host ended early: %v, %s", err, h.stderr)
		}
		if strings.Contains(line, text) {
			return h
		}
	}
}

// rest reads what the host still writes.
func (h *runningHost) rest() string {
	var out bytes.Buffer
	out.ReadFrom(h.stdout)
	return out.String()
}

// A signal ends the host in good order.
func TestSignalsClose(t *testing.T) {
	t.Parallel()
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP} {
		t.Run(sig.String(), func(t *testing.T) {
			t.Parallel()
			h := startHost(t, "no server was waited for")
			if err := h.cmd.Process.Signal(sig); err != nil {
				t.Fatal(err)
			}
			out := h.rest()
			if err := h.cmd.Wait(); h.cmd.ProcessState.ExitCode() != exitFailed {
				t.Errorf("it ended with %v, want status %d", err, exitFailed)
			}
			if !strings.Contains(out, "every process has ended") {
				t.Errorf("it did not close its servers:\n%s%s", out, h.stderr)
			}
		})
	}
}

// An interrupt of the wait is said once, and not for each server.
func TestInterruptIsSaidOnce(t *testing.T) {
	t.Parallel()
	self, err := json.Marshal(os.Args[0])
	if err != nil {
		t.Fatal(err)
	}
	server := fmt.Sprintf(`{"command": %s, "args": [%q, "index"]}`, self, demoCommand)
	file := writeConfig(t, fmt.Sprintf(`{"mcpServers": {"a": %[1]s, "b": %[1]s}}`, server))
	h := startHost(t, "waiting for: a, b (up to 9s)", "-config", file, "-wait", "9s")
	if err := h.cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	out := h.rest()
	h.cmd.Wait()
	if got := h.stderr.String(); got != "agenthost: interrupted\n" || h.cmd.ProcessState.ExitCode() != exitFailed {
		t.Errorf("%v, stderr %q, want that it was interrupted", h.cmd.ProcessState, got)
	}
	if strings.Contains(out, "interrupt") || strings.Contains(out, "context") || !strings.Contains(out, "every process has ended") {
		t.Errorf("it wrote\n%s", out)
	}
}

// A host that is killed takes its servers along on Linux, also the one that
// ignores the end of its input.
func TestKilledHostLeavesNoServer(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("only Linux ends a child with its parent")
	}
	h := startHost(t, "no server was waited for")
	servers := childrenOf(t, h.cmd.Process.Pid)
	if len(servers) < 4 {
		t.Errorf("the host has %d children, want a server each", len(servers))
	}
	if err := h.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	h.cmd.Wait()
	deadline := time.After(5 * time.Second)
	look := time.NewTicker(10 * time.Millisecond) // nothing tells of the end of a stranger's child
	defer look.Stop()
	for _, pid := range servers {
		for isRunning(pid) {
			select {
			case <-look.C:
			case <-deadline:
				syscall.Kill(pid, syscall.SIGKILL)
				t.Fatalf("server %d outlives its host", pid)
			}
		}
	}
}

// childrenOf returns the direct children of a process.
func childrenOf(t *testing.T, pid int) []int {
	t.Helper()
	lists, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	if err != nil || len(lists) == 0 {
		t.Skip("this system does not list children")
	}
	var children []int
	for _, list := range lists {
		text, err := os.ReadFile(list)
		if err != nil {
			continue // the thread has ended
		}
		for field := range strings.FieldsSeq(string(text)) {
			child, err := strconv.Atoi(field)
			if err != nil {
				t.Fatal(err)
			}
			children = append(children, child)
		}
	}
	return children
}

// isRunning reports whether a process exists and is more than an entry that
// nobody has reaped.
func isRunning(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	_, state, _ := strings.Cut(string(stat), ") ")
	return !strings.HasPrefix(state, "Z")
}
