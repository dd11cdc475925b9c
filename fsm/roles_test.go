package fsm

import (
	"fmt"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/ringrift/ringlog/internal/frame"
)

// roleNode is a machine whose entries claim, renew and release roles.
type roleNode struct {
	testing.TB
	m     *Machine
	index uint64
	term  uint64
	now   time.Time
}

func newRoleNode(t testing.TB) *roleNode {
	n := &roleNode{TB: t, m: open(t, vfs.NewMem()), term: 1, now: epoch}
	t.Cleanup(func() { n.m.Close() })
	n.entry(do(frame.TermStart{ClusterID: "c", Members: []frame.Member{{ID: "n1", FeatureLevel: FeatureLevel}}}))
	return n
}

func (n *roleNode) entry(requests ...request) []Result {
	n.Helper()
	n.index++
	return applyTo(n, n.m, entryOf(n.index, n.term, "n1", n.now, requests...))
}

// claim is the request of a session for a role; the holder has the name of the session.
func claim(role, session string, ttl time.Duration) request {
	return do(frame.RoleAcquire{Role: role, Holder: session, Session: session, TTL: ttl, Wait: true})
}

// claims returns how many claims there are, held and waiting.
func (n *roleNode) claims() (count int) {
	for _, r := range n.m.Roles("", 1000) {
		count += 1 + len(r.Waiting)
	}
	return count
}

// crowd has many roles held, for ttl each, and many waiters for each of them, for ttl or, of every 50th, for an hour.
func (n *roleNode) crowd(ttl time.Duration, roles, waiters int) {
	for r := range roles {
		var requests []request
		for w := range waiters + 1 {
			one := ttl
			if w%50 == 49 {
				one = time.Hour
			}
			requests = append(requests, claim(fmt.Sprintf("role-%03d", r), fmt.Sprint(w), one))
		}
		n.entry(requests...)
	}
}

// An entry ends a bounded number of claims, also of one role whose waiters are all over, and the entries after it end the
// rest. A holder is nobody who is over already, except where a holder releases a role for which nobody else waits.
func TestAnEntryEndsABoundedNumberOfClaims(t *testing.T) {
	const roles, waiters = 70, 120
	n := newRoleNode(t)
	n.crowd(2*time.Second, roles, waiters)
	before := n.claims()
	if before != roles*(waiters+1) {
		t.Fatalf("%d claims", before)
	}
	n.now = n.now.Add(time.Minute)
	for entries := 0; ; entries++ {
		n.entry(do(frame.Tick{}))
		left := n.claims()
		if left == before {
			break
		}
		if before-left > claimsAtOnce {
			t.Fatalf("an entry ended %d claims", before-left)
		}
		before = left
	}
	// Of each role the 50th and the 100th waiter live.
	if before != 2*roles {
		t.Errorf("%d claims are left, want %d", before, 2*roles)
	}
	for _, r := range n.m.Roles("", roles) {
		if r.Held.Session != "49" || len(r.Waiting) != 1 || r.Waiting[0].Session != "99" {
			t.Fatalf("%+v", r)
		}
	}
	_, end := n.m.Log().Bounds()
	if want := uint64(1 + 3*roles); end != want { // each role was acquired, lost, and acquired
		t.Errorf("%d events, want %d", end, want)
	}
}

// A release costs no more for many waiters that are over: the first that is not gets the role.
func TestAReleaseLeavesClaimsThatAreOver(t *testing.T) {
	const waiters = 120
	n := newRoleNode(t)
	n.crowd(2*time.Second, 3, waiters)
	for r := range 3 {
		n.entry(claim(fmt.Sprintf("role-%03d", r), "0", time.Hour))
	}
	n.now = n.now.Add(time.Minute)
	before := n.claims()
	got := n.entry(do(frame.RoleRelease{Role: "role-002", Session: "0"}), do(frame.RoleRelease{Role: "role-001", Session: "0"}))
	if ended := before - n.claims(); ended > claimsAtOnce+2 {
		t.Errorf("two releases ended %d claims", ended)
	}
	for _, r := range got {
		if r.Role.Held.Session != "49" {
			t.Errorf("%s has %s", r.Role.Role, r.Role.Held.Session)
		}
	}
}
