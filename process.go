package mcp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"yagent/mcp/supervise"
)

const (
	// stderrTailLimit is how much of a server's stderr is kept, in bytes.
	stderrTailLimit = 4 << 10

	// stderrReadSize is the buffer of the stderr reader, in bytes. Every idle
	// server pays for it, and a flood is dropped fast enough through a small one.
	stderrReadSize = 512
)

// errSpawnerEnded is seen only if the spawner's own goroutine was lost.
var errSpawnerEnded = errors.New("the thread that starts processes has ended")

// processSpec is what a child is born from.
type processSpec struct {
	name    string        // of the server; for goroutines and errors
	command string        // searched for in PATH unless it has a separator
	args    []string      // without the command; handed on as they are
	env     []string      // the complete environment; nil inherits the host's
	dir     string        // working directory; empty is the host's
	grace   time.Duration // how long Stop waits after each of its gentle steps
}

// A spawner starts the children of one host. It does so on a single OS thread
// that outlives them all: on Linux the signal that a child gets when its parent
// dies is sent when the thread that started it ends, and the Go runtime ends
// threads as it likes.
type spawner struct {
	births   chan func() bool // runs one on the thread; the result: a child was born
	reaped   chan struct{}    // receives once for each child that is gone
	draining <-chan struct{}  // closed when no child may be born any more
	ended    chan struct{}    // closed when the thread is given up
}

// newSpawner starts the goroutine "mcp/spawn" in grp. It ends when the context
// of grp has ended and no child that it started is left.
func newSpawner(grp *supervise.Group) (*spawner, error) {
	s := &spawner{
		births:   make(chan func() bool),
		reaped:   make(chan struct{}),
		draining: grp.Context().Done(),
		ended:    make(chan struct{}),
	}
	if err := grp.Go("mcp/spawn", s.run); err != nil {
		return nil, err
	}
	return s, nil
}

func (s *spawner) run(ctx context.Context) {
	defer close(s.ended)
	runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
	births, draining := s.births, ctx.Done()
	for alive := 0; births != nil || alive > 0; {
		select {
		case bear := <-births:
			if bear() {
				alive++
			}
		case <-s.reaped:
			alive--
		case <-draining:
			births, draining = nil, nil
		}
	}
}

// start starts a child. Its goroutines, "mcp/wait-<name>" and
// "mcp/stderr-<name>", belong to grp.
//
// When ctx ends first, its cause is returned, and a child that is born all the
// same is killed and reaped in grp. When grp takes no more goroutines the error
// wraps [supervise.ErrDraining]. Other errors are a *[StartError]. Once grp is
// drained, no child of it exists.
func (s *spawner) start(ctx context.Context, grp *supervise.Group, spec processSpec) (*process, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	p := newProcess(spec)
	born := make(chan error) // unbuffered: the child is handed over, or it is not
	err := grp.Go("mcp/wait-"+spec.name, func(context.Context) { s.raise(ctx, grp, p, born) })
	if err != nil {
		return nil, spec.refused(err)
	}
	select {
	case err, ok := <-born:
		if !ok {
			err = spec.refused(errSpawnerEnded)
		}
		if err != nil {
			return nil, err
		}
		return p, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// raise owns a child from before its birth until after its death. Because one
// goroutine of grp does, no drain can miss a child that is being born.
func (s *spawner) raise(ctx context.Context, grp *supervise.Group, p *process, born chan<- error) {
	defer close(born)
	err := s.bear(ctx, grp, p)
	handedOver := false
	select {
	case born <- err:
		handedOver = true
	case <-ctx.Done():
	}
	if err != nil {
		return
	}
	if !handedOver {
		p.Kill()
		p.CloseOutput() // nobody will read it
	}
	s.bury(p)
}

// bear has the child of p born, and starts the reader of its stderr. After an
// error there is no child.
//
// Whatever may take long, such as a look at a file system over a network, is
// done here and not on the thread, where others wait for their turn.
func (s *spawner) bear(ctx context.Context, grp *supervise.Group, p *process) error {
	childEnds, err := p.prepare()
	if err == nil {
		err = s.onThread(ctx, grp, p)
	}
	closeFiles(childEnds)
	if err != nil {
		p.CloseInput()
		p.CloseOutput()
		return p.spec.explain(p.cmd, err)
	}
	if err := grp.Go("mcp/stderr-"+p.spec.name, p.drainStderr); err != nil {
		p.Kill()
		p.CloseOutput()
		s.bury(p)
		return p.spec.refused(err)
	}
	return nil
}

// onThread begins p on the spawner's thread, in its turn. Once taken, the birth
// is waited for whatever happens: it may be making a child.
func (s *spawner) onThread(ctx context.Context, grp *supervise.Group, p *process) error {
	result := make(chan error, 1)
	birth := func() bool {
		err := p.begin()
		result <- err
		return err == nil
	}
	select {
	case s.births <- birth:
	case <-s.ended:
		return p.spec.refused(errSpawnerEnded)
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-grp.Context().Done():
		return p.spec.refused(supervise.ErrDraining)
	case <-s.draining:
		return p.spec.refused(supervise.ErrDraining)
	}
	select {
	case err := <-result:
		return err
	case <-s.ended:
		return p.spec.refused(errSpawnerEnded)
	}
}

// bury waits for the end of the child and reaps it.
func (s *spawner) bury(p *process) {
	p.awaitEnd()
	select {
	case s.reaped <- struct{}{}:
	case <-s.ended:
	}
}

// refused is the error of a start that was not tried.
func (spec *processSpec) refused(err error) error {
	return fmt.Errorf("mcp: server %q: not started: %w", spec.name, err)
}

// fault is the error of a start that failed. The environment is no part of it.
func (spec *processSpec) fault(reason Reason, err error) error {
	return &StartError{Server: spec.name, Command: spec.command, Dir: spec.dir, Reason: reason, Err: err}
}

// startFault is what the operating system said of a start. It is explained off
// the thread, since that takes looks at the file system.
type startFault struct{ error }

func (spec *processSpec) explain(cmd *exec.Cmd, err error) error {
	if fault, ok := errors.AsType[startFault](err); ok {
		return spec.diagnose(cmd.Path, fault.error)
	}
	return err
}

// diagnose says why path could not be started. The directory is looked at
// first, and only now: the operating system reports a missing directory as it
// reports a missing command, and a look before the start could be outdated.
func (spec *processSpec) diagnose(path string, err error) error {
	if dirErr := checkDirectory(spec.dir); dirErr != nil {
		return spec.fault(ReasonDirectoryNotFound, dirErr)
	}
	switch {
	case errors.Is(err, fs.ErrNotExist) && exists(spec.dir, path):
		return spec.fault(ReasonNotExecutable, fmt.Errorf("%w (the file is there, but what it needs to run is not: its interpreter or its loader)", err))
	case errors.Is(err, exec.ErrNotFound), errors.Is(err, exec.ErrDot), errors.Is(err, fs.ErrNotExist), isNotDirectory(err):
		return spec.fault(ReasonCommandNotFound, err)
	case errors.Is(err, fs.ErrPermission), isNoProgram(err):
		return spec.fault(ReasonNotExecutable, err)
	}
	return spec.fault(ReasonStartFailed, err)
}

// checkDirectory reports a directory that cannot be a working directory, and
// why. Other troubles with it, such as a network that is down, may pass.
func checkDirectory(dir string) error {
	if dir == "" {
		return nil
	}
	// The dot makes it a search of the directory, which needs the right to.
	info, err := os.Stat(dir + string(os.PathSeparator) + ".")
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, fs.ErrPermission), isNotDirectory(err):
		return err
	case err == nil && !info.IsDir():
		return &fs.PathError{Op: "chdir", Path: dir, Err: syscall.ENOTDIR}
	}
	return nil
}

// exists reports whether a command that was named relative to dir is a file.
func exists(dir, path string) bool {
	if !filepath.IsAbs(path) {
		path = filepath.Join(dir, path)
	}
	_, err := os.Stat(path)
	return err == nil
}

// A process is a running child, or one that has ended: the three ends of its
// pipes, and the one way to end it. Its methods may be called from any
// goroutine, but only one at a time may Read, and one may Write.
type process struct {
	spec   processSpec
	cmd    *exec.Cmd
	stdin  *os.File
	stdout *os.File
	stderr *os.File

	// The buffer is here, and not in its reader's frame, because it would double
	// the stack of that goroutine.
	stderrBuffer [stderrReadSize]byte
	tail         stderrTail
	stderrDone   chan struct{}

	exited  chan struct{} // closed when the leader is reaped
	waitErr error         // of cmd.Wait; set before exited is closed

	// mu guards the fields below. Whoever signals the family holds it, and so
	// does whoever reaps the leader: afterwards the number of the process group
	// may belong to strangers.
	mu     sync.Mutex
	family family // the leader, and what it started
	reaped bool
}

func newProcess(spec processSpec) *process {
	return &process{
		spec:       spec,
		stderrDone: make(chan struct{}),
		exited:     make(chan struct{}),
	}
}

// prepare makes the command and the pipes of p, and returns the child's ends of
// them. The pipes are our own, because those of os/exec are closed by Wait:
// what the server wrote last would be lost. And they are files, so that os/exec
// needs no goroutines to copy.
func (p *process) prepare() (childEnds []*os.File, err error) {
	if p.spec.command == "" {
		return nil, p.spec.fault(ReasonCommandNotFound, errors.New("no command is configured"))
	}
	if p.cmd, err = newCommand(&p.spec); err != nil {
		return nil, err
	}
	p.cmd.Dir = p.spec.dir
	p.cmd.Env = p.spec.env
	for _, end := range []struct {
		open   func() (child, parent *os.File, err error)
		parent **os.File
		attach func(child *os.File)
	}{
		{inputPipe, &p.stdin, func(child *os.File) { p.cmd.Stdin = child }},
		{outputPipe, &p.stdout, func(child *os.File) { p.cmd.Stdout = child }},
		{outputPipe, &p.stderr, func(child *os.File) { p.cmd.Stderr = child }},
	} {
		child, parent, err := end.open()
		if err != nil {
			return childEnds, p.spec.fault(ReasonStartFailed, err)
		}
		*end.parent = parent
		end.attach(child)
		childEnds = append(childEnds, child)
	}
	return childEnds, nil
}

// begin makes the child. It runs on the spawner's thread.
func (p *process) begin() error {
	if err := p.cmd.Start(); err != nil {
		return startFault{err}
	}
	family, err := adopt(p.cmd.Process)
	if err != nil {
		p.cmd.Process.Kill()
		p.cmd.Wait()
		return p.spec.fault(ReasonStartFailed, err)
	}
	p.family = family
	return nil
}

// awaitEnd waits for the end of the leader, ends what it left behind, and reaps
// it, in this order.
func (p *process) awaitEnd() {
	if awaitExit(p.cmd.Process) == nil {
		p.killAndReap()
	} else {
		p.reapOnly()
	}
	close(p.exited)
	p.CloseInput()
}

// killAndReap holds the lock across Wait, which does not block: the leader is
// dead already, and keeps the number of its group until it is reaped.
func (p *process) killAndReap() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.family.kill()
	p.waitErr = p.cmd.Wait()
	p.reaped = true
	p.family.release()
}

// reapOnly is for a leader whose end could not be seen before it was reaped,
// because the host reaps every child itself or the system lacks the means. Its
// group cannot be signalled safely any more.
func (p *process) reapOnly() {
	err := p.cmd.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.waitErr = err
	p.reaped = true
	p.family.release()
}

// signal sends to the family, unless its leader was reaped.
func (p *process) signal(send func(family)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.reaped {
		send(p.family)
	}
}

// Kill ends the leader and its group at once. It does not wait for that.
func (p *process) Kill() { p.signal(family.kill) }

// Stop ends the child, gently at first: the end of its input, then a request to
// terminate, then no choice, with a grace after each of the former. When hurry
// is closed the graces are over. Stop returns once the leader is reaped.
func (p *process) Stop(hurry <-chan struct{}) {
	p.CloseInput()
	if p.outlastsGrace(hurry) {
		p.signal(family.terminate)
		p.outlastsGrace(hurry)
	}
	p.Kill()
	<-p.exited
}

// outlastsGrace reports whether the child is still there after a whole grace.
func (p *process) outlastsGrace(hurry <-chan struct{}) bool {
	grace := time.NewTimer(p.spec.grace)
	defer grace.Stop()
	select {
	case <-grace.C:
		return true
	case <-hurry:
	case <-p.exited:
	}
	return false
}

// Read reads from the server's stdout. The end is io.EOF, also after
// CloseOutput.
func (p *process) Read(b []byte) (int, error) {
	n, err := p.stdout.Read(b)
	if errors.Is(err, os.ErrClosed) {
		err = io.EOF
	}
	return n, err
}

// Write writes to the server's stdin.
func (p *process) Write(b []byte) (int, error) { return p.stdin.Write(b) }

// CloseInput ends the server's input and frees a blocked Write.
func (p *process) CloseInput() { closeFiles([]*os.File{p.stdin}) }

// CloseOutput frees a blocked Read and the reader of stderr. Whatever the
// server writes from then on is lost.
func (p *process) CloseOutput() { closeFiles([]*os.File{p.stdout, p.stderr}) }

// closeFiles closes files that may be nil or closed already.
func closeFiles(files []*os.File) {
	for _, file := range files {
		file.Close()
	}
}

// Exited returns a channel that is closed once the leader has ended, its group
// was killed, and it was reaped. What it wrote can still be read then.
func (p *process) Exited() <-chan struct{} { return p.exited }

// StderrDone returns a channel that is closed once stderr has been read to its
// end, or was closed.
func (p *process) StderrDone() <-chan struct{} { return p.stderrDone }

// PID returns the leader's process id.
func (p *process) PID() int { return p.cmd.Process.Pid }

// ExitError says how the process ended, with what is known of its stderr by
// now. It may be called after Exited is closed.
func (p *process) ExitError() *ExitError {
	exit := &ExitError{
		Server: p.spec.name,
		Status: p.cmd.ProcessState.ExitCode(), // -1 without a state, too
		Stderr: strings.TrimSpace(cleanText(p.StderrTail(), stderrTailLimit)),
		Err:    p.waitErr,
	}
	if state := p.cmd.ProcessState; state != nil {
		if status, ok := state.Sys().(syscall.WaitStatus); ok && status.Signaled() {
			exit.Signal = status.Signal().String()
		}
	}
	return exit
}

// StderrTail returns the last bytes that the server wrote to stderr, as they
// are, at most stderrTailLimit.
func (p *process) StderrTail() string { return p.tail.String() }

// drainStderr reads stderr to its end: a server must never block on it.
func (p *process) drainStderr(context.Context) {
	defer close(p.stderrDone)
	defer p.stderr.Close()
	for {
		n, err := p.stderr.Read(p.stderrBuffer[:])
		p.tail.write(p.stderrBuffer[:n])
		if err != nil {
			return
		}
	}
}

// A stderrTail keeps the last stderrTailLimit bytes that are written to it. It
// takes memory as bytes come: most servers say little.
type stderrTail struct {
	mu     sync.Mutex // guards the fields below
	ring   []byte     // grows up to the limit, then wraps around
	oldest int        // where the next byte goes once the ring is full
}

func (t *stderrTail) write(b []byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	fresh := min(len(b), stderrTailLimit-len(t.ring))
	t.ring = append(t.ring, b[:fresh]...)
	for b = b[fresh:]; len(b) > 0; {
		n := copy(t.ring[t.oldest:], b)
		t.oldest = (t.oldest + n) % stderrTailLimit
		b = b[n:]
	}
}

func (t *stderrTail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.ring[t.oldest:]) + string(t.ring[:t.oldest])
}
