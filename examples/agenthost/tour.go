package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"yagent/mcp"
)

// tourTime bounds the demo, which takes about three seconds.
const tourTime = 8 * time.Second

// tour shows the life of the demo servers, one scene after another. It waits for
// events, never for time to pass, so on a slow machine it takes longer and goes
// the same way.
func (h *host) tour(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, tourTime, fmt.Errorf("the demo did not get through within %v", tourTime))
	defer cancel()
	h.section("demo servers")
	for _, s := range demoServers() {
		h.screen.printf("%-8s %s", s.name, s.about)
	}
	scenes := []func(context.Context) error{h.showStart, h.showSettling, h.showModelsView, h.showCalls, h.showCrash, h.showRecovery}
	for _, scene := range scenes {
		if err := scene(ctx); err != nil {
			return err
		}
	}
	return nil
}

// showStart shows that Start waits for no server. The text of the start log is
// the one that the panel and the prompt will show.
func (h *host) showStart(ctx context.Context) error {
	began := time.Now()
	if err := h.start(ctx); err != nil {
		return err
	}
	took := time.Since(began)
	h.screen.section("start log")
	h.screen.block(h.manager.StatusLines())
	h.screen.printf("started within %.2fs; no server was waited for", took.Seconds())
	return nil
}

// showSettling shows the panel while servers settle, and a call that comes too
// early: the model is told what to do instead, and a moment later the same bridge
// works.
func (h *host) showSettling(ctx context.Context) error {
	h.screen.section("as servers settle")
	err := h.await(ctx, listed("notes"), listed("calc"), reached("inbox", mcp.StateDegraded))
	if err != nil {
		return err
	}
	h.section("/mcp panel, while one server still starts")
	h.screen.block(h.panel())

	h.section("a call to the server that still starts")
	h.showCall(ctx, "find_symbol", object{"name": "main"}, false) // an error, and shown

	h.section("the last one settles")
	return h.await(ctx, listed("index"))
}

// showModelsView shows what a turn of the model is made of.
func (h *host) showModelsView(context.Context) error {
	h.section("system prompt")
	h.screen.block(h.systemPrompt())
	h.showToolbox()
	return nil
}

// showCalls shows one call of each kind: to a bridge, to a server's tool, and
// one that the host does not make without asking.
func (h *host) showCalls(ctx context.Context) error {
	h.section("tool calls")
	err := errors.Join(
		h.showCall(ctx, "find_symbol", object{"name": "main"}, false),
		h.showCall(ctx, "read_note", object{"title": "tea"}, false),
		h.showCall(ctx, modelName("notes", "search_notes"), object{"query": "leaves"}, false),
		h.showCall(ctx, modelName("calc", "divide"), object{"a": 6, "b": 3}, false),
	)
	refused := h.showCall(ctx, modelName("notes", "add_note"), object{"text": "buy tea"}, false)
	if !errors.Is(refused, errNotApproved) {
		err = errors.Join(err, fmt.Errorf("a writing tool was called without asking (%v)", refused))
	}
	return err
}

// showCrash ends a server in the middle of a call. The caller learns that the
// outcome is unknown, the next one that the server is away, and the status text
// says so too.
func (h *host) showCrash(ctx context.Context) error {
	before := h.manager.StatusLines()
	h.section("crash")
	err := h.showCall(ctx, modelName("calc", "divide"), object{"a": 1, "b": 0}, false)
	if !errors.Is(err, mcp.ErrOutcomeUnknown) {
		return fmt.Errorf("the server did not crash (%v)", err)
	}
	if err := h.await(ctx, reached("calc", mcp.StateOffline)); err != nil {
		return err
	}
	h.section("the status text in between")
	h.screen.block(changedLines(before, h.manager.StatusLines()))
	h.showCall(ctx, modelName("calc", "divide"), object{"a": 6, "b": 3}, false) // refused, and shown
	return nil
}

// showRecovery waits for the reconnect. The tools are the same, so nobody is
// told that they changed.
func (h *host) showRecovery(ctx context.Context) error {
	before := h.manager.StatusLines()
	h.section("recovery")
	if err := h.await(ctx, reached("calc", mcp.StateReady)); err != nil {
		return err
	}
	h.screen.block(changedLines(before, h.manager.StatusLines()))
	if err := h.showCall(ctx, modelName("calc", "divide"), object{"a": 6, "b": 3}, false); err != nil {
		return err
	}
	h.section("/mcp panel, after the recovery")
	h.screen.block(h.panel())
	return nil
}

// changedLines shows what differs between two status texts of the same servers,
// which have a line each, in the same order.
func changedLines(before, after string) string {
	old, changed := strings.Split(before, "\n"), []string{}
	for i, line := range strings.Split(after, "\n") {
		if i >= len(old) || line != old[i] {
			if i < len(old) {
				changed = append(changed, "- "+old[i])
			}
			changed = append(changed, "+ "+line)
		}
	}
	return strings.Join(changed, "\n")
}
