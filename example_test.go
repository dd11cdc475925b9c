package ringlog_test

import (
	"context"
	"fmt"
	"log"
	"os"

	"github.com/ringrift/ringlog"
	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/router"
)

// A log, a handler that resumes where it was when the process restarts, and an event.
func Example() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "ringlog")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)

	n, err := ringlog.Open(ctx, ringlog.Config{Dir: dir})
	if err != nil {
		log.Fatal(err)
	}
	defer n.Close(ctx)
	_, err = n.Router().Subscribe(ctx, router.Subscription{
		Name: "evaluator", Types: []string{"training.completed"}, Durable: true, Sync: true,
		Handler: func(ctx context.Context, ev event.Event) error {
			fmt.Printf("evaluate what %s has trained: %s\n", ev.Source, ev.Payload)
			return nil
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	ev := event.New(event.TrainingCompleted, map[string]any{"config_key": "hex8_2p"})
	ev.Source = "trainer-3"
	if _, err := n.Router().Publish(ctx, ev); err != nil {
		log.Fatal(err)
	}
	// Output: evaluate what trainer-3 has trained: {"config_key": "hex8_2p"}
}
