package server

import (
	"context"
	"net/http"
	"net/http/httptrace"
	"sync/atomic"
	"testing"
	"time"
)

// Reads do not keep a server from closing: another node can serve them.
func TestClosingWaitsForNoRead(t *testing.T) {
	t.Parallel()
	s := newSite(t, nil)
	paths := []string{
		"/v1/events/1000000?min_offset=1000000",
		"/v1/events?from=1&min_offset=1000000&timeout=14s", "/v1/events?from=1&follow=true",
		"/v1/wait?cursors=c&offset=1000000&timeout=14s", "/v1/chain/none?min_offset=1000000",
	}
	s.ok("PUT", "/v1/cursors/c", "{}")
	answered := make(chan string, len(paths))
	var sent atomic.Int64
	traced := httptrace.WithClientTrace(
		t.Context(),
		&httptrace.ClientTrace{WroteRequest: func(httptrace.WroteRequestInfo) { sent.Add(1) }},
	)
	for _, path := range paths {
		go func() {
			r, err := http.NewRequestWithContext(traced, "GET", s.url+path, nil)
			if err != nil {
				answered <- err.Error()
				return
			}
			if resp, err := s.http.Do(r); err == nil {
				resp.Body.Close()
				if resp.StatusCode != http.StatusServiceUnavailable && resp.StatusCode != http.StatusOK {
					answered <- path + ": " + resp.Status
					return
				}
			}
			answered <- ""
		}()
	}
	eventually(t, "all are under way", func() bool { return sent.Load() == int64(len(paths)) })
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	if err := s.server.Close(ctx); err != nil {
		t.Errorf("close: %v", err)
	}
	for range paths {
		if problem := <-answered; problem != "" {
			t.Error(problem)
		}
	}
}
