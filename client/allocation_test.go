package client_test

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/client"
)

// shareNet declares net:a.
func shareNet(t *testing.T, c *client.Client, capacity uint64) {
	t.Helper()
	_, err := c.Admin().SetResource(t.Context(), "net:a",
		client.NewResource{Capacity: &capacity, Unit: "Mbit/s", Preemptible: true})
	if err != nil {
		t.Fatal(err)
	}
}

// Who waits for an allocation gets it once it is released, and a CRITICAL request ends one of priority LOW.
func TestAnAllocationPassesOn(t *testing.T) {
	t.Parallel()
	c := dial(t, client.Config{}, openDoor(t, startNode(t).server.Handler()))
	shareNet(t, c, 100)
	most := map[string]uint64{"net:a": 80}
	first, err := c.Allocate(t.Context(), most, client.AllocationOptions{Holder: "a"})
	if err != nil {
		t.Fatal(err)
	}
	_, err = c.Allocate(t.Context(), most, client.AllocationOptions{NoWait: true})
	if !errors.Is(err, client.ErrNotGranted) {
		t.Fatalf("more than there is: %v", err)
	}
	next := make(chan *client.Allocation, 1)
	go func() {
		x, err := c.Allocate(t.Context(), most,
			client.AllocationOptions{Holder: "b", Priority: "LOW", TTL: 2 * time.Second})
		if err != nil {
			t.Error(err)
		}
		next <- x
	}()
	until(t, "b waits", func() bool {
		for r, err := range c.Admin().Resources(t.Context()) {
			return err == nil && r.Waiting == 1 && r.Granted == 80 && r.Allocations == 1
		}
		return false
	})
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
	third, err := c.Allocate(t.Context(), most, client.AllocationOptions{Holder: "c", Priority: "CRITICAL"})
	if err != nil || third.Fence() <= second.Fence() {
		t.Fatalf("%+v: %v", third, err)
	}
	<-second.Context().Done()
	if cause := context.Cause(second.Context()); !errors.Is(cause, client.ErrAllocationLost) {
		t.Errorf("preempted: %v", cause)
	}
	if !second.EndedEarly() || second.Left() != 0 {
		t.Errorf("preempted: %s left, ended early: %t", second.Left(), second.EndedEarly())
	}
	for x, err := range c.Admin().Allocations(t.Context()) {
		if err != nil || x.Allocation != third.ID() || x.Fence != third.Fence() || x.Holder != "c" {
			t.Errorf("%+v, %v", x, err)
		}
	}

	// A request that an operator releases is not made again.
	ended := make(chan error, 1)
	go func() {
		_, err := c.Allocate(t.Context(), most, client.AllocationOptions{})
		ended <- err
	}()
	waits := func() (id string) {
		for x, err := range c.Admin().Allocations(t.Context()) {
			if err == nil && !x.Granted {
				id = x.Allocation
			}
		}
		return id
	}
	until(t, "it waits", func() bool { return waits() != "" })
	if err := c.Admin().ReleaseAllocation(t.Context(), waits()); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; !errors.Is(err, client.ErrAllocationLost) {
		t.Error(err)
	}

	// Who stops waiting leaves nothing.
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		_, err := c.Allocate(ctx, most, client.AllocationOptions{})
		ended <- err
	}()
	until(t, "it waits", func() bool { return waits() != "" })
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) || waits() != "" {
		t.Errorf("%v, and %q waits", err, waits())
	}
	if err := third.Release(t.Context()); err != nil {
		t.Error(err)
	}
	if err := c.Admin().RemoveResource(t.Context(), "net:a"); err != nil {
		t.Error(err)
	}
	_, err = c.Allocate(t.Context(), most, client.AllocationOptions{})
	if refused, ok := errors.AsType[*api.Error](err); !ok || refused.Code != api.NotFound {
		t.Error(err)
	}
}

// A process whose renewals do not arrive stops before what it has is another's.
func TestAnAllocationIsNotUsedPastItsEnd(t *testing.T) {
	t.Parallel()
	node := startNode(t).server.Handler()
	cut := openDoor(t, node)
	c, other := dial(t, client.Config{}, cut), dial(t, client.Config{}, openDoor(t, node))
	shareNet(t, c, 100)
	most := map[string]uint64{"net:a": 80}
	for _, wrong := range []time.Duration{-1, 667 * time.Millisecond} {
		o := client.AllocationOptions{TTL: 2 * time.Second, Reserve: wrong}
		if _, err := c.Allocate(t.Context(), most, o); err == nil {
			t.Errorf("a reserve of %s is taken", wrong)
		}
	}
	x, err := c.Allocate(t.Context(), most,
		client.AllocationOptions{TTL: 2 * time.Second, Reserve: 600 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	cut.faults(func(r *http.Request) fault { return fault{cutBefore: r.URL.Path == "/v1/allocations"} })
	next := make(chan error, 1)
	go func() {
		second, err := other.Allocate(t.Context(), most, client.AllocationOptions{})
		if err == nil {
			err = second.Release(t.Context())
		}
		next <- err
	}()
	select {
	case <-x.Context().Done():
	case <-next:
		t.Fatal("it is another's while its holder may still work")
	}
	cause := context.Cause(x.Context())
	if !errors.Is(cause, client.ErrAllocationLost) || x.Left() == 0 || x.EndedEarly() {
		t.Errorf("%v with %s left, ended early: %t", cause, x.Left(), x.EndedEarly())
	}
	if err := <-next; err != nil {
		t.Error(err)
	}
}
