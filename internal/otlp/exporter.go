// Package otlp exports spans to a collector of OpenTelemetry: OTLP over HTTP, as JSON, POST /v1/traces.
//
// It promises that recording never waits, whatever the collector does: the memory is bounded, and spans for which there
// is no room are dropped and counted. It is written by hand because OpenTelemetry's own exporter brings 135 packages and
// takes 25 s of CPU to build, for one small request.
//
//	e, err := otlp.New(otlp.Config{Endpoint: "http://127.0.0.1:4318"})
//	e.Record(span)
//	err = e.Close(ctx)
package otlp

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
)

// Bounds of an exporter.
const (
	maxQueued   = 8192        // spans that wait
	batchSpans  = 512         // spans of a request, and how many are sent without a wait for more
	linger      = time.Second // how long a span waits for others
	callTimeout = 10 * time.Second
	firstWait   = time.Second // before a request is repeated; it doubles up to lastWait
	lastWait    = 30 * time.Second
	maxAnswer   = 64 << 10 // bytes of an answer that are read
)

// Resource says what the spans are of.
type Resource struct {
	Attrs          []Attr
	Scope, Version string
}

// Config says where spans go to. Endpoint is required.
type Config struct {
	Endpoint string // the base URL of a collector, such as http://127.0.0.1:4318
	Resource Resource
	Logger   hclog.Logger // nil logs nothing
}

// CheckEndpoint returns the URL of the requests to a collector, or an error that says what its base URL looks like.
func CheckEndpoint(endpoint string) (string, error) {
	u, err := url.Parse(endpoint)
	switch {
	case err != nil, u.Scheme != "http" && u.Scheme != "https", u.Host == "":
		return "", fmt.Errorf("%q is no URL of a collector: give one such as http://127.0.0.1:4318", endpoint)
	case u.User != nil, u.RawQuery != "", u.Fragment != "":
		return "", errors.New("the URL of a collector has a user, a query or a fragment: " +
			"give the base URL alone, such as http://127.0.0.1:4318")
	}
	return strings.TrimSuffix(u.String(), "/") + "/v1/traces", nil
}

// Exporter sends spans in batches. It is safe for concurrent use.
type Exporter struct {
	cfg  Config
	url  string
	http *http.Client

	exported, dropped atomic.Uint64

	mu     sync.Mutex
	queued []Span // at most maxQueued
	closed bool
	due    chan struct{} // has one token once batchSpans wait

	ctx  context.Context // ends when Close begins
	stop context.CancelFunc
	done chan struct{} // closed when the goroutine has ended
}

// New starts an exporter. It connects to nothing before there is a span.
func New(cfg Config) (*Exporter, error) { return newExporter(cfg, linger, firstWait) }

// newExporter is New with other waits.
func newExporter(cfg Config, linger, firstWait time.Duration) (*Exporter, error) {
	to, err := CheckEndpoint(cfg.Endpoint)
	if err != nil {
		return nil, err
	}
	if cfg.Logger == nil {
		cfg.Logger = hclog.NewNullLogger()
	}
	e := &Exporter{cfg: cfg, url: to, due: make(chan struct{}, 1), done: make(chan struct{}),
		// A redirect of a POST would lose its body: it is an error like any other answer.
		http: &http.Client{Timeout: callTimeout, Transport: http.DefaultTransport.(*http.Transport).Clone(),
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}}
	e.ctx, e.stop = context.WithCancel(context.Background())
	go e.run(linger, firstWait)
	return e, nil
}

// Record takes a span over, or drops it if too many wait. It never waits.
func (e *Exporter) Record(s Span) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed || len(e.queued) >= maxQueued {
		e.dropped.Add(1)
		return
	}
	e.queued = append(e.queued, s)
	if len(e.queued) >= batchSpans {
		select {
		case e.due <- struct{}{}:
		default: // it is awake already
		}
	}
}

// Exported returns how many spans the collector has taken.
func (e *Exporter) Exported() uint64 { return e.exported.Load() }

// Dropped returns how many spans were dropped: for want of room, or because the collector refused them.
func (e *Exporter) Dropped() uint64 { return e.dropped.Load() }

// Close sends what waits, once, while ctx lasts, and drops the rest. It may be called again.
func (e *Exporter) Close(ctx context.Context) error {
	e.mu.Lock()
	e.closed = true
	e.mu.Unlock()
	e.stop()
	<-e.done
	defer e.http.CloseIdleConnections()
	for {
		batch := e.take()
		if len(batch) == 0 {
			return nil
		}
		if _, err := e.send(ctx, batch); err != nil {
			e.dropped.Add(uint64(len(batch) + len(e.queued)))
			e.queued = nil
			return fmt.Errorf("export spans: %w", err)
		}
	}
}

// run sends batches until Close begins.
func (e *Exporter) run(linger, firstWait time.Duration) {
	defer close(e.done)
	tick := time.NewTicker(linger)
	defer tick.Stop()
	for {
		select {
		case <-e.due:
		case <-tick.C:
		case <-e.ctx.Done():
			return
		}
		for batch := e.take(); len(batch) > 0; batch = e.take() {
			if !e.deliver(batch, firstWait) {
				return
			}
		}
	}
}

// take returns up to batchSpans that wait.
func (e *Exporter) take() []Span {
	e.mu.Lock()
	defer e.mu.Unlock()
	n := min(len(e.queued), batchSpans)
	batch := e.queued[:n:n]
	// What is left keeps the memory of the batch until it is sent, at most once the queue.
	if e.queued = e.queued[n:]; len(e.queued) == 0 {
		e.queued = nil
	}
	return batch
}

// deliver sends a batch, again and again while the collector is away: meanwhile the queue fills up, and what is beyond
// it is dropped. It reports whether the exporter is still open.
func (e *Exporter) deliver(batch []Span, firstWait time.Duration) bool {
	for wait := firstWait; ; wait = min(2*wait, lastWait) {
		again, err := e.send(e.ctx, batch)
		if err == nil {
			if wait > firstWait {
				e.cfg.Logger.Info("spans are exported again", "endpoint", e.cfg.Endpoint, "dropped", e.Dropped())
			}
			return true
		}
		if e.ctx.Err() != nil {
			e.putBack(batch)
			return false
		}
		if !again {
			e.dropped.Add(uint64(len(batch)))
			e.cfg.Logger.Warn("the collector refuses spans", "endpoint", e.cfg.Endpoint, "spans", len(batch), "error", err)
			return true
		}
		// Once an outage, not once an attempt.
		if wait == firstWait {
			e.cfg.Logger.Warn("spans are not exported", "endpoint", e.cfg.Endpoint, "error", err)
		}
		select {
		case <-time.After(wait):
		case <-e.ctx.Done():
			e.putBack(batch)
			return false
		}
	}
}

// putBack has Close send a batch.
func (e *Exporter) putBack(batch []Span) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.queued = append(batch, e.queued...)
}

// send makes one request. again reports whether it may succeed later.
func (e *Exporter) send(ctx context.Context, batch []Span) (again bool, err error) {
	body, err := encode(e.cfg.Resource, batch)
	if err != nil {
		return false, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, e.url, bytes.NewReader(body))
	if err != nil {
		return false, err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := e.http.Do(req)
	if err != nil {
		return true, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	switch resp.StatusCode {
	case http.StatusOK, http.StatusAccepted, http.StatusNoContent:
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true, fmt.Errorf("%s", resp.Status)
	default:
		return false, fmt.Errorf("%s: %.200q", resp.Status, text)
	}
	if err != nil {
		return true, err
	}
	// A collector that takes only some says how many it did not take. Other answers say that it took them all.
	var answer struct {
		PartialSuccess struct {
			RejectedSpans json.Number `json:"rejectedSpans"`
		} `json:"partialSuccess"`
	}
	_ = json.Unmarshal(text, &answer)
	rejected, _ := answer.PartialSuccess.RejectedSpans.Int64()
	rejected = min(max(rejected, 0), int64(len(batch)))
	e.dropped.Add(uint64(rejected))
	e.exported.Add(uint64(int64(len(batch)) - rejected))
	return false, nil
}
