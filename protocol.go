package mcp

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/bits"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// latestVersion is the revision of the protocol that the handshake asks for, and
// latestModern the one in which requests are made that need no handshake.
const (
	latestVersion = "2025-11-25"
	latestModern  = "2026-07-28"
)

// legacyVersions are the revisions in which a server may answer the handshake,
// oldest first. The first one predates the published list, but there are servers
// that still answer with it.
var legacyVersions = []string{"2024-10-07", "2024-11-05", "2025-03-26", "2025-06-18", latestVersion}

// modernVersions are the revisions without a handshake, oldest first.
var modernVersions = []string{latestModern}

// Bounds of what one message may hold. Its bytes are bounded elsewhere; these
// keep the smallest possible elements from taking many times their text.
const (
	maxPageTools = 10_000  // tools of one page
	maxContents  = 100_000 // contents of one result
)

// codeMethodNotFound is the JSON-RPC error for a method that is not offered, and
// codeUnsupportedVersion the protocol's for a version that is not spoken.
const (
	codeMethodNotFound     = -32601
	codeUnsupportedVersion = -32022
)

// Bounds, in bytes, of text of a server's that is quoted in an error.
const (
	maxQuotedMessage = 4 << 10
	maxQuotedData    = 1 << 10
	maxQuotedName    = 80
)

// Implementation names a program that speaks the protocol, as the handshake
// exchanges it in clientInfo and serverInfo. Every text of a server's
// Implementation was written by that server.
type Implementation struct {
	Name    string `json:"name"`
	Title   string `json:"title,omitempty"` // for people; empty if not given
	Version string `json:"version"`
}

// cleaned makes what a server said of itself fit to be shown.
func (i Implementation) cleaned() Implementation {
	return Implementation{
		Name: cleanText(i.Name, maxQuotedName), Title: cleanText(i.Title, maxQuotedName), Version: cleanText(i.Version, maxQuotedName),
	}
}

// DiscoveredTool is one tool as a server describes it, in the shape of the tools
// section of the specification. It holds nothing of a host's. The raw parts are
// the server's JSON and must not be changed, because every caller gets the same
// ones; a part that is absent or null is nil.
type DiscoveredTool struct {
	Name        string `json:"name"`                  // never empty, and unique within a server
	Title       string `json:"title,omitempty"`       // for people
	Description string `json:"description,omitempty"` // for the model

	// InputSchema is the JSON Schema of the arguments, an object or a boolean. A
	// tool without one accepts any object, so it gets {"type":"object"}.
	InputSchema  json.RawMessage `json:"inputSchema"`
	OutputSchema json.RawMessage `json:"outputSchema,omitempty"`

	Annotations *ToolAnnotations `json:"annotations,omitempty"` // nil if the server gave none
	Icons       json.RawMessage  `json:"icons,omitempty"`
	Execution   json.RawMessage  `json:"execution,omitempty"`
	Meta        json.RawMessage  `json:"_meta,omitempty"`
}

// ToolAnnotations are a server's hints about a tool. A server is free to lie in
// them. A hint is true, false or, as nil, not given: three facts, since a host
// may want to treat a tool without a readOnlyHint as one that writes.
type ToolAnnotations struct {
	Title           string `json:"title,omitempty"`
	ReadOnlyHint    *bool  `json:"readOnlyHint,omitempty"`
	DestructiveHint *bool  `json:"destructiveHint,omitempty"`
	IdempotentHint  *bool  `json:"idempotentHint,omitempty"`
	OpenWorldHint   *bool  `json:"openWorldHint,omitempty"`
}

// CallToolResult is what a tool returned. It belongs to the caller of CallTool.
// All raw parts are slices of Raw, so keeping one of them keeps all.
type CallToolResult struct {
	Content           []Content       `json:"content"`                     // in the server's order; never nil
	StructuredContent json.RawMessage `json:"structuredContent,omitempty"` // nil if absent or null
	IsError           bool            `json:"isError,omitempty"`           // the tool ran and says that it failed
	Meta              json.RawMessage `json:"_meta,omitempty"`

	// Raw is the whole result as the server wrote it, with members that this
	// package does not know. Only what is no well-formed Unicode was replaced.
	Raw json.RawMessage `json:"-"`

	kind resultKind
}

// resultKind is what a result says of itself in resultType, which the modern era
// has and the legacy one does not know.
type resultKind uint8

const (
	resultComplete      resultKind = iota // also if it says nothing
	resultInputRequired                   // the server wants to know something first
	resultUnknown
)

func decodeResultKind(raw []byte) resultKind {
	switch {
	case isNull(raw) || decodeString(raw) == "complete":
		return resultComplete
	case decodeString(raw) == "input_required":
		return resultInputRequired
	}
	return resultUnknown
}

// Text joins the texts of all text contents with line feeds.
func (r *CallToolResult) Text() string {
	if len(r.Content) == 1 && r.Content[0].Type == contentText {
		return r.Content[0].Text
	}
	var texts []string
	for _, content := range r.Content {
		if content.Type == contentText {
			texts = append(texts, content.Text)
		}
	}
	return strings.Join(texts, "\n")
}

// The kinds of content that the specification knows.
const (
	contentText         = "text"
	contentImage        = "image"
	contentAudio        = "audio"
	contentResourceLink = "resource_link"
	contentResource     = "resource"
)

// Content is one piece of a result. Texts are decoded at once; Blob,
// ResourceLink and Resource decode the other kinds from Raw when asked. A kind
// that this package does not know keeps its place and its Raw.
type Content struct {
	Type string // empty if the piece has none
	Text string // of a text
	Raw  json.RawMessage
}

// MarshalJSON gives Raw, or the members of a text if there is no Raw.
func (c Content) MarshalJSON() ([]byte, error) {
	if c.Raw != nil {
		return c.Raw, nil
	}
	encoded := appendString([]byte(`{"type":`), c.Type)
	encoded = appendString(append(encoded, `,"text":`...), c.Text)
	return append(encoded, '}'), nil
}

// Blob is the data of an image or audio content, already decoded from base64.
type Blob struct {
	Data     []byte
	MIMEType string
}

// ResourceLink points to a resource that the server offers to read.
type ResourceLink struct {
	URI         string
	Name        string
	Title       string
	Description string
	MIMEType    string
	Size        int64 // in bytes; -1 if not given
}

// ResourceContents is a resource that came inside of a result: a text, or bytes
// if Blob is not nil.
type ResourceContents struct {
	URI      string
	MIMEType string
	Text     string
	Blob     []byte
}

// RPCError is a server's answer that a request failed, as JSON-RPC 2.0 and the
// specification's base protocol describe it. Servers write errors of any shape:
// what can be read is in the fields, and Raw has all of it.
type RPCError struct {
	Code    int64 // 0 also if the server gave none that is an integer
	Message string
	Data    json.RawMessage // nil if absent or null
	Raw     json.RawMessage // the whole error; nil if it did not come from a server

	noCode bool
}

// Error gives the code, the message and the data. They are the server's words:
// control characters are gone, and long ones are cut.
func (e *RPCError) Error() string {
	var text strings.Builder
	if e.noCode {
		text.WriteString("error without a code")
	} else {
		text.WriteString("code " + strconv.FormatInt(e.Code, 10))
	}
	switch {
	case e.Message != "":
		text.WriteString(": " + cleanText(e.Message, maxQuotedMessage))
	case e.noCode && e.Raw != nil:
		text.WriteString(": " + cleanText(string(e.Raw[:min(len(e.Raw), maxQuotedData)]), maxQuotedData))
	}
	if e.Data != nil {
		text.WriteString("; data: " + cleanText(string(e.Data[:min(len(e.Data), maxQuotedData)]), maxQuotedData))
	}
	return text.String()
}

// initializeResult is a server's answer to the handshake.
type initializeResult struct {
	version      string
	server       Implementation
	instructions string

	// What the server declares to have.
	tools       bool
	listChanged bool // of the tools
	prompts     bool
	resources   bool

	capabilities json.RawMessage // a copy; nil if absent or null
}

// toolsPage is one page of a list of tools.
type toolsPage struct {
	tools   []DiscoveredTool
	dropped []string // for each tool that cannot be used, which one and why

	size int // in bytes

	nextCursor string
	hasCursor  bool // an empty cursor is one in some revisions
	kind       resultKind
}

// Decoding. Raw values come out of parseMessage, so they are valid JSON. Names
// are compared exactly, which struct tags of encoding/json would not do.

// errNoObject says that a result has the wrong shape altogether.
var errNoObject = errors.New("the result is not an object")

// decodeCallToolResult decodes the answer to a call and takes over raw. A
// content or an isError of the wrong type is an error; contents of an unknown
// kind, or of none, are kept raw.
func decodeCallToolResult(raw []byte) (*CallToolResult, error) {
	if kindOf(raw) != '{' {
		return nil, errNoObject
	}
	var content, structured, isError, meta, kind []byte
	c := newObjectCursor(raw)
	for name, value, ok := c.next(); ok; name, value, ok = c.next() {
		switch string(name) {
		case "content":
			content = value
		case "structuredContent":
			structured = value
		case "isError":
			isError = value
		case "_meta":
			meta = value
		case "resultType":
			kind = value
		}
	}
	failed, ok := decodeBool(isError)
	if !ok && !isNull(isError) {
		return nil, errors.New("isError is not a boolean")
	}
	contents, err := decodeContents(content)
	if err != nil {
		return nil, err
	}
	return &CallToolResult{
		Content: contents, StructuredContent: present(structured), IsError: failed, Meta: present(meta), Raw: raw,
		kind: decodeResultKind(kind),
	}, nil
}

func decodeContents(raw []byte) ([]Content, error) {
	if isNull(raw) {
		return []Content{}, nil
	}
	if kindOf(raw) != '[' {
		return nil, errors.New("content is not an array")
	}
	contents := []Content{}
	c := newArrayCursor(raw)
	for rest := c.rest(); len(rest) > 0; rest = c.rest() {
		if len(contents) == maxContents {
			return nil, fmt.Errorf("%w: the result has more than %d contents", ErrTooLarge, maxContents)
		}
		content := decodeContent(rest)
		c.skip(len(content.Raw))
		contents = append(contents, content)
	}
	return contents, nil
}

// decodeContent decodes the value that raw starts with.
func decodeContent(raw []byte) Content {
	if kindOf(raw) != '{' {
		n := skipValue(raw, 0)
		return Content{Raw: raw[:n:n]}
	}
	var kind, text []byte
	c := newObjectCursor(raw)
	for name, value, ok := c.next(); ok; name, value, ok = c.next() {
		switch string(name) {
		case "type":
			kind = value
		case "text":
			text = value
		}
	}
	content := Content{Type: contentKind(kind), Raw: raw[:c.pos:c.pos]}
	if content.Type == contentText {
		content.Text = shownText(text)
	}
	return content
}

// contentKind decodes a kind, at no cost if it is a known one.
func contentKind(raw []byte) string {
	switch string(raw) {
	case `"text"`:
		return contentText
	case `"image"`:
		return contentImage
	case `"audio"`:
		return contentAudio
	case `"resource_link"`:
		return contentResourceLink
	case `"resource"`:
		return contentResource
	}
	return decodeString(raw)
}

// shownText decodes a text. One that is no string is shown as the JSON it is:
// better than to lose what the tool said.
func shownText(raw []byte) string {
	if kindOf(raw) == '"' || isNull(raw) {
		return decodeString(raw)
	}
	return string(raw)
}

// Blob decodes an image or audio content.
func (c Content) Blob() (Blob, error) {
	if c.Type != contentImage && c.Type != contentAudio {
		return Blob{}, c.kindError("an image or audio")
	}
	var blob Blob
	var data []byte
	cursor := newObjectCursor(c.Raw)
	for name, value, ok := cursor.next(); ok; name, value, ok = cursor.next() {
		switch string(name) {
		case "data":
			data = value
		case "mimeType":
			blob.MIMEType = decodeString(value)
		}
	}
	var err error
	blob.Data, err = decodeBase64(data)
	return blob, err
}

// ResourceLink decodes a resource_link content.
func (c Content) ResourceLink() (ResourceLink, error) {
	if c.Type != contentResourceLink {
		return ResourceLink{}, c.kindError("a resource link")
	}
	link := ResourceLink{Size: -1}
	cursor := newObjectCursor(c.Raw)
	for name, value, ok := cursor.next(); ok; name, value, ok = cursor.next() {
		switch string(name) {
		case "uri":
			link.URI = decodeString(value)
		case "name":
			link.Name = decodeString(value)
		case "title":
			link.Title = decodeString(value)
		case "description":
			link.Description = decodeString(value)
		case "mimeType":
			link.MIMEType = decodeString(value)
		case "size":
			link.Size = decodeSize(value)
		}
	}
	if link.URI == "" {
		return ResourceLink{}, errors.New("mcp: the resource link has no uri")
	}
	return link, nil
}

// Resource decodes a resource content.
func (c Content) Resource() (ResourceContents, error) {
	if c.Type != contentResource {
		return ResourceContents{}, c.kindError("a resource")
	}
	var resource []byte
	cursor := newObjectCursor(c.Raw)
	for name, value, ok := cursor.next(); ok; name, value, ok = cursor.next() {
		if string(name) == "resource" {
			resource = value
		}
	}
	if kindOf(resource) != '{' {
		return ResourceContents{}, errors.New("mcp: the resource is not an object")
	}
	return decodeResource(resource)
}

func decodeResource(raw []byte) (contents ResourceContents, err error) {
	var blob []byte
	cursor := newObjectCursor(raw)
	for name, value, ok := cursor.next(); ok; name, value, ok = cursor.next() {
		switch string(name) {
		case "uri":
			contents.URI = decodeString(value)
		case "mimeType":
			contents.MIMEType = decodeString(value)
		case "text":
			contents.Text = shownText(value)
		case "blob":
			blob = value
		}
	}
	if !isNull(blob) {
		contents.Blob, err = decodeBase64(blob)
	}
	return contents, err
}

func (c Content) kindError(want string) error {
	return fmt.Errorf("mcp: the content is %q, not %s", cleanText(c.Type, maxQuotedName), want)
}

func decodeBase64(raw []byte) ([]byte, error) {
	text, ok := unquote(raw)
	if !ok {
		return nil, errors.New("mcp: the content has no base64 data")
	}
	data, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return nil, fmt.Errorf("mcp: the data of the content: %w", err)
	}
	return data, nil
}

func decodeSize(raw []byte) int64 {
	if n, ok := parseIntegral(raw); ok && n >= 0 {
		return n
	}
	return -1
}

// decodeRPCError decodes an error of any shape and takes over raw. There is
// always an error, because the server says so; null is no error and is left to
// the caller.
func decodeRPCError(raw []byte) *RPCError {
	var code, message, data []byte
	c := newObjectCursor(raw)
	for name, value, ok := c.next(); ok; name, value, ok = c.next() {
		switch string(name) {
		case "code":
			code = value
		case "message":
			message = value
		case "data":
			data = value
		}
	}
	if kindOf(raw) == '"' {
		message = raw
	}
	e := &RPCError{Message: shownText(message), Data: present(data), Raw: raw}
	n, ok := parseID(code) // the same forms of an integer
	e.Code, e.noCode = n, !ok
	return e
}

// decodeInitializeResult decodes the answer to the handshake. Nothing of it
// aliases raw, since it is kept as long as the connection lives.
func decodeInitializeResult(raw []byte) (initializeResult, error) {
	if kindOf(raw) != '{' {
		return initializeResult{}, errNoObject
	}
	var version, capabilities, server, instructions []byte
	c := newObjectCursor(raw)
	for name, value, ok := c.next(); ok; name, value, ok = c.next() {
		switch string(name) {
		case "protocolVersion":
			version = value
		case "capabilities":
			capabilities = value
		case "serverInfo":
			server = value
		case "instructions":
			instructions = value
		}
	}
	if decodeString(version) == "" {
		return initializeResult{}, errors.New("the result names no protocolVersion")
	}
	result := initializeResult{
		version:      decodeString(version),
		server:       decodeImplementation(server),
		instructions: decodeString(instructions),
		capabilities: bytes.Clone(present(capabilities)),
	}
	result.declare(capabilities)
	return result, nil
}

// decodeDiscoverResult decodes the modern counterpart of it and returns the
// versions that the server speaks beside. Which one of them counts is left to
// the caller. As above, nothing aliases raw.
func decodeDiscoverResult(raw []byte) (initializeResult, []string, error) {
	if kindOf(raw) != '{' {
		return initializeResult{}, nil, errNoObject
	}
	var supported, capabilities, instructions, meta, kind []byte
	c := newObjectCursor(raw)
	for name, value, ok := c.next(); ok; name, value, ok = c.next() {
		switch string(name) {
		case "supportedVersions":
			supported = value
		case "capabilities":
			capabilities = value
		case "instructions":
			instructions = value
		case "_meta":
			meta = value
		case "resultType":
			kind = value
		}
	}
	versions := decodeStrings(supported)
	switch {
	case decodeResultKind(kind) != resultComplete:
		return initializeResult{}, nil, errors.New("its resultType is not complete")
	case len(versions) == 0:
		return initializeResult{}, nil, errors.New("the result names no supportedVersions")
	}
	result := initializeResult{
		server:       decodeImplementation(member(meta, metaServerInfo)),
		instructions: decodeString(instructions),
		capabilities: bytes.Clone(present(capabilities)),
	}
	result.declare(capabilities)
	return result, versions, nil
}

// decodeSupported gives the versions that the data of an error says the server speaks.
func decodeSupported(data []byte) []string { return decodeStrings(member(data, "supported")) }

// decodeSubscription gives the request that a notification belongs to.
func decodeSubscription(params []byte) (id int64, ok bool) {
	return parseID(member(member(params, "_meta"), metaSubscription))
}

// decodeInputMethods names what a result that is not final asks for, each once.
func decodeInputMethods(raw []byte) []string {
	var methods []string
	c := newObjectCursor(member(raw, "inputRequests"))
	for _, value, ok := c.next(); ok; _, value, ok = c.next() {
		method := decodeString(member(value, "method"))
		if !slices.Contains(methods, method) && len(methods) < maxInputMethods {
			methods = append(methods, method)
		}
	}
	slices.Sort(methods)
	return methods
}

// maxInputMethods is more than there are.
const maxInputMethods = 16

// member finds a member of an object; nil if it is absent, or raw no object.
func member(raw []byte, wanted string) []byte {
	var found []byte
	c := newObjectCursor(raw)
	for name, value, ok := c.next(); ok; name, value, ok = c.next() {
		if string(name) == wanted {
			found = value
		}
	}
	return found
}

// decodeStrings gives the strings in an array, 100 at most, and skips all else.
func decodeStrings(raw []byte) []string {
	var texts []string
	c := newArrayCursor(raw)
	for value, ok := c.next(); ok && len(texts) < 100; value, ok = c.next() {
		if text := decodeString(value); text != "" {
			texts = append(texts, text)
		}
	}
	return texts
}

// declare reads what a server says to have. Null and absent mean not to have it.
func (r *initializeResult) declare(capabilities []byte) {
	var tools []byte
	c := newObjectCursor(capabilities)
	for name, value, ok := c.next(); ok; name, value, ok = c.next() {
		switch string(name) {
		case "tools":
			r.tools, tools = isDeclared(value), value
		case "prompts":
			r.prompts = isDeclared(value)
		case "resources":
			r.resources = isDeclared(value)
		}
	}
	c = newObjectCursor(tools)
	for name, value, ok := c.next(); ok; name, value, ok = c.next() {
		if string(name) == "listChanged" {
			r.listChanged, _ = decodeBool(value)
		}
	}
}

func isDeclared(raw []byte) bool {
	return !isNull(raw) && kindOf(raw) != 'f'
}

func decodeImplementation(raw []byte) Implementation {
	var info Implementation
	c := newObjectCursor(raw)
	for name, value, ok := c.next(); ok; name, value, ok = c.next() {
		switch string(name) {
		case "name":
			info.Name = decodeString(value)
		case "title":
			info.Title = decodeString(value)
		case "version":
			info.Version = decodeString(value)
		}
	}
	return info
}

// decodeToolsPage decodes one page of a list, tool by tool: one that cannot be
// used costs the others nothing. Nothing of it aliases raw, so that a page full
// of other things does not stay in memory with the tools.
func decodeToolsPage(raw []byte) (toolsPage, error) {
	if kindOf(raw) != '{' {
		return toolsPage{}, errNoObject
	}
	var tools, cursor, kind []byte
	c := newObjectCursor(raw)
	for name, value, ok := c.next(); ok; name, value, ok = c.next() {
		switch string(name) {
		case "tools":
			tools = value
		case "nextCursor":
			cursor = value
		case "resultType":
			kind = value
		}
	}
	if !isNull(tools) && kindOf(tools) != '[' {
		return toolsPage{}, errors.New("tools is not an array")
	}
	page := toolsPage{kind: decodeResultKind(kind)}
	page.nextCursor, page.hasCursor = unquote(cursor)
	if !page.hasCursor && !isNull(cursor) {
		return toolsPage{}, errors.New("nextCursor is not a string")
	}
	return page, page.decodeTools(tools)
}

func (p *toolsPage) decodeTools(raw []byte) error {
	var keep arena
	c := newArrayCursor(raw)
	for rest := c.rest(); len(rest) > 0; rest = c.rest() {
		n := len(p.tools) + len(p.dropped)
		if n == maxPageTools {
			return fmt.Errorf("%w: the server lists more than %d tools on one page", ErrTooLarge, maxPageTools)
		}
		tool, size, fault := decodeTool(rest, &keep)
		c.skip(size)
		if fault == "" {
			if p.tools == nil {
				p.tools = make([]DiscoveredTool, 0, min(len(rest)/size+1, maxPageTools))
			}
			p.tools = append(p.tools, tool)
			continue
		}
		which := "tool " + strconv.Itoa(n+1) + " of the page"
		if tool.Name != "" {
			which = strconv.Quote(cleanText(tool.Name, maxQuotedName))
		}
		p.dropped = append(p.dropped, which+": "+fault)
	}
	return nil
}

// decodeTool decodes the tool that raw starts with and takes size bytes, or tells
// why it cannot be used. An optional part of the wrong type is left out.
func decodeTool(raw []byte, keep *arena) (tool DiscoveredTool, size int, fault string) {
	if kindOf(raw) != '{' {
		return tool, skipValue(raw, 0), "it is not an object"
	}
	c := newObjectCursor(raw)
	for name, value, ok := c.next(); ok; name, value, ok = c.next() {
		tool.set(name, value)
	}
	if tool.Name == "" {
		return tool, c.pos, "it has no name"
	}
	if isNull(tool.InputSchema) {
		tool.InputSchema = []byte(`{"type":"object"}`)
	}
	if !isSchema(tool.InputSchema) {
		return tool, c.pos, "its inputSchema is no JSON Schema"
	}
	if !isSchema(tool.OutputSchema) {
		tool.OutputSchema = nil
	}
	for _, part := range []*json.RawMessage{&tool.InputSchema, &tool.OutputSchema, &tool.Icons, &tool.Execution, &tool.Meta} {
		*part = keep.clone(present(*part))
	}
	return tool, c.pos, ""
}

// set takes over one member; the raw ones still alias the page.
func (t *DiscoveredTool) set(name, value []byte) {
	switch string(name) {
	case "name":
		t.Name = decodeString(value)
	case "title":
		t.Title = decodeString(value)
	case "description":
		t.Description = decodeString(value)
	case "inputSchema":
		t.InputSchema = value
	case "outputSchema":
		t.OutputSchema = value
	case "annotations":
		t.Annotations = decodeAnnotations(value)
	case "icons":
		t.Icons = value
	case "execution":
		t.Execution = value
	case "_meta":
		t.Meta = value
	}
}

// isSchema reports whether raw can be a JSON Schema: an object, or a boolean,
// which accepts all or nothing.
func isSchema(raw []byte) bool {
	kind := kindOf(raw)
	return kind == '{' || kind == 't' || kind == 'f'
}

func decodeAnnotations(raw []byte) *ToolAnnotations {
	if kindOf(raw) != '{' {
		return nil
	}
	a := new(ToolAnnotations)
	c := newObjectCursor(raw)
	for name, value, ok := c.next(); ok; name, value, ok = c.next() {
		switch string(name) {
		case "title":
			a.Title = decodeString(value)
		case "readOnlyHint":
			a.ReadOnlyHint = decodeHint(value)
		case "destructiveHint":
			a.DestructiveHint = decodeHint(value)
		case "idempotentHint":
			a.IdempotentHint = decodeHint(value)
		case "openWorldHint":
			a.OpenWorldHint = decodeHint(value)
		}
	}
	return a
}

// decodeHint gives nil for what is neither true nor false: it was not given.
func decodeHint(raw []byte) *bool {
	if value, ok := decodeBool(raw); ok {
		return &value
	}
	return nil
}

func decodeBool(raw []byte) (value, ok bool) {
	kind := kindOf(raw)
	return kind == 't', kind == 't' || kind == 'f'
}

// decodeString gives "" for what is no string.
func decodeString(raw []byte) string {
	text, _ := unquote(raw)
	return text
}

// present gives nil for a value that is absent or null.
func present(raw []byte) json.RawMessage {
	if isNull(raw) {
		return nil
	}
	return raw
}

// arena holds many small copies in few allocations. The copies of a page live
// and die together, more or less.
type arena struct{ free []byte }

// arenaChunk is small, because one tool that stays on keeps its chunk.
const arenaChunk = 4 << 10

// clone copies b, and gives nil for nil.
func (a *arena) clone(b []byte) []byte {
	if b == nil {
		return nil
	}
	if len(b) > cap(a.free)-len(a.free) {
		if len(b) > arenaChunk/4 {
			return bytes.Clone(b)
		}
		a.free = make([]byte, 0, arenaChunk)
	}
	start := len(a.free)
	a.free = append(a.free, b...)
	return a.free[start:len(a.free):len(a.free)]
}

// Encoding. Everything is appended to a buffer of the caller's, one message a
// line; a raw value cannot hold a line break inside of a token.

// appendRequest appends a request as one line. The params are appended by a
// function, so that large ones are written once; a nil one leaves the member
// out. A meta that is not nil becomes their _meta.
func appendRequest(dst []byte, id int64, method string, meta []byte, params func(dst []byte) ([]byte, error)) ([]byte, error) {
	dst = append(dst, `{"jsonrpc":"2.0","id":`...)
	dst = appendID(dst, id)
	dst = append(dst, `,"method":`...)
	dst = appendString(dst, method)
	start := len(dst)
	if params != nil {
		var err error
		if dst, err = params(append(dst, `,"params":`...)); err != nil {
			return dst, err
		}
	}
	if meta != nil {
		dst = spliceMeta(dst, start, meta)
	}
	return append(dst, "}\n"...), nil
}

// spliceMeta adds the _meta to the params, which were appended from start on, as
// their last member, or as the only one.
func spliceMeta(dst []byte, start int, meta []byte) []byte {
	if len(dst) == start {
		dst = append(dst, `,"params":{`...)
	} else {
		dst = append(dst[:len(dst)-1], ',')
	}
	dst = append(dst, `"_meta":`...)
	dst = append(dst, meta...)
	return append(dst, '}')
}

// What the members of a _meta are called.
const (
	metaVersion      = "io.modelcontextprotocol/protocolVersion"
	metaClientInfo   = "io.modelcontextprotocol/clientInfo"
	metaCapabilities = "io.modelcontextprotocol/clientCapabilities"
	metaServerInfo   = "io.modelcontextprotocol/serverInfo"
	metaSubscription = "io.modelcontextprotocol/subscriptionId"
)

// appendMeta appends the _meta of a modern request.
func appendMeta(dst []byte, version string, client Implementation) []byte {
	dst = appendString(append(dst, `{"`+metaVersion+`":`...), version)
	dst = appendImplementation(append(dst, `,"`+metaClientInfo+`":`...), client)
	return append(dst, `,"`+metaCapabilities+`":{}}`...)
}

func appendImplementation(dst []byte, i Implementation) []byte {
	dst = appendString(append(dst, `{"name":`...), i.Name)
	if i.Title != "" {
		dst = appendString(append(dst, `,"title":`...), i.Title)
	}
	dst = appendString(append(dst, `,"version":`...), i.Version)
	return append(dst, '}')
}

// Requests are numbered from 1. Probes have numbers of their own, which are
// strings on the wire, so that no answer of a confused server can be taken for
// that to another request; here they are where no number on the wire leads.

func probeID(n int64) int64   { return math.MinInt64 + n }
func isProbeID(id int64) bool { return id < math.MinInt64/2 }

const probePrefix = "probe-"

func appendID(dst []byte, id int64) []byte {
	if !isProbeID(id) {
		return strconv.AppendInt(dst, id, 10)
	}
	dst = strconv.AppendInt(append(dst, `"`+probePrefix...), id-math.MinInt64, 10)
	return append(dst, '"')
}

// parseAnswerID gives the request that a raw id stands for.
func parseAnswerID(raw []byte) (int64, bool) {
	if id, ok := parseID(raw); ok {
		return id, !isProbeID(id)
	}
	text, found := strings.CutPrefix(decodeString(raw), probePrefix)
	n, err := strconv.ParseInt(text, 10, 32)
	return probeID(n), found && err == nil && n > 0
}

// appendNotification appends a notification as one line. With nil params the
// member is left out.
func appendNotification(dst []byte, method string, params []byte) []byte {
	dst = append(dst, `{"jsonrpc":"2.0","method":`...)
	dst = appendString(dst, method)
	if params != nil {
		dst = append(dst, `,"params":`...)
		dst = append(dst, params...)
	}
	return append(dst, "}\n"...)
}

// appendCancelled appends the notification that nobody waits for an answer any more.
func appendCancelled(dst []byte, id int64) []byte {
	params := strconv.AppendInt([]byte(`{"requestId":`), id, 10)
	return appendNotification(dst, "notifications/cancelled", append(params, '}'))
}

// appendResult appends the answer to a request of the server's as one line, with
// its raw id byte for byte.
func appendResult(dst, id, result []byte) []byte {
	dst = append(dst, `{"jsonrpc":"2.0","id":`...)
	dst = append(dst, id...)
	dst = append(dst, `,"result":`...)
	dst = append(dst, result...)
	return append(dst, "}\n"...)
}

// appendErrorReply appends the refusal of a request of the server's as one line.
func appendErrorReply(dst, id []byte, code int, message string) []byte {
	dst = append(dst, `{"jsonrpc":"2.0","id":`...)
	dst = append(dst, id...)
	dst = append(dst, `,"error":{"code":`...)
	dst = strconv.AppendInt(dst, int64(code), 10)
	dst = append(dst, `,"message":`...)
	dst = appendString(dst, message)
	return append(dst, "}}\n"...)
}

// appendString appends s as a JSON string, as encoding/json does without its
// escapes for HTML: bytes that are not UTF-8 become U+FFFD, and the two line
// separators beyond ASCII are escaped, because some servers cut lines at them.
func appendString(dst []byte, s string) []byte {
	dst = append(dst, '"')
	for {
		n := plainPrefix(s)
		dst = append(dst, s[:n]...)
		if s = s[n:]; s == "" {
			return append(dst, '"')
		}
		r, size := utf8.DecodeRuneInString(s)
		dst = appendSpecial(dst, r)
		s = s[size:]
	}
}

// plainPrefix measures the start of s that a JSON string can hold as it is.
func plainPrefix(s string) int {
	for i := 0; ; {
		i = plainASCII(s, i)
		if i == len(s) || s[i] < utf8.RuneSelf {
			return i
		}
		for i < len(s) && s[i] >= utf8.RuneSelf {
			r, size := utf8.DecodeRuneInString(s[i:])
			if r == utf8.RuneError && size == 1 || r == '\u2028' || r == '\u2029' {
				return i
			}
			i += size
		}
	}
}

// plainASCII moves from i over what is ASCII and needs no escape, eight bytes at
// a time.
func plainASCII(s string, i int) int {
	for ; len(s)-i >= 8; i += 8 {
		word := loadWord(s[i : i+8])
		if marks := endsPlain(word) | word&topBits; marks != 0 {
			return i + bits.TrailingZeros64(marks)/8
		}
	}
	for i < len(s) && s[i] < utf8.RuneSelf && endsPlain(uint64(s[i])|evenSpaces) == 0 {
		i++
	}
	return i
}

// loadWord is binary.LittleEndian.Uint64 for a string; the compiler makes one
// load of it, too.
func loadWord(s string) uint64 {
	_ = s[7]
	return uint64(s[0]) | uint64(s[1])<<8 | uint64(s[2])<<16 | uint64(s[3])<<24 |
		uint64(s[4])<<32 | uint64(s[5])<<40 | uint64(s[6])<<48 | uint64(s[7])<<56
}

// appendSpecial appends a character that a JSON string cannot hold as it is.
func appendSpecial(dst []byte, r rune) []byte {
	switch r {
	case '"', '\\':
		return append(dst, '\\', byte(r))
	case '\b':
		return append(dst, `\b`...)
	case '\f':
		return append(dst, `\f`...)
	case '\n':
		return append(dst, `\n`...)
	case '\r':
		return append(dst, `\r`...)
	case '\t':
		return append(dst, `\t`...)
	}
	const hex = "0123456789abcdef"
	return append(dst, '\\', 'u', hex[r>>12], hex[r>>8&15], hex[r>>4&15], hex[r&15])
}

// appendCallParams appends the parameters of a tool call. Nil arguments are an
// empty object. A json.RawMessage goes out as it is, but for line breaks between
// tokens, which become spaces. Anything else is encoded like encoding/json does
// it, without the escapes for HTML. What is not an object is refused, because
// the tools section of the specification knows no other arguments.
func appendCallParams(dst []byte, tool string, args any) ([]byte, error) {
	dst = append(dst, `{"name":`...)
	dst = appendString(dst, tool)
	dst = append(dst, `,"arguments":`...)
	dst, err := appendArguments(dst, args)
	if err != nil {
		return nil, err
	}
	return append(dst, '}'), nil
}

// Why arguments are refused. Other parsers than encoding/json may drop a line
// that is not UTF-8, or die of it.
var (
	errArguments = errors.New("the arguments are not a JSON object")
	errNotUTF8   = errors.New("the arguments are not UTF-8")
)

func appendArguments(dst []byte, args any) ([]byte, error) {
	switch raw := args.(type) {
	case json.RawMessage:
		return appendRawArguments(dst, raw)
	case []byte:
		return appendRawArguments(dst, raw)
	case string:
		return nil, errors.New("the arguments are a Go string: if it holds JSON, pass it as json.RawMessage")
	}
	start := len(dst)
	dst, err := appendValue(dst, args, 0)
	if err != nil {
		return nil, fmt.Errorf("the arguments cannot be encoded: %w", err)
	}
	switch encoded := dst[start:]; kindOf(encoded) {
	case '{':
		return dst, nil
	case 'n':
		return append(dst[:start], "{}"...), nil
	}
	return nil, errArguments
}

func appendRawArguments(dst []byte, raw json.RawMessage) ([]byte, error) {
	if len(raw) == 0 {
		return append(dst, "{}"...), nil
	}
	s := scanner{data: raw}
	s.space()
	switch {
	case !s.value() || !s.atEnd():
		return nil, errors.New("the arguments are not valid JSON")
	case s.wide && !utf8.Valid(raw):
		return nil, errNotUTF8
	case kindOf(raw) != '{':
		return nil, errArguments
	}
	start := len(dst)
	dst = append(dst, raw...)
	spaceOut(dst[start:], '\n')
	spaceOut(dst[start:], '\r')
	return dst, nil
}

// spaceOut replaces a kind of line break, which valid JSON has between tokens
// only.
func spaceOut(b []byte, lineBreak byte) {
	for i := bytes.IndexByte(b, lineBreak); i >= 0; i = bytes.IndexByte(b, lineBreak) {
		b[i] = ' '
		b = b[i+1:]
	}
}

// plainDepth is how deep appendValue goes itself. What nests deeper may be a
// cycle, which encoding/json knows how to refuse.
const plainDepth = 32

// appendValue encodes what arguments mostly consist of, with the same bytes as
// encoding/json but in a fraction of its time, and leaves all else to it.
func appendValue(dst []byte, v any, depth int) ([]byte, error) {
	if depth > plainDepth {
		return appendEncoded(dst, v)
	}
	switch v := v.(type) {
	case nil:
		return append(dst, "null"...), nil
	case string:
		return appendString(dst, v), nil
	case bool:
		return strconv.AppendBool(dst, v), nil
	case int:
		return strconv.AppendInt(dst, int64(v), 10), nil
	case map[string]any:
		return appendMap(dst, v, depth)
	case []any:
		return appendSlice(dst, v, depth)
	}
	return appendEncoded(dst, v)
}

func appendMap(dst []byte, m map[string]any, depth int) ([]byte, error) {
	if m == nil {
		return append(dst, "null"...), nil
	}
	dst = append(dst, '{')
	for i, name := range slices.Sorted(maps.Keys(m)) {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(appendString(dst, name), ':')
		var err error
		if dst, err = appendValue(dst, m[name], depth+1); err != nil {
			return nil, err
		}
	}
	return append(dst, '}'), nil
}

func appendSlice(dst []byte, values []any, depth int) ([]byte, error) {
	if values == nil {
		return append(dst, "null"...), nil
	}
	dst = append(dst, '[')
	for i, value := range values {
		if i > 0 {
			dst = append(dst, ',')
		}
		var err error
		if dst, err = appendValue(dst, value, depth+1); err != nil {
			return nil, err
		}
	}
	return append(dst, ']'), nil
}

// appendEncoded appends what encoding/json makes of v.
func appendEncoded(dst []byte, v any) ([]byte, error) {
	buffer := bytes.NewBuffer(dst)
	encoder := json.NewEncoder(buffer)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(v); err != nil {
		return nil, err
	}
	encoded := bytes.TrimSuffix(buffer.Bytes(), []byte("\n"))
	if !utf8.Valid(encoded[len(dst):]) {
		return nil, errNotUTF8 // out of a json.RawMessage or a Marshaler inside
	}
	return encoded, nil
}

// cleanText makes text that a server wrote fit to be shown: escape sequences of
// terminals and invisible format characters (among them those that turn the
// direction of writing) are taken out, control characters and line breaks become
// spaces, bytes that are not UTF-8 become U+FFFD. The result has at most limit
// bytes; an ellipsis ends it if that cut it.
func cleanText(s string, limit int) string {
	const ellipsis = "…"
	var text strings.Builder
	cut := 0 // where to cut to have room for the ellipsis
	for s != "" {
		r, size := utf8.DecodeRuneInString(s)
		if skip := escapeSequence(s); skip > 0 {
			s = s[skip:]
			continue
		}
		s = s[size:]
		if unicode.Is(unicode.Cf, r) {
			continue
		}
		if unicode.In(r, unicode.Cc, unicode.Zl, unicode.Zp) {
			r = ' '
		}
		text.WriteRune(r)
		if text.Len() > limit {
			if limit < len(ellipsis) {
				return ""
			}
			return text.String()[:cut] + ellipsis
		}
		if text.Len() <= limit-len(ellipsis) {
			cut = text.Len()
		}
	}
	return text.String()
}

// escapeSequence measures the terminal escape sequence at the start of s: a
// control sequence, a string up to its terminator, or a plain pair. One that
// does not end is no more than its first characters, or it would hide the rest.
func escapeSequence(s string) int {
	introducer, n := "", 2
	switch {
	case strings.HasPrefix(s, "\u009b"):
		introducer = "["
	case len(s) > 1 && s[0] == '\x1b':
		introducer = s[1:2]
	default:
		return 0
	}
	switch introducer {
	case "[":
		end := strings.IndexFunc(s[n:], func(r rune) bool { return r < ' ' || '@' <= r })
		if end >= 0 && s[n+end] >= '@' && s[n+end] <= '~' {
			return n + end + 1
		}
	case "]", "P", "X", "^", "_":
		return n + controlString(s[n:])
	}
	if s[1] < ' ' || s[1] >= utf8.RuneSelf && s[0] == '\x1b' {
		return 1
	}
	return n
}

// controlString measures a string that a bell or ESC \ ends, 0 if none does
// within the length of a sequence that makes sense.
func controlString(s string) int {
	s = s[:min(len(s), 4<<10)]
	bell, terminator := strings.IndexByte(s, '\a'), strings.Index(s, "\x1b\\")
	switch {
	case bell >= 0 && (terminator < 0 || bell < terminator):
		return bell + 1
	case terminator >= 0:
		return terminator + 2
	}
	return 0
}
