package client_test

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ringrift/ringlog/client"
	"github.com/ringrift/ringlog/event"
)

// late holds the first request to a path until its caller has given it up, and delivers it once
// the next one is answered: a node that was paused does that.
type late struct {
	base  http.RoundTripper
	path  string
	first atomic.Pointer[http.Request]
	sent  atomic.Bool
}

func (l *late) RoundTrip(r *http.Request) (*http.Response, error) {
	if !strings.HasSuffix(r.URL.Path, l.path) {
		return l.base.RoundTrip(r)
	}
	if l.first.Load() == nil {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return nil, err
		}
		held := r.Clone(context.WithoutCancel(r.Context()))
		held.Body = io.NopCloser(bytes.NewReader(body))
		l.first.Store(held)
		<-r.Context().Done()
		return nil, r.Context().Err()
	}
	answer, err := l.base.RoundTrip(r)
	if err == nil && !l.sent.Swap(true) {
		var old *http.Response
		if old, err = l.base.RoundTrip(l.first.Load()); err == nil {
			err = old.Body.Close()
		}
	}
	return answer, err
}

// An attempt that was abandoned and arrives late must not fence off the cursor that the next
// attempt has opened, nor move one that has been sought since.
func TestALateAttemptHurtsNobody(t *testing.T) {
	t.Parallel()
	n := startNode(t)
	d := openDoor(t, n.server.Handler())
	over := func(path string) (*client.Client, *late) {
		base := &http.Transport{}
		l := &late{base: base, path: path}
		c, err := client.New(
			client.Config{
				Endpoints:      []string{d.url},
				AttemptTimeout: 500 * time.Millisecond,
				HTTPClient:     &http.Client{Transport: l},
			},
		)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = c.Close(context.Background())
			base.CloseIdleConnections()
		})
		return c, l
	}
	opening, l := over("/OpenCursor")
	if _, err := opening.Publish(t.Context(), event.New(event.TrainingCompleted, map[string]int{"n": 1})); err != nil {
		t.Fatal(err)
	}
	cur, err := opening.OpenCursor(t.Context(), "c", client.CursorOptions{})
	if err != nil || !l.sent.Load() {
		t.Fatal(err, l.sent.Load())
	}
	defer cur.Close()
	e, err := cur.Next(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := cur.Commit(t.Context(), e.Offset); err != nil {
		t.Errorf("it was fenced off by its own attempt: %v", err)
	}
	seeking, l := over("/SeekCursor")
	if _, err := seeking.SeekCursor(t.Context(), "c", client.FromStart()); err != nil || !l.sent.Load() {
		t.Fatal(err, l.sent.Load())
	}
	if seen, _ := n.raft.Machine().Cursor("c"); seen.Seeks != 1 {
		t.Errorf("the cursor was moved %d times", seen.Seeks)
	}
}
