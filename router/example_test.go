package router_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"sync/atomic"
	"time"

	"github.com/ringrift/ringlog"
	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/router"
)

// connect returns a router in front of an empty log, where a program has
//
//	router.New(router.OnClient(c), router.Options{Source: "trainer-3"})
func connect(o router.Options) (r *router.Router, closeAll func()) {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "ringlog-example")
	if err != nil {
		log.Fatal(err)
	}
	n, err := ringlog.Open(ctx, ringlog.Config{Dir: dir, Router: o})
	if err != nil {
		log.Fatal(err)
	}
	return n.Router(), func() {
		if err := errors.Join(n.Close(ctx), os.RemoveAll(dir)); err != nil {
			log.Fatal(err)
		}
	}
}

// A durable subscription handles each event of its types, and resumes where it was when the
// process comes back. Publish waits for it, as it is marked Sync.
func Example() {
	r, closeAll := connect(router.Options{})
	defer closeAll()
	ctx := context.Background()

	_, err := r.Subscribe(ctx, router.Subscription{
		Name: "evaluator", Types: []string{"training.*"}, Where: "payload.epoch > 3", Durable: true, Sync: true,
		Handler: func(ctx context.Context, ev event.Event) error {
			fmt.Println("evaluate", string(ev.Payload))
			return nil
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	for _, epoch := range []int{2, 4} {
		if _, err := r.Publish(ctx, event.New(event.TrainingCompleted, map[string]any{"epoch": epoch})); err != nil {
			log.Fatal(err)
		}
	}
	// Output: evaluate {"epoch": 4}
}

// A handler that fails is called again after each of Retries. What still fails becomes a dead
// letter of a durable subscription; Permanent makes it one at once.
func ExampleSubscription_retries() {
	r, closeAll := connect(router.Options{})
	defer closeAll()
	ctx := context.Background()

	_, err := r.Subscribe(ctx, router.Subscription{
		Name: "promoter", Types: []string{"TRAINING_COMPLETED"}, Durable: true, Sync: true,
		Timeout: time.Minute, Retries: router.Backoff(3, time.Millisecond),
		Handler: func(ctx context.Context, ev event.Event) error {
			d, _ := router.AttemptOf(ctx)
			fmt.Println("attempt", d.Number)
			if d.Number < 3 {
				return errors.New("the model store is away")
			}
			return router.Permanent(errors.New("no such model"))
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	res, err := r.Publish(ctx, event.New(event.TrainingCompleted, map[string]any{"config_key": "hex8_2p"}))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(res.Failed[0].Subscription, "failed:", res.Failed[0].Err)
	// Output:
	// attempt 1
	// attempt 2
	// attempt 3
	// promoter failed: no such model
}

// A local event reaches the subscriptions of this process alone, and not the log.
func ExampleLocal() {
	r, closeAll := connect(router.Options{})
	defer closeAll()
	ctx := context.Background()

	_, err := r.Subscribe(ctx, router.Subscription{
		Name: "monitor", Types: []string{"HEARTBEAT"}, Direct: true, Sync: true,
		Handler: func(ctx context.Context, ev event.Event) error {
			fmt.Println(ev.Type, "at offset", ev.Offset)
			return nil
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	res, err := r.Publish(ctx, event.New("HEARTBEAT", nil), router.Local())
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("local:", res.Local)
	// Output:
	// HEARTBEAT at offset 0
	// local: true
}

// History reads what was published before.
func ExampleRouter_History() {
	r, closeAll := connect(router.Options{})
	defer closeAll()
	ctx := context.Background()
	if _, err := r.Publish(ctx, event.New(event.TrainingStarted, map[string]any{"config_key": "hex8_2p"})); err != nil {
		log.Fatal(err)
	}

	for ev, err := range r.History(ctx, router.Query{Filter: event.Filter{Types: []string{"training.*"}}}) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(ev.Type)
	}
	// Output: TRAINING_STARTED
}

// A handler on a group shares its events with the same handler in other processes. One that fails is redelivered, and
// at last becomes a dead letter.
func ExampleSubscription_group() {
	r, closeAll := connect(router.Options{})
	defer closeAll()
	ctx := context.Background()

	handled := make(chan string)
	_, err := r.Subscribe(ctx, router.Subscription{
		Name: "trainer", Group: "trainers", Types: []string{"training.*"}, Concurrency: 4,
		Handler: func(ctx context.Context, ev event.Event) error {
			a, _ := router.AttemptOf(ctx)
			handled <- fmt.Sprintf("%s, delivery %d, attempt %d", ev.Payload, a.Delivery, a.Number)
			return nil
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	if _, err := r.Publish(ctx, event.New(event.TrainingStarted, map[string]any{"config_key": "hex8_2p"})); err != nil {
		log.Fatal(err)
	}
	fmt.Println(<-handled)
	// Output: {"config_key": "hex8_2p"}, delivery 1, attempt 1
}

// Observe counts the attempts of handlers. A tracer starts a span in it, named by the event's correlation id, whose
// context the handler has.
func ExampleOptions_observe() {
	var attempts, failures atomic.Int64
	r, closeAll := connect(router.Options{
		Retries: router.Backoff(1, time.Millisecond),
		Observe: func(ctx context.Context, a router.Attempt, ev *event.Event) (context.Context, func(error)) {
			return ctx, func(err error) {
				attempts.Add(1)
				if err != nil {
					failures.Add(1)
				}
			}
		},
	})
	defer closeAll()
	ctx := context.Background()

	_, err := r.Subscribe(ctx, router.Subscription{
		Name: "promoter", Types: []string{"TRAINING_COMPLETED"}, Sync: true,
		Handler: func(ctx context.Context, ev event.Event) error {
			if a, _ := router.AttemptOf(ctx); a.Number == 1 {
				return errors.New("the model store is away")
			}
			return nil
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	if _, err := r.Publish(ctx, event.New(event.TrainingCompleted, map[string]any{"config_key": "hex8_2p"})); err != nil {
		log.Fatal(err)
	}
	fmt.Println(attempts.Load(), "attempts,", failures.Load(), "failed")
	// Output: 2 attempts, 1 failed
}
