package upstream

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/iotest"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/go-msgpack/v2/codec"
	"github.com/hashicorp/raft"

	"github.com/ringrift/ringlog/raftnode/rafttransport"
)

func TestAMemberThatRaftCannotReachIsReportedOnce(t *testing.T) {
	var out loggedLines
	l := &peerLog{logger: hclog.New(&hclog.LoggerOptions{Output: &out, DisableTime: true})}
	now := time.Now()
	refused := fmt.Errorf("dial n2:1: %w", syscall.ECONNREFUSED)
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
	var answer raft.AppendEntriesResponse
	cut := iotest.ErrReader(&net.OpError{Op: "read", Err: syscall.ECONNRESET})
	fail(true, codec.NewDecoder(cut, &codec.MsgpackHandle{}).Decode(&answer))
	expect("connections that end once")
	fail(false, refused)
	expect("a member that restarts")
	for range 4 {
		fail(false, refused)
	}
	expect(
		"nobody listens",
		`[WARN]  raft cannot reach a member: member=n2 addr=n2:1 error="dial n2:1: connection refused"`,
	)
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

// loggedLines takes the lines of several loggers.
type loggedLines struct {
	mu  sync.Mutex
	out bytes.Buffer
}

func (b *loggedLines) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.out.Write(p)
}

func (b *loggedLines) reset() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.out.Reset()
}

func (b *loggedLines) lines(with string) (found []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for line := range strings.Lines(b.out.String()) {
		if strings.Contains(line, with) {
			found = append(found, strings.TrimSpace(line))
		}
	}
	return found
}
