package main

import (
	"slices"
	"strings"
	"testing"
)

func TestEntryNotes(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		members string // of the entry, beside its command
		want    []string
	}{
		"nothing to say":     {`"args": ["$HOME", "$(x)", "${"], "type": "stdio", "alwaysAllow": [], "autoApprove": [], "description": ""`, nil},
		"a near miss":        {`"arg": ["x"]`, []string{`unknown member "arg" is ignored (did you mean "args"?)`}},
		"another case":       {`"ENV": {}`, []string{`unknown member "ENV" is ignored (did you mean "env"?)`}},
		"two letters":        {`"disbaled": true`, []string{`unknown member "disbaled" is ignored (did you mean "disabled"?)`}},
		"an unknown one":     {`"colour": "red"`, []string{`unknown member "colour" is ignored`}},
		"an empty one":       {`"": 1`, []string{`unknown member "" is ignored`}},
		"even if it is null": {`"arsg": null`, []string{`unknown member "arsg" is ignored`}},
		"variables": {`"args": ["-k", "${input:key}"], "env": {"B": "x${B}", "A": "${env:A}"}, "cwd": "${workspaceFolder}/x"`, []string{
			`"args" (number 2) has a ${...}, which this host does not expand`,
			`"env": "A" has a ${...}, which this host does not expand`,
			`"env": "B" has a ${...}, which this host does not expand`,
			`"cwd" has a ${...}, which this host does not expand`,
		}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg, err := parseConfig("mcp.json", []byte(`{"mcpServers": {"a": {"command": "x", `+test.members+`}}}`))
			if err != nil {
				t.Fatal(err)
			}
			if got := cfg.servers[0].notes; !slices.Equal(got, test.want) {
				t.Errorf("got %q\nwant %q", got, test.want)
			}
		})
	}
}

func TestNearest(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"Command": "command", "comand": "command", "arguments": "", "argv": "args", "envs": "env", "timeouts": "timeout",
		"URL": "url", "enabled": "", "x": "", strings.Repeat("args", 100): "",
	} {
		if got := nearest(name); got != want {
			t.Errorf("%q is taken for %q, want %q", name, got, want)
		}
	}
}
