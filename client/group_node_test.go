package client_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/client"
	"github.com/ringrift/ringlog/event"
)

// keyed publishes events numbered from 0, of which each has one of the keys in turn, ""
// among them.
func keyed(t testing.TB, c *client.Client, n int, keys ...string) {
	t.Helper()
	var events []event.Event
	for i := range n {
		ev := numbered(i)
		ev.Key = keys[i%len(keys)]
		events = append(events, ev)
	}
	if _, err := c.PublishBatch(t.Context(), events); err != nil {
		t.Fatal(err)
	}
}

var progress = event.Filter{Types: []string{"TRAINING_PROGRESS"}}

// handled is what members have made of events, in the order in which they did.
type handled struct {
	mu    sync.Mutex
	keys  map[string][]int
	fails map[int]int
	total int
}

// Members share a group over a network that loses requests and answers, and some of what
// they are given fails. Every event is handled once, those of a key in their order.
func TestMembersShareAGroup(t *testing.T) {
	t.Parallel()
	const total = 1200
	n := startNode(t)
	steady := dial(t, client.Config{}, openDoor(t, n.server.Handler()))
	keyed(t, steady, total, "a", "b", "c", "", "d", "")
	rng := rand.New(rand.NewPCG(3, 4))
	var mu sync.Mutex
	lossy := openDoor(t, n.server.Handler())
	lossy.faults(func(r *http.Request) fault {
		mu.Lock()
		defer mu.Unlock()
		if !strings.HasSuffix(r.URL.Path, "/Exchange") {
			return fault{}
		}
		luck := rng.IntN(20)
		return fault{cutAfter: luck == 0, cutBefore: luck == 1}
	})
	h := &handled{keys: map[string][]int{}, fails: map[int]int{}}
	var wg sync.WaitGroup
	for i := range 3 {
		m := joinGroup(
			t,
			dial(t, client.Config{AttemptTimeout: 2 * time.Second}, lossy),
			client.GroupOptions{Member: fmt.Sprint("w", i), Filter: progress, Prefetch: 16, MaxDeliver: 1000},
		)
		wg.Go(func() { h.work(t, m, total) })
	}
	wg.Wait()
	for key, list := range h.keys {
		if key != "" && !slices.IsSorted(list) {
			t.Errorf("key %q was handled as %v", key, list)
		}
		slices.Sort(list)
		if len(slices.Compact(slices.Clone(list))) != len(list) {
			t.Errorf("key %q: something was handled twice: %v", key, list)
		}
	}
	if len(h.fails) == 0 {
		t.Error("nothing failed")
	}
	info, err := steady.Cursor(t.Context(), "trainers")
	if err != nil || info.Committed < total {
		t.Errorf("%+v, %v", info, err)
	}
}

// work handles until all are, and fails every twentieth the first time, or as long as
// max deliver allows.
func (h *handled) work(t *testing.T, m *client.GroupMember, total int) {
	for {
		h.mu.Lock()
		over := h.total == total
		h.mu.Unlock()
		if over {
			break
		}
		d, err := nextSoon(t, m)
		if err != nil {
			continue
		}
		h.mu.Lock()
		number := numberOf(d.Event)
		bad := number%20 == 7 && h.fails[number] < 2
		if bad {
			h.fails[number]++
		} else {
			h.keys[d.Key] = append(h.keys[d.Key], number)
			h.total++
		}
		h.mu.Unlock()
		if bad {
			err = d.Nack(client.NackOptions{Err: "bad", Delay: time.Duration(number%3) * time.Millisecond})
		} else {
			err = d.Ack()
		}
		if err != nil {
			t.Error(err)
		}
	}
	if err := errors.Join(m.Flush(t.Context()), m.Close(t.Context())); err != nil {
		t.Errorf("%s: %v", m.Name(), err)
	}
}

// nextSoon is Next that looks up now and then.
func nextSoon(t *testing.T, m *client.GroupMember) (client.Delivery, error) {
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	return m.Next(ctx)
}

// An event that fails too often, or is abandoned, is a dead letter; its key continues.
func TestAFailedEventBecomesADeadLetter(t *testing.T) {
	t.Parallel()
	n := startNode(t)
	c := dial(t, client.Config{AttemptTimeout: 2 * time.Second}, openDoor(t, n.server.Handler()))
	keyed(t, c, 4, "a")
	m := joinGroup(t, c, client.GroupOptions{Filter: progress, MaxDeliver: 2})
	for want := uint64(1); want <= 2; want++ {
		d := next(t, m)
		if numberOf(d.Event) != 0 || d.Count != want {
			t.Fatalf("event %d, delivery %d, want %d", numberOf(d.Event), d.Count, want)
		}
		if err := d.Nack(client.NackOptions{Err: "bad", Handler: "test"}); err != nil {
			t.Fatal(err)
		}
	}
	second := next(t, m)
	if err := second.Nack(client.NackOptions{Err: "worse", Dead: true}); err != nil ||
		numberOf(second.Event) != 1 {
		t.Fatalf("event %d, %v", numberOf(second.Event), err)
	}
	third := next(t, m)
	if err := third.Nack(client.NackOptions{Released: true}); err != nil {
		t.Fatal(err)
	}
	if again := next(t, m); again.Offset != third.Offset || again.Count != 1 {
		t.Errorf("released and redelivered: %d, delivery %d", again.Offset, again.Count)
	}
	if err := third.Nack(client.NackOptions{Dead: true, Released: true}); err == nil {
		t.Error("dead and released")
	}
	if err := m.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	var letters []string
	for l, err := range c.Admin().DeadLetters(t.Context(), client.LetterFilter{Cursor: "trainers"}) {
		if err != nil {
			t.Fatal(err)
		}
		letters = append(letters, fmt.Sprintf("%s %s %d", l.Error, l.Handler, l.Attempts))
	}
	if want := []string{"bad test 2", "worse " + m.Name() + " 1"}; !slices.Equal(letters, want) {
		t.Errorf("letters %v, want %v", letters, want)
	}
}

// A member that is too late loses its event to another one.
func TestWhatAMemberIsTooLongAboutGoesToAnother(t *testing.T) {
	t.Parallel()
	n := startNode(t)
	c := dial(t, client.Config{AttemptTimeout: 2 * time.Second}, openDoor(t, n.server.Handler()))
	keyed(t, c, 1, "")
	o := client.GroupOptions{Filter: progress, AckWait: 200 * time.Millisecond}
	slow := joinGroup(t, c, o)
	late := next(t, slow)
	fast := joinGroup(t, c, o)
	if d := next(t, fast); d.Offset != late.Offset || d.Count != 2 || d.Ack() != nil {
		t.Errorf("%d, delivery %d", d.Offset, d.Count)
	}
	until(
		t,
		"the slow one to learn of it",
		func() bool { return errors.Is(late.Progress(), client.ErrNotHeld) },
	)
	if err := late.Ack(); !errors.Is(err, client.ErrNotHeld) {
		t.Errorf("an ack that comes too late: %v", err)
	}
}

func TestAGroupIsNotACursor(t *testing.T) {
	t.Parallel()
	n := startNode(t)
	c := dial(t, client.Config{}, openDoor(t, n.server.Handler()))
	if _, err := c.CreateGroup(
		t.Context(),
		"trainers",
		client.GroupSpec{From: client.FromEnd(), AckWait: time.Minute, MaxDeliver: 3},
	); err != nil {
		t.Fatal(err)
	}
	_, err := c.OpenCursor(t.Context(), "trainers", client.CursorOptions{})
	wantCode(t, err, api.InvalidArgument)
	_, err = c.CreateGroup(t.Context(), "trainers", client.GroupSpec{AckWait: time.Hour})
	wantCode(t, err, api.Exists)
	_, err = c.JoinGroup(t.Context(), "nobody", client.GroupOptions{NoCreate: true})
	wantCode(t, err, api.NotFound)
}

func TestWhatIsLeftOutIsNotCompared(t *testing.T) {
	t.Parallel()
	n := startNode(t)
	c := dial(t, client.Config{}, openDoor(t, n.server.Handler()))
	filter, policy := event.Filter{Types: []string{"DATA_SYNC_*"}}, client.CursorPolicy{HoldFor: time.Hour}
	if _, err := c.CreateGroup(t.Context(), "g9", client.GroupSpec{Filter: filter, MaxDeliver: 9}); err != nil {
		t.Fatal(err)
	}
	made, err := c.CreateCursor(t.Context(), "c9", client.CursorSpec{Filter: filter, Policy: policy})
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range []client.GroupOptions{{Filter: filter}, {MaxDeliver: 9}, {AckWait: 30 * time.Second}} {
		m, err := c.JoinGroup(t.Context(), "g9", o)
		if err != nil {
			t.Errorf("%+v: %v", o, err)
			continue
		}
		if err := m.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
	for _, o := range []client.CursorOptions{{Filter: filter}, {Policy: policy}} {
		cur, err := c.OpenCursor(t.Context(), "c9", o)
		if err != nil {
			t.Errorf("%+v: %v", o, err)
			continue
		}
		if err := cur.Close(); err != nil {
			t.Error(err)
		}
	}
	found, err := c.CreateCursor(t.Context(), "c9", client.CursorSpec{Policy: policy})
	if found.Generation, made.Generation = 0, 0; err != nil || !reflect.DeepEqual(found.Filter, made.Filter) ||
		found.Policy != made.Policy || !found.Created.Equal(made.Created) || found.Name != made.Name {
		t.Errorf("%+v, not %+v: %v", found, made, err)
	}

	// What is given and differs is named alone.
	_, err = c.JoinGroup(t.Context(), "g9", client.GroupOptions{MaxDeliver: 8})
	wantCode(t, err, api.Exists)
	if answer, ok := errors.AsType[*api.Error](err); !ok || answer.Field != "group" ||
		answer.Message != `the group "g9" exists with other settings: group.max_deliver is 9, not 8` {
		t.Errorf("%v", err)
	}
}

func TestAChangeTakesWhatIsLeftOutAway(t *testing.T) {
	t.Parallel()
	n := startNode(t)
	c := dial(t, client.Config{}, openDoor(t, n.server.Handler()))
	spec := client.CursorSpec{Filter: event.Filter{Types: []string{"A"}}, Policy: client.CursorPolicy{HoldFor: time.Hour}}
	if _, err := c.CreateCursor(t.Context(), "c", spec); err != nil {
		t.Fatal(err)
	}
	cur, err := c.OpenCursor(t.Context(), "c", client.CursorOptions{Filter: spec.Filter, Change: true})
	if err != nil {
		t.Fatal(err)
	}
	defer cur.Close()
	if is := cur.Info(); is.Policy != (client.CursorPolicy{}) || is.Filter.Empty() {
		t.Errorf("%+v", is)
	}
}
