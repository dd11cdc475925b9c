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
	// How often each system does each work.
	rounds int
	// Lists from the command line, comma separated; "" is all.
	only, systems string
	quick         bool
	// Files for the report; "" writes none. The tables go to standard output in any case.
	markdown, json string
	// Where the temporary folder is made, and so the disk that is measured; "" is the folder for temporary
	// files.
	dir string
	// How many events the log has when nodes are restarted; 0 measures no restarts.
	restartEvents int
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
	// Without such a command it is the benchmark itself.
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
	// Restarts are measured only when they are asked for: they take minutes, and gigabytes of the disk.
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
	// SIGHUP as well: a closed terminal must not leave servers running.
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
	// The order of the list is that of the report. The order of work changes from round to round.
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
	// Everything that is written, the binary included, is in this folder, which is removed at the end.
	dir, err := os.MkdirTemp(o.dir, "ringlog-bench-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	dir, err = filepath.Abs(dir) // servers have other working folders
	if err != nil {
		return err
	}
	// What the command line names is checked before any server is started.
	r := &runner{scale: scaleOf(o.quick), rounds: o.rounds, dir: dir}
	r.works, err = chosenWorks(o.only)
	if err != nil {
		return err
	}
	// The program is built from this checkout, so the figures belong to the sources beside this file.
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
	// No system is up yet: the disk and the generator are measured by themselves.
	m := describeMachine(r.dir)
	if err := m.addFdatasync(r.dir); err != nil {
		return err
	}
	// A failure does not end the rounds. It is kept for the report, and what follows is measured.
	r.run(ctx)
	if o.restartEvents > 0 {
		r.restarts(ctx, o.restartEvents)
	}
	// The load and the disk once more, so a reader of the report sees whether the machine changed meanwhile.
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
