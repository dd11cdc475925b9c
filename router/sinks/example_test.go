package sinks_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"

	"github.com/ringrift/ringlog"
	"github.com/ringrift/ringlog/client"
	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/router/sinks"
)

// A reactor runs a command for each event of a group, with the payload on its standard input.
func ExampleNewReactor() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "ringlog-example")
	if err != nil {
		log.Fatal(err)
	}
	n, err := ringlog.Open(ctx, ringlog.Config{Dir: dir})
	if err != nil {
		log.Fatal(err)
	}
	c := n.Client()
	if _, err := c.Publish(ctx, event.New(event.TrainingCompleted, map[string]any{"epoch": 4})); err != nil {
		log.Fatal(err)
	}

	sink, err := sinks.NewCommand(sinks.CommandOptions{Args: []string{"cat"}, Group: "evaluators",
		Output: func(l sinks.Line) { fmt.Println(l.Text) }})
	if err != nil {
		log.Fatal(err)
	}
	join := func(ctx context.Context, hold int) (sinks.Member, error) {
		return c.JoinGroup(ctx, "evaluators", client.GroupOptions{Prefetch: hold, AutoProgress: true,
			Filter: event.Filter{Types: []string{"TRAINING_COMPLETED"}}})
	}
	r, err := sinks.NewReactor(sinks.Options{Group: "evaluators", Sink: sink, Join: join, Count: 1})
	if err != nil {
		log.Fatal(err)
	}
	summary, err := r.Run(ctx)
	fmt.Println("handled", summary.Handled)
	if err := errors.Join(err, n.Close(ctx), os.RemoveAll(dir)); err != nil {
		log.Fatal(err)
	}
	// Output:
	// {"epoch": 4}
	// handled 1
}
