package client_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/client"
	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/event/where"
)

// flaky cuts every stream after a random number of bytes.
func flaky() func(*http.Request) fault {
	var mu sync.Mutex
	rng := rand.New(rand.NewPCG(2, uint64(time.Now().UnixNano())))
	return func(r *http.Request) fault {
		mu.Lock()
		defer mu.Unlock()
		switch {
		case !isStream(r):
			return fault{}
		case rng.IntN(4) == 0:
			return fault{answer: &api.Error{Code: api.Unavailable, Message: "stopping"}}
		}
		return fault{cutBytes: 1 + rng.IntN(6000)}
	}
}

// TestATailGoesOnOverCutStreams reads while others publish; of every kind of reader
// each must see all that matches, in order, once.
func TestATailGoesOnOverCutStreams(t *testing.T) {
	t.Parallel()
	n := startNode(t)
	steady := dial(t, client.Config{}, openDoor(t, n.server.Handler()))
	doors := []*door{openDoor(t, n.server.Handler()), openDoor(t, n.server.Handler())}
	for _, d := range doors {
		d.faults(flaky())
	}
	c := dial(t, client.Config{}, doors...)
	const total = 1500
	first := publishN(t, steady, 0, 1)
	even := event.Filter{Keys: []string{"even"}}
	var wg sync.WaitGroup
	for name, reader := range map[string]struct {
		o    client.TailOptions
		want func(n int) bool
	}{
		"all": {client.TailOptions{From: client.FromOffset(first), Limit: total}, func(int) bool { return true }},
		"filtered": {
			client.TailOptions{From: client.FromStart(), Filter: even, Limit: total / 2},
			func(n int) bool { return n%2 == 0 && n > 0 },
		},
		"by age": {
			client.TailOptions{
				From:        client.FromAge(time.Hour),
				Filter:      even,
				Limit:       total / 2,
				Consistency: client.Linearizable,
			},
			func(n int) bool { return n%2 == 0 && n > 0 },
		},
	} {
		wg.Go(func() {
			next := 0
			for ev, err := range c.Tail(t.Context(), reader.o) {
				if err != nil {
					t.Errorf("%s: %v", name, err)
					return
				}
				for !reader.want(next) {
					next++
				}
				if numberOf(ev) != next {
					t.Errorf("%s: got %d, want %d", name, numberOf(ev), next)
					return
				}
				next++
			}
			if next < total-1 {
				t.Errorf("%s: ended before %d", name, next)
			}
		})
	}
	for at := 1; at <= total; at += 50 {
		var events []event.Event
		for i := at; i < at+50; i++ {
			ev := numbered(i)
			if i%2 == 0 {
				ev.Key = "even"
			}
			events = append(events, ev)
		}
		if _, err := steady.PublishBatch(t.Context(), events); err != nil {
			t.Fatal(err)
		}
	}
	wg.Wait()
}

func TestPositionsOfATail(t *testing.T) {
	t.Parallel()
	n := startNode(t)
	c := dial(t, client.Config{}, openDoor(t, n.server.Handler()))
	last := publishN(t, c, 0, 10)
	halfway, err := c.Get(t.Context(), last)
	if err != nil {
		t.Fatal(err)
	}
	until(t, "the clock to move on", func() bool {
		publishN(t, c, 10, 11)
		ev, err := c.Get(t.Context(), last+1)
		return err == nil && ev.AppendedAt.After(halfway.AppendedAt)
	})
	for name, tt := range map[string]struct {
		o    client.TailOptions
		want int
	}{
		"an offset": {client.TailOptions{From: client.FromOffset(last - 2)}, 7},
		"the last":  {client.TailOptions{From: client.FromOffset(last), Limit: 1}, 9},
		"a time":    {client.TailOptions{From: client.FromTime(halfway.AppendedAt.Add(1))}, 10},
		"an age": {
			client.TailOptions{From: client.FromAge(time.Hour), Filter: event.Filter{Types: []string{"training.*"}}},
			0,
		},
		"the start": {
			client.TailOptions{From: client.FromStart(), Filter: event.Filter{Types: []string{"TRAINING_PROGRESS"}}},
			0,
		},
		"by itself": {client.TailOptions{Filter: event.Filter{Categories: []string{"training"}}}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			tt.o.NoFollow = true
			for ev, err := range c.Tail(t.Context(), tt.o) {
				if err != nil || numberOf(ev) != tt.want {
					t.Errorf("begins with %s, %v, want %d", ev.Payload, err, tt.want)
				}
				return
			}
			t.Error("nothing there")
		})
	}
	for _, err := range c.Tail(t.Context(), client.TailOptions{From: client.FromOffset(1_000_000), NoFollow: true}) {
		wantCode(t, err, api.PastTail)
	}
	_, err = c.Get(t.Context(), 1_000_000)
	wantCode(t, err, api.PastTail)
}

// A condition chooses among what passes the filter, and the limit counts what meets it.
func TestATailHasWhatMeetsItsCondition(t *testing.T) {
	t.Parallel()
	n := startNode(t)
	c := dial(t, client.Config{}, openDoor(t, n.server.Handler()))
	var first uint64
	for i := range 12 {
		ev := numbered(i)
		if i == 4 || i == 6 {
			ev = event.New(event.TrainingProgress, map[string]int{"m": i})
		}
		res, err := c.Publish(t.Context(), ev)
		if err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			first = res.Offset
		}
	}
	met, err := where.Compile("payload.n > 2")
	if err != nil {
		t.Fatal(err)
	}
	read := func(o client.TailOptions) (offsets, failed []uint64) {
		t.Helper()
		o.From, o.Where = client.FromOffset(first), met
		for ev, err := range c.Tail(t.Context(), o) {
			if unmet, ok := errors.AsType[*client.WhereError](err); ok {
				failed = append(failed, unmet.Offset-first)
				continue
			}
			if err != nil {
				t.Fatal(err)
			}
			offsets = append(offsets, ev.Offset-first)
		}
		return offsets, failed
	}
	all, failed := read(client.TailOptions{NoFollow: true})
	if !slices.Equal(all, []uint64{3, 5, 7, 8, 9, 10, 11}) || !slices.Equal(failed, []uint64{4}) {
		t.Errorf("%v, not evaluated %v", all, failed)
	}
	if some, _ := read(client.TailOptions{Limit: 3}); !slices.Equal(some, []uint64{3, 5, 7}) {
		t.Errorf("up to a limit: %v", some)
	}
}

func TestATailFromTheEndHasWhatComesAfter(t *testing.T) {
	t.Parallel()
	n := startNode(t)
	d := openDoor(t, n.server.Handler())
	c := dial(t, client.Config{}, d)
	publishN(t, c, 0, 5)
	streams := make(chan struct{}, 100)
	d.faults(func(r *http.Request) fault {
		if isStream(r) {
			streams <- struct{}{}
		}
		return fault{}
	})
	got := make(chan int)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for ev, err := range c.Tail(ctx, client.TailOptions{}) {
			if err != nil {
				return
			}
			got <- numberOf(ev)
		}
	}()
	<-streams
	// The tail may begin before or after these; from then on nothing may be missing.
	next := 5
	until(t, "the tail to stand", func() bool {
		publishN(t, c, next, next+1)
		next++
		select {
		case n := <-got:
			for n < next-1 {
				if m := <-got; m != n+1 {
					t.Fatalf("%d follows %d", m, n)
				}
				n++
			}
			return true
		default:
			return false
		}
	})
	publishN(t, c, next, next+3)
	for want := next; want < next+3; want++ {
		if n := <-got; n != want {
			t.Fatalf("got %d, want %d", n, want)
		}
	}
	cancel()
	<-ended
}

func TestGapsAreToldAndPassed(t *testing.T) {
	t.Parallel()
	n := startNode(t)
	c := dial(t, client.Config{}, openDoor(t, n.server.Handler()))
	cur, err := c.OpenCursor(t.Context(), "late", client.CursorOptions{})
	if err != nil {
		t.Fatal(err)
	}
	_ = cur.Close()
	for i := range 4 {
		publishN(t, c, i*10, i*10+10)
	}
	last := publishN(t, c, 40, 50)
	before := last - 9
	trimmed, err := c.Admin().Compact(t.Context(), client.Compaction{Before: &before, Force: true})
	if err != nil || trimmed.First < 2 || !slices.Contains(trimmed.Passed, "late") {
		t.Fatalf("%+v, %v", trimmed, err)
	}
	var gap *client.GapError
	var got []int
	for ev, err := range c.Tail(t.Context(), client.TailOptions{From: client.FromOffset(1), NoFollow: true}) {
		switch {
		case errors.As(err, &gap) && len(got) == 0:
		case err != nil:
			t.Fatal(err)
		case ev.Offset >= before:
			got = append(got, numberOf(ev))
		}
	}
	if gap == nil || gap.Gap.From != 1 || gap.Gap.To != trimmed.First-1 || len(got) != 10 || got[0] != 40 {
		t.Errorf("gap %+v, then %v", gap, got)
	}
	again, err := c.OpenCursor(t.Context(), "late", client.CursorOptions{NoCreate: true})
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	gap = nil
	if _, err := again.Next(t.Context()); !errors.As(err, &gap) || gap.Gap.To != trimmed.First-1 ||
		gap.Gap.Types["TRAINING_PROGRESS"]+gap.Gap.Uncounted == 0 {
		t.Fatalf("the cursor got %v, %+v", err, gap)
	}
	if ev, err := again.Next(t.Context()); err != nil || ev.Offset != trimmed.First {
		t.Errorf("after the gap is %d, %v, want %d", ev.Offset, err, trimmed.First)
	}
	if err := again.Commit(t.Context(), gap.Gap.To); err != nil {
		t.Error(err)
	}
	if info, err := c.Cursor(t.Context(), "late"); err != nil || info.Gap != nil || info.Committed != gap.Gap.To {
		t.Errorf("the cursor is %+v, %v", info, err)
	}
}

func TestACursorGoesOnWhereItCommitted(t *testing.T) {
	t.Parallel()
	n := startNode(t)
	d := openDoor(t, n.server.Handler())
	d.faults(flaky())
	c := dial(t, client.Config{}, d, openDoor(t, n.server.Handler()))
	publishN(t, c, 0, 400)
	want := 0
	for reader := range 4 {
		cur, err := c.OpenCursor(
			t.Context(),
			"trainer",
			client.CursorOptions{Filter: event.Filter{Types: []string{"TRAINING_PROGRESS"}}},
		)
		if err != nil {
			t.Fatal(err)
		}
		for i := range 100 {
			ev, err := cur.Next(t.Context())
			if err != nil || numberOf(ev) != want {
				t.Fatalf("reader %d read %s, %v, want %d", reader, ev.Payload, err, want)
			}
			if i < 90 { // what is read and not committed is redelivered
				want++
			}
			if i == 89 {
				if err := cur.Commit(t.Context(), ev.Offset); err != nil {
					t.Fatal(err)
				}
			}
			if i >= 89 {
				want = (reader+1)*90 + max(0, i-89)
			}
		}
		want = (reader + 1) * 90
		if err := cur.Close(); err != nil {
			t.Fatal(err)
		}
		if _, err := cur.Next(t.Context()); !errors.Is(err, client.ErrClosed) {
			t.Errorf("next after Close: %v", err)
		}
	}
}

func TestOpeningACursorFencesOffWhoHadIt(t *testing.T) {
	t.Parallel()
	n := startNode(t)
	c := dial(t, client.Config{}, openDoor(t, n.server.Handler()))
	last := publishN(t, c, 0, 3)
	old, err := c.OpenCursor(t.Context(), "one", client.CursorOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer old.Close()
	batch, err := old.NextBatch(t.Context())
	if err != nil || len(batch) == 0 || old.Scanned() < batch[len(batch)-1].Offset {
		t.Fatalf("%d events, scanned %d: %v", len(batch), old.Scanned(), err)
	}
	young, err := c.OpenCursor(t.Context(), "one", client.CursorOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer young.Close()
	wantCode(t, old.Commit(t.Context(), last), api.Fenced)
	for err == nil {
		_, err = old.Next(t.Context())
	}
	wantCode(t, err, api.Fenced)
	if _, again := old.Next(t.Context()); !errors.Is(again, err) {
		t.Errorf("then %v", again)
	}
	if err := young.Commit(t.Context(), last); err != nil {
		t.Error(err)
	}
	_, err = c.CreateCursor(t.Context(), "one", client.CursorSpec{Filter: event.Filter{Keys: []string{"k"}}})
	wantCode(t, err, api.Exists)
	_, err = c.OpenCursor(t.Context(), "none", client.CursorOptions{NoCreate: true})
	wantCode(t, err, api.NotFound)
}

func TestAQuietCursorHoldsNothingBack(t *testing.T) {
	t.Parallel()
	n := startNode(t)
	c := dial(t, client.Config{}, openDoor(t, n.server.Handler()))
	never := event.Filter{Keys: []string{"never"}}
	waits := func(name string, o client.CursorOptions) (stop func()) {
		cur, err := c.OpenCursor(t.Context(), name, o)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			if _, err := cur.Next(ctx); !errors.Is(err, context.Canceled) {
				t.Errorf("%s: next: %v", name, err)
			}
		}()
		return func() {
			cancel()
			<-ended
			_ = cur.Close()
		}
	}
	defer waits("quiet", client.CursorOptions{Filter: never})()
	defer waits("manual", client.CursorOptions{Filter: never, NoScanCommit: true})()
	last := publishN(t, c, 0, 10)
	until(t, "the quiet cursor to commit what it scanned", func() bool {
		info, err := c.Cursor(t.Context(), "quiet")
		return err == nil && info.Committed >= last
	})
	if info, err := c.Cursor(t.Context(), "manual"); err != nil || info.Committed != 0 {
		t.Errorf("the other committed %d, %v", info.Committed, err)
	}
	list, err := c.Cursors(t.Context())
	if err != nil || len(list) != 2 || list[0].Name != "manual" || list[0].LagEvents != 0 || list[0].LagAtLeast != nil {
		t.Errorf("cursors are %+v, %v", list, err)
	}
}

// TestWhatWasGivenOutIsNotCommittedByScanning: an event that a handler has must be
// redelivered after a crash, however many events pass after it.
func TestWhatWasGivenOutIsNotCommittedByScanning(t *testing.T) {
	t.Parallel()
	n := startNode(t)
	c := dial(t, client.Config{}, openDoor(t, n.server.Handler()))
	wanted := numbered(0)
	wanted.Key = "mine"
	res, err := c.Publish(t.Context(), wanted)
	if err != nil {
		t.Fatal(err)
	}
	cur, err := c.OpenCursor(t.Context(), "careful", client.CursorOptions{Filter: event.Filter{Keys: []string{"mine"}}})
	if err != nil {
		t.Fatal(err)
	}
	defer cur.Close()
	if _, err := cur.Next(t.Context()); err != nil {
		t.Fatal(err)
	}
	last := publishN(t, c, 1, 10)
	waiting := func() {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		_, _ = cur.Next(ctx)
	}
	until(t, "the cursor to pass what does not match", func() bool { waiting(); return cur.Scanned() >= last })
	if info, err := c.Cursor(t.Context(), "careful"); err != nil || info.Committed >= res.Offset {
		t.Errorf("committed %d, which the caller did not, %v", info.Committed, err)
	}
	if err := cur.Commit(t.Context(), res.Offset); err != nil {
		t.Fatal(err)
	}
	until(t, "the rest to be committed", func() bool {
		waiting()
		info, err := c.Cursor(t.Context(), "careful")
		return err == nil && info.Committed >= last
	})
	info, err := c.SeekCursor(t.Context(), "careful", client.FromOffset(res.Offset))
	if err != nil || info.Committed != res.Offset-1 {
		t.Errorf("after a seek: %+v, %v", info, err)
	}
	if err := c.DeleteCursor(t.Context(), "careful"); err != nil {
		t.Error(err)
	}
	untilNoCursor(t, c, "careful")
}

// untilNoCursor returns once a call to remove the cursor is refused as there is none: a call whose first attempt got no
// answer in time counts that as success.
func untilNoCursor(t *testing.T, c *client.Client, name string) {
	t.Helper()
	until(t, "there to be no cursor", func() bool {
		answer, ok := errors.AsType[*api.Error](c.DeleteCursor(t.Context(), name))
		return ok && answer.Code == api.NotFound
	})
}

func TestEventsComeBackAsTheyWereSent(t *testing.T) {
	t.Parallel()
	n := startNode(t)
	c := dial(t, client.Config{}, openDoor(t, n.server.Handler()))
	sent := event.Event{
		Type:        "promotion.complete",
		Payload:     []byte(`{"b":1.50,"a":"é","correlation_id":"c-9"}`),
		Source:      "trainer-3",
		Key:         "hex8_2p",
		CausationID: "cause",
		DedupID:     "d-1",
		Time:        time.Date(2026, 1, 5, 10, 0, 0, 1, time.UTC),
	}
	res, err := c.Publish(t.Context(), sent)
	if err != nil {
		t.Fatal(err)
	}
	want := sent
	gate := event.Policy{}
	hash, _, err := gate.Normalize(&want)
	if err != nil {
		t.Fatal(err)
	}
	want.Offset, want.AppendedAt = res.Offset, res.AppendedAt
	got, err := c.Get(t.Context(), res.Offset)
	if err != nil {
		t.Fatal(err)
	}
	want.Term = got.Term
	a, b := got.AppendJSON(nil), want.AppendJSON(nil)
	if !bytes.Equal(a, b) || got.Term == 0 || got.CorrelationID != "c-9" || res.Hash() != hash {
		t.Errorf("got  %s\nwant %s", a, b)
	}
	again, err := c.Publish(t.Context(), sent)
	if err != nil || !again.Duplicate || again.Offset != res.Offset || again.Hash() != hash {
		t.Errorf("again: %+v, %v", again, err)
	}
}

func TestTheHTTPInterfaceThroughDo(t *testing.T) {
	t.Parallel()
	n := startNode(t)
	shaky := openDoor(t, n.server.Handler())
	c := dial(t, client.Config{}, shaky, openDoor(t, n.server.Handler()))
	last := publishN(t, c, 0, 3)
	st, err := c.Admin().Status(t.Context())
	if err != nil || st.NodeID != "n1" || st.Role != "leader" || st.LastOffset != last ||
		st.Quorum.Voters != 1 {
		t.Errorf("status %+v, %v", st, err)
	}
	if at, err := c.Admin().StatusOf(t.Context(), shaky.url); err != nil || at.NodeID != "n1" {
		t.Errorf("status of one node: %+v, %v", at, err)
	}
	s, err := c.Admin().SetSetting(t.Context(), "dedup.window", "90s")
	if err != nil || (s.Value != "90s" && s.Value != "1m30s") {
		t.Errorf("%+v, %v", s, err)
	}
	_, err = c.Admin().SetSetting(t.Context(), "no.such", "1")
	wantCode(t, err, api.NotFound)
	if m, err := c.Admin().Members(t.Context()); err != nil || len(m.Members) != 1 || m.LeaderID != "n1" {
		t.Errorf("members %+v, %v", m, err)
	}
	// An answer that is lost is asked for again, but for a POST.
	lost := 0
	shaky.faults(func(r *http.Request) fault {
		if r.Method == http.MethodPost || lost < 1 {
			lost++
			return fault{cutAfter: true}
		}
		return fault{}
	})
	if all, err := c.Admin().Settings(t.Context()); err != nil || len(all) == 0 {
		t.Errorf("%d settings, %v", len(all), err)
	}
	alone := dial(t, client.Config{}, shaky)
	if _, err := alone.Admin().Compact(t.Context(), client.Compaction{}); !errors.Is(err, client.ErrOutcomeUnknown) {
		t.Errorf("a POST whose answer was lost: %v", err)
	}
	var schema []byte
	if err := c.Admin().Do(
		t.Context(),
		http.MethodGet,
		"/v1/catalogue/training.completed/schema",
		nil,
		nil,
		&schema,
	); err != nil ||
		!bytes.Contains(schema, []byte("$schema")) {
		t.Errorf("schema %s, %v", schema, err)
	}
	body, err := c.Admin().Download(t.Context(), "/v1/catalogue", nil)
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(body)
	if err := errors.Join(err, body.Close()); err != nil || len(text) < 1000 {
		t.Errorf("%d bytes, %v", len(text), err)
	}
}

// TestANodeThatAlwaysCutsIsAskedWithPauses: a stream that never gets on must not be
// opened in a tight loop.
// TestATailToTheEndEndsWithItsNode loses the node after the first message: a reader
// that does not follow gets an error, whatever way the node was lost.
func TestATailToTheEndEndsWithItsNode(t *testing.T) {
	t.Parallel()
	n := startNode(t)
	publishN(t, dial(t, client.Config{}, openDoor(t, n.server.Handler())), 0, 5000)
	for name, after := range map[string]func(d *door, r *http.Request) fault{
		"dead":   func(*door, *http.Request) fault { return fault{cutBefore: true} },
		"silent": func(_ *door, r *http.Request) fault { return fault{hold: isStream(r)} },
	} {
		t.Run(name, func(t *testing.T) {
			d := openDoor(t, n.server.Handler())
			var streams atomic.Int64
			d.faults(func(r *http.Request) fault {
				if isStream(r) && streams.Add(1) == 1 {
					return fault{cutBytes: 50_000}
				}
				if streams.Load() == 0 {
					return fault{}
				}
				return after(d, r)
			})
			c := dial(t, client.Config{Timeout: time.Second}, d)
			ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second)
			defer cancel()
			read, last := 0, error(nil)
			everything := event.Filter{Types: []string{"*"}} // one by one: in packets they are too small to be cut
			for _, err := range c.Tail(ctx, client.TailOptions{NoFollow: true, Filter: everything}) {
				if last = err; err == nil {
					read++
				}
			}
			if ctx.Err() != nil || !errors.Is(last, client.ErrUnreachable) {
				t.Errorf("ended with %v, its context with %v", last, ctx.Err())
			}
			if read == 0 || read >= 5000 {
				t.Errorf("%d events were read before", read)
			}
		})
	}
}

// TestReadingPacketsIsReadingEvents compares what comes as it is stored with what the
// node takes apart, from anywhere, with duplicates and refused rows among the stored.
func TestReadingPacketsIsReadingEvents(t *testing.T) {
	t.Parallel()
	n := startNode(t)
	c := dial(t, client.Config{}, openDoor(t, n.server.Handler()))
	rng := rand.New(rand.NewPCG(4, 2))
	for range 40 {
		events := make([]event.Event, 1+rng.IntN(60))
		for i := range events {
			events[i] = numbered(rng.IntN(400))
			events[i].NoDedup = rng.IntN(4) == 0
			if rng.IntN(3) == 0 {
				events[i].Type, events[i].Key, events[i].Time = "MY_OWN", "k", time.Unix(int64(i), 5).UTC()
			}
		}
		if _, err := c.PublishBatch(t.Context(), events); err != nil {
			t.Fatal(err)
		}
	}
	read := func(o client.TailOptions) (all []event.Event) {
		for ev, err := range c.Tail(t.Context(), o) {
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, ev)
		}
		return all
	}
	_, last := n.raft.Machine().Log().Bounds()
	for range 60 {
		o := client.TailOptions{
			From:     client.FromOffset(1 + rng.Uint64N(last)),
			NoFollow: true,
			Limit:    uint64(rng.IntN(3) * rng.IntN(200)),
		}
		packets := read(o)
		o.Filter.Types = []string{"*"}
		if diff := cmp.Diff(read(o), packets, cmpopts.IgnoreUnexported(event.Event{}), cmpopts.EquateEmpty()); diff != "" ||
			len(packets) == 0 {
			t.Fatalf("%+v: %d events\n%s", o, len(packets), diff)
		}
	}
	cur, err := c.OpenCursor(t.Context(), "all", client.CursorOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer cur.Close()
	for _, want := range read(client.TailOptions{From: client.FromStart(), NoFollow: true}) {
		got, err := cur.Next(t.Context())
		if diff := cmp.Diff(want, got, cmpopts.IgnoreUnexported(event.Event{})); err != nil || diff != "" {
			t.Fatalf("%v\n%s", err, diff)
		}
	}
}

func TestANodeThatAlwaysCutsIsAskedWithPauses(t *testing.T) {
	t.Parallel()
	n := startNode(t)
	d := openDoor(t, n.server.Handler())
	c := dial(t, client.Config{}, d)
	publishN(t, c, 0, 5)
	opened := 0
	d.faults(func(r *http.Request) fault {
		if isStream(r) {
			opened++
			return fault{cutBytes: 20} // the first message passes, and brings no news
		}
		return fault{}
	})
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	for range c.Tail(ctx, client.TailOptions{From: client.FromOffset(3)}) {
	}
	d.faults(nil)
	if opened < 3 || opened > 30 {
		t.Errorf("the stream was opened %d times in a second", opened)
	}
}
