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
)

// change is an address at which one cluster's node answers after another's.
type change struct{ node atomic.Pointer[node] }

func (c *change) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c.node.Load().server.Handler().ServeHTTP(w, r)
}

func TestAClientStaysWithItsCluster(t *testing.T) {
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
	own, stray := startNode(t), startNode(t)
	first, second := openDoor(t, stray.server.Handler()), openDoor(t, own.server.Handler())
	c := dial(t, client.Config{Endpoints: []string{first.url, second.url}, ClusterID: own.clusterID()})
	last := publishN(t, c, 0, 3)
	if got := mine(t, c); len(got) != 3 {
		t.Errorf("read %v", got)
	}
	if ev, err := own.raft.Machine().Log().Get(last); err != nil || numberOf(ev) != 2 {
		t.Errorf("%+v, %v", ev, err)
	}
}

// Two first calls at two nodes of two clusters agree on one of them.
func TestFirstCallsAtTheSameTimeGoToOneCluster(t *testing.T) {
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
