package health

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/ringrift/ringlog/fsm"
	"github.com/ringrift/ringlog/raftnode/roster"
	"github.com/ringrift/ringlog/raftnode/upstream"
)

const (
	digestStride = 64   // distance of the indexes whose digests are reported, below the newest
	digestReach  = 1024 // how far back the state keeps digests

	// The newest are reported closer, so two nodes at which nothing is appended, and of
	// which one is ahead, have one in common.
	digestNear, nearStride = 64, 8

	momentsKept = 64 // of Divergence.moments
)

// moment is what this node had applied at a time, and its term.
type moment struct {
	at            time.Time // just after both were read
	term, applied uint64
}

// Digests returns the digests to compare with other nodes, in the order of their indexes: at the last index, at every
// nearStride-th of the newest, at every digestStride-th before those, and at the index that another node asked for.
// The asker has applied that index; so either this node has too, or the asker still knows the digest at this node's
// last index, unless one of them is ahead by more than digestReach.
func Digests(machine *fsm.Machine, asked uint64) (list []IndexDigest) {
	last, sum := machine.Digest()
	if last == 0 {
		return nil
	}
	// All nodes report multiples of the strides, so two that are not far apart have one in common.
	low := last - min(last, digestReach-1)
	near := last - min(last, digestNear)
	for i := low - low%digestStride; i < last; i += stride(i, near) {
		if d, known := machine.DigestAt(i); known && i > 0 {
			list = append(list, IndexDigest{i, d})
		}
	}
	list = append(list, IndexDigest{last, sum})
	// The index that was asked for may be listed already, or be one that this node has not applied.
	byIndex := func(d IndexDigest, index uint64) int { return cmp.Compare(d.Index, index) }
	i, listed := slices.BinarySearchFunc(list, asked, byIndex)
	if d, known := machine.DigestAt(asked); known && !listed && asked > 0 {
		list = slices.Insert(list, i, IndexDigest{asked, d})
	}
	return list
}

// stride returns the distance from i to the next index whose digest is reported; near is where the newest ones begin.
func stride(i, near uint64) uint64 {
	if i+digestStride <= near {
		return digestStride
	}
	return nearStride
}

// Differs reports whether two nodes' digests differ at the newest index that both know; own returns this side's. It
// has to be called when the other's arrive: either side forgets its digests after digestReach entries.
func Differs(own func(index uint64) (fsm.Sum, bool), other []IndexDigest) bool {
	for _, o := range slices.Backward(other) {
		if d, known := own(o.Index); known {
			return d != o.Digest
		}
	}
	return false
}

// ErrDiverged is what a node answers that has diverged.
var ErrDiverged = errors.New("this node's state differs from the majority's: " +
	"remove it from the cluster, empty its data folder and let it join again")

// Divergence finds out whether this node's state is not the majority's: two state machines that were given the same
// entries have decided them differently, or this node's folder has another history.
type Divergence struct {
	o     DivergenceOptions
	found atomic.Bool // nothing is served any more

	moments []moment // the newest last; of the goroutine of Run alone
}

// DivergenceOptions are what a Divergence compares.
type DivergenceOptions struct {
	Roster  *roster.Roster
	Machine *fsm.Machine
	Watch   *Watch
	Raft    *upstream.Raft
	Every   time.Duration // between two comparisons
	// StepDown hands leadership over if this node leads. It may take long.
	StepDown func(context.Context) error
	Logger   hclog.Logger
}

// NewDivergence returns a Divergence that compares nothing before Run.
func NewDivergence(o DivergenceOptions) *Divergence { return &Divergence{o: o} }

// stepDownFor bounds a hand-over of a leader whose state has diverged.
const stepDownFor = 10 * time.Second

// Found reports whether this node has stopped serving because its state differs from the majority's. It never
// becomes false again.
func (d *Divergence) Found() bool { return d.found.Load() }

// Suspect is called when an entry carries a digest that differs from this node's. It only logs that: Run decides by
// the reports of a majority.
func (d *Divergence) Suspect(index uint64) {
	d.o.Logger.Warn("the leader's digest differs from this node's", "index", index)
}

// Run compares digests once in an interval, until ctx ends. It has a goroutine of its own, since a hand-over may
// take long.
func (d *Divergence) Run(ctx context.Context) {
	tick := time.NewTicker(d.o.Every)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		d.compare(ctx)
	}
}

// compare marks this node as diverged if its state is not the majority's: it then serves and accepts nothing any
// more. If it leads, it hands over first. A hand-over that failed is retried with the next round, also if the node
// was elected after it had diverged.
func (d *Divergence) compare(ctx context.Context) {
	if !d.found.Load() && !d.outvoted() && !d.aheadOfLeader() {
		return
	}
	// First, while this node still answers those that it hands over to.
	handing, cancel := context.WithTimeout(ctx, stepDownFor)
	defer cancel()
	if err := d.o.StepDown(handing); err != nil {
		d.o.Logger.Error("handing over, as this node's state differs from the majority's", "error", err)
	}
	if d.found.CompareAndSwap(false, true) {
		d.o.Logger.Error("this node's state differs from the majority's: it serves nothing any more", "error", ErrDiverged)
	}
}

// outvoted reports whether most voters' states differ from this node's.
func (d *Divergence) outvoted() bool {
	voters, against := d.o.Roster.Voters(), 0
	for _, id := range voters {
		if s, healthy := d.o.Watch.Last(id); healthy && id != d.o.Roster.ID() && s.Differs {
			against++
		}
	}
	return against > len(voters)/2
}

// aheadOfLeader reports whether the leader that this node follows, in a term not before this node's, has a log that
// ends before what this node had applied when the leader was asked. A leader has all that was committed, so either one
// of the two has lost entries, or the leader is of a cluster that was forked from this one. Another member that leads
// at the same time is a split, which proves nothing against this node.
func (d *Divergence) aheadOfLeader() bool {
	// In this order: what was applied was committed in that term or before, and at that time.
	applied := d.o.Machine.Applied()
	term := d.o.Raft.Load().CurrentTerm()
	d.moments = append(d.moments, moment{time.Now(), term, applied})
	d.moments = d.moments[max(0, len(d.moments)-momentsKept):]
	// Only the answer of the very leader that this node follows counts, and of its own cluster.
	leader, _ := d.o.Roster.Leader()
	s, healthy := d.o.Watch.Last(leader)
	if !healthy || leader == d.o.Roster.ID() || s.Report.ClusterID != d.o.Machine.ClusterID() {
		return false
	}
	if !ahead(d.moments, s.Asked, s.Report) {
		return false
	}
	d.o.Logger.Error("the leader's log ends before what this node has applied", "leader", leader,
		"last-index", s.Report.LastIndex, "applied", applied)
	return true
}

// ahead reports whether at the newest moment before a report was asked for, this node had applied more than the log of
// the leader that gave it holds. Two readings of the clock that are equal have no order.
func ahead(moments []moment, asked time.Time, r Report) bool {
	for _, m := range slices.Backward(moments) {
		if m.at.Before(asked) {
			return r.Role == roster.RoleLeader && r.Term >= m.term && r.LastIndex < m.applied
		}
	}
	return false
}
