package mcp

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
)

const (
	methodCallTool  = "tools/call"
	methodListTools = "tools/list"

	// maxPages bounds one tools/list: a server's cursor may go in circles.
	maxPages = 20

	// maxTools bounds one list of tools.
	maxTools = 10_000
)

// callTool is one tools/call on this connection.
func (s *session) callTool(ctx context.Context, name string, args any) (*CallToolResult, error) {
	raw, err := s.exchange(ctx, request{
		method:  methodCallTool,
		params:  func(dst []byte) ([]byte, error) { return appendCallParams(dst, name, args) },
		timeout: s.client.cfg.RequestTimeout,
	})
	if err != nil {
		return nil, err
	}
	result, err := decodeCallToolResult(raw)
	if err != nil {
		return nil, badAnswer(err)
	}
	if err := s.checkFinal(result.kind, raw); err != nil {
		return nil, err
	}
	s.noteAnswer()
	return result, nil
}

// toolList is one complete listing.
type toolList struct {
	tools   []DiscoveredTool // sorted by name, each name once
	dropped []string         // what could not be used, and why

	again bool // an empty cursor was followed, and may have led to the first page
}

// listTools follows tools/list to its end.
func (s *session) listTools(ctx context.Context) (toolList, error) {
	var list toolList
	seen := make(map[string]bool)
	var from *string
	size := 0
	for range maxPages {
		page, err := s.listPage(ctx, from)
		if err != nil {
			return toolList{}, err
		}
		if size += page.size; size > s.client.cfg.MaxMessageBytes {
			return toolList{}, fmt.Errorf("%w: the pages of the list together are longer than %d bytes", ErrTooLarge, s.client.cfg.MaxMessageBytes)
		}
		list.tools = append(list.tools, page.tools...)
		list.dropped = append(list.dropped, page.dropped...)
		if len(list.tools)+len(list.dropped) > maxTools {
			return toolList{}, fmt.Errorf("%w: the server lists more than %d tools", ErrTooLarge, maxTools)
		}
		if s.isLastPage(page, from) {
			list.finish()
			return list, nil
		}
		cursor := page.nextCursor
		if seen[cursor] && cursor != "" {
			return toolList{}, fmt.Errorf("%w: the server's cursor %q came a second time: it goes in circles", ErrMalformed, cleanText(cursor, 64))
		}
		seen[cursor], from = true, &cursor
		list.again = list.again || cursor == ""
	}
	return toolList{}, fmt.Errorf("%w: the server's list has no end after %d pages", ErrTooLarge, maxPages)
}

// isLastPage reports whether the list ends with this page, which was asked for
// with the cursor from. In the legacy era an empty cursor ends it, like none. In
// the modern one it is a cursor; but whoever answers it with another one means none.
func (s *session) isLastPage(page toolsPage, from *string) bool {
	if page.nextCursor != "" {
		return false
	}
	return !page.hasCursor || s.era != eraModern || from != nil && *from == ""
}

// listPage asks for one page; a nil cursor asks for the first.
func (s *session) listPage(ctx context.Context, cursor *string) (toolsPage, error) {
	r := request{method: methodListTools, timeout: s.client.cfg.RequestTimeout}
	if cursor != nil {
		r.params = func(dst []byte) ([]byte, error) {
			return append(appendString(append(dst, `{"cursor":`...), *cursor), '}'), nil
		}
	}
	raw, err := s.exchange(ctx, r)
	if answer, ok := errors.AsType[*RPCError](err); ok && answer.Code == codeMethodNotFound && !s.hello.tools && cursor == nil {
		return toolsPage{}, nil // it never said that it has tools
	}
	if err != nil {
		return toolsPage{}, err
	}
	page, err := decodeToolsPage(raw)
	if err != nil {
		return toolsPage{}, badAnswer(err)
	}
	page.size = len(raw)
	return page, s.checkListed(page)
}

// checkListed is checkFinal for a list, which cannot ask for anything.
func (s *session) checkListed(page toolsPage) error {
	if s.era == eraModern && page.kind != resultComplete {
		return fmt.Errorf("%w: its resultType is not complete", ErrMalformed)
	}
	return nil
}

// finish sorts the list and keeps the first tool of each name: the order must
// not change because the server's did.
func (l *toolList) finish() {
	byName := func(a, b DiscoveredTool) int { return strings.Compare(a.Name, b.Name) }
	slices.SortStableFunc(l.tools, byName)
	l.tools = slices.CompactFunc(l.tools, func(first, again DiscoveredTool) bool {
		if first.Name != again.Name {
			return false
		}
		if !l.again {
			l.dropped = append(l.dropped, fmt.Sprintf("%q: listed twice", cleanText(again.Name, 64)))
		}
		return true
	})
}

// badAnswer tells an answer over a bound from one that is none.
func badAnswer(err error) error {
	if errors.Is(err, ErrTooLarge) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrMalformed, err)
}
