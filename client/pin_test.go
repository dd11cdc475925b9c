package client_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/client"
	"github.com/ringrift/ringlog/event"
)

// change is an address at which one cluster's node answers after another's.
type change struct{ node atomic.Pointer[node] }

func (c *change) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c.node.Load().server.Handler().ServeHTTP(w, r)
}

func TestAClientStaysWithItsCluster(t *testing.T) {
	t.Parallel()
	old, other := startNode(t), startNode(t)
	place := &change{}
	place.node.Store(old)
	d := openDoor(t, place)
	c := dial(t, client.Config{Endpoints: []string{d.url}})
	publishN(t, c, 0, 20) // more than before a publish stream is opened
	if got := c.ClusterID(); got != old.clusterID() {
		t.Fatalf("the client is held to %q", got)
	}
	if err := old.server.Close(t.Context()); err != nil { // its streams end, too
		t.Fatal(err)
	}
	place.node.Store(other)
	_, before := other.raft.Machine().Log().Bounds()
	began := time.Now()
	for name, call := range map[string]func() error{
		"publish": func() error { _, err := c.Publish(t.Context(), numbered(21)); return err },
		"get":     func() error { _, err := c.Get(t.Context(), 1); return err },
		"status":  func() error { _, err := c.Admin().Status(t.Context()); return err },
		"status at": func() error {
			_, err := c.Admin().StatusOf(t.Context(), d.url)
			return err
		},
		"cursor": func() error { _, err := c.Cursors(t.Context()); return err },
		"tail": func() error {
			for _, err := range c.Tail(t.Context(), client.TailOptions{NoFollow: true}) {
				return err
			}
			return nil
		},
	} {
		answer := wantCode(t, call(), api.OtherCluster)
		for _, part := range []string{old.clusterID(), other.clusterID()} {
			if !strings.Contains(answer.Message, part) || answer.Remedy == "" {
				t.Errorf("%s: %v, which should name %s and a remedy", name, answer, part)
			}
		}
	}
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("refused after %s: nobody else could have answered", took)
	}
	if _, last := other.raft.Machine().Log().Bounds(); last != before {
		t.Errorf("%d events went to the other cluster", last-before)
	}
}

// One endpoint of several is of another cluster: it is passed over, first or not.
func TestAClientPassesOverAnotherClustersNode(t *testing.T) {
	t.Parallel()
	own, stray := startNode(t), startNode(t)
	first, second := openDoor(t, stray.server.Handler()), openDoor(t, own.server.Handler())
	var warned []event.Warning
	c := dial(t, client.Config{Endpoints: []string{first.url, second.url}, ClusterID: own.clusterID(),
		OnWarning: func(w event.Warning) { warned = append(warned, w) }})
	last := publishN(t, c, 0, 3)
	if got := mine(t, c); len(got) != 3 {
		t.Errorf("read %v", got)
	}
	if ev, err := own.raft.Machine().Log().Get(last); err != nil || numberOf(ev) != 2 {
		t.Errorf("%+v, %v", ev, err)
	}
	// That the list is wrong is said once, with both clusters.
	if len(warned) != 1 || warned[0].Reason != string(api.OtherCluster) {
		t.Fatalf("warned of %+v", warned)
	}
	for _, part := range []string{first.url, stray.clusterID(), own.clusterID()} {
		if !strings.Contains(warned[0].Message, part) {
			t.Errorf("%q does not name %s", warned[0].Message, part)
		}
	}
}

// A client that has met one cluster publishes nothing to another when its own is away, and names both and their
// endpoints.
func TestAnotherClustersEndpointIsNotASubstitute(t *testing.T) {
	t.Parallel()
	own, stray := startNode(t), startNode(t)
	first, second := openDoor(t, own.server.Handler()), openDoor(t, stray.server.Handler())
	c := dial(t, client.Config{Endpoints: []string{first.url, second.url}, Timeout: time.Second,
		OnWarning: func(event.Warning) {}})
	publishN(t, c, 0, 1)
	_, before := stray.raft.Machine().Log().Bounds()
	first.faults(func(*http.Request) fault { return fault{cutBefore: true} })
	_, err := c.Publish(t.Context(), numbered(1))
	for _, part := range []string{
		first.url, second.url, own.clusterID(), stray.clusterID(), "held to cluster",
	} {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("%v, which should name %s", err, part)
		}
	}
	if _, last := stray.raft.Machine().Log().Bounds(); last != before {
		t.Errorf("%d events went to the other cluster", last-before)
	}
}

// Two first calls at two nodes of two clusters agree on one of them.
func TestFirstCallsAtTheSameTimeGoToOneCluster(t *testing.T) {
	t.Parallel()
	a, b := startNode(t), startNode(t)
	turn := atomic.Int64{}
	either := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n := a
		if turn.Add(1)%2 == 0 {
			n = b
		}
		n.server.Handler().ServeHTTP(w, r)
	}))
	t.Cleanup(either.Close)
	c := dial(t, client.Config{Endpoints: []string{either.URL}})
	_, bornA := a.raft.Machine().Log().Bounds()
	_, bornB := b.raft.Machine().Log().Bounds()
	var calls sync.WaitGroup
	for i := range 8 {
		calls.Go(func() { _, _ = c.Publish(t.Context(), numbered(i)) })
	}
	calls.Wait()
	_, lastA := a.raft.Machine().Log().Bounds()
	_, lastB := b.raft.Machine().Log().Bounds()
	if lastA > bornA && lastB > bornB {
		t.Errorf("%d events went to one cluster, %d to another", lastA-bornA, lastB-bornB)
	}
}
