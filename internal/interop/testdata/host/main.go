// Command host is the smallest use of the package: it starts the server that its
// arguments name, calls its tool "echo", and says how it is.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"time"

	"yagent/mcp"
)

func main() {
	if err := run(os.Args[1], os.Args[2:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(command string, args []string) (err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	m := mcp.NewManager([]mcp.ServerConfig{{Name: "server", Command: command, Args: args}}, mcp.ManagerOptions{})
	if err := m.Start(ctx); err != nil {
		return err
	}
	defer func() {
		if closeErr := m.Close(ctx); err == nil {
			err = closeErr
		}
	}()
	if err := m.WaitForReady(ctx, "server"); err != nil {
		return err
	}
	result, err := m.Call(ctx, "server", "echo", json.RawMessage(`{"text":"hello"}`))
	if err != nil {
		return err
	}
	fmt.Println(m.StatusLines())
	fmt.Println(result.Text())
	return nil
}
