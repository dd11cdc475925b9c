package client_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/client"
)

// wire stands between a client and a node and passes bytes on. A connection that
// became a publish stream it may cut, or pass nothing more on, after that many bytes.
type wire struct {
	url     string
	to      string
	streams atomic.Int64 // that were opened
	mu      sync.Mutex
	trouble func() (bytes int, silent bool) // nil is none
}

func layWire(t *testing.T, to string) *wire {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := &wire{url: "http://" + l.Addr().String(), to: strings.TrimPrefix(to, "http://")}
	var running sync.WaitGroup
	ctx, stop := context.WithCancel(context.Background())
	running.Go(func() {
		for {
			near, err := l.Accept()
			if err != nil {
				return
			}
			running.Go(func() { w.serve(ctx, near) })
		}
	})
	t.Cleanup(func() {
		stop()
		_ = l.Close()
		running.Wait()
	})
	return w
}

func (w *wire) serve(ctx context.Context, near net.Conn) {
	defer near.Close()
	far, err := net.Dial("tcp", w.to)
	if err != nil {
		return
	}
	defer far.Close()
	defer context.AfterFunc(ctx, func() { near.Close(); far.Close() })()
	var left atomic.Int64 // of a stream in trouble
	var silent, upgraded atomic.Bool
	pass := func(from, to net.Conn, back bool) {
		b := make([]byte, 16<<10)
		for {
			n, err := from.Read(b)
			if back && bytes.HasPrefix(b[:n], []byte("HTTP/1.1 101")) {
				w.streams.Add(1)
				if w.mu.Lock(); w.trouble != nil {
					bytes, quiet := w.trouble()
					left.Store(int64(bytes + n))
					silent.Store(quiet)
					upgraded.Store(true)
				}
				w.mu.Unlock()
			}
			if upgraded.Load() {
				rest := left.Add(int64(-n))
				if rest < 0 {
					n = max(n+int(rest), 0)
					err = io.EOF
				}
			}
			if n > 0 {
				if _, err := to.Write(b[:n]); err != nil {
					return
				}
			}
			if err == nil {
				continue
			}
			if silent.Load() {
				_, _ = io.Copy(io.Discard, from) // until the client hangs up
			}
			return
		}
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		pass(far, near, true)
		if !silent.Load() {
			near.Close()
			far.Close()
		}
	}()
	pass(near, far, false)
	near.Close()
	far.Close()
	<-done
}

func (w *wire) troubles(f func() (int, bool)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.trouble = f
}

// TestStreamsThatAreCutLoseAndDoubleNothing cuts streams at any byte, of requests and of
// replies, and lets one fall silent, which takes the time of an attempt. That time is long, since a node that does not
// open a stream within half of it, as on a machine that stands still, is not asked for another one for a minute.
func TestStreamsThatAreCutLoseAndDoubleNothing(t *testing.T) {
	t.Parallel()
	n := startNode(t)
	w := layWire(t, openDoor(t, n.server.Handler()).url)
	c := dial(t, client.Config{Endpoints: []string{w.url}, MaxInFlight: 2, AttemptTimeout: 8 * time.Second})
	rng := rand.New(rand.NewPCG(1, 2))
	w.troubles(func() (int, bool) { return rng.IntN(1500), w.streams.Load() == 5 })
	const callers, each = 4, 200
	offsets := make([]uint64, callers*each)
	var wg sync.WaitGroup
	for caller := range callers {
		wg.Go(func() {
			for i := range each {
				number := caller*each + i
				res, err := c.Publish(t.Context(), numbered(number))
				if err != nil {
					t.Error(err)
					return
				}
				offsets[number] = res.Offset
			}
		})
	}
	wg.Wait()
	if t.Failed() {
		return
	}
	w.troubles(nil)
	got := mine(t, c)
	seen := map[int]bool{}
	for _, number := range got {
		seen[number] = true
	}
	if len(got) != len(offsets) || len(seen) != len(offsets) {
		t.Errorf("%d events, %d of them different, for %d publishes", len(got), len(seen), len(offsets))
	}
	for number, offset := range offsets {
		if ev, err := c.Get(t.Context(), offset); err != nil || numberOf(ev) != number {
			t.Errorf("%d was acknowledged at %d: there is %s, %v", number, offset, ev.Payload, err)
		}
	}
	if streams := w.streams.Load(); streams < 20 {
		t.Errorf("only %d streams were opened: the test cut too little", streams)
	}
}

// publishWarm publishes one by one, more than a worker does before it asks for a stream.
func publishWarm(t *testing.T, c *client.Client, from int) {
	t.Helper()
	for i := range 20 {
		if _, err := c.Publish(t.Context(), numbered(from+i)); err != nil {
			t.Fatal(err)
		}
	}
}

func TestAStreamReportsErrorsAsRequestsDo(t *testing.T) {
	t.Parallel()
	n := startNode(t)
	d := openDoor(t, n.server.Handler())
	c := dial(t, client.Config{MaxInFlight: 1}, d)
	publishWarm(t, c, 0)
	before := d.seen.Load()
	_, err := c.Publish(t.Context(), variedEvent(10))
	if answer := wantCode(t, err, api.Reserved); answer.Field != "type" || answer.Remedy == "" {
		t.Errorf("%+v", answer)
	}
	if _, err := c.Publish(t.Context(), withDedupID(numbered(0), "taken")); err != nil {
		t.Fatal(err)
	}
	_, err = c.Publish(t.Context(), variedEvent(20))
	if answer := wantCode(t, err, api.Conflict); answer.Offset == 0 {
		t.Errorf("%+v", answer)
	}
	publishWarm(t, c, 100)
	if d.seen.Load() != before {
		t.Error("there were requests beside the stream")
	}
}

func TestWithoutAStreamThereAreRequests(t *testing.T) {
	t.Parallel()
	for what, f := range map[string]fault{
		"refused":      {answer: &api.Error{Code: api.NotFound, Message: "an older node"}},
		"cut":          {cutBefore: true},
		"not answered": {hold: true},
	} {
		t.Run(what, func(t *testing.T) {
			n := startNode(t)
			d := openDoor(t, n.server.Handler())
			var asked atomic.Int64
			d.faults(func(r *http.Request) fault {
				if r.URL.Path != api.PublishStreamPath {
					return fault{}
				}
				asked.Add(1)
				return f
			})
			c := dial(t, client.Config{MaxInFlight: 1}, d)
			publishWarm(t, c, 0)
			publishWarm(t, c, 100)
			if asked.Load() == 0 || asked.Load() > 2 { // an idempotent request may be sent a second time
				t.Errorf("asked for a stream %d times", asked.Load())
			}
			if got := mine(t, c); len(got) != 40 {
				t.Errorf("%d events for 40 publishes", len(got))
			}
		})
	}
}

func TestACallerLeavesAStreamThatIsSilent(t *testing.T) {
	t.Parallel()
	n := startNode(t)
	w := layWire(t, openDoor(t, n.server.Handler()).url)
	c := dial(t, client.Config{Endpoints: []string{w.url}, MaxInFlight: 1, AttemptTimeout: 10 * time.Second})
	w.troubles(func() (int, bool) { return 1000, true })
	// The caller's time begins once there is a stream, whose silence it is to meet.
	var err error
	number := 0
	for ; err == nil && w.streams.Load() == 0; number++ {
		_, err = c.Publish(t.Context(), numbered(number))
	}
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	for ; err == nil; number++ {
		_, err = c.Publish(ctx, numbered(number))
	}
	if !errors.Is(err, client.ErrOutcomeUnknown) || !errors.Is(err, context.DeadlineExceeded) {
		t.Fatal(err)
	}
	w.troubles(nil)
	publishWarm(t, c, number)
	if w.streams.Load() < 2 {
		t.Errorf("%d streams", w.streams.Load())
	}
}
