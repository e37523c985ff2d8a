package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"yagent/mcp"
)

// tool is one that the model is offered: the host's own, or a server's under a
// name that is safe for the model.
type tool struct {
	name   string // as the model calls it
	effect effect
	server string // where it comes from

	// description and schema go to the model's API with the name. This host has
	// no model, so nothing reads them here.
	description string
	schema      json.RawMessage

	// call returns the text for the model; so is the text of an error.
	call func(ctx context.Context, args any) (string, error)
}

// toolbox is all that the model is offered in one turn. It is a snapshot: what
// servers list meanwhile is in the next turn's.
type toolbox []tool

// toolbox returns the tools of this moment. A server that is offline keeps its
// last ones, so the list, and with it the model's prompt cache, stays as it is.
func (h *host) toolbox() toolbox {
	return newToolbox(h.static, h.manager.Tools(), h.servers, h.manager.Call)
}

// caller is the type of Manager.Call, which finds the server by its name.
type caller func(ctx context.Context, server, tool string, args any) (*mcp.CallToolResult, error)

// newToolbox puts the host's own tools before those of the servers. A curated
// tool is among the former already, so it is left out of the latter.
func newToolbox(static []tool, found []mcp.ServerTool, servers []mcp.ServerConfig, call caller) toolbox {
	curated := make(map[string][]string)
	for _, s := range servers {
		curated[s.Name] = s.Curated
	}
	all := slices.Clone(static)
	for _, t := range found {
		if !slices.Contains(curated[t.Server], t.Name) {
			all = append(all, externalTool(t, call))
		}
	}
	return all
}

// externalTool wraps a server's tool. The model's name is only a name: the call
// goes to the server and the tool that the Manager listed.
func externalTool(t mcp.ServerTool, call caller) tool {
	return tool{
		name:        modelName(t.Server, t.Name),
		description: t.Description,
		schema:      t.InputSchema,
		effect:      judge(t.Annotations),
		server:      t.Server,
		call: func(ctx context.Context, args any) (string, error) {
			result, err := call(ctx, t.Server, t.Name, args)
			return answer(result, err)
		},
	}
}

// find returns the tool that the model calls name. This is the way back from a
// model's name: the toolbox made it and knows what it stands for.
func (b toolbox) find(name string) (tool, error) {
	for _, t := range b {
		if t.name == name {
			return t, nil
		}
	}
	return tool{}, fmt.Errorf("there is no tool %q", name)
}

// errToolFailed marks an answer in which the tool itself reports a failure.
var errToolFailed = errors.New("the tool failed")

// answer turns a result into text for the model.
func answer(result *mcp.CallToolResult, err error) (string, error) {
	if err != nil {
		return "", err
	}
	text := resultText(result)
	if result.IsError {
		// The call went well, and the tool says that it failed. A model needs to
		// know both that and why.
		return "", fmt.Errorf("%w: %s", errToolFailed, text)
	}
	return text, nil
}

// resultText joins the contents of a result.
func resultText(result *mcp.CallToolResult) string {
	var parts []string
	for _, content := range result.Content {
		parts = append(parts, contentText(content))
	}
	if len(parts) == 0 && result.StructuredContent != nil {
		return string(result.StructuredContent)
	}
	return strings.Join(parts, "\n")
}

// contentText is one content as text. A host with a model that sees images would
// hand those on; this one names them. What cannot be decoded, or is of a kind that
// nobody knows yet, is named by what the server called it.
func contentText(content mcp.Content) string {
	switch content.Type {
	case "text":
		return content.Text
	case "image", "audio":
		if blob, err := content.Blob(); err == nil {
			return fmt.Sprintf("[%s, %s, %d bytes]", content.Type, blob.MIMEType, len(blob.Data))
		}
	case "resource":
		if resource, err := content.Resource(); err == nil && resource.Blob == nil {
			return resource.Text
		} else if err == nil {
			return fmt.Sprintf("[resource %s, %s, %d bytes]", resource.URI, resource.MIMEType, len(resource.Blob))
		}
	case "resource_link":
		if link, err := content.ResourceLink(); err == nil {
			return fmt.Sprintf("[resource %s, not read]", link.URI)
		}
	}
	return fmt.Sprintf("[%s, %d bytes of JSON]", content.Type, len(content.Raw))
}

// compact shows arguments on one line, in the form in which they are sent.
func compact(args any) string {
	text, err := json.Marshal(args)
	if err != nil || args == nil {
		return "{}"
	}
	return string(text)
}
