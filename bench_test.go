package mcp

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"runtime"
	"testing"
)

// serveMinimal answers calls at next to no cost: each result is the same text.
// Everything else is answered as the plain server does it.
func serveMinimal(f *fakeServer, text string) {
	answer := []byte(`,"result":{"content":[{"type":"text","text":"` + text + `"}]}}` + "\n")
	var out []byte
	for {
		line, err := f.in.ReadSlice('\n')
		if err != nil {
			f.exit(0)
		}
		if !bytes.Contains(line, []byte(`"method":"tools/call"`)) {
			f.receive(line)
			continue
		}
		id := line[bytes.Index(line, []byte(`"id":`))+len(`"id":`):]
		id = id[:bytes.IndexByte(id, ',')]
		out = append(append(append(out[:0], `{"jsonrpc":"2.0","id":`...), id...), answer...)
		_, _ = f.out.Write(out)
	}
}

func benchManager(b testing.TB, mode string) *Manager {
	b.Helper()
	m := NewManager([]ServerConfig{{Name: "s", Command: os.Args[0], Env: fakeEnv(b, mode)}}, ManagerOptions{})
	if err := m.Start(context.Background()); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { m.Close(context.Background()) })
	wantReadyTB(b, m)
	return m
}

func wantReadyTB(b testing.TB, m *Manager) {
	b.Helper()
	if err := m.WaitForReady(within(b), "s"); err != nil {
		b.Fatal(err)
	}
}

var benchArguments = json.RawMessage(`{"query":"x"}`)

// measureCall returns what a call of a server in this mode costs in garbage,
// which is exact where times are not.
func measureCall(t *testing.T, mode string) (allocs float64, size uint64) {
	m := benchManager(t, mode)
	call := func() {
		result, err := m.Call(context.Background(), "s", "echo", benchArguments)
		if err != nil || result.Text() != "hello, world" {
			t.Fatalf("got %v, %v", result, err)
		}
	}
	return testing.AllocsPerRun(2000, call), bytesPerRun(2000, call)
}

// TestCallAllocations holds what a call may cost, in both eras. The race detector
// allocates on its own, so under it only the answers are looked at.
func TestCallAllocations(t *testing.T) {
	legacy, legacySize := measureCall(t, "minimal")
	modern, modernSize := measureCall(t, "minimal-modern")
	t.Logf("a legacy call: %v allocations, %d bytes; a modern one: %v, %d", legacy, legacySize, modern, modernSize)
	if raceEnabled {
		return
	}
	if legacy > 6 || legacySize > 400 {
		t.Errorf("%v allocations, %d bytes a call, want 6 and 400 at most", legacy, legacySize)
	}
	if modern > legacy+1 || modernSize > 400 {
		t.Errorf("%v allocations, %d bytes a modern call, want one more than %v, and 400, at most", modern, modernSize, legacy)
	}
}

// bytesPerRun is testing.AllocsPerRun for bytes.
func bytesPerRun(runs int, f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range runs {
		f()
	}
	runtime.ReadMemStats(&after)
	return (after.TotalAlloc - before.TotalAlloc) / uint64(runs)
}

func TestCallMiB(t *testing.T) {
	m := benchManager(t, "minimal-mib")
	result, err := m.Call(within(t), "s", "echo", benchArguments)
	if err != nil || len(result.Text()) != 1<<20 {
		t.Fatalf("got %d bytes, %v", len(result.Text()), err)
	}
}

func BenchmarkCall(b *testing.B)       { benchCall(b, "minimal") }
func BenchmarkCallModern(b *testing.B) { benchCall(b, "minimal-modern") }

func benchCall(b *testing.B, mode string) {
	m := benchManager(b, mode)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := m.Call(context.Background(), "s", "echo", benchArguments); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkCall64(b *testing.B) {
	m := benchManager(b, "minimal")
	b.ReportAllocs()
	b.SetParallelism(32)
	b.RunParallel(func(p *testing.PB) {
		for p.Next() {
			if _, err := m.Call(context.Background(), "s", "echo", benchArguments); err != nil {
				b.Error(err)
				return
			}
		}
	})
}

func BenchmarkCallMiB(b *testing.B) {
	m := benchManager(b, "minimal-mib")
	b.ReportAllocs()
	b.SetBytes(1 << 20)
	for b.Loop() {
		if _, err := m.Call(context.Background(), "s", "echo", benchArguments); err != nil {
			b.Fatal(err)
		}
	}
}
