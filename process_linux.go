package mcp

import (
	"os"
	"syscall"
	"unsafe"
)

// What waitid waits for (its idtype_t).
const (
	waitPID   = 1
	waitPidfd = 3
)

// childAttributes puts a child at the head of its own process group, and ends
// it when the thread that started it ends, as it does when the host is killed.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// awaitExit returns nil when the leader has ended, and leaves it unreaped.
func awaitExit(leader *os.Process) error {
	if awaitPidfd(leader) == nil {
		return nil
	}
	return waitid(waitPID, uintptr(leader.Pid), 0, new(childInfo))
}

// awaitPidfd waits in the runtime's poller, for which a pidfd is readable when
// its process has ended. It blocks no thread, unlike waitid, but a system
// without pidfds, or one that cannot poll them, makes it fail.
func awaitPidfd(leader *os.Process) error {
	pidfd, err := pollablePidfd(leader)
	if err != nil {
		return err
	}
	defer pidfd.Close()
	conn, err := pidfd.SyscallConn()
	if err != nil {
		return err
	}
	var child childInfo
	var waitErr error
	pollErr := conn.Read(func(fd uintptr) bool {
		waitErr = waitid(waitPidfd, fd, syscall.WNOHANG, &child)
		return waitErr != nil || child.signal != 0
	})
	if pollErr != nil {
		return pollErr
	}
	return waitErr
}

// pollablePidfd returns a copy of the pidfd that os/exec holds.
func pollablePidfd(leader *os.Process) (*os.File, error) {
	fd, errno := -1, syscall.Errno(0)
	err := leader.WithHandle(func(handle uintptr) {
		var dup uintptr
		dup, _, errno = syscall.Syscall(syscall.SYS_FCNTL, handle, syscall.F_DUPFD_CLOEXEC, 0)
		fd = int(dup)
	})
	if err != nil {
		return nil, err
	}
	if errno != 0 {
		return nil, os.NewSyscallError("fcntl", errno)
	}
	// NewFile polls only what does not block. The mode is shared with the copy
	// of os/exec, whose Wait relies on blocking, so it is put back.
	if err := syscall.SetNonblock(fd, true); err != nil {
		syscall.Close(fd)
		return nil, os.NewSyscallError("fcntl", err)
	}
	file := os.NewFile(uintptr(fd), "pidfd")
	syscall.SetNonblock(fd, false)
	return file, nil
}

// childInfo is the siginfo_t of waitid: 128 bytes, the first of them alike on
// every architecture.
type childInfo struct {
	signal int32 // SIGCHLD when a child has ended
	_      [31]int32
}

// waitid looks for a child that has ended, and leaves it unreaped. Without
// WNOHANG it blocks the thread until there is one.
func waitid(kind, id, options uintptr, child *childInfo) error {
	for {
		_, _, errno := syscall.Syscall6(syscall.SYS_WAITID, kind, id,
			uintptr(unsafe.Pointer(child)), syscall.WEXITED|syscall.WNOWAIT|options, 0, 0)
		if errno == 0 {
			return nil
		}
		if errno != syscall.EINTR {
			return os.NewSyscallError("waitid", errno)
		}
	}
}
