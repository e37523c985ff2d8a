package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"yagent/mcp"
)

// inspect starts the servers of a file, waits for them, lists their tools and
// tries one of each. What one server fails at is shown, and is no failure of the
// run; a call that the user asked for is.
func (h *host) inspect(ctx context.Context, s settings) error {
	if err := h.start(ctx); err != nil {
		return err
	}
	h.screen.section("start log")
	h.screen.block(h.manager.StatusLines())
	h.screen.section("as servers settle")
	h.settle(ctx, s.wait)
	if ctx.Err() != nil {
		return context.Cause(ctx) // the user has had enough
	}
	h.section("/mcp panel")
	h.screen.block(h.panel())
	h.showToolbox()
	h.section("calls")
	return errors.Join(h.tryAll(ctx, s.calls), context.Cause(ctx))
}

// settle waits until each server is connected or cannot be, within limit for
// all. Servers start side by side, so waiting for one after another takes no
// longer than the slowest.
func (h *host) settle(ctx context.Context, limit time.Duration) {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("not settled within %v", limit))
	defer cancel()
	for _, s := range h.servers {
		if s.Disabled {
			continue
		}
		err := h.manager.WaitForReady(ctx, s.Name)
		if err == nil {
			err = h.catchUp(ctx, s.Name)
		}
		h.showEvents()
		if err != nil {
			h.screen.block(excerpt(err.Error())) // the others go on
		}
	}
}

// catchUp shows events until they say what WaitForReady knows already: callbacks
// come from a goroutine of their own, a moment later.
func (h *host) catchUp(ctx context.Context, server string) error {
	for !h.seen[server].CountsTools() {
		select {
		case e := <-h.events:
			h.show(e)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
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
	return h.showCall(ctx, name, call.args, call.approved)
}
