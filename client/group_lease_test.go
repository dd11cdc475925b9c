package client_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/client"
)

// The membership under a lease ends with the lease: what the member has not settled by then goes to the next holder,
// although the member still acknowledges it.
func TestAMembershipEndsWithItsLease(t *testing.T) {
	c := dial(t, client.Config{}, openDoor(t, startNode(t).server.Handler()))
	keyed(t, c, 2, "a")
	role, err := c.AcquireRole(t.Context(), "R", client.RoleOptions{})
	if err != nil {
		t.Fatal(err)
	}
	m := joinGroup(t, c, client.GroupOptions{Filter: progress, Lease: role.Lease()})
	first, err := m.Next(t.Context())
	if err != nil || first.Ack() != nil || m.Flush(t.Context()) != nil {
		t.Fatalf("%+v %v", first, err)
	}
	second, err := m.Next(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Admin().RevokeRole(t.Context(), "R", role.Fence()); err != nil {
		t.Fatal(err)
	}
	err = errors.Join(second.Ack(), m.Flush(t.Context()))
	if failed, ok := errors.AsType[*api.Error](err); !ok || failed.Code != api.Fenced || failed.Field != "fence" {
		t.Errorf("%v", err)
	}
	next, err := c.AcquireRole(t.Context(), "R", client.RoleOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer next.Release(context.WithoutCancel(t.Context()))
	other := joinGroup(t, c, client.GroupOptions{Lease: next.Lease()})
	again, err := other.Next(t.Context())
	if err != nil || again.Offset != second.Offset || again.Ack() != nil || other.Close(t.Context()) != nil {
		t.Errorf("%+v %v, want %d", again, err, second.Offset)
	}
}

// A node of an earlier version ignores leases: nobody becomes a member there who has one.
func TestAMemberWithALeaseNeedsANodeThatComparesIt(t *testing.T) {
	_, d := openGroup(t, 1)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	o := client.GroupOptions{Lease: client.Lease{Role: "R", Fence: 7}}
	_, err := dial(t, client.Config{}, d).JoinGroup(ctx, "trainers", o)
	if failed, ok := errors.AsType[*api.Error](err); !ok || failed.Code != api.NotImplemented {
		t.Errorf("%v", err)
	}
}
