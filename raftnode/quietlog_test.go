package raftnode

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/ringrift/ringlog/raftnode/rafttransport"
)

func TestWhatRepeatsIsShownOnceAMinute(t *testing.T) {
	now := time.Now()
	var r repeats
	for _, step := range []struct {
		after time.Duration
		key   string
		want  string // "" is not shown, else the number held back
	}{
		{0, "a", "0"},
		{time.Second, "a", ""},
		{time.Second, "b", "0"}, // a new one at once
		{57 * time.Second, "a", ""},
		{time.Second, "a", "2"}, // a minute after it was shown
		{time.Second, "a", ""},
		{2 * time.Minute, "a", "1"}, // it had ended: it is new, and what was held is not lost
		{time.Second, "a", ""},
	} {
		now = now.Add(step.after)
		state, show := r.see(step.key, now)
		if got := map[bool]string{true: fmt.Sprint(state.held)}[show]; got != step.want {
			t.Errorf("%+v: %q", step, got)
		}
	}
	for i := range 2 * maxRepeats {
		r.see(fmt.Sprint(i), now)
	}
	if len(r.runs) > maxRepeats {
		t.Errorf("%d lines are remembered", len(r.runs))
	}
}

func TestALineIsHeldOnlyIfTheVerySameWasShown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out hclogBuffer
		l := newQuietLogger(hclog.New(&hclog.LoggerOptions{Output: &out, Level: hclog.Info}))
		disk := l.Named("disk")
		for range 100 { // five a second
			l.Warn("keeping the journal", "error", errors.New("write: no space left on device"))
			l.Error("keeping the journal", "error", &os.PathError{Op: "write", Path: "j", Err: syscall.EIO})
			disk.Warn("keeping the journal", "error", errors.New("write: no space left on device"))
			l.Warn("reading from", "error", errors.New("127.0.0.1:40312: reset"))
			l.Warn("reading from", "error", errors.New("127.0.0.1:40313: reset"))
			l.Info("leading")
			time.Sleep(200 * time.Millisecond)
		}
		for text, want := range map[string]int{"no space": 2, "input/output error": 1, "reset": 1, "leading": 100} {
			if got := len(out.lines(text)); got != want {
				t.Errorf("%d lines with %q, want %d", got, text, want)
			}
		}
		for term := range 3 { // each of these is another outage
			l.Error("quorum lost", "cause", "majority_unreachable", "since", stampOf(time.Now()), "unreachable", "n2")
			l.Warn("leadership ended before its start", "term", term, "error", ErrNoLeader)
			time.Sleep(time.Second)
		}
		if lost, ended := out.lines("quorum lost"), out.lines("leadership ended"); len(lost) != 3 || len(ended) != 3 {
			t.Errorf("%q %q", lost, ended)
		}
		time.Sleep(time.Minute)
		l.Warn("keeping the journal", "error", errors.New("write: no space left on device"))
		if found := out.lines("repeated=99"); len(found) != 1 {
			t.Errorf("the held ones are not counted: %q", found)
		}
	})
}

func TestAMemberThatRaftCannotReachIsReportedOnce(t *testing.T) {
	var out hclogBuffer
	l := &peerLog{logger: hclog.New(&hclog.LoggerOptions{Output: &out, DisableTime: true})}
	now := time.Now()
	refused := fmt.Errorf("rafttransport: dial n2:1: %w", syscall.ECONNREFUSED)
	expect := func(what string, want ...string) {
		t.Helper()
		got := out.lines("")
		if len(got) != len(want) {
			t.Fatalf("%s: %d lines, want %d:\n%s", what, len(got), len(want), strings.Join(got, "\n"))
		}
		for i := range want {
			if !strings.Contains(got[i], want[i]) {
				t.Errorf("%s: %q, want %q", what, got[i], want[i])
			}
		}
		out.reset()
	}
	fail := func(replication bool, err error) {
		now = now.Add(500 * time.Millisecond)
		l.failed("n2", "n2:1", replication, err, now)
	}

	fail(false, io.EOF)
	l.answered("n2", false, now)
	fail(true, fmt.Errorf("write: %w", syscall.ECONNRESET))
	expect("connections that end once")
	fail(false, refused)
	expect("nobody listens", `[WARN]  raft cannot reach a member: member=n2 addr=n2:1 error="rafttransport: dial n2:1: connection refused"`)
	fail(true, os.ErrDeadlineExceeded)
	for range 100 {
		fail(false, refused)
	}
	expect("what follows within a minute")
	fail(false, errors.New("entry 7 is damaged, says n2:7001"))
	fail(false, errors.New("entry 7 is damaged, says n2:7002"))
	fail(false, errors.New("entry 8 is damaged, says n2:7002"))
	expect("another error is new", "entry 7", "entry 8")
	fail(false, &rafttransport.RefusedError{Reason: rafttransport.ErrRemoved})
	expect("a refusal, which the transport logs")
	for range 20 {
		fail(false, refused)
	}
	expect("a minute later", "[WARN]  raft still cannot reach a member: member=n2")
	l.answered("n2", false, now)
	expect("heartbeats alone are answered")
	l.answered("n2", true, now)
	expect("it is back", "[INFO]  raft reaches a member again: member=n2 after=")
	l.answered("n2", true, now)
	expect("it stays")
	if l.lost.Load() != 0 {
		t.Errorf("%d members count as lost", l.lost.Load())
	}
	fail(false, refused)
	fail(false, refused)
	l.left("n2")
	if l.lost.Load() != 0 || len(l.members) != 0 {
		t.Errorf("a member that left: %v", l.members)
	}
	if err := l.ended("n2", "", false, raft.ErrTransportShutdown); err != raft.ErrTransportShutdown || l.lost.Load() != 0 {
		t.Errorf("an own end counts as a loss: %v", err)
	}
}

// A cluster that forms without a fault warns of nothing, and a member that is away is not
// reported with each attempt to reach it.
func TestTheLogIsQuietWhereThereIsNothingToDo(t *testing.T) {
	var out hclogBuffer
	inBubbleWith(t, func(cfg *Config) {
		cfg.Logger = hclog.New(&hclog.LoggerOptions{Name: cfg.ID, Level: hclog.Info, Output: &out, DisableTime: true})
	}, func(s *simulation) {
		warnings := func() []string { return append(out.lines("[WARN]"), out.lines("[ERROR]")...) }
		expect := func(what string, most int, want ...string) {
			t.Helper()
			if got := warnings(); len(got) > most {
				t.Errorf("%s: %d warnings:\n%s", what, len(got), strings.Join(got, "\n"))
			}
			for _, line := range want {
				if got := out.lines(line); len(got) != 1 {
					t.Errorf("%s: %d times %q", what, len(got), line)
				}
			}
			out.reset()
		}
		time.Sleep(10 * time.Second)
		for _, id := range s.ids {
			if got := out.lines(id + ": cluster formed"); len(got) != 1 {
				t.Errorf("%s logs %d times that the cluster is formed", id, len(got))
			}
		}
		expect("while the cluster formed", 0)

		away := s.follower()
		s.crash(away)
		time.Sleep(50 * time.Second)
		expect("a member is away", 1, "raft cannot reach a member: member="+away)
		time.Sleep(2 * time.Minute)
		if got := out.lines("raft still cannot reach a member"); len(got) < 1 {
			t.Error("it is not reported again")
		}
		expect("it is away for long", 2)
		s.start(away)
		s.settle()
		time.Sleep(10 * time.Second)
		expect("it is back", 0, "raft reaches a member again: member="+away)
		for _, id := range s.ids {
			s.stop(id)
		}
		for _, line := range warnings() {
			if strings.Contains(line, "[ERROR]") {
				t.Errorf("an orderly stop: %s", line)
			}
		}
	})
}

// hclogBuffer takes the lines of several loggers.
type hclogBuffer struct {
	mu  sync.Mutex
	out bytes.Buffer
}

func (b *hclogBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.out.Write(p)
}

func (b *hclogBuffer) reset() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.out.Reset()
}

func (b *hclogBuffer) lines(with string) (found []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for line := range strings.Lines(b.out.String()) {
		if strings.Contains(line, with) {
			found = append(found, strings.TrimSpace(line))
		}
	}
	return found
}
