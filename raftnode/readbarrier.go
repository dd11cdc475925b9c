package raftnode

import (
	"context"
	"fmt"
	"time"

	"github.com/hashicorp/raft"

	"github.com/ringrift/ringlog/raftnode/batcher"
	"github.com/ringrift/ringlog/raftnode/health"
	"github.com/ringrift/ringlog/raftnode/roster"
	"github.com/ringrift/ringlog/raftnode/upstream"
)

// ReadBarrier returns when this node's state includes everything that any node
// acknowledged before the call, so a read of it is linearizable.
func (n *Node) ReadBarrier(ctx context.Context) error {
	if n.divergence.Found() {
		return ErrDiverged
	}
	// The index is of a moment after the call began, whoever leads.
	index, err := n.readIndex(ctx)
	if err != nil {
		return fmt.Errorf("read barrier: %w", err)
	}
	// A node that closes applies nothing more: without this the wait would last until ctx ends.
	ctx, cancel := n.life.UntilRetired(ctx)
	defer cancel()
	if err := n.machine.WaitApplied(ctx, index); err != nil {
		return fmt.Errorf("read barrier at %d: %w", index, err)
	}
	return nil
}

// readIndex returns an index that includes everything acknowledged before the call, from this node if it leads and
// otherwise from the leader.
func (n *Node) readIndex(ctx context.Context) (uint64, error) {
	if n.proposer.OpenTerm() != 0 {
		return n.barrier.index(ctx)
	}
	// A follower may lag: only the leader knows what was acknowledged.
	url, err := n.otherLeader()
	if err != nil {
		return 0, err
	}
	return n.cfg.Peers.ReadIndex(ctx, url)
}

// ReadIndex is the leader's side of Peers.ReadIndex: an index that includes
// everything acknowledged before the call.
func (n *Node) ReadIndex(ctx context.Context) (uint64, error) {
	if n.proposer.OpenTerm() == 0 || n.divergence.Found() {
		return 0, ErrNoLeader
	}
	return n.barrier.index(ctx)
}

// barrier lets callers share proofs of leadership. Those that ask while a proof is under way wait for the next one:
// a proof counts only for those that asked before it began.
type barrier struct {
	raft     *upstream.Raft
	roster   *roster.Roster
	contacts *health.Contacts
	proposer *batcher.Batcher

	asked chan chan proof // unbuffered: run receives only between proofs
	ended chan struct{}   // closed when run has returned
}

// proof is a result of leaderIndex.
type proof struct {
	index uint64
	err   error
}

// newBarrier returns a barrier that proves nothing before run.
func newBarrier(
	r *upstream.Raft, members *roster.Roster, contacts *health.Contacts, proposer *batcher.Batcher,
) *barrier {
	return &barrier{
		raft:     r,
		roster:   members,
		contacts: contacts,
		proposer: proposer,
		asked:    make(chan chan proof),
		ended:    make(chan struct{}),
	}
}

// leaderIndex proves that this node still leads and returns the commit index of a moment before the proof. The intake
// is open only once the first entry of this term is applied; every entry after it reaches the state.
//
// VerifyLeader only sends the questions out: it takes answers of non-voters and
// answers to older questions for a proof, so contacts decides.
func (b *barrier) leaderIndex(ctx context.Context) (uint64, error) {
	// Between two looks at the answers, which come within a round trip.
	const pause = time.Millisecond
	term := b.proposer.OpenTerm()
	if term == 0 {
		return 0, ErrNoLeader
	}
	r, since := b.raft.Load(), time.Now()
	// Read before the proof: it includes what was acknowledged before, and the proof that this node led then.
	index := r.CommitIndex()
	for !b.contacts.Quorum(raft.ServerID(b.roster.ID()), b.roster.Servers(), term, since) {
		// Nobody answers in this term any more.
		if r.CurrentTerm() != term {
			return 0, ErrNoLeader
		}
		if err := r.VerifyLeader().Error(); err != nil {
			return 0, fmt.Errorf("%w: %w", ErrNoLeader, err)
		}
		if b.contacts.Quorum(raft.ServerID(b.roster.ID()), b.roster.Servers(), term, since) {
			break
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
	// The proof is of this term: it must not have ended meanwhile.
	if b.proposer.OpenTerm() != term || r.CurrentTerm() != term {
		return 0, ErrNoLeader
	}
	return index, nil
}

// run makes one proof after the other while callers ask, until ctx ends.
func (b *barrier) run(ctx context.Context) {
	defer close(b.ended)
	for {
		var waiting []chan proof
		select {
		case w := <-b.asked:
			waiting = append(waiting, w)
		case <-ctx.Done():
			return
		}
		// Everyone else who waits by now shares the same proof.
		for more := true; more; {
			select {
			case w := <-b.asked:
				waiting = append(waiting, w)
			default:
				more = false
			}
		}
		// A proof that fails, fails for all of them: each may ask again.
		index, err := b.leaderIndex(ctx)
		for _, w := range waiting {
			w <- proof{index, err}
		}
	}
}

// index returns what the next proof does. It blocks until that is made, run has returned or ctx ends.
func (b *barrier) index(ctx context.Context) (uint64, error) {
	// With room for the answer, so run never waits for a caller whose ctx has ended.
	w := make(chan proof, 1)
	select {
	// Run takes it between two proofs, so the next one begins after this call.
	case b.asked <- w:
	case <-b.ended:
		return 0, ErrClosed
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	select {
	case p := <-w:
		return p.index, p.err
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

// LeadingTerm is the term in which this node leads and takes requests; 0 if it does
// not. The state holds all that was committed before that term.
func (n *Node) LeadingTerm() uint64 {
	if n.divergence.Found() {
		return 0
	}
	return n.proposer.OpenTerm()
}

// LeaderHTTP is the URL at which the leader answers, "" if this node does not know it.
func (n *Node) LeaderHTTP() string {
	_, url := n.roster.Leader()
	return url
}

// HeardLeader is when this node heard its leader last; the zero time if it never did. A leader hears itself.
func (n *Node) HeardLeader() time.Time {
	r := n.raft.Load()
	if r.State() == raft.Leader {
		return time.Now()
	}
	return r.LastContact()
}
