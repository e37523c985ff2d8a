package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"yagent/mcp"
)

// errNoneReady is the error of a run in which no server could be used.
var errNoneReady = errors.New("no server became ready or degraded")

// inspect starts the servers of a file, waits for them, lists their tools and
// tries one of each. What one server fails at is shown, and is no failure of the
// run; that all of them fail is, and so is a call that the user asked for.
func (h *host) inspect(ctx context.Context, s settings) error {
	if err := h.start(ctx); err != nil {
		return err
	}
	h.screen.section("start log")
	h.screen.block(h.manager.StatusLines())
	h.screen.section("as servers settle")
	failed := h.settle(ctx, s.wait)
	if ctx.Err() != nil {
		return context.Cause(ctx) // the user has had enough
	}
	h.section("/mcp panel")
	h.screen.block(h.panel())
	h.section("system prompt")
	h.screen.block(h.systemPrompt())
	h.showToolbox()
	h.section("calls")
	return errors.Join(failed, h.tryAll(ctx, s.calls))
}

// settle waits until each server is connected or cannot be, within limit for
// all. Servers start side by side, so waiting for one after another takes no
// longer than the slowest. It is an error if none is connected then.
func (h *host) settle(ctx context.Context, limit time.Duration) error {
	names := enabled(h.servers)
	h.screen.printf("waiting for: %s (up to %v)", strings.Join(names, ", "), limit)
	waiting, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("not settled within %v", limit))
	defer cancel()
	failed := errNoneReady
	for _, name := range names {
		err := h.manager.WaitForReady(waiting, name)
		if ctx.Err() != nil {
			return context.Cause(ctx) // said once, and not for each server
		}
		if err == nil {
			failed = nil
			h.catchUp(ctx, name)
		}
		h.showEvents()
		if err != nil {
			h.screen.block(excerpt(err.Error())) // the others go on
		}
	}
	return failed
}

// enabled returns the names of the servers that are started.
func enabled(servers []mcp.ServerConfig) []string {
	var names []string
	for _, s := range servers {
		if !s.Disabled {
			names = append(names, s.Name)
		}
	}
	return names
}

// catchUpTime bounds the wait for events, which are for the reader alone.
const catchUpTime = time.Second

// catchUp shows events until they have told what Health knows already: callbacks
// come from a goroutine of their own, a moment later. Nothing depends on them:
// they may have been dropped, so the wait is short.
func (h *host) catchUp(ctx context.Context, server string) {
	ctx, cancel := context.WithTimeout(ctx, catchUpTime)
	defer cancel()
	for h.seen[server] != h.state(server) {
		select {
		case e := <-h.events:
			h.show(e)
		case <-ctx.Done():
			return
		}
	}
}

// showToolbox shows what the model is offered, and how each tool was judged.
func (h *host) showToolbox() {
	h.section("tools for the model")
	for _, t := range h.toolbox() {
		h.screen.printf("%s (%s)", t.name, t.effect)
	}
}

// tryAll makes the calls that the user asked for, and one of the host's choice
// for each other server with tools.
func (h *host) tryAll(ctx context.Context, asked []plannedCall) error {
	var failed error
	for _, call := range asked {
		if err := h.try(ctx, call); err != nil {
			failed = errors.Join(failed, fmt.Errorf("-call %s:%s failed", call.server, call.tool))
		}
	}
	found := h.manager.Tools()
	for _, s := range h.servers {
		if ctx.Err() != nil {
			break
		}
		mine := func(call plannedCall) bool { return call.server == s.Name }
		if !slices.ContainsFunc(asked, mine) && slices.ContainsFunc(found, func(t mcp.ServerTool) bool { return t.Server == s.Name }) {
			h.tryOne(ctx, s.Name, found)
		}
	}
	return failed
}

// tryOne tries one server with a tool of the host's choice.
func (h *host) tryOne(ctx context.Context, server string, found []mcp.ServerTool) {
	call, ok := chooseCall(server, found)
	if !ok {
		h.screen.printf("%s has no tool that says it only reads; choose one with -call", server)
		return
	}
	h.try(ctx, call) // a failure was shown
}

// try makes one call the way a model would: by the name in the toolbox, which
// for a curated tool is its bridge's.
func (h *host) try(ctx context.Context, call plannedCall) error {
	name := modelName(call.server, call.tool)
	if slices.Contains(curated[call.server], call.tool) {
		name = call.tool
	}
	if _, err := h.toolbox().find(name); err != nil && h.state(call.server) != mcp.StateReady {
		// Its server listed nothing. The library knows why, and says so.
		h.screen.printf("> %s %s", name, compact(call.args))
		return h.showAnswer(answer(h.manager.Call(ctx, call.server, call.tool, call.args)))
	}
	return h.showCall(ctx, name, call.args, call.approved)
}
