package integration

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/ringrift/ringlog/client"
	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/internal/longtest"
)

// Deliveries of an event that no member can handle, before it is dead.
const groupDeliveries = 3

// serveGroup handles what it gets as a member of the group, until it is asked to end.
func (s *listenerSpec) serveGroup(asked context.Context, c *client.Client, notes *os.File) error {
	m, err := c.JoinGroup(asked, s.Group, client.GroupOptions{
		Member:     fmt.Sprintf("%s-%d", s.Name, s.Life),
		From:       client.FromStart(),
		Filter:     event.Filter{Types: []string{string(event.TrainingProgress)}},
		MaxDeliver: groupDeliveries,
		Prefetch:   256,
	})
	if err != nil {
		return err
	}
	for err == nil {
		var d client.Delivery
		d, err = m.Next(asked)
		if err == nil {
			err = s.handleDelivery(d, notes)
		}
	}
	if asked.Err() != nil {
		err = nil // it was asked to end, which ends Next
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	return errors.Join(err, m.Close(ctx), c.Close(ctx))
}

// handleDelivery notes an event before it is acknowledged, so a killed process has noted all
// that it acknowledged.
func (s *listenerSpec) handleDelivery(d client.Delivery, notes *os.File) error {
	if n := numberIn(d.Event); isPoison(n) || (n%101 == 3 && d.Count == 1) {
		return ignoreNotHeld(d.Nack(client.NackOptions{Err: errUnlucky.Error()}))
	}
	if _, err := fmt.Fprintf(notes, recordForm, d.Offset, s.Life); err != nil {
		return err
	}
	return ignoreNotHeld(d.Ack())
}

// ignoreNotHeld passes over an event that was given to another member meanwhile.
func ignoreNotHeld(err error) error {
	if errors.Is(err, client.ErrNotHeld) {
		return nil
	}
	return err
}

// newGroup returns three processes, not started, that are to share the events of a group.
func newGroup(t *testing.T, c *cluster) *listeners {
	return listenersOf(t, c,
		listenerSpec{Name: "member-1", Group: "crew"},
		listenerSpec{Name: "member-2", Group: "crew"},
		listenerSpec{Name: "member-3", Group: "crew"},
	)
}

// awaitGroup waits until the group has committed up to the offset.
func (all *listeners) awaitGroup(c *cluster, last uint64) {
	all.t.Helper()
	cl := c.client()
	c.eventually(2*time.Minute, "commit of the group", func() error {
		info, err := cl.Cursor(all.t.Context(), "crew")
		if err == nil && info.Committed < last {
			first := all.list[0]
			err = fmt.Errorf("it is at %d of %d; %s logged:\n%s", info.Committed, last, first.spec.Name, first.tail())
		}
		return err
	})
}

// Three processes share a group's events, on three voters: whichever is killed, a member or
// the leader, each event is handled or dead-lettered, in the order of its key, and handled
// again only where the process that had handled it was killed.
func TestAGroupOfThreeProcesses(t *testing.T) {
	t.Parallel()
	work := &load{events: 60_000, publishers: 4, batch: 500}
	session := "10s" // how long the events of a killed member wait
	if !longtest.Enabled() {
		work.events, session = 20_000, "4s"
	}
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	c := newCluster(t, t.TempDir(), 3).startAll()
	c.mustRun("settings", "set", "group.session_timeout", session)
	all := newGroup(t, c)
	for _, l := range all.list {
		l.start()
	}
	events, kills := all.disturbed(c, rand.New(rand.NewPCG(seed, 0)), work, int64(work.events))
	all.awaitGroup(c, work.last.Load())
	for _, l := range all.list {
		l.stop()
	}
	all.checkGroup(c, events, kills)
	c.converged()
}

// killedWith reports whether a letter is about an event whose last delivery was to a process
// that was killed: so often, it may as well be what had killed them.
func (all *listeners) killedWith(letter string, kills map[string]int) bool {
	for _, l := range all.list {
		for life := range kills[l.spec.Name] {
			if strings.HasPrefix(letter, fmt.Sprintf("%s-%d was not heard of", l.spec.Name, life+1)) {
				return true
			}
		}
	}
	return false
}

// checkGroup holds what the members handled, and what was dead-lettered, against what was
// published.
func (all *listeners) checkGroup(c *cluster, events map[uint64]event.Event, kills map[string]int) {
	all.t.Helper()
	type life struct {
		member string
		number int
	}
	// The dead letters, each with its last error.
	dead := map[uint64]string{}
	for letter, err := range c.client().Admin().DeadLetters(all.t.Context(), client.LetterFilter{Cursor: "crew"}) {
		if err != nil {
			all.t.Fatal(err)
		}
		dead[letter.Offset] = letter.Error
		if letter.Attempts < groupDeliveries {
			all.t.Errorf("%d is dead after %d deliveries", letter.Offset, letter.Attempts)
		}
	}
	// What each life of each member handled: only events of the group, each once, those of a key in order.
	handled := map[uint64]map[life]bool{}
	for _, l := range all.list {
		name := l.spec.Name
		newest := map[string]uint64{} // by life and key
		for _, r := range l.records() {
			ev, there := events[r.offset]
			by := life{name, r.life}
			switch {
			case !there || isPoison(numberIn(ev)):
				all.t.Fatalf("%s handled %d, which is impossible: %+v", name, r.offset, ev)
			case handled[r.offset] == nil:
				handled[r.offset] = map[life]bool{}
			case handled[r.offset][by]:
				all.t.Errorf("life %d of %s handled %d twice", r.life, name, r.offset)
			}
			handled[r.offset][by] = true
			lifeAndKey := fmt.Sprint(r.life, " ", ev.Key)
			if after := newest[lifeAndKey]; after > r.offset {
				all.t.Errorf("life %d of %s handled %d of %s after %d", r.life, name, r.offset, ev.Key, after)
			}
			newest[lifeAndKey] = max(newest[lifeAndKey], r.offset)
		}
		if l.life != kills[name]+1 {
			all.t.Errorf("%s lived %d times and was killed %d times: it ended by itself", name, l.life, kills[name])
		}
	}
	// Each event was handled or is dead, and more than once only where all but one who handled it were killed.
	again := 0
	for offset, ev := range events {
		by := handled[offset]
		why, isDead := dead[offset]
		poison := isPoison(numberIn(ev))
		mayBeDead := poison || all.killedWith(why, kills)
		lost := !isDead && len(by) == 0
		if (isDead && !mayBeDead) || (poison && len(by) > 0) || lost {
			all.t.Errorf("%d: handled %d times, dead %v (%s), of one that can be handled: %v",
				offset, len(by), isDead, why, !poison)
		}
		survivors := 0 // that handled it and were not killed
		for l := range by {
			if l.number == kills[l.member]+1 {
				survivors++
			}
		}
		again += max(0, len(by)-1)
		if survivors > 1 {
			all.t.Errorf("%d: handled by %v; %d of them were not killed", offset, by, survivors)
		}
	}
	all.t.Logf("%d events, %d handled again after %v were killed, %d dead letters", len(events), again, kills, len(dead))
}
