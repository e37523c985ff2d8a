package main

import (
	"encoding/json"
	"testing"

	"yagent/mcp"
)

func TestCallList(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		server, tool, args string
		refused            bool
	}{
		"s:t":             {server: "s", tool: "t", args: "{}"},
		`s:t:{"a":"b:c"}`: {server: "s", tool: "t", args: `{"a":"b:c"}`},
		"s":               {refused: true},
		":t":              {refused: true},
		"s:":              {refused: true},
		"s:t:{":           {refused: true},
		"s:t:":            {refused: true},
	}
	for text, test := range tests {
		t.Run(text, func(t *testing.T) {
			t.Parallel()
			var calls callList
			err := calls.Set(text)
			if test.refused {
				if err == nil {
					t.Errorf("accepted as %+v", calls)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			got := calls[0]
			if got.server != test.server || got.tool != test.tool || compact(got.args) != test.args || !got.approved {
				t.Errorf("got %+v", got)
			}
		})
	}
}

func TestSampleArguments(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		schema, want string
		fit          bool
	}{
		"no arguments":        {`{"type":"object"}`, `{}`, true},
		"optional ones alone": {`{"properties":{"path":{"type":"string"}}}`, `{}`, true},
		"free text":           {`{"properties":{"Message":{"type":"string"}},"required":["Message"]}`, `{"Message":"hello"}`, true},
		"a path":              {`{"properties":{"path":{"type":"string"}},"required":["path"]}`, `{"path":"hello"}`, false},
		"numbers": {`{"properties":{"a":{"type":"number"},"b":{"type":"integer","minimum":5}},"required":["a","b"]}`,
			`{"a":1,"b":5}`, true},
		"a boolean":        {`{"properties":{"x":{"type":"boolean"}},"required":["x"]}`, `{"x":false}`, true},
		"first of types":   {`{"properties":{"x":{"type":["boolean","string"]}},"required":["x"]}`, `{"x":false}`, true},
		"first of schemas": {`{"properties":{"x":{"anyOf":[{"type":"integer"},{}]},"y":{"oneOf":[{"type":"boolean"}]}},"required":["x","y"]}`, `{"x":1,"y":false}`, true},
		"an enumeration":   {`{"properties":{"x":{"type":"string","enum":["b","a"]}},"required":["x"]}`, `{"x":"b"}`, true},
		"a default":        {`{"properties":{"x":{"type":"string","default":"d"}},"required":["x"]}`, `{"x":"d"}`, true},
		"structures":       {`{"properties":{"l":{"type":"array"},"o":{"type":"object"}},"required":["l","o"]}`, `{"l":[],"o":{}}`, false},
		"undescribed":      {`{"required":["x"]}`, `{"x":"hello"}`, false},
		"anything":         {`true`, `{}`, true},
		"nothing":          {`false`, `{}`, false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			args, fit := sampleArguments(json.RawMessage(test.schema))
			if got := compact(args); got != test.want || fit != test.fit {
				t.Errorf("got %s, %v, want %s, %v", got, fit, test.want, test.fit)
			}
		})
	}
}

// The host tries nothing without asking that may write.
func TestChooseCall(t *testing.T) {
	t.Parallel()
	yes, no := true, false
	make := func(server, name string, hint *bool, schema string) mcp.ServerTool {
		return mcp.ServerTool{Server: server, DiscoveredTool: mcp.DiscoveredTool{
			Name: name, InputSchema: json.RawMessage(schema), Annotations: &mcp.ToolAnnotations{ReadOnlyHint: hint},
		}}
	}
	path := `{"properties":{"path":{"type":"string"}},"required":["path"]}`
	tools := []mcp.ServerTool{
		make("other", "a", &yes, `{}`),
		make("files", "delete", &no, `{}`), make("files", "flush", nil, `{}`), make("files", "get", &yes, path), make("files", "list", &yes, `{}`),
		make("paths", "get", &yes, path), make("paths", "stat", &yes, path),
		make("writer", "delete", &no, `{}`), make("writer", "flush", nil, `{}`),
	}
	for server, want := range map[string]string{"files": "list", "paths": "get", "writer": "", "nobody": ""} {
		call, ok := chooseCall(server, tools)
		if ok != (want != "") || call.tool != want || call.approved {
			t.Errorf("%s: got %+v, %v, want %q, not approved", server, call, ok, want)
		}
	}
}
