//go:build darwin || dragonfly || freebsd || netbsd || openbsd

package mcp

import (
	"errors"
	"os"
	"syscall"
)

// childAttributes puts a child at the head of its own process group.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}

// awaitExit returns nil when the leader has ended, and leaves it unreaped. It
// blocks a thread meanwhile.
func awaitExit(leader *os.Process) error {
	queue, err := syscall.Kqueue()
	if err != nil {
		return os.NewSyscallError("kqueue", err)
	}
	defer syscall.Close(queue)
	var watch syscall.Kevent_t
	syscall.SetKevent(&watch, leader.Pid, syscall.EVFILT_PROC, syscall.EV_ADD|syscall.EV_ONESHOT)
	watch.Fflags = syscall.NOTE_EXIT
	err = awaitEvent(queue, watch)
	// No such process: it has ended already, and is not reaped, since only we
	// do that.
	if errors.Is(err, syscall.ESRCH) {
		return nil
	}
	return os.NewSyscallError("kevent", err)
}

// awaitEvent waits until what watch describes has happened.
func awaitEvent(queue int, watch syscall.Kevent_t) error {
	events := make([]syscall.Kevent_t, 1)
	changes := []syscall.Kevent_t{watch}
	for {
		n, err := syscall.Kevent(queue, changes, events, nil)
		switch {
		case err == syscall.EINTR:
			changes = nil // the change was taken before the wait was interrupted
		case err != nil:
			return err
		case n > 0 && events[0].Flags&syscall.EV_ERROR != 0:
			return syscall.Errno(events[0].Data)
		case n > 0:
			return nil
		}
	}
}
