// Command bench measures ringlog side by side with what users would pick instead:
// NATS JetStream, etcd and, for clients in Python, Redis Streams, each as three processes on this machine, with the
// same events, alternating, round after round.
//
// It promises that a figure counts only events that were acknowledged and are stored; that
// nothing else it started runs while a system is measured; that every process and file
// it made is gone when it ends; and that its answer has every sample, the machine and the
// settings. It needs Linux, the go command and, for the works of Python, python3 and redis-server.
//
//	go run . --rounds 5 --markdown result.md --json result.json
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// options are the flags.
type options struct {
	rounds         int
	only, systems  string
	quick          bool
	markdown, json string
	dir            string
	restartEvents  int
}

func main() {
	if err := dispatch(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// dispatch runs the command, or one of the hidden commands, which are the servers of other systems.
func dispatch(args []string) error {
	// A server of another system is this program with a hidden command.
	switch {
	case len(args) == 2 && args[0] == "serve-nats":
		return serveNATS(args[1])
	case len(args) == 6 && args[0] == "serve-etcd":
		return serveETCD(args[1], args[2], args[3], args[4], args[5])
	}
	var o options
	f := flag.NewFlagSet("bench", flag.ContinueOnError)
	f.IntVar(&o.rounds, "rounds", 5, "how often each system is measured")
	f.StringVar(&o.only, "only", "",
		"`WORKS`, comma separated: "+strings.Join(workNames(), ", ")+"; all but restart if none is named")
	f.StringVar(&o.systems, "systems", "",
		"`SYSTEMS`, comma separated: "+strings.Join(systemNames(), ", ")+"; all if none is named")
	f.BoolVar(&o.quick, "quick", false, "short measurements, to see that it works")
	f.StringVar(&o.markdown, "markdown", "", "`FILE` for the tables, which are also printed to standard output")
	f.StringVar(&o.json, "json", "", "`FILE` for everything, including each sample")
	f.StringVar(&o.dir, "dir", "", "`FOLDER` on the disk to measure; the folder for temporary files if none is named")
	f.IntVar(&o.restartEvents, "restart-events", 0,
		"measure restarts of ringlog with a twentieth of `N` events and with N, such as 20000000")
	if err := f.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return nil
		}
		return err
	}
	if f.NArg() > 0 || o.rounds < 1 {
		return fmt.Errorf("unexpected arguments %q, or less than one round", f.Args())
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	return compare(ctx, o)
}

// allSystems are the systems in the order of the report. program is the binary of ringlog.
func allSystems(program string) []system {
	return []system{&ringlogSystem{program: program},
		&natsSystem{always: true}, &natsSystem{}, etcdSystem{}, redisSystem{}}
}

// systemNames are the names for --systems.
func systemNames() (names []string) {
	for _, s := range allSystems("") {
		names = append(names, s.name())
	}
	return names
}

// workNames are the names for --only.
func workNames() (names []string) {
	for _, w := range allWorks() {
		names = append(names, w.name)
	}
	return append(names, restartWork)
}

// chosenSystems are those that a list names; "" is all.
func chosenSystems(list, program string) (some []system, err error) {
	all := allSystems(program)
	if list == "" {
		return all, nil
	}
	for name := range strings.SplitSeq(list, ",") {
		i := slices.IndexFunc(all, func(s system) bool { return s.name() == name })
		if i < 0 {
			known := strings.Join(systemNames(), ", ")
			return nil, fmt.Errorf("--systems: unknown system %q; known are %s", name, known)
		}
		some = append(some, all[i])
	}
	return some, nil
}

// compare measures everything and reports it. If ctx ends, it reports what was measured until then.
func compare(ctx context.Context, o options) (err error) {
	dir, err := os.MkdirTemp(o.dir, "ringlog-bench-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	dir, err = filepath.Abs(dir) // servers have other working folders
	if err != nil {
		return err
	}
	r := &runner{scale: scaleOf(o.quick), rounds: o.rounds, dir: dir}
	r.works, err = chosenWorks(o.only)
	if err != nil {
		return err
	}
	program, err := buildRinglog(ctx, dir)
	if err != nil {
		return err
	}
	r.program = program
	r.systems, err = chosenSystems(o.systems, program)
	if err != nil {
		return err
	}
	return r.measureAndReport(ctx, o)
}

// measureAndReport measures, with a look at the machine before and after, and writes the report.
func (r *runner) measureAndReport(ctx context.Context, o options) error {
	m := describeMachine(r.dir)
	if err := m.addFdatasync(r.dir); err != nil {
		return err
	}
	r.run(ctx)
	if o.restartEvents > 0 {
		r.restarts(ctx, o.restartEvents)
	}
	m.LoadAfter = firstLine("/proc/loadavg")
	if err := m.addFdatasync(r.dir); err != nil {
		return err
	}
	// The report comes first: what failed or was interrupted is in it.
	if err := newReport(r, m).write(o.markdown, o.json); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return errors.New("interrupted; the report has what was measured until then")
	}
	if len(r.failures) > 0 {
		return fmt.Errorf("%d measurements failed", len(r.failures))
	}
	return nil
}

// progress prints a line to standard error.
func progress(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) }
