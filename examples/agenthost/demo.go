package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"yagent/mcp"
)

// The demo servers are this program, started again with other arguments: enough
// of a server to see a host at work, without a network or anything to install.

// demoCommand is the first argument of a demo server; its name is the second.
const demoCommand = "demo-server"

const (
	demoBackoff = 400 * time.Millisecond
	demoGrace   = 300 * time.Millisecond

	// demoLinger is how long a server goes on after the end of its input. It
	// ends then, so that it stays behind for ever on no system.
	demoLinger = time.Minute

	// demoCrash is the exit status of a crash.
	demoCrash = 3
)

// demoServer is one server of the demo.
type demoServer struct {
	name         string
	about        string        // for the person who watches
	opening      time.Duration // how long the handshake takes
	lingers      bool          // goes on after the end of its input, as some real ones do
	disabled     bool          // by the demo's configuration
	instructions string        // for the model, in the handshake
	tools        []demoTool
}

// demoTool is one tool of a demo server; errCrash makes the process exit.
type demoTool struct {
	Name        string          `json:"name"`
	Description string          `json:"description"`
	InputSchema json.RawMessage `json:"inputSchema"`
	Annotations map[string]bool `json:"annotations,omitempty"`

	run func(args demoArguments) (string, error)
}

// demoArguments are those of all demo tools together.
type demoArguments struct {
	Query, Title, Text, Name string
	A, B                     int
}

var errCrash = errors.New("crash")

// demoServers returns the cast. The handshakes take their time, so that the start
// log is written before any of them is done, and end one after another.
func demoServers() []demoServer {
	return []demoServer{
		{name: "notes", about: "healthy", opening: 400 * time.Millisecond, tools: noteTools(),
			instructions: "Search before you add a note: it may be there already."},
		{name: "index", about: "slow to open, and ignores the end of its input", opening: 1500 * time.Millisecond, lingers: true, tools: indexTools()},
		{name: "inbox", about: "has no tools today", opening: 450 * time.Millisecond},
		{name: "calc", about: "crashes when it divides by zero", opening: 500 * time.Millisecond, tools: calcTools()},
		{name: "archive", about: "disabled: no process, no line, no tools", disabled: true},
	}
}

// noteTools have all three hints: one that reads, one that writes, one without.
// One of them, read_note, has a bridge.
func noteTools() []demoTool {
	reads, writes := map[string]bool{"readOnlyHint": true}, map[string]bool{"readOnlyHint": false}
	return []demoTool{
		{"search_notes", "Search the notes.", textSchema("query"), reads, func(a demoArguments) (string, error) {
			return "1 note has \"" + a.Query + "\": tea", nil
		}},
		{"read_note", "Read a note.", textSchema("title"), reads, func(a demoArguments) (string, error) {
			return a.Title + ": water first, then the leaves", nil
		}},
		{"add_note", "Add a note.", textSchema("text"), writes, func(demoArguments) (string, error) {
			return "added", nil
		}},
		{"sync_notes", "Synchronize the notes.", textSchema(), nil, func(demoArguments) (string, error) {
			return "in sync", nil
		}},
	}
}

// indexTools has one tool, which has a bridge, so none is left for a generated
// name.
func indexTools() []demoTool {
	reads := map[string]bool{"readOnlyHint": true}
	return []demoTool{{"find_symbol", "Find a symbol.", textSchema("name"), reads, func(a demoArguments) (string, error) {
		return a.Name + " is declared in main.go", nil
	}}}
}

// calcTools has the tool that takes its server down.
func calcTools() []demoTool {
	schema := json.RawMessage(`{"type":"object","properties":{"a":{"type":"integer"},"b":{"type":"integer"}},"required":["a","b"]}`)
	reads := map[string]bool{"readOnlyHint": true}
	return []demoTool{{"divide", "Divide two numbers.", schema, reads, func(a demoArguments) (string, error) {
		if a.B == 0 {
			return "", errCrash
		}
		return fmt.Sprintf("%d / %d = %d", a.A, a.B, a.A/a.B), nil
	}}}
}

// textSchema is the schema of an object with required strings.
func textSchema(names ...string) json.RawMessage {
	var properties, required []string
	for _, name := range names {
		properties = append(properties, fmt.Sprintf(`%q:{"type":"string"}`, name))
		required = append(required, fmt.Sprintf("%q", name))
	}
	return json.RawMessage(fmt.Sprintf(`{"type":"object","properties":{%s},"required":[%s]}`,
		strings.Join(properties, ","), strings.Join(required, ",")))
}

// demoConfigs is the configuration of a host without one. It goes the way that
// every configuration goes, so the demo servers get the same few variables.
func demoConfigs() ([]mcp.ServerConfig, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this program, which is its own demo server: %w", err)
	}
	var entries []serverEntry
	for _, s := range demoServers() {
		entries = append(entries, serverEntry{name: s.name, command: self, args: []string{demoCommand, s.name}, disabled: s.disabled})
	}
	return serverConfigs(entries), nil
}

// serveDemo is a whole server over stdio. It returns the exit status.
func serveDemo(name string, stdin io.Reader, stdout, stderr io.Writer) int {
	for _, s := range demoServers() {
		if s.name == name {
			return s.serve(stdin, stdout, stderr)
		}
	}
	fmt.Fprintf(stderr, "there is no demo server %q\n", name)
	return exitUsage
}

// demoRequest is a message from the host. A demo server reads no other members.
type demoRequest struct {
	ID     json.RawMessage
	Method string
	Params struct {
		Name      string
		Arguments demoArguments
	}
}

// serve answers one request after another until its input ends.
func (s demoServer) serve(stdin io.Reader, stdout, stderr io.Writer) int {
	lines := bufio.NewScanner(stdin)
	out := json.NewEncoder(stdout)
	for lines.Scan() {
		var r demoRequest
		if json.Unmarshal(lines.Bytes(), &r) != nil || r.ID == nil {
			continue // a notification, or no request at all
		}
		answer, err := s.answer(r)
		if errors.Is(err, errCrash) {
			fmt.Fprintln(stderr, "fatal: division by zero")
			return demoCrash
		}
		if out.Encode(answer) != nil {
			return exitFailed
		}
	}
	if s.lingers { // a host must not rely on this end
		time.Sleep(demoLinger)
	}
	return exitDone
}

// object is a JSON object in the making, for answers here and arguments in the
// tour.
type object map[string]any

// answer makes the reply to a request. A method that is not known here, of a
// later protocol perhaps, must get an error and not silence.
func (s demoServer) answer(r demoRequest) (object, error) {
	reply := object{"jsonrpc": "2.0", "id": r.ID}
	switch r.Method {
	case "initialize":
		time.Sleep(s.opening) // stands for work, such as reading an index
		reply["result"] = s.hello()
	case "ping":
		reply["result"] = object{}
	case "tools/list":
		reply["result"] = object{"tools": append([]demoTool{}, s.tools...)}
	case "tools/call":
		result, err := s.callTool(r)
		if err != nil {
			return nil, err
		}
		reply["result"] = result
	default:
		reply["error"] = object{"code": -32601, "message": "method not found"}
	}
	return reply, nil
}

// hello is the result of the handshake.
func (s demoServer) hello() object {
	return object{
		"protocolVersion": "2025-11-25",
		"capabilities":    object{"tools": object{}},
		"serverInfo":      object{"name": "demo-" + s.name, "version": "1.0.0"},
		"instructions":    s.instructions,
	}
}

// callTool runs a tool. An unknown one is a failed result and no protocol error,
// so that a model gets to read it.
func (s demoServer) callTool(r demoRequest) (object, error) {
	for _, t := range s.tools {
		if t.Name == r.Params.Name {
			text, err := t.run(r.Params.Arguments)
			return object{"content": []object{{"type": "text", "text": text}}}, err
		}
	}
	text := fmt.Sprintf("there is no tool %q", r.Params.Name)
	return object{"content": []object{{"type": "text", "text": text}}, "isError": true}, nil
}
