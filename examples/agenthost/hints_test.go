package main

import (
	"testing"

	"yagent/mcp"
)

func TestJudge(t *testing.T) {
	t.Parallel()
	yes, no := true, false
	tests := map[string]struct {
		annotations *mcp.ToolAnnotations
		want        effect
		text        string
	}{
		"says that it reads":    {&mcp.ToolAnnotations{ReadOnlyHint: &yes}, reads, "reads"},
		"says that it writes":   {&mcp.ToolAnnotations{ReadOnlyHint: &no}, writes, "writes"},
		"says nothing of it":    {&mcp.ToolAnnotations{IdempotentHint: &yes}, presumedWrites, "no hint, taken as writing"},
		"has no annotations":    {nil, presumedWrites, "no hint, taken as writing"},
		"is harmless otherwise": {&mcp.ToolAnnotations{DestructiveHint: &no}, presumedWrites, "no hint, taken as writing"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := judge(test.annotations); got != test.want || got.String() != test.text {
				t.Errorf("got %v, want %v", got, test.text)
			}
		})
	}
}
