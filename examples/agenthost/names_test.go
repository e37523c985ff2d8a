package main

import (
	"regexp"
	"strings"
	"testing"
)

func TestModelName(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		server, tool string
		want         string // ending in '*' where a hash follows
	}{
		"plain":                        {"notes", "read_note", "mcp__notes__read_note"},
		"with a dash":                  {"code-seek", "find-symbol", "mcp__code-seek__find-symbol"},
		"a glue in the tool":           {"a", "b__c", "mcp__a__b__c"},
		"a leading bar in the tool":    {"a", "_c", "mcp__a___c"},
		"just short enough":            {"s", strings.Repeat("t", 56), "mcp__s__" + strings.Repeat("t", 56)},
		"a character too long":         {"s", strings.Repeat("t", 57), "mcp__s__" + strings.Repeat("t", 39) + "_*"},
		"a dot":                        {"my.files", "read", "mcp__my_files__read_*"},
		"a slash in the tool":          {"files", "fs/read", "mcp__files__fs_read_*"},
		"letters of another script":    {"büro", "лес", "mcp__b_ro______*"},
		"a glue in the server":         {"a__b", "c", "mcp__a__b__c_*"},
		"a trailing bar in the server": {"a_", "c", "mcp__a___c_*"},
		"a tool that looks hashed":     {"a", "c_0123456789abcdef", "mcp__a__c_0123456789abcdef_*"},
		"a long server":                {strings.Repeat("s", 80), "read", "mcp__" + strings.Repeat("s", 16) + "__read_*"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := modelName(test.server, test.tool)
			start, hashed := strings.CutSuffix(test.want, "*")
			if hashed && (!strings.HasPrefix(got, start) || len(got) != len(start)+hashDigits) || !hashed && got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
			server, tool, ok := splitModelName(got)
			if ok == hashed || ok && (server != test.server || tool != test.tool) {
				t.Errorf("read back as %q, %q, %v", server, tool, ok)
			}
		})
	}
}

func TestSplitModelNameRefusesOthers(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"", "read_note", "mcp__", "mcp__a", "mcp__a__", "mcp____b", "mcp__a__b.c", "mcp__a__" + strings.Repeat("b", 60)} {
		if server, tool, ok := splitModelName(name); ok {
			t.Errorf("%q was read as %q, %q", name, server, tool)
		}
	}
}

// Names that are easily taken for each other get different ones.
func TestModelNamesAreUnique(t *testing.T) {
	t.Parallel()
	parts := []string{"a", "b", "_", "__", "a_", "_a", "a__b", "b__a", "a.b", "a_b", "a b", "A", strings.Repeat("a", 60), strings.Repeat("a", 61)}
	// A hashed name itself, in the hope to be taken for what it stands for.
	hashed := modelName("a.b", "c")
	parts = append(parts, strings.TrimPrefix(hashed, "mcp__a_b__"), strings.TrimPrefix(hashed, "mcp__"), hashed)
	seen := make(map[string][2]string)
	for _, server := range parts {
		for _, tool := range parts {
			name := modelName(server, tool)
			if other, taken := seen[name]; taken {
				t.Errorf("%q stands for both %q and %q", name, other, [2]string{server, tool})
			}
			seen[name] = [2]string{server, tool}
		}
	}
}

func FuzzModelName(f *testing.F) {
	f.Add("notes", "read_note")
	f.Add("a__", "__b")
	f.Add("\xff", strings.Repeat("é", 40))
	accepted := regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)
	f.Fuzz(func(t *testing.T, server, tool string) {
		name := modelName(server, tool)
		if !accepted.MatchString(name) {
			t.Errorf("%q, %q became %q, which a model's API refuses", server, tool, name)
		}
		if s, u, ok := splitModelName(name); ok && (s != server || u != tool) {
			t.Errorf("%q, %q became %q, which reads as %q, %q", server, tool, name, s, u)
		}
	})
}
