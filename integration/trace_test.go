package integration

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/ringrift/ringlog/client"
	"github.com/ringrift/ringlog/client/otelringlog"
	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/router"
)

// nodeSpan is what a collector gets of a span of a node.
type nodeSpan struct {
	TraceID      string `json:"traceId"`
	ParentSpanID string `json:"parentSpanId"`
	Name         string `json:"name"`
	Attributes   []struct {
		Key   string `json:"key"`
		Value struct {
			Text string `json:"stringValue"`
		} `json:"value"`
	} `json:"attributes"`
}

// attribute returns the text of an attribute.
func (s *nodeSpan) attribute(key string) string {
	for _, a := range s.Attributes {
		if a.Key == key {
			return a.Value.Text
		}
	}
	return ""
}

// collector keeps the spans that nodes export to it.
type collector struct {
	*httptest.Server
	mu    sync.Mutex
	spans []nodeSpan
}

func newCollector(t *testing.T) *collector {
	c := &collector{}
	c.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var got struct {
			ResourceSpans []struct {
				ScopeSpans []struct {
					Spans []nodeSpan `json:"spans"`
				} `json:"scopeSpans"`
			} `json:"resourceSpans"`
		}
		if err := json.NewDecoder(r.Body).Decode(&got); err != nil || r.URL.Path != "/v1/traces" {
			t.Errorf("%s: %v", r.URL, err)
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, resource := range got.ResourceSpans {
			for _, scope := range resource.ScopeSpans {
				c.spans = append(c.spans, scope.Spans...)
			}
		}
	}))
	t.Cleanup(c.Close)
	return c
}

// find returns a span of that name whose parent is a trace context.
func (c *collector) find(name string, parent event.Trace) (nodeSpan, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.spans {
		if s.Name == name && s.TraceID == hex.EncodeToString(parent.TraceID[:]) &&
			s.ParentSpanID == hex.EncodeToString(parent.SpanID[:]) {
			return s, nil
		}
	}
	return nodeSpan{}, fmt.Errorf("no span %q within %s among %d", name, parent, len(c.spans))
}

// One trace leads from a publish over the nodes to a handler, and on to what the handler publishes. A retry in another
// trace is the duplicate that it is without one.
func TestATraceFromPublishToHandler(t *testing.T) {
	t.Parallel()
	collected := newCollector(t)
	c := newCluster(t, t.TempDir(), 3, "--otlp-endpoint", collected.URL).startAll()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()

	recorder := tracetest.NewSpanRecorder()
	tracing := otelringlog.New(sdk.NewTracerProvider(sdk.WithSpanProcessor(recorder)))
	cl, err := client.New(tracing.Client(client.Config{Endpoints: c.endpoints()}))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close(ctx)
	r, err := router.New(router.OnClient(cl), tracing.Router(router.Options{}))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close(ctx)
	children := make(chan client.Result, 1)
	_, err = r.Subscribe(ctx, router.Subscription{Name: "evaluators", Group: "evaluators",
		Types: []string{"TRAINING_COMPLETED"},
		Handler: func(ctx context.Context, ev event.Event) error {
			res, err := cl.Publish(ctx, event.New(event.EvaluationStarted, map[string]any{"n": 1}))
			if err == nil {
				children <- res
			}
			return err
		}})
	if err != nil {
		t.Fatal(err)
	}

	first, err := cl.Publish(ctx, event.New(event.TrainingCompleted, map[string]any{"n": 1}))
	if err != nil {
		t.Fatal(err)
	}
	again, err := cl.Publish(ctx, event.New(event.TrainingCompleted, map[string]any{"n": 1}))
	if err != nil || !again.Duplicate || again.Offset != first.Offset {
		t.Fatalf("%v %v", again, err)
	}
	var child client.Result
	select {
	case child = <-children:
	case <-ctx.Done():
		t.Fatal("nothing was handled")
	}

	// Every node has the trace of the first publish, and that of the child.
	stored := func(offset uint64) (ev event.Event) {
		for _, p := range c.nodes {
			c.eventually(10*time.Second, "event", func() (err error) {
				got, err := c.reader(p).Get(ctx, offset)
				if err == nil && ev.Offset != 0 && got.Trace != ev.Trace {
					t.Errorf("%s has %s, another node %s", p.id, got.Trace, ev.Trace)
				}
				ev = got
				return err
			})
		}
		return ev
	}
	parent, follower := stored(first.Offset), stored(child.Offset)
	c.eventually(10*time.Second, "end of the handler's span", func() error {
		if _, err := spanNamed(recorder, "process TRAINING_COMPLETED"); err != nil {
			return err
		}
		return nil
	})
	send, err := spanNamed(recorder, "send TRAINING_COMPLETED")
	if err != nil || otelringlog.TraceOf(send.SpanContext()) != parent.Trace {
		t.Fatalf("%s is stored with %s: %v", send.SpanContext().SpanID(), parent.Trace, err)
	}
	process, _ := spanNamed(recorder, "process TRAINING_COMPLETED")
	if process.Parent().SpanID() != send.SpanContext().SpanID() {
		t.Errorf("the parent of %s is %s", process.Name(), process.Parent().SpanID())
	}
	sendChild, err := spanNamed(recorder, "send EVALUATION_STARTED")
	if err != nil || sendChild.Parent().SpanID() != process.SpanContext().SpanID() ||
		otelringlog.TraceOf(sendChild.SpanContext()) != follower.Trace || follower.Trace.TraceID != parent.Trace.TraceID {
		t.Errorf("the child is stored with %s: %v", follower.Trace, err)
	}

	// The nodes' own spans are within the publish.
	c.eventually(10*time.Second, "spans of the nodes", func() error {
		appended, err := collected.find("append TRAINING_COMPLETED", parent.Trace)
		if err != nil {
			return err
		}
		delivered, err := collected.find("deliver TRAINING_COMPLETED", parent.Trace)
		if err != nil {
			return err
		}
		for _, s := range []nodeSpan{appended, delivered} {
			if s.attribute("messaging.message.id") != fmt.Sprint(first.Offset) || s.attribute("messaging.system") != "ringlog" {
				t.Errorf("%+v", s)
			}
		}
		if delivered.attribute("messaging.consumer.group.name") != "evaluators" {
			t.Errorf("%+v", delivered)
		}
		_, err = collected.find("append EVALUATION_STARTED", follower.Trace)
		return err
	})
	exported := 0
	for _, p := range c.nodes {
		resp, err := http.Get(p.url() + "/metrics")
		if err != nil {
			t.Fatal(err)
		}
		text, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if !strings.Contains(string(text), "\nringlog_spans_dropped_total 0\n") {
			t.Errorf("%s has dropped spans, or does not count them", p.id)
		}
		if !strings.Contains(string(text), "\nringlog_spans_exported_total 0\n") {
			exported++
		}
	}
	if exported == 0 {
		t.Error("no node counts spans")
	}
}

// spanNamed returns the first span of a name that has ended.
func spanNamed(r *tracetest.SpanRecorder, name string) (sdk.ReadOnlySpan, error) {
	ended := r.Ended()
	i := slices.IndexFunc(ended, func(s sdk.ReadOnlySpan) bool { return s.Name() == name })
	if i < 0 {
		return nil, fmt.Errorf("no span %q among %d", name, len(ended))
	}
	return ended[i], nil
}
