package main

import (
	"crypto/sha256"
	"encoding/hex"
	"regexp"
	"strings"
)

// Servers and tools may be called anything; names in a model's API may not. The
// way back does not depend on cutting a name apart: the toolbox remembers what
// each of its names stands for. That no two stand for the same is what the rules
// below are about.

const (
	// maxModelName is what the strictest of the common model APIs accepts.
	maxModelName = 64

	namePrefix = "mcp__" // tells a server's tool from the host's own
	nameGlue   = "__"    // between the server and the tool

	// hashDigits is the length of a hash in hexadecimal digits: 64 bits, which
	// no two tools share by accident.
	hashDigits = 16
)

var (
	unsafeInName = regexp.MustCompile(`[^A-Za-z0-9_-]`)
	endsInHash   = regexp.MustCompile(`_[0-9a-f]{16}$`)
)

// modelName returns the name under which a model calls a server's tool:
// mcp__server__tool, in letters, digits, '_' and '-', at most 64 of them. It
// depends on these two names alone, so it stays the same whatever other tools
// come and go. Two tools never share one.
func modelName(server, tool string) string {
	plain := namePrefix + server + nameGlue + tool
	if len(plain) <= maxModelName && !unsafeInName.MatchString(plain) && splitsBack(server, tool) {
		return plain
	}
	return hashedName(server, tool)
}

// splitsBack reports whether the plain name can be taken for no other tool's.
// It is read back by cutting at the first "__" after the prefix, and it must not
// look like a name with a hash.
func splitsBack(server, tool string) bool {
	return server != "" && tool != "" &&
		!strings.Contains(server, nameGlue) && !strings.HasSuffix(server, "_") && !endsInHash.MatchString(tool)
}

// hashedName keeps what fits of both names for the reader and adds a hash of
// the whole. The zero byte between them can be part of no name.
func hashedName(server, tool string) string {
	sum := sha256.Sum256([]byte(server + "\x00" + tool))
	hash := "_" + hex.EncodeToString(sum[:])[:hashDigits]
	name := namePrefix + safe(server, 16) + nameGlue + safe(tool, maxModelName)
	return name[:min(len(name), maxModelName-len(hash))] + hash
}

// safe replaces what a model's name may not contain and cuts the rest. The result
// is ASCII, so the cut splits no character.
func safe(name string, limit int) string {
	name = unsafeInName.ReplaceAllString(name, "_")
	return name[:min(len(name), limit)]
}

// splitModelName reads a plain name back without a toolbox. It reports false
// for a name with a hash, which only the toolbox that made it can resolve, and
// for a name that modelName never returns.
func splitModelName(name string) (server, tool string, ok bool) {
	rest, ok := strings.CutPrefix(name, namePrefix)
	if !ok {
		return "", "", false
	}
	server, tool, ok = strings.Cut(rest, nameGlue)
	if !ok || modelName(server, tool) != name {
		return "", "", false
	}
	return server, tool, true
}
