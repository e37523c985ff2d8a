package mcp

import (
	"bufio"
	"context"
	"io"
	"runtime"
	"sync"
	"testing"
	"time"

	"yagent/mcp/supervise"
)

// memoryPipe is a pipe with a buffer, as the system's are, for synctest bubbles:
// whoever waits in it is durably blocked.
type memoryPipe struct {
	mu     sync.Mutex // guards the fields below
	change *sync.Cond
	data   []byte
	room   int   // capacity
	closed error // non-nil: no more bytes come in; reads end with it
	broken bool  // nobody reads any more
}

func newMemoryPipe() *memoryPipe {
	p := &memoryPipe{room: 64 << 10}
	p.change = sync.NewCond(&p.mu)
	return p
}

func (p *memoryPipe) Read(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for len(p.data) == 0 && p.closed == nil && !p.broken {
		p.change.Wait()
	}
	if p.broken {
		return 0, io.EOF
	}
	if len(p.data) == 0 {
		return 0, p.closed
	}
	n := copy(b, p.data)
	p.data = p.data[n:]
	p.change.Broadcast()
	return n, nil
}

func (p *memoryPipe) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	written := 0
	for len(b) > 0 {
		for len(p.data) >= p.room && p.closed == nil && !p.broken {
			p.change.Wait()
		}
		if p.closed != nil || p.broken {
			return written, io.ErrClosedPipe
		}
		n := min(len(b), p.room-len(p.data))
		p.data = append(p.data, b[:n]...)
		b, written = b[n:], written+n
		p.change.Broadcast()
	}
	return written, nil
}

// end lets readers have what is there and then io.EOF.
func (p *memoryPipe) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = io.EOF
	p.change.Broadcast()
}

// cut ends both sides at once.
func (p *memoryPipe) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.broken = true
	p.change.Broadcast()
}

// memoryPeer is a server in memory: a peer whose process is a goroutine.
type memoryPeer struct {
	input, output *memoryPipe
	server        *fakeServer
	grace         time.Duration
	exited        chan struct{}

	killOnce sync.Once
	killed   chan struct{}

	mu   sync.Mutex // guards the fields below
	exit ExitError
}

func (p *memoryPeer) Read(b []byte) (int, error)  { return p.output.Read(b) }
func (p *memoryPeer) Write(b []byte) (int, error) { return p.input.Write(b) }
func (p *memoryPeer) CloseInput()                 { p.input.end() }
func (p *memoryPeer) CloseOutput()                { p.output.cut() }
func (p *memoryPeer) Exited() <-chan struct{}     { return p.exited }
func (p *memoryPeer) StderrDone() <-chan struct{} { return p.exited }
func (p *memoryPeer) PID() int                    { return 1 }

func (p *memoryPeer) ExitError() *ExitError {
	p.mu.Lock()
	defer p.mu.Unlock()
	exit := p.exit
	return &exit
}

func (p *memoryPeer) Stop(hurry <-chan struct{}) {
	p.CloseInput()
	for range 2 {
		timer := time.NewTimer(p.grace)
		defer timer.Stop()
		select {
		case <-p.exited:
			return
		case <-timer.C:
		case <-hurry:
		}
	}
	p.kill()
	<-p.exited
}

// kill ends the server as SIGKILL does.
func (p *memoryPeer) kill() { p.die(-1, "killed") }

func (p *memoryPeer) die(status int, signal string) {
	p.killOnce.Do(func() {
		p.mu.Lock()
		p.exit = ExitError{Server: p.exit.Server, Status: status, Signal: signal, Stderr: p.exit.Stderr}
		p.mu.Unlock()
		close(p.killed)
		p.input.cut()
		p.output.end()
		close(p.exited)
	})
}

// stderrWriter keeps a memory server's stderr.
type stderrWriter struct{ p *memoryPeer }

func (w stderrWriter) Write(b []byte) (int, error) {
	w.p.mu.Lock()
	defer w.p.mu.Unlock()
	w.p.exit.Stderr += string(b)
	return len(b), nil
}

// memoryHost is a start seam: it starts servers in memory and remembers them.
type memoryHost struct {
	t testing.TB

	// modeOf gives the mode of a server's n-th start, from 1; an error fails
	// the start. Nil: the Command names the mode.
	modeOf func(cfg ClientConfig, n int) (string, error)

	mu    sync.Mutex // guards the fields below
	peers map[string][]*memoryPeer
	tries map[string]int
}

func newMemoryHost(t testing.TB) *memoryHost {
	return &memoryHost{t: t, peers: map[string][]*memoryPeer{}, tries: map[string]int{}}
}

func (h *memoryHost) start(ctx context.Context, grp *supervise.Group, cfg ClientConfig) (peer, error) {
	h.mu.Lock()
	h.tries[cfg.Name]++
	n := h.tries[cfg.Name]
	h.mu.Unlock()
	mode := cfg.Command
	if h.modeOf != nil {
		var err error
		if mode, err = h.modeOf(cfg, n); err != nil {
			return nil, err
		}
	}
	p := newMemoryPeer(cfg, useMode(h.t, mode))
	if err := grp.Go("memory-"+cfg.Name, func(context.Context) { p.run() }); err != nil {
		return nil, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.peers[cfg.Name] = append(h.peers[cfg.Name], p)
	return p, nil
}

// starts is how often a server was started, or tried to be.
func (h *memoryHost) starts(name string) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.tries[name]
}

// last is a server's newest process.
func (h *memoryHost) last(name string) *memoryPeer {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.peers[name]) == 0 {
		return nil
	}
	return h.peers[name][len(h.peers[name])-1]
}

func newMemoryPeer(cfg ClientConfig, mode string) *memoryPeer {
	p := &memoryPeer{
		input: newMemoryPipe(), output: newMemoryPipe(), grace: cfg.ShutdownGrace,
		exited: make(chan struct{}), killed: make(chan struct{}),
	}
	p.exit.Server = cfg.Name
	p.server = &fakeServer{
		mode: mode, how: fakeModes[mode], in: bufio.NewReader(p.input), out: p.output, stderr: stderrWriter{p}, killed: p.killed,
		exit: func(status int) {
			p.die(status, "")
			runtime.Goexit()
		},
	}
	return p
}

// run is the server's process. Goexit is its way to exit early.
func (p *memoryPeer) run() {
	done := make(chan struct{})
	go func() {
		defer close(done)
		p.server.serve()
		p.die(0, "")
	}()
	<-done
}
