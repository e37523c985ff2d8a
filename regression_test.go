package mcp

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"
	"testing/synctest"
)

// Each test here tells of a fault that this package once had.

// A server in C# wrote every member that an answer or a request can have, and
// null for those that it did not mean. Its "error":null failed each call, and
// its "method":null made each answer a request that nobody could understand, so
// that the call hung until its timeout.
func TestRegression_NullMembersHidTheAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := startScript(t, nil)
		all := func(request wireLine, result, fault string) string {
			return fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":null,"params":null,"result":%s,"error":%s}`+"\n", request.ID, result, fault)
		}
		s.write(all(s.expect("initialize"), scriptHello, "null"))
		s.expect("notifications/initialized")
		good := s.call(t.Context(), "good", nil)
		bad := s.call(t.Context(), "bad", nil)
		s.write(all(s.expectCall("good"), textResult("here"), "null"))
		s.write(all(s.expectCall("bad"), "null", `{"code":-32000,"message":"gone"}`))
		good.wantText(t, "here")
		bad.wantEnd(t, 0)
		wantSays(t, bad.err, "code -32000: gone")
	})
}

// A server without a tools capability may answer tools/list with "method not
// found", and has an empty list then. That rule was applied to every page: a
// server that listed one page and failed with this code on the next had its list
// cut there, silently.
func TestRegression_MethodNotFoundCutAList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := startScript(t, nil)
		s.answer(s.expect("initialize"), `{"protocolVersion":"2025-11-25","capabilities":{}}`)
		s.expect("notifications/initialized")
		l := s.list(t.Context())
		s.answer(s.expect("tools/list"), page(`"2"`, "first"))
		s.write(`{"id":` + string(s.expect("tools/list").ID) + `,"error":{"code":-32601,"message":"no such method"}}` + "\n")
		<-l.done
		if _, ok := errors.AsType[*RPCError](l.err); !ok || l.tools != nil {
			t.Errorf("got %v, %v; want the server's error", l.tools, l.err)
		}
	})
}

// Whether a client was started already was asked before the new start could be
// seen, so a second Start at the same time drained the first one's process away
// and both callers were told that all was well, or neither.
func TestRegression_TwoStartsAtOnce(t *testing.T) {
	c := NewMCPClient(ClientConfig{Name: "fake", Command: os.Args[0], Env: fakeEnv(t, "plain")})
	var starters sync.WaitGroup
	results := make(chan error, 8)
	for range cap(results) {
		starters.Go(func() { results <- c.Start(t.Context()) })
	}
	starters.Wait()
	close(results)
	started := 0
	for err := range results {
		if err == nil {
			started++
		} else if !errors.Is(err, ErrStarted) {
			t.Error(err)
		}
	}
	if err := c.WaitForReady(within(t)); err != nil || started != 1 {
		t.Errorf("%d starts won, want 1; %v", started, err)
	}
	if err := c.Shutdown(within(t)); err != nil {
		t.Error(err)
	}
}
