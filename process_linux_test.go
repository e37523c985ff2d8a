package mcp

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// The end of a child is awaited without a thread of its own.
func TestProcessesShareThreads(t *testing.T) {
	n := newNursery(t)
	before := threadCount(t)
	for range 100 {
		n.child(catSpec())
	}
	if now := threadCount(t); now > before+20 {
		t.Errorf("%d threads with 100 children, were %d before", now, before)
	}
}

func threadCount(t *testing.T) (count int) {
	t.Helper()
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	_, field, _ := bytes.Cut(status, []byte("\nThreads:"))
	if _, err := fmt.Sscan(string(field), &count); err != nil {
		t.Fatal(err)
	}
	return count
}

// A child has the three files it was given, and no other of ours. Those that
// our own parent left open for its children to inherit are none of ours.
func TestProcessInheritsThreeFiles(t *testing.T) {
	file, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	startChild(t, "eof") // with pipes that the next one must not get
	want := fmt.Sprintf("fds %q", inheritableFiles())
	if out := readRest(t, startChild(t, "info")); !strings.Contains(out, want) {
		t.Errorf("the child says %q, want %s", out, want)
	}
}

// inheritableFiles returns the numbers of the open files that a program started
// from here gets: the standard ones, and those without the close-on-exec flag.
func inheritableFiles() []string {
	return slices.DeleteFunc(openFiles(), func(number string) bool {
		fd, _ := strconv.Atoi(number)
		flags, _, errno := syscall.Syscall(syscall.SYS_FCNTL, uintptr(fd), syscall.F_GETFD, 0)
		return fd > 2 && (errno != 0 || flags&syscall.FD_CLOEXEC != 0)
	})
}

// Both ways to see the end of a child leave it to be reaped.
func TestAwaitExitLeavesTheChildUnreaped(t *testing.T) {
	for _, test := range []struct {
		name  string
		await func(*os.Process) error
	}{
		{"polled", awaitPidfd},
		{"blocking", func(leader *os.Process) error {
			bare := &os.Process{Pid: leader.Pid} // as on a system without pidfds
			if err := awaitPidfd(bare); err == nil {
				t.Error("polled without a pidfd")
			}
			return awaitExit(bare)
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			cmd := exec.Command("cat")
			input, err := cmd.StdinPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			ended := make(chan error)
			go func() { ended <- test.await(cmd.Process) }()
			select {
			case err := <-ended:
				t.Fatalf("the child has not ended, the wait has: %v", err)
			default:
			}
			input.Close()
			if err := <-ended; err != nil {
				t.Error(err)
			}
			if err := cmd.Wait(); err != nil {
				t.Errorf("the child was reaped before Wait: %v", err)
			}
		})
	}
}

// A leader that somebody else reaped has a number that may be a stranger's.
func TestProcessReapedBySomebodyElse(t *testing.T) {
	cmd := exec.Command("cat")
	if err := cmd.Start(); err != nil { // its input is the null device
		t.Fatal(err)
	}
	if _, err := syscall.Wait4(cmd.Process.Pid, nil, 0, nil); err != nil {
		t.Fatal(err)
	}
	p := newProcess(processSpec{name: "cat"})
	p.cmd = cmd
	p.awaitEnd()
	<-p.Exited()
	p.signal(func(family) { t.Error("signalled a reaped leader's group") })
	if exit := p.ExitError(); exit.Status != -1 || exit.Err == nil {
		t.Errorf("ended with %#v, want an unknown status and the error", exit)
	}
}

// A host that is killed can end nothing, so the system must: also a child that
// ignores the end of its input and every signal that can be ignored.
func TestProcessDiesWithItsHost(t *testing.T) {
	host := startChild(t, "host")
	buffer := make([]byte, 64)
	n, err := host.Read(buffer)
	if err != nil {
		t.Fatal(err)
	}
	child, err := strconv.Atoi(strings.TrimSpace(string(buffer[:n])))
	if err != nil {
		t.Fatal(err)
	}
	if !isRunning(child) {
		t.Fatal("the child is not running")
	}
	host.Kill() // the child has a group of its own
	<-host.Exited()
	for deadline := time.Now().Add(5 * time.Second); isRunning(child); runtime.Gosched() {
		if time.Now().After(deadline) {
			_ = syscall.Kill(child, syscall.SIGKILL)
			t.Fatal("the child outlives its host")
		}
	}
}

// isRunning reports whether a process is there and not only waits to be reaped.
func isRunning(pid int) bool {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return false
	}
	_, after, _ := strings.Cut(string(stat[bytes.LastIndexByte(stat, ')')+1:]), " ")
	return !strings.HasPrefix(after, "Z") && !strings.HasPrefix(after, "X")
}
