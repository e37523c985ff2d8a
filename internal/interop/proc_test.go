package interop

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// marked returns the running processes that have an entry in their environment.
// A child inherits it from its parent, so a whole tree can be told by it,
// however its members were started and whoever is their parent now.
func marked(entry string) []int {
	var found []int
	for _, pid := range processes() {
		environ, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "environ"))
		if err == nil && bytes.Contains(environ, []byte(entry+"\x00")) {
			found = append(found, pid)
		}
	}
	return found
}

// children describes the children of this process, zombies too.
func children() string {
	var left strings.Builder
	for _, pid := range processes() {
		state, parent := status(pid)
		if parent == os.Getpid() {
			fmt.Fprintf(&left, "child %d (state %s)\n", pid, state)
		}
	}
	return left.String()
}

// status returns a process's state and its parent; the latter is 0 when the
// process is gone.
func status(pid int) (state string, parent int) {
	stat, _ := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	// The name of the command is in parentheses and may contain anything.
	_, rest, _ := strings.Cut(string(stat[bytes.LastIndexByte(stat, ')')+1:]), " ")
	fields := strings.Fields(rest)
	if len(fields) < 2 {
		return "", 0
	}
	parent, _ = strconv.Atoi(fields[1])
	return fields[0], parent
}

func processes() []int {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		panic(fmt.Sprintf("these tests look for processes in /proc, which only Linux has: %v", err))
	}
	var pids []int
	for _, entry := range entries {
		if pid, err := strconv.Atoi(entry.Name()); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}

// openFiles counts this process's descriptors.
func openFiles(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

// leakedFiles returns this process's descriptors past the standard three that
// its children inherit, with their files.
func leakedFiles() map[string]string {
	leaked := make(map[string]string)
	entries, _ := os.ReadDir("/proc/self/fd")
	for _, entry := range entries {
		fd, _ := strconv.Atoi(entry.Name())
		flags, _, errno := syscall.Syscall(syscall.SYS_FCNTL, uintptr(fd), syscall.F_GETFD, 0)
		if file, err := os.Readlink("/proc/self/fd/" + entry.Name()); err == nil && errno == 0 && fd > 2 && flags&syscall.FD_CLOEXEC == 0 {
			leaked[entry.Name()] = file
		}
	}
	return leaked
}
