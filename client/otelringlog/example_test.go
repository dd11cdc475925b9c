package otelringlog_test

import (
	"context"
	"log"

	"go.opentelemetry.io/otel"

	"github.com/ringrift/ringlog/client"
	"github.com/ringrift/ringlog/client/otelringlog"
	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/router"
)

// The publish is a span within the caller's, and each attempt of a handler is one within the publish.
func Example() {
	ctx, tracing := context.Background(), otelringlog.New(otel.GetTracerProvider())
	c, err := client.New(tracing.Client(client.Config{Endpoints: []string{"http://127.0.0.1:8770"}}))
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close(ctx)
	r, err := router.New(router.OnClient(c), tracing.Router(router.Options{}))
	if err != nil {
		log.Fatal(err)
	}
	defer r.Close(ctx)
	_, err = r.Subscribe(ctx, router.Subscription{Name: "evaluators", Types: []string{"TRAINING_COMPLETED"},
		Handler: func(ctx context.Context, ev event.Event) error {
			_, err := r.Publish(ctx, event.New(event.EvaluationStarted, nil)) // within the handler's span
			return err
		}})
	if err != nil {
		log.Fatal(err)
	}
}
