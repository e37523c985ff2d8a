package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Members that this host does not act on are tolerated, since one file serves
// many hosts. But a misspelt one would be lost without a word, so the user is
// told of those that no host is known for.

// ownMembers are those of an entry that this host reads.
var ownMembers = []string{"command", "args", "env", "cwd", "disabled", "timeout", "url", "serverUrl", "httpUrl"}

// foreignMembers are other hosts' own. Nothing is lost without them here.
var foreignMembers = []string{
	"type", "transport", "headers", "name", "title", "description", "icon",
	"autoApprove", "alwaysAllow", "trust", "includeTools", "excludeTools", "disabledTools",
}

// entryNotes says what in an entry this host does not act on as the user may
// expect.
func entryNotes(entry serverEntry, members []member) []string {
	var notes []string
	for _, m := range members {
		if slices.Contains(ownMembers, m.name) || slices.Contains(foreignMembers, m.name) {
			continue
		}
		note := fmt.Sprintf("unknown member %q is ignored", m.name)
		if meant := nearest(m.name); meant != "" {
			note += fmt.Sprintf(" (did you mean %q?)", meant)
		}
		notes = append(notes, note)
	}
	for _, place := range unexpanded(entry) {
		notes = append(notes, fmt.Sprintf("%s has a ${...}, which this host does not expand", place))
	}
	return notes
}

// unexpanded returns where an entry has a variable of another host's. It shows no
// value, which may be a secret.
func unexpanded(entry serverEntry) []string {
	var places []string
	look := func(text, format string, args ...any) {
		if _, rest, opens := strings.Cut(text, "${"); opens && strings.Contains(rest, "}") {
			places = append(places, fmt.Sprintf(format, args...))
		}
	}
	look(entry.command, `"command"`)
	for i, arg := range entry.args {
		look(arg, `"args" (number %d)`, i+1)
	}
	for _, name := range slices.Sorted(maps.Keys(entry.env)) {
		look(entry.env[name], `"env": %q`, name)
	}
	look(entry.cwd, `"cwd"`)
	return places
}

// nearest returns the member that a misspelt name stands for most likely, if
// there is one: about one letter in three may be wrong.
func nearest(name string) string {
	best, fewest := "", 0
	for _, known := range ownMembers {
		edits := distance(strings.ToLower(name), strings.ToLower(known))
		if edits <= len(known)/3 && (best == "" || edits < fewest) {
			best, fewest = known, edits
		}
	}
	return best
}

// distance is the number of letters to insert, remove or replace that makes one
// word of the other.
func distance(a, b string) int {
	row := make([]int, len(b)+1) // from what was read of a to each beginning of b
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			replaced := diagonal
			if a[i] != b[j] {
				replaced++
			}
			diagonal = row[j+1]
			row[j+1] = min(replaced, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
