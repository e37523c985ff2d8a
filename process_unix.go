//go:build linux || darwin || dragonfly || freebsd || netbsd || openbsd

package mcp

import (
	"errors"
	"os"
	"os/exec"
	"syscall"
)

// A family is a leader and the processes it started, as far as they can be
// signalled together: its process group. Processes that left the group are out
// of reach.
type family struct {
	group int // number of the group, and of its leader
}

// adopt returns the family that leader heads since its birth.
func adopt(leader *os.Process) (family, error) { return family{group: leader.Pid}, nil }

// terminate asks the family to end. Errors are of no use to anybody: the group
// exists as long as its leader is not reaped.
func (f family) terminate() { syscall.Kill(-f.group, syscall.SIGTERM) }

func (f family) kill() { syscall.Kill(-f.group, syscall.SIGKILL) }

func (family) release() {}

// newCommand returns the command of spec, to be started in its own group. A
// command without a separator is looked up in PATH here; a failure to find it
// shows in Start.
func newCommand(spec *processSpec) (*exec.Cmd, error) {
	cmd := exec.Command(spec.command, spec.args...)
	cmd.SysProcAttr = childAttributes()
	return cmd, nil
}

func inputPipe() (child, parent *os.File, err error) { return os.Pipe() }

func outputPipe() (child, parent *os.File, err error) {
	parent, child, err = os.Pipe()
	return child, parent, err
}

// isNoProgram reports whether the system found a file that it cannot run, or
// not with these arguments: a zero byte in one is EINVAL, too many are E2BIG.
func isNoProgram(err error) bool {
	return errors.Is(err, syscall.ENOEXEC) || errors.Is(err, syscall.EINVAL) || errors.Is(err, syscall.E2BIG)
}

// isNotDirectory reports whether a file stands where a directory should.
func isNotDirectory(err error) bool { return errors.Is(err, syscall.ENOTDIR) }
