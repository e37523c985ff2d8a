package main

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"testing"

	"yagent/mcp"
)

// found returns tools as a Manager does.
func found(server string, names ...string) []mcp.ServerTool {
	var tools []mcp.ServerTool
	for _, name := range names {
		tools = append(tools, mcp.ServerTool{Server: server, DiscoveredTool: mcp.DiscoveredTool{Name: name}})
	}
	return tools
}

func names(b toolbox) []string {
	var all []string
	for _, t := range b {
		all = append(all, t.name)
	}
	return all
}

// A curated tool is offered once, as the host's own. A tool of the same name on
// another server is another tool.
func TestCuratedToolsAreNotRegisteredTwice(t *testing.T) {
	t.Parallel()
	servers := fakeServers("notes", "other")
	static := newBridges(mcp.NewManager(servers, mcp.ManagerOptions{}).Client)
	tools := slices.Concat(found("notes", "add_note", "read_note"), found("other", "read_note"))
	got := names(newToolbox(static, tools, servers, nil))
	want := []string{"read_note", "mcp__notes__add_note", "mcp__other__read_note"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// A model's name leads back to the server and the tool, also where it had to be
// changed.
func TestToolboxResolvesNames(t *testing.T) {
	t.Parallel()
	var server, called string
	call := func(_ context.Context, s, tool string, _ any) (*mcp.CallToolResult, error) {
		server, called = s, tool
		return &mcp.CallToolResult{}, nil
	}
	tools := slices.Concat(found("a.b", "x/y"), found("a_b", "x_y"))
	box := newToolbox(nil, tools, nil, call)
	for i, want := range tools {
		tool, err := box.find(names(box)[i])
		if err != nil {
			t.Fatal(err)
		}
		tool.call(t.Context(), nil)
		if server != want.Server || called != want.Name {
			t.Errorf("%q called %q of %q, want %q of %q", tool.name, called, server, want.Name, want.Server)
		}
	}
	if _, err := box.find("mcp__a__x"); err == nil {
		t.Error("a name of no tool was found")
	}
}

func TestAnswer(t *testing.T) {
	t.Parallel()
	text := mcp.Content{Type: "text", Text: "one"}
	content := func(kind, members string) *mcp.CallToolResult {
		return &mcp.CallToolResult{Content: []mcp.Content{text, {Type: kind, Raw: json.RawMessage(`{"type":"` + kind + `",` + members + `}`)}}}
	}
	tests := map[string]struct {
		result *mcp.CallToolResult
		err    error
		want   string
		wantIs error
	}{
		"texts":            {&mcp.CallToolResult{Content: []mcp.Content{text, text}}, nil, "one\none", nil},
		"an image":         {content("image", `"data":"AAECAw==","mimeType":"image/png"`), nil, "one\n[image, image/png, 4 bytes]", nil},
		"a broken image":   {content("image", `"data":"?"`), nil, "one\n[image, 27 bytes of JSON]", nil},
		"a text resource":  {content("resource", `"resource":{"uri":"a:b","text":"two"}`), nil, "one\ntwo", nil},
		"a binary one":     {content("resource", `"resource":{"uri":"a:b","mimeType":"x/y","blob":"AAEC"}`), nil, "one\n[resource a:b, x/y, 3 bytes]", nil},
		"a link":           {content("resource_link", `"uri":"a:b","name":"b"`), nil, "one\n[resource a:b, not read]", nil},
		"a later kind":     {content("smell", `"x":1`), nil, "one\n[smell, 22 bytes of JSON]", nil},
		"structured alone": {&mcp.CallToolResult{StructuredContent: json.RawMessage(`{"n":1}`)}, nil, `{"n":1}`, nil},
		"nothing":          {&mcp.CallToolResult{}, nil, "", nil},
		"the tool failed":  {&mcp.CallToolResult{Content: []mcp.Content{text}, IsError: true}, nil, "", errToolFailed},
		"no result":        {nil, mcp.ErrOffline, "", mcp.ErrOffline},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := answer(test.result, test.err)
			if got != test.want || !errors.Is(err, test.wantIs) {
				t.Errorf("got %q, %v, want %q, %v", got, err, test.want, test.wantIs)
			}
		})
	}
}
