package engine

import (
	"errors"

	"github.com/ringrift/ringlog/fsm"
	"github.com/ringrift/ringlog/internal/frame"
	"github.com/ringrift/ringlog/internal/group"
)

// leasedBatch is what an exchange settles under the lease of a role. It is a command of its own: the log refuses it
// if the lease is over, and nothing that others settle with it.
type leasedBatch struct {
	pendingBatch
	lease   frame.RoleLease // under which all of it is proposed
	member  *group.Member   // who has reported it
	session uint64
	leaves  bool // the member leaves once it is decided
	group.Leased

	settled bool     // the log has Done and the first of Retries
	dead    []uint64 // offsets whose dead letters the log has
	refused error    // the lease is over: the rest is not in the log
}

// leaseOver returns the refusal of a command whose lease is over, and nil for any other error.
func leaseOver(err error) error {
	refusal, refused := errors.AsType[*fsm.Refusal](err)
	if !refused || refusal.Code != fsm.Fenced || refusal.Field != fsm.FieldFence {
		return nil
	}
	return refusal
}

// refuseLease ends the session of a member whose lease is over, as far as this node knows, and returns the refusal. It
// returns nil for a member that has named none, or whose lease is not over. g.mu is held.
func (g *liveGroup) refuseLease(r *Request) error {
	if r.Lease.Role == "" {
		return nil
	}
	refusal := g.host.Machine().CheckLease(r.Lease)
	if refusal == nil {
		return nil
	}
	// What the member holds is delivered to others at once. A call that joins has no session to end.
	if m, err := g.coordinator.Enter(g.now(), r.Member, r.Session); err == nil {
		g.coordinator.Leave(m)
		g.serveWaiters()
	}
	return refusal
}

// settleLeased has commitLoop settle what an exchange reports under its lease. g.mu is held.
func (g *liveGroup) settleLeased(e *exchange) {
	r := e.request
	b := &leasedBatch{pendingBatch: *newPendingBatch(), lease: r.Lease, member: e.member, session: e.session,
		leaves: r.Leave}
	// Apart from releases nothing of it counts until the log has taken it under the lease.
	b.Leased, e.refused = g.coordinator.PlanLeased(g.now(), e.member, r.Acks, r.Nacks)
	e.leased, e.batch = b, &b.pendingBatch
	g.leased = append(g.leased, b)
	signal(g.toCommit)
}

// proposeLeased gets what a member settles under a lease into the log. Only commitLoop calls it.
func (g *groupTerm) proposeLeased(b *leasedBatch) {
	if len(b.Done)+len(b.Retries) > 0 {
		b.err = g.proposeBatch(group.AckBatch{Done: b.Done, Retries: b.Retries}, b.lease, func() { b.settled = true })
	}
	// After the failures before them, which the log has to know, and up to the first that is refused.
	for i := 0; i < len(b.Deaths) && b.err == nil; i++ {
		if b.err = g.storeLetter(&b.Deaths[i], b.lease); b.err == nil {
			b.dead = append(b.dead, b.Deaths[i].Offset)
		}
	}
	b.refused = leaseOver(b.err)
}

// endLeased counts what the log has decided, and answers the exchange. g.mu is held.
func (g *liveGroup) endLeased(b *leasedBatch) {
	// Only what the log has counts, even if a later part of the batch was refused.
	if b.settled {
		g.coordinator.LeasedDone(g.now(), b.member, b.Leased)
	}
	for _, offset := range b.dead {
		g.coordinator.LeasedDead(b.member, offset)
	}
	// What a member still holds whose lease is over goes to others.
	if (b.leaves || b.refused != nil) && b.member.Live(b.session) {
		g.coordinator.Leave(b.member)
	}
	close(b.done)
}
