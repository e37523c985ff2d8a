//go:build linux || darwin || dragonfly || freebsd || netbsd || openbsd

package mcp

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"
	"time"

	"yagent/mcp/supervise"
)

// Each gentle step gets its grace, and no more is done than is needed.
func TestProcessStopEscalates(t *testing.T) {
	for _, test := range []struct {
		mode   string
		signal syscall.Signal
		grace  time.Duration
		graces time.Duration
	}{
		// A busy system needs a while to end what was asked to end.
		{"ignore-eof", syscall.SIGTERM, 10 * testGrace, 1},
		{"immortal", syscall.SIGKILL, testGrace, 2},
	} {
		t.Run(test.mode, func(t *testing.T) {
			spec := helperSpec(t, test.mode)
			spec.grace = test.grace
			p := newNursery(t).child(spec)
			awaitLine(t, p, "ready")
			began := time.Now()
			p.Stop(nil)
			if took := time.Since(began); took < test.graces*test.grace {
				t.Errorf("stopped after %v, want %d graces of %v", took, test.graces, test.grace)
			}
			exit := p.ExitError()
			if exit.Status != -1 || exit.Signal != test.signal.String() {
				t.Errorf("ended with %#v, want the signal %v", exit, test.signal)
			}
		})
	}
}

// A stopped process sees neither the end of its input nor a SIGTERM.
func TestProcessStoppedCanBeKilled(t *testing.T) {
	spec := helperSpec(t, "eof")
	spec.grace = testGrace
	p := newNursery(t).child(spec)
	awaitLine(t, p, "ready")
	if err := syscall.Kill(p.PID(), syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	var status syscall.WaitStatus
	if _, err := syscall.Wait4(p.PID(), &status, syscall.WUNTRACED, nil); err != nil || !status.Stopped() {
		t.Fatalf("the child is not stopped: %v, %v", status, err)
	}
	p.Stop(nil)
	if exit := p.ExitError(); exit.Signal != syscall.SIGKILL.String() {
		t.Errorf("ended with %#v, want the signal %v", exit, syscall.SIGKILL)
	}
}

func TestProcessHasItsOwnGroup(t *testing.T) {
	p := startChild(t, "eof")
	group, err := syscall.Getpgid(p.PID())
	if err != nil || group != p.PID() {
		t.Errorf("the group of process %d is %d, %v", p.PID(), group, err)
	}
}

// Nothing is signalled under a number that may be a stranger's by now.
func TestProcessNoSignalAfterReaping(t *testing.T) {
	p := startChild(t, "burst")
	<-p.Exited()
	p.signal(func(family) { t.Error("signalled a reaped leader's group") })
}

// The leader, dead but not reaped, keeps the number of its group from strangers
// for as long as the lock is held.
func TestProcessIsReapedUnderTheLock(t *testing.T) {
	p := startChild(t, "eof")
	awaitLine(t, p, "ready")
	p.mu.Lock()
	p.CloseInput() // the leader ends, and cannot be reaped
	if err := awaitExit(p.cmd.Process); err != nil {
		t.Error(err)
	}
	err := syscall.Kill(p.PID(), 0)
	p.mu.Unlock()
	if err != nil {
		t.Errorf("the leader was reaped without the lock: %v", err)
	}
	<-p.Exited()
}

func TestStartFaultsOfFiles(t *testing.T) {
	dir := t.TempDir()
	plain := writeFile(t, filepath.Join(dir, "plain"), "text\n", 0o644)
	text := writeFile(t, filepath.Join(dir, "text"), "text\n", 0o755)
	script := writeFile(t, filepath.Join(dir, "script"), "#!"+filepath.Join(dir, missingName)+"\n", 0o755)
	for _, test := range []struct {
		name   string
		spec   processSpec
		reason Reason
		says   string
	}{
		{"command is a directory", processSpec{command: dir}, ReasonNotExecutable, dir},
		{"not executable", processSpec{command: plain}, ReasonNotExecutable, plain},
		{"no program", processSpec{command: text}, ReasonNotExecutable, text},
		{"no interpreter", processSpec{command: script}, ReasonNotExecutable, "interpreter"},
		{"no interpreter, relative", processSpec{command: "./script", dir: dir}, ReasonNotExecutable, "interpreter"},
		{"command below a file", processSpec{command: filepath.Join(plain, "x")}, ReasonCommandNotFound, plain},
		{"zero byte in an argument", processSpec{command: "/bin/sh", args: []string{"a\x00b"}}, ReasonNotExecutable, "/bin/sh"},
	} {
		t.Run(test.name, func(t *testing.T) { wantStartFault(t, test.spec, test.reason, test.says) })
	}
}

// writeFile writes a file that may be executed afterwards. No child may be
// born meanwhile, or it would hold the file open for writing for a moment.
func writeFile(t *testing.T, path, text string, mode os.FileMode) string {
	t.Helper()
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
	return path
}

// Many starts, good and bad, leave nothing behind.
func TestProcessLeavesNothingBehind(t *testing.T) {
	// The first file in a process makes the runtime's poller, which stays.
	startChild(t, "burst").CloseOutput()
	files, goroutines := len(openFiles()), runtime.NumGoroutine()
	group := supervise.New(context.Background(), "test", nil)
	s, err := newSpawner(group)
	if err != nil {
		t.Fatal(err)
	}
	var pids []int
	for range 200 {
		p, err := s.start(context.Background(), group, catSpec())
		if err != nil {
			t.Fatal(err)
		}
		pids = append(pids, p.PID())
		p.Stop(nil)
		p.CloseOutput()
		if _, err := s.start(context.Background(), group, processSpec{name: "cat", command: missingName}); err == nil {
			t.Fatal("a command that is missing was started")
		}
	}
	if err := group.Drain(context.Background()); err != nil {
		t.Fatal(err)
	}
	for _, pid := range pids {
		if err := syscall.Kill(pid, 0); !errors.Is(err, syscall.ESRCH) {
			t.Errorf("process %d is still there: %v", pid, err)
		}
	}
	if now := len(openFiles()); now > files {
		t.Errorf("%d files are open, were %d before", now, files)
	}
	// A joined goroutine may take a moment to vanish from the count.
	for deadline := time.Now().Add(10 * time.Second); runtime.NumGoroutine() > goroutines && time.Now().Before(deadline); {
		runtime.Gosched()
	}
	if now := runtime.NumGoroutine(); now > goroutines {
		t.Errorf("%d goroutines run, were %d before", now, goroutines)
	}
}

// catSpec is a child that is cheaper than the test binary.
func catSpec() processSpec {
	return processSpec{name: "cat", command: "cat", grace: time.Minute}
}
