package mcp

import (
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"unicode/utf16"
	"unsafe"
)

// Flags and numbers of the Windows API that package syscall lacks.
const (
	createSuspended  = 0x00000004 // CREATE_SUSPENDED
	createNoWindow   = 0x08000000 // CREATE_NO_WINDOW
	fileFlagFirst    = 0x00080000 // FILE_FLAG_FIRST_PIPE_INSTANCE
	pipeRejectRemote = 0x00000008 // PIPE_REJECT_REMOTE_CLIENTS
	pipeBufferSize   = 64 << 10   // as large as those of Linux

	jobKillOnClose   = 0x00002000 // JOB_OBJECT_LIMIT_KILL_ON_JOB_CLOSE
	jobExtendedLimit = 9          // JobObjectExtendedLimitInformation

	errBadExeFormat = syscall.Errno(193) // ERROR_BAD_EXE_FORMAT
	errDirectory    = syscall.Errno(267) // ERROR_DIRECTORY

	// commandLineLimit is the longest command line that cmd.exe takes, in
	// UTF-16 units.
	commandLineLimit = 8191
)

// The procedures are looked up when they are first called, and never change.
var (
	kernel32 = syscall.NewLazyDLL("kernel32.dll")
	ntdll    = syscall.NewLazyDLL("ntdll.dll")

	procCreateJobObject          = kernel32.NewProc("CreateJobObjectW")
	procSetInformationJobObject  = kernel32.NewProc("SetInformationJobObject")
	procAssignProcessToJobObject = kernel32.NewProc("AssignProcessToJobObject")
	procTerminateJobObject       = kernel32.NewProc("TerminateJobObject")
	procCreateNamedPipe          = kernel32.NewProc("CreateNamedPipeW")
	procGetSystemDirectory       = kernel32.NewProc("GetSystemDirectoryW")
	procNtResumeProcess          = ntdll.NewProc("NtResumeProcess")
)

// A family is a leader and all that it started, which no process can leave: a
// Job Object. It ends with its last handle, so also with the host.
type family struct {
	job syscall.Handle
}

// adopt puts leader, which was born suspended, into a job of its own and lets
// it run. Before that it can have started nothing.
func adopt(leader *os.Process) (family, error) {
	job, err := newJob()
	if err != nil {
		return family{}, err
	}
	handleErr := leader.WithHandle(func(handle uintptr) {
		if err = assign(job, handle); err == nil {
			err = resume(handle)
		}
	})
	if err = errors.Join(handleErr, err); err != nil {
		syscall.CloseHandle(job)
		return family{}, err
	}
	return family{job}, nil
}

func newJob() (syscall.Handle, error) {
	job, _, err := procCreateJobObject.Call(0, 0)
	if job == 0 {
		return 0, os.NewSyscallError("CreateJobObject", err)
	}
	// JOBOBJECT_EXTENDED_LIMIT_INFORMATION. C aligns its parts to 8 bytes also
	// where Go does not.
	var limits struct {
		processTime, jobTime         int64
		flags                        uint32
		minWorkingSet, maxWorkingSet uintptr
		processes                    uint32
		affinity                     uintptr
		priority, scheduling         uint32
		_                            [unsafe.Sizeof(uintptr(0)) & 4]byte
		io                           [6]uint64
		memory                       [4]uintptr
	}
	limits.flags = jobKillOnClose
	set, _, err := procSetInformationJobObject.Call(job, jobExtendedLimit,
		uintptr(unsafe.Pointer(&limits)), unsafe.Sizeof(limits))
	if set == 0 {
		syscall.CloseHandle(syscall.Handle(job))
		return 0, os.NewSyscallError("SetInformationJobObject", err)
	}
	return syscall.Handle(job), nil
}

func assign(job syscall.Handle, process uintptr) error {
	if ok, _, err := procAssignProcessToJobObject.Call(uintptr(job), process); ok == 0 {
		return os.NewSyscallError("AssignProcessToJobObject", err)
	}
	return nil
}

// resume lets a process run that was created suspended. Its one thread cannot
// be named: os/exec gives away no handle of it.
func resume(process uintptr) error {
	if status, _, _ := procNtResumeProcess.Call(process); status != 0 {
		return fmt.Errorf("NtResumeProcess: status %#x", status)
	}
	return nil
}

// terminate does nothing: Windows has no request to end that a program without
// a window would hear.
func (family) terminate() {}

// kill ends every process of the family. Closing the job would do that too, but
// with exit status 0.
func (f family) kill() { procTerminateJobObject.Call(uintptr(f.job), 1) }

func (f family) release() { syscall.CloseHandle(f.job) }

// awaitExit returns nil when the leader has ended. It blocks a thread
// meanwhile.
func awaitExit(leader *os.Process) error {
	var waitErr error
	err := leader.WithHandle(func(handle uintptr) {
		_, waitErr = syscall.WaitForSingleObject(syscall.Handle(handle), syscall.INFINITE)
	})
	return errors.Join(err, waitErr)
}

// newCommand returns the command of spec, to be started suspended. Batch files
// are given to cmd.exe by us: CreateProcess would do so too, but with arguments
// that are quoted for programs, which is not safe.
func newCommand(spec *processSpec) (*exec.Cmd, error) {
	cmd := exec.Command(spec.command, spec.args...)
	if script, ok := batchFile(spec); ok {
		line, err := batchLine(script, spec.args)
		if err != nil {
			return nil, spec.fault(ReasonNotExecutable, err)
		}
		shell, err := systemFile("cmd.exe")
		if err != nil {
			return nil, spec.fault(ReasonStartFailed, err)
		}
		cmd = exec.Command(shell)
		cmd.SysProcAttr = &syscall.SysProcAttr{CmdLine: line}
	}
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.CreationFlags = createSuspended | createNoWindow | syscall.CREATE_NEW_PROCESS_GROUP
	return cmd, nil
}

// batchFile returns the full path of the command if it is a batch file. A
// command that cannot be found is none; its start will tell.
func batchFile(spec *processSpec) (path string, ok bool) {
	command := spec.command
	if strings.ContainsAny(command, `:\/`) && !filepath.IsAbs(command) {
		command = filepath.Join(spec.dir, command)
	}
	path, err := exec.LookPath(command)
	if err != nil {
		return "", false
	}
	// Windows ignores dots and spaces at the end of a name.
	switch strings.ToLower(filepath.Ext(strings.TrimRight(path, ". "))) {
	case ".cmd", ".bat":
		path, err = filepath.Abs(path)
		return path, err == nil
	}
	return "", false
}

// batchLine returns the command line that makes cmd.exe run script with args.
// Of its options, /d keeps foreign commands from running first, /v:off makes !
// an ordinary character, and /s makes it strip the outer quotes and no others.
//
// There is no quoting that works for every argument: cmd.exe reads the line
// before the script does, the script's own lines are read again with the
// arguments in them, and what the script starts takes them apart by rules of
// its own. So what could come out different is refused.
func batchLine(script string, args []string) (string, error) {
	if strings.ContainsAny(script, `%"`) {
		return "", fmt.Errorf("the path of the batch file, %q, has a %% in it, which cmd.exe would interpret", script)
	}
	line := `cmd.exe /d /v:off /s /c ""` + script + `"`
	for i, arg := range args {
		if why := batchFault(arg); why != "" {
			return "", fmt.Errorf("argument %d, %q, cannot be handed to a batch file: %s", i, arg, why)
		}
		line += " " + batchQuote(arg)
	}
	line += `"`
	if units := len(utf16.Encode([]rune(line))); units > commandLineLimit {
		return "", fmt.Errorf("the command line of the batch file has %d characters, and cmd.exe takes %d", units, commandLineLimit)
	}
	return line, nil
}

// batchFault says why cmd.exe, or the script, would not hand on arg as it is,
// or nothing if it would.
func batchFault(arg string) string {
	for _, c := range arg {
		switch {
		case strings.ContainsRune(`&|<>^%!"`, c):
			return fmt.Sprintf("cmd.exe would interpret %q", c)
		case c < ' ' || c == 0x7f:
			return fmt.Sprintf("cmd.exe does not take the control character %q", c)
		}
	}
	if strings.HasSuffix(arg, `\`) && batchQuote(arg) != arg {
		return "it needs quotes, and a program would take the backslash at its end for part of them"
	}
	return ""
}

// batchQuote returns arg with the quotes that keep it one argument. They stay
// around it when a script hands it on.
func batchQuote(arg string) string {
	plain := func(c rune) bool {
		return c >= 0x80 && c != 0xa0 && c != 0x3000 || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' ||
			strings.ContainsRune(`-_./\:+#@`, c)
	}
	if arg != "" && strings.IndexFunc(arg, func(c rune) bool { return !plain(c) }) < 0 {
		return arg
	}
	return `"` + arg + `"`
}

// systemFile returns the path of a program that comes with Windows.
func systemFile(name string) (string, error) {
	buffer := make([]uint16, syscall.MAX_PATH)
	n, _, err := procGetSystemDirectory.Call(uintptr(unsafe.Pointer(&buffer[0])), uintptr(len(buffer)))
	if n == 0 || int(n) > len(buffer) {
		return "", os.NewSyscallError("GetSystemDirectory", err)
	}
	return filepath.Join(syscall.UTF16ToString(buffer[:n]), name), nil
}

func inputPipe() (child, parent *os.File, err error) {
	return overlappedPipe(syscall.GENERIC_READ, syscall.FILE_FLAG_OVERLAPPED|pipeAccessOutbound)
}

func outputPipe() (child, parent *os.File, err error) {
	return overlappedPipe(syscall.GENERIC_WRITE, syscall.FILE_FLAG_OVERLAPPED|pipeAccessInbound)
}

// Directions of a named pipe, seen from the end that makes it.
const (
	pipeAccessInbound  = 0x00000001 // PIPE_ACCESS_INBOUND
	pipeAccessOutbound = 0x00000002 // PIPE_ACCESS_OUTBOUND
)

// overlappedPipe returns a pipe of which our end is asynchronous. That of
// os.Pipe is not: each blocked call on it would occupy a thread, and Close
// could wait for one for ever if it came in the wrong moment. Only a pipe with
// a name can differ between its ends; the child's end is an ordinary one.
func overlappedPipe(childAccess, mode uint32) (child, parent *os.File, err error) {
	name, err := syscall.UTF16PtrFromString(`\\.\pipe\mcp-` + rand.Text())
	if err != nil {
		return nil, nil, err
	}
	ours, _, err := procCreateNamedPipe.Call(uintptr(unsafe.Pointer(name)), uintptr(mode|fileFlagFirst),
		pipeRejectRemote, 1, pipeBufferSize, pipeBufferSize, 0, 0)
	if syscall.Handle(ours) == syscall.InvalidHandle {
		return nil, nil, os.NewSyscallError("CreateNamedPipe", err)
	}
	theirs, err := syscall.CreateFile(name, childAccess, 0, nil, syscall.OPEN_EXISTING, syscall.FILE_ATTRIBUTE_NORMAL, 0)
	if err != nil {
		syscall.CloseHandle(syscall.Handle(ours))
		return nil, nil, os.NewSyscallError("CreateFile", err)
	}
	return os.NewFile(uintptr(theirs), "child's end"), os.NewFile(ours, "our end"), nil
}

// isNoProgram reports whether the system found a file that it cannot run, or
// not with these arguments: a zero byte in one is EINVAL.
func isNoProgram(err error) bool {
	return errors.Is(err, errBadExeFormat) || errors.Is(err, syscall.EINVAL)
}

// isNotDirectory reports whether a file stands where a directory should.
func isNotDirectory(err error) bool {
	return errors.Is(err, syscall.ENOTDIR) || errors.Is(err, errDirectory)
}
