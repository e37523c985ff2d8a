// Package mcp runs the MCP servers of an agent host: it starts them as child
// processes, speaks JSON-RPC 2.0 with them over stdio, discovers their tools,
// keeps them alive, calls them, and tells the truth about their health.
//
// A [Manager] runs any number of servers; it is what a host wants. An
// [MCPClient] is the handle on one server, and works without a Manager too. The
// package gives out plain data ([DiscoveredTool], [ServerHealth]) and knows
// nothing of a host: it reads no configuration file and no environment
// variable, and it needs the standard library and golang.org/x/sync alone.
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
//   - No call is ever sent twice. An error says whether the request was sent
//     ([ErrNotSent]) or may have taken effect ([ErrOutcomeUnknown]).
//   - No process is left behind. After Close returns there is no child, and
//     none appears; on Linux none that this package started survives a host
//     that was killed.
//   - Everything is bounded: messages, pages, tools, queues, retries, and the
//     time of every phase.
//   - One server's failure is its own.
//
// # A server's life
//
// A server is in one of five states. [StateStarting]: its process was started
// and the handshake or the list is due. [StateReady]: it listed tools.
// [StateDegraded]: it is connected, but lists no tools, or the list could not be
// had; calls go through. [StateOffline]: no connection; it comes back by itself
// unless its [Reason] is permanent. [StateDisabled]: switched off.
//
// The handshake may take minutes, for instance over a cold index. Nothing but
// its answer, the end of the connection, or a shutdown ends the wait for it.
// ManagerOptions.ReadyTimeout (15 min) only changes what the status says.
// StartupTimeout (60 s) bounds each tools/list as a whole, RequestTimeout (30 s)
// every other request.
//
// The end of a process, or of its output, is an event: calls in flight fail at
// once with an [ExitError], the server goes offline, and a reconnect begins.
// Pauses start at 500 ms and double up to 60 s, ±20 %. After 5 attempts in a row
// the server is given up. The count starts anew only after a proven connection:
// one that was up for 60 s, or served a call after 10 s. What cannot heal by
// itself (command not found, not executable, directory not found, no common
// protocol version) is not retried. [Manager.Reconnect] starts over at any time.
//
// The list of tools is asked for after each connect and whenever the server says
// that it changed, at most every 100 ms, and up to 5 s apart while it goes on
// saying so. The last good list is kept through an outage for [Manager.Tools].
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
// may ask for input before it answers.
//
// # The status text
//
// Start log, panel and system prompt show the same bytes: [Manager.StatusLines].
// Nothing that a server wrote is in them, and they change only when a state, a
// reason or a count does, so they are safe in a prompt and kind to its cache.
// Details, which may be a server's words, are in [ServerHealth].
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
//     their own. They may call the Manager, except Close and ForceClose. A slow
//     one delays the next of its server and nothing else; at most 128 wait, and
//     then changes of tools are merged and the oldest changes of state dropped.
//   - Results are the caller's. Raw JSON in tools is shared: do not change it.
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
//	mcp/spawn           starts the processes, on one thread
//	mcp/manager         closes the Manager when the host drains its group
//
// A host that keeps its own goroutines in a supervise.Group puts it into Start's
// context: the Manager's goroutines are then counted and drained with it.
//
// # Shutdown
//
// Close ends all servers at once, each in this order: end of its input; 2 s
// grace; SIGTERM to its process group; 2 s grace; SIGKILL to the group; reap. A
// server that exits meanwhile gets no further signal. At the end of Close's
// context, on a second Close, and on ForceClose, it is SIGKILL right away. Then
// all goroutines are joined. Windows has no SIGTERM: there the end of input, both
// graces and the end of the Job Object follow each other.
//
// # What is out of reach
//
// A process that a server put into another session or process group (setsid)
// gets none of these signals. When the host itself is killed with SIGKILL, Linux
// ends every process that this package started, and Windows every process in
// their jobs; a wrapper's child (npx, sh -c) ends by the end of its input, so one
// that ignores that survives on Linux. macOS has no parent-death signal: there
// the end of input is all that a killed host leaves. A process that the kernel
// cannot end is named by the error of Close.
//
// # What the host must do
//
//   - Refuse duplicate server names in its configuration.
//   - Compute each server's environment: ServerConfig.Env is complete, and nil
//     inherits the host's own, secrets included.
//   - Call Close before it exits.
//   - Pass errors of calls to the model as they are. [ErrIndexBuilding] is a
//     sentence written for it.
package mcp
