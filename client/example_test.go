package client_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net/url"
	"os"
	"sync/atomic"
	"time"

	"github.com/ringrift/ringlog"
	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/client"
	"github.com/ringrift/ringlog/event"
)

// openClient returns a client of an empty log, where a program has
//
//	client.New(client.Config{Endpoints: []string{"http://10.0.0.1:8770", "http://10.0.0.2:8770"}})
func openClient() (c *client.Client, closeAll func()) {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "ringlog-example")
	if err != nil {
		log.Fatal(err)
	}
	n, err := ringlog.Open(ctx, ringlog.Config{Dir: dir})
	if err != nil {
		log.Fatal(err)
	}
	return n.Client(), func() {
		if err := errors.Join(n.Close(ctx), os.RemoveAll(dir)); err != nil {
			log.Fatal(err)
		}
	}
}

// publish appends a few events to read.
func publish(c *client.Client, types ...event.Type) {
	for i, t := range types {
		ev := event.New(t, map[string]any{"n": i + 1})
		ev.Key = "hex8_2p"
		if _, err := c.Publish(context.Background(), ev); err != nil {
			log.Fatal(err)
		}
	}
}

// A client publishes an event and reads it back.
func Example() {
	c, closeAll := openClient()
	defer closeAll()
	ctx := context.Background()

	res, err := c.Publish(ctx, event.New(event.TrainingCompleted, map[string]any{"config_key": "hex8_2p"}))
	if err != nil {
		log.Fatal(err)
	}
	ev, err := c.Get(ctx, res.Offset)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(ev.Type, string(ev.Payload))
	// Output: TRAINING_COMPLETED {"config_key": "hex8_2p"}
}

// With a dedup id of its own an event is appended once, however often it is published: after
// a restart of its producer, say, that does not know how far it came.
func ExampleClient_Publish_dedup() {
	c, closeAll := openClient()
	defer closeAll()
	ctx := context.Background()

	for range 2 {
		ev := event.New(event.TrainingCompleted, map[string]any{"config_key": "hex8_2p"})
		ev.DedupID = "run-17"
		res, err := c.Publish(ctx, ev)
		if errors.Is(err, client.ErrOutcomeUnknown) {
			continue // it may have been appended: publishing it again is safe
		}
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println("duplicate:", res.Duplicate)
	}
	// Output:
	// duplicate: false
	// duplicate: true
}

// A batch is appended as a whole or not at all.
func ExampleClient_PublishBatch() {
	c, closeAll := openClient()
	defer closeAll()

	results, err := c.PublishBatch(context.Background(), []event.Event{
		event.New(event.TrainingStarted, map[string]any{"config_key": "hex8_2p"}),
		event.New(event.TrainingCompleted, map[string]any{"config_key": "hex8_2p"}),
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(results[1].Offset - results[0].Offset)
	// Output: 1
}

// PublishAsync keeps the order of its calls without waiting for each answer.
func ExampleClient_PublishAsync() {
	c, closeAll := openClient()
	defer closeAll()
	ctx := context.Background()

	var last *client.Future
	for n := range 100 {
		last = c.PublishAsync(ctx, event.New(event.TrainingStarted, map[string]any{"run": n}))
	}
	res, err := last.Wait(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(res.Duplicate)
	// Output: false
}

// Tail reads events of some types from a position. Without NoFollow it waits for new ones.
func ExampleClient_Tail() {
	c, closeAll := openClient()
	defer closeAll()
	publish(c, event.TrainingStarted, event.EvaluationStarted, event.TrainingCompleted)

	options := client.TailOptions{
		From:     client.FromStart(),
		Filter:   event.Filter{Types: []string{"training.*"}},
		NoFollow: true,
	}
	for ev, err := range c.Tail(context.Background(), options) {
		if gap, ok := errors.AsType[*client.GapError](err); ok {
			log.Printf("events %d to %d are not kept any more", gap.Gap.From, gap.Gap.To)
			continue
		}
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(ev.Type)
	}
	// Output:
	// TRAINING_STARTED
	// TRAINING_COMPLETED
}

// A cursor is a durable subscriber: whoever opens it next resumes after its last commit.
func ExampleClient_OpenCursor() {
	c, closeAll := openClient()
	defer closeAll()
	ctx := context.Background()
	publish(c, event.TrainingStarted, event.TrainingCompleted)

	for range 2 {
		cur, err := c.OpenCursor(ctx, "promoter", client.CursorOptions{Filter: event.Filter{Types: []string{"training.*"}}})
		if err != nil {
			log.Fatal(err)
		}
		ev, err := cur.Next(ctx)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(ev.Type)
		if err := cur.Commit(ctx, ev.Offset); err != nil {
			log.Fatal(err)
		}
		if err := cur.Close(); err != nil {
			log.Fatal(err)
		}
	}
	// Output:
	// TRAINING_STARTED
	// TRAINING_COMPLETED
}

// The members of a group share its events. What a member does not acknowledge is redelivered.
func ExampleClient_JoinGroup() {
	c, closeAll := openClient()
	defer closeAll()
	ctx := context.Background()
	publish(c, event.TrainingStarted, event.TrainingCompleted)

	m, err := c.JoinGroup(ctx, "workers", client.GroupOptions{Filter: event.Filter{Types: []string{"training.*"}}})
	if err != nil {
		log.Fatal(err)
	}
	for attempt := range 3 {
		d, err := m.Next(ctx)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(d.Type, "delivery", d.Count)
		if attempt == 0 {
			err = d.Nack(client.NackOptions{Err: "the GPU is busy"})
		} else {
			err = d.Ack()
		}
		if err != nil {
			log.Fatal(err)
		}
	}
	if err := m.Close(ctx); err != nil { // makes the acks durable
		log.Fatal(err)
	}
	// Output:
	// TRAINING_STARTED delivery 1
	// TRAINING_STARTED delivery 2
	// TRAINING_COMPLETED delivery 1
}

// Do makes any call of the HTTP interface, here one that waits until a cursor has handled an
// event.
func ExampleAdmin_Do() {
	c, closeAll := openClient()
	defer closeAll()
	ctx := context.Background()
	res, err := c.Publish(ctx, event.New(event.TrainingCompleted, map[string]any{"config_key": "hex8_2p"}))
	if err != nil {
		log.Fatal(err)
	}
	if _, err := c.CreateCursor(ctx, "promoter", client.CursorSpec{}); err != nil {
		log.Fatal(err)
	}

	committed := make(chan error, 1)
	go func() { // somewhere else
		cur, err := c.OpenCursor(ctx, "promoter", client.CursorOptions{})
		if err != nil {
			committed <- err
			return
		}
		committed <- errors.Join(cur.Commit(ctx, res.Offset), cur.Close())
	}()

	var answer struct {
		Reached bool `json:"reached"`
	}
	q := url.Values{"cursor": {"promoter"}, "offset": {fmt.Sprint(res.Offset)}, "timeout": {"10s"}}
	if err := c.Admin().Do(ctx, "GET", "/v1/wait", q, nil, &answer); err != nil {
		log.Fatal(err)
	}
	fmt.Println(answer.Reached)
	if err := <-committed; err != nil {
		log.Fatal(err)
	}
	// Output: true
}

// An answer of a node is an *api.Error, with a stable code and a remedy for people.
func ExampleClient_Get_error() {
	c, closeAll := openClient()
	defer closeAll()

	_, err := c.Get(context.Background(), 1_000_000)
	if answer, ok := errors.AsType[*api.Error](err); ok {
		fmt.Println(answer.Code)
	}
	fmt.Println(err)
	// Output:
	// past_tail
	// client: get 1000000: past_tail: offset 1000000 is past the tail, which is 1 (field offset)
}

// Observe counts what a client sends. A tracer starts a span in it, whose context the request has, and ends it in
// what it returns.
func ExampleConfig_observe() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "ringlog-example")
	if err != nil {
		log.Fatal(err)
	}
	var requests, missing, published atomic.Int64
	n, err := ringlog.Open(ctx, ringlog.Config{Dir: dir, Client: client.Config{
		Observe: func(ctx context.Context, r client.Request) (context.Context, func(error)) {
			return ctx, func(err error) {
				requests.Add(1)
				var answer *api.Error // what a node has answered
				switch {
				case err == nil:
					published.Add(int64(r.Events))
				case errors.As(err, &answer) && answer.Code == api.PastTail:
					missing.Add(1)
				}
			}
		},
	}})
	if err != nil {
		log.Fatal(err)
	}
	publish(n.Client(), event.TrainingStarted, event.TrainingCompleted)
	_, err = n.Client().Get(ctx, 1_000_000) // there is no such event
	fmt.Println(published.Load(), "published, refused:", err != nil, requests.Load() > 2, missing.Load() > 0)
	if err := errors.Join(n.Close(ctx), os.RemoveAll(dir)); err != nil {
		log.Fatal(err)
	}
	// Output: 2 published, refused: true true true
}

// A result prints where the event is.
func ExampleResult_String() {
	fmt.Println(client.Result{Offset: 7, AppendedAt: time.Date(2026, 1, 5, 10, 0, 0, 0, time.UTC)})
	fmt.Println(client.Result{Offset: 7, Duplicate: true})
	// Output:
	// offset 7, appended at 2026-01-05T10:00:00Z
	// offset 7, a duplicate
}
