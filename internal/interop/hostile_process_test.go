package interop

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"yagent/mcp"
)

// How servers die, and how they are made to.

// All calls in flight end with the process, with its status and its last words,
// and none is sent again.
func TestHostile_exit_midcall(t *testing.T) {
	t.Parallel()
	h := newHost(t, eager(5), in("exit-midcall"))
	h.ready("bad")
	const n = 10
	failed := make(chan error, n)
	for i := range n {
		go func() {
			_, err := h.Call(h.patient(), "bad", "echo", map[string]int{"caller": i})
			failed <- fmt.Errorf("caller %d: %w", i, err)
		}()
	}
	unknown := 0
	for range n {
		err := <-failed
		exit, isExit := errors.AsType[*mcp.ExitError](err)
		switch {
		case errors.Is(err, mcp.ErrOutcomeUnknown) && isExit:
			unknown++
			if exit.Status != 7 || !strings.Contains(exit.Stderr, "the database is gone") {
				t.Errorf("got %v, want status 7 with the stderr tail", err)
			}
		case errors.Is(err, mcp.ErrNotSent):
		default:
			t.Errorf("got %v, want ErrOutcomeUnknown with the exit, or ErrNotSent", err)
		}
	}
	if unknown == 0 {
		t.Error("no call was in flight")
	}
	h.awaitState("bad", mcp.StateOffline)
	h.ready("bad")
	h.close()
	if lines := h.received("bad", "tools/call"); len(lines) > unknown {
		t.Errorf("the server read %d calls of %d that were sent: %q", len(lines), unknown, lines)
	}
}

func TestHostile_exit_idle(t *testing.T) {
	t.Parallel()
	h := newHost(t, once(), in("exit-idle", flagTime("delay", 200*time.Millisecond)))
	h.ready("bad")
	change := h.awaitState("bad", mcp.StateOffline)
	told := time.Now()
	if change.From != mcp.StateReady || change.Reason != mcp.ReasonExited {
		t.Errorf("the change is %+v", change)
	}
	// The last thing that the server did was to write its log.
	if info, err := os.Stat(h.logFile("bad")); err != nil || told.Sub(info.ModTime()) > time.Second {
		t.Errorf("the host heard of the death after %v (%v)", told.Sub(info.ModTime()), err)
	}
	if got, want := h.line("bad"), "bad: offline — the process exited; reconnecting"; got != want {
		t.Errorf("line is %q, want %q", got, want)
	}
	if got := h.health("bad"); got.Tools != 0 || got.PID != 0 {
		t.Errorf("health is %+v", got)
	}
	if n := len(h.toolNames("bad")); n != 8 {
		t.Errorf("%d tools are kept through the outage, want 8", n)
	}
	err := h.callError(h.patient(), "bad", "echo", nil)
	exit, ok := errors.AsType[*mcp.ExitError](err)
	if !ok || exit.Status != 3 || !errors.Is(err, mcp.ErrOffline) || !errors.Is(err, mcp.ErrNotSent) || strings.Contains(err.Error(), "broken pipe") {
		t.Errorf("got %v, want ErrOffline with status 3", err)
	}
	if h.Client("bad").IsAlive() {
		t.Error("the client is alive")
	}
}

// One process at a time: the next starts when the one before is gone.
func TestHostile_exit_idle_order(t *testing.T) {
	t.Parallel()
	h := newHost(t, eager(3), in("exit-idle", flagTime("delay", 50*time.Millisecond)))
	if err := gaveUp(h); !strings.Contains(err.Error(), "gave up after 3 attempts") {
		t.Errorf("got %v", err)
	}
	var order []string
	for _, e := range h.events("bad") {
		if e.kind == "start" || e.kind == "exit" {
			order = append(order, e.kind)
		}
	}
	if want := strings.Fields(strings.Repeat("start exit ", 4)); !slices.Equal(order, want) {
		t.Errorf("got %q, want %q", order, want)
	}
}

// gaveUp waits until a server that keeps dying is given up, and returns the
// error that says so.
func gaveUp(h *host) (err error) {
	h.t.Helper()
	eventually(h.t, "the end of the attempts", func() bool { return h.health("bad").Reason == mcp.ReasonGaveUp })
	if err = h.WaitForReady(h.patient(), "bad"); err == nil {
		h.t.Fatal("WaitForReady: got nil for a server that was given up")
	}
	return err
}

// A server that dies right after its first list does not loop for ever.
func TestHostile_crash_after_init(t *testing.T) {
	t.Parallel()
	h := newHost(t, eager(4), in("crash-after-init"))
	err := gaveUp(h)
	if exit, ok := errors.AsType[*mcp.ExitError](err); !ok || exit.Status != 1 {
		t.Errorf("got %v, want an ExitError with status 1", err)
	}
	if got, want := h.line("bad"), "bad: offline — gave up after 4 attempts"; got != want {
		t.Errorf("line is %q, want %q", got, want)
	}
	if n := h.starts("bad"); n != 5 {
		t.Errorf("%d starts, want the first and 4 more", n)
	}
	if err := h.Reconnect("bad"); err != nil {
		t.Fatal(err)
	}
	gaveUp(h)
	if n := h.starts("bad"); n != 10 {
		t.Errorf("%d starts after Reconnect, want 10", n)
	}
}

func TestHostile_flaky(t *testing.T) {
	t.Run("recovers by itself", func(t *testing.T) {
		t.Parallel()
		h := newHost(t, eager(5), legacyIn("flaky", "-state", filepath.Join(t.TempDir(), "state")))
		h.ready("bad")
		h.echoes("bad")
		if n := h.starts("bad"); n != 4 {
			t.Errorf("%d starts, want 4", n)
		}
		if got := h.health("bad").Attempts; got != 3 {
			t.Errorf("%d attempts, want 3", got)
		}
	})
	t.Run("Reconnect ends the pause", func(t *testing.T) {
		t.Parallel()
		h := newHost(t, once(), legacyIn("flaky", "-n=1", "-state", filepath.Join(t.TempDir(), "state")))
		h.awaitState("bad", mcp.StateOffline)
		if err := h.Reconnect("bad"); err != nil {
			t.Fatal(err)
		}
		h.ready("bad")
		h.echoes("bad")
		if n := h.starts("bad"); n != 2 {
			t.Errorf("%d starts, want 2", n)
		}
	})
}

func TestHostile_reconnect_running(t *testing.T) {
	h := connected(t, "normal")
	before := h.health("bad").PID
	if err := h.Reconnect("bad"); err != nil {
		t.Fatal(err)
	}
	h.ready("bad")
	h.echoes("bad")
	if after := h.health("bad").PID; after == before {
		t.Error("it is the same process")
	}
	h.wantEnding("bad", "eof", "exit 0")
	h.close()
	if n := len(h.changes); n != 1 {
		t.Errorf("%d changes of tools, want the first only", n)
	}
}

// The steps of a shutdown, and that each is given its time and no more.
func TestHostile_shutdown(t *testing.T) {
	const grace = 300 * time.Millisecond
	for _, test := range []struct {
		mode     string
		grace    time.Duration
		ending   []string
		min, max time.Duration
	}{
		{"normal", grace, []string{"eof", "exit 0"}, 0, grace},
		{"ignore-eof", grace, []string{"eof", "signal terminated"}, grace, 2 * grace},
		{"immortal", grace, []string{"eof", "signal terminated"}, 2 * grace, 4 * grace},
		{"slow-exit", 10 * time.Second, []string{"eof", "exit 0"}, 700 * time.Millisecond, 5 * time.Second},
	} {
		t.Run(test.mode, func(t *testing.T) {
			t.Parallel()
			opts := once()
			opts.ShutdownGrace = test.grace
			h := newHost(t, opts, in(test.mode))
			h.ready("bad")
			h.echoes("bad")
			took := h.close()
			if took < test.min || took > test.max+time.Second {
				t.Errorf("Close took %v, want %v to %v", took, test.min, test.max)
			}
			h.wantEnding("bad", test.ending...)
			if got, want := h.line("bad"), "bad: offline — stopped"; got != want {
				t.Errorf("line is %q, want %q", got, want)
			}
			if n := h.records.count("level=WARN") + h.records.count("level=ERROR"); n != 0 {
				t.Errorf("a close that was asked for is no fault, but was logged:\n%s", h.records)
			}
			if err := h.callError(h.patient(), "bad", "echo", nil); !errors.Is(err, mcp.ErrClosed) {
				t.Errorf("a call afterwards: got %v, want ErrClosed", err)
			}
		})
	}
}

// many returns n servers of one mode, named s0, s1, …
func many(n int, mode string) []mcp.ServerConfig {
	servers := make([]mcp.ServerConfig, n)
	for i := range servers {
		servers[i] = in(mode)
		servers[i].Name = fmt.Sprintf("s%d", i)
	}
	return servers
}

// Many servers close in the time of the slowest.
func TestHostile_immortal_many(t *testing.T) {
	const grace = 500 * time.Millisecond
	for _, test := range []struct {
		name     string
		close    func(h *host) error
		min, max time.Duration
	}{
		{"Close", func(h *host) error { return h.Close(h.patient()) }, 2 * grace, 2*grace + 3*time.Second},
		{"the end of Close's context", func(h *host) error { return h.Close(shortly(h.t, grace/2)) }, grace / 2, grace/2 + 2*time.Second},
		{"ForceClose", func(h *host) error { return h.ForceClose(h.patient()) }, 0, 2 * time.Second},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			opts := once()
			opts.ShutdownGrace = grace
			h := newHost(t, opts, many(20, "immortal")...)
			for i := range 20 {
				h.ready(fmt.Sprintf("s%d", i))
			}
			begun := time.Now()
			if err := test.close(h); err != nil {
				t.Errorf("got %v", err)
			}
			if took := time.Since(begun); took < test.min || took > test.max {
				t.Errorf("it took %v, want %v to %v", took, test.min, test.max)
			}
			if left := marked(h.mark); len(left) != 0 {
				t.Errorf("processes %v are left", left)
			}
		})
	}
}

// A second Close is for the impatient.
func TestHostile_immortal_second_close(t *testing.T) {
	t.Parallel()
	opts := once()
	opts.ShutdownGrace = time.Hour
	h := newHost(t, opts, in("immortal"))
	h.ready("bad")
	first := make(chan error, 1)
	go func() { first <- h.Close(h.patient()) }()
	eventually(t, "the end of its input", func() bool { return h.countEvents("bad", "eof") == 1 })
	if took := h.close(); took > 5*time.Second {
		t.Errorf("the second Close took %v", took)
	}
	if err := <-first; err != nil {
		t.Errorf("the first Close: %v", err)
	}
	h.wantEnding("bad", "eof") // no signal that it could have seen
}

// A grandchild that holds the pipes keeps nobody.
func TestHostile_grandchild(t *testing.T) {
	t.Run("Close", func(t *testing.T) {
		h := connected(t, "grandchild")
		if n := len(marked(h.mark)); n != 2 {
			t.Fatalf("%d processes, want the server and its child", n)
		}
		if took := h.close(); took > 5*time.Second {
			t.Errorf("Close took %v", took)
		}
	})
	t.Run("exit", func(t *testing.T) {
		h := connected(t, "grandchild")
		begun := time.Now()
		err := h.callError(h.patient(), "bad", "crash", map[string]int{"code": 5})
		if exit, ok := errors.AsType[*mcp.ExitError](err); !ok || exit.Status != 5 || !strings.Contains(exit.Stderr, "crashing as told") {
			t.Errorf("got %v, want status 5 with the stderr tail", err)
		}
		if took := time.Since(begun); took > 3*time.Second {
			t.Errorf("the call ended after %v", took)
		}
		h.noProcesses() // before Close
	})
}

func TestHostile_wrapper(t *testing.T) {
	t.Run("Close", func(t *testing.T) {
		t.Parallel()
		opts := once()
		opts.ShutdownGrace = 200 * time.Millisecond
		h := newHost(t, opts, in("wrapper"))
		h.ready("bad")
		h.echoes("bad")
		if n := len(marked(h.mark)); n != 2 {
			t.Fatalf("%d processes, want the wrapper and the server", n)
		}
		h.close()
		h.noProcesses()
	})
	t.Run("SIGKILL to the wrapper", func(t *testing.T) {
		h := connected(t, "wrapper")
		if err := syscall.Kill(h.health("bad").PID, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		h.awaitState("bad", mcp.StateOffline)
		h.noProcesses() // before Close
	})
}

// Calls in flight end with the Manager, which may be closed at any time and any
// number of times.
func TestHostile_close(t *testing.T) {
	t.Run("calls in flight", func(t *testing.T) {
		h := connected(t, "normal")
		failed := make(chan error, 10)
		for range cap(failed) {
			go func() {
				_, err := h.Call(h.patient(), "bad", "sleep", map[string]int{"ms": 60_000})
				failed <- err
			}()
		}
		eventually(t, "all calls", func() bool { return len(h.received("bad", "tools/call")) == cap(failed) })
		h.close()
		for range cap(failed) {
			if err := <-failed; !errors.Is(err, mcp.ErrClosed) || !errors.Is(err, mcp.ErrOutcomeUnknown) {
				t.Errorf("got %v, want ErrClosed and ErrOutcomeUnknown", err)
			}
		}
		h.close()
		if err := h.ForceClose(h.patient()); err != nil {
			t.Errorf("ForceClose: %v", err)
		}
	})
	t.Run("before Start", func(t *testing.T) {
		t.Parallel()
		m := mcp.NewManager([]mcp.ServerConfig{{Name: "bad", Command: badserver}}, once())
		if err := m.Close(shortly(t, patience)); err != nil {
			t.Errorf("Close: %v", err)
		}
		if err := m.Start(t.Context()); !errors.Is(err, mcp.ErrClosed) {
			t.Errorf("Start: got %v, want ErrClosed", err)
		}
	})
	for _, mode := range []string{"normal", "init-hang", "die-at-start", "crash-after-init"} {
		t.Run("right after Start, "+mode, func(t *testing.T) {
			t.Parallel()
			for range 10 {
				h := newHost(t, eager(1000), many(3, mode)...)
				h.close()
				started := h.starts("s0") + h.starts("s1") + h.starts("s2")
				if left := marked(h.mark); len(left) != 0 {
					t.Errorf("processes %v are left", left)
				}
				if now := h.starts("s0") + h.starts("s1") + h.starts("s2"); now != started {
					t.Errorf("a process appeared after Close")
				}
			}
		})
	}
}

// A process that went to another session is out of reach, but what it holds
// keeps nobody.
func TestHostile_pipe_held(t *testing.T) {
	start := func(t *testing.T) *host {
		t.Parallel()
		// The sleeper inherits the output and leaves the group.
		cfg := mcp.ServerConfig{Name: "bad", Command: "sh", Args: []string{"-c", `setsid sleep 60 & exec "$0" -mode normal`, badserver}}
		h := newHost(t, once(), cfg)
		t.Cleanup(func() {
			// Runs before the host's own end, which wants no process left.
			for _, pid := range marked(h.mark) {
				if pid != h.health("bad").PID {
					syscall.Kill(pid, syscall.SIGKILL)
				}
			}
		})
		h.ready("bad")
		return h
	}
	t.Run("exit", func(t *testing.T) {
		h := start(t)
		begun := time.Now()
		err := h.callError(h.patient(), "bad", "crash", map[string]int{"code": 6})
		if exit, ok := errors.AsType[*mcp.ExitError](err); !ok || exit.Status != 6 || !strings.Contains(exit.Stderr, "crashing as told") {
			t.Errorf("got %v, want status 6 with the stderr tail", err)
		}
		if took := time.Since(begun); took > 3*time.Second {
			t.Errorf("the call ended after %v", took)
		}
	})
	t.Run("Close", func(t *testing.T) {
		h := start(t)
		if took := h.close(); took > 3*time.Second {
			t.Errorf("Close took %v", took)
		}
	})
}

// A server that is stopped by a signal is silent, not dead.
func TestHostile_sigstop(t *testing.T) {
	t.Parallel()
	opts := once()
	opts.ShutdownGrace = 200 * time.Millisecond
	h := newHost(t, opts, in("normal"))
	h.ready("bad")
	pid := h.health("bad").PID
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	if err := h.callError(shortly(t, 100*time.Millisecond), "bad", "echo", nil); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v, want DeadlineExceeded", err)
	}
	if got := h.line("bad"); got != "bad: ready — 8 tools" {
		t.Errorf("line is %q", got)
	}
	if err := syscall.Kill(pid, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	h.survives("bad", func() {})
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	if took := h.close(); took > 3*time.Second {
		t.Errorf("Close took %v", took)
	}
}

// The signal that ended a server is named.
func TestHostile_signals(t *testing.T) {
	for _, signal := range []syscall.Signal{syscall.SIGKILL, syscall.SIGSEGV, syscall.SIGABRT} {
		t.Run(signal.String(), func(t *testing.T) {
			t.Parallel()
			// A Go program would catch some of these; a shell dies of them.
			h := newHost(t, once(), mcp.ServerConfig{Name: "bad", Command: "sh", Args: []string{"-c", `"$0"; exit 1`, badserver}})
			h.ready("bad")
			failed := make(chan error, 1)
			go func() {
				_, err := h.Call(h.patient(), "bad", "sleep", map[string]int{"ms": 60_000})
				failed <- err
			}()
			asked := 0
			eventually(t, "the call has arrived", func() bool {
				asked++
				var seen struct{ Methods map[string]int }
				if err := json.Unmarshal([]byte(h.call("bad", "stats", nil).Text()), &seen); err != nil {
					t.Fatal(err)
				}
				return seen.Methods["tools/call"] > asked
			})
			if err := syscall.Kill(h.health("bad").PID, signal); err != nil {
				t.Fatal(err)
			}
			err := <-failed
			if exit, ok := errors.AsType[*mcp.ExitError](err); !ok || exit.Signal != signal.String() || exit.Status != -1 {
				t.Errorf("got %v, want the signal %v", err, signal)
			}
			h.noProcesses() // before Close
		})
	}
}

// One server can be shut down by its client; it stays down until it is wanted.
func TestHostile_shutdown_one(t *testing.T) {
	t.Parallel()
	h := newHost(t, eager(5), in("normal"), mcp.ServerConfig{Name: "good", Command: badserver})
	h.ready("bad")
	h.ready("good")
	client := h.Client("bad")
	if err := client.Shutdown(h.patient()); err != nil {
		t.Fatal(err)
	}
	if got, want := h.line("bad"), "bad: offline — stopped"; got != want || client.IsAlive() {
		t.Errorf("line is %q, want %q; alive %v", got, want, client.IsAlive())
	}
	h.wantEnding("bad", "eof", "exit 0")
	if err := h.callError(h.patient(), "bad", "echo", nil); !errors.Is(err, mcp.ErrOffline) || !errors.Is(err, mcp.ErrNotSent) {
		t.Errorf("got %v, want ErrOffline and ErrNotSent", err)
	}
	h.echoes("good")
	if n := h.starts("bad"); n != 1 {
		t.Errorf("%d starts, want 1", n)
	}
	if err := h.Reconnect("bad"); err != nil {
		t.Fatal(err)
	}
	h.ready("bad")
	h.echoes("bad")
	if h.Client("bad") != client || !client.IsAlive() {
		t.Error("the client is another one, or not alive")
	}
}

// Callers past the bound wait in order, and no longer than they want to.
func TestHostile_max_in_flight(t *testing.T) {
	t.Parallel()
	cfg := in("normal")
	cfg.MaxInFlight = 1
	h := newHost(t, once(), cfg)
	h.ready("bad")
	slow := make(chan error, 1)
	go func() {
		_, err := h.Call(h.patient(), "bad", "sleep", map[string]int{"ms": 500})
		slow <- err
	}()
	eventually(t, "the slow call", func() bool { return len(h.received("bad", "tools/call")) == 1 })
	err := h.callError(shortly(t, 50*time.Millisecond), "bad", "echo", nil)
	if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, mcp.ErrNotSent) {
		t.Errorf("got %v, want DeadlineExceeded and ErrNotSent", err)
	}
	h.echoes("bad")
	if err := <-slow; err != nil {
		t.Error(err)
	}
}

// What a child is born with.
type birth struct {
	PID, PPID, PGID int
	Cwd             string
	Args, FDs       []string
	Env             map[string]string
}

func (h *host) birth(env ...string) birth {
	h.t.Helper()
	var b birth
	if err := json.Unmarshal([]byte(h.call("bad", "info", map[string]any{"env": env}).Text()), &b); err != nil {
		h.t.Fatal(err)
	}
	return b
}

func TestHostile_info(t *testing.T) {
	t.Parallel()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	args := []string{"two words", "", "$HOME", "*", `"quoted"`, "a;b|c&d", "--", "-n", "é\n"}
	cfg := in("normal", args...)
	cfg.Dir = dir
	cfg.Env = []string{"GIVEN=as it is", "EMPTY="}
	h := newHost(t, once(), cfg)
	h.ready("bad")
	b := h.birth("GIVEN", "EMPTY", "PATH", "HOME")
	if b.PGID != b.PID || b.PGID == syscall.Getpgrp() || b.PPID != os.Getpid() || b.PID != h.health("bad").PID {
		t.Errorf("process %d of %d in group %d", b.PID, b.PPID, b.PGID)
	}
	if b.Cwd != dir {
		t.Errorf("the directory is %q, want %q", b.Cwd, dir)
	}
	if got := b.Args[len(b.Args)-len(args):]; !slices.Equal(got, args) {
		t.Errorf("the arguments are %q, want %q", got, args)
	}
	if len(b.Env) != 2 || b.Env["GIVEN"] != "as it is" {
		t.Errorf("the environment is %q, want what was given and nothing else", b.Env)
	}
	if got := descriptors(b); !slices.Equal(got, []string{"0", "1", "2"}) {
		t.Errorf("the descriptors are %q", b.FDs)
	}
}

// descriptors returns the numbers of a child's open files but for its own log
// and for what leaks from whoever started this test: a file without the
// close-on-exec flag, which no file that Go opens lacks.
func descriptors(b birth) []string {
	leaked := leakedFiles()
	var numbers []string
	for _, fd := range b.FDs {
		number, file, _ := strings.Cut(fd, "=")
		if !strings.HasSuffix(file, ".log") && leaked[number] != file {
			numbers = append(numbers, number)
		}
	}
	return numbers
}

func TestHostile_environment_inherited(t *testing.T) {
	t.Parallel()
	m := mcp.NewManager([]mcp.ServerConfig{in("normal")}, once())
	if err := m.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer m.Close(context.Background())
	if err := m.WaitForReady(shortly(t, patience), "bad"); err != nil {
		t.Fatal(err)
	}
	result, err := m.Call(shortly(t, patience), "bad", "info", map[string]any{"env": []string{"PATH"}})
	if err != nil || !strings.Contains(result.Text(), os.Getenv("PATH")) {
		t.Errorf("got %v, %v; want the host's PATH", result, err)
	}
}

// Whatever fails, the values of the environment stay out of it.
func TestHostile_environment_secret(t *testing.T) {
	const secret = "hunter2-hunter2"
	for name, cfg := range map[string]mcp.ServerConfig{
		"no such command":   {Command: "/nonexistent/server"},
		"no such directory": {Command: badserver, Dir: "/nonexistent"},
		"exit":              in("die-at-start"),
		"refused":           in("init-error"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg.Name = "bad"
			cfg.Env = []string{"TOKEN=" + secret}
			h := newHost(t, once(), cfg)
			h.awaitState("bad", mcp.StateOffline)
			err := h.callError(h.patient(), "bad", "echo", nil)
			if text := fmt.Sprintf("%v %+v %s", err, h.health("bad"), h.records); strings.Contains(text, secret) {
				t.Errorf("the secret is in %s", text)
			}
		})
	}
}

// A start that cannot succeed says why, and is not tried again.
func TestHostile_no_start(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, []byte("no program"), 0o644); err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(t.TempDir(), "program")
	if err := os.WriteFile(program, []byte("no program either"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name  string
		cfg   mcp.ServerConfig
		line  string
		named []string // by the error
	}{
		{"no such command in PATH", mcp.ServerConfig{Command: "no-such-mcp-server"}, "bad: offline — command not found", []string{"no-such-mcp-server", "PATH"}},
		{"no such file", mcp.ServerConfig{Command: "/nonexistent/server"}, "bad: offline — command not found", []string{"/nonexistent/server"}},
		{"no command", mcp.ServerConfig{}, "bad: offline — command not found", nil},
		{"no such directory", mcp.ServerConfig{Command: badserver, Dir: "/nonexistent"}, "bad: offline — directory not found", []string{"/nonexistent"}},
		{"a file as the directory", mcp.ServerConfig{Command: badserver, Dir: file}, "bad: offline — directory not found", []string{file}},
		{"not executable", mcp.ServerConfig{Command: file}, "bad: offline — not executable", []string{file}},
		{"no program", mcp.ServerConfig{Command: program}, "bad: offline — not executable", []string{program}},
		{"a directory as the command", mcp.ServerConfig{Command: filepath.Dir(file)}, "bad: offline — not executable", []string{filepath.Dir(file)}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			test.cfg.Name = "bad"
			h := newHost(t, eager(5), test.cfg, mcp.ServerConfig{Name: "good", Command: badserver})
			err := h.WaitForReady(h.patient(), "bad")
			start, ok := errors.AsType[*mcp.StartError](err)
			if !ok || !errors.Is(err, mcp.ErrNotReady) {
				t.Fatalf("WaitForReady: got %v, want a StartError", err)
			}
			for _, name := range test.named {
				if !strings.Contains(start.Error(), name) {
					t.Errorf("%q does not name %q", start, name)
				}
			}
			if got := h.line("bad"); got != test.line {
				t.Errorf("line is %q, want %q", got, test.line)
			}
			h.ready("good")
			h.close()
			starts := 0
			for len(h.states) > 0 {
				if change := <-h.states; change.Server == "bad" && change.To == mcp.StateOffline {
					starts++
				}
			}
			if starts != 1 {
				t.Errorf("it went offline %d times, want once", starts)
			}
		})
	}
}

// Connections and failed starts leave no descriptor and no goroutine. It runs
// apart from the others, which have some of their own.
func TestHostile_descriptors(t *testing.T) {
	for name, cfg := range map[string]mcp.ServerConfig{
		"connect and close": {Name: "bad", Command: badserver},
		"failed start":      {Name: "bad", Command: badserver, Dir: "/nonexistent"},
	} {
		t.Run(name, func(t *testing.T) {
			cycle := func() {
				m := mcp.NewManager([]mcp.ServerConfig{cfg}, once())
				if err := m.Start(t.Context()); err != nil {
					t.Fatal(err)
				}
				err := m.WaitForReady(shortly(t, patience), "bad")
				if (err == nil) != (cfg.Dir == "") {
					t.Fatalf("WaitForReady: %v", err)
				}
				if err := m.Close(shortly(t, patience)); err != nil {
					t.Fatal(err)
				}
			}
			cycle()
			files, goroutines := openFiles(t), runtime.NumGoroutine()
			for range 200 {
				cycle()
			}
			eventually(t, "the count of open files and goroutines of before", func() bool {
				return openFiles(t) <= files && runtime.NumGoroutine() <= goroutines
			})
		})
	}
}
