package main

import (
	"context"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/ringrift/ringlog/cmd/ringlog/internal/offline"
	"github.com/ringrift/ringlog/cmd/ringlog/internal/shell"
)

// main does nothing that has to be cleaned up: run returns before the process exits, so its deferred calls run.
func main() { os.Exit(run(os.Args)) }

// run runs the program with its arguments, and returns the exit code.
func run(args []string) int {
	signal.Ignore(syscall.SIGPIPE) // a write to a closed pipe is an error like others
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, func() { signal.Reset(os.Interrupt, syscall.SIGTERM) }) // a second one ends it at once
	// Before the flags are read, which take variables as defaults.
	dropEmptyVariables()
	sh := shell.New(os.Stdin, os.Stdout, os.Stderr)
	sh.Interrupted = ctx.Done()
	app := newApp(sh)
	if len(args) > 2 && args[1] == completeVerb {
		complete(ctx, sh, app, args[2:])
		return 0
	}
	// The library wants flags before arguments.
	args, err := shell.Intersperse(app, args)
	if err == nil {
		err = shell.ExplainVariable(app, app.RunContext(ctx, args))
	}
	// Errors of a node's folder get a remedy before they are printed.
	return sh.Report(ctx, offline.Explain(err))
}

// dropEmptyVariables makes a variable that is set to nothing count as not set, as
// people expect of NAME= in front of a command.
func dropEmptyVariables() {
	// Only the program's own variables, and the platform's.
	for _, v := range os.Environ() {
		name, value, _ := strings.Cut(v, "=")
		if value == "" && (strings.HasPrefix(name, "RINGLOG_") || strings.HasPrefix(name, "RINGRIFT_")) {
			_ = os.Unsetenv(name) // fails on no platform for a name that was there
		}
	}
}
