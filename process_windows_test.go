package mcp

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// batchScript makes a batch file in a directory with a space in its name, that
// runs the helper "info" with its arguments.
func batchScript(t *testing.T, name string) (path string) {
	t.Helper()
	dir := filepath.Join(os.TempDir(), "mcp test & more")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	path = filepath.Join(dir, name)
	text := "@echo off\r\n\"" + helperSpec(t, "info").command + "\" %*\r\nexit /b 5\r\n"
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	// Not t.TempDir, whose clean-up fails under Wine.
	t.Cleanup(func() { os.Remove(path); os.Remove(dir) })
	return path
}

func TestBatchFileGetsItsArguments(t *testing.T) {
	args := []string{"plain", "two words", "", "a,b;c=d", "(x)", `C:\dir\`, "-y", "@scope/name@1.0", "ü", "$HOME", "*", "/c"}
	for _, name := range []string{"run.cmd", "RUN2.BAT"} {
		spec := helperSpec(t, "info", args...)
		spec.command = batchScript(t, name)
		p := newNursery(t).child(spec)
		var got []string
		for _, line := range outputLines(readRest(t, p)) {
			if quoted, ok := strings.CutPrefix(line, "arg "); ok {
				got = append(got, unquoteGo(t, quoted))
			}
		}
		if !slices.Equal(got, args) {
			t.Errorf("%s: the arguments arrive as\n%q, want\n%q", name, got, args)
		}
		<-p.Exited()
		if exit := p.ExitError(); exit.Status != 5 {
			t.Errorf("%s: ended with %#v, want status 5", name, exit)
		}
	}
}

func TestBatchFileIsFoundWithoutExtension(t *testing.T) {
	script := batchScript(t, "tool.cmd")
	spec := helperSpec(t, "info", "one")
	spec.dir, spec.command = filepath.Dir(script), `.\tool`
	if out := readRest(t, newNursery(t).child(spec)); !strings.Contains(out, `arg "one"`) {
		t.Errorf("the script says %q", out)
	}
	t.Setenv("PATH", filepath.Dir(script)+";"+os.Getenv("PATH"))
	spec.dir, spec.command = "", "tool"
	if out := readRest(t, newNursery(t).child(spec)); !strings.Contains(out, `arg "one"`) {
		t.Errorf("the script says %q", out)
	}
}

func TestBatchFileRefusesUnsafeArguments(t *testing.T) {
	script := batchScript(t, "run.cmd")
	for _, arg := range []string{"a&b", "a|b", "<x", ">x", "a^b", "100%", "hey!", `say "x"`, "line\nbreak", "cr\r", "tab\t", `two words\`, "nul\x00"} {
		spec := processSpec{command: script, args: []string{"fine", arg}}
		wantStartFault(t, spec, ReasonNotExecutable, "argument 1")
	}
	// A program is no batch file, and gets them all.
	if _, err := newCommand(&processSpec{command: helperSpec(t, "info").command, args: []string{"a&b"}}); err != nil {
		t.Error(err)
	}
}

func TestBatchLineIsBounded(t *testing.T) {
	if _, err := batchLine(`C:\x.cmd`, []string{strings.Repeat("x", commandLineLimit)}); err == nil {
		t.Error("a command line longer than cmd.exe takes was made")
	}
	if _, err := batchLine(`C:\100%\x.cmd`, nil); err == nil {
		t.Error("a path that cmd.exe would interpret was taken")
	}
}

// A deliberate end is told from a clean one.
func TestProcessKillHasAStatus(t *testing.T) {
	p := startChild(t, "immortal")
	awaitLine(t, p, "ready")
	p.Kill()
	<-p.Exited()
	exit := p.ExitError()
	if exit.Status != 1 || exit.Signal != "" || errors.Unwrap(exit) == nil {
		t.Errorf("ended with %#v, want status 1", exit)
	}
}
