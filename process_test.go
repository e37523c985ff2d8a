package mcp

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"yagent/mcp/supervise"
)

// testGrace is long enough to be told from no wait at all, and short enough to
// be sat through.
const testGrace = 100 * time.Millisecond

// A nursery is a spawner with the group of one session, drained at the end of
// the test: whatever the test forgot to end makes that hang.
type nursery struct {
	t     testing.TB
	group *supervise.Group
	*spawner
}

func newNursery(t testing.TB) *nursery {
	t.Helper()
	group := supervise.New(context.Background(), "test", nil)
	spawner, err := newSpawner(group)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := group.Drain(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return &nursery{t, group, spawner}
}

// child starts a child that is killed and closed at the end of the test.
func (n *nursery) child(spec processSpec) *process {
	n.t.Helper()
	p, err := n.start(context.Background(), n.group, spec)
	if err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(func() { dispose(p) })
	return p
}

// dispose ends p the short way and gives back what it holds.
func dispose(p *process) {
	hurry := make(chan struct{})
	close(hurry)
	p.Stop(hurry)
	p.CloseOutput()
	<-p.StderrDone()
}

// startChild starts the helper of that name under a nursery of its own.
func startChild(t testing.TB, mode string, args ...string) *process {
	t.Helper()
	return newNursery(t).child(helperSpec(t, mode, args...))
}

// awaitLine reads one line of p and fails unless it is want.
func awaitLine(t testing.TB, p *process, want string) {
	t.Helper()
	line, err := bufio.NewReader(io.LimitReader(p, int64(len(want)+1))).ReadString('\n')
	if err != nil || line != want+"\n" {
		t.Fatalf("read %q, %v, want %q", line, err, want)
	}
}

// readRest reads what p writes to the end.
func readRest(t testing.TB, p *process) string {
	t.Helper()
	out, err := io.ReadAll(p)
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// outputLines is the output of a child without the carriage returns of Windows.
func outputLines(out string) []string {
	return strings.Split(strings.TrimSpace(strings.ReplaceAll(out, "\r\n", "\n")), "\n")
}

func TestProcessEndsWithItsInput(t *testing.T) {
	p := startChild(t, "eof")
	awaitLine(t, p, "ready")
	p.Stop(nil) // a signal would come after a minute only
	if got, want := outputLines(readRest(t, p)), []string{"end of input"}; !slices.Equal(got, want) {
		t.Errorf("the child says %q, want %q", got, want)
	}
	exit := p.ExitError()
	if exit.Status != 0 || exit.Signal != "" || exit.Err != nil {
		t.Errorf("ended with %#v, want status 0", exit)
	}
}

func TestProcessHurryKillsAtOnce(t *testing.T) {
	for _, early := range []bool{true, false} {
		p := startChild(t, "immortal")
		awaitLine(t, p, "ready")
		hurry := make(chan struct{})
		if early {
			close(hurry)
		}
		stopped := make(chan struct{})
		go func() {
			defer close(stopped)
			p.Stop(hurry)
		}()
		if !early {
			close(hurry)
		}
		<-stopped // two minutes later without the hurry
		if exit := p.ExitError(); exit.Status == 0 {
			t.Errorf("hurry closed early %v: ended with %#v, want a violent end", early, exit)
		}
	}
}

func TestProcessStopIsSharedAndIdempotent(t *testing.T) {
	p := startChild(t, "immortal")
	awaitLine(t, p, "ready")
	const callers = 8
	stopped := make(chan struct{}, callers)
	for range callers - 1 {
		go func() { p.Stop(nil); stopped <- struct{}{} }()
	}
	hurry := make(chan struct{})
	close(hurry)
	go func() { p.Stop(hurry); stopped <- struct{}{} }()
	for range callers {
		<-stopped // the one in a hurry decides for all
	}
	p.Stop(nil)
	p.Kill()
	p.CloseInput()
	p.CloseOutput()
	p.CloseOutput()
}

func TestProcessReportsStatusAndStderr(t *testing.T) {
	p := startChild(t, "exit", "42")
	p.CloseInput()
	<-p.Exited()
	<-p.StderrDone()
	exit := p.ExitError()
	var cause *exec.ExitError
	if exit.Server != "helper" || exit.Status != 42 || exit.Signal != "" || !errors.As(exit, &cause) {
		t.Errorf("ended with %#v, want status 42 and the cause", exit)
	}
	if got := strings.TrimSpace(p.StderrTail()); got != "giving up" || !strings.Contains(exit.Stderr, got) {
		t.Errorf("stderr is %q, in the error %q", got, exit.Stderr)
	}
}

func TestProcessDrainsStderr(t *testing.T) {
	p := startChild(t, "flood")
	awaitLine(t, p, "ready") // never, if the flood blocked it
	<-p.Exited()
	<-p.StderrDone()
	tail := p.StderrTail()
	if len(tail) != stderrTailLimit || !strings.HasSuffix(tail, "x\nthe last words") {
		t.Errorf("%d bytes of stderr kept, ending in %q", len(tail), tail[max(0, len(tail)-20):])
	}
}

func TestStderrTailKeepsTheLastBytes(t *testing.T) {
	for _, chunk := range []int{1, 3, stderrReadSize, stderrTailLimit - 1, stderrTailLimit, 3*stderrTailLimit + 1} {
		var tail stderrTail
		var all []byte
		for len(all) < 3*stderrTailLimit {
			piece := bytes.Repeat([]byte{byte(len(all)/chunk) | 1}, chunk)
			tail.write(piece)
			all = append(all, piece...)
			want := all[max(0, len(all)-stderrTailLimit):]
			if chunk > 100 && tail.String() != string(want) {
				t.Fatalf("pieces of %d: the tail after %d bytes is wrong", chunk, len(all))
			}
		}
		if want := all[len(all)-stderrTailLimit:]; tail.String() != string(want) {
			t.Errorf("pieces of %d: the tail at the end is wrong", chunk)
		}
	}
}

func TestProcessKeepsItsLastWords(t *testing.T) {
	p := startChild(t, "burst")
	<-p.Exited()
	out := readRest(t, p)
	if len(out) != helperBurstSize || !strings.HasSuffix(out, "last") {
		t.Errorf("%d bytes can be read after the exit, want %d", len(out), helperBurstSize)
	}
}

// A server that leaves a process behind, which holds its pipes, has ended.
func TestProcessGrandchildDiesWithItsLeader(t *testing.T) {
	usedProcessHelpers.Store("sleeper", true) // by the leader
	p := startChild(t, "grandchild")
	readRest(t, p)   // reaches the end only without the grandchild
	<-p.StderrDone() // so does this
	<-p.Exited()     // and the leader's own status counts
	if exit := p.ExitError(); exit.Status != 7 {
		t.Errorf("ended with %#v, want status 7", exit)
	}
}

func TestProcessCloseInputFreesWrite(t *testing.T) {
	p := startChild(t, "ignore-eof")
	awaitLine(t, p, "ready")
	wrote := make(chan error)
	go func() {
		_, err := p.Write(make([]byte, 4<<20)) // no pipe takes that much
		wrote <- err
	}()
	p.CloseInput()
	if err := <-wrote; err == nil {
		t.Error("a write that nobody read has succeeded")
	}
}

func TestProcessCloseOutputFreesRead(t *testing.T) {
	p := startChild(t, "ignore-eof")
	awaitLine(t, p, "ready")
	read := make(chan error)
	go func() {
		_, err := p.Read(make([]byte, 1))
		read <- err
	}()
	p.CloseOutput()
	if err := <-read; err != io.EOF {
		t.Errorf("the read ends with %v, want io.EOF", err)
	}
	<-p.StderrDone()
}

// Writing to a server that has gone is an error, never the end of the host.
func TestProcessWriteAfterDeath(t *testing.T) {
	p := startChild(t, "burst")
	<-p.Exited()
	if _, err := p.Write([]byte("hello\n")); err == nil {
		t.Error("a write to a dead process has succeeded")
	}
}

func TestProcessHandsOnDirectoryAndArguments(t *testing.T) {
	dir, err := filepath.EvalSymlinks(os.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	args := []string{"", "two words", `"quoted"`, "$HOME", "*", "%PATH%", `back\slash\`, "a&b|c", "ü", "line\nbreak", "-x"}
	spec := helperSpec(t, "info", args...)
	spec.dir = dir
	p := newNursery(t).child(spec)
	var gotArgs []string
	var gotDir string
	for _, line := range outputLines(readRest(t, p)) {
		kind, quoted, _ := strings.Cut(line, " ")
		switch kind {
		case "arg":
			gotArgs = append(gotArgs, unquoteGo(t, quoted))
		case "dir":
			gotDir = unquoteGo(t, quoted)
		}
	}
	if !slices.Equal(gotArgs, args) {
		t.Errorf("the arguments arrive as\n%q, want\n%q", gotArgs, args)
	}
	if !sameFile(t, gotDir, dir) {
		t.Errorf("the directory is %q, want %q", gotDir, dir)
	}
}

func TestProcessEnvironment(t *testing.T) {
	t.Setenv("MCP_TEST_INHERITED", "from the host")
	complete := helperSpec(t, "env")
	complete.env = []string{processHelperEnv + "=env", "MCP_TEST_OWN=1", "GORACE=atexit_sleep_ms=0"}
	got := outputLines(readRest(t, newNursery(t).child(complete)))
	if runtime.GOOS == "windows" { // which adds what no program can do without
		got = slices.DeleteFunc(got, func(v string) bool {
			return !slices.Contains(complete.env, v) && !strings.HasPrefix(v, "MCP_TEST_")
		})
	}
	slices.Sort(got)
	want := slices.Sorted(slices.Values(complete.env))
	if !slices.Equal(got, want) {
		t.Errorf("a complete environment arrives as %q, want %q", got, want)
	}

	inherited := helperSpec(t, "env")
	inherited.env = nil
	t.Setenv(processHelperEnv, "env")
	t.Setenv("GORACE", "atexit_sleep_ms=0")
	got = outputLines(readRest(t, newNursery(t).child(inherited)))
	if !slices.Contains(got, "MCP_TEST_INHERITED=from the host") {
		t.Errorf("without an environment the child has %q, want the host's", got)
	}
}

// missingName is a name that no command and no directory has.
const missingName = "no-such-thing-as-this"

func TestStartFaults(t *testing.T) {
	file, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	here := os.TempDir()
	for _, test := range []struct {
		name   string
		spec   processSpec
		reason Reason
		says   string
	}{
		{"no command", processSpec{}, ReasonCommandNotFound, "no command"},
		{"not in PATH", processSpec{command: missingName}, ReasonCommandNotFound, "PATH"},
		{"no such path", processSpec{command: filepath.Join(here, missingName)}, ReasonCommandNotFound, missingName},
		{"not in the directory", processSpec{command: "." + string(filepath.Separator) + missingName, dir: here}, ReasonCommandNotFound, missingName},
		{"no such directory", processSpec{command: file, dir: filepath.Join(here, missingName)}, ReasonDirectoryNotFound, missingName},
		{"directory is a file", processSpec{command: file, dir: file}, ReasonDirectoryNotFound, filepath.Base(file)},
		{"neither command nor directory", processSpec{command: missingName, dir: filepath.Join(here, missingName)}, ReasonDirectoryNotFound, here},
	} {
		t.Run(test.name, func(t *testing.T) { wantStartFault(t, test.spec, test.reason, test.says) })
	}
}

// wantStartFault starts spec, which has to fail for that reason, with an error
// that says so and keeps the environment to itself.
func wantStartFault(t *testing.T, spec processSpec, reason Reason, says string) {
	t.Helper()
	spec.name = "web"
	spec.env = append(os.Environ(), "TOKEN=hunter2")
	n := newNursery(t)
	p, err := n.start(context.Background(), n.group, spec)
	if err == nil {
		dispose(p)
		t.Fatal("it started")
	}
	var fault *StartError
	if !errors.As(err, &fault) {
		t.Fatalf("the error is %T (%v), want *StartError", err, err)
	}
	if fault.Server != "web" || fault.Command != spec.command || fault.Dir != spec.dir || fault.Reason != reason {
		t.Errorf("the fault is %+v, want the reason %q", fault, reason)
	}
	text := err.Error()
	if !strings.Contains(text, says) {
		t.Errorf("%q does not say %q", text, says)
	}
	if strings.Contains(text, "hunter2") {
		t.Errorf("%q tells a value of the environment", text)
	}
}

func TestStartWithEndedContext(t *testing.T) {
	n := newNursery(t)
	cause := errors.New("not today")
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(cause)
	if p, err := n.start(ctx, n.group, helperSpec(t, "eof")); err != cause {
		t.Errorf("start returns %v, %v, want the cause of the context's end", p, err)
	}
}

// The context bounds the start. It is not what the child lives by.
func TestStartContextEndsLater(t *testing.T) {
	n := newNursery(t)
	ctx, cancel := context.WithCancel(context.Background())
	p, err := n.start(ctx, n.group, helperSpec(t, "eof"))
	if err != nil {
		t.Fatal(err)
	}
	defer dispose(p)
	cancel()
	awaitLine(t, p, "ready")
	p.Stop(nil)
	if exit := p.ExitError(); exit.Status != 0 {
		t.Errorf("ended with %v, want status 0", exit)
	}
}

// A start that is given up while the thread is busy leaves no child behind,
// however late that one is born.
func TestStartGivenUp(t *testing.T) {
	n := newNursery(t)
	busy, free := make(chan struct{}), make(chan struct{})
	go func() { n.births <- func() bool { close(busy); <-free; return false } }()
	<-busy
	group := n.group.Sub("session", nil)
	ctx, cancel := context.WithCancel(context.Background())
	result := make(chan error)
	go func() {
		_, err := n.start(ctx, group, helperSpec(t, "immortal"))
		result <- err
	}()
	cancel()
	if err := <-result; !errors.Is(err, context.Canceled) {
		t.Errorf("start returns %v, want the end of its context", err)
	}
	close(free)
	if err := group.Drain(context.Background()); err != nil { // hangs on a child
		t.Error(err)
	}
}

// A birth is a start that has got as far as the spawner's thread, which the
// test stands in for: what happens before it calls bear happens during the
// birth.
type birth struct {
	group  *supervise.Group
	cancel context.CancelFunc // ends the context of the start
	result chan error         // of the start
	bear   func() bool
	reaped chan struct{}
}

func beginBirth(t *testing.T) *birth {
	t.Helper()
	s := &spawner{births: make(chan func() bool), reaped: make(chan struct{}, 1), ended: make(chan struct{})}
	ctx, cancel := context.WithCancel(context.Background())
	b := &birth{
		group:  supervise.New(context.Background(), "session", nil),
		cancel: cancel,
		result: make(chan error, 1),
		reaped: s.reaped,
	}
	spec := helperSpec(t, "immortal")
	go func() {
		_, err := s.start(ctx, b.group, spec)
		b.result <- err
	}()
	b.bear = <-s.births
	return b
}

// wantNoChild has the child born after all, and fails unless it is ended.
func (b *birth) wantNoChild(t *testing.T) {
	t.Helper()
	defer b.cancel()
	if !b.bear() {
		t.Fatal("no child was born")
	}
	b.group.Wait() // for ever, for an immortal child
	<-b.reaped
	if err := b.group.Drain(context.Background()); err != nil {
		t.Error(err)
	}
}

func TestStartGivenUpDuringBirth(t *testing.T) {
	b := beginBirth(t)
	b.cancel()
	if err := <-b.result; !errors.Is(err, context.Canceled) { // at once
		t.Errorf("start returns %v, want the end of its context", err)
	}
	b.wantNoChild(t)
}

func TestGroupDrainsDuringBirth(t *testing.T) {
	b := beginBirth(t)
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	if err := b.group.Drain(ended); err == nil {
		t.Error("the group is drained while a child of it is being born")
	}
	b.wantNoChild(t)
	if err := <-b.result; !errors.Is(err, supervise.ErrDraining) {
		t.Errorf("start returns %v, want ErrDraining", err)
	}
}

func TestStartInDrainingGroup(t *testing.T) {
	n := newNursery(t)
	group := n.group.Sub("session", nil)
	if err := group.Drain(context.Background()); err != nil {
		t.Fatal(err)
	}
	if p, err := n.start(context.Background(), group, helperSpec(t, "eof")); !errors.Is(err, supervise.ErrDraining) {
		t.Errorf("start returns %v, %v, want ErrDraining", p, err)
	}
}

// A group that begins to drain while a child of it is being born ends without
// one: whoever asked for it gets an error, or the child.
func TestStartWhileGroupDrains(t *testing.T) {
	n := newNursery(t)
	for range 20 {
		group := n.group.Sub("session", nil)
		started := make(chan *process)
		go func() {
			p, err := n.start(context.Background(), group, helperSpec(t, "immortal"))
			if err != nil && !errors.Is(err, supervise.ErrDraining) {
				t.Error(err)
			}
			if p != nil {
				p.Kill()
				p.CloseOutput()
			}
			started <- p
		}()
		if err := group.Drain(context.Background()); err != nil {
			t.Error(err)
		}
		if p := <-started; p != nil {
			select {
			case <-p.Exited():
			default:
				t.Error("the group is drained, and a child of it lives")
			}
		}
	}
}

// The spawner's thread outlives its children, and takes no births while it
// waits for them.
func TestSpawnerOutlivesItsChildren(t *testing.T) {
	host := supervise.New(context.Background(), "host", nil)
	s, err := newSpawner(host.Sub("spawner", nil))
	if err != nil {
		t.Fatal(err)
	}
	session := supervise.New(context.Background(), "session", nil)
	p, err := s.start(context.Background(), session, helperSpec(t, "eof"))
	if err != nil {
		t.Fatal(err)
	}
	defer dispose(p)
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	if err := host.Drain(ended); err == nil {
		t.Error("the spawner is gone, and its child lives")
	}
	if _, err := s.start(context.Background(), session, helperSpec(t, "eof")); !errors.Is(err, supervise.ErrDraining) {
		t.Errorf("a draining spawner returns %v, want ErrDraining", err)
	}
	awaitLine(t, p, "ready") // not killed with the thread
	p.Stop(nil)
	p.CloseOutput()
	for _, group := range []*supervise.Group{session, host} {
		if err := group.Drain(context.Background()); err != nil {
			t.Error(err)
		}
	}
	if _, err := newSpawner(host); !errors.Is(err, supervise.ErrDraining) {
		t.Errorf("newSpawner in a drained group returns %v, want ErrDraining", err)
	}
}

// What a session does when its group drains: its children end with it.
func TestDrainEndsChildren(t *testing.T) {
	n := newNursery(t)
	group := n.group.Sub("session", nil)
	var children []*process
	for range 5 {
		p, err := n.start(context.Background(), group, helperSpec(t, "eof"))
		if err != nil {
			t.Fatal(err)
		}
		children = append(children, p)
		group.Go("watch", func(ctx context.Context) {
			<-ctx.Done()
			p.Stop(nil)
			p.CloseOutput()
		})
	}
	if err := group.Drain(context.Background()); err != nil {
		t.Fatal(err)
	}
	for _, p := range children {
		select {
		case <-p.Exited():
		default:
			t.Error("the group is drained, and a child of it lives")
		}
	}
}
