// Package otelringlog makes OpenTelemetry spans of what a client publishes and of what handlers do with events, and
// links the two through the traceparent that an event has in the log.
//
// It promises that a publish is a PRODUCER span and each attempt of a handler a CONSUMER span whose parent is the
// publish, with the attributes of OpenTelemetry's conventions for messaging; that what a handler publishes is a child
// of its span; and that events get the traceparent of their PRODUCER span whether or not that is sampled. It keeps no
// state, and needs nothing of the nodes but feature level 10.
//
//	tracing := otelringlog.New(otel.GetTracerProvider())
//	c, err := client.New(tracing.Client(client.Config{Endpoints: endpoints}))
//	r := router.New(router.OnClient(c), tracing.Router(router.Options{}))
package otelringlog

import (
	"context"
	"fmt"
	"strconv"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/ringrift/ringlog/client"
	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/router"
)

// scope is the name of the instrumentation.
const scope = "github.com/ringrift/ringlog/client/otelringlog"

// The attributes of OpenTelemetry's conventions for messaging.
const (
	attrSystem        = attribute.Key("messaging.system")
	attrOperation     = attribute.Key("messaging.operation.name")
	attrOperationType = attribute.Key("messaging.operation.type")
	attrDestination   = attribute.Key("messaging.destination.name") // the type of the event
	attrMessageID     = attribute.Key("messaging.message.id")       // its offset
	attrConversation  = attribute.Key("messaging.message.conversation_id")
	attrGroup         = attribute.Key("messaging.consumer.group.name")
	attrBatchCount    = attribute.Key("messaging.batch.message_count")
	attrDuplicate     = attribute.Key("ringlog.duplicate")
	attrAttempt       = attribute.Key("ringlog.attempt")
	attrDelivery      = attribute.Key("ringlog.delivery")
	attrErrorType     = attribute.Key("error.type")
)

// Tracing makes spans with one tracer. It is safe for concurrent use.
type Tracing struct{ tracer trace.Tracer }

// New returns a Tracing whose spans go to a provider.
func New(provider trace.TracerProvider) *Tracing { return &Tracing{provider.Tracer(scope)} }

// Client returns a configuration with the spans of what the client publishes. TracePublish must be unset.
func (t *Tracing) Client(cfg client.Config) client.Config {
	cfg.TracePublish = t.Publish
	return cfg
}

// Router returns options with a span of each attempt of a handler. An Observe that is set is called as well, with the
// context of the span.
func (t *Tracing) Router(o router.Options) router.Options {
	observe := o.Observe
	o.Observe = func(ctx context.Context, a router.Attempt, ev *event.Event) (context.Context, func(error)) {
		ctx, end := t.Process(ctx, a.Subscription, ev,
			attrAttempt.Int(a.Number), attrDelivery.Int64(int64(a.Delivery)))
		if observe == nil {
			return ctx, end
		}
		ctx, observed := observe(ctx, a, ev)
		return ctx, func(err error) {
			observed(err)
			end(err)
		}
	}
	return o
}

// Publish begins the PRODUCER span of one call that publishes events, and returns the trace context for them. It is
// client.Config.TracePublish. Its parent is the span that ctx has, or that of the event whose handler ctx is for.
func (t *Tracing) Publish(ctx context.Context, events []event.Event) (event.Trace, func([]client.Result, error)) {
	if !trace.SpanContextFromContext(ctx).IsValid() {
		ctx = withRemote(ctx, event.TraceOf(ctx))
	}
	name := "send"
	attrs := []attribute.KeyValue{attrSystem.String("ringlog"), attrOperation.String("send"),
		attrOperationType.String("send")}
	if to, one := destination(events); one {
		name += " " + to
		attrs = append(attrs, attrDestination.String(to))
	}
	if len(events) == 1 {
		attrs = appendConversation(attrs, &events[0])
	} else {
		attrs = append(attrs, attrBatchCount.Int(len(events)))
	}
	_, span := t.tracer.Start(ctx, name, trace.WithSpanKind(trace.SpanKindProducer), trace.WithAttributes(attrs...))
	return TraceOf(span.SpanContext()), func(results []client.Result, err error) {
		// The events of a batch have offsets of their own, and a span has one message id.
		if len(results) == 1 {
			span.SetAttributes(attrMessageID.String(strconv.FormatUint(results[0].Offset, 10)),
				attrDuplicate.Bool(results[0].Duplicate))
		}
		finish(span, err)
	}
}

// Process begins the CONSUMER span of handling an event, for those who read cursors, groups or tails themselves. group
// names the cursor or group, "" is none. What is published with the context that it returns belongs to the span, and to
// the run of the event; end is to be called with the handler's error.
func (t *Tracing) Process(
	ctx context.Context, group string, ev *event.Event, attrs ...attribute.KeyValue,
) (_ context.Context, end func(error)) {
	attrs = append(attrs, attrSystem.String("ringlog"), attrOperation.String("process"),
		attrOperationType.String("process"), attrDestination.String(string(ev.Type)))
	if ev.Offset > 0 {
		attrs = append(attrs, attrMessageID.String(strconv.FormatUint(ev.Offset, 10)))
	}
	if group != "" {
		attrs = append(attrs, attrGroup.String(group))
	}
	attrs = appendConversation(attrs, ev)
	options := []trace.SpanStartOption{trace.WithSpanKind(trace.SpanKindConsumer)}
	// The publish is the parent, and a link says that it is one of a message. Whatever span the reader is in would join
	// the traces of all events that it reads.
	if remote := SpanContextOf(ev.Trace); remote.IsValid() {
		ctx = trace.ContextWithRemoteSpanContext(ctx, remote)
		options = append(options, trace.WithLinks(trace.Link{SpanContext: remote}))
	}
	ctx, span := t.tracer.Start(event.CausedBy(ctx, ev), "process "+string(ev.Type),
		append(options, trace.WithAttributes(attrs...))...)
	return ctx, func(err error) { finish(span, err) }
}

// finish ends a span with an error, nil for none.
func finish(span trace.Span, err error) {
	if err != nil {
		span.SetStatus(codes.Error, err.Error())
		span.SetAttributes(attrErrorType.String(fmt.Sprintf("%T", err)))
	}
	span.End()
}

// destination returns the type of events that all have the same one.
func destination(events []event.Event) (to string, one bool) {
	for i := range events {
		if events[i].Type != events[0].Type {
			return "", false
		}
	}
	if len(events) == 0 {
		return "", false // a call that the client refuses
	}
	return string(events[0].Type), true
}

// appendConversation appends the run that an event belongs to.
func appendConversation(attrs []attribute.KeyValue, ev *event.Event) []attribute.KeyValue {
	if ev.CorrelationID == "" {
		return attrs
	}
	return append(attrs, attrConversation.String(ev.CorrelationID))
}

// TraceOf returns the trace context of a span for an event.
func TraceOf(s trace.SpanContext) event.Trace {
	return event.Trace{TraceID: s.TraceID(), SpanID: s.SpanID(), Flags: byte(s.TraceFlags())}
}

// SpanContextOf returns the span that published an event, which is invalid if the event has no trace context.
func SpanContextOf(t event.Trace) trace.SpanContext {
	return trace.NewSpanContext(trace.SpanContextConfig{TraceID: t.TraceID, SpanID: t.SpanID,
		TraceFlags: trace.TraceFlags(t.Flags), Remote: true})
}

// withRemote returns a context in which a span begins as a child of the one of t, ctx itself if that is none.
func withRemote(ctx context.Context, t event.Trace) context.Context {
	if !t.Valid() {
		return ctx
	}
	return trace.ContextWithRemoteSpanContext(ctx, SpanContextOf(t))
}
