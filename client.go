package mcp

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

	"yagent/mcp/supervise"
)

// ErrIndexBuilding is what a call gets before the server's handshake is done. A
// cold index may take minutes over it, so the text tells a model what to do
// meanwhile; hosts pass it on word for word, and it never carries a prefix.
//
//lint:ignore ST1005 it is a sentence of its own
var ErrIndexBuilding = errors.New("This server is still starting and may be building its index, so its tools cannot answer yet. " +
	"Do the work without it for now, for example by searching and reading the files directly, and try this tool again in a minute.")

const (
	// defaultMaxMessageBytes has room for the 42 MB that a well-known server was
	// seen to send.
	defaultMaxMessageBytes = 64 << 20

	// defaultShutdownGrace is given twice: after the end of input, and after SIGTERM.
	defaultShutdownGrace = 2 * time.Second

	// killWait bounds the join after everything was killed. Only what ignores
	// SIGKILL, or a host's callback, can outlast it.
	killWait = 2 * time.Second
)

// ClientConfig describes one server for a client of its own. A Manager derives
// it from its ServerConfig.
type ClientConfig struct {
	Name    string   // how errors and logs call the server
	Command string   // looked up in the host's PATH unless it has a separator; no shell
	Args    []string // passed as they are
	Env     []string // the complete environment, "KEY=value"; nil inherits the host's
	Dir     string   // working directory; empty is the host's. A relative Command with a separator is relative to it

	// RequestTimeout bounds each request but the handshake. A connection on
	// which no byte moves either way for so long while a line is half written
	// is ended, too: the server does not read. 0 or less: 30 s.
	RequestTimeout time.Duration

	// MaxInFlight bounds the tool calls that are waited for at once; further
	// callers wait in order, within their contexts. 0 or less: no bound.
	MaxInFlight int

	// MaxMessageBytes bounds one message from the server. 0 or less: 64 MiB.
	MaxMessageBytes int

	// ShutdownGrace is how long a shutdown waits after the end of input, and
	// again after SIGTERM. 0 or less: 2 s.
	ShutdownGrace time.Duration

	// Protocol pins the server's era; 0 finds it out. ProbeTimeout is how long
	// that waits for an answer to server/discover before it sends initialize
	// as well. 0 or less: 5 s.
	Protocol     Protocol
	ProbeTimeout time.Duration

	// ClientInfo is announced to the server. Without a name: "yagent-mcp".
	ClientInfo Implementation

	// Logger gets what happens on the connection; nil discards it. It is called
	// on the goroutines that serve the server, so its handler must be quick.
	Logger *slog.Logger
}

// MCPClient is a host's lasting handle on one server. The connection under it
// may end and be replaced; the pointer stays good. All methods may be called
// from any goroutine at any time.
type MCPClient struct {
	// Set once by NewMCPClient.
	cfg   ClientConfig
	log   *slog.Logger
	slots *semaphore.Weighted // nil: no bound on calls in flight

	// stop ends and keeps down a server that a Manager owns; nil for a client
	// of its own.
	stop func(ctx context.Context, force bool) error

	// The two bits of IsAlive, and nothing else, are read by it. Only the
	// current session's watch goroutine and attach write them.
	running atomic.Bool // a process (or its stand-in) is up and not yet reaped
	closed  atomic.Bool // its connection has ended

	instructions atomic.Value // string; replaced by each handshake
	current      atomic.Pointer[session]
	renewing     atomic.Bool // the session ended, but only to start the server once more

	mu sync.Mutex // guards the fields below

	news  chan struct{} // closed, and replaced, when readiness may have changed
	fault error         // why the server cannot become ready; nil while it may

	verdict era // of the last connection; eraUnknown before it, and after it was refused

	// Of a client of its own.
	starting bool             // a Start is under way
	grp      *supervise.Group // from Start to Shutdown
}

// owner is told what happens to the sessions it asked for. None of its methods
// may wait for anything: they are called by the session's own goroutines.
type owner interface {
	// connected comes first, before anything else can.
	connected(s *session)

	// connectionLost comes once for each session that ends, before its calls
	// in flight are failed.
	connectionLost(s *session, cause error)

	// listChanged comes for each notification that says so.
	listChanged(s *session)
}

// peer is a started server as a session sees it: its pipes and its process.
// A process is one; tests have one in memory.
type peer interface {
	Read([]byte) (int, error)
	Write([]byte) (int, error)
	CloseInput()
	CloseOutput()
	Exited() <-chan struct{}
	StderrDone() <-chan struct{}
	ExitError() *ExitError
	Stop(hurry <-chan struct{})
	PID() int
}

// startFunc starts a server whose goroutines belong to grp. It is the only door
// to processes, and the seam for tests.
type startFunc func(ctx context.Context, grp *supervise.Group, cfg ClientConfig) (peer, error)

// startPeer starts a process as the peer of a session.
func (s *spawner) startPeer(ctx context.Context, grp *supervise.Group, cfg ClientConfig) (peer, error) {
	p, err := s.start(ctx, grp, processSpec{
		name: cfg.Name, command: cfg.Command, args: cfg.Args, env: cfg.Env, dir: cfg.Dir, grace: cfg.ShutdownGrace,
	})
	if err != nil {
		return nil, err // not p: a nil *process would be a peer
	}
	return p, nil
}

// NewMCPClient returns a handle without a connection yet. This is the one place
// that knows the defaults of ClientConfig.
func NewMCPClient(cfg ClientConfig) *MCPClient {
	if cfg.RequestTimeout <= 0 {
		cfg.RequestTimeout = 30 * time.Second
	}
	if cfg.MaxMessageBytes <= 0 {
		cfg.MaxMessageBytes = defaultMaxMessageBytes
	}
	if cfg.ShutdownGrace <= 0 {
		cfg.ShutdownGrace = defaultShutdownGrace
	}
	if cfg.ProbeTimeout <= 0 {
		cfg.ProbeTimeout = defaultProbeTimeout
	}
	cfg.Args, cfg.Env = slices.Clone(cfg.Args), slices.Clone(cfg.Env)
	cfg.ClientInfo.Name = cmp.Or(cfg.ClientInfo.Name, "yagent-mcp")
	cfg.ClientInfo.Version = cmp.Or(cfg.ClientInfo.Version, "0")
	c := &MCPClient{cfg: cfg, log: guardedLogger(cfg.Logger).With("server", cfg.Name), news: make(chan struct{})}
	if cfg.MaxInFlight > 0 {
		c.slots = semaphore.NewWeighted(int64(cfg.MaxInFlight))
	}
	c.fault = fmt.Errorf("%w: it was not started", ErrOffline)
	c.instructions.Store("")
	return c
}

// Start starts the server's process and returns; the handshake goes on in the
// background, see [MCPClient.WaitForReady]. The context bounds the start alone,
// but the goroutines join the supervise.Group it carries, if any. A client that
// a Manager gave is started by its Manager. After the connection has ended,
// Start begins a new one. A client without a Manager does not reconnect by
// itself. The errors are [ErrStarted], a *[StartError], the
// context's, and supervise.ErrDraining in a group that drains.
func (c *MCPClient) Start(ctx context.Context) error {
	if c.stop != nil {
		return &ServerError{
			Server: c.cfg.Name, Op: "start", Err: errors.New("it belongs to a Manager, which starts it"), Advice: "Use Manager.Reconnect",
		}
	}
	if !c.claimStart() {
		return c.failed("start", ErrStarted)
	}
	defer c.releaseStart()
	grp, err := c.openDomain(ctx)
	if err != nil {
		return c.failed("start", err)
	}
	c.setFault(nil)
	spawner, err := newSpawner(grp)
	if err == nil {
		err = c.launch(ctx, grp, spawner.startPeer)
	}
	if err != nil {
		c.setFault(err)
		return c.failed("start", errors.Join(err, drainDomain(ctx, grp, c.kill)))
	}
	return nil
}

// launch connects a client of its own for the first time in its domain.
func (c *MCPClient) launch(ctx context.Context, grp *supervise.Group, start startFunc) error {
	s, err := c.connect(ctx, grp, start, noOwner{c})
	if err == nil && s.opening.era == eraUnknown {
		err = grp.Go("mcp/renew-"+c.cfg.Name, func(ctx context.Context) { c.awaitRenewal(ctx, grp, start, s) })
	}
	return err
}

// claimStart reports whether a start may begin: one at a time may, and none
// while there is a connection, or a start that takes a second process goes on.
func (c *MCPClient) claimStart() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.current.Load()
	renewing := c.renewing.Load() && c.fault == nil
	if c.starting || renewing || s != nil && !isClosed(s.closing) {
		return false
	}
	c.starting = true
	return true
}

func (c *MCPClient) releaseStart() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.starting = false
}

// openDomain makes the group that owns everything of this start, once what was
// before has gone.
func (c *MCPClient) openDomain(ctx context.Context) (*supervise.Group, error) {
	c.mu.Lock()
	old := c.grp
	c.mu.Unlock()
	if old != nil {
		if err := drainDomain(ctx, old, c.kill); err != nil {
			return nil, err // it stays known, for another Shutdown to join
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.grp = supervise.From(ctx).Sub("mcp/"+c.cfg.Name, c.reportPanic)
	return c.grp, nil
}

// reportPanic logs a panic in a goroutine that serves no session.
func (c *MCPClient) reportPanic(p *supervise.PanicError) {
	c.log.Error("a goroutine panicked", "goroutine", p.Name, "panic", p.Value, "stack", string(p.Stack))
}

// connect starts the server and attaches a session to the handle, once the
// session before is joined and reaped. The caller drains grp in the end.
func (c *MCPClient) connect(ctx context.Context, grp *supervise.Group, start startFunc, o owner) (*session, error) {
	c.renewing.Store(false) // a renewal that this one takes the place of
	s, err := c.connectBy(ctx, grp, start, o, c.nextOpening())
	if err != nil {
		c.renewing.Store(false) // the session before may have asked for one at its very end
	}
	return s, err
}

func (c *MCPClient) connectBy(ctx context.Context, grp *supervise.Group, start startFunc, o owner, by opening) (*session, error) {
	if last := c.current.Load(); last != nil {
		if err := last.grp.Drain(ctx); err != nil {
			return nil, err
		}
	}
	s := newSession(c, grp, o, by)
	p, err := start(ctx, s.grp, c.cfg)
	if err != nil {
		return nil, errors.Join(err, s.grp.Drain(context.WithoutCancel(ctx)))
	}
	s.attach(p)
	return s, nil
}

// noOwner stands in for a Manager: a client of its own is not started again,
// and nobody listens for list changes.
type noOwner struct{ c *MCPClient }

func (noOwner) connected(*session)                       {}
func (noOwner) listChanged(*session)                     {}
func (o noOwner) connectionLost(_ *session, cause error) { o.c.setFault(cause) }

// IsAlive reports whether there is a connection now. It reads two atomic bits
// and does nothing else, so it may be called from anywhere at any rate.
func (c *MCPClient) IsAlive() bool { return c.running.Load() && !c.closed.Load() }

// Instructions returns what the server said about its use in its last handshake.
func (c *MCPClient) Instructions() string { return c.instructions.Load().(string) }

// WaitForReady waits until the handshake is done, bounded by ctx alone, or ends
// at once with the reason when the server cannot become ready. The client of a
// Manager waits through its reconnects, and is ready before the Manager's server
// is, which must be listed first: see [Manager.WaitForReady].
func (c *MCPClient) WaitForReady(ctx context.Context) error {
	for {
		ready, news, fault := c.readiness()
		switch {
		case ready:
			return nil
		case fault != nil:
			return c.failed("wait for ready", fmt.Errorf("%w: %w", ErrNotReady, fault))
		}
		select {
		case <-news:
		case <-ctx.Done():
			return c.failed("wait for ready", fmt.Errorf("%w: %w%s", ErrNotReady, endOf(ctx), c.hint()))
		}
	}
}

// readiness says whether the server is ready, where to wait for a change, and
// why it cannot become ready, if so.
func (c *MCPClient) readiness() (ready bool, news <-chan struct{}, fault error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.current.Load()
	return s != nil && s.isReady() && c.IsAlive(), c.news, c.fault
}

// setFault records why the server cannot become ready, nil when it may again,
// and wakes those who wait.
func (c *MCPClient) setFault(fault error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.fault = fault
	c.wakeLocked()
}

// wake wakes those who wait for readiness.
func (c *MCPClient) wake() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.wakeLocked()
}

func (c *MCPClient) wakeLocked() {
	close(c.news)
	c.news = make(chan struct{})
}

// hint is what the connection has seen that may explain a silence.
func (c *MCPClient) hint() string {
	if s := c.current.Load(); s != nil {
		return s.hint()
	}
	return ""
}

// CallTool calls a tool and waits for its result, within ctx and
// RequestTimeout, whichever ends first; with MaxInFlight, the time in the queue
// counts for ctx alone. A call that is not waited for any longer is cancelled
// with the server, by notification. Arguments may be nil ({}), JSON as
// json.RawMessage or []byte (sent byte for byte, but that line breaks between
// tokens become spaces), or any value that encodes to a JSON object.
//
// Three outcomes are kept apart: a result, a result with IsError (the tool
// failed), and an error (see the error variables of this package). Before the
// handshake it is [ErrIndexBuilding]. A call is never sent twice.
func (c *MCPClient) CallTool(ctx context.Context, name string, args any) (*CallToolResult, error) {
	if c.slots != nil {
		if err := c.slots.Acquire(ctx, 1); err != nil {
			waited := fmt.Errorf("all %d calls in flight that the server may have are taken: %w", c.cfg.MaxInFlight, endOf(ctx))
			return nil, c.callFailed(name, notSent(waited))
		}
		defer c.slots.Release(1)
	}
	s, err := c.readySession()
	if err != nil {
		return nil, c.callFailed(name, err)
	}
	result, err := s.callTool(ctx, name, args)
	if err != nil {
		return nil, c.callFailed(name, err)
	}
	return result, nil
}

// readySession returns the session that can carry a request now.
func (c *MCPClient) readySession() (*session, error) {
	renewing := c.isRenewing() // asked on both sides of the new session's arrival
	s := c.current.Load()
	switch alive := s != nil && c.IsAlive(); {
	case !alive && !renewing && !c.isRenewing():
		return nil, notSent(c.offline())
	case !alive || !s.isReady():
		return nil, &indexBuildingError{c.cfg.Name}
	}
	return s, nil
}

// isRenewing reports whether there is no connection only because the server is
// being started once more, as a part of its start.
func (c *MCPClient) isRenewing() bool {
	if !c.renewing.Load() {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.fault == nil
}

// offline says that there is no connection, and why, as far as it is known.
func (c *MCPClient) offline() error {
	c.mu.Lock()
	fault := c.fault
	c.mu.Unlock()
	switch {
	case fault == nil:
		return fmt.Errorf("%w: it has no process now", ErrOffline)
	case errors.Is(fault, ErrOffline):
		return fault
	}
	return fmt.Errorf("%w: %w", ErrOffline, fault)
}

// ListTools asks for the server's whole list, sorted by name, following its
// pages to the end: 20 of them and 10,000 tools at most, past which it is an
// error and never a part of the list. Tools that cannot be used are left out.
// The second result is the server's instructions from its handshake. Before the
// handshake it is [ErrNotReady]. ctx bounds the whole, RequestTimeout each page.
func (c *MCPClient) ListTools(ctx context.Context) ([]DiscoveredTool, string, error) {
	s, err := c.readySession()
	if errors.Is(err, ErrIndexBuilding) {
		err = notSent(fmt.Errorf("%w: its handshake is not done", ErrNotReady))
	}
	if err != nil {
		return nil, "", c.failedToList(err)
	}
	list, err := s.listTools(ctx)
	if err != nil {
		return nil, "", c.failedToList(err)
	}
	return list.tools, c.Instructions(), nil
}

// Shutdown ends the server and joins everything that served it: end of input,
// grace, SIGTERM, grace, SIGKILL; at the end of ctx straight to SIGKILL, which
// takes 2 s at most. Calls in flight get [ErrClosed]. After it returns nil
// nothing of it runs; otherwise the error names what still does. A client that a Manager gave stays down until
// Manager.Reconnect. It may be called any number of times.
func (c *MCPClient) Shutdown(ctx context.Context) error { return c.shutdown(ctx, false) }

// ForceShutdown is Shutdown without the graces: it takes 2 s at most, whatever
// the end of ctx.
func (c *MCPClient) ForceShutdown(ctx context.Context) error { return c.shutdown(ctx, true) }

func (c *MCPClient) shutdown(ctx context.Context, force bool) error {
	if c.stop != nil {
		return c.stop(ctx, force)
	}
	c.mu.Lock()
	grp := c.grp
	c.mu.Unlock()
	c.setFault(ErrClosed)
	if grp == nil {
		return nil
	}
	if force {
		ctx = expired(ctx)
	}
	return drainDomain(ctx, grp, c.kill)
}

// kill sends the current session's process straight to SIGKILL.
func (c *MCPClient) kill() {
	if s := c.current.Load(); s != nil {
		s.kill()
	}
}

// failed, failedToList and callFailed put the server, the operation and the advice around an error.
func (c *MCPClient) failed(op string, err error) error {
	return &ServerError{Server: c.cfg.Name, Op: op, Err: err, Advice: adviceFor(err)}
}

func (c *MCPClient) failedToList(err error) error {
	return &ServerError{Server: c.cfg.Name, Op: methodListTools, Err: err, Advice: adviceForReading(err)}
}

func (c *MCPClient) callFailed(tool string, err error) error {
	if errors.Is(err, ErrIndexBuilding) {
		return err // its text goes to the model as it is
	}
	return c.failed(opCall(tool), err)
}

// opCall names a call in an error. A model may make up a name of any length.
func opCall(tool string) string { return fmt.Sprintf("call %q", cleanText(tool, maxNameBytes)) }

// drainDomain ends and joins all that grp owns: gracefully within ctx, then by
// force. Both ways of every shutdown end here, so that nothing is called shut
// down while something still runs.
func drainDomain(ctx context.Context, grp *supervise.Group, kill func()) error {
	if grp.Drain(ctx) == nil {
		return nil
	}
	kill()
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), killWait)
	defer cancel()
	return grp.Drain(last)
}

// expired is ctx with its time already up: a drain under it goes straight to force.
func expired(ctx context.Context) context.Context {
	ctx, cancel := context.WithCancel(ctx)
	cancel()
	return ctx
}

// session is one connection, from spawn to end, and is never used again. All its
// goroutines belong to grp.
type session struct {
	// Set once, before any of its goroutines runs.
	client *MCPClient
	owner  owner
	log    *slog.Logger
	grp    *supervise.Group
	peer   peer

	opening opening

	// Closed once each, by the goroutine named.
	ready      chan struct{} // handshake: done, hello is set
	outputDone chan struct{} // readLoop: the server's output has ended
	inputDone  chan struct{} // writeLoop: nothing is written any more
	closing    chan struct{} // watch: no request is taken any more
	lost       chan struct{} // watch: the owner was told
	done       chan struct{} // watch: process reaped, loops joined
	hurry      chan struct{} // kill: no grace any more
	hurryOnce  sync.Once

	hello  handshakeResult // set before ready is closed
	era    era             // the same
	meta   []byte          // the same; what each request says in _meta, nil in the legacy era
	opened time.Time       // when ready was closed; a long handshake proves nothing
	acked  chan struct{}   // cap 1: the server has opened the subscription
	afresh error           // set before lost is closed: why the server has to be started once more
	faults chan error      // cap 1: the first fault that must end the connection
	wakeup chan struct{}   // cap 1: the queue has lines, or has ended
	proven atomic.Bool     // it served a call when it was old enough
	fated  atomic.Bool     // taken once: by welcome, or by watch for a server to be started once more
	stall  stallClock

	lastID atomic.Int64 // ids of requests: integers from 1, never used twice

	writeMu sync.Mutex // guards the fields below and the state of every outgoing line; never held across a write

	queue     []*outgoing // lines not yet begun, in order
	unclaimed backlog     // what of the queue no caller waits for
	queueEnd  error       // non-nil: nothing is queued any more

	mu sync.Mutex // guards the fields below

	pending map[int64]*call // requests without an answer yet
	idle    []*call         // for reuse
	refused error           // non-nil: no new requests, and why
	oddity  oddities        // what came that was no message for us
}

// call is one request in flight, from its caller's side.
type call struct {
	outgoing
	id       int64
	answered chan struct{} // cap 1; a token once the fields below are set
	timer    *time.Timer

	result []byte // raw, owned
	err    error  // the answer was an error, or none will come
	lost   bool   // the connection ended first; err says why
}

// request is what doRequest is asked to do.
type request struct {
	method  string
	params  func(dst []byte) ([]byte, error) // appends the params; nil: none
	id      int64                            // 0: the next one; a probe has its own
	meta    []byte                           // goes into the params as it is; nil: none
	timeout time.Duration                    // 0: ctx alone bounds it
	forever bool                             // the handshake: never cancelled on the wire
}

const (
	// maxIdleCalls and maxIdleLine bound what a session keeps for reuse.
	maxIdleCalls = 64
	maxIdleLine  = 16 << 10

	// typicalLine has room for most requests without their _meta.
	typicalLine = 256
)

func newSession(c *MCPClient, parent *supervise.Group, o owner, by opening) *session {
	s := &session{
		client:     c,
		owner:      o,
		opening:    by,
		log:        c.log,
		ready:      make(chan struct{}),
		outputDone: make(chan struct{}),
		inputDone:  make(chan struct{}),
		closing:    make(chan struct{}),
		lost:       make(chan struct{}),
		done:       make(chan struct{}),
		hurry:      make(chan struct{}),
		acked:      make(chan struct{}, 1),
		faults:     make(chan error, 1),
		wakeup:     make(chan struct{}, 1),
		pending:    make(map[int64]*call),
	}
	s.grp = parent.Sub("mcp/session-"+c.cfg.Name, s.reportPanic)
	return s
}

// reportPanic logs a panic in one of the session's goroutines and ends the
// session, which cannot work without it.
func (s *session) reportPanic(p *supervise.PanicError) {
	s.client.reportPanic(p)
	s.fail(p)
}

// attach makes this the client's session and starts its goroutines. Where the
// group is draining already, they end at once or never run.
func (s *session) attach(p peer) {
	s.peer = p
	s.stall.init(s.client.cfg.RequestTimeout)
	c := s.client
	c.current.Store(s)
	c.closed.Store(false)
	c.running.Store(true)
	c.renewing.Store(false)
	if s.grp.Context().Err() != nil {
		s.kill() // whoever wanted it killed may have come and gone
	}
	s.owner.connected(s)
	if s.grp.Go("mcp/read-"+c.cfg.Name, s.readLoop) != nil {
		close(s.outputDone)
	}
	if s.grp.Go("mcp/write-"+c.cfg.Name, s.writeLoop) != nil {
		close(s.inputDone)
	}
	if s.grp.Go("mcp/watch-"+c.cfg.Name, s.watch) != nil {
		s.watch(s.grp.Context()) // its context is done, so this only buries the process
		return
	}
	// Refused only when the group drains, and then watch ends the session.
	_ = s.grp.Go("mcp/handshake-"+c.cfg.Name, s.handshake)
}

func (s *session) isReady() bool { return isClosed(s.ready) }
func (s *session) isDone() bool  { return isClosed(s.done) }

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// kill takes all patience out of the session's end. It does not begin the end.
func (s *session) kill() { s.hurryOnce.Do(func() { close(s.hurry) }) }

// fail ends the connection because of err; the first one counts.
func (s *session) fail(err error) {
	select {
	case s.faults <- err:
	default:
	}
}

// doRequest sends one request and waits for its answer: within ctx, within
// r.timeout, and no longer than the connection lives. Every request of every
// method goes through here.
func (s *session) doRequest(ctx context.Context, r request) ([]byte, error) {
	if ctx.Err() != nil {
		return nil, notSent(endOf(ctx))
	}
	c, err := s.begin(r)
	if err != nil {
		return nil, err
	}
	var timeout <-chan time.Time
	if r.timeout > 0 {
		c.timer.Reset(r.timeout)
		timeout = c.timer.C
	}
	select {
	case <-c.answered:
		return s.finish(c)
	case <-ctx.Done():
		return s.abandon(c, r, fmt.Errorf("no answer before the caller's end: %w%s", endOf(ctx), s.hint()))
	case <-timeout:
		return s.abandon(c, r, fmt.Errorf("no answer within %v: %w%s", r.timeout, context.DeadlineExceeded, s.hint()))
	}
}

// begin encodes a request, registers it for its answer and queues its line.
func (s *session) begin(r request) (*call, error) {
	c := s.takeCall()
	c.id = r.id
	if c.id == 0 {
		c.id = s.lastID.Add(1)
	}
	line, err := appendRequest(slices.Grow(c.line[:0], typicalLine+len(r.meta)), c.id, r.method, r.meta, r.params)
	if err != nil {
		s.putCall(c)
		return nil, notSent(fmt.Errorf("%w: %w", ErrInvalidArguments, err))
	}
	c.line = line
	s.mu.Lock()
	err = s.refused
	if err == nil {
		s.pending[c.id] = c
	}
	s.mu.Unlock()
	if err != nil {
		return nil, notSent(err)
	}
	// A queue that has ended needs no look here: the end of the session
	// answers every pending call.
	s.sendJSON(&c.outgoing)
	return c, nil
}

// finish takes the answer out of a call whose token was received.
func (s *session) finish(c *call) ([]byte, error) {
	result, err := c.result, c.err
	if c.lost {
		err = s.fateOf(c)
	}
	s.putCall(c)
	return result, err
}

// fateOf says whether a call without an answer was sent.
func (s *session) fateOf(c *call) error {
	if s.withdraw(&c.outgoing) {
		return notSent(c.err)
	}
	return unknownOutcome(c.err)
}

// abandon ends a call whose caller waits no longer. A line not yet begun is
// taken back whole; otherwise the server is told, once, and its late answer
// will find nobody.
func (s *session) abandon(c *call, r request, why error) ([]byte, error) {
	if s.takePending(c.id) == nil {
		<-c.answered // the answer was faster
		return s.finish(c)
	}
	c.err = why
	err := s.fateOf(c)
	if errors.Is(err, ErrOutcomeUnknown) && !r.forever {
		s.sendJSON(&outgoing{line: appendCancelled(nil, c.id)})
	}
	s.putCall(c)
	return nil, err
}

// takePending removes a request from those that wait; nil if it did not wait.
// Whoever gets it is the only one to answer it.
func (s *session) takePending(id int64) *call {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.pending[id]
	delete(s.pending, id)
	return c
}

// isPending reports whether a request still waits for its answer.
func (s *session) isPending(id int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pending[id] != nil
}

// answer hands a call what came for it. The caller took it out of pending.
func (c *call) answer(result []byte, err error) {
	c.result, c.err = result, err
	c.answered <- struct{}{}
}

// takeCall returns a call for use: an idle one, or a new one.
func (s *session) takeCall() *call {
	s.mu.Lock()
	defer s.mu.Unlock()
	last := len(s.idle) - 1
	if last < 0 {
		c := &call{answered: make(chan struct{}, 1), timer: time.NewTimer(time.Hour)}
		c.timer.Stop()
		c.call = c
		return c
	}
	c := s.idle[last]
	s.idle = s.idle[:last]
	return c
}

// putCall keeps a finished call for reuse, at once or when the writer has let go
// of its line.
func (s *session) putCall(c *call) {
	c.timer.Stop()
	c.result, c.err, c.lost = nil, nil, false
	if s.resetLine(&c.outgoing) {
		s.keepIdle(c)
	}
}

func (s *session) keepIdle(c *call) {
	if cap(c.line) > maxIdleLine {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.idle) < maxIdleCalls {
		s.idle = append(s.idle, c)
	}
}

// refuse makes every further request fail with err.
func (s *session) refuse(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refused = err
}

// failPending ends every call that still waits: its answer will not come.
func (s *session) failPending(cause error) {
	s.mu.Lock()
	lost := s.pending
	s.pending = make(map[int64]*call)
	s.refused = cause
	s.mu.Unlock()
	for _, c := range lost {
		c.lost = true
		c.answer(nil, cause)
	}
}

const (
	provenByAge  = 60 * time.Second
	provenByCall = 10 * time.Second
)

// noteAnswer marks the session as proven once it serves calls at an age that
// shows it does not die right after its start.
func (s *session) noteAnswer() {
	if !s.proven.Load() && time.Since(s.opened) >= provenByCall {
		s.proven.Store(true)
	}
}

// isProven reports whether the session lived long or well enough for its end to
// count as a new misfortune, and not as one more of the same.
func (s *session) isProven() bool {
	return s.proven.Load() || s.isReady() && time.Since(s.opened) >= provenByAge
}

// readLoop frames what the server writes and routes it. It never waits for
// anything but the next byte, and it goes on to the end of the output even when
// nobody listens any more, so that no server hangs on a full pipe at its exit.
func (s *session) readLoop(context.Context) {
	defer close(s.outputDone)
	lines := newLineReader(&countingReader{s}, s.client.cfg.MaxMessageBytes)
	for {
		line, owned, err := lines.next()
		if err == nil {
			s.receive(line, owned)
			continue
		}
		if over, ok := errors.AsType[*overlongLine](err); ok {
			s.receiveOverlong(over)
			continue
		}
		if errors.Is(err, errEndlessLine) {
			s.fail(fmt.Errorf("%w: %w", ErrTooLarge, err))
		}
		return
	}
}

// countingReader is the server's output; it tells the stall clock that bytes move.
type countingReader struct{ s *session }

func (r *countingReader) Read(b []byte) (int, error) {
	n, err := r.s.peer.Read(b)
	r.s.stall.moved()
	return n, err
}

// receive routes one line.
func (s *session) receive(line []byte, owned bool) {
	if isBlank(line) {
		return
	}
	if isBatch(line) {
		s.receiveBatch(line, owned)
		return
	}
	message, err := parseMessage(line)
	if err != nil {
		s.noteNoise(line)
		return
	}
	s.route(line, message, owned)
}

// receiveBatch unwraps an array of messages.
func (s *session) receiveBatch(line []byte, owned bool) {
	elements, err := parseBatch(line)
	if err != nil || len(elements) == 0 {
		s.noteNoise(line)
		return
	}
	for _, element := range elements {
		message, err := parseMessage(element)
		if err != nil {
			s.noteNoise(element)
			continue
		}
		s.route(element, message, owned)
	}
}

// route tells apart what a server can send. Whatever has a method is never an
// answer, whatever its id. Some servers write every member that they know, and
// null for those that they do not mean.
func (s *session) route(line []byte, m message, owned bool) {
	switch {
	case !isNull(m.method):
		s.receiveFromServer(line, m)
	case m.result == nil && isNull(m.err) && !m.jsonrpc:
		s.noteNoise(line) // a log line in JSON, even if it has an id
	default:
		s.receiveAnswer(line, m, owned)
	}
}

// receiveAnswer pairs an answer with its request.
func (s *session) receiveAnswer(line []byte, m message, owned bool) {
	id, ok := parseAnswerID(m.id)
	if !ok {
		s.noteOrphan(line, m)
		return
	}
	if m.id[0] == '"' && !isProbeID(id) {
		s.noteStringID(m.id)
	}
	c := s.takePending(id)
	switch {
	case c == nil:
		s.noteStray(id)
	case m.deep:
		c.answer(nil, fmt.Errorf("%w: it nests deeper than %d levels", ErrMalformed, maxDepth))
	case !isNull(m.err):
		c.answer(nil, decodeRPCError(keep(m.err, owned)))
	case m.result == nil:
		c.answer(nil, fmt.Errorf("%w: it has neither a result nor an error", ErrMalformed))
	default:
		c.answer(keep(m.result, owned), nil)
	}
}

// keep returns bytes that outlive the read buffer.
func keep(raw []byte, owned bool) []byte {
	if owned {
		return raw
	}
	return bytes.Clone(raw)
}

// receiveFromServer takes a request or a notification of the server's.
func (s *session) receiveFromServer(line []byte, m message) {
	method, ok := unquote(m.method)
	switch {
	case !ok:
		s.noteNoise(line)
	case m.id == nil || string(m.id) == "null":
		s.receiveNotification(method, m.params)
	case s.isModern():
		s.log.Warn("dropped a request of the server's: the modern era has none", "method", cleanText(method, 64))
	case method == "ping":
		s.sendJSON(&outgoing{line: appendResult(nil, m.id, []byte("{}"))})
	default:
		s.sendJSON(&outgoing{line: appendErrorReply(nil, m.id, codeMethodNotFound, "this client does not support "+cleanText(method, 64))})
	}
}

// receiveNotification acts on the notifications known here and ignores the rest.
func (s *session) receiveNotification(method string, params []byte) {
	switch method {
	case "notifications/tools/list_changed":
		s.owner.listChanged(s)
	case "notifications/subscriptions/acknowledged":
		s.noteAcknowledged(params)
	}
}

// receiveOverlong deals with a line over the limit, first when it passes the
// limit and again at its end. The call it answers fails; where nothing shows
// which call that is, nothing on this connection can be trusted to be answered.
func (s *session) receiveOverlong(over *overlongLine) {
	tooLarge := fmt.Errorf("%w of %d bytes a message", ErrTooLarge, over.limit)
	if raw, ok := over.id(); ok {
		if id, ok := parseAnswerID(raw); ok {
			if c := s.takePending(id); c != nil {
				c.answer(nil, tooLarge)
			}
			return
		}
	}
	switch {
	case over.isFromServer():
		s.noteNoise(over.head)
	case over.ended || !over.looksLikeMessage():
		s.fail(tooLarge)
		s.kill()
	}
}

// outgoing is one line on its way to the server.
type outgoing struct {
	line []byte // ends with a line feed
	call *call  // waits for its answer, and takes the line back when it leaves; nil for other lines

	// Guarded by session.writeMu.
	state    lineState
	released bool // the call is over, and may be used again once the writer is done
}

// lineState is how far a line has come. Once begun it is written to its end,
// even if its caller is long gone: a torn line would end the connection for
// everybody.
type lineState uint8

const (
	lineQueued lineState = iota
	lineBegun
	lineWritten
	lineWithdrawn
)

// backlog is what waits to be written without a caller: answers to the server
// and cancellations. A server that asks without reading would make it grow for
// ever.
type backlog struct{ lines, bytes int }

const (
	maxBacklogLines = 1024
	maxBacklogBytes = 4 << 20
)

func (b *backlog) add(o *outgoing, sign int) {
	if o.call == nil {
		b.lines += sign
		b.bytes += sign * len(o.line)
	}
}

func (b backlog) full() bool { return b.lines > maxBacklogLines || b.bytes > maxBacklogBytes }

// sendJSON queues one line for the writer. Every byte to a server goes through
// here, and it waits for nothing: whoever wants to know what became of the line
// asks withdraw.
func (s *session) sendJSON(o *outgoing) {
	s.writeMu.Lock()
	full := false
	if s.queueEnd == nil {
		s.queue = append(s.queue, o)
		s.unclaimed.add(o, +1)
		full = s.unclaimed.full()
	}
	s.writeMu.Unlock()
	if full {
		s.fail(fmt.Errorf("%w of %d lines or %d bytes that wait to be written: the server asks, but it does not read the answers",
			ErrTooLarge, maxBacklogLines, maxBacklogBytes))
	}
	s.wakeWriter()
}

func (s *session) wakeWriter() {
	select {
	case s.wakeup <- struct{}{}:
	default:
	}
}

// endQueue makes the writer stop after the line it is in.
func (s *session) endQueue(why error) {
	s.writeMu.Lock()
	s.queueEnd = why
	s.writeMu.Unlock()
	s.wakeWriter()
}

// withdraw takes a line back, and reports whether nothing of it was sent, or
// ever will be.
func (s *session) withdraw(o *outgoing) bool {
	s.writeMu.Lock()
	defer s.writeMu.Unlock()
	if o.state == lineQueued {
		s.dequeueLocked(o)
		o.state = lineWithdrawn
	}
	return o.state == lineWithdrawn
}

func (s *session) dequeueLocked(o *outgoing) {
	if i := slices.Index(s.queue, o); i >= 0 {
		s.queue = slices.Delete(s.queue, i, i+1)
		s.unclaimed.add(o, -1)
	}
}

// resetLine makes a line ready for another use, and reports false while the
// writer still holds it.
func (s *session) resetLine(o *outgoing) bool {
	s.writeMu.Lock()
	defer s.writeMu.Unlock()
	if o.state == lineBegun {
		o.released = true
		return false
	}
	// An answer to a line still in the queue was a guess of the server's.
	s.dequeueLocked(o)
	o.state = lineQueued
	return true
}

const (
	// sharedWrite bounds how much several lines may share one write: what a
	// pipe takes whole or not at all.
	sharedWrite = 4 << 10

	// writeChunk is how much of a long line is written at once: a server that
	// reads less than this in a whole period counts as stalled.
	writeChunk = 16 << 10
)

// writeLoop writes the queued lines in order. It alone touches the server's
// input, so that lines never mix and no lock is held while a pipe is full.
func (s *session) writeLoop(context.Context) {
	defer close(s.inputDone)
	var lines []*outgoing
	for {
		lines = s.nextLines(lines[:0])
		if len(lines) == 0 {
			return
		}
		n, err := s.writeLines(lines)
		s.markWritten(lines, n)
		if err != nil {
			s.endQueue(errInputClosed)
			s.fail(fmt.Errorf("%w: %w", errInputClosed, err))
			return
		}
	}
}

// nextLines waits for lines and begins them: several short ones together, or
// one long one. None means that the queue has ended.
func (s *session) nextLines(lines []*outgoing) []*outgoing {
	for {
		s.writeMu.Lock()
		ended := s.queueEnd != nil
		if !ended {
			lines = s.beginLinesLocked(lines)
		}
		s.writeMu.Unlock()
		if ended || len(lines) > 0 {
			return lines
		}
		<-s.wakeup
	}
}

func (s *session) beginLinesLocked(lines []*outgoing) []*outgoing {
	size := 0
	for _, o := range s.queue {
		size += len(o.line)
		if len(lines) > 0 && size > sharedWrite {
			break
		}
		o.state = lineBegun
		s.unclaimed.add(o, -1)
		lines = append(lines, o)
	}
	s.queue = slices.Delete(s.queue, 0, len(lines))
	return lines
}

// writeLines returns how many bytes went out.
func (s *session) writeLines(lines []*outgoing) (int, error) {
	s.stall.beginWrite()
	defer s.stall.endWrite()
	if len(lines) == 1 {
		return s.writeChunks(lines[0].line)
	}
	shared := make([]byte, 0, sharedWrite)
	for _, o := range lines {
		shared = append(shared, o.line...)
	}
	return s.writeChunks(shared)
}

func (s *session) writeChunks(b []byte) (written int, err error) {
	for chunk := range slices.Chunk(b, writeChunk) {
		n, err := s.peer.Write(chunk)
		written += n
		if err != nil {
			return written, err
		}
		s.stall.moved()
	}
	return written, nil
}

// markWritten gives the lines up; their callers may use them again. A write
// that failed after n bytes sent nothing of the lines behind those.
func (s *session) markWritten(lines []*outgoing, n int) {
	for i, o := range lines {
		sent := n > 0
		n -= len(o.line)
		lines[i] = nil
		if s.markOneWritten(o, sent) {
			s.keepIdle(o.call) // its answer was faster than our return from the write
		}
	}
}

// markOneWritten reports whether the line's call is over already.
func (s *session) markOneWritten(o *outgoing, sent bool) (released bool) {
	s.writeMu.Lock()
	defer s.writeMu.Unlock()
	o.state = lineWritten
	if !sent {
		o.state = lineWithdrawn
	}
	if o.released {
		o.released, o.state = false, lineQueued
		return true
	}
	return false
}
