package sinks_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/ringrift/ringlog/client"
	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/router/sinks"
)

// output collects what a command prints.
type output struct {
	mu    sync.Mutex
	lines []string
}

func (o *output) line(l sinks.Line) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.lines = append(o.lines, fmt.Sprintf("%d %s: %s", l.Offset, l.Stream, l.Text))
}

// sorted are the lines; the two streams have no order between them.
func (o *output) sorted() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Sorted(slices.Values(o.lines))
}

func shell(t *testing.T, out *output, script string) *sinks.Command {
	t.Helper()
	c, err := sinks.NewCommand(
		sinks.CommandOptions{
			Args:   []string{"sh", "-c", script},
			Group:  "trainers",
			Output: out.line,
			Grace:  200 * time.Millisecond,
		},
	)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func delivery() client.Delivery {
	ev := event.New(event.TrainingCompleted, map[string]any{"n": 7})
	ev.Offset, ev.Source, ev.Key, ev.CorrelationID, ev.CausationID = 42, "trainer-3", "hex8", "run-1", "cause-1"
	ev.Time = time.Date(2026, 1, 5, 10, 0, 0, 1, time.UTC)
	ev.Trace = event.Trace{TraceID: [16]byte{1}, SpanID: [8]byte{2}, Flags: 1}
	ev.AppendedAt = ev.Time.Add(time.Second)
	return client.Delivery{Event: ev, Count: 2}
}

// A command sees the whole event, and what it prints is passed on.
func TestACommandSeesTheEvent(t *testing.T) {
	// What the environment of the tests has is no part of the event.
	for _, set := range os.Environ() {
		if name, _, _ := strings.Cut(set, "="); strings.HasPrefix(name, "RINGLOG_") {
			t.Setenv(name, "")
			os.Unsetenv(name)
		}
	}
	out, d := &output{}, delivery()
	err := shell(t, out, `cat; echo; echo oops >&2; env | grep -E '^(RINGLOG_|TRACEPARENT)'`).Handle(t.Context(), d)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"42 stderr: oops",
		"42 stdout: RINGLOG_APPENDED_AT=2026-01-05T10:00:01.000000001Z",
		"42 stdout: RINGLOG_CAUSATION_ID=cause-1",
		"42 stdout: RINGLOG_CORRELATION_ID=run-1",
		"42 stdout: RINGLOG_DELIVERY=2",
		"42 stdout: RINGLOG_GROUP=trainers",
		"42 stdout: RINGLOG_HASH=" + d.Hash().String(),
		"42 stdout: RINGLOG_IDEMPOTENCY_KEY=42-" + d.Hash().String()[:16],
		"42 stdout: RINGLOG_KEY=hex8",
		"42 stdout: RINGLOG_OFFSET=42",
		"42 stdout: RINGLOG_REACTOR=" + strconv.Itoa(os.Getpid()),
		"42 stdout: RINGLOG_SOURCE=trainer-3",
		"42 stdout: RINGLOG_TIME=2026-01-05T10:00:00.000000001Z",
		"42 stdout: RINGLOG_TYPE=TRAINING_COMPLETED",
		"42 stdout: RINGLOG_VALUE=training_completed",
		"42 stdout: TRACEPARENT=" + d.Trace.String(),
		"42 stdout: " + string(d.Payload),
	}
	if got := out.sorted(); !slices.Equal(got, want) {
		t.Errorf("%s", strings.Join(got, "\n"))
	}
}

// A command that fails is reported with its code and the end of its output.
func TestACommandFails(t *testing.T) {
	out := &output{}
	for script, want := range map[string]string{
		`echo "no gpu" >&2; exit 3`: "exit status 3: no gpu",
		`exit 4`:                    "exit status 4",
		`kill -9 $$`:                "signal: killed",
	} {
		if err := shell(t, out, script).Handle(t.Context(), delivery()); err == nil || err.Error() != want {
			t.Errorf("%s: %v", script, err)
		}
	}
	err := shell(t, out, `yes 0123456789 | head -c 100000 >&2; echo the end >&2; exit 1`).Handle(t.Context(), delivery())
	if err == nil || len(err.Error()) > 5000 || !strings.HasSuffix(err.Error(), "the end") {
		t.Errorf("%v", err)
	}
}

// One that does not read its input, or leaves something in the background that has its
// output, has succeeded when it ends.
func TestACommandNeedsNotReadAndMayLeaveThings(t *testing.T) {
	d := delivery()
	d.Payload = fmt.Appendf(nil, `{"long": "%s"}`, bytes.Repeat([]byte("x"), 1<<20))
	if err := shell(t, &output{}, `exit 0`).Handle(t.Context(), d); err != nil {
		t.Error(err)
	}
	out := &output{}
	if err := shell(t, out, `sleep 60 & echo $!`).Handle(t.Context(), delivery()); err != nil {
		t.Error(err)
	}
	pid := pidIn(t, out)
	if gone(pid) {
		t.Error("what it left in the background was killed")
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Error(err)
	}
}

func pidIn(t *testing.T, out *output) int {
	t.Helper()
	lines := out.sorted()
	if len(lines) != 1 {
		t.Fatalf("%q", lines)
	}
	pid, err := strconv.Atoi(lines[0][strings.LastIndex(lines[0], " ")+1:])
	if err != nil {
		t.Fatal(err)
	}
	return pid
}

// gone reports a process that has ended; one that nobody has waited for counts.
func gone(pid int) bool {
	if syscall.Kill(pid, 0) != nil {
		return true
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err != nil || strings.Contains(string(stat), ") Z ")
}

// When its time is over a command is ended with its children, those that do not listen
// to SIGTERM too, and those that have closed its output.
func TestACommandIsKilledWithItsChildren(t *testing.T) {
	for name, script := range map[string]string{
		"a child":                        `sleep 60 & echo $!; wait`,
		"a child that ignores SIGTERM":   `sh -c 'trap "" TERM; echo $$; while :; do sleep 1; done' & wait`,
		"a child without its output":     `sh -c 'trap "" TERM; while :; do sleep 1; done' >/dev/null 2>&1 & echo $!; wait`,
		"itself ignoring SIGTERM":        `trap "" TERM; echo $$; while :; do sleep 1; done`,
		"a grandchild whose parent died": `sh -c 'sleep 60 & echo $!'; sleep 60`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			out := &output{}
			c, err := sinks.NewCommand(sinks.CommandOptions{Args: []string{"sh", "-c", script}, Grace: 200 * time.Millisecond,
				Output: func(l sinks.Line) {
					out.line(l)
					cancel() // it is up
				}})
			if err != nil {
				t.Fatal(err)
			}
			if err := c.Handle(ctx, delivery()); err == nil {
				t.Error("it succeeded")
			}
			pid := pidIn(t, out)
			for deadline := time.Now().Add(20 * time.Second); !gone(pid); time.Sleep(time.Millisecond) {
				if time.Now().After(deadline) {
					_ = syscall.Kill(pid, syscall.SIGKILL)
					t.Fatalf("%d outlived it", pid)
				}
			}
		})
	}
}

// A command that cannot be run is refused at the start, and is a failure if it is gone later.
func TestACommandThatCanNotBeRun(t *testing.T) {
	dir := t.TempDir()
	script := filepath.Join(dir, "handler")
	if err := os.WriteFile(script, []byte("#!/bin/sh\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		nil,
		{""},
		{"no-such-command-anywhere"},
		{script},
		{dir},
		{filepath.Join(dir, "missing")},
	} {
		if _, err := sinks.NewCommand(sinks.CommandOptions{Args: args}); err == nil {
			t.Errorf("%q was accepted", args)
		}
	}
	if err := os.Chmod(script, 0o700); err != nil {
		t.Fatal(err)
	}
	c, err := sinks.NewCommand(sinks.CommandOptions{Args: []string{script}})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Handle(t.Context(), delivery()); err != nil {
		t.Error(err)
	}
	if err := os.Remove(script); err != nil {
		t.Fatal(err)
	}
	if err := c.Handle(t.Context(), delivery()); err == nil || !strings.Contains(err.Error(), "no such file") {
		t.Errorf("%v", err)
	}
}

// A command's output is passed on in lines of a bounded length.
func TestLinesAreBounded(t *testing.T) {
	out := &output{}
	err := shell(t, out, `head -c 1000000 /dev/zero | tr '\0' x; printf '\na\r\n\nb'`).Handle(t.Context(), delivery())
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"42 stdout: ", "42 stdout: a", "42 stdout: b", "42 stdout: " + strings.Repeat("x", 4<<10) + " …"}
	if got := out.sorted(); !slices.Equal(got, want) {
		t.Errorf("%d lines: %.200q", len(got), got)
	}
}
