package client_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/client"
	"github.com/ringrift/ringlog/event"
)

func TestCallersOfOneRequestGetTheirOwnAnswers(t *testing.T) {
	t.Parallel()
	n := startNode(t)
	d := openDoor(t, n.server.Handler())
	c := dial(t, client.Config{MaxInFlight: 1, AttemptTimeout: 5 * time.Second}, d)
	first, err := c.Publish(t.Context(), withDedupID(numbered(0), "taken"))
	if err != nil {
		t.Fatal(err)
	}
	// While one request is held up, the other calls gather into the next.
	d.pause()
	const calls = 300
	type answer struct {
		res client.Result
		err error
	}
	answers := make([]answer, calls)
	var wg sync.WaitGroup
	for i := range calls {
		wg.Go(func() {
			res, err := c.Publish(t.Context(), variedEvent(i))
			answers[i] = answer{res, err}
		})
	}
	until(t, "a request at the door", func() bool { return d.seen.Load() == 2 })
	d.resume()
	wg.Wait()
	seen := map[uint64]bool{}
	for i, a := range answers {
		switch i % 50 {
		case 10: // of a reserved type
			if answer := wantCode(t, a.err, api.Reserved); answer.Field != "type" {
				t.Errorf("field of a reserved type is %q", answer.Field)
			}
		case 20: // a dedup id used before for other content
			if answer := wantCode(t, a.err, api.Conflict); answer.Field != "dedup_id" || answer.Offset != first.Offset {
				t.Errorf("conflict is %+v, want offset %d", answer, first.Offset)
			}
		case 30: // the same as before
			if a.err != nil || !a.res.Duplicate || a.res.Offset != first.Offset {
				t.Errorf("repeated event: %+v, %v", a.res, a.err)
			}
		default:
			if a.err != nil {
				t.Fatalf("call %d: %v", i, a.err)
			}
			ev, err := c.Get(t.Context(), a.res.Offset)
			if err != nil || numberOf(ev) != i || ev.Hash() != a.res.Hash() || !ev.AppendedAt.Equal(a.res.AppendedAt) ||
				seen[a.res.Offset] {
				t.Errorf("call %d got %+v, and there is %s (%v)", i, a.res, ev.Payload, err)
			}
			seen[a.res.Offset] = true
		}
	}
	if requests := d.seen.Load(); requests > calls/3 {
		t.Errorf("%d requests for %d calls: they were not shared", requests, calls)
	}
}

// variedEvent is fine but for every 50th of three kinds.
func variedEvent(i int) event.Event {
	switch ev := numbered(i); i % 50 {
	case 10:
		ev.Type = event.LeaderElected
		return ev
	case 20:
		return withDedupID(ev, "taken")
	case 30:
		return withDedupID(numbered(0), "taken")
	default:
		return ev
	}
}

func withDedupID(ev event.Event, id string) event.Event {
	ev.NoDedup, ev.DedupID = false, id
	return ev
}

func TestABatchIsAllOrNothing(t *testing.T) {
	t.Parallel()
	n := startNode(t)
	c := dial(t, client.Config{}, openDoor(t, n.server.Handler()))
	bad := []event.Event{numbered(1), numbered(2), variedEvent(10)}
	_, err := c.PublishBatch(t.Context(), bad)
	if answer := wantCode(t, err, api.Reserved); answer.Field != "events[2].type" {
		t.Errorf("field is %q", answer.Field)
	}
	_, err = c.PublishBatch(
		t.Context(),
		[]event.Event{numbered(1), event.New(event.TrainingProgress, []byte(`{"a":1,"a":2}`))},
	)
	if answer := wantCode(t, err, api.InvalidJSON); !strings.HasPrefix(answer.Field, "events[1].payload") {
		t.Errorf("field is %q", answer.Field)
	}
	_, err = c.PublishBatch(t.Context(), nil)
	wantCode(t, err, api.InvalidArgument)
	if got := mine(t, c); len(got) > 0 {
		t.Errorf("refused, and yet there are %v", got)
	}
	results, err := c.PublishBatch(t.Context(), []event.Event{numbered(1), numbered(2), event.New("NO_SUCH_TYPE", nil)})
	if err != nil || results[1].Offset != results[0].Offset+1 || results[2].Offset != results[0].Offset+2 {
		t.Fatalf("results %+v, %v", results, err)
	}
	if w := results[2].Warnings; len(w) != 1 || w[0].Reason != event.WarningUnknownType || w[0].Field != "type" {
		t.Errorf("warnings of an unknown type: %+v", w)
	}
}

// spoilt makes events that are refused.
var spoilt = map[string]struct {
	spoil  func(*event.Event)
	code   api.Code
	field  string
	reason string
}{
	"JSON": {
		func(e *event.Event) { e.Payload = []byte(`{"n": 1`) },
		api.InvalidJSON, "payload", event.ReasonInvalidJSON,
	},
	"twice": {
		func(e *event.Event) { e.Payload = []byte(`{"n": 1, "n": 2}`) },
		api.InvalidJSON, "payload", event.ReasonDuplicateKey,
	},
	"list": {
		func(e *event.Event) { *e = event.New(event.TrainingProgress, []int{1}) },
		api.InvalidArgument, "payload", event.ReasonInvalidPayload,
	},
	"channel": {
		func(e *event.Event) { *e = event.New(event.TrainingProgress, make(chan int)) },
		api.InvalidArgument, "payload", event.ReasonInvalidPayload,
	},
	"type": {
		func(e *event.Event) { e.Type = "no type" },
		api.InvalidArgument, "type", event.ReasonInvalidType,
	},
	"no type": {
		func(e *event.Event) { e.Type = "" },
		api.InvalidArgument, "type", event.ReasonInvalidType,
	},
	"source": {
		func(e *event.Event) { e.Source = "\xff" },
		api.InvalidJSON, "source", event.ReasonInvalidUTF8,
	},
	"key": {
		func(e *event.Event) { e.Key = "\xff" },
		api.InvalidJSON, "key", event.ReasonInvalidUTF8,
	},
	"time": {
		func(e *event.Event) { e.Time = time.Date(2500, 1, 1, 0, 0, 0, 0, time.UTC) },
		api.InvalidArgument, "time", event.ReasonInvalidField,
	},
}

// tidy is an event whose payload is in the form in which it is stored.
func tidy(i int) event.Event {
	ev := event.New(event.TrainingProgress, fmt.Appendf(nil, `{"n": %d}`, i))
	ev.NoDedup = true
	return ev
}

// untidy is what is stored in another form.
const untidy, tidied = "{\"n\" : 1.50,\"correlation_id\":\"c\"}", `{"correlation_id": "c", "n": 1.5}`

// checkTidied looks whether the untidy event is stored as its result says.
func checkTidied(t *testing.T, c *client.Client, result client.Result) {
	t.Helper()
	stored, err := c.Get(t.Context(), result.Offset)
	if err != nil {
		t.Fatal(err)
	}
	if string(stored.Payload) != tidied || stored.CorrelationID != "c" || stored.Hash() != result.Hash() {
		t.Errorf(
			"stored as %s with %q, hash %s, the result has %s",
			stored.Payload,
			stored.CorrelationID,
			stored.Hash(),
			result.Hash(),
		)
	}
}

// The client looks at some payloads of a batch only: wherever the one stands that has to be changed or refused, the
// answer is the same.
func TestEveryEventOfABatchIsChecked(t *testing.T) {
	t.Parallel()
	n := startNode(t)
	c := dial(t, client.Config{}, openDoor(t, n.server.Handler()))
	batch := func() []event.Event {
		events := make([]event.Event, 130)
		for i := range events {
			events[i] = tidy(i)
		}
		return events
	}
	for _, row := range []int{0, 5, 60, 61, 129} {
		for name, bad := range spoilt {
			events := batch()
			bad.spoil(&events[row])
			_, err := c.PublishBatch(t.Context(), events)
			if answer := wantCode(t, err, bad.code); !strings.HasPrefix(
				answer.Field,
				fmt.Sprintf("events[%d].%s", row, bad.field),
			) || answer.Reason != bad.reason {
				t.Errorf("%s in row %d: field %q, reason %q of %v", name, row, answer.Field, answer.Reason, err)
			}
		}
		padded := batch()
		padded[row].Payload = slices.Concat(bytes.Repeat([]byte(" "), 5<<20), padded[row].Payload)
		if _, err := c.PublishBatch(t.Context(), padded); err != nil {
			t.Errorf("padded in row %d: %v", row, err)
		}
		events := batch()
		events[row].Payload = []byte(untidy)
		results, err := c.PublishBatch(t.Context(), events)
		if err != nil {
			t.Fatal(err)
		}
		checkTidied(t, c, results[row])
	}
}

// The same holds for events that are published one by one, the first of a client and later ones, and for the others
// that share their requests.
func TestEverySingleEventIsChecked(t *testing.T) {
	t.Parallel()
	n := startNode(t)
	publish := map[string]func(*client.Client, event.Event) (client.Result, error){
		"Publish": func(c *client.Client, ev event.Event) (client.Result, error) { return c.Publish(t.Context(), ev) },
		"PublishAsync": func(c *client.Client, ev event.Event) (client.Result, error) {
			return c.PublishAsync(t.Context(), ev).Wait(t.Context())
		},
	}
	for way, publish := range publish {
		// among publishes ev, after some fine events, together with 40: they wait for one that is held up.
		among := func(before int, ev event.Event) (*client.Client, client.Result, error) {
			d := openDoor(t, n.server.Handler())
			c := dial(t, client.Config{ClusterID: n.clusterID(), MaxInFlight: 1}, d)
			fine := func() {
				if _, err := publish(c, tidy(0)); err != nil {
					t.Errorf("%s: a fine event beside another: %v", way, err)
				}
			}
			for range before {
				fine()
			}
			seen := d.seen.Load() // more than were published, if one was retried
			d.pause()
			var others, calling sync.WaitGroup
			defer others.Wait()
			others.Go(fine)
			until(t, "a request at the door", func() bool { return d.seen.Load() > seen })
			for range 40 {
				calling.Add(1)
				others.Go(func() { calling.Done(); fine() })
			}
			calling.Wait()
			time.AfterFunc(time.Millisecond, d.resume)
			result, err := publish(c, ev)
			return c, result, err
		}
		for _, before := range []int{0, 3} {
			for name, bad := range spoilt {
				ev := tidy(1)
				bad.spoil(&ev)
				_, _, err := among(before, ev)
				if answer := wantCode(t, err, bad.code); !strings.HasPrefix(answer.Field, bad.field) ||
					answer.Reason != bad.reason {
					t.Errorf("%s of %s after %d: field %q, reason %q of %v", way, name, before, answer.Field,
						answer.Reason, err)
				}
			}
			ev := tidy(1)
			ev.Payload = []byte(untidy)
			c, result, err := among(before, ev)
			if err != nil {
				t.Fatal(err)
			}
			checkTidied(t, c, result)
		}
	}
}

// TestWhatIsAcknowledgedIsThereOnce publishes through doors that lose requests and
// answers, and looks at what the log has in the end.
func TestWhatIsAcknowledgedIsThereOnce(t *testing.T) {
	t.Parallel()
	n := startNode(t)
	doors := []*door{openDoor(t, n.server.Handler()), openDoor(t, n.server.Handler())}
	rng := rand.New(rand.NewPCG(1, uint64(time.Now().UnixNano())))
	var mu sync.Mutex
	unreliable := func(r *http.Request) fault {
		mu.Lock()
		defer mu.Unlock()
		if !isPublish(r) {
			return fault{}
		}
		switch rng.IntN(10) {
		case 0:
			return fault{cutBefore: true}
		case 1, 2:
			return fault{cutAfter: true}
		case 3:
			return fault{hold: rng.IntN(4) == 0}
		case 4:
			return fault{answer: &api.Error{Code: api.NoLeader, Message: "an election"}}
		}
		return fault{}
	}
	for _, d := range doors {
		d.faults(unreliable)
	}
	c := dial(t, client.Config{}, doors...)
	const workers, each = 16, 25
	offsets, doubt := map[int]uint64{}, map[int]bool{}
	var kept sync.Mutex
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for i := range each {
				number := w*each + i
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(50+w*200)*time.Millisecond)
				res, err := c.Publish(ctx, numbered(number))
				cancel()
				kept.Lock()
				if err == nil {
					offsets[number] = res.Offset
				}
				doubt[number] = errors.Is(err, client.ErrOutcomeUnknown)
				kept.Unlock()
			}
		})
	}
	wg.Wait()
	for _, d := range doors {
		d.faults(nil)
	}
	settle(t, c)
	checkLog(t, c, offsets, doubt)
	if len(offsets) < workers*each/2 {
		t.Errorf("only %d of %d were acknowledged", len(offsets), workers*each)
	}
}

// settle returns when requests that nobody waits for are out of the way.
func settle(t *testing.T, c *client.Client) {
	t.Helper()
	before := -1
	until(t, "the log to come to rest", func() bool {
		publishN(t, c, 1_000_000, 1_000_001)
		now := len(slices.DeleteFunc(mine(t, c), func(n int) bool { return n >= 1_000_000 }))
		still := now == before
		before = now
		return still
	})
}

func checkLog(t *testing.T, c *client.Client, offsets map[int]uint64, doubt map[int]bool) {
	t.Helper()
	times := map[int]int{}
	for ev, err := range c.Tail(
		t.Context(),
		client.TailOptions{NoFollow: true, Filter: event.Filter{Types: []string{"training.progress"}}},
	) {
		if err != nil {
			t.Fatal(err)
		}
		number := numberOf(ev)
		if number >= 1_000_000 {
			continue
		}
		times[number]++
		if at, acknowledged := offsets[number]; acknowledged && at != ev.Offset {
			t.Errorf("event %d was acknowledged at %d and is at %d", number, at, ev.Offset)
		} else if !acknowledged && !doubt[number] {
			t.Errorf("event %d was refused and is at %d", number, ev.Offset)
		}
	}
	for number, n := range times {
		if n > 1 {
			t.Errorf("event %d is there %d times", number, n)
		}
	}
	for number, at := range offsets {
		if times[number] == 0 {
			t.Errorf("event %d, acknowledged at %d, is not there", number, at)
		}
	}
}

func TestEventsHandedOverKeepTheirOrder(t *testing.T) {
	t.Parallel()
	n := startNode(t)
	d := openDoor(t, n.server.Handler())
	c := dial(t, client.Config{MaxBatchEvents: 64, MaxBuffered: 32 << 10}, d)
	calls := 0
	d.faults(func(r *http.Request) fault {
		calls++
		return fault{cutAfter: isPublish(r) && calls%3 == 0}
	})
	var futures []*client.Future
	const total = 2000
	for i := range total {
		ev := numbered(i)
		if i%97 == 5 {
			ev.Type = event.LeaderElected // refused, between others
		}
		futures = append(futures, c.PublishAsync(t.Context(), ev))
	}
	var want []int
	for i, f := range futures {
		_, err := f.Wait(t.Context())
		if i%97 == 5 {
			wantCode(t, err, api.Reserved)
		} else if err != nil {
			t.Fatalf("event %d: %v", i, err)
		} else {
			want = append(want, i)
		}
	}
	d.faults(nil)
	if got := mine(t, c); !slices.Equal(got, want) {
		t.Errorf("the log has %d events, not the %d in the order handed over", len(got), len(want))
	}
}

func TestAPausedNodeHoldsNobodyUp(t *testing.T) {
	t.Parallel()
	n := startNode(t)
	doors := []*door{openDoor(t, n.server.Handler()), openDoor(t, n.server.Handler())}
	c := dial(t, client.Config{}, doors...)
	first := publishN(t, c, 0, 10)
	cur, err := c.OpenCursor(
		t.Context(),
		"trainer",
		client.CursorOptions{Filter: event.Filter{Types: []string{"TRAINING_PROGRESS"}}},
	)
	if err != nil {
		t.Fatal(err)
	}
	defer cur.Close()
	got := make(chan int, 100)
	tailing, stop := context.WithCancel(t.Context())
	defer stop()
	tailed := make(chan struct{})
	go func() {
		defer close(tailed)
		for ev, err := range c.Tail(tailing, client.TailOptions{From: client.FromOffset(first - 9)}) {
			if err != nil {
				return
			}
			got <- numberOf(ev)
		}
	}()
	for want := range 10 {
		if n := <-got; n != want {
			t.Fatalf("tailed %d, want %d", n, want)
		}
	}
	doors[0].pause()
	began := time.Now()
	publishN(t, c, 10, 20)
	for want := 10; want < 20; want++ {
		if n := <-got; n != want {
			t.Fatalf("tailed %d, want %d", n, want)
		}
	}
	for want := range 20 {
		if ev, err := cur.Next(t.Context()); err != nil || numberOf(ev) != want {
			t.Fatalf("cursor read %s, %v, want %d", ev.Payload, err, want)
		}
	}
	if _, err := c.Admin().Settings(t.Context()); err != nil {
		t.Fatal(err)
	}
	alone := dial(t, client.Config{}, doors...) // knows nothing of the paused one
	if body, err := alone.Admin().Download(t.Context(), "/v1/catalogue", nil); err != nil {
		t.Error(err)
	} else if _, err := io.Copy(io.Discard, body); errors.Join(err, body.Close()) != nil {
		t.Error(err)
	}
	if took := time.Since(began); took > 8*time.Second {
		t.Errorf("it took %s to get around a paused node", took)
	}
	stop()
	doors[0].resume()
	<-tailed
}

func TestEveryCallEndsWithItsContext(t *testing.T) {
	t.Parallel()
	n := startNode(t)
	d := openDoor(t, n.server.Handler())
	c := dial(t, client.Config{MaxBuffered: 1000, AttemptTimeout: 5 * time.Second}, d)
	offset := publishN(t, c, 0, 3)
	cur, err := c.OpenCursor(t.Context(), "quiet", client.CursorOptions{From: client.FromEnd()})
	if err != nil {
		t.Fatal(err)
	}
	defer cur.Close()
	d.pause()
	defer d.resume()
	_ = c.PublishAsync(
		t.Context(),
		event.New(event.TrainingProgress, map[string]string{"x": strings.Repeat("x", 2000)}),
	) // takes all the room there is
	for name, call := range map[string]func(context.Context) error{
		"publish": func(ctx context.Context) error { _, err := c.Publish(ctx, numbered(1)); return err },
		"publish batch": func(ctx context.Context) error {
			_, err := c.PublishBatch(ctx, []event.Event{numbered(1)})
			return err
		},
		"publish async": func(ctx context.Context) error {
			_, err := c.PublishAsync(ctx, numbered(1)).Wait(t.Context())
			return err
		},
		"get":    func(ctx context.Context) error { _, err := c.Get(ctx, offset); return err },
		"status": func(ctx context.Context) error { _, err := c.Admin().Status(ctx); return err },
		"open cursor": func(ctx context.Context) error {
			_, err := c.OpenCursor(ctx, "other", client.CursorOptions{})
			return err
		},
		"commit":   func(ctx context.Context) error { return cur.Commit(ctx, offset) },
		"next":     func(ctx context.Context) error { _, err := cur.Next(ctx); return err },
		"download": func(ctx context.Context) error { _, err := c.Admin().Download(ctx, "/v1/snapshot", nil); return err },
		"tail": func(ctx context.Context) (last error) {
			for _, err := range c.Tail(ctx, client.TailOptions{}) {
				last = err
			}
			return last
		},
	} {
		ctx, cancel := context.WithTimeoutCause(
			t.Context(),
			50*time.Millisecond,
			fmt.Errorf("%s was cancelled: %w", name, context.DeadlineExceeded),
		)
		began := time.Now()
		err := call(ctx)
		cancel()
		if took := time.Since(began); !errors.Is(err, context.DeadlineExceeded) || took > 2*time.Second {
			t.Errorf("%s ended after %s with %v", name, took, err)
		}
	}
}

// TestWhoDidNotCancelIsNotToldSo: the client cuts its own requests short.
func TestWhoDidNotCancelIsNotToldSo(t *testing.T) {
	t.Parallel()
	n := startNode(t)
	d := openDoor(t, n.server.Handler())
	c := dial(t, client.Config{ClusterID: n.clusterID(), MaxInFlight: 1, AttemptTimeout: 5 * time.Second}, d)
	d.pause()
	enough := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	errs := make(chan error, 1)
	go func() { _, err := c.Publish(ctx, numbered(1)); errs <- err }()
	until(t, "the request at the door", func() bool { return d.seen.Load() == 1 })
	cancel(enough)
	if err := <-errs; !errors.Is(err, enough) || errors.Is(err, context.Canceled) {
		t.Errorf("a caller with a reason of his own got: %v", err)
	}
}

func TestAnEventUnderWayWhenItsCallerLeavesIsInDoubt(t *testing.T) {
	t.Parallel()
	n := startNode(t)
	d := openDoor(t, n.server.Handler())
	c := dial(t, client.Config{ClusterID: n.clusterID(), MaxInFlight: 1, AttemptTimeout: 5 * time.Second}, d)
	d.pause()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	errs := make(chan error, 2)
	go func() { _, err := c.Publish(ctx, numbered(1)); errs <- err }()
	until(t, "the request at the door", func() bool { return d.seen.Load() == 1 })
	waiting, leave := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer leave()
	if _, err := c.Publish(waiting, numbered(2)); err == nil || errors.Is(err, client.ErrOutcomeUnknown) {
		t.Errorf("an event that never left: %v", err)
	}
	cancel()
	if err := <-errs; !errors.Is(err, client.ErrOutcomeUnknown) || !errors.Is(err, context.Canceled) {
		t.Errorf("an event under way: %v", err)
	}
}

// TestALeaverOfASharedRequestIsInDoubtToo: the request continues for the others.
func TestALeaverOfASharedRequestIsInDoubtToo(t *testing.T) {
	t.Parallel()
	n := startNode(t)
	d := openDoor(t, n.server.Handler())
	c := dial(t, client.Config{ClusterID: n.clusterID(), MaxInFlight: 1, AttemptTimeout: time.Second}, d)
	d.faults(func(r *http.Request) fault { return fault{hold: isPublish(r) && d.seen.Load() == 2} })
	d.pause()
	const callers = 20
	ctx, leave := context.WithCancel(t.Context())
	errs := make([]error, callers)
	var wg sync.WaitGroup
	for i := range callers {
		wg.Go(func() {
			own := t.Context()
			if i%2 == 1 {
				own = ctx
			}
			_, errs[i] = c.Publish(own, numbered(i))
		})
	}
	until(t, "a request at the door", func() bool { return d.seen.Load() == 1 })
	d.resume()
	until(t, "all but the first in the log", func() bool { return len(mine(t, c)) > callers/2 })
	leave()
	wg.Wait()
	inLog := mine(t, c)
	for i, err := range errs {
		there := slices.Contains(inLog, i)
		if there && err != nil && !errors.Is(err, client.ErrOutcomeUnknown) || !there && err == nil {
			t.Errorf("event %d is in the log: %v, its caller got %v", i, there, err)
		}
	}
	if len(inLog) != len(slices.Compact(slices.Sorted(slices.Values(inLog)))) {
		t.Errorf("something is there twice: %v", inLog)
	}
}

func TestCloseAnswersWhatWasAccepted(t *testing.T) {
	t.Parallel()
	n := startNode(t)
	d := openDoor(t, n.server.Handler())
	c := dial(t, client.Config{MaxBatchEvents: 10}, d)
	var futures []*client.Future
	for i := range 500 {
		futures = append(futures, c.PublishAsync(t.Context(), numbered(i)))
	}
	if err := c.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	for i, f := range futures {
		if _, err := f.Wait(t.Context()); err != nil {
			t.Fatalf("event %d: %v", i, err)
		}
	}
	if _, err := c.Publish(t.Context(), numbered(1)); !errors.Is(err, client.ErrClosed) {
		t.Errorf("publish after Close: %v", err)
	}
	if _, err := c.Get(t.Context(), 1); !errors.Is(err, client.ErrClosed) {
		t.Errorf("get after Close: %v", err)
	}
	if err := c.Close(t.Context()); err != nil {
		t.Errorf("second Close: %v", err)
	}
	if got := mine(t, dial(t, client.Config{}, d)); len(got) != len(futures) {
		t.Errorf("%d events are there, want %d", len(got), len(futures))
	}
}

func TestACloseThatIsOutOfTimeAnswersToo(t *testing.T) {
	t.Parallel()
	n := startNode(t)
	d := openDoor(t, n.server.Handler())
	d.pause()
	c := dial(t, client.Config{ClusterID: n.clusterID(), AttemptTimeout: 5 * time.Second}, d)
	futures := []*client.Future{c.PublishAsync(t.Context(), numbered(0))}
	until(t, "the request at the door", func() bool { return d.seen.Load() == 1 })
	futures = append(futures, c.PublishAsync(t.Context(), numbered(1)))
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err := c.Close(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("close: %v", err)
	}
	for i, f := range futures {
		if _, err := f.Wait(t.Context()); !errors.Is(err, client.ErrClosed) ||
			errors.Is(err, client.ErrOutcomeUnknown) != (i == 0) {
			t.Errorf("event %d: %v", i, err)
		}
	}
}

// The node makes the keys of a policy from what the client has packed, also where several goroutines work on a packet.
func TestADedupPolicyAppliesToABatch(t *testing.T) {
	t.Parallel()
	c := dial(t, client.Config{}, openDoor(t, startNode(t).server.Handler()))
	p, err := c.Admin().SetDedupPolicy(t.Context(), event.ModelPromoted,
		client.NewDedupPolicy{Mode: "fields", Fields: []string{"new_model"}, Window: "1h"})
	if err != nil || p.Window != "1h0m0s" || p.Origin != api.PolicySet || len(p.Warnings) > 0 {
		t.Fatalf("%+v, %v", p, err)
	}
	const models = 50
	events := make([]event.Event, 4*models)
	for i := range events {
		events[i] = event.New(event.ModelPromoted, map[string]any{"new_model": i % models, "at": i})
	}
	results, err := c.PublishBatch(t.Context(), events)
	if err != nil {
		t.Fatal(err)
	}
	for i, r := range results {
		if r.Duplicate != (i >= models) || r.Offset != results[i%models].Offset {
			t.Fatalf("event %d: %+v, the first of its model is %d", i, r, results[i%models].Offset)
		}
	}
	if p, err = c.Admin().DedupPolicy(t.Context(), event.ModelPromoted); err != nil || p.Keys != models {
		t.Errorf("%+v, %v", p, err)
	}

	// Without it, the payload counts.
	p, err = c.Admin().RemoveDedupPolicy(t.Context(), event.ModelPromoted)
	if err != nil || p.Origin != api.PolicyDefault {
		t.Errorf("%+v, %v", p, err)
	}
	if again, err := c.Publish(t.Context(), events[models]); err != nil || again.Duplicate {
		t.Errorf("%+v, %v", again, err)
	}
	all, err := c.Admin().DedupPolicies(t.Context())
	if err != nil || slices.ContainsFunc(all, func(p client.DedupPolicy) bool { return p.Origin != api.PolicyCatalogue }) {
		t.Errorf("%+v, %v", all, err)
	}
}
