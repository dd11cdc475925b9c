package calls

import (
	"encoding/json"
	"net/http"
	"sync"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/event"
)

// warningsTransport reports the warnings of all answers, each once: a reader that reconnects gives its filter again.
type warningsTransport struct {
	// next makes the requests.
	next http.RoundTripper
	// It may be called by several goroutines at once.
	report func(event.Warning)

	mu   sync.Mutex
	seen map[event.Warning]bool // up to maxSeen
}

// maxSeen bounds the warnings that are remembered. Past it all are forgotten, and may be reported again.
const maxSeen = 1024

// RoundTrip implements http.RoundTripper.
func (t *warningsTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := t.next.RoundTrip(r)
	if err == nil {
		for _, text := range resp.Header.Values(api.WarningsHeader) {
			t.take(text)
		}
	}
	return resp, err
}

// take reports those warnings of a header that are new. One that cannot be read, of a later version, is ignored.
func (t *warningsTransport) take(text string) {
	var list []event.Warning
	if json.Unmarshal([]byte(text), &list) != nil {
		return
	}
	for _, w := range list {
		if t.isNew(w) {
			t.report(w)
		}
	}
}

// isNew notes a warning, and returns false if it was noted before.
func (t *warningsTransport) isNew(w event.Warning) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.seen[w] {
		return false
	}
	// At first it is nil.
	if t.seen == nil || len(t.seen) >= maxSeen {
		t.seen = map[event.Warning]bool{}
	}
	t.seen[w] = true
	return true
}

// CloseIdleConnections lets http.Client.CloseIdleConnections reach the transport below.
func (t *warningsTransport) CloseIdleConnections() {
	if next, ok := t.next.(interface{ CloseIdleConnections() }); ok {
		next.CloseIdleConnections()
	}
}
