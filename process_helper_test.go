package mcp

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"yagent/mcp/supervise"
)

// processHelperEnv names the helper that a re-executed test binary is to be.
const processHelperEnv = "YAGENT_TEST_PROCESS_HELPER"

// processHelpers are children for the tests of processes. Each is started by
// the tests beside it through helperSpec.
var processHelpers = map[string]func(args []string){
	"eof":        func([]string) { helperEOF() },
	"ignore-eof": func([]string) { helperIgnoreEOF() },
	"immortal":   func([]string) { helperImmortal() },
	"host":       func([]string) { helperHost() },
	"exit":       helperExit,
	"flood":      func([]string) { helperFlood() },
	"burst":      func([]string) { helperBurst() },
	"grandchild": func([]string) { helperGrandchild() },
	"sleeper":    func([]string) { time.Sleep(time.Minute) },
	"info":       helperInfo,
	"env":        func([]string) { fmt.Print(strings.Join(os.Environ(), "\n")) },
}

// usedProcessHelpers remembers which helpers the tests asked for.
var usedProcessHelpers sync.Map

// processHelper acts as the helper of that name and reports whether there is
// one. TestMain calls it before anything else, with the value of
// processHelperEnv, and exits when it returns true.
func processHelper(mode string) bool {
	helper := processHelpers[mode]
	if helper == nil {
		return false
	}
	helper(os.Args[1:])
	return true
}

// unusedProcessHelpers returns the helpers that no test asked for.
func unusedProcessHelpers() []string {
	var unused []string
	for mode := range processHelpers {
		if _, used := usedProcessHelpers.Load(mode); !used {
			unused = append(unused, mode)
		}
	}
	slices.Sort(unused)
	return unused
}

// helperSpec describes a child that acts as the helper of that name.
func helperSpec(t testing.TB, mode string, args ...string) processSpec {
	t.Helper()
	if os.Getenv(processHelperEnv) != "" {
		// A helper that runs the tests would start helpers that run the tests.
		t.Fatal("a helper runs the tests: TestMain does not call processHelper")
	}
	usedProcessHelpers.Store(mode, true)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return processSpec{
		name:    "helper",
		command: self,
		args:    args,
		env:     helperEnviron(mode),
		grace:   time.Minute, // a test that waits for one hangs, and is seen
	}
}

// helperEnviron is the host's environment with the choice of a helper. Under
// the race detector a child would take a second to exit without GORACE.
func helperEnviron(mode string) []string {
	return append(os.Environ(), processHelperEnv+"="+mode, "GORACE=atexit_sleep_ms=0")
}

// helperEOF is a good server: it ends with its input, and tells of any signal.
func helperEOF() {
	signals := make(chan os.Signal, 8)
	signal.Notify(signals)
	fmt.Println("ready")
	io.Copy(io.Discard, os.Stdin)
	for {
		select {
		case s := <-signals:
			// The runtime sends itself SIGURG to preempt goroutines.
			if s.String() != "urgent I/O condition" {
				fmt.Println("signal:", s)
			}
			continue
		default:
		}
		fmt.Println("end of input")
		return
	}
}

func helperIgnoreEOF() {
	fmt.Println("ready")
	time.Sleep(time.Minute)
}

func helperImmortal() {
	signal.Ignore()
	helperIgnoreEOF()
}

// helperHost starts a child that ignores everything, tells its number, and waits
// to be killed.
func helperHost() {
	grp := supervise.New(context.Background(), "host", nil)
	spawner, err := newSpawner(grp)
	if err != nil {
		panic(err)
	}
	self, err := os.Executable()
	if err != nil {
		panic(err)
	}
	child, err := spawner.start(context.Background(), grp, processSpec{
		name: "child", command: self, env: helperEnviron("immortal"), grace: time.Minute,
	})
	if err != nil {
		panic(err)
	}
	if _, err := child.Read(make([]byte, 64)); err != nil {
		panic(err)
	}
	fmt.Println(child.PID())
	time.Sleep(time.Minute)
}

// helperExit exits with a status once its input ends. It says something on
// stderr first.
func helperExit(args []string) {
	fmt.Fprintln(os.Stderr, "giving up")
	io.Copy(io.Discard, os.Stdin)
	status, _ := strconv.Atoi(args[0])
	os.Exit(status)
}

// helperFlood writes 1 MiB to stderr before its first word on stdout.
func helperFlood() {
	line := strings.Repeat("x", 1023) + "\n"
	for range 1024 {
		os.Stderr.WriteString(line)
	}
	os.Stderr.WriteString("the last words")
	fmt.Println("ready")
}

// helperBurstSize fits into a pipe, so that the helper is gone before anything
// was read.
const helperBurstSize = 32 << 10

func helperBurst() {
	os.Stdout.WriteString(strings.Repeat("b", helperBurstSize-4) + "last")
}

// helperGrandchild leaves a child behind that holds its stdout and stderr.
func helperGrandchild() {
	self, err := os.Executable()
	if err != nil {
		panic(err)
	}
	child := exec.Command(self)
	child.Env = helperEnviron("sleeper")
	child.Stdout, child.Stderr = os.Stdout, os.Stderr
	if err := child.Start(); err != nil {
		panic(err)
	}
	fmt.Println(child.Process.Pid)
	os.Exit(7)
}

// helperInfo prints its directory, its open file descriptors where the system
// lists them, and its arguments, quoted, one a line.
func helperInfo(args []string) {
	dir, _ := os.Getwd()
	fmt.Printf("dir %q\n", dir)
	fmt.Printf("fds %q\n", openFiles())
	for _, arg := range args {
		fmt.Printf("arg %q\n", arg)
	}
}

// openFiles returns the numbers of the open file descriptors that are none of
// the Go runtime's own, or nothing where the system does not tell.
func openFiles() []string {
	entries, _ := os.ReadDir("/proc/self/fd")
	var open []string
	for _, entry := range entries {
		target, err := os.Readlink("/proc/self/fd/" + entry.Name())
		if err != nil || strings.HasPrefix(target, "anon_inode:") || strings.HasPrefix(target, "/sys/fs/cgroup/") {
			continue // the listing's own, or the runtime's
		}
		open = append(open, entry.Name())
	}
	return open
}

// unquoteGo is the inverse of %q.
func unquoteGo(t testing.TB, quoted string) string {
	t.Helper()
	text, err := strconv.Unquote(quoted)
	if err != nil {
		t.Fatalf("%q: %v", quoted, err)
	}
	return text
}

// sameFile reports whether two paths lead to the same file.
func sameFile(t testing.TB, a, b string) bool {
	t.Helper()
	infoA, errA := os.Stat(a)
	infoB, errB := os.Stat(b)
	return errA == nil && errB == nil && os.SameFile(infoA, infoB)
}
