package integration

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/client"
	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/internal/longtest"
)

// ledger is what was sent and what was answered.
type ledger struct {
	mu      sync.Mutex
	acked   map[string]uint64 // id of an event -> its offset
	sent    map[string]bool   // every id that was sent, whether or not it was acknowledged
	counts  atomic.Int64      // acknowledged events
	writers atomic.Int64      // writers of cluster.write, which count on from 1000
}

// newLedger returns an empty ledger.
func newLedger() *ledger { return &ledger{acked: map[string]uint64{}, sent: map[string]bool{}} }

// send notes that events are about to be sent.
func (l *ledger) send(ids []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, id := range ids {
		l.sent[id] = true
	}
}

// ack notes the offsets with which a request was acknowledged.
func (l *ledger) ack(id string, offset uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.acked[id] = offset
	l.counts.Add(1)
}

// writer publishes until ctx ends: single events and whole requests, with dedup
// and without, each with an id of its own in the payload.
func (l *ledger) writer(ctx context.Context, t testing.TB, c *client.Client, number int) {
	rng := rand.New(rand.NewPCG(uint64(number), 7))
	for n := 0; ctx.Err() == nil; {
		// The ids are in the ledger before the request leaves.
		events := make([]event.Event, 1+rng.IntN(40))
		ids := make([]string, len(events))
		for i := range events {
			ids[i] = fmt.Sprintf("w%d-%d", number, n)
			events[i] = event.New(event.TrainingProgress, map[string]any{"id": ids[i], "epoch": n, "config_key": "hex8_2p"})
			events[i].Source, events[i].NoDedup = fmt.Sprintf("writer-%d", number), rng.IntN(2) == 0
			n++
		}
		l.send(ids)
		results, err := c.PublishBatch(ctx, events)
		if err != nil {
			if ctx.Err() == nil && isUnexplained(err) {
				t.Errorf("writer %d: %v", number, err)
				return
			}
			continue // another request; these events may be stored or not
		}
		for i, r := range results {
			l.ack(ids[i], r.Offset)
		}
	}
}

// isUnexplained reports whether an error is one that no fault of the test explains.
func isUnexplained(err error) bool {
	if errors.Is(err, client.ErrOutcomeUnknown) || errors.Is(err, context.DeadlineExceeded) {
		return false
	}
	var e *api.Error
	return !errors.As(err, &e) || (!e.Code.Retryable() && e.Code != api.OutcomeUnknown && e.Code != api.Timeout)
}

// check compares the ledger with the whole log of one node: every acknowledged
// event is stored once, at its offset; nothing is stored twice, and nothing that
// was not sent; offsets are dense.
func (l *ledger) check(t testing.TB, p *process, events []event.Event) {
	t.Helper()
	at := map[string]uint64{} // id of a stored event -> its offset
	for i, e := range events {
		if e.Offset != events[0].Offset+uint64(i) {
			t.Fatalf("%s: offset %d follows %d", p.id, e.Offset, events[0].Offset+uint64(i)-1)
		}
		if e.Type != event.TrainingProgress {
			continue
		}
		var payload struct{ ID string }
		if err := json.Unmarshal(e.Payload, &payload); err != nil {
			t.Fatalf("%s: event %d: %v", p.id, e.Offset, err)
		}
		if before, twice := at[payload.ID]; twice {
			t.Fatalf("%s: %s is stored at %d and at %d", p.id, payload.ID, before, e.Offset)
		}
		if !l.sent[payload.ID] {
			t.Fatalf("%s: %s at %d was never sent", p.id, payload.ID, e.Offset)
		}
		at[payload.ID] = e.Offset
	}
	// What is missing tends to be one range: the first few events and the bounds are shown.
	missing, lowest, highest := 0, uint64(math.MaxUint64), uint64(0)
	for id, offset := range l.acked {
		if at[id] == offset {
			continue
		}
		missing++
		if missing <= 3 { // the first few are enough
			t.Errorf("%s: %s was acknowledged at %d and is stored at %d", p.id, id, offset, at[id])
		}
		lowest, highest = min(lowest, offset), max(highest, offset)
	}
	if missing > 0 {
		t.Fatalf("%s: %d of %d acknowledged events are missing, between %d and %d; the log ends at %d",
			p.id, missing, len(l.acked), lowest, highest, events[len(events)-1].Offset)
	}
}

// readAll reads a node's own log from the start up to an offset.
func readAll(t testing.TB, c *cluster, p *process, upTo uint64) []event.Event {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	var events []event.Event
	whole := client.TailOptions{From: client.FromStart(), NoFollow: true, MinOffset: upTo}
	for e, err := range c.client(p.url()).Tail(ctx, whole) {
		if err != nil {
			t.Fatalf("tail %s: %v", p.id, err)
		}
		if e.Offset > upTo {
			break // the cluster reports its voters' health at any time
		}
		events = append(events, e)
	}
	return events
}

// reader follows the log through a durable cursor. It opens it again and
// again, as a process that crashes does, and checks that each time it is given
// everything after the commit, in order and once. reached is the last event it
// saw.
func reader(ctx context.Context, t testing.TB, c *client.Client, name string, reached *atomic.Uint64) {
	rng := rand.New(rand.NewPCG(uint64(len(name)), 9))
	committed, tried := uint64(0), uint64(0) // tried may have been committed or not
	for ctx.Err() == nil {
		cur, err := c.OpenCursor(ctx, name, client.CursorOptions{From: client.FromStart()})
		if err != nil {
			continue // no leader for longer than the client waits
		}
		// It reads some events and commits a few of them, then closes the cursor.
		next, lives := uint64(0), 500+rng.IntN(5000)
		for range lives {
			e, err := cur.Next(ctx)
			if err != nil {
				break
			}
			// The first event follows some commit that may have succeeded; every other follows the one before.
			fresh := next == 0 && e.Offset > committed && e.Offset <= tried+1
			if !fresh && e.Offset != next {
				t.Errorf("cursor %s: event %d, want %d; committed was %d to %d", name, e.Offset, next, committed, tried)
				return
			}
			next = e.Offset + 1
			reached.Store(max(reached.Load(), e.Offset))
			if rng.IntN(200) == 0 {
				tried = e.Offset
				if cur.Commit(ctx, e.Offset) == nil {
					committed = e.Offset
				}
			}
		}
		cur.Close()
	}
}

// breakLeader kills, pauses or deposes the leader, and starts or resumes its process once another node leads.
func breakLeader(c *cluster, kind int) {
	p := c.leader()
	switch kind % 3 {
	case 0:
		p.kill()
		c.otherLeader(p)
		p.start()
	case 1:
		p.signal(syscall.SIGSTOP)
		c.otherLeader(p)
		p.signal(syscall.SIGCONT)
	case 2:
		if _, err := c.run("cluster", "step-down"); err != nil {
			c.t.Logf("step-down: %v", err) // an election may be under way
		}
	}
}

// otherLeader waits until a node other than p leads.
func (c *cluster) otherLeader(p *process) {
	c.t.Helper()
	c.eventually(30*time.Second, "another leader", func() error {
		for _, other := range c.nodes {
			if other == p {
				continue
			}
			if s, err := other.status(); err == nil && s.Role == "leader" {
				return nil
			}
		}
		return errors.New("no other node leads")
	})
}

// Writers publish through changing endpoints while the leader is killed, paused
// and stepped down in turn. Afterwards every acknowledged event is there once, in
// one order, on every node, and every durable cursor got everything.
func TestNothingAcknowledgedIsLost(t *testing.T) {
	t.Parallel()
	for _, voters := range []int{3, 5} {
		t.Run(fmt.Sprintf("%d voters", voters), func(t *testing.T) { chaos(t, voters) })
	}
}

// chaos publishes from many clients and follows every node while processes are killed, paused and restarted, and then
// compares all logs with the ledger.
func chaos(t *testing.T, voters int) {
	faults, events := 8, int64(60_000)
	if !longtest.Enabled() {
		faults, events = 3, 5_000
	}
	c := newCluster(t, t.TempDir(), voters).startAll()
	ctx, cancel := context.WithTimeout(t.Context(), 8*time.Minute)
	defer cancel()
	// Writers and readers, each beginning at another node.
	l, writing := newLedger(), sync.WaitGroup{}
	writersDone, stopWriters := context.WithCancel(ctx)
	for number := range 16 {
		cl := c.client(rotate(c.endpoints(), number)...)
		writing.Go(func() { l.writer(writersDone, t, cl, number) })
	}
	var reading sync.WaitGroup
	readCtx, stopReaders := context.WithCancel(ctx)
	reached := make([]atomic.Uint64, 3)
	for i := range reached {
		cl := c.client(rotate(c.endpoints(), i)...)
		reading.Go(func() { reader(readCtx, t, cl, fmt.Sprintf("cursor-%d", i), &reached[i]) })
	}
	// Faults in turn, each followed by its share of the events.
	done := 0
	for ; done < faults || l.counts.Load() < events; done++ {
		if ctx.Err() != nil || t.Failed() {
			break
		}
		before := l.counts.Load()
		breakLeader(c, done)
		c.eventually(60*time.Second, "progress after a fault", func() error {
			if l.counts.Load() < before+events/int64(faults) {
				return fmt.Errorf("%d events acknowledged", l.counts.Load()-before)
			}
			return nil
		})
	}
	// The load ends, the cursors reach the tail, and the nodes are compared.
	stopWriters()
	writing.Wait()
	agreed := c.converged()
	c.eventually(60*time.Second, "cursors at the tail", func() error {
		for i := range reached {
			if at := reached[i].Load(); at < agreed.LastOffset {
				return fmt.Errorf("cursor %d is at %d of %d", i, at, agreed.LastOffset)
			}
		}
		return nil
	})
	stopReaders()
	reading.Wait()
	t.Logf("%d faults, %d acknowledged events of %d sent, %d offsets", done, len(l.acked), len(l.sent), agreed.LastOffset)
	compare(t, c, l)
}

// compare waits until the nodes agree, then checks the ledger against every node and the nodes against each other.
func compare(t testing.TB, c *cluster, l *ledger) {
	t.Helper()
	agreed := c.converged()
	var first []event.Event // of the first node
	for _, p := range c.nodes {
		events := readAll(t, c, p, agreed.LastOffset)
		l.check(t, p, events)
		if first == nil {
			first = events
			checkLeaders(t, events)
			continue
		}
		if len(events) != len(first) {
			t.Fatalf("%s has %d events, %s %d", p.id, len(events), c.nodes[0].id, len(first))
		}
		for i := range events {
			got, want := events[i], first[i]
			if got.Type != want.Type || string(got.Payload) != string(want.Payload) || got.Term != want.Term {
				t.Fatalf("event %d differs on %s", got.Offset, p.id)
			}
		}
	}
}

// checkLeaders requires that no term has two leaders and that terms rise.
func checkLeaders(t testing.TB, events []event.Event) {
	last := uint64(0)
	for _, e := range events {
		if e.Type != event.LeaderElected {
			continue
		}
		var payload struct{ Term uint64 }
		if err := json.Unmarshal(e.Payload, &payload); err != nil {
			t.Fatal(err)
		}
		if payload.Term <= last || payload.Term != e.Term {
			t.Fatalf("LEADER_ELECTED at %d: term %d in an entry of term %d, after term %d", e.Offset, payload.Term, e.Term, last)
		}
		last = payload.Term
	}
	if last == 0 {
		t.Fatal("no LEADER_ELECTED in the log")
	}
}

// rotate returns a list that begins with another element, so clients begin at different nodes.
func rotate(list []string, by int) []string {
	by %= len(list)
	return append(append([]string{}, list[by:]...), list[:by]...)
}
