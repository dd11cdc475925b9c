package engine

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"go.uber.org/goleak"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/fsm"
	"github.com/ringrift/ringlog/internal/frame"
	"github.com/ringrift/ringlog/raftnode"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// leader is a real node of one, the host of an Engine. Where asked and fate are set, it holds back the ack batches
// that settle what the test published, until the test says what becomes of them.
type leader struct {
	*testing.T
	node   *raftnode.Node
	asked  chan frame.GroupSettle
	deaths chan frame.GroupDead // nil: dead letters are stored as they come
	fate   chan error
	free   atomic.Bool // nothing is held back any more
	lost   atomic.Bool // its leadership
}

func newLeader(t *testing.T) *leader {
	l := &leader{T: t}
	const soon = 50 * time.Millisecond
	var err error
	l.node, err = raftnode.Open(t.Context(), raftnode.Config{
		ID:              "n1",
		Dir:             filepath.Join(t.TempDir(), "n1"),
		RaftBind:        "127.0.0.1:0",
		BootstrapExpect: 1,
		Timing:          raftnode.Timing{Heartbeat: soon, Election: soon, Lease: soon - 10*time.Millisecond},
		Disk:            raftnode.Disk{Reserve: -1},
		Fatal:           func(err error) { t.Errorf("fatal: %v", err) },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := l.node.Close(ctx); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	if err := l.node.WaitLeader(t.Context()); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the level of groups", func() bool { return l.Machine().FeatureLevel() >= frame.LevelDelivery })
	return l
}

// hold holds back each ack batch with settled events from here on, until fate says what becomes of it.
func (l *leader) hold() { l.asked, l.fate = make(chan frame.GroupSettle), make(chan error) }

// engine starts an engine, which ends with the test.
func (l *leader) engine() *Engine {
	ctx, stop := context.WithCancel(context.Background())
	e := New(ctx, l, hclog.NewNullLogger())
	l.Cleanup(func() { stop(); e.Wait() })
	return e
}

func (l *leader) Machine() *fsm.Machine { return l.node.Machine() }

func (l *leader) LeadingTerm() uint64 {
	if l.lost.Load() {
		return 0
	}
	return l.node.LeadingTerm()
}

func (l *leader) Propose(ctx context.Context, request frame.Request) (fsm.Result, error) {
	held := false
	switch c := request.Command.(type) {
	case frame.GroupSettle:
		held = !l.free.Load() && l.asked != nil && (c.Lease.Role != "" || (len(c.Done) > 0 && c.Done[len(c.Done)-1].To > 1))
		if held {
			select {
			case l.asked <- c:
			case <-ctx.Done():
			}
		}
	case frame.GroupDead:
		held = !l.free.Load() && l.deaths != nil
		if held {
			select {
			case l.deaths <- c:
			case <-ctx.Done():
			}
		}
	}
	if held {
		select {
		case err := <-l.fate:
			if err != nil {
				l.lost.Store(true)
				return fsm.Result{}, err
			}
		case <-ctx.Done():
		}
	}
	result, err := l.node.Propose(ctx, request)
	if err == nil && result.Refusal != nil {
		err = result.Refusal
	}
	return result, err
}

func (l *leader) CompleteLetter(_ context.Context, letter frame.DeadLetter) (frame.DeadLetter, error) {
	e, err := l.Machine().Log().Get(letter.Offset)
	letter.Event = frame.EncodeCopy(&e)
	return letter, err
}

// group creates a group that starts after the events that the cluster itself has appended.
func (l *leader) group(name string, f event.Filter) {
	l.Helper()
	if _, err := l.Propose(l.Context(), frame.Request{Command: frame.GroupCreate{
		Name:   name,
		Start:  frame.Position{Kind: frame.AtOffset, Offset: 2},
		Filter: f,
	}}); err != nil {
		l.Fatal(err)
	}
}

// publish appends events whose keys are k0, k1 and k2 in turn.
func (l *leader) publish(kind event.Type, from, to int) (offsets []uint64) {
	l.Helper()
	batch := &frame.Batch{}
	policy := l.Machine().Policy()
	for i := from; i <= to; i++ {
		e := event.New(kind, map[string]int{"n": i})
		e.Key, e.Source = fmt.Sprintf("k%d", i%3), fmt.Sprintf("s%d", i%2)
		hash, _, err := policy.Normalize(&e)
		if err != nil {
			l.Fatal(err)
		}
		batch.Add(&e, hash)
	}
	result, err := l.Propose(l.Context(), frame.Request{Command: frame.Publish{Count: batch.Len()}, Batch: batch})
	if err != nil {
		l.Fatal(err)
	}
	for _, place := range result.Offsets(to - from + 1) {
		offsets = append(offsets, place.Offset)
	}
	return offsets
}

func (l *leader) committed(group string) uint64 {
	c, _ := l.Machine().Cursor(group)
	return c.Committed
}

// fenced reports that an error ends a session.
func fenced(err error) bool {
	e, ok := errors.AsType[*api.Error](err)
	return ok && e.Code == api.Fenced
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(time.Minute) // a machine may be loaded
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("never: %s", what)
		}
		time.Sleep(5 * time.Millisecond)
	}
}
