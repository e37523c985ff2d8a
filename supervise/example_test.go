package supervise_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"yagent/mcp/supervise"
)

func Example() {
	host := supervise.New(context.Background(), "host", nil)
	requests := make(chan string)

	err := host.Go("worker", func(ctx context.Context) {
		for {
			select {
			case request := <-requests:
				fmt.Println("handled", request)
			case <-ctx.Done():
				fmt.Println("worker ends:", context.Cause(ctx))
				return
			}
		}
	})
	if err != nil {
		fmt.Println(err)
	}
	requests <- "a request"

	if err := host.Drain(context.Background()); err != nil {
		fmt.Println(err)
	}
	fmt.Println(host.Go("too late", func(context.Context) {}) == supervise.ErrDraining)
	// Output:
	// handled a request
	// worker ends: supervise: the group is draining, nothing new may start
	// true
}

// A panic ends one task, and the callback hears of it.
func ExampleNew_onPanic() {
	host := supervise.New(context.Background(), "host", func(e *supervise.PanicError) {
		fmt.Println(e) // e.Stack tells where
	})
	_ = host.Go("worker", func(context.Context) { panic("no such page") })
	host.Wait()
	// Output:
	// supervise: "worker" panicked: no such page
}

// A part of the tree can end while the rest goes on.
func ExampleGroup_Sub() {
	host := supervise.New(context.Background(), "host", nil)
	session := host.Sub("session", nil)
	_ = session.Go("reader", func(ctx context.Context) { <-ctx.Done() })

	fmt.Println("session:", session.Drain(context.Background()), session.Context().Err())
	fmt.Println("host:", host.Context().Err())
	// Output:
	// session: <nil> context canceled
	// host: <nil>
}

// A drain that runs out of time says what holds it, and can be finished later.
func ExampleGroup_Drain() {
	host := supervise.New(context.Background(), "host", nil)
	release := make(chan struct{})
	_ = host.Go("stubborn", func(context.Context) { <-release })

	ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
	defer cancel()
	err := host.Drain(ctx)
	if late, ok := errors.AsType[*supervise.DrainError](err); ok {
		for _, task := range late.Left {
			fmt.Println("still running:", task.Name)
		}
	}

	close(release)
	fmt.Println(host.Drain(context.Background()))
	// Output:
	// still running: stubborn
	// <nil>
}

// A library puts its goroutines under the group of whoever calls it.
func ExampleFrom() {
	connect := func(ctx context.Context) error {
		library := supervise.From(ctx).Sub("library", nil)
		return library.Go("reader", func(ctx context.Context) {
			<-ctx.Done()
			fmt.Println("reader ends")
		})
	}

	host := supervise.New(context.Background(), "host", nil)
	if err := connect(host.Context()); err != nil {
		fmt.Println(err)
	}
	fmt.Println(host.Drain(context.Background()))
	// Output:
	// reader ends
	// <nil>
}

func ExampleTry() {
	callback := func() { panic(errors.New("callback is broken")) }
	if failed := supervise.Try("callback", callback); failed != nil {
		fmt.Println(failed)
	}
	// Output:
	// supervise: "callback" panicked: callback is broken
}
