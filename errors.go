package mcp

import (
	"context"
	"errors"
	"fmt"
	"strconv"
)

// What went wrong, for errors.Is. Every error of a call, a listing or a wait
// wraps at least one of these, or is told apart by errors.As as *[RPCError],
// *[ExitError] or *[StartError]. [ErrIndexBuilding] stands beside the client.
var (
	// ErrUnknownServer: the configuration has no server of that name.
	ErrUnknownServer = errors.New("no such server is configured")

	// ErrDisabled: the configuration switches the server off.
	ErrDisabled = errors.New("the server is disabled")

	// ErrOffline: there is no connection to the server now. The cause is
	// wrapped beside it where one is known.
	ErrOffline = errors.New("the server is offline")

	// ErrNotReady: what was asked needs a server that is connected, and this
	// one is not, or not yet: a list before the handshake, a wait that ended, a
	// reconnect before Start.
	ErrNotReady = errors.New("the server is not ready")

	// ErrClosed: the host closed the Manager, shut the client down, or had the
	// server reconnected while the request was in flight.
	ErrClosed = errors.New("closed by the host")

	// ErrStarted: the Manager was started before, or the client has a connection.
	ErrStarted = errors.New("already started")

	// ErrNotSent: no byte of the request reached the server, so it may be
	// repeated safely.
	ErrNotSent = errors.New("the request was not sent")

	// ErrOutcomeUnknown: the request was written, at least in part, and its
	// answer will never come. It may have taken effect.
	ErrOutcomeUnknown = errors.New("the outcome is unknown")

	// ErrMalformed: the server answered with something that is no answer. A
	// call may have taken effect.
	ErrMalformed = errors.New("malformed answer")

	// ErrTooLarge: a message, a list or a queue is over its bound, which the
	// text names. A call whose answer is too large may have taken effect.
	ErrTooLarge = errors.New("over the limit")

	// ErrInvalidArguments: the arguments of a call are not a JSON object, or
	// cannot be encoded. Nothing was sent.
	ErrInvalidArguments = errors.New("invalid arguments")

	// ErrNoCommonVersion: the server answered the handshake with a protocol
	// version that this package does not speak.
	ErrNoCommonVersion = errors.New("no common protocol version")

	// ErrInputRequired: the server asks for input, of the user or the model,
	// before it answers, and this client offers none.
	ErrInputRequired = errors.New("the server asks for input that this client does not offer")

	// ErrHandshakeFailed: the server refused the handshake.
	ErrHandshakeFailed = errors.New("the handshake failed")
)

// Causes of an ended connection that carry no data of their own.
var (
	errOutputClosed = errors.New("the server closed its output")
	errInputClosed  = errors.New("the server closed its input")
)

// ServerError is what a failed operation on a server returns: which server,
// what was asked, what happened, and what to do next. It is written for a
// person and a model alike.
type ServerError struct {
	Server string // configured name
	Op     string // such as `call "find_symbol"` or "tools/list"
	Err    error  // the kind and its cause
	Advice string // a sentence; may be empty
}

func (e *ServerError) Error() string {
	text := fmt.Sprintf("mcp: server %q: %s: %v", e.Server, e.Op, e.Err)
	if e.Advice != "" {
		text += ". " + e.Advice
	}
	return text
}

func (e *ServerError) Unwrap() error { return e.Err }

// StartError says why a server's process could not be started. The values of
// its environment are never part of the text.
type StartError struct {
	Server  string
	Command string
	Dir     string
	Reason  Reason // ReasonCommandNotFound, ReasonNotExecutable, ReasonDirectoryNotFound or ReasonStartFailed
	Err     error  // what the operating system said; may be nil
}

func (e *StartError) Error() string {
	switch e.Reason {
	case ReasonDirectoryNotFound:
		return fmt.Sprintf("the directory %q of server %q does not exist or is no directory%s", e.Dir, e.Server, because(e.Err))
	case ReasonCommandNotFound:
		return fmt.Sprintf("the command %q of server %q was not found%s", e.Command, e.Server, because(e.Err))
	case ReasonNotExecutable:
		return fmt.Sprintf("the command %q of server %q cannot be executed%s", e.Command, e.Server, because(e.Err))
	}
	return fmt.Sprintf("the command %q of server %q could not be started%s", e.Command, e.Server, because(e.Err))
}

func (e *StartError) Unwrap() error { return e.Err }

func because(err error) string {
	if err == nil {
		return ""
	}
	return ": " + err.Error()
}

// ExitError says how a server's process ended. It is also what a call in flight
// fails with then, wrapped beside [ErrOutcomeUnknown] or [ErrNotSent].
type ExitError struct {
	Server string
	Status int    // exit status; -1 when a signal ended the process, or the status is unknown
	Signal string // name of that signal; empty otherwise
	Stderr string // the last words on stderr, cleaned and bounded: the server's, not ours
	Err    error  // the *exec.ExitError, or nil for status 0
}

func (e *ExitError) Error() string {
	text := "the process exited with status " + strconv.Itoa(e.Status)
	if e.Signal != "" {
		text = "the process was ended by signal " + e.Signal
	}
	if e.Stderr != "" {
		text += fmt.Sprintf(" (the server's last words on stderr: %q)", e.Stderr)
	}
	return text
}

func (e *ExitError) Unwrap() error { return e.Err }

// HandshakeError says how the server refused the handshake.
type HandshakeError struct {
	Server string
	Err    error // *RPCError, ErrMalformed or ErrNoCommonVersion with its text
}

func (e *HandshakeError) Error() string { return fmt.Sprintf("%v: %v", ErrHandshakeFailed, e.Err) }

// Unwrap makes every refused handshake an ErrHandshakeFailed.
func (e *HandshakeError) Unwrap() []error { return []error{ErrHandshakeFailed, e.Err} }

// attemptError is how an attempt to connect failed that took two processes: the
// first one was probed for its era, the last one was not.
type attemptError struct{ last, first error }

func (e *attemptError) Error() string {
	return fmt.Sprintf("%v; its process before, which was asked with server/discover first: %v", e.last, e.first)
}

func (e *attemptError) Unwrap() []error { return []error{e.last, e.first} }

// indexBuildingError is ErrIndexBuilding with the server it came from. Its text
// is the sentinel's alone: it goes to a model word for word.
type indexBuildingError struct{ server string }

func (e *indexBuildingError) Error() string { return ErrIndexBuilding.Error() }

// Unwrap says, too, that nothing was sent.
func (e *indexBuildingError) Unwrap() []error { return []error{ErrIndexBuilding, ErrNotSent} }

// unknownOutcome and notSent put the two facts that decide about a repetition
// before the cause.
func unknownOutcome(cause error) error {
	return fmt.Errorf("%w: the request was written, but not answered: %w", ErrOutcomeUnknown, cause)
}

// endOf says why a context ended. A host may give a cause of its own, and still
// asks for the kind.
func endOf(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if errors.Is(cause, err) {
		return cause
	}
	return fmt.Errorf("%w: %w", err, cause)
}

func notSent(cause error) error { return fmt.Errorf("%w: %w", ErrNotSent, cause) }

// advices say what to do about each kind of error, the more telling kinds first.
var advices = []struct {
	kind   error
	advice string
}{
	{ErrOutcomeUnknown, "It may or may not have taken effect: check before you repeat it"},
	{ErrInvalidArguments, "Pass a JSON object"},
	{ErrStarted, "Shut it down before you start it again"},
	{ErrNotSent, "It had no effect: it may be repeated"},
	{ErrInputRequired, "Call it with arguments that leave nothing to ask for, or do without it"},
	{ErrNoCommonVersion, "Use a version of the server that speaks one of these"},
	{ErrTooLarge, "The server did answer, so a call may have taken effect. Ask for less, or raise the limit"},
	{ErrMalformed, "The server did answer, so a call may have taken effect. It is at fault: to repeat the request will hardly help"},
	{ErrClosed, "Start it again to use it"},
	{context.DeadlineExceeded, "It may still become ready: wait longer, or do without it meanwhile"},
	{context.Canceled, "It may still become ready: wait for it again when you need it"},
}

// adviceFor says what a caller can do about a failed request.
func adviceFor(err error) string {
	for _, known := range advices {
		if errors.Is(err, known.kind) {
			return known.advice
		}
	}
	if _, refused := errors.AsType[*RPCError](err); refused {
		return "The server refused it: its message says what to change"
	}
	return "Check how the server is configured, and what it writes to stderr"
}

// adviceForReading is adviceFor where the request only asks, and has no effect.
func adviceForReading(err error) string {
	if errors.Is(err, ErrOutcomeUnknown) || errors.Is(err, ErrNotSent) {
		return "It may be repeated"
	}
	return adviceFor(err)
}
