package supervise

import (
	"fmt"
	"log/slog"
	"runtime/debug"
)

// A PanicError reports that a task, or the function of a [Try], ended without
// returning.
type PanicError struct {
	Name   string // of the task
	Value  any    // what it panicked with; nil if Goexit
	Stack  []byte // of its goroutine, taken before anything was unwound
	Goexit bool   // it did not panic, it called runtime.Goexit
}

// Error names the task and says how it ended. The stack is no part of it.
func (e *PanicError) Error() string {
	if e.Goexit {
		return fmt.Sprintf("supervise: %q called runtime.Goexit", e.Name)
	}
	return fmt.Sprintf("supervise: %q panicked: %v", e.Name, e.Value)
}

// Unwrap returns the value of the panic if it is an error, and nil otherwise.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

// Try calls fn in this goroutine. It returns nil if fn returns, and what is
// known about the panic if fn panics.
//
// A [runtime.Goexit] in fn cannot be stopped: it ends the goroutine, so Try
// does not return either. If the goroutine is a task, its group reports that.
func Try(name string, fn func()) (failed *PanicError) {
	guard(name, fn, func(e *PanicError) { failed = e })
	return failed
}

// guard calls fn, and report if fn ends without returning. The report runs on
// top of the stack that failed. After a panic guard returns; after a
// runtime.Goexit only the deferred calls of its callers run.
func guard(name string, fn func(), report func(*PanicError)) {
	returned := false
	defer func() {
		// A panic with nil has a value too, so no value means Goexit.
		if value := recover(); !returned {
			report(&PanicError{Name: name, Value: value, Stack: debug.Stack(), Goexit: value == nil})
		}
	}()
	fn()
	returned = true
}

// report hands a failed task to the callback of g. The callback is foreign code
// in a goroutine of ours: if it fails, the log gets both failures.
func (g *Group) report(failed *PanicError) {
	guard("onPanic of "+g.name, func() { g.onPanic(failed) }, func(broken *PanicError) {
		// The logger may be what is broken; there is nobody left to tell.
		Try("slog", func() { logPanic(failed) })
		Try("slog", func() { logPanic(broken) })
	})
}

func logPanic(e *PanicError) {
	slog.Error("supervise: a task did not return", "task", e.Name, "error", e, "stack", string(e.Stack))
}
