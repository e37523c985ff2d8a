// Package supervise runs named goroutines that always join.
//
// A [Group] starts tasks, each a function with a name in a goroutine of its
// own, and knows at any moment which of them still run. It ends in one way:
// [Group.Drain] refuses new tasks, cancels the context that all tasks share,
// and waits. When the caller's patience ends first, the answer is no bare
// "timed out" but a [DrainError] with the name and the age of every task that
// is left; the drain can be taken up again at any time.
//
// # Trees
//
// Groups form trees. A sub-group has tasks, a context and an end of its own,
// so a part can be stopped while the rest goes on. To its ancestors its tasks
// count as theirs: they wait for them, cancel them, and name them in what is
// left. A sub-group that was drained is forgotten by its parent, so a group
// that lives for months may have had any number of them.
//
// A task finds the group it runs in by [From] on its context. A library that
// is handed a context can thereby place its goroutines under the group of its
// host without a parameter for it.
//
// # Panics
//
// A task that panics ends alone: the panic is captured with its stack,
// reported at once, and the task counts as ended only after the report, so the
// join completes and includes it. A call of [runtime.Goexit], which is what
// the FailNow method of a test does, is reported too, and told apart.
//
// # Guarantees
//
//   - All methods may be called from any goroutine at any time.
//   - A task is either refused with [ErrDraining], or has ended before any Drain
//     of its group returns nil. Calling Go while a drain begins is no race.
//   - No callback runs under a lock. The package itself starts no goroutine
//     but the tasks, no timer, and polls nothing.
//   - A task must not wait for its own group, nor for an ancestor of it: it
//     would wait for itself.
package supervise
