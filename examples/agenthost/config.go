package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"yagent/mcp"
)

// serverEntry is one server of a configuration file.
type serverEntry struct {
	name     string
	command  string
	args     []string
	env      map[string]string
	cwd      string
	disabled bool
	timeout  time.Duration // 0: the library's default
	notes    []string      // what in it this host does not act on
}

// config is what a file says.
type config struct {
	servers []serverEntry // in the order of the file
	skipped []string      // for each entry that this host cannot serve, why
}

// configError is a fault in a file, with its place: lines and columns count
// from 1, columns in characters.
type configError struct {
	file         string
	line, column int
	text         string
}

func (e *configError) Error() string {
	return fmt.Sprintf("%s:%d:%d: %s", e.file, e.line, e.column, e.text)
}

// readConfig reads a file. It is read once: a host that follows its changes
// would make a new Manager.
func readConfig(file string) (config, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return config{}, fmt.Errorf("read the configuration: %w", err)
	}
	return parseConfig(file, data)
}

// parseConfig reads the "mcpServers" object that desktop and editor hosts use.
// Members that this host does not know are noted and left alone, since each host
// adds its own. A member that stands twice is refused: most parsers keep one of the two
// without a word, and a server would be gone.
func parseConfig(file string, data []byte) (config, error) {
	// Some editors put a byte order mark in front.
	p := &parser{file: file, data: bytes.TrimPrefix(data, []byte("\ufeff"))}
	if err := p.validate(); err != nil {
		return config{}, err
	}
	root, err := p.object(value{p.data, 0}, "the configuration")
	if err != nil {
		return config{}, err
	}
	for _, m := range root {
		if m.name == "mcpServers" {
			return p.servers(m.value)
		}
	}
	for _, m := range root {
		if m.name == "servers" {
			return config{}, p.errorAt(m.at, `there is no member "mcpServers", but "servers"; rename it`)
		}
	}
	return config{}, p.errorAt(0, `there is no member "mcpServers"`)
}

// parser knows the whole file, for the places of faults. It takes objects apart
// itself: encoding/json into structs would keep the last of two members, take
// "Command" for "command", and lose the order of the servers, which is the order
// of the status text.
type parser struct {
	file string
	data []byte
}

// value is a part of the file that is one JSON value, at its offset; white space
// may stand before it.
type value struct {
	raw []byte
	at  int
}

func (v value) isNull() bool { return string(bytes.TrimSpace(v.raw)) == "null" }

// member is one of an object.
type member struct {
	name  string
	at    int // of the name
	value value
}

// validate reports the first syntax error. Past it every part is valid JSON.
func (p *parser) validate() error {
	var raw json.RawMessage
	err := json.Unmarshal(p.data, &raw)
	if syntax, ok := errors.AsType[*json.SyntaxError](err); ok {
		// Its offset is behind the character that does not fit.
		return p.errorAt(int(syntax.Offset)-1, "not valid JSON: %v", syntax)
	}
	if err != nil {
		return p.errorAt(0, "not valid JSON: %v", err)
	}
	return nil
}

// errorAt makes an error for the place at offset.
func (p *parser) errorAt(offset int, format string, args ...any) error {
	before := p.data[:min(max(offset, 0), len(p.data))]
	lineStart := bytes.LastIndexByte(before, '\n') + 1
	return &configError{
		file:   p.file,
		line:   1 + bytes.Count(before, []byte("\n")),
		column: 1 + utf8.RuneCount(before[lineStart:]),
		text:   fmt.Sprintf(format, args...),
	}
}

// object takes an object apart and refuses a name that stands twice in it.
func (p *parser) object(v value, what string) ([]member, error) {
	notObject := p.errorAt(v.at, "%s must be an object", what)
	dec := json.NewDecoder(bytes.NewReader(v.raw))
	if open, err := dec.Token(); err != nil || open != json.Delim('{') {
		return nil, notObject
	}
	var members []member
	first := make(map[string]int)
	for dec.More() {
		// Between a value and the next name there is nothing but space and a comma.
		past := int(dec.InputOffset())
		at := v.at + past + bytes.IndexByte(v.raw[past:], '"')
		token, err := dec.Token()
		name, ok := token.(string)
		var raw json.RawMessage // begins at the value itself, without the space before
		if err != nil || !ok || dec.Decode(&raw) != nil {
			return nil, notObject
		}
		if before, twice := first[name]; twice {
			return nil, p.errorAt(at, "%s has the name %q twice; the first is at %s", what, name, p.place(before))
		}
		first[name] = at
		members = append(members, member{name, at, value{raw, v.at + int(dec.InputOffset()) - len(raw)}})
	}
	return members, nil
}

// place is a position for the middle of a text.
func (p *parser) place(offset int) string {
	fault, _ := errors.AsType[*configError](p.errorAt(offset, ""))
	return fmt.Sprintf("line %d, column %d", fault.line, fault.column)
}

// servers reads the members of "mcpServers".
func (p *parser) servers(v value) (config, error) {
	members, err := p.object(v, `"mcpServers"`)
	if err != nil {
		return config{}, err
	}
	var cfg config
	for _, m := range members {
		if fault := nameFault(m.name); fault != "" {
			return config{}, p.errorAt(m.at, "the server name %q %s", m.name, fault)
		}
		entry, remote, err := p.server(m)
		switch {
		case err != nil:
			return config{}, err
		case remote:
			cfg.skipped = append(cfg.skipped, fmt.Sprintf("server %q is a remote one, this host starts local ones only", m.name))
		default:
			cfg.servers = append(cfg.servers, entry)
		}
	}
	return cfg, nil
}

// maxServerName bounds a name, in bytes. The status text shows so much of it.
const maxServerName = 128

// nameFault says what is wrong with a server's name, which goes into prompts and
// onto terminals.
func nameFault(name string) string {
	switch {
	case strings.TrimSpace(name) == "":
		return "is empty"
	case len(name) > maxServerName:
		return fmt.Sprintf("is longer than %d bytes", maxServerName)
	case strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) }):
		return "has a control or invisible character"
	}
	return ""
}

// server reads one entry; remote is one that has an address and no command.
func (p *parser) server(m member) (entry serverEntry, remote bool, err error) {
	what := fmt.Sprintf("server %q", m.name)
	members, err := p.object(m.value, what)
	if err != nil {
		return serverEntry{}, false, err
	}
	entry.name = m.name
	for _, field := range members {
		if field.value.isNull() {
			continue // as good as absent
		}
		if field.name == "url" || field.name == "serverUrl" || field.name == "httpUrl" {
			remote = true
		}
		if err := p.field(&entry, field, what); err != nil {
			return serverEntry{}, false, err
		}
	}
	entry.notes = entryNotes(entry, members)
	// A disabled entry is kept, whatever it lacks: Health knows it by name.
	if entry.command != "" || entry.disabled {
		return entry, false, nil
	}
	if !remote {
		return serverEntry{}, false, p.errorAt(m.value.at, "%s has no command", what)
	}
	return serverEntry{}, true, nil
}

// field reads one member of an entry.
func (p *parser) field(entry *serverEntry, m member, what string) (err error) {
	switch m.name {
	case "command":
		return p.decode(m, &entry.command, what, "a string")
	case "args":
		return p.decode(m, &entry.args, what, "a list of strings")
	case "cwd":
		return p.decode(m, &entry.cwd, what, "a string")
	case "disabled":
		return p.decode(m, &entry.disabled, what, "true or false")
	case "env":
		entry.env, err = p.environment(m, what)
	case "timeout":
		entry.timeout, err = p.timeout(m, what)
	}
	return err
}

// decode reads a member of one kind. The text of the error is the host's: that
// of encoding/json speaks of Go types.
func (p *parser) decode(m member, into any, what, kind string) error {
	if json.Unmarshal(m.value.raw, into) != nil {
		return p.errorAt(m.value.at, "%s: %q must be %s", what, m.name, kind)
	}
	return nil
}

// environment reads the variables of a server. A fault never shows a value,
// which may be a secret.
func (p *parser) environment(m member, what string) (map[string]string, error) {
	members, err := p.object(m.value, fmt.Sprintf(`%s: "env"`, what))
	if err != nil {
		return nil, err
	}
	env := make(map[string]string)
	for _, variable := range members {
		var text string
		if err := p.decode(variable, &text, what+`: "env"`, "a string"); err != nil {
			return nil, err
		}
		if variable.name == "" || strings.ContainsAny(variable.name, "=\x00") {
			return nil, p.errorAt(variable.at, `%s: "env": %q is no name of a variable`, what, variable.name)
		}
		env[variable.name] = text
	}
	return env, nil
}

const (
	// secondsBelow tells the two habits apart: some hosts write this member in
	// seconds, others in milliseconds, of which nobody means fewer.
	secondsBelow = 1000

	maxTimeout = 1e9 // ms, more than eleven days
)

// timeout reads the limit of one request: seconds if it is less than 1000,
// milliseconds otherwise.
func (p *parser) timeout(m member, what string) (time.Duration, error) {
	var number float64
	if err := p.decode(m, &number, what, "a number"); err != nil {
		return 0, err
	}
	switch {
	case number < 0 || number > maxTimeout:
		return 0, p.errorAt(m.value.at, "%s: %q must be between 0 and %d milliseconds", what, m.name, int(maxTimeout))
	case number < secondsBelow:
		return time.Duration(number * float64(time.Second)), nil
	}
	return time.Duration(number * float64(time.Millisecond)), nil
}

// serverConfigs translates entries for the library. A timeout of 0 is passed
// through: the library alone knows its default.
func serverConfigs(entries []serverEntry) []mcp.ServerConfig {
	var servers []mcp.ServerConfig
	for _, entry := range entries {
		servers = append(servers, mcp.ServerConfig{
			Name:           entry.name,
			Command:        entry.command,
			Args:           entry.args,
			Env:            childEnv(os.Environ(), entry.env, runtime.GOOS == "windows"),
			Dir:            entry.cwd,
			Disabled:       entry.disabled,
			RequestTimeout: entry.timeout,
			Curated:        curated[entry.name],
		})
	}
	return servers
}
