// Package interop runs the library against servers that are not ours, and in
// hosts that are not this repository. It is a module of its own, so that what
// it needs is no requirement of the library's.
//
//   - TestReal_*: the servers that people run, from npm, also under npx. They are
//     installed by `npm ci` from servers/package-lock.json on the first run, so
//     node and npm must be there.
//   - TestHostile_*: badserver, one program with many ways of being wrong. Its
//     modes are listed by `go run ./badserver -list`. Each test asserts what the
//     host sees and, where it matters, what the server saw. For single messages
//     there is puppet, which writes what a test hands it.
//   - TestDropIn_*: the package copied into a host, and used from one.
//
// All of it drives the public API, on Linux: what is left of a server's process
// tree is read from /proc.
package interop
