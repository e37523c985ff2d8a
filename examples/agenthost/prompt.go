package main

import (
	"strings"

	"yagent/mcp"
)

// promptOpening would hold what a real agent is for.
const promptOpening = `You are an agent with tools from MCP servers. A tool of a server that is not
ready fails with an error that says what to do instead.`

// systemPrompt returns the prompt of one turn. The status text goes in as it is:
// it is safe in a prompt and was cut to its limit by the Manager. The servers'
// own instructions are no words of the host, so they stand apart, quoted.
func systemPrompt(status string, health []mcp.ServerHealth) string {
	var prompt strings.Builder
	prompt.WriteString(promptOpening + "\n\n# MCP servers\n\n" + status + "\n")
	for _, h := range health {
		// Advice about tools that cannot be called now only leads a model astray.
		if h.State.CountsTools() && h.Instructions != "" {
			prompt.WriteString("\n# What the server " + printable(h.Name) + " says about its use\n\n" + quote(h.Instructions) + "\n")
		}
	}
	return prompt.String()
}

// quote marks every line of a server's text, so that none can pass for a
// heading or a line of the host.
func quote(text string) string {
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		lines[i] = "> " + printable(line)
	}
	return strings.Join(lines, "\n")
}

// systemPrompt is what the model is told in the next turn.
func (h *host) systemPrompt() string {
	return systemPrompt(h.manager.StatusLines(), h.manager.Health())
}
