package client_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/client"
	"github.com/ringrift/ringlog/event"
)

// acquired waits for a role in the background.
func acquired(t *testing.T, c *client.Client, name string, o client.RoleOptions) <-chan *client.Role {
	got := make(chan *client.Role, 1)
	go func() {
		defer close(got)
		r, err := c.AcquireRole(t.Context(), name, o)
		if err != nil {
			t.Error(err)
			return
		}
		got <- r
	}()
	return got
}

// A role passes from holder to holder in the order in which they asked, and only the holder's publishes are accepted.
func TestARolePassesOn(t *testing.T) {
	c := dial(t, client.Config{}, openDoor(t, startNode(t).server.Handler()))
	first, err := c.AcquireRole(t.Context(), "PROMOTION_LEADER", client.RoleOptions{Holder: "a"})
	if err != nil {
		t.Fatal(err)
	}
	_, err = c.AcquireRole(t.Context(), "PROMOTION_LEADER", client.RoleOptions{NoWait: true})
	if !errors.Is(err, client.ErrRoleHeld) {
		t.Fatalf("a second holder: %v", err)
	}
	next := acquired(t, c, "PROMOTION_LEADER", client.RoleOptions{Holder: "b"})
	until(t, "b waits", func() bool {
		for r, err := range c.Admin().Roles(t.Context()) {
			return err == nil && r.Holder == "a" && r.Fence == first.Fence() && r.Waiting == 1
		}
		return false
	})
	for n := range 2 {
		got, err := first.Publish(t.Context(), event.New(event.ModelPromoted, map[string]any{"n": n}), event.New("A", nil))
		if err != nil || len(got) != 2 || got[0].Offset <= first.Fence() {
			t.Fatalf("%+v, %v", got, err)
		}
	}
	if err := first.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	if cause := context.Cause(first.Context()); !errors.Is(cause, context.Canceled) {
		t.Errorf("released: %v", cause)
	}
	second := <-next
	if second == nil || second.Fence() <= first.Fence() {
		t.Fatalf("%+v after the fence %d", second, first.Fence())
	}
	for range 2 {
		_, err = first.Publish(t.Context(), event.New(event.ModelPromoted, map[string]any{"n": 9}))
	}
	refused, ok := errors.AsType[*api.Error](err)
	if !ok || refused.Code != api.Fenced || refused.Offset != second.Fence() {
		t.Errorf("the first holder still publishes: %v", err)
	}

	// An operator takes the role away; the holder learns of it with its next renewal.
	if _, err := c.Admin().RevokeRole(t.Context(), "PROMOTION_LEADER", first.Fence()); err == nil {
		t.Error("a lease that is over was revoked")
	}
	if _, err := c.Admin().RevokeRole(t.Context(), "PROMOTION_LEADER", second.Fence()); err != nil {
		t.Error(err)
	}
	if err := second.Release(t.Context()); err != nil {
		t.Error(err)
	}
}

// A holder whose renewals do not arrive stops before its lease is another's; one whose publishes are cut off repeats
// them, and they are appended once.
func TestAHolderStopsBeforeItsLeaseEnds(t *testing.T) {
	node := startNode(t).server.Handler()
	cut := openDoor(t, node)
	c, other := dial(t, client.Config{}, cut), dial(t, client.Config{}, openDoor(t, node))
	r, err := c.AcquireRole(t.Context(), "SYNC", client.RoleOptions{TTL: 2 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	once := true
	cut.faults(func(r *http.Request) fault {
		publish := strings.HasSuffix(r.URL.Path, "/v1/events")
		f := fault{cutAfter: publish && once, cutBefore: r.URL.Path == "/v1/roles"}
		once = once && !publish
		return f
	})
	got, err := r.Publish(t.Context(), event.Event{Type: "A", NoDedup: true})
	if err != nil || len(got) != 1 || got[0].Duplicate {
		t.Fatalf("%+v, %v", got, err)
	}
	next := acquired(t, other, "SYNC", client.RoleOptions{TTL: 2 * time.Second})
	select {
	case <-r.Context().Done():
	case <-next:
		t.Fatal("the role is another's while its holder may still work")
	}
	if cause := context.Cause(r.Context()); !errors.Is(cause, client.ErrRoleLost) {
		t.Error(cause)
	}
	second := <-next
	if second == nil {
		t.FailNow()
	}
	if tail, err := other.Get(t.Context(), got[0].Offset+1); err != nil || tail.Type == "A" {
		t.Errorf("the event was appended again: %+v, %v", tail, err)
	}
	if err := second.Release(t.Context()); err != nil {
		t.Error(err)
	}
}

// A client with a short timeout does not ask for a role again and again while it waits: each call is an entry of the
// log. When it stops waiting it leaves the queue.
func TestAShortTimeoutIsNoBusyWait(t *testing.T) {
	node := startNode(t).server.Handler()
	door := openDoor(t, node)
	c := dial(t, client.Config{}, openDoor(t, node))
	held, err := c.AcquireRole(t.Context(), "SYNC", client.RoleOptions{})
	if err != nil {
		t.Fatal(err)
	}
	asked := atomic.Int32{}
	door.faults(func(r *http.Request) fault {
		if r.Method == http.MethodPut {
			asked.Add(1)
		}
		return fault{}
	})
	ctx, cancel := context.WithTimeout(t.Context(), 900*time.Millisecond)
	defer cancel()
	hasty := dial(t, client.Config{Timeout: 200 * time.Millisecond}, door)
	if _, err := hasty.AcquireRole(ctx, "SYNC", client.RoleOptions{TTL: time.Hour}); err == nil {
		t.Error("another holds the role")
	}
	if n := asked.Load(); n > 2 {
		t.Errorf("asked %d times in less than a second", n)
	}
	for r, err := range c.Admin().Roles(t.Context()) {
		if err != nil || r.Waiting != 0 {
			t.Errorf("%+v, %v", r, err)
		}
	}
	if err := held.Release(t.Context()); err != nil {
		t.Error(err)
	}
}
