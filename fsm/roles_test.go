package fsm

import (
	"fmt"
	"strings"
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
		count += 1 + r.Waiting
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

// An entry ends a bounded number of claims, also of a role whose waiters are over, and the next entries end the rest.
// Nobody gets a role whose claim is over.
func TestAnEntryEndsABoundedNumberOfClaims(t *testing.T) {
	const roles, waiters = 70, 120
	n := newRoleNode(t)
	n.crowd(2*time.Second, roles, waiters)
	before := n.claims()
	if before != roles*(waiters+1) {
		t.Fatalf("%d claims", before)
	}
	n.now = n.now.Add(2 * time.Second)
	for {
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
		if r, _ = n.m.Role(r.Name, 2); r.Held.Session != "49" || len(r.Queue) != 1 || r.Queue[0].Session != "99" {
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
	n.now = n.now.Add(2 * time.Second)
	before := n.claims()
	got := n.entry(do(frame.RoleRelease{Role: "role-002", Session: "0"}),
		do(frame.RoleRelease{Role: "role-001", Session: "0"}))
	if ended := before - n.claims(); ended > claimsAtOnce+2 {
		t.Errorf("two releases ended %d claims", ended)
	}
	for _, r := range got {
		if r.Role.Held.Session != "49" {
			t.Errorf("%s has %s", r.Role.Role, r.Role.Held.Session)
		}
	}
}

// A call that waits for a role is woken when its own claim gets the role or ends, and by no claim of another: however
// many wait, a renewal, and another's turn, wake none of them.
func TestAClaimIsWokenForItselfAlone(t *testing.T) {
	n := newRoleNode(t)
	watches := map[string]*Watch{}
	for w := range 1000 {
		session := fmt.Sprint(w)
		n.entry(claim("R", session, time.Minute))
		watches[session] = n.m.WatchClaim("R", session)
	}
	for _, c := range []struct {
		name    string
		request frame.Command
		woken   string
	}{
		{"the holder renews", frame.RoleAcquire{Role: "R", Holder: "h", Session: "0"}, ""},
		{"its lease is renewed", frame.RoleRenew{Leases: []frame.RoleLease{{Role: "R", Fence: 2}}}, ""},
		{"a waiting claim is renewed", frame.RoleAcquire{Role: "R", Holder: "h", Session: "7", Wait: true}, ""},
		{"one more waits", frame.RoleAcquire{Role: "R", Holder: "h", Session: "x", Wait: true}, ""},
		{"one leaves the queue", frame.RoleRelease{Role: "R", Session: "500"}, "500"},
		{"the holder releases the role", frame.RoleRelease{Role: "R", Session: "0"}, "1"},
		{"another role is taken", frame.RoleAcquire{Role: "S", Holder: "h", Session: "2"}, ""},
	} {
		n.entry(do(c.request))
		for session, w := range watches {
			if w.notified() != (session == c.woken) {
				t.Errorf("%s: session %s", c.name, session)
			}
		}
	}
	for _, w := range watches {
		w.Close()
	}
	if left := len(n.m.roleWatches.byName); left != 0 {
		t.Errorf("%d claims are still watched", left)
	}
}

// leads begins a term whose leader had not heard of the one before for silence, with more requests in its first entry.
func (n *roleNode) leads(silence time.Duration, requests ...request) []Result {
	n.Helper()
	n.term++
	start := do(frame.TermStart{ClusterID: "c", Cause: "heartbeat_timeout", Silence: silence})
	return n.entry(append([]request{start}, requests...)...)
}

// A holder that is gone loses its role however often leaders change, and one that renews its lease with each of them
// keeps it.
func TestLeadersThatChangeKeepNoDeadHolder(t *testing.T) {
	for _, led := range []time.Duration{time.Second, 5 * time.Second, 14 * time.Second} {
		n := newRoleNode(t)
		n.entry(claim("dead", "a", 15*time.Second), claim("dead", "b", 15*time.Second), claim("alive", "c", 15*time.Second))
		fence := func(role string) uint64 { r, _ := n.m.Role(role, 0); return r.Fence }
		alive := fence("alive")
		renew := do(frame.RoleRenew{Leases: []frame.RoleLease{{Role: "alive", Fence: alive}}})
		changes := 0
		for ; fence("dead") != 0; changes++ {
			if changes > 100 {
				t.Fatalf("leaders of %s each keep a dead holder", led)
			}
			n.now = n.now.Add(led + 700*time.Millisecond)
			n.leads(700 * time.Millisecond)
			if due := n.m.NextDeadline(); due.Before(n.now.Add(led)) {
				n.entry(do(frame.Tick{}))
			}
			n.entry(claim("dead", "b", 15*time.Second), renew) // a waiter that is alive gets the role
			if r, _ := n.m.Role("dead", 0); r.Held.Session == "b" {
				break
			}
		}
		if fence("alive") != alive {
			t.Errorf("leaders of %s each: a holder that renews its lease has lost it", led)
		}
		t.Logf("leaders of %s each: lost after %d changes", led, changes)
	}
}

// A pause of all nodes takes no role from anybody who renews the lease after it, whether the leader leads on or another
// one does, and also if somebody else's claim was about to end. Its length does not matter.
func TestAPauseOfAllNodesTakesNoRole(t *testing.T) {
	for _, pause := range []time.Duration{20 * time.Second, 24 * time.Hour} {
		for _, elected := range []bool{false, true} {
			n := newRoleNode(t)
			n.entry(claim("other", "a", 2*time.Second), claim("R", "b", 15*time.Second))
			n.now = n.now.Add(1900 * time.Millisecond)
			fence := uint64(3)
			renew := do(frame.RoleRenew{Leases: []frame.RoleLease{{Role: "R", Fence: fence}}})
			if got := n.entry(renew); len(got[0].LostLeases) > 0 {
				t.Fatalf("%+v", got)
			}
			n.now = n.now.Add(pause)
			if elected {
				n.leads(time.Second)
			}
			if got := n.entry(renew); len(got[0].LostLeases) > 0 {
				t.Errorf("elected %t: lost after a pause of %s", elected, pause)
			}
		}
	}
}

// What the claims to all roles take is bounded. A renewal is never refused for that, and what ends makes room, also
// after a restart.
func TestClaimsToRolesAreBoundedInBytes(t *testing.T) {
	n := newRoleNode(t)
	n.entry(do(frame.SettingSet{Key: "roles.max_bytes", Value: "65536"}))
	long := strings.Repeat("x", MaxRoleText-8)
	ask := func(i int) request {
		return claim(fmt.Sprintf("role-%d", i%3), fmt.Sprintf("%s%07d", long, i), time.Minute)
	}
	fits := 0
	for ; ; fits++ {
		if got := n.entry(ask(fits)); got[0].Refusal != nil {
			if r := got[0].Refusal; r.Code != Overloaded || !strings.Contains(r.Remedy, "roles.max_bytes") {
				t.Fatalf("%+v", r)
			}
			break
		}
	}
	if least, most := 65536/(3*MaxRoleText+200), 65536/(2*MaxRoleText); fits < least || fits > most {
		t.Errorf("%d claims fit, want %d to %d", fits, least, most)
	}
	reload(t, n.m)
	if got := n.entry(ask(0), ask(1), ask(5), ask(fits)); got[0].Refusal != nil || got[1].Refusal != nil ||
		got[2].Refusal != nil || got[3].Refusal == nil {
		t.Errorf("renewals and one more claim: %+v", got)
	}
	n.entry(do(frame.RoleRelease{Role: "role-2", Session: fmt.Sprintf("%s%07d", long, 5)}))
	if got := n.entry(ask(fits), ask(fits+1)); got[0].Refusal != nil || got[1].Refusal == nil {
		t.Errorf("one claim has ended: %+v", got)
	}
	// All claims end in entries of 64.
	for range fits {
		n.now = n.now.Add(time.Minute)
		n.entry(do(frame.Tick{}))
	}
	if left, bytes := n.claims(), n.m.s.roles.bytes; left != 0 || bytes != 0 {
		t.Errorf("%d claims of %d bytes are left", left, bytes)
	}
}
