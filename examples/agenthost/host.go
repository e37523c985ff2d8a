package main

import (
	"context"
	"errors"
	"fmt"
	"os/signal"
	"strings"
	"time"

	"yagent/mcp"
)

// statusMaxLines is the one limit of the status text. It is given to the
// Manager and used nowhere else: what StatusLines returns is shown whole.
const statusMaxLines = 20

// host is a running agent host. All of its methods are called by the main
// goroutine; only notify is called by the Manager's callbacks.
type host struct {
	// Set once by newHost.
	screen  *screen
	servers []mcp.ServerConfig
	manager *mcp.Manager
	events  chan event // from the callbacks to the main goroutine

	// Used by the main goroutine alone.
	static []tool                     // the host's own tools; set by start
	seen   map[string]mcp.ServerState // each server's state as far as events were shown
}

// newHost makes a host for servers. Nothing runs before start. The callbacks are
// set here, before there is anything to call them.
func newHost(screen *screen, servers []mcp.ServerConfig, opts mcp.ManagerOptions) *host {
	h := &host{screen: screen, servers: servers,
		events: make(chan event, 256), seen: make(map[string]mcp.ServerState)}
	opts.StatusMaxLines = statusMaxLines
	opts.ClientInfo = mcp.Implementation{Name: "agenthost", Title: "Example agent host", Version: "1.0.0"}
	opts.OnStateChange = h.stateChanged
	opts.OnToolsChanged = h.toolsChanged
	h.manager = mcp.NewManager(servers, opts)
	return h
}

// start starts the servers and assembles what the host is made of. It waits for
// no server: the bridges hold clients that become usable later.
func (h *host) start(ctx context.Context) error {
	if err := h.manager.Start(ctx); err != nil {
		return err // a server that cannot start is no error, but offline
	}
	h.static = newBridges(h.manager.Client)
	return checkCurated(h.servers, h.static)
}

// finish closes the host and adds what that fails at to the error of the run. If
// a signal ended the run, what it was waiting for is of no interest.
func (h *host) finish(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		err = errInterrupted
	}
	return errors.Join(err, h.close())
}

// state is a server's state of this moment; an unknown one is offline.
func (h *host) state(server string) mcp.ServerState {
	for _, health := range h.manager.Health() {
		if health.Name == server {
			return health.State
		}
	}
	return mcp.StateOffline
}

// close ends the servers. A second signal while it waits for them cuts the
// graces short: Close goes straight to force at the end of its context.
func (h *host) close() error {
	// The context of the run may be over already, which must not turn a close in
	// good order into a kill.
	ctx, stop := signal.NotifyContext(context.Background(), endSignals...)
	defer stop()
	h.section("shutdown")
	began := time.Now()
	err := h.manager.Close(ctx)
	h.showEvents() // all of them: Close has joined the callbacks
	h.screen.block(h.manager.StatusLines())
	if err != nil {
		return fmt.Errorf("close the servers: %w", err)
	}
	h.screen.printf("closed in %.2fs: every process has ended, every goroutine is joined", time.Since(began).Seconds())
	return nil
}

// event is one callback's news.
type event struct {
	at     time.Duration // since the start of the program
	server string
	state  mcp.ServerState // entered, unless tools is set
	tools  bool            // the set of tools differs
	text   string          // for people
}

// stateChanged is called by the Manager, one change of a server after another.
// It only passes on what a person sees; nothing here decides by the state, since
// the Manager itself refuses what cannot be called.
func (h *host) stateChanged(c mcp.StateChange) {
	text := fmt.Sprintf("%s → %s", c.From, c.To)
	if c.Reason != "" {
		text += fmt.Sprintf(" (%s)", c.Reason)
	}
	h.notify(event{server: c.Server, state: c.To, text: text})
}

// toolsChanged is where a host with a prompt cache would drop it. This one
// builds its prompt and its toolbox afresh for each turn.
func (h *host) toolsChanged(c mcp.ToolsChange) {
	var parts []string
	// At least one of the three is not empty, or there would be no call.
	count := func(what string, names []string) {
		if len(names) > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", len(names), what))
		}
	}
	count("added", c.Added)
	count("removed", c.Removed)
	count("changed", c.Changed)
	h.notify(event{server: c.Server, tools: true, text: "tools: " + strings.Join(parts, ", ")})
}

// notify hands an event to the main goroutine, which alone writes to the
// screen. A callback should not block, so events that nobody takes are dropped.
func (h *host) notify(e event) {
	e.at = h.screen.elapsed()
	select {
	case h.events <- e:
	default:
	}
}

// show shows an event.
func (h *host) show(e event) {
	if !e.tools {
		h.seen[e.server] = e.state
	}
	h.screen.printf("[%.2fs] %s: %s", e.at.Seconds(), printable(e.server), e.text)
}

// showEvents shows what has come in.
func (h *host) showEvents() {
	for {
		select {
		case e := <-h.events:
			h.show(e)
		default:
			return
		}
	}
}

// section begins a new section, after what belongs to the last one.
func (h *host) section(title string) {
	h.showEvents()
	h.screen.section(title)
}

// expectation is an event that await waits for.
type expectation struct {
	what  string
	match func(event) bool
}

// reached expects a server to enter a state.
func reached(server string, state mcp.ServerState) expectation {
	return expectation{
		what:  fmt.Sprintf("%s to be %s", server, state),
		match: func(e event) bool { return e.server == server && !e.tools && e.state == state },
	}
}

// listed expects a server's set of tools to change.
func listed(server string) expectation {
	return expectation{
		what:  fmt.Sprintf("the tools of %s", server),
		match: func(e event) bool { return e.server == server && e.tools },
	}
}

// await shows events as they come until each expectation was met once. It is for
// the demo, whose few events are never dropped. A host that must know a state
// asks Health or WaitForReady.
func (h *host) await(ctx context.Context, missing ...expectation) error {
	for len(missing) > 0 {
		select {
		case e := <-h.events:
			h.show(e)
			missing = withoutMatch(missing, e)
		case <-ctx.Done():
			return fmt.Errorf("waiting for %s: %w", describe(missing), context.Cause(ctx))
		}
	}
	return nil
}

// withoutMatch drops the first expectation that e meets.
func withoutMatch(missing []expectation, e event) []expectation {
	for i, m := range missing {
		if m.match(e) {
			return append(missing[:i:i], missing[i+1:]...)
		}
	}
	return missing
}

// describe names what did not come, for the error.
func describe(missing []expectation) string {
	var all []string
	for _, m := range missing {
		all = append(all, m.what)
	}
	return strings.Join(all, ", ")
}

// errNotApproved is what a model gets when a tool is not run.
var errNotApproved = errors.New("not run: the tool does not say that it only reads, and nobody approved the call. Ask the user first")

// call runs a tool of the toolbox as a model's turn would, and returns the text
// for the model. Whoever passes approved has asked the user.
func (h *host) call(ctx context.Context, name string, args any, approved bool) (string, error) {
	t, err := h.toolbox().find(name)
	if err != nil {
		return "", err
	}
	// Absent counts as writing: a server must say that a tool is harmless.
	if t.effect != reads && !approved {
		return "", errNotApproved
	}
	return t.call(ctx, args)
}

// showCall shows a call and what the model gets for it.
func (h *host) showCall(ctx context.Context, name string, args any, approved bool) error {
	h.screen.printf("> %s %s", name, compact(args))
	return h.showAnswer(h.call(ctx, name, args, approved))
}

// showAnswer shows what a call returned. Errors go to the model word for word:
// they are written for it.
func (h *host) showAnswer(answer string, err error) error {
	if err != nil {
		answer = err.Error()
	}
	h.screen.block(excerpt(answer))
	return err
}
