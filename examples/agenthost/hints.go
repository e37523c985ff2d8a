package main

import "yagent/mcp"

// effect is what a host takes a call of a tool to do.
type effect int

const (
	// presumedWrites: the server does not say, so the host assumes the worse.
	// It is the zero value for the same reason.
	presumedWrites effect = iota

	// writes: the server says that the tool has side effects.
	writes

	// reads: the server says that the tool only reads.
	reads
)

// String is what the host shows to its user.
func (e effect) String() string {
	switch e {
	case reads:
		return "reads"
	case writes:
		return "writes"
	}
	return "no hint, taken as writing"
}

// The other hints (destructive, idempotent, open world) refine a call that
// writes. They would let no call through that this one stops.

// judge reads the one hint that decides whether a tool may run without asking.
// True, false and absent are three facts. A server is free to lie: a host that
// cannot trust its servers asks for reads as well.
func judge(annotations *mcp.ToolAnnotations) effect {
	switch {
	case annotations == nil || annotations.ReadOnlyHint == nil:
		return presumedWrites
	case *annotations.ReadOnlyHint:
		return reads
	}
	return writes
}
