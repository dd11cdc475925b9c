package sinks

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/ringrift/ringlog/client"
	"github.com/ringrift/ringlog/internal/procgroup"
)

// CommandOptions say what to run. Args is required.
type CommandOptions struct {
	Args  []string // the program, looked up on the PATH if it has no slash, and its arguments
	Group string
	Env   []string // what the variables of the event are added to; nil is this process's
	Dir   string   // "" is this process's
	// Output is called with each line that the command prints, one at a time; nil drops them.
	Output func(Line)
	// Grace is how long a command has between SIGTERM and SIGKILL; 2 s.
	Grace time.Duration
}

// Command runs a program for each event. The payload is its standard input, and the rest
// of the event is in its environment:
//
//	RINGLOG_OFFSET, RINGLOG_TYPE, RINGLOG_VALUE, RINGLOG_SOURCE, RINGLOG_KEY, RINGLOG_CORRELATION_ID,
//	RINGLOG_CAUSATION_ID, RINGLOG_TIME, RINGLOG_APPENDED_AT, RINGLOG_HASH, RINGLOG_DELIVERY, RINGLOG_GROUP
//	RINGLOG_IDEMPOTENCY_KEY, TRACEPARENT, RINGLOG_REACTOR
//
// TRACEPARENT is that of W3C Trace Context. RINGLOG_REACTOR is the id of this process: a program that is not its
// descendant any more, such as a daemon that a command has started, does not handle the event.
//
// A variable that the event has no value for is set and empty. Exit code 0 is success. The program runs in
// a process group of its own: when its time is over all of it gets SIGTERM, and SIGKILL a
// little later. What a program leaves in the background when it ends by itself is left alone.
type Command struct {
	o    CommandOptions
	path string
}

// NewCommand finds the program and sees that it may be run.
func NewCommand(o CommandOptions) (*Command, error) {
	if len(o.Args) == 0 || o.Args[0] == "" {
		return nil, errors.New("sinks: no command")
	}

	// The program must be there before the first event is taken.
	path, err := procgroup.Find(o.Args[0])
	if err != nil {
		return nil, fmt.Errorf("sinks: %w", err)
	}
	o.Grace = cmp.Or(o.Grace, 2*time.Second)
	if o.Env == nil {
		o.Env = os.Environ()
	}
	if o.Output == nil {
		o.Output = func(Line) {}
	}
	return &Command{o: o, path: path}, nil
}

// outputGrace is how long output is still read after a command has ended, while something
// that it left in the background holds it open.
const outputGrace = time.Second

// Handle implements Sink.
func (c *Command) Handle(ctx context.Context, d client.Delivery) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	// The standard error goes to its lines and, as what explains a failure, to its last bytes.
	last := &tail{}
	stdout, stderr := c.lines(&d, "stdout"), c.lines(&d, "stderr")
	cmd := exec.Command(c.path, c.o.Args[1:]...)
	cmd.Args[0] = c.o.Args[0]
	// The slice of the options is cut at its length, so two events at once do not share its memory.
	cmd.Dir, cmd.Env = c.o.Dir, append(c.o.Env[:len(c.o.Env):len(c.o.Env)], environment(&d, c.o.Group)...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(d.Payload), stdout, io.MultiWriter(stderr, last)
	cmd.WaitDelay = outputGrace
	g, err := procgroup.Start(cmd, false)
	if err != nil {
		return fmt.Errorf("start %s: %w", c.o.Args[0], err)
	}
	select {
	case <-g.Ended():
	case <-ctx.Done():
		// The time of the event is over, and the command has a time of its own to end.
		grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.o.Grace)
		g.Stop(grace)
		cancel()
	}
	err = g.Wait()
	// Nothing is written any more after Wait, so what is left is a last line without an end.
	stdout.flush()
	stderr.flush()
	// Output that a child in the background holds open is not a failure of the command.
	if err == nil || errors.Is(err, exec.ErrWaitDelay) {
		return nil
	}
	if text := strings.TrimSpace(last.String()); text != "" {
		return fmt.Errorf("%w: %s", err, text)
	}
	return err
}

// lines returns a writer that reports each line of a stream with the offset of the event.
func (c *Command) lines(d *client.Delivery, stream string) *lines {
	return &lines{emit: func(text []byte) { c.o.Output(Line{d.Offset, stream, string(text)}) }}
}

// environment is the event as variables.
func environment(d *client.Delivery, group string) []string {
	// A time that the event does not have is empty, like a text.
	moment := func(t time.Time) string {
		if t.IsZero() {
			return ""
		}
		return t.UTC().Format(time.RFC3339Nano)
	}
	return []string{
		"RINGLOG_OFFSET=" + strconv.FormatUint(d.Offset, 10),
		"RINGLOG_TYPE=" + string(d.Type),
		"RINGLOG_VALUE=" + d.EffectiveValue(),
		"RINGLOG_SOURCE=" + d.Source,
		"RINGLOG_KEY=" + d.Key,
		"RINGLOG_CORRELATION_ID=" + d.CorrelationID,
		"RINGLOG_CAUSATION_ID=" + d.CausationID,
		"RINGLOG_TIME=" + moment(d.Time),
		"RINGLOG_APPENDED_AT=" + moment(d.AppendedAt),
		"RINGLOG_HASH=" + d.Hash().String(),
		"RINGLOG_DELIVERY=" + strconv.FormatUint(d.Count, 10),
		"RINGLOG_GROUP=" + group,
		"RINGLOG_IDEMPOTENCY_KEY=" + idempotencyKey(d),
		"TRACEPARENT=" + d.Trace.String(),
		"RINGLOG_REACTOR=" + strconv.Itoa(os.Getpid()),
	}
}

// idempotencyKey is the same in every delivery of an event, and of no other event.
func idempotencyKey(d *client.Delivery) string {
	return fmt.Sprintf("%d-%.16s", d.Offset, d.Hash())
}
