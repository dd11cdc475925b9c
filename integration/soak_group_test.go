package integration

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"sync"
	"time"

	"github.com/ringrift/ringlog/client"
	"github.com/ringrift/ringlog/event"
)

// groupLedger is what the members of the group did, by offset.
type groupLedger struct {
	h       *history
	mu      sync.Mutex
	handled map[uint64]bool   // acknowledged, though perhaps not durably
	durable map[uint64]string // the member whose acknowledgement is durable
}

// newGroupLedger returns an empty ledger.
func newGroupLedger(h *history) groupLedger {
	return groupLedger{h: h, handled: map[uint64]bool{}, durable: map[uint64]string{}}
}

// handed notes a delivery: no member gets what a member has durably acknowledged.
func (g *groupLedger) handed(member string, offset uint64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if by, done := g.durable[offset]; done {
		g.h.violation("%s was handed offset %d, which %s had durably acknowledged", member, offset, by)
	}
}

// acked notes that a member handled an event.
func (g *groupLedger) acked(offset uint64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.handled[offset] = true
}

// flushed notes acknowledgements that are durable.
func (g *groupLedger) flushed(member string, offsets []uint64) {
	g.mu.Lock()
	for _, o := range offsets {
		g.durable[o] = member
	}
	g.mu.Unlock()
	g.h.mu.Lock()
	defer g.h.mu.Unlock()
	g.h.counts.Acks += len(offsets)
}

// check requires that each of the soak's events in this part of the log, which the group has
// passed, was handled by a member, and forgets what is far before it.
func (g *groupLedger) check(part []soakStored) {
	g.mu.Lock()
	defer g.mu.Unlock()
	missed, first := 0, uint64(0) // the offset of the first
	for _, e := range part {
		if e.number >= 0 && !g.handled[e.Offset] {
			if missed == 0 {
				first = e.Offset
			}
			missed++
		}
	}
	if missed > 0 {
		g.h.violation("the group has passed %d events that no member handled, the first at offset %d", missed, first)
	}
	// A late acknowledgement may still be of an offset shortly before this part.
	const remembered = 100_000
	if len(part) > 0 {
		maps.DeleteFunc(g.handled, func(o uint64, _ bool) bool { return o+remembered < part[0].Offset })
		maps.DeleteFunc(g.durable, func(o uint64, _ string) bool { return o+remembered < part[0].Offset })
	}
}

const soakGroup = "soak"

// shareGroup is a member of the group that acknowledges what it gets, some of it after a failure.
func (s *soakClients) shareGroup(ctx context.Context, i int) {
	c, err := client.New(client.Config{Endpoints: rotate(s.c.endpoints(), i), HTTPClient: s.c.web})
	if err != nil {
		panic(err)
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.Background(), requestTimeout)
		defer cancel()
		_ = c.Close(ctx)
	}()
	// A membership that ends is followed by another one, under a new name.
	for life := 0; ctx.Err() == nil; life++ {
		name := fmt.Sprintf("member-%d-%d-%d", s.round.Load(), i, life)
		m, err := c.JoinGroup(ctx, soakGroup, client.GroupOptions{
			Member: name, Filter: event.Filter{Types: []string{string(event.TrainingProgress)}}, MaxDeliver: 100,
		})
		if err != nil {
			waitOrDone(ctx, 200*time.Millisecond)
			continue
		}
		s.serveGroup(ctx, m, name)
		closing, cancel := context.WithTimeout(context.Background(), 2*requestTimeout)
		_ = m.Close(closing)
		cancel()
	}
}

// serveGroup handles deliveries until the membership or the round ends.
func (s *soakClients) serveGroup(ctx context.Context, m *client.GroupMember, name string) {
	var handled []uint64 // acknowledged since the last flush
	flush := func() {
		flushing, cancel := context.WithTimeout(context.Background(), 2*requestTimeout)
		defer cancel()
		if m.Flush(flushing) == nil {
			s.group.flushed(name, handled)
		}
		handled = handled[:0]
	}
	defer flush()
	for {
		batch, err := m.NextBatch(ctx)
		if err != nil {
			return
		}
		for _, d := range batch {
			// Some events fail at their first attempt.
			s.group.handed(name, d.Event.Offset)
			if d.Count == 1 && d.Event.Offset%97 == 0 {
				_ = d.Nack(client.NackOptions{Err: "the first attempt fails"})
				continue
			}
			s.group.acked(d.Event.Offset)
			if d.Ack() == nil {
				handled = append(handled, d.Event.Offset)
			}
		}
		if len(handled) > 500 {
			flush()
		}
	}
}

// awaitGroup waits until the group has acknowledged all up to an offset.
func (s *soakClients) awaitGroup(upTo uint64) {
	s.c.eventually(longest, "the group past the last event", func() error {
		var info struct{ Committed uint64 }
		a := s.call(http.MethodGet, s.c.nodes[0].url()+"/v1/cursors/"+soakGroup, nil, nil)
		if a.outcome != acknowledged || json.Unmarshal(a.text, &info) != nil {
			return fmt.Errorf("asked for the group: %s %s", a.code, a.text)
		}
		if info.Committed < upTo {
			return fmt.Errorf("it is at %d of %d", info.Committed, upTo)
		}
		return nil
	})
}
