package otlp

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// collector is a collector of OpenTelemetry that gives the answers of a test.
type collector struct {
	*httptest.Server
	bodies chan string
	answer atomic.Pointer[func(w http.ResponseWriter)]
}

func newCollector(t *testing.T) *collector {
	c := &collector{bodies: make(chan string, 64)}
	c.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil || r.Method != http.MethodPost || r.URL.Path != "/v1/traces" ||
			r.Header.Get("Content-Type") != "application/json" {
			t.Errorf("%s %s %q: %v", r.Method, r.URL, r.Header.Get("Content-Type"), err)
		}
		if answer := c.answer.Load(); answer != nil {
			(*answer)(w)
		}
		c.bodies <- string(body)
	}))
	t.Cleanup(c.Close)
	return c
}

func (c *collector) answers(answer func(w http.ResponseWriter)) { c.answer.Store(&answer) }

// next is the next request's body.
func (c *collector) next(t *testing.T) string {
	t.Helper()
	select {
	case body := <-c.bodies:
		return body
	case <-time.After(10 * time.Second):
		t.Fatal("no request")
		return ""
	}
}

// open returns an exporter that waits for nothing.
func open(t *testing.T, endpoint string) *Exporter {
	t.Helper()
	e, err := newExporter(Config{Endpoint: endpoint, Resource: Resource{Scope: "ringlog", Version: "1",
		Attrs: []Attr{{Key: "service.name", Text: "ringlog"}}}}, time.Millisecond, time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		_ = e.Close(ctx) // what waits is dropped
	})
	return e
}

func aSpan() Span {
	return Span{Trace: [16]byte{0x4b, 15: 1}, ID: [8]byte{7: 2}, Parent: [8]byte{7: 3}, Name: "append A", Kind: Server,
		Start: time.Unix(1, 2), End: time.Unix(1, 3),
		Attrs: []Attr{{Key: "messaging.system", Text: "ringlog"}, {Key: "n", Number: 7}}, Error: "unavailable"}
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal(what)
		}
	}
}

// The form is that of the protocol's JSON: ids in hex, 64-bit integers as strings.
func TestTheFormOfARequest(t *testing.T) {
	t.Parallel()
	c := newCollector(t)
	e := open(t, c.URL+"/")
	e.Record(aSpan())
	const want = `{"resourceSpans":[{"resource":{"attributes":[` +
		`{"key":"service.name","value":{"stringValue":"ringlog"}}]},` +
		`"scopeSpans":[{"scope":{"name":"ringlog","version":"1"},"spans":[{` +
		`"traceId":"4b000000000000000000000000000001","spanId":"0000000000000002","parentSpanId":"0000000000000003",` +
		`"name":"append A","kind":2,"startTimeUnixNano":"1000000002","endTimeUnixNano":"1000000003",` +
		`"attributes":[{"key":"messaging.system","value":{"stringValue":"ringlog"}},{"key":"n","value":{"intValue":"7"}}],` +
		`"status":{"code":2,"message":"unavailable"}}]}]}]}`
	if got := c.next(t); got != want {
		t.Errorf("%s", got)
	}
	eventually(t, "it was exported", func() bool { return e.Exported() == 1 && e.Dropped() == 0 })
}

// While the collector is away, spans wait, and what is beyond the bound is dropped; then all that waited is sent.
func TestACollectorThatIsAway(t *testing.T) {
	t.Parallel()
	c := newCollector(t)
	var away atomic.Bool
	away.Store(true)
	c.answers(func(w http.ResponseWriter) {
		if away.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	})
	e := open(t, c.URL)
	e.Record(aSpan())
	c.next(t)
	const more = 100
	// One batch is on its way at most, beside what is queued.
	for range maxQueued + batchSpans + more {
		e.Record(aSpan())
	}
	dropped := e.Dropped()
	if dropped < more || dropped > more+batchSpans {
		t.Errorf("%d dropped", dropped)
	}
	away.Store(false)
	sent := 0
	for sent < maxQueued {
		var got request
		if err := json.Unmarshal([]byte(c.next(t)), &got); err != nil {
			t.Fatal(err)
		}
		if n := len(got.ResourceSpans[0].ScopeSpans[0].Spans); n > batchSpans {
			t.Errorf("%d spans in a request", n)
		}
		sent = int(e.Exported())
	}
	if e.Dropped() != dropped {
		t.Errorf("%d dropped, %d while the collector was away", e.Dropped(), dropped)
	}
}

// What the collector refuses is not sent again, all of it or a part.
func TestWhatTheCollectorRefuses(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]func(w http.ResponseWriter){
		"all":        func(w http.ResponseWriter) { http.Error(w, "no", http.StatusBadRequest) },
		"a redirect": func(w http.ResponseWriter) { w.Header().Set("Location", "/x"); w.WriteHeader(http.StatusFound) },
		"some":       func(w http.ResponseWriter) { _, _ = io.WriteString(w, `{"partialSuccess":{"rejectedSpans":"1"}}`) },
		"too many":   func(w http.ResponseWriter) { _, _ = io.WriteString(w, `{"partialSuccess":{"rejectedSpans":9}}`) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCollector(t)
			c.answers(answer)
			e := open(t, c.URL)
			e.Record(aSpan())
			c.next(t)
			eventually(t, "it was dropped", func() bool { return e.Dropped() == 1 && e.Exported() == 0 })
		})
	}
}

// Close sends what waits, and no more than that is taken.
func TestCloseSendsWhatWaits(t *testing.T) {
	t.Parallel()
	c := newCollector(t)
	e, err := New(Config{Endpoint: c.URL})
	if err != nil {
		t.Fatal(err)
	}
	e.Record(aSpan())
	if err := e.Close(t.Context()); err != nil || e.Exported() != 1 || !strings.Contains(c.next(t), `"append A"`) {
		t.Errorf("%d exported: %v", e.Exported(), err)
	}
	e.Record(aSpan())
	if err := e.Close(t.Context()); err != nil || e.Dropped() != 1 {
		t.Errorf("%d dropped: %v", e.Dropped(), err)
	}
}

// What is no base URL is refused, without showing a password.
func TestEndpoints(t *testing.T) {
	t.Parallel()
	for endpoint, want := range map[string]string{
		"http://127.0.0.1:4318": "http://127.0.0.1:4318/v1/traces", "https://c/otlp/": "https://c/otlp/v1/traces",
		"": "", "127.0.0.1:4318": "", "grpc://c:4317": "", "http://u:secret@c": "", "http://c?x=1": "", "http://%": "",
	} {
		got, err := CheckEndpoint(endpoint)
		if got != want || (err == nil) != (want != "") || (err != nil && strings.Contains(err.Error(), "secret")) {
			t.Errorf("%q: %q %v", endpoint, got, err)
		}
	}
}
