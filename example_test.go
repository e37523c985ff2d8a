package mcp_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"

	"yagent/mcp"
)

// A host starts its servers, goes on with its own start, and calls tools when a
// model asks for them.
func Example() {
	ctx := context.Background()
	servers := []mcp.ServerConfig{
		{Name: "files", Command: "mcp-server-files", Args: []string{"/srv/data"}},
		{Name: "search", Command: "mcp-server-search", Disabled: true},
	}
	m := mcp.NewManager(servers, mcp.ManagerOptions{
		OnToolsChanged: func(c mcp.ToolsChange) { log.Printf("tools of %s: +%v -%v", c.Server, c.Added, c.Removed) },
	})
	if err := m.Start(ctx); err != nil {
		log.Fatal(err)
	}
	defer m.Close(ctx)
	log.Print(m.StatusLines()) // the start log; servers are still starting

	result, err := m.Call(ctx, "files", "read_file", json.RawMessage(`{"path":"notes.txt"}`))
	switch {
	case errors.Is(err, mcp.ErrNotSent):
		log.Print("nothing happened, it may be tried again: ", err)
	case err != nil:
		log.Print("tell the model: ", err)
	case result.IsError:
		log.Print("the tool failed: ", result.Text())
	default:
		log.Print(result.Text())
	}
}

// The status text has a line for each enabled server.
func ExampleRenderStatusLines() {
	health := []mcp.ServerHealth{
		{Name: "codeseek", State: mcp.StateReady, Tools: 12, Curated: 3},
		{Name: "files", State: mcp.StateReady, Tools: 1},
		{Name: "docs", State: mcp.StateStarting, Reason: mcp.ReasonHandshake},
		{Name: "old", State: mcp.StateDisabled},
		{Name: "db", State: mcp.StateOffline, Reason: mcp.ReasonCommandNotFound},
	}
	fmt.Println(mcp.RenderStatusLines(health, 3))
	// Output:
	// codeseek: ready — 12 tools (3 curated, 9 external)
	// files: ready — 1 tool
	// docs: starting — waiting for the handshake
	// +1 more servers
}

// States travel as strings; an unknown one is offline, which promises nothing.
func ExampleServerStateFromString() {
	fmt.Println(mcp.ServerStateFromString("degraded"), mcp.ServerStateFromString("splendid"))
	// Output: degraded offline
}

// A server whose command does not exist is offline with its reason, and no
// error of Start.
func ExampleManager_WaitForReady() {
	ctx := context.Background()
	m := mcp.NewManager([]mcp.ServerConfig{{Name: "db", Command: "no-such-command-here"}}, mcp.ManagerOptions{})
	if err := m.Start(ctx); err != nil {
		log.Fatal(err)
	}
	defer m.Close(ctx)
	fmt.Println(errors.Is(m.WaitForReady(ctx, "db"), mcp.ErrNotReady))
	fmt.Println(m.StatusLines())
	// Output:
	// true
	// db: offline — command not found
}
