// Agenthost is a small host of MCP servers: what a program does that embeds
// package mcp, without the model.
//
//	go run ./examples/agenthost
//	go run ./examples/agenthost -config mcp.json
//
// Without a configuration it starts itself as a handful of demo servers and
// shows their life: a slow start, a crash, the recovery, the shutdown. With one
// it starts the servers of the file, lists their tools and calls a harmless one
// of each.
//
// A host has these jobs, each in a file of its own:
//
//   - config.go reads the "mcpServers" file that other hosts use, notes.go says
//     what in it is not acted on;
//   - env.go decides what a server sees of the environment;
//   - names.go gives tools names that a model's API accepts;
//   - hints.go judges whether a tool may run without asking;
//   - bridges.go has the tools that the host itself wrote over a server's;
//   - toolbox.go puts together what the model is offered;
//   - prompt.go and panel.go show the status text;
//   - host.go starts, calls and closes.
//
// The demo is in demo.go and tour.go, the run with a file in inspect.go.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"yagent/mcp"
)

// The exit statuses of the program.
const (
	exitDone   = 0
	exitFailed = 1 // the run failed, was interrupted, or its configuration is wrong
	exitUsage  = 2 // the command line is wrong
)

// main is a demo server if the host of the demo started it, and a host
// otherwise. Everything else is in functions that return, because os.Exit runs
// no deferred call, and the close of the servers is one.
func main() {
	if len(os.Args) == 3 && os.Args[1] == demoCommand {
		os.Exit(serveDemo(os.Args[2], os.Stdin, os.Stdout, os.Stderr))
	}
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

// run is the program behind its arguments and streams. Faults go to stderr, so
// that stdout can be read by another program.
func run(args []string, stdout, stderr io.Writer) int {
	s, err := parseFlags(args, stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return exitDone
	case err != nil:
		return exitUsage // package flag has said why
	}
	if err := serve(s, newScreen(stdout), newLogger(stderr, s.verbose)); err != nil {
		fmt.Fprintf(stderr, "agenthost: %v\n", err)
		return exitFailed
	}
	return exitDone
}

// settings are what the command line says.
type settings struct {
	config  string        // a file; empty runs the demo
	calls   callList      // what the user wants to be called
	wait    time.Duration // for all servers together
	verbose bool
}

// parseFlags reads the command line. It does not look at the file: a fault
// there is one of the configuration and has another exit status.
func parseFlags(args []string, stderr io.Writer) (settings, error) {
	var s settings
	flags := flag.NewFlagSet("agenthost", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.StringVar(&s.config, "config", "", "`file` with an \"mcpServers\" object; without it, a demo runs")
	flags.Var(&s.calls, "call", "`server:tool:{json}` to call in place of the host's own choice; may be repeated")
	flags.DurationVar(&s.wait, "wait", time.Minute, "how long to wait for the servers of -config to settle")
	flags.BoolVar(&s.verbose, "v", false, "log everything that the library reports")
	if err := flags.Parse(args); err != nil {
		return s, err
	}
	if flags.NArg() > 0 {
		fmt.Fprintf(stderr, "agenthost: unexpected argument %q\n", flags.Arg(0))
		return s, errors.New("unexpected argument")
	}
	return s, nil
}

// newLogger keeps the library's log apart from what the program shows. Most of
// it would say the same again, so it is quiet unless asked for.
func newLogger(stderr io.Writer, verbose bool) *slog.Logger {
	level := slog.LevelError
	if verbose {
		level = slog.LevelDebug
	}
	return slog.New(slog.NewTextHandler(stderr, &slog.HandlerOptions{Level: level}))
}

// endSignals ask the host to end. Without the last one a closed terminal would
// end it without closing its servers.
var endSignals = []os.Signal{os.Interrupt, syscall.SIGTERM, syscall.SIGHUP}

// errInterrupted is the error of a run that a signal ended.
var errInterrupted = errors.New("interrupted")

// serve runs the demo or the servers of a file. A signal ends what is being
// waited for, by the context; the servers do not live by that context and are
// closed in good order afterwards.
func serve(s settings, screen *screen, logger *slog.Logger) error {
	ctx, stop := signal.NotifyContext(context.Background(), endSignals...)
	defer stop()
	if s.config == "" {
		return serveTour(ctx, screen, logger)
	}
	return serveFile(ctx, s, screen, logger)
}

// serveFile runs the servers of a configuration file. Whatever comes in between,
// an error, a signal or a panic, the servers are closed. The options are the
// library's defaults: a host sets what it has a reason for.
func serveFile(ctx context.Context, s settings, screen *screen, logger *slog.Logger) (err error) {
	cfg, err := readConfig(s.config)
	if err != nil {
		return err
	}
	if err := reportConfig(screen, cfg); err != nil {
		return err
	}
	h := newHost(screen, serverConfigs(cfg.servers), mcp.ManagerOptions{Logger: logger})
	defer func() { err = h.finish(ctx, err) }()
	return h.inspect(ctx, s)
}

// reportConfig shows what in a file this host does not act on. It is an error if
// that is every server.
func reportConfig(screen *screen, cfg config) error {
	for _, reason := range cfg.skipped {
		screen.printf("skipped: %s", reason)
	}
	disabled := 0
	for _, s := range cfg.servers {
		for _, note := range s.notes {
			screen.printf("note: server %q: %s", s.name, note)
		}
		if s.disabled {
			disabled++
		}
	}
	if disabled == len(cfg.servers) {
		return fmt.Errorf("no server to start: %d skipped, %d disabled", len(cfg.skipped), disabled)
	}
	return nil
}

// serveTour runs the demo. Its pauses are short because a person watches; the
// defaults of the library suit real servers.
func serveTour(ctx context.Context, screen *screen, logger *slog.Logger) (err error) {
	servers, err := demoConfigs()
	if err != nil {
		return err
	}
	h := newHost(screen, servers, mcp.ManagerOptions{
		Logger:           logger,
		ReconnectBackoff: func(int) time.Duration { return demoBackoff },
		ShutdownGrace:    demoGrace,
	})
	defer func() { err = h.finish(ctx, err) }()
	return h.tour(ctx)
}
