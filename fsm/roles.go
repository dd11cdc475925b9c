package fsm

import (
	"cmp"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/RaduBerinde/btreemap"

	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/internal/frame"
)

// A role has at most one holder at a time. A claim to a role holds it, or waits for it in the order of arrival. It
// ends once it was not renewed for its TTL, in led time: replicated time in which there was a leader who could have
// renewed it. Time without a leader, and a step of the clock, do not count, so the cluster's own pause takes no role
// from anybody. However often leaders change, led time passes, so nobody who is gone keeps a role.
//
// The fence of a holder is the offset of its ROLE_ACQUIRED event. A later holder has a higher one, and a publish or a
// commit that names a role and a fence is refused once that is not the holder's any more.

// Bounds of a claim, and its TTL where the caller names none.
const (
	MinRoleTTL     = 2 * time.Second
	MaxRoleTTL     = time.Hour
	DefaultRoleTTL = 15 * time.Second
	MaxWaiting     = 1000 // claims that may wait for one role
	MaxRoleText    = 256  // bytes of a role, a holder or a session
)

// Why a role was acquired or lost, as its events say.
const (
	causeFree     = "free"     // nobody held it
	causeReleased = "released" // the holder before has released it
	causeExpired  = "expired"
	causeRevoked  = "revoked"
)

// claimsAtOnce bounds the claims that one entry ends; the next one continues.
const claimsAtOnce = 64

// Role is a role that is held.
type Role struct {
	Name     string `json:"-"`
	Fence    uint64 `json:"fence"`             // the offset of the ROLE_ACQUIRED of the holder
	Held     Claim  `json:"held"`              // of the holder
	Arrivals uint64 `json:"arrivals,omitzero"` // that were given out

	// Waiting are stored one by one.
	Waiting []Claim `json:"-"`

	// While an entry is decided: whether it has changed the role, and the place of its ROLE_ACQUIRED in the entry's late
	// events, from 1. The fence is known once these have offsets.
	changed  bool
	acquired int
}

// RoleAnswer is a role after a command, as the one sees it who sent the command.
type RoleAnswer struct {
	Role    string `json:"role"`
	Fence   uint64 `json:"fence,omitempty"` // of the holder; 0 if nobody holds it
	Held    Claim  `json:"held"`            // of the holder
	Waiting int    `json:"waiting"`         // callers
	// Ended says that a release has ended a claim.
	Ended bool `json:"ended,omitempty"`
	// Place is the sender's in the queue, from 1; 0 if it does not wait.
	Place int `json:"place,omitempty"`

	acquired int // as in Role
}

// claimDue is the place of a claim in the order in which claims end.
type claimDue struct {
	at      int64 // led time
	role    string
	arrival uint64 // 0 for the holder
}

// roles are the roles that are held, and all claims by when they are due.
type roles struct {
	byName orderedMap[string, *Role]      // those that are held
	due    orderedMap[claimDue, struct{}] // the earliest first
	bytes  uint64                         // of all claims in due, as claimSize counts them
}

// newRoles returns no roles.
func newRoles() roles {
	return roles{
		byName: btreemap.New[string, *Role](32, strings.Compare),
		due: btreemap.New[claimDue, struct{}](32, func(a, b claimDue) int {
			return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.role, b.role), cmp.Compare(a.arrival, b.arrival))
		}),
	}
}

// get returns a role that is held, and nil for any other.
func (l *roles) get(name string) *Role {
	_, r, _ := l.byName.Get(name)
	return r
}

// rank enters a claim into the order of those that end.
func (l *roles) rank(role string, c Claim) {
	l.due.ReplaceOrInsert(claimDue{c.Due, role, c.Arrival}, struct{}{})
	l.bytes += claimSize(role, c)
}

// unrank removes a claim from that order, if it is there.
func (l *roles) unrank(role string, c Claim) {
	if _, _, ranked := l.due.Delete(claimDue{c.Due, role, c.Arrival}); ranked {
		l.bytes -= claimSize(role, c)
	}
}

// claimSize returns the bytes that a claim counts in roles.max_bytes: its texts, and about what a node needs beside
// them.
func claimSize(role string, c Claim) uint64 {
	const beside = 200
	return uint64(beside + len(role) + len(c.Holder) + len(c.Session))
}

// loadRole reads a stored Role. It is called before loadWaiting.
func (s *state) loadRole(name string, value []byte) error {
	r := &Role{}
	if err := json.Unmarshal(value, r); err != nil {
		return err
	}
	r.Name = name
	s.roles.byName.ReplaceOrInsert(name, r)
	s.roles.rank(name, r.Held)
	return nil
}

// waitingKey is the key of a claim that waits for a role. Those of a role are in the order of their arrival.
func waitingKey(role string, arrival uint64) []byte {
	return binary.BigEndian.AppendUint64(append(key(prefixWaiting, role), 0), arrival)
}

// loadWaiting reads a stored claim that waits, after the roles.
func (s *state) loadWaiting(place string, value []byte) error {
	var c Claim
	if err := json.Unmarshal(value, &c); err != nil {
		return err
	}
	// The key has a zero byte and eight of the number after the name.
	const after = 9
	if len(place) < after {
		return fmt.Errorf("%w: a claim of %q", ErrDamaged, place)
	}
	r := s.roles.get(place[:len(place)-after])
	if r == nil {
		return fmt.Errorf("%w: a claim to the role %q, which nobody holds", ErrDamaged, place[:len(place)-after])
	}
	r.Waiting = append(r.Waiting, c)
	s.roles.rank(r.Name, c)
	return nil
}

// roleApplier decides who holds which role.
type roleApplier struct {
	*applying

	touched  []*Role       // held by now or not, in the order of their first change
	unfenced []*RoleAnswer // of roles that this entry has given to their holders
	turned   []string      // the claims that no longer wait, as claimName has them
}

// acquireRole gives a role to a caller, puts it into the queue, or renews the claim that it has. A refusal changes
// nothing. The answer says who holds the role, and the caller's place.
func (a *roleApplier) acquireRole(c frame.RoleAcquire) Result {
	ttl := cmp.Or(c.TTL, DefaultRoleTTL)
	refused := refuseClaim(ttl, MaxRoleTTL, claimText{"role", c.Role}, claimText{"holder", c.Holder},
		claimText{"session", c.Session})
	if refused != nil {
		return *refused
	}
	// The claim as it would be: held or waiting from now on.
	claim := Claim{Holder: c.Holder, Session: c.Session, TTL: ttl, Since: a.time()}
	a.renewClaim(&claim)
	r := a.s.roles.get(c.Role)
	switch {
	// Nobody has the role.
	case r == nil:
		if most := a.s.settings.RolesMax; uint64(a.s.roles.byName.Len()) >= most {
			return refuse(Overloaded, "role", fmt.Sprintf("%d roles are held, which is the limit", most),
				"release some, wait until some expire, or raise roles.max")
		}
		if refused := a.refuseGrowth(c.Role, claimSize(c.Role, claim), 0); refused != nil {
			return *refused
		}
		r = &Role{Name: c.Role}
		a.s.roles.byName.ReplaceOrInsert(r.Name, r)
		a.giveRole(r, claim, causeFree, "")
		return a.answer(r, c.Session)
	// The caller has it, and renews.
	case r.Held.Session == c.Session:
		if refused := a.refuseGrowth(c.Role, claimSize(c.Role, claim), claimSize(c.Role, r.Held)); refused != nil {
			return *refused
		}
		claim.Since = r.Held.Since
		a.setHeld(r, claim)
		return a.answer(r, c.Session)
	}

	// The role is another's. A claim that waits already keeps its place.
	place, before := r.place(c.Session), uint64(0)
	if place >= 0 {
		before = claimSize(c.Role, r.Waiting[place])
	}
	if c.Wait {
		if refused := a.refuseGrowth(c.Role, claimSize(c.Role, claim), before); refused != nil {
			return *refused
		}
	}
	switch {
	// It waited, and does not want to any more.
	case place >= 0 && !c.Wait:
		a.dropWaiting(r, place)
	// A repeated claim is a renewal.
	case place >= 0:
		claim.Since, claim.Arrival = r.Waiting[place].Since, r.Waiting[place].Arrival
		a.setWaiting(r, place, claim)
	case c.Wait && len(r.Waiting) >= MaxWaiting:
		return refuse(Overloaded, "role", fmt.Sprintf("%d callers wait for %s, which is the limit", MaxWaiting, c.Role),
			"retry later")
	// After all others.
	case c.Wait:
		r.Arrivals++
		claim.Arrival = r.Arrivals
		r.Waiting = append(r.Waiting, Claim{})
		a.setWaiting(r, len(r.Waiting)-1, claim)
		a.change(r)
	}
	return a.answer(r, c.Session)
}

// place returns the place of a session in the queue of a role, from 0; -1 if it does not wait.
func (r *Role) place(session string) int {
	return slices.IndexFunc(r.Waiting, func(c Claim) bool { return c.Session == session })
}

// refuseGrowth refuses a claim for which there is no room, and returns nil for one that takes no more than it did
// before: a renewal is never refused for that.
func (a *roleApplier) refuseGrowth(role string, size, before uint64) *Result {
	used, most := a.s.roles.bytes, a.s.settings.RolesBytes
	if size <= before || used-before+size <= most {
		return nil
	}
	r := refuse(Overloaded, "role", fmt.Sprintf("the claims to all roles take %d bytes, and one more to %q does not fit "+
		"into the limit of %d", used, role, most), "have fewer callers wait, retry later, or raise roles.max_bytes")
	return &r
}

// renewRoles renews leases. The answer has those that are over.
func (a *roleApplier) renewRoles(c frame.RoleRenew) Result {
	r := Result{}
	for i, lease := range c.Leases {
		// The lease is over, whoever has the role by now.
		if !a.holds(lease) {
			r.LostLeases = append(r.LostLeases, i)
			continue
		}
		role := a.s.roles.get(lease.Role)
		claim := role.Held
		a.renewClaim(&claim)
		a.setHeld(role, claim)
	}
	return r
}

// renewRoleClaim renews the claim of a session. If it has none, the answer has no place in the queue. It never makes a
// claim, so a renewal that comes after the release takes the role from nobody.
func (a *roleApplier) renewRoleClaim(c frame.RoleRenewClaim) Result {
	r := a.s.roles.get(c.Role)
	if r == nil {
		return Result{Role: &RoleAnswer{Role: c.Role}}
	}
	if r.Held.Session == c.Session {
		claim := r.Held
		a.renewClaim(&claim)
		a.setHeld(r, claim)
	} else if place := r.place(c.Session); place >= 0 {
		claim := r.Waiting[place]
		a.renewClaim(&claim)
		a.setWaiting(r, place, claim)
	}
	return a.answer(r, c.Session)
}

// holds reports whether a lease is that of the present holder.
func (a *applying) holds(lease frame.RoleLease) bool {
	r := a.s.roles.get(lease.Role)
	// A fence that this entry gives out is not known to anybody yet.
	return r != nil && r.acquired == 0 && r.Fence == lease.Fence
}

// FieldFence is the field of the refusal of a command whose lease is over.
const FieldFence = "fence"

// fenced returns the refusal of a command whose lease is over, and nil for one that has none, or holds it.
func (a *applying) fenced(lease frame.RoleLease) *Result {
	if lease == (frame.RoleLease{}) || a.holds(lease) {
		return nil
	}
	return a.s.leaseOver(lease)
}

// leaseOver returns the refusal of a command whose lease is over.
func (s *state) leaseOver(lease frame.RoleLease) *Result {
	refused := refuse(Fenced, FieldFence,
		fmt.Sprintf("the lease of %s with fence %d is over", lease.Role, lease.Fence),
		"stop what the role allows; acquire it again to continue")
	if r := s.roles.get(lease.Role); r != nil {
		refused.Refusal.Expected = r.Fence
	}
	return &refused
}

// CheckLease returns the refusal of a lease that is over by now, and nil for one that is not.
func (v *views) CheckLease(lease frame.RoleLease) *Refusal {
	v.mu.RLock()
	defer v.mu.RUnlock()
	if r := v.s.roles.get(lease.Role); r != nil && r.Fence == lease.Fence {
		return nil
	}
	return v.s.leaseOver(lease).Refusal
}

// releaseRole ends a claim. A session that has none is answered in the same way, so a retry is safe.
func (a *roleApplier) releaseRole(c frame.RoleRelease) Result {
	r := a.s.roles.get(c.Role)
	switch {
	// An operator ends one lease: who got the role meanwhile keeps it.
	case c.Session == "":
		if refused := a.fenced(frame.RoleLease{Role: c.Role, Fence: c.Fence}); refused != nil {
			refused.Refusal.Remedy = "list the roles that are held: GET /v1/roles, or ringlog role ls"
			return *refused
		}
		a.endLease(r, causeRevoked)
	case r == nil:
		return Result{Role: &RoleAnswer{Role: c.Role}}
	case r.Held.Session == c.Session:
		a.endLease(r, causeReleased)
	default:
		place := r.place(c.Session)
		if place < 0 {
			return a.answer(r, c.Session)
		}
		a.dropWaiting(r, place)
	}
	result := a.answer(r, c.Session)
	result.Role.Ended = true
	return result
}

// expireClaims ends the claims that were not renewed in time. At most claimsAtOnce of them, the earliest first.
func (a *roleApplier) expireClaims() {
	for range claimsAtOnce {
		next, _, some := a.s.roles.due.Min()
		if !some || next.at > a.s.meta.Led {
			return
		}
		r := a.s.roles.get(next.role)
		switch {
		// A claim that waits. They are in the order of their arrival.
		case next.arrival != 0:
			place, _ := slices.BinarySearchFunc(r.Waiting, next.arrival, func(w Claim, arrival uint64) int {
				return cmp.Compare(w.Arrival, arrival)
			})
			a.dropWaiting(r, place)
		// Nobody gets the role whose claim is over. The holder's stays due until those are dropped, one in each turn.
		case len(r.Waiting) > 0 && a.over(r.Waiting[0]):
			a.dropWaiting(r, 0)
		default:
			a.endLease(r, causeExpired)
		}
	}
}

// change remembers that a role has to be stored once its fence is known.
func (a *roleApplier) change(r *Role) {
	if !r.changed {
		r.changed = true
		a.touched = append(a.touched, r)
	}
}

// setHeld replaces the holder's claim.
func (a *roleApplier) setHeld(r *Role, c Claim) {
	a.s.roles.unrank(r.Name, r.Held)
	r.Held = c
	a.s.roles.rank(r.Name, c)
	a.change(r)
}

// setWaiting replaces a claim that waits. place is from 0.
func (a *roleApplier) setWaiting(r *Role, place int, c Claim) {
	a.s.roles.unrank(r.Name, r.Waiting[place])
	r.Waiting[place] = c
	a.s.roles.rank(r.Name, c)
	a.tx.setJSON(waitingKey(r.Name, c.Arrival), c)
}

// dropWaiting removes a claim that waits.
func (a *roleApplier) dropWaiting(r *Role, place int) {
	c := r.Waiting[place]
	a.s.roles.unrank(r.Name, c)
	// Most are the first, and the others need not be moved for that.
	if place == 0 {
		r.Waiting[0] = Claim{}
		r.Waiting = r.Waiting[1:]
	} else {
		r.Waiting = slices.Delete(r.Waiting, place, place+1)
	}
	a.tx.Delete(waitingKey(r.Name, c.Arrival))
	a.turned = append(a.turned, claimName(r.Name, c.Session))
}

// giveRole makes a claim the holder's. cause says why it is free, and previous who had it. The claim is in no queue any
// more.
func (a *roleApplier) giveRole(r *Role, c Claim, cause, previous string) {
	c.Arrival, c.Since = 0, a.time()
	// The fence is not known before the entry's events have offsets.
	r.Fence, r.acquired = 0, len(a.late)+1
	a.report(r, event.RoleAcquired, map[string]any{"holder": c.Holder, "previous": previous, "cause": cause})
	a.setHeld(r, c)
}

// endLease takes a role from its holder and gives it to the next in the queue, if there is one.
func (a *roleApplier) endLease(r *Role, cause string) {
	before := r.Held
	// Reported with the fence that ends.
	payload := map[string]any{"holder": before.Holder}
	if cause == causeReleased {
		a.report(r, event.RoleReleased, payload)
	} else {
		payload["cause"] = cause
		a.report(r, event.RoleLost, payload)
	}
	// Nobody waits: a role that nobody holds is not kept.
	if len(r.Waiting) == 0 {
		a.s.roles.unrank(r.Name, before)
		a.s.roles.byName.Delete(r.Name)
		a.change(r)
		r.Held, r.Fence, r.acquired = Claim{}, 0, 0
		return
	}
	// The first one gets the role whose claim is not over. Claims that are over stay due, and if there are no others, the
	// first of them holds the role until it is dropped: this entry may have ended as many as it should.
	place := max(0, slices.IndexFunc(r.Waiting, func(c Claim) bool { return !a.over(c) }))
	next := r.Waiting[place]
	a.dropWaiting(r, place)
	// The order of claims that end has the new holder's instead of the old one's.
	a.giveRole(r, next, cause, before.Holder)
}

// report adds an event about the present lease of a role.
func (a *roleApplier) report(r *Role, kind event.Type, payload map[string]any) {
	payload["role"] = r.Name
	a.reportFenced(kind, r.Name, r.Fence, r.acquired, payload)
}

// answer returns a role as a session sees it.
func (a *roleApplier) answer(r *Role, session string) Result {
	answer := &RoleAnswer{Role: r.Name, Fence: r.Fence, Held: r.Held, Waiting: len(r.Waiting), acquired: r.acquired}
	answer.Place = r.place(session) + 1
	// storeRoles completes it.
	if r.acquired != 0 {
		a.unfenced = append(a.unfenced, answer)
	}
	return Result{Role: answer}
}

// storeRoles completes the answers about roles that the entry has given away, and stores the roles that it has changed.
// It is called when all other events of the entry have their offsets and late is appended next, so the fences are
// known.
func (a *roleApplier) storeRoles() {
	for _, answer := range a.unfenced {
		answer.Fence = a.lateOffset(answer.acquired)
	}
	for _, r := range a.touched {
		r.changed = false
		if r.acquired != 0 {
			r.Fence, r.acquired = a.lateOffset(r.acquired), 0
		}
		switch a.s.roles.get(r.Name) {
		case r:
			a.tx.setJSON(key(prefixRole, r.Name), r)
		// It has ended, and nobody has it.
		case nil:
			a.tx.Delete(key(prefixRole, r.Name))
		}
		// Any other was made by this entry, after the end of this one, and is in the list as well.
	}
}

// claimName names a session's claim to a role, for watches.
func claimName(role, session string) string { return role + "\x00" + session }

// Claims reports whether a session holds a role, and whether it waits for it.
func (v *views) Claims(role, session string) (holds, waits bool) {
	v.mu.RLock()
	defer v.mu.RUnlock()
	r := v.s.roles.get(role)
	if r == nil {
		return false, false
	}
	return r.Held.Session == session, r.place(session) >= 0
}

// RoleView is a role that is held, as readers see it.
type RoleView struct {
	Name    string
	Fence   uint64
	Held    Claim
	Waiting int     // claims
	Queue   []Claim // the first of them, as many as the reader asked for
}

// viewRole returns a role with the first claims of its queue. It is a copy, whose times are replicated time.
func (s *state) viewRole(r *Role, queue int) RoleView {
	v := RoleView{Name: r.Name, Fence: r.Fence, Held: r.Held, Waiting: len(r.Waiting),
		Queue: slices.Clone(r.Waiting[:min(queue, len(r.Waiting))])}
	v.Held.Due = s.atLed(r.Held.Due)
	for i := range v.Queue {
		v.Queue[i].Due = s.atLed(v.Queue[i].Due)
	}
	return v
}

// Role returns a role that is held, with up to queue of the claims that wait.
func (v *views) Role(name string, queue int) (RoleView, bool) {
	v.mu.RLock()
	defer v.mu.RUnlock()
	r := v.s.roles.get(name)
	if r == nil {
		return RoleView{}, false
	}
	return v.s.viewRole(r, queue), true
}

// Roles returns up to limit roles that are held and whose names follow after, by name, without their queues.
func (v *views) Roles(after string, limit int) []RoleView {
	return read(v, func(s *state) []RoleView {
		from := btreemap.Min[string]()
		if after != "" {
			from = btreemap.GT(after)
		}
		list := make([]RoleView, 0, min(s.roles.byName.Len(), limit))
		for _, r := range s.roles.byName.Ascend(from, btreemap.Max[string]()) {
			if len(list) == limit {
				break
			}
			list = append(list, s.viewRole(r, 0))
		}
		return list
	})
}
