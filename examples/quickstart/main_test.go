package main

import (
	"os"
	"strings"
	"testing"
)

// The README shows this program, so what it shows compiles.
func TestReadmeShowsThisProgram(t *testing.T) {
	program, err := os.ReadFile("main.go")
	if err != nil {
		t.Fatal(err)
	}
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	// A Windows checkout may have other line ends.
	unix := strings.NewReplacer("\r\n", "\n").Replace
	_, body, found := strings.Cut(unix(string(program)), "\nfunc main() {\n")
	if !found {
		t.Fatal("main.go has no func main")
	}
	body = "func main() {\n" + body
	for _, block := range goBlocks(unix(string(readme))) {
		if strings.Contains(block, body) {
			return
		}
	}
	t.Errorf("no go block of README.md has this, word for word:\n%s", body)
}

// goBlocks returns what stands in the fenced go blocks of a text.
func goBlocks(text string) []string {
	var blocks []string
	for _, part := range strings.Split("\n"+text, "\n```go\n")[1:] {
		block, _, closed := strings.Cut(part, "\n```")
		if closed {
			blocks = append(blocks, block+"\n")
		}
	}
	return blocks
}
