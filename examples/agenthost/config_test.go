package main

import (
	"errors"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestParseConfig(t *testing.T) {
	t.Parallel()
	cfg, err := parseConfig("mcp.json", []byte("\ufeff"+`{
		"inputs": [{"id": "key"}],
		"mcpServers": {
			"zeta": {"command": "z", "args": ["-a", "b c"], "env": {"KEY": "v=1"}, "cwd": "/d", "timeout": 2500,
			         "type": "stdio", "alwaysAllow": ["x"], "description": {"en": "?"}},
			"alpha": {"command": "a", "timeout": 45, "args": null},
			"off": {"disabled": true},
			"far": {"url": "https://example.com/mcp", "type": "http"}
		}
	}`))
	if err != nil {
		t.Fatal(err)
	}
	want := []serverEntry{
		{name: "zeta", command: "z", args: []string{"-a", "b c"}, env: map[string]string{"KEY": "v=1"}, cwd: "/d", timeout: 2500 * time.Millisecond},
		{name: "alpha", command: "a", timeout: 45 * time.Second},
		{name: "off", disabled: true},
	}
	if !reflect.DeepEqual(cfg.servers, want) {
		t.Errorf("servers:\n got %+v\nwant %+v", cfg.servers, want)
	}
	if len(cfg.skipped) != 1 || !strings.Contains(cfg.skipped[0], `"far"`) {
		t.Errorf("skipped: %q, want the remote server", cfg.skipped)
	}
}

// Every refusal says where.
func TestParseConfigRefuses(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		file         string
		line, column int
		text         string // part of the message; empty where it is encoding/json's
	}{
		"empty file":                {"", 1, 1, ""},
		"cut off":                   {"{\"mcpServers\": {", 1, 16, ""},
		"a comma too many":          {"{\n  \"mcpServers\": {\n    \"a\": {\"command\": \"x\",}\n  }\n}", 3, 26, ""},
		"columns count characters":  {`{"é€😀": x`, 1, 9, ""},
		"text after the end":        {"{}\n{}", 2, 1, ""},
		"not an object":             {" []", 1, 1, "the configuration must be an object"},
		"no servers":                {"{}", 1, 1, `there is no member "mcpServers"`},
		"servers of another host":   {"{\n \"inputs\": [], \"servers\": {}}", 2, 16, `but "servers"; rename it`},
		"servers are a list":        {`{"mcpServers": []}`, 1, 16, `"mcpServers" must be an object`},
		"a name twice":              {"{\"mcpServers\": {\n  \"a\": {\"command\": \"x\"},\n  \"a\": {\"command\": \"y\"}\n}}", 3, 3, `the name "a" twice; the first is at line 2, column 3`},
		"a name twice, escaped":     {"{\"mcpServers\": {\n  \"a\": {\"command\": \"x\"},\n \"\\u0061\": {\"command\": \"y\"}\n}}", 3, 2, `the name "a" twice`},
		"servers twice":             {"{\"mcpServers\": {},\n\"mcpServers\": {}}", 2, 1, `the name "mcpServers" twice`},
		"a member twice":            {"{\"mcpServers\": {\"a\": {\n\"command\": \"x\",\n\"command\": \"y\"}}}", 3, 1, `server "a" has the name "command" twice`},
		"a variable twice":          {"{\"mcpServers\": {\"a\": {\"command\": \"x\", \"env\": {\n\"K\": \"1\", \"K\": \"2\"}}}}", 2, 11, `the name "K" twice`},
		"a server is a string":      {`{"mcpServers": {"a": "x"}}`, 1, 22, `server "a" must be an object`},
		"no command":                {`{"mcpServers": {"a": {}}}`, 1, 22, `server "a" has no command`},
		"an empty command":          {`{"mcpServers": {"a": {"command": ""}}}`, 1, 22, `server "a" has no command`},
		"a command of another type": {`{"mcpServers": {"a": {"command": ["x"]}}}`, 1, 34, `"command" must be a string`},
		"args of another type":      {`{"mcpServers": {"a": {"command": "x", "args": "-v"}}}`, 1, 47, `"args" must be a list of strings`},
		"disabled as a string":      {`{"mcpServers": {"a": {"command": "x", "disabled": "no"}}}`, 1, 51, `"disabled" must be true or false`},
		"a variable as a number":    {`{"mcpServers": {"a": {"command": "x", "env": {"PORT": 80}}}}`, 1, 55, `"PORT" must be a string`},
		"a variable's bad name":     {`{"mcpServers": {"a": {"command": "x", "env": {"A=B": ""}}}}`, 1, 47, `"A=B" is no name of a variable`},
		"a timeout as a string":     {`{"mcpServers": {"a": {"command": "x", "timeout": "9s"}}}`, 1, 50, `"timeout" must be a number`},
		"a negative timeout":        {`{"mcpServers": {"a": {"command": "x", "timeout": -1}}}`, 1, 50, "must be between"},
		"a timeout beyond reason":   {`{"mcpServers": {"a": {"command": "x", "timeout": 1e300}}}`, 1, 50, "must be between"},
		"an empty name":             {`{"mcpServers": {" ": {"command": "x"}}}`, 1, 17, "is empty"},
		"a line break in a name":    {`{"mcpServers": {"a\nb": {"command": "x"}}}`, 1, 17, `"a\nb" has a control`},
		"an escape in a name":       {`{"mcpServers": {"a\u001b[2J": {"command": "x"}}}`, 1, 17, "has a control"},
		"an invisible name":         {`{"mcpServers": {"a\u200bb": {"command": "x"}}}`, 1, 17, "invisible"},
		"a name beyond reason":      {`{"mcpServers": {"` + strings.Repeat("n", 129) + `": {"command": "x"}}}`, 1, 17, "longer than 128 bytes"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := parseConfig("mcp.json", []byte(test.file))
			fault, ok := errors.AsType[*configError](err)
			if !ok {
				t.Fatalf("error %v, want a *configError", err)
			}
			if fault.line != test.line || fault.column != test.column {
				t.Errorf("at %d:%d, want %d:%d (%v)", fault.line, fault.column, test.line, test.column, err)
			}
			if !strings.HasPrefix(err.Error(), "mcp.json:") || !strings.Contains(fault.text, test.text) {
				t.Errorf("error %q, want the file in front and %q in it", err, test.text)
			}
		})
	}
}

// A fault in a server's environment must not put a value on the screen.
func TestConfigErrorsShowNoValues(t *testing.T) {
	t.Parallel()
	_, err := parseConfig("mcp.json", []byte(`{"mcpServers": {"a": {"command": "x", "env": {"TOKEN": ["hunter2"]}}}}`))
	if err == nil || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("error %v, want one without the value", err)
	}
}

func TestServerConfigs(t *testing.T) {
	t.Setenv("AGENTHOST_TEST_SECRET", "hunter2")
	servers := serverConfigs([]serverEntry{
		{name: "notes", command: "n", args: []string{"-x"}, cwd: "d", env: map[string]string{"KEY": "v"}, timeout: time.Second},
		{name: "other", command: "o", disabled: true},
	})
	notes, other := servers[0], servers[1]
	if notes.Command != "n" || !slices.Equal(notes.Args, []string{"-x"}) || notes.Dir != "d" || notes.RequestTimeout != time.Second {
		t.Errorf("notes is %+v", notes)
	}
	if !slices.Equal(notes.Curated, curated["notes"]) || other.Curated != nil {
		t.Errorf("curated: %q and %q, want those with a bridge", notes.Curated, other.Curated)
	}
	if !slices.Contains(notes.Env, "KEY=v") || slices.Contains(notes.Env, "AGENTHOST_TEST_SECRET=hunter2") {
		t.Errorf("the environment is %q, want KEY and not the host's secret", notes.Env)
	}
	if !other.Disabled || other.RequestTimeout != 0 || other.Env == nil {
		t.Errorf("other is %+v, want it disabled, with the library's timeout and an environment of its own", other)
	}
	if runtime.GOOS != "windows" && slices.ContainsFunc(other.Env, func(e string) bool { return strings.HasPrefix(e, "AGENTHOST_") }) {
		t.Errorf("the environment is %q", other.Env)
	}
}
