package interop

import (
	"errors"
	"runtime"
	"testing"

	"yagent/mcp"
)

// These tests do not run beside others, whose memory they would count.

// allocated returns how many bytes are allocated while f runs, freed or not.
func allocated(f func()) int64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return int64(after.TotalAlloc - before.TotalAlloc)
}

// What a long line costs: its pieces, the whole of it, and the text that is
// decoded from it. A buffer that doubles would cost more than the pieces alone.
func TestHostile_memory_big_line(t *testing.T) {
	const size = 32 << 20
	h := newHost(t, once(), in("big-line", flagInt("n", size)))
	h.ready("bad")
	cost := allocated(func() {
		if got := len(h.call("bad", "echo", nil).Text()); got != size {
			t.Errorf("got %d bytes, want %d", got, size)
		}
	})
	// Text joins what was decoded, which is a fourth copy.
	if cost > 4*size+size/2 {
		t.Errorf("a line of %d MiB cost %d MiB", size>>20, cost>>20)
	}
}

// Past the limit nothing is kept, however much comes.
func TestHostile_memory_over_limit(t *testing.T) {
	const limit, size = 8 << 20, 400 << 20
	opts := once()
	opts.MaxMessageBytes = limit
	h := newHost(t, opts, in("over-limit", flagInt("n", size)))
	h.ready("bad")
	cost := allocated(func() {
		if err := h.callError(h.patient(), "bad", "echo", nil); !errors.Is(err, mcp.ErrTooLarge) {
			t.Errorf("got %v", err)
		}
		h.echoes("bad") // comes after the last byte of the long line
	})
	if cost > 2*limit+(4<<20) {
		t.Errorf("%d MiB over a limit of %d MiB cost %d MiB", size>>20, limit>>20, cost>>20)
	}
}

// The same for a server that floods without any line.
func TestHostile_memory_flood(t *testing.T) {
	const limit = 8 << 20
	opts := once()
	opts.MaxMessageBytes = limit
	h := newHost(t, opts, in("no-newline-flood"))
	h.ready("bad")
	cost := allocated(func() {
		if err := h.callError(h.patient(), "bad", "echo", nil); !errors.Is(err, mcp.ErrTooLarge) {
			t.Errorf("got %v", err)
		}
		h.noProcesses()
	})
	if cost > 2*limit+(8<<20) {
		t.Errorf("a flood cost %d MiB", cost>>20)
	}
}

// Notifications, noise and stderr are not collected.
func TestHostile_memory_chatter(t *testing.T) {
	for mode, flags := range map[string][]string{
		"notify-flood": {flagInt("n", 200_000)},
		"stderr-flood": {flagInt("n", 64<<20)},
	} {
		t.Run(mode, func(t *testing.T) {
			h := newHost(t, once(), in(mode, flags...))
			h.ready("bad")
			var before, after runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&before)
			h.echoes("bad")
			runtime.GC()
			runtime.ReadMemStats(&after)
			if grown := int64(after.HeapAlloc) - int64(before.HeapAlloc); grown > 4<<20 {
				t.Errorf("the heap has grown by %d KiB", grown>>10)
			}
		})
	}
}
