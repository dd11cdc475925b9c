package otelringlog_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/ringrift/ringlog/client"
	"github.com/ringrift/ringlog/client/otelringlog"
	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/router"
)

// recorded returns a Tracing, its tracer, and what becomes of its spans.
func recorded(options ...sdk.TracerProviderOption) (*otelringlog.Tracing, trace.Tracer, *tracetest.SpanRecorder) {
	spans := tracetest.NewSpanRecorder()
	provider := sdk.NewTracerProvider(append(options, sdk.WithSpanProcessor(spans))...)
	return otelringlog.New(provider), provider.Tracer("test"), spans
}

func value(t *testing.T, s sdk.ReadOnlySpan, key string) attribute.Value {
	t.Helper()
	attrs := s.Attributes()
	at := slices.IndexFunc(attrs, func(kv attribute.KeyValue) bool { return string(kv.Key) == key })
	if at < 0 {
		t.Fatalf("%s has no attribute %s", s.Name(), key)
	}
	return attrs[at].Value
}

// A publish is a PRODUCER span within the span of the caller, handling is a CONSUMER span within the publish, and what
// the handler publishes is within that.
func TestSpansFromPublishToHandler(t *testing.T) {
	t.Parallel()
	tracing, tracer, spans := recorded()
	ctx, caller := tracer.Start(t.Context(), "caller")
	sent := event.New(event.TrainingCompleted, nil)
	sent.CorrelationID = "run-7"
	var end func([]client.Result, error)
	sent.Trace, end = tracing.Publish(ctx, []event.Event{sent})
	end([]client.Result{{Offset: 41}}, nil)
	sent.Offset = 41

	observed := false
	options := tracing.Router(router.Options{
		Observe: func(ctx context.Context, _ router.Attempt, _ *event.Event) (context.Context, func(error)) {
			observed = trace.SpanContextFromContext(ctx).TraceID() == caller.SpanContext().TraceID()
			return ctx, func(error) {}
		}})
	attempt := router.Attempt{Subscription: "promoter", Number: 2, Delivery: 3}
	handlerCtx, handled := options.Observe(context.Background(), attempt, &sent)
	_, childEnd := tracing.Publish(handlerCtx, make([]event.Event, 2))
	childEnd(nil, errors.New("away"))
	handled(nil)

	ended := spans.Ended()
	if len(ended) != 3 || !observed {
		t.Fatalf("%d spans, observed %t", len(ended), observed)
	}
	publish, child, process := ended[0], ended[1], ended[2]
	if publish.Name() != "send TRAINING_COMPLETED" || publish.SpanKind() != trace.SpanKindProducer ||
		publish.Parent().SpanID() != caller.SpanContext().SpanID() ||
		otelringlog.TraceOf(publish.SpanContext()) != sent.Trace || !sent.Trace.Sampled() {
		t.Errorf("publish: %s %v, parent %v", publish.Name(), publish.SpanKind(), publish.Parent().SpanID())
	}
	if process.Name() != "process TRAINING_COMPLETED" || process.SpanKind() != trace.SpanKindConsumer ||
		process.Parent().SpanID() != publish.SpanContext().SpanID() || !process.Parent().IsRemote() ||
		len(process.Links()) != 1 || process.Links()[0].SpanContext.SpanID() != publish.SpanContext().SpanID() {
		t.Errorf("process: %s %v, parent %v", process.Name(), process.SpanKind(), process.Parent().SpanID())
	}
	if child.Parent().SpanID() != process.SpanContext().SpanID() || child.Status().Code != codes.Error {
		t.Errorf("child: parent %v, %v", child.Parent().SpanID(), child.Status())
	}
	for _, s := range []sdk.ReadOnlySpan{publish, process} {
		if value(t, s, "messaging.system").AsString() != "ringlog" ||
			value(t, s, "messaging.destination.name").AsString() != "TRAINING_COMPLETED" ||
			value(t, s, "messaging.message.id").AsString() != "41" ||
			value(t, s, "messaging.message.conversation_id").AsString() != "run-7" {
			t.Errorf("%s: %v", s.Name(), s.Attributes())
		}
	}
	if value(t, process, "messaging.consumer.group.name").AsString() != "promoter" ||
		value(t, process, "ringlog.attempt").AsInt64() != 2 || value(t, process, "ringlog.delivery").AsInt64() != 3 {
		t.Errorf("process: %v", process.Attributes())
	}
	if value(t, child, "messaging.batch.message_count").AsInt64() != 2 {
		t.Errorf("child: %v", child.Attributes())
	}
}

// Without a span around it, a handler's publish belongs to the event that it handles; a failed handler is an error.
func TestAHandlerWithoutASpan(t *testing.T) {
	t.Parallel()
	tracing, _, spans := recorded()
	cause := event.Event{Type: "A", Offset: 3, Trace: event.Trace{TraceID: [16]byte{1}, SpanID: [8]byte{2}, Flags: 1}}
	got, end := tracing.Publish(event.CausedBy(t.Context(), &cause), []event.Event{{Type: "B"}})
	end(nil, nil)
	_, end2 := tracing.Process(t.Context(), "", &cause)
	end2(errors.New("broken"))
	ended := spans.Ended()
	if got.TraceID != cause.Trace.TraceID || ended[0].Parent().SpanID() != trace.SpanID(cause.Trace.SpanID) {
		t.Errorf("%s, parent %v", got, ended[0].Parent().SpanID())
	}
	if ended[1].Status().Code != codes.Error || value(t, ended[1], "error.type").AsString() != "*errors.errorString" {
		t.Errorf("%+v %v", ended[1].Status(), ended[1].Attributes())
	}
}

// A trace that is not recorded is passed on as that.
func TestWhatIsNotSampledIsPassedOn(t *testing.T) {
	t.Parallel()
	tracing, _, spans := recorded(sdk.WithSampler(sdk.NeverSample()))
	got, end := tracing.Publish(t.Context(), []event.Event{{Type: "A"}})
	end(nil, nil)
	if !got.Valid() || got.Sampled() || len(spans.Ended()) != 0 {
		t.Errorf("%s, %d spans", got, len(spans.Ended()))
	}
}
