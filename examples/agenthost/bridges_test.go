package main

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"yagent/mcp"
)

// fakeServers are configurations without processes behind them.
func fakeServers(names ...string) []mcp.ServerConfig {
	var servers []mcp.ServerConfig
	for _, name := range names {
		servers = append(servers, mcp.ServerConfig{Name: name, Command: "none", Curated: curated[name]})
	}
	return servers
}

// Every curated name is a tool of the host's own, for the server that it is
// curated for.
func TestCuratedNamesAreStaticTools(t *testing.T) {
	t.Parallel()
	wrongServer := fakeServers("notes", "index")
	wrongServer[1].Curated = []string{"read_note"}
	unknown := fakeServers("notes")
	unknown[0].Curated = append([]string{"drop_all"}, unknown[0].Curated...)
	disabled := fakeServers("notes", "index")
	disabled[1].Disabled = true
	tests := map[string]struct {
		servers []mcp.ServerConfig
		missing string
	}{
		"both servers":             {fakeServers("notes", "index", "other"), ""},
		"one of them":              {fakeServers("index"), ""},
		"one of them disabled":     {disabled, ""},
		"none":                     {fakeServers("other"), ""},
		"a name without a bridge":  {unknown, `"drop_all"`},
		"another server's bridge":  {wrongServer, `"read_note"`},
		"a server without bridges": {[]mcp.ServerConfig{{Name: "other", Curated: []string{"x"}}}, `"x"`},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := mcp.NewManager(test.servers, mcp.ManagerOptions{})
			err := checkCurated(test.servers, newBridges(m.Client))
			switch {
			case test.missing == "" && err != nil:
				t.Error(err)
			case test.missing != "" && (err == nil || !strings.Contains(err.Error(), test.missing)):
				t.Errorf("error %v, want one that names %s", err, test.missing)
			}
		})
	}
}

// A bridge looks at the model's arguments before it calls anything.
func TestBridgesCheckArguments(t *testing.T) {
	t.Parallel()
	m := mcp.NewManager(fakeServers("notes", "index"), mcp.ManagerOptions{})
	for _, bridge := range newBridges(m.Client) {
		for _, args := range []string{`{}`, `{"title":7,"name":7}`, `[]`} {
			_, err := bridge.call(t.Context(), json.RawMessage(args))
			if err == nil || errors.Is(err, mcp.ErrNotSent) {
				t.Errorf("%s %s: error %v, want one before the call", bridge.name, args, err)
			}
		}
	}
}

// The client that a bridge captured is there before any process is.
func TestBridgesCallTheirServer(t *testing.T) {
	t.Parallel()
	m := mcp.NewManager(fakeServers("notes", "index"), mcp.ManagerOptions{})
	bridges := newBridges(m.Client)
	if len(bridges) != 2 {
		t.Fatalf("%d bridges, want 2", len(bridges))
	}
	for _, bridge := range bridges {
		_, err := bridge.call(context.Background(), map[string]string{"title": "tea", "name": "main"})
		if !errors.Is(err, mcp.ErrOffline) || !strings.Contains(err.Error(), bridge.server) {
			t.Errorf("%s: error %v, want that %s is offline", bridge.name, err, bridge.server)
		}
	}
}
