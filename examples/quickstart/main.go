// Quickstart runs one server and calls one of its tools: the README's example.
package main

import (
	"context"
	"log"
	"os"
	"os/signal"

	"yagent/mcp"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	m := mcp.NewManager([]mcp.ServerConfig{{
		Name: "files", Command: "npx", Args: []string{"-y", "@modelcontextprotocol/server-filesystem", "."},
		// Env is complete. Nil would inherit the host's, its secrets included.
		Env: []string{"PATH=" + os.Getenv("PATH"), "HOME=" + os.Getenv("HOME")},
	}}, mcp.ManagerOptions{
		OnToolsChanged: func(c mcp.ToolsChange) { log.Print("rebuild the prompt: tools of ", c.Server) },
	})
	// Spawns, and waits for nothing. The context bounds the starting alone.
	if err := m.Start(ctx); err != nil {
		log.Fatal(err)
	}
	defer m.Close(context.Background()) // not ctx: it may be over by then
	log.Print(m.StatusLines())          // files: starting — waiting for the handshake

	// A host waits only when it needs the answer now.
	if err := m.WaitForReady(ctx, "files"); err != nil {
		log.Print(err)
		return
	}
	result, err := m.Call(ctx, "files", "list_directory", map[string]any{"path": "."})
	switch {
	case err != nil:
		log.Print(err) // says what happened, to which server, and what to do next
	case result.IsError:
		log.Print("the tool failed: ", result.Text())
	default:
		log.Print(result.Text())
	}
}
