// Package mcp runs the MCP servers of an agent host: it starts them as child
// processes, speaks JSON-RPC 2.0 with them over stdio, discovers their tools,
// keeps them alive, calls them, and tells the truth about their health.
//
// A [Manager] runs any number of servers; it is what a host wants. An
// [MCPClient] is the handle on one server, and works without a Manager too. The
// package gives out plain data ([DiscoveredTool], [ServerHealth]) and knows
// nothing of a host: it reads no configuration file and, but for PATH to find
// commands, no environment variable. It needs the standard library,
// golang.org/x/sync, and supervise beside it.
//
// # Promises
//
//   - Nothing blocks a host. Start spawns processes and returns; handshakes and
//     lists go on in the background. Every call ends within its context and its
//     time limit, also while the server does not read its input.
//   - Health never lies. A server that has not been listed counts no tools, a
//     dead one is offline in milliseconds, and a reason from a fixed set says why.
//   - No answer is lost, and none reaches the wrong caller. What a server wrote
//     before its end is delivered first.
//   - No call is ever sent twice, and every error says whether it may have taken
//     effect; see Errors below.
//   - No process is left behind. After Close returns nil there is no child, and
//     none appears; on Linux none survives a host that was killed, but for what
//     is said below to be out of reach.
//   - Whatever a server can cause is bounded: messages, pages, tools, queues,
//     retries, and the time of every phase.
//   - One server's failure is its own.
//
// # A server's life
//
// A server is in one of five states. [StateStarting]: it was started for the
// first time and the handshake or the list is due. [StateReady]: it listed tools.
// [StateDegraded]: it is connected, but lists no tools, or the list could not be
// had; calls go through. [StateOffline]: no connection; it comes back by itself
// unless its [Reason] is permanent. [StateDisabled]: switched off.
//
// The handshake may take minutes, for instance over a cold index. Nothing but
// its answer, the end of the connection, or a shutdown ends the wait for it.
// ManagerOptions.ReadyTimeout (15 min) only changes what the status says.
// RequestTimeout (30 s) bounds each request but the handshake, each page of a list
// too; StartupTimeout (60 s) bounds the Manager's whole list.
//
// The end of a process, or of its output, is an event: calls in flight fail as
// soon as what it had written is delivered (500 ms at most), with an [ExitError]
// if the process has ended; the server goes offline, and a reconnect begins. It
// stays offline while it is brought back, and turns starting only if the new
// handshake outlasts ReadyTimeout. Pauses start at 500 ms and double up to 60 s,
// ±20 %. After 5 attempts in a row the server is given up. The count starts anew
// after Reconnect, or after a proven connection: one that was up for 60 s, or
// answered a call when it had been up for 10 s. What cannot heal by
// itself (command not found, not executable, directory not found, no common
// protocol version) is not retried. [Manager.Reconnect] starts over at any time.
//
// A list that fails while the process lives makes the server degraded, and is
// asked for again with the same pauses, 5 times; after that only list_changed or
// Reconnect causes another.
//
// The list of tools is asked for after each connect and whenever the server says
// that it changed: 100 ms after the listing before at the earliest, and while
// notices keep coming the pauses grow to 5 s. The last good list is kept through
// an outage, and through failed listings, for [Manager.Tools].
//
// A client without a Manager does not come back by itself: call Start again.
//
// # Errors
//
// Every error of an operation on a server is a *[ServerError] that wraps what
// follows, except [ErrIndexBuilding], whose text goes to a model as it is.
//
//   - [ErrNotSent] is wrapped wherever nothing was sent, and the call may be
//     repeated: beside ErrIndexBuilding, [ErrUnknownServer], [ErrDisabled],
//     [ErrOffline], [ErrInvalidArguments], and beside [ErrClosed] and the end of
//     a context when they came in time.
//   - [ErrOutcomeUnknown] is wrapped where the request was written, at least in
//     part, and not answered: beside ErrClosed, an [ExitError], the end of a
//     context, or a bound that ended the connection.
//   - *[RPCError], [ErrMalformed] and [ErrTooLarge] without either mean that the
//     server answered; the call may have taken effect.
//   - [ErrInputRequired] means that a modern server answered with questions, and
//     waits for their answers before it does what was asked.
//
// The end of a caller's context is wrapped as context.Canceled or
// context.DeadlineExceeded with its cause, RequestTimeout as DeadlineExceeded.
//
// Before Start, calls give ErrOffline and Reconnect gives [ErrNotReady], while
// WaitForReady waits. After Close, all of them give ErrClosed.
//
// # Two eras of the protocol
//
// Legacy servers (versions 2024-10-07 to 2025-11-25) open a connection with the
// initialize handshake. Modern ones (2026-07-28) have none: each request says in
// its _meta who asks and in which version, and changes of the list are told on a
// subscription. Which one a server is, is found out when it is first connected,
// unless its Protocol is pinned, and remembered for its reconnects:
//
//   - It gets server/discover. A result with a version that both speak settles it.
//   - An error leads to initialize in the same process, and so does a silence of
//     ProbeTimeout (5 s); then whichever answer comes first counts, and a result
//     of server/discover before one of initialize. Silence ends nothing.
//   - A server that dies of the question, refuses initialize after it, or says to
//     speak legacy versions alone is started once more and gets initialize only.
//     That is a part of its start: it is no crash, no attempt and no other state,
//     and takes two processes at most. If it fails, the error tells of both.
//   - An era that was remembered and is refused is forgotten: that attempt has
//     failed, and the next one finds out anew.
//
// What differs is hidden from calls, but for [ErrInputRequired]: a modern server
// may ask for input before it answers. A subscription that such a server does not
// acknowledge within RequestTimeout, or ends, is not asked for again on that
// connection: a warning is logged, and the list stays that of the connect.
//
// # The status text
//
// Start log, panel and system prompt show the same bytes: [Manager.StatusLines].
// Nothing that a server wrote is in them, and they change only when a state, a
// reason or a count does, so they are safe in a prompt and kind to its cache.
// Details, which may be a server's words, are in [ServerHealth].
//
// Everything in a tool, the names in ToolsChange, instructions and results are
// the server's words as they are, line breaks and escapes included. Texts of
// errors, ServerHealth.Detail and what is logged may quote a server, cleaned of
// control characters and cut: fit for a tool's result, not for a system prompt.
//
// # Bounds
//
// Settable ones stand at their fields. The others, where reaching one is an
// [ErrTooLarge] that names it, if nothing else is said:
//
//   - 20 pages and 10,000 tools a list; all pages together MaxMessageBytes.
//   - 100,000 pieces of content a result, 100,000 messages a batch, 10,000 levels
//     of nesting.
//   - A line longer than MaxMessageBytes is not stored. If its first or last bytes
//     show the id of a call, that call fails; if they show a request or a
//     notification, it is skipped; if they show neither, or it has no end after
//     1 GiB, the connection ends.
//   - 1,024 lines or 4 MiB that wait to be written without a caller (answers to
//     the server, cancellations); more end the connection.
//   - A half-written line with no byte moving in either direction for
//     RequestTimeout ends the connection.
//   - What a process wrote before its end has 500 ms to arrive; only another
//     process that holds the pipe can use them up.
//   - 4 KiB of stderr are kept, and 2 KiB of a fault's text; the rest is dropped.
//
// A host's own calls are bounded by MaxInFlight, if set, and arguments by nothing.
//
// # Concurrency
//
//   - All methods of Manager and MCPClient may be called from any goroutine, at
//     any time, also after Close.
//   - Health, Tools, StatusLines, Client, Reconnect and IsAlive never wait for a
//     server. IsAlive reads two atomic bits.
//   - Manager.Call takes no lock of the Manager's. The lock that guards the
//     servers' states is never held across a pipe, a channel or a callback.
//   - The pointer from Manager.Client is good for the Manager's whole life,
//     through crashes and reconnects. It is nil for unknown and disabled servers only.
//   - Callbacks come one at a time for each server, in order, on a goroutine of
//     their own. They may call the Manager, except Close and ForceClose. A panic
//     in one is logged. A slow one delays the next of its server and Close, and
//     nothing else; at most 128 wait, and
//     then changes of tools are merged and the oldest changes of state dropped.
//     While the host drains its group the last ones come one server after another.
//     None comes after Close returned nil.
//   - Results are the caller's. Tools are shared: their raw JSON and their
//     annotations must not be changed.
//
// # Goroutines
//
// Every goroutine has a name and a group that joins it; a drain that runs out of
// time names what still runs. For each connected server:
//
//	mcp/read-NAME       frames the server's output and routes it
//	mcp/write-NAME      writes queued lines, whole
//	mcp/watch-NAME      waits for the end of the connection, and ends it
//	mcp/wait-NAME       waits for the end of the process, kills its group, reaps it
//	mcp/stderr-NAME     drains stderr, keeps the last 4 KiB
//
// and for as long as there is something to do:
//
//	mcp/handshake-NAME  opens the connection
//	mcp/discover-NAME   waits for a first handshake and lists
//	mcp/reconnect-NAME  brings a server back
//	mcp/refresh-NAME    lists again
//	mcp/callbacks-NAME  calls the host
//	mcp/probe-NAME      waits for the answer to server/discover
//	mcp/initialize-NAME waits for that to initialize meanwhile
//	mcp/renew-NAME      starts the server of a client of its own once more
//	mcp/listen-NAME     holds a modern server's subscription open
//	mcp/listen-ack-NAME waits until it is
//
// and for each Manager:
//
//	mcp/spawn           starts the processes, on one thread (also for a client without a Manager)
//	mcp/manager         closes the Manager when the host drains its group
//
// A host that keeps its own goroutines in a supervise.Group puts it into Start's
// context with supervise.With: the Manager's goroutines are then counted and
// drained with it.
//
// # Shutdown
//
// Close ends all servers at once, each in this order: end of its input; 2 s
// grace; SIGTERM to its process group; 2 s grace; SIGKILL to the group; reap. A
// server that exits meanwhile gets no further signal. At the end of Close's
// context, on a second Close, and on ForceClose, it is SIGKILL right away. Then
// all goroutines are joined, which takes 2 s more at most. Windows has no SIGTERM: there it is the end of input,
// twice the grace, and the end of the Job Object.
//
// # What is out of reach
//
// A process that a server put into another session or process group (setsid)
// gets none of these signals. When the host itself is killed with SIGKILL, Linux
// ends every process that this package started, and Windows every process in
// their jobs; a wrapper's child (npx, sh -c) ends by the end of its input, so one
// that ignores that survives on Linux, and so does a program with the set-user-ID
// bit or file capabilities, which gets no parent-death signal. macOS has no parent-death signal: there
// the end of input is all that a killed host leaves. A process that the kernel
// cannot end is named by the error of Close.
//
// # What the host must do
//
//   - Refuse duplicate server names in its configuration.
//   - Compute each server's environment: ServerConfig.Env is complete, and nil
//     inherits the host's own, secrets included.
//   - Call Close, or drain the group, before it exits.
//   - Pass errors of calls to the model as results of the tool. [ErrIndexBuilding]
//     is a sentence written for it.
//   - Ask StatusLines whenever it shows the text; that costs no I/O.
package mcp
