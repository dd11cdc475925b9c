package server

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/internal/frame"
)

// claimRole sends a claim that waits for the role; wait is "" for one that does not.
func (s *site) claimRole(role, session, wait string) api.RoleAcquired {
	s.t.Helper()
	var got api.RoleAcquired
	s.ok("PUT", "/v1/roles/"+role, fmt.Sprintf(`{"holder":%q,"session":%q,"ttl":"1h","wait":%q}`, session, session, wait)).
		decode(s.t, &got)
	return got
}

// A list of roles has no queues, and one role shows the first of its queue.
func TestAQueueIsShownOfOneRoleAndBounded(t *testing.T) {
	t.Parallel()
	s := newSite(t, nil)
	s.atLevel(frame.LevelRoles)
	const waiting = api.MaxRoleQueue + 3
	for n := range waiting + 1 {
		s.claimRole("r", fmt.Sprintf("s%03d", n), "1ms")
	}
	var page api.RolePage
	s.ok("GET", "/v1/roles", "").decode(t, &page)
	if len(page.Roles) != 1 || page.Roles[0].Waiting != waiting || page.Roles[0].Queue != nil {
		t.Errorf("%+v", page)
	}
	var one api.Role
	s.ok("GET", "/v1/roles/r", "").decode(t, &one)
	if one.Holder != "s000" || one.Waiting != waiting || len(one.Queue) != api.MaxRoleQueue ||
		one.Queue[0].Holder != "s001" || one.Queue[99].Holder != "s100" {
		t.Errorf("%+v", one)
	}
}

// A claim that is released while a call waits with it is not put into the queue again by that call, which ends, also
// where members of an earlier version have no renewals that make no claim.
func TestAReleaseEndsTheCallThatWaits(t *testing.T) {
	t.Parallel()
	s := newSites(t, 3, func(c *Config) { c.Node = &faultyNode{level: frame.LevelRoles} })[0]
	s.atLevel(frame.LevelRoles)
	s.claimRole("r", "holder", "")
	ended := make(chan api.RoleAcquired)
	go func() { ended <- s.claimRole("r", "waits", "10s") }()
	role := func() (r api.Role) { s.ok("GET", "/v1/roles/r", "").decode(t, &r); return r }
	eventually(t, "the call waits", func() bool { return role().Waiting == 1 })
	var released api.RoleReleased
	s.ok("DELETE", "/v1/roles/r?session=waits", "").decode(t, &released)
	if got := <-ended; got.Acquired || got.Place != 0 || got.Holder != "holder" {
		t.Errorf("%+v", got)
	}
	if !released.Released || role().Waiting != 0 {
		t.Errorf("%+v, then %+v", released, role())
	}
	s.ok("DELETE", "/v1/roles/r?session=waits", "").decode(t, &released)
	if released.Released {
		t.Error("nothing was released")
	}
}

// The renewal of a claim that waits within a call does not put the claim into the queue again, although the claim is
// released after the call has found that it has to be renewed.
func TestARenewalThatIsUnderWayMakesNoClaim(t *testing.T) {
	t.Parallel()
	node := &faultyNode{}
	s := newSite(t, func(c *Config) { c.Node = node })
	s.atLevel(frame.LevelFences)
	s.claimRole("r", "holder", "")
	var proposed atomic.Int32
	node.before = func(c frame.Command) {
		switch c.(type) {
		case frame.RoleAcquire, frame.RoleRenewClaim:
			if proposed.Add(1) == 2 {
				s.ok("DELETE", "/v1/roles/r?session=waits", "")
			}
		}
	}
	var got api.RoleAcquired
	s.ok("PUT", "/v1/roles/r", `{"holder":"waits","session":"waits","ttl":"2s","wait":"10s"}`).decode(t, &got)
	var role api.Role
	s.ok("GET", "/v1/roles/r", "").decode(t, &role)
	if proposed.Load() != 2 || got.Acquired || got.Place != 0 || got.Holder != "holder" || role.Waiting != 0 {
		t.Errorf("after %d commands %+v, and the role %+v", proposed.Load(), got, role)
	}
}

// What names a lease that is over is refused, whatever it settles, and a lease needs both its halves.
func TestWhatALeaseSettlesIsRefusedOnceItIsOver(t *testing.T) {
	t.Parallel()
	s := newSite(t, nil)
	s.atLevel(frame.LevelFences)
	s.ok("POST", "/v1/events", `[{"type":"A"},{"type":"A","payload":{"n":1}}]`)
	s.ok("PUT", "/v1/groups/g", `{"filter":{"types":["A"]}}`)
	s.ok("PUT", "/v1/cursors/c", "")
	s.ok("POST", "/v1/cursors/c/open", "")
	fence := s.claimRole("r", "holder", "").Fence
	w := &worker{s: s, group: "g", name: "w"}
	lease := fmt.Sprintf(`"role":"r","fence":%d`, fence)
	got := w.say(lease + `,"want":2,"wait_ms":10000`)
	if len(got.Events) != 2 {
		t.Fatalf("%+v", got)
	}
	one := got.Events[0].Offset
	w.say(lease + fmt.Sprintf(`,"acks":[{"from":%d,"to":%d}]`, one, one))
	letter := func(generation int, role string, fence uint64) answer {
		return s.do("POST", "/v1/cursors/c/deadletter", fmt.Sprintf(`{"offset":%d,"generation":%d}`, one, generation),
			"Ringlog-Role", role, "Ringlog-Fence", fmt.Sprint(fence))
	}
	if a := letter(1, "r", fence); a.status != 200 {
		t.Errorf("%s", a.body)
	}
	s.ok("DELETE", "/v1/roles/r?session=holder", "")
	next := s.claimRole("r", "next", "").Fence
	for _, over := range []answer{
		letter(1, "r", fence),
		w.try(lease + fmt.Sprintf(`,"acks":[{"from":%d,"to":%d}]`, one+1, one+1)),
		w.try(lease + `,"want":2`),
	} {
		if e := over.err(t); e.Code != api.Fenced || e.Field != "fence" || e.Offset != next {
			t.Errorf("%+v", e)
		}
	}
	if e := w.try(`"role":"r"`).err(t); e.Code != api.InvalidArgument || e.Field != "fence" {
		t.Errorf("%+v", e)
	}
	w.session = 0
	if got := w.say(fmt.Sprintf(`"role":"r","fence":%d,"want":2,"wait_ms":10000`, next)); len(got.Events) != 1 {
		t.Errorf("%+v", got)
	}
}

// Who has a claim keeps it, renews it, publishes under it and releases it also if names may not be as long any more.
func TestAShorterLimitOfNamesLocksNoHolderOut(t *testing.T) {
	t.Parallel()
	s := newSite(t, nil)
	s.atLevel(frame.LevelRoles)
	role, holder, waiter := strings.Repeat("r", 40), strings.Repeat("h", 40), strings.Repeat("w", 40)
	fence := s.claimRole(role, holder, "").Fence
	s.claimRole(role, waiter, "1ms")
	s.ok("PUT", "/v1/settings/limits.name_bytes", `{"value":"16"}`)
	if got := s.claimRole(role, holder, ""); !got.Acquired || got.Fence != fence {
		t.Errorf("%+v", got)
	}
	if got := s.claimRole(role, waiter, "1ms"); got.Place != 1 {
		t.Errorf("%+v", got)
	}
	var renewed api.RoleRenewed
	s.ok("PUT", "/v1/roles", fmt.Sprintf(`{"leases":[{"role":%q,"fence":%d}]}`, role, fence)).decode(t, &renewed)
	if renewed.Renewed != 1 {
		t.Errorf("%+v", renewed)
	}
	s.ok("POST", "/v1/events", `{"type":"A"}`, "Ringlog-Role", role, "Ringlog-Fence", fmt.Sprint(fence))
	for _, c := range []string{holder, waiter} {
		var released api.RoleReleased
		s.ok("DELETE", "/v1/roles/"+role+"?session="+c, "").decode(t, &released)
		if !released.Released {
			t.Errorf("%s: %+v", c, released)
		}
	}
	if e := s.do("PUT", "/v1/roles/"+role, `{"holder":"h","session":"s"}`).err(t); e.Code != api.TooLarge ||
		e.Field != "role" {
		t.Errorf("%+v", e)
	}
}

// Renewals of many callers share entries of the log, and each learns of its own lease.
func TestRenewalsShareEntries(t *testing.T) {
	t.Parallel()
	const roles = 100
	s := newSite(t, nil)
	s.atLevel(frame.LevelRoles)
	leases := make([]api.RoleLease, roles)
	for n := range leases {
		name := fmt.Sprintf("SHARD_%03d", n)
		leases[n] = api.RoleLease{Role: name, Fence: s.claimRole(name, name, "").Fence}
	}
	leases[7].Fence++ // as of a lease that is over
	before := s.node.Status().AppliedIndex
	var all sync.WaitGroup
	for n, l := range leases {
		all.Go(func() {
			body := fmt.Sprintf(`{"leases":[{"role":%q,"fence":%d}]}`, l.Role, l.Fence)
			answer := s.ok("PUT", "/v1/roles", body).body
			if over := !strings.Contains(answer, `"lost":[]`); over != (n == 7) {
				t.Errorf("%s: %s", l.Role, answer)
			}
		})
	}
	all.Wait()
	if entries := s.node.Status().AppliedIndex - before; entries > roles/4 {
		t.Errorf("%d renewals are %d entries", roles, entries)
	}
}
