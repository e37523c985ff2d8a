package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"yagent/mcp"
)

// plannedCall is a call to try a server with.
type plannedCall struct {
	server, tool string
	args         any
	approved     bool // the user named it
}

// callList is the value of the flag -call.
type callList []plannedCall

// String is for package flag, which shows defaults. There is none.
func (l *callList) String() string { return "" }

// Set reads server:tool or server:tool:{json}.
func (l *callList) Set(text string) error {
	server, rest, ok := strings.Cut(text, ":")
	tool, args, withArgs := strings.Cut(rest, ":")
	if !ok || server == "" || tool == "" {
		return errors.New("want server:tool or server:tool:{json}")
	}
	call := plannedCall{server: server, tool: tool, approved: true}
	if withArgs {
		if !json.Valid([]byte(args)) {
			return fmt.Errorf("the arguments %q are not valid JSON", args)
		}
		call.args = json.RawMessage(args)
	}
	*l = append(*l, call)
	return nil
}

// chooseCall picks a tool of a server for a trial without asking: one that says
// it only reads, first of all one for whose arguments a fitting value is known.
func chooseCall(server string, tools []mcp.ServerTool) (plannedCall, bool) {
	var second *plannedCall
	for _, t := range tools {
		if t.Server != server || judge(t.Annotations) != reads {
			continue
		}
		args, fit := sampleArguments(t.InputSchema)
		call := plannedCall{server: server, tool: t.Name, args: args}
		if fit {
			return call, true
		}
		if second == nil {
			second = &call
		}
	}
	if second == nil {
		return plannedCall{}, false
	}
	return *second, true
}

// schema is the little of JSON Schema that sample arguments need.
type schema struct {
	Type       any               `json:"type"` // a string, or a list of them
	Enum       []any             `json:"enum"`
	Default    any               `json:"default"`
	Minimum    float64           `json:"minimum"`
	AnyOf      []schema          `json:"anyOf"`
	OneOf      []schema          `json:"oneOf"`
	Required   []string          `json:"required"`
	Properties map[string]schema `json:"properties"`
}

// sampleArguments makes arguments for a schema: the required ones alone. They
// fit if each is one for which any value of its type will do; "hello" is a good
// message, but hardly a path.
func sampleArguments(raw json.RawMessage) (args map[string]any, fit bool) {
	var s schema
	args, fit = map[string]any{}, true
	if json.Unmarshal(raw, &s) != nil {
		return args, string(raw) == "true" // a schema may be a boolean, too
	}
	for _, name := range s.Required {
		value, ok := s.Properties[name].sample(name)
		args[name] = value
		fit = fit && ok
	}
	return args, fit
}

// freeText names arguments that take any text, as far as a name can tell.
var freeText = []string{"message", "text", "query", "thought", "prompt", "input", "content"}

// sample makes a value for the argument called name. What the schema itself
// suggests comes first.
func (s schema) sample(name string) (value any, fit bool) {
	switch {
	case s.Default != nil:
		return s.Default, true
	case len(s.Enum) > 0:
		return s.Enum[0], true
	case len(s.AnyOf) > 0:
		return s.AnyOf[0].sample(name)
	case len(s.OneOf) > 0:
		return s.OneOf[0].sample(name)
	}
	switch s.kind() {
	case "number", "integer":
		return max(1, s.Minimum), true
	case "boolean":
		return false, true
	case "array":
		return []any{}, false
	case "object":
		return map[string]any{}, false
	}
	return "hello", slices.Contains(freeText, strings.ToLower(name))
}

// kind is the type, the first one of several.
func (s schema) kind() any {
	if list, ok := s.Type.([]any); ok && len(list) > 0 {
		return list[0]
	}
	return s.Type
}
