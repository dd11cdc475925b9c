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
	t.Parallel()
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

// What a cursor's reader settles under a lease is refused once the lease is over, and moves the cursor no further.
func TestACursorSettlesUnderItsLease(t *testing.T) {
	t.Parallel()
	c := dial(t, client.Config{}, openDoor(t, startNode(t).server.Handler()))
	keyed(t, c, 3, "a")
	role, err := c.AcquireRole(t.Context(), "R", client.RoleOptions{})
	if err != nil {
		t.Fatal(err)
	}
	cur, err := c.OpenCursor(t.Context(), "a cursor", client.CursorOptions{Filter: progress, Lease: role.Lease()})
	if err != nil {
		t.Fatal(err)
	}
	defer cur.Close()
	var offsets []uint64
	for range 3 {
		ev, err := cur.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		offsets = append(offsets, ev.Offset)
	}
	failure := client.Failure{Handler: "h", Error: "e", FirstFailed: time.Unix(7, 0)}
	err = errors.Join(cur.Commit(t.Context(), offsets[0]), cur.DeadLetter(t.Context(), offsets[1], failure))
	if err != nil {
		t.Fatal(err)
	}
	for l, err := range c.Admin().DeadLetters(t.Context(), client.LetterFilter{}) {
		if err != nil || l.Offset != offsets[1] || !l.FirstFailed.Equal(failure.FirstFailed) {
			t.Errorf("%+v, %v", l, err)
		}
	}
	if _, err := c.Admin().RevokeRole(t.Context(), "R", role.Fence()); err != nil {
		t.Fatal(err)
	}
	for _, err := range []error{cur.Commit(t.Context(), offsets[2]), cur.DeadLetter(t.Context(), offsets[2], failure)} {
		if failed, ok := errors.AsType[*api.Error](err); !ok || failed.Code != api.Fenced || failed.Field != "fence" {
			t.Errorf("%v", err)
		}
	}
	if info, err := c.Cursor(t.Context(), "a cursor"); err != nil || info.Committed != offsets[1] {
		t.Errorf("%+v, %v: the dead letter was at %d", info, err, offsets[1])
	}
}

// A node of an earlier version ignores leases: nobody becomes a member there who has one.
func TestAMemberWithALeaseNeedsANodeThatComparesIt(t *testing.T) {
	t.Parallel()
	_, d := openGroup(t, 1)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	o := client.GroupOptions{Lease: client.Lease{Role: "R", Fence: 7}}
	_, err := dial(t, client.Config{}, d).JoinGroup(ctx, "trainers", o)
	if failed, ok := errors.AsType[*api.Error](err); !ok || failed.Code != api.NotImplemented {
		t.Errorf("%v", err)
	}
}
