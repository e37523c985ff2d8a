package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"yagent/mcp"
)

// A bridge is a tool that the host wrote by hand over one of a server's: with
// its own description, its own typed arguments, and a server that is known in
// advance. The server's tool is then curated: counted apart in the status text,
// and not offered a second time under a generated name.

// curated names, for each server that the host knows, the tools that have a
// bridge. A bridge has the name of the tool it stands for. The table is apart
// from the bridges because the Manager needs it before there is a client to build
// one over; checkCurated sees to it that the two agree.
var curated = map[string][]string{
	"notes": {"read_note"},
	"index": {"find_symbol"},
}

// newBridges returns the bridges of the servers that are there. It is called
// right after Start: the clients are good from then on, through every crash and
// reconnect, although none of them may be connected yet.
func newBridges(client func(server string) *mcp.MCPClient) []tool {
	var bridges []tool
	// Nil is a server that is not configured, or disabled: its bridge would fail
	// for ever, so the model is not offered it.
	if notes := client("notes"); notes != nil {
		bridges = append(bridges, readNote(notes))
	}
	if index := client("index"); index != nil {
		bridges = append(bridges, findSymbol(index))
	}
	return bridges
}

// readNote lets the model read one of the user's notes.
func readNote(notes *mcp.MCPClient) tool {
	type arguments struct {
		Title string `json:"title"`
	}
	return tool{
		name:        "read_note",
		description: "Read one of the user's notes by its exact title.",
		schema:      json.RawMessage(`{"type":"object","properties":{"title":{"type":"string"}},"required":["title"]}`),
		effect:      reads,
		server:      "notes",
		call: func(ctx context.Context, args any) (string, error) {
			var a arguments
			if err := decodeArguments(args, &a); err != nil {
				return "", err
			}
			if a.Title == "" {
				return "", errors.New("give the title of a note")
			}
			return answer(notes.CallTool(ctx, "read_note", a))
		},
	}
}

// findSymbol lets the model find where a name is declared. While the index is
// being built, the library's error tells the model what to do instead.
func findSymbol(index *mcp.MCPClient) tool {
	type arguments struct {
		Name string `json:"name"`
	}
	return tool{
		name:        "find_symbol",
		description: "Find the declaration of a function, type or variable.",
		schema:      json.RawMessage(`{"type":"object","properties":{"name":{"type":"string"}},"required":["name"]}`),
		effect:      reads,
		server:      "index",
		call: func(ctx context.Context, args any) (string, error) {
			var a arguments
			if err := decodeArguments(args, &a); err != nil {
				return "", err
			}
			if a.Name == "" {
				return "", errors.New("give the name of a symbol")
			}
			return answer(index.CallTool(ctx, "find_symbol", a))
		},
	}
}

// decodeArguments reads a model's arguments into the type of a bridge. Models
// get arguments wrong, so the error says what is.
func decodeArguments(args, into any) error {
	raw, err := json.Marshal(args)
	if err == nil {
		err = json.Unmarshal(raw, into)
	}
	if err != nil {
		return fmt.Errorf("the arguments do not fit: %w", err)
	}
	return nil
}

// checkCurated reports a curated name without a bridge. The toolbox leaves
// curated tools out, so without this check one would be lost silently.
func checkCurated(servers []mcp.ServerConfig, static []tool) error {
	for _, s := range servers {
		if s.Disabled {
			continue // it has no client, hence no bridge, and no tool to lose
		}
		for _, name := range s.Curated {
			if !slices.ContainsFunc(static, func(t tool) bool { return t.name == name && t.server == s.Name }) {
				return fmt.Errorf("the tool %q of server %q is curated, but the host has no tool of its own for it", name, s.Name)
			}
		}
	}
	return nil
}
