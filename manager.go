package mcp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"yagent/mcp/supervise"
)

const (
	defaultReadyTimeout         = 15 * time.Minute
	defaultStartupTimeout       = 60 * time.Second
	defaultMaxReconnectAttempts = 5

	// closeTimeout bounds a Close whose context has no deadline.
	closeTimeout = 10 * time.Second

	// maxDetail bounds the detail text in ServerHealth.
	maxDetail = 2 << 10
)

// ServerConfig describes one server of a Manager. Names are expected to be
// unique, which the host's configuration check sees to; it is not checked here.
// Of two servers with one name the later replaces the earlier before any spawn.
type ServerConfig struct {
	Name     string   // how the host and the status text call it
	Command  string   // looked up in the host's PATH, not in Env's, unless it has a separator; no shell
	Args     []string // passed as they are
	Env      []string // the complete environment, "KEY=value"; nil inherits the host's
	Dir      string   // working directory; empty is the host's. A relative Command with a separator is relative to it
	Disabled bool     // known to Health and to nothing else

	// RequestTimeout is that of ClientConfig. 0 or less: ManagerOptions.RequestTimeout.
	RequestTimeout time.Duration

	// MaxInFlight bounds the tool calls that are waited for at once; further
	// callers wait in order, within their contexts. 0 or less: no bound.
	MaxInFlight int

	// Protocol pins the server's era of the protocol; 0 finds it out.
	Protocol Protocol

	// Curated names tools for which the host has bridges of its own. They are
	// counted apart and never filtered.
	Curated []string
}

// ManagerOptions are the settings of a Manager. The zero value is good.
type ManagerOptions struct {
	// ReadyTimeout is how long discovery waits for a handshake before it says
	// so; the server stays starting and its process is left alone. 0 or less: 15 min.
	ReadyTimeout time.Duration

	// ProbeTimeout is how long a server whose era is to be found out may take
	// over server/discover before it gets initialize as well. 0 or less: 5 s.
	ProbeTimeout time.Duration

	// StartupTimeout bounds one whole tools/list, all pages. 0 or less: 60 s.
	StartupTimeout time.Duration

	// RequestTimeout is the default of ServerConfig.RequestTimeout. 0 or less:
	// that of ClientConfig.
	RequestTimeout time.Duration

	// ReconnectBackoff returns the pause before a reconnect, or before a failed
	// listing is repeated; 0 or less is none. Attempts count from 1. It is
	// called for several servers at once. Nil: 500 ms, doubled with each
	// attempt up to 60 s, ±20 %.
	ReconnectBackoff func(attempt int) time.Duration

	// MaxReconnectAttempts is how many reconnects in a row are tried before a
	// server is given up, and how often a failed listing is repeated before
	// only list_changed or Reconnect causes another. 0 or less: 5.
	MaxReconnectAttempts int

	// StatusMaxLines is the limit that StatusLines renders with. 0 or less: none.
	StatusMaxLines int

	// OnToolsChanged is called when a server's set of tools differs from the
	// last one. OnStateChange is called for each change of state; the first is
	// from offline to starting, and a new reason for the same state, such as
	// giving up, is none. Calls come one at a time for each server, in order,
	// soon after the change, from a goroutine of their own and under no lock; a
	// slow or panicking one delays only the next of the same server, while
	// those of other servers go on beside it. They may
	// call the Manager, except Close and ForceClose, which would wait for
	// themselves until they run out of time. A host that needs the present does
	// not collect changes: it asks Tools and StatusLines.
	OnToolsChanged func(ToolsChange)
	OnStateChange  func(StateChange)

	// Logger gets what happens; nil discards it. It is called on the goroutines
	// that serve the servers, so its handler must be quick and must not call
	// the Manager. Environment values are never logged.
	Logger *slog.Logger

	// ClientInfo, MaxMessageBytes and ShutdownGrace are those of ClientConfig,
	// for all servers.
	ClientInfo      Implementation
	MaxMessageBytes int
	ShutdownGrace   time.Duration
}

func (o ManagerOptions) withDefaults() ManagerOptions {
	o.ReadyTimeout = orDefault(o.ReadyTimeout, defaultReadyTimeout)
	o.StartupTimeout = orDefault(o.StartupTimeout, defaultStartupTimeout)
	o.MaxReconnectAttempts = orDefault(o.MaxReconnectAttempts, defaultMaxReconnectAttempts)
	if o.ReconnectBackoff == nil {
		o.ReconnectBackoff = defaultBackoff
	}
	return o
}

func orDefault[T cmp.Ordered](value, otherwise T) T {
	var zero T
	if value <= zero {
		return otherwise
	}
	return value
}

// ServerTool is a tool and the server it belongs to.
type ServerTool struct {
	Server string
	DiscoveredTool
}

// ToolsChange says how a server's set of tools differs from the last one. A
// change of anything that a tool carries counts, a change of order does not.
type ToolsChange struct {
	Server                  string
	Added, Removed, Changed []string // names, sorted
}

// StateChange says that a server went from one state to another.
type StateChange struct {
	Server   string
	From, To ServerState
	Reason   Reason
}

// Manager runs a host's servers: it starts them, discovers their tools, keeps
// them alive and says how they are. Its methods may be called from any
// goroutine at any time, and none but WaitForReady, Call, Close and ForceClose
// waits for a server.
type Manager struct {
	// Set once by NewManager.
	opts    ManagerOptions
	log     *slog.Logger
	servers []*server          // in configured order
	byName  map[string]*server // the same

	closed  atomic.Bool // set under mu
	closing atomic.Bool // Close was called

	mu sync.Mutex // guards the fields below, and those of each server that say so

	grp   *supervise.Group // from Start on; owns everything that runs
	start startFunc        // the spawner's from Start on; tests set theirs before
}

// server is one configured server and what is known of it.
type server struct {
	// Set once by NewManager.
	manager *Manager
	cfg     ServerConfig
	client  *MCPClient // nil when disabled
	curated map[string]bool

	// now is what Health, Tools and Call read. It is replaced as a whole,
	// under Manager.mu, and never changed.
	now atomic.Pointer[standing]

	// Guarded by Manager.mu.
	attempts int        // reconnects since the last proven session
	life     *life      // the current one, or the last; nil before Start
	stopped  bool       // shut down before Start
	events   eventQueue // callbacks not yet made
}

// standing is a server's published condition.
type standing struct {
	health ServerHealth
	cause  error            // why it is offline or degraded; nil when it is neither
	tools  []DiscoveredTool // the last good list, kept through an outage
}

// life is a server's time between a start and a stop. Its group owns the
// sessions and the goroutines that discover, reconnect and refresh; draining it
// interrupts and joins them all.
type life struct {
	// Set once.
	server  *server
	manager *Manager
	grp     *supervise.Group

	// Guarded by Manager.mu.
	over         bool // stopped, replaced or closed: it changes nothing any more
	reconnecting bool // a reconnect loop runs, and sees to the end of the session
	connection        // the current session's, blank before the first
}

// connection is what is known of a life's current session.
type connection struct {
	sess    *session
	lost    bool // its end was dealt with
	settled bool // it was listed, well or not
	dropped int  // tools of its list that cannot be used
	refresh refreshState

	// listChangedPending remembers a list_changed that came before the
	// connection was settled. markConnected makes it good.
	listChangedPending bool
}

// errNotStarted is why nothing works before Start.
var errNotStarted = errors.New("the Manager was not started")

// NewManager returns a Manager for these servers. Nothing runs before Start.
func NewManager(servers []ServerConfig, opts ManagerOptions) *Manager {
	m := &Manager{opts: opts.withDefaults(), log: guardedLogger(opts.Logger), byName: make(map[string]*server)}
	for _, cfg := range servers {
		m.add(cfg)
	}
	return m
}

// add makes a server known. A name that is there already is replaced.
func (m *Manager) add(cfg ServerConfig) {
	s := &server{manager: m, cfg: cfg, curated: make(map[string]bool)}
	for _, name := range cfg.Curated {
		s.curated[name] = true
	}
	health := ServerHealth{Name: cfg.Name, State: StateDisabled}
	if !cfg.Disabled {
		health.State, health.Reason = StateOffline, ReasonStopped
		s.client = NewMCPClient(m.clientConfig(cfg))
		s.client.stop = s.stop
		s.client.fault = nil // Start will come
	}
	s.now.Store(&standing{health: health, cause: errNotStarted})
	if old := m.byName[cfg.Name]; old != nil {
		m.servers[slices.Index(m.servers, old)] = s
	} else {
		m.servers = append(m.servers, s)
	}
	m.byName[cfg.Name] = s
}

func (m *Manager) clientConfig(cfg ServerConfig) ClientConfig {
	timeout := cfg.RequestTimeout
	if timeout <= 0 {
		timeout = m.opts.RequestTimeout
	}
	return ClientConfig{
		Name: cfg.Name, Command: cfg.Command, Args: cfg.Args, Env: cfg.Env, Dir: cfg.Dir,
		RequestTimeout: timeout, MaxInFlight: cfg.MaxInFlight,
		MaxMessageBytes: m.opts.MaxMessageBytes, ShutdownGrace: m.opts.ShutdownGrace,
		Protocol: cfg.Protocol, ProbeTimeout: m.opts.ProbeTimeout,
		ClientInfo: m.opts.ClientInfo, Logger: m.log,
	}
}

// Start starts the enabled servers' processes, one after another, and returns;
// handshakes and lists go on in the background, all at once. A server that
// cannot be started is offline with its reason, and no error of Start. The only
// errors are [ErrStarted] and [ErrClosed].
//
// ctx bounds the starting alone: if it ends early, the rest is started in the
// background all the same, as by a reconnect. Processes do not live by it. If it carries a
// supervise.Group, the Manager's goroutines count there, and draining that
// group closes the Manager: its servers then have their graces.
func (m *Manager) Start(ctx context.Context) error {
	if err := m.open(ctx); err != nil {
		if errors.Is(err, ErrClosed) {
			m.markClosed() // it can never start, so nobody may wait for it
		}
		return fmt.Errorf("mcp: start the Manager: %w", err)
	}
	var lives []*life
	for _, s := range m.enabled() {
		lives = append(lives, m.begin(s))
	}
	for _, l := range lives {
		m.startServer(ctx, l)
	}
	return nil
}

// open makes the Manager's group and the goroutines that live as long as it.
func (m *Manager) open(ctx context.Context) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case m.closed.Load():
		return ErrClosed
	case m.grp != nil:
		return ErrStarted
	}
	m.grp = supervise.From(ctx).Sub("mcp", m.reportPanic)
	if err := m.grp.Go("mcp/manager", m.closeWithHost); err != nil {
		return fmt.Errorf("%w: %w", ErrClosed, err)
	}
	if m.start == nil {
		spawner, err := newSpawner(m.grp)
		if err != nil {
			return fmt.Errorf("%w: %w", ErrClosed, err)
		}
		m.start = spawner.startPeer
	}
	return nil
}

// begin gives a server its first life and its first state. A server that the
// host shut down already stays down until Reconnect.
func (m *Manager) begin(s *server) *life {
	l := m.newLife(s)
	m.update(s, func() {
		s.life = l
		l.over = m.closed.Load() || s.stopped
		if !l.over {
			m.changeLocked(s, StateStarting, ReasonHandshake, nil)
		}
	})
	return l
}

func (m *Manager) newLife(s *server) *life {
	l := &life{server: s, manager: m}
	l.grp = m.grp.Sub("mcp/server-"+s.cfg.Name, l.panicked)
	return l
}

// panicked ends what one of the life's goroutines served: the connection, or
// else the round in which there was none yet.
func (l *life) panicked(p *supervise.PanicError) {
	m := l.manager
	m.reportPanic(p)
	m.mu.Lock()
	sess, connected := l.sess, l.sess != nil && !l.lost && !isClosed(l.sess.lost)
	l.reconnecting = false
	m.mu.Unlock()
	if connected {
		sess.fail(p)
		return
	}
	m.wentDown(l, ReasonStartFailed, p, func() bool { return true })
}

// startServer spawns a server for the first time, within ctx, and waits for no
// more than that. The life's own goroutine does it: who ends the life ends and
// joins a spawn under way, too.
func (m *Manager) startServer(ctx context.Context, l *life) {
	if ctx.Err() != nil {
		m.startFailed(l, context.Cause(ctx))
		return
	}
	spawning, cancel := context.WithCancelCause(l.grp.Context())
	defer cancel(nil)
	spawned := make(chan struct{})
	err := l.grp.Go("mcp/discover-"+l.server.cfg.Name, func(ctx context.Context) {
		if sess := m.firstConnect(spawning, l, spawned); sess != nil {
			m.discover(ctx, l, sess)
		}
	})
	if err != nil {
		return // stopped meanwhile
	}
	select {
	case <-spawned:
	case <-ctx.Done():
		cancel(context.Cause(ctx))
		<-spawned
	}
}

// firstConnect returns nil if there is nothing to discover, and closes spawned
// as soon as that is known.
func (m *Manager) firstConnect(ctx context.Context, l *life, spawned chan<- struct{}) *session {
	defer close(spawned)
	if m.isOver(l) {
		return nil
	}
	sess, err := l.server.client.connect(ctx, l.grp, m.start, l)
	if err != nil {
		m.startFailed(l, err)
		return nil
	}
	return sess
}

// discover follows a first start in the background, from the handshake to the
// list. However long the handshake takes, its answer still leads to a list.
func (m *Manager) discover(ctx context.Context, l *life, sess *session) {
	if sess, how := m.awaitDiscovery(ctx, l, sess); how == discoverySlow {
		m.discoverLate(ctx, l, sess)
	}
}

// discoverLate is for a handshake that outlasted ReadyTimeout.
func (m *Manager) discoverLate(ctx context.Context, l *life, sess *session) {
	for ; sess != nil; sess = m.renew(ctx, l, sess) {
		if awaitHandshake(ctx, sess, 0) == handshakeDone {
			m.firstList(ctx, l, sess)
			return
		}
	}
}

// renew starts a server once more whose first process of this attempt did not
// take being probed for its era. It returns nil if that is not so, or failed.
func (m *Manager) renew(ctx context.Context, l *life, sess *session) *session {
	if ctx.Err() != nil || !sess.isRenewable() {
		return nil
	}
	again, err := l.server.client.renew(ctx, l.grp, m.start, sess)
	if err != nil {
		m.startFailed(l, err)
		return nil
	}
	return again
}

// closeWithHost closes the Manager when the host drains the group it lives in.
func (m *Manager) closeWithHost(ctx context.Context) {
	<-ctx.Done()
	m.markClosed()
	// No goroutine may start any more, so the last callbacks run here: deferred,
	// since one may call runtime.Goexit and must not take the others with it.
	for _, s := range slices.Backward(m.servers) {
		defer m.deliverLast(s)
	}
}

func (m *Manager) reportPanic(p *supervise.PanicError) {
	m.log.Error("a goroutine panicked", "goroutine", p.Name, "panic", p.Value, "stack", string(p.Stack))
}

// enabled returns the servers that take part, in configured order.
func (m *Manager) enabled() []*server {
	var enabled []*server
	for _, s := range m.servers {
		if s.client != nil {
			enabled = append(enabled, s)
		}
	}
	return enabled
}

func (m *Manager) isOver(l *life) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return l.over
}

// Client returns a server's handle, nil for an unknown or disabled one. It is
// good for the Manager's whole life, from NewManager on, whatever becomes of
// the process.
func (m *Manager) Client(name string) *MCPClient {
	if s := m.byName[name]; s != nil {
		return s.client
	}
	return nil
}

// Call calls a tool of a server; see [MCPClient.CallTool] for arguments and
// outcomes. It follows the server's state: while starting it is
// [ErrIndexBuilding] until the handshake is done; an offline server gets an
// error that says why, whatever a new process is doing meanwhile; a degraded
// one is called. It takes no lock of the Manager's.
func (m *Manager) Call(ctx context.Context, server, tool string, args any) (*CallToolResult, error) {
	s := m.byName[server]
	if s == nil {
		return nil, m.unknown(server, opCall(tool), notSent(ErrUnknownServer))
	}
	if err := s.callable(); err != nil {
		return nil, s.refusal(tool, err)
	}
	result, err := s.client.CallTool(ctx, tool, args)
	if err != nil {
		s.noteDeath()
	}
	return result, err
}

// callable returns why a call cannot be sent now.
func (s *server) callable() error {
	if s.client == nil {
		return ErrDisabled
	}
	now := s.now.Load()
	switch {
	case s.manager.closed.Load():
		return ErrClosed
	case now.health.State == StateOffline && now.cause != nil:
		return fmt.Errorf("%w (%s): %w", ErrOffline, lineDetail(now.health), now.cause)
	case now.health.State == StateOffline:
		return fmt.Errorf("%w (%s)", ErrOffline, lineDetail(now.health))
	case now.health.State == StateStarting && s.client.current.Load() == nil:
		return &indexBuildingError{s.cfg.Name} // its turn to be spawned will come
	}
	return nil
}

// noteDeath turns a connected server offline when its connection has ended and
// the event itself is still on its way.
func (s *server) noteDeath() {
	if s.client == nil || s.client.IsAlive() || !s.now.Load().health.State.CountsTools() {
		return
	}
	// The session's own channels tell its end apart from that of an earlier one.
	if sess := s.client.current.Load(); sess != nil && (isClosed(sess.closing) || isClosed(sess.outputDone) || isClosed(sess.inputDone)) {
		sess.owner.connectionLost(sess, errExited)
	}
}

// refusal is the error of a call that was not sent because of the server's state.
func (s *server) refusal(tool string, err error) error {
	if errors.Is(err, ErrIndexBuilding) {
		return err
	}
	return &ServerError{Server: s.cfg.Name, Op: opCall(tool), Err: notSent(err), Advice: s.advice()}
}

// advice says what a caller can do about a server that takes no calls.
func (s *server) advice() string {
	health := s.now.Load().health
	switch {
	case s.client == nil:
		return "Enable it in the configuration to use it"
	case s.manager.closed.Load():
		return "The host is shutting its servers down"
	case errors.Is(s.now.Load().cause, errNotStarted):
		return "The host has not started its servers yet"
	case health.Reason.Permanent():
		return "It does not come back by itself: work without it, and tell the user, who can mend the cause and reconnect it"
	}
	return "It is being reconnected: try again later, or work without it"
}

// unknown is the error for a name that is not configured; it lists those that are.
func (m *Manager) unknown(name, op string, err error) error {
	const most = 20
	var known []string
	for _, s := range m.enabled() {
		known = append(known, cleanText(s.cfg.Name, maxNameBytes))
	}
	if len(known) > most {
		known = append(known[:most], "…")
	}
	advice := "No server is enabled"
	if len(known) > 0 {
		advice = "The servers are: " + strings.Join(known, ", ")
	}
	return &ServerError{Server: name, Op: op, Err: err, Advice: advice}
}

// Tools returns all servers' tools: servers in configured order, tools sorted
// by name. A server that is offline keeps the last list it had, so that what a
// host shows does not flicker; calls to it fail meanwhile.
func (m *Manager) Tools() []ServerTool {
	var tools []ServerTool
	for _, s := range m.servers {
		for _, tool := range s.now.Load().tools {
			tools = append(tools, ServerTool{Server: s.cfg.Name, DiscoveredTool: tool})
		}
	}
	return tools
}

// Health returns a snapshot of all servers, disabled ones too, in configured
// order. It looks at each server's IsAlive in passing, so that a death is never
// reported as health.
func (m *Manager) Health() []ServerHealth {
	all := make([]ServerHealth, len(m.servers))
	for i, s := range m.servers {
		s.noteDeath()
		all[i] = s.now.Load().health
	}
	return all
}

// StatusLines is the text that start log, panel and prompt share:
// RenderStatusLines of Health with StatusMaxLines.
func (m *Manager) StatusLines() string { return RenderStatusLines(m.Health(), m.opts.StatusMaxLines) }

// WaitForReady waits until a server is ready or degraded, bounded by ctx alone,
// or ends at once with the reason when it cannot become so: unknown, disabled,
// given up, a permanent fault, stopped, closed.
func (m *Manager) WaitForReady(ctx context.Context, name string) error {
	s := m.byName[name]
	switch {
	case s == nil:
		return m.unknown(name, "wait for ready", ErrUnknownServer)
	case s.client == nil:
		return &ServerError{Server: name, Op: "wait for ready", Err: ErrDisabled}
	}
	for {
		_, news, fault := s.client.readiness()
		if s.now.Load().health.State.CountsTools() {
			return nil
		}
		if fault != nil {
			return s.client.failed("wait for ready", fmt.Errorf("%w: %w", ErrNotReady, fault))
		}
		select {
		case <-news:
		case <-ctx.Done():
			return s.client.failed("wait for ready", fmt.Errorf("%w (%s): %w%s", ErrNotReady,
				lineDetail(s.now.Load().health), endOf(ctx), s.client.hint()))
		}
	}
}

// Close ends all servers, each as [MCPClient.Shutdown] does, all at once, and
// joins everything the Manager runs, within ctx; a context without a deadline
// gets 10 s, so give it one if ShutdownGrace is over 4 s. At the end of ctx, or when Close is called a second time, the
// processes are killed and joined still, which takes 2 s at most. It returns nil when nothing is left,
// otherwise a *supervise.DrainError that names what is: a callback of the
// host's, most likely. Calls in flight get [ErrClosed]. It may be called before
// Start, which then fails.
func (m *Manager) Close(ctx context.Context) error {
	m.markClosed()
	if _, bounded := ctx.Deadline(); !bounded {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, closeTimeout)
		defer cancel()
	}
	if m.closing.Swap(true) {
		m.kill() // asked a second time
	}
	return m.drain(ctx)
}

// ForceClose is Close without the graces: it takes 2 s at most, whatever the end
// of ctx.
func (m *Manager) ForceClose(ctx context.Context) error {
	m.markClosed()
	return m.drain(expired(ctx))
}

// markClosed turns every server offline, for good.
func (m *Manager) markClosed() {
	m.mu.Lock()
	first := m.closed.CompareAndSwap(false, true)
	for _, s := range m.enabled() {
		if first {
			if s.life != nil {
				s.life.over = true
			}
			m.changeLocked(s, StateOffline, ReasonStopped, ErrClosed)
		}
	}
	m.mu.Unlock()
	for _, s := range m.enabled() {
		s.client.setFault(ErrClosed)
		m.dispatch(s)
	}
}

// drain joins everything the Manager runs. Both ways of closing end here.
func (m *Manager) drain(ctx context.Context) error {
	m.mu.Lock()
	grp := m.grp
	m.mu.Unlock()
	if grp == nil {
		return nil
	}
	return drainDomain(ctx, grp, m.kill)
}

// kill sends every server's process straight to SIGKILL.
func (m *Manager) kill() {
	for _, s := range m.enabled() {
		s.client.kill()
	}
}
