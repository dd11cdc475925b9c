package raftnode

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"github.com/ringrift/ringlog/raftnode/datadir"
	"github.com/ringrift/ringlog/raftnode/quietlog"
	"github.com/ringrift/ringlog/raftnode/roster"
)

const (
	formEvery   = 200 * time.Millisecond // between rounds of bootstrap, and at first between attempts to join
	identifyFor = time.Second            // bound of asking other nodes who they are
	joinFor     = time.Minute            // one attempt, catching up included
	joinBackoff = 10 * time.Second       // most between attempts to join
)

// forming is what this node reports to others while no cluster is formed: the nodes that it would form one with.
type forming struct {
	mu    sync.Mutex
	known []datadir.Peer // sorted by id, itself included
}

func (f *forming) set(known []datadir.Peer) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.known = known
}

func (f *forming) get() []datadir.Peer {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.known)
}

// formStep is what a node without a cluster does next.
type formStep int

const (
	formWait  formStep = iota // too few, or they do not report the same yet
	formAgree                 // all report the same set: settle on it, durably
	formBegin                 // settled, all of them, and this node has the lowest id
	formJoin                  // there is a cluster already
)

// decideForming decides by what the others report now. The set to form a cluster with is this node and those that
// expect as many voters and have no cluster; once this node has settled on a set, it is the one in its marker. Two
// data folders under one id never count as one.
func decideForming(self datadir.Peer, expect int, settled []datadir.Peer, reports []Report) (step formStep, known []datadir.Peer) {
	// A URL of Join may be this node's own.
	reports = slices.DeleteFunc(slices.Clone(reports), func(r Report) bool { return r.Incarnation == self.Incarnation })
	// Others may have begun with the set that this node has settled on: it never changes.
	if len(settled) > 0 {
		if settled[0].ID == self.ID && confirmed(settled, reports, true) == expect-1 {
			return formBegin, settled
		}
		return formWait, settled
	}
	known = []datadir.Peer{self}
	for _, r := range reports {
		if r.ClusterID != "" {
			return formJoin, []datadir.Peer{self}
		}
		if r.Expect == expect {
			known = append(known, datadir.Peer{ID: r.ID, Raft: r.RaftAddr, HTTP: r.HTTPAddr, Incarnation: r.Incarnation})
		}
	}
	// Sets are compared as lists, and one node may answer at several URLs.
	slices.SortFunc(known, func(a, b datadir.Peer) int {
		return cmp.Or(strings.Compare(a.ID, b.ID), strings.Compare(a.Incarnation, b.Incarnation))
	})
	known = slices.Compact(known)
	if len(known) == expect && !twice(known) && confirmed(known, reports, false) == expect-1 {
		return formAgree, known
	}
	return formWait, known
}

// confirmed counts the nodes of set that report the very same set. With settled, only those count that have settled
// on it.
func confirmed(set []datadir.Peer, reports []Report, settled bool) int {
	by := make(map[string]bool)
	for _, r := range reports {
		member := slices.ContainsFunc(set, func(p datadir.Peer) bool { return p.ID == r.ID && p.Incarnation == r.Incarnation })
		if member && slices.Equal(r.Known, set) && (r.Agreed || !settled) {
			by[r.ID] = true
		}
	}
	return len(by)
}

// twice reports an id or a raft address that two of the sorted peers share.
func twice(peers []datadir.Peer) bool {
	addresses := make(map[string]bool)
	for i, p := range peers {
		if i > 0 && peers[i-1].ID == p.ID || addresses[p.Raft] {
			return true
		}
		addresses[p.Raft] = true
	}
	return false
}

// form brings a node into a cluster: begins one, joins one, or, for a member,
// makes its address known where it has changed.
func (n *Node) form(ctx context.Context) {
	begins := len(n.roster.Servers()) == 0 && n.cfg.BootstrapExpect > 0 && n.machine.ClusterID() == ""
	if !begins || n.bootstrap(ctx) == formJoin {
		n.join(ctx, !n.cfg.NonVoter)
	}
	n.stayKnown(ctx)
}

// bootstrap asks the seeds until this node is in a cluster, or finds one to join. It returns formBegin, formJoin, or
// formWait if ctx ends.
func (n *Node) bootstrap(ctx context.Context) formStep {
	tick := time.NewTicker(formEvery)
	defer tick.Stop()
	reported := time.Now()
	for warned := false; ; {
		if len(n.roster.Servers()) > 0 {
			return formBegin
		}
		reports := reportsOf(n.askSeeds(ctx))
		step, known := decideForming(roster.PeerOf(n.roster.Self()), n.cfg.BootstrapExpect, n.dir.Marker().Peers, reports)
		n.forming.set(known)
		if now := time.Now(); now.Sub(reported) >= quietlog.RepeatAfter {
			reported = now
			n.logger.Warn("waiting for other nodes to form a cluster with", "expect", n.cfg.BootstrapExpect,
				"known", idsOf(known), "missing", missingOf(known, n.cfg.ID, reports))
		}
		if err := n.take(step, known); err != nil {
			n.logger.Error("forming a cluster", "error", err)
		}
		if step == formJoin {
			return step
		}
		if step == formAgree {
			continue // what was settled on may be enough to begin
		}
		if surplus := len(known) > n.cfg.BootstrapExpect || twice(known); surplus && !warned {
			warned = true
			n.logger.Warn("the nodes that want to form a cluster do not fit together", "expect", n.cfg.BootstrapExpect, "seen", known)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return formWait
		}
	}
}

// idsOf returns the ids of peers.
func idsOf(peers []datadir.Peer) (ids []string) {
	for _, p := range peers {
		ids = append(ids, p.ID)
	}
	return ids
}

// missingOf are those of peers, other than self, that did not report.
func missingOf(peers []datadir.Peer, self string, reports []Report) (ids []string) {
	for _, p := range peers {
		reported := slices.ContainsFunc(reports, func(r Report) bool { return r.ID == p.ID && r.Incarnation == p.Incarnation })
		if p.ID != self && !reported {
			ids = append(ids, p.ID)
		}
	}
	return ids
}

// take makes a step durable: it writes the set settled on to the marker, or bootstraps raft with it. Other steps need
// nothing.
func (n *Node) take(step formStep, known []datadir.Peer) error {
	if step == formAgree {
		return n.dir.SetCluster("", known)
	}
	if step != formBegin {
		return nil
	}
	var c raft.Configuration
	for _, p := range known {
		c.Servers = append(c.Servers, raft.Server{Suffrage: raft.Voter, ID: raft.ServerID(p.ID), Address: raft.ServerAddress(p.Raft)})
	}
	err := n.raft.Load().BootstrapCluster(c).Error()
	if errors.Is(err, raft.ErrCantBootstrap) {
		return nil // entries of another node arrived first
	}
	return err
}

// askSeeds asks every node that this one knows a URL of, at once, and waits up to identifyFor for the answers.
func (n *Node) askSeeds(ctx context.Context) (answers []heard) {
	if n.cfg.Peers == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, identifyFor)
	defer cancel()
	var mu sync.Mutex
	var asking sync.WaitGroup
	for _, url := range n.seedURLs() {
		asking.Go(func() {
			if r, err := n.cfg.Peers.Identify(ctx, url, Question{}); err == nil {
				mu.Lock()
				defer mu.Unlock()
				answers = append(answers, heard{url, r})
			}
		})
	}
	asking.Wait()
	return answers
}

func reportsOf(answers []heard) (reports []Report) {
	for _, h := range answers {
		reports = append(reports, h.report)
	}
	return reports
}

// seedURLs returns the URLs at which other nodes are asked: those of Join first, then those of the members known.
func (n *Node) seedURLs() []string {
	urls := slices.Clone(n.cfg.Join)
	for _, p := range slices.Concat(n.forming.get(), n.roster.Known()) {
		if p.ID != n.cfg.ID && p.HTTP != "" && !slices.Contains(urls, URL(p.HTTP)) {
			urls = append(urls, URL(p.HTTP))
		}
	}
	return urls
}

// join asks the seeds to admit this node until it is in raft's configuration with its address and, if it is new and
// voter is true, with a vote, or until ctx ends. A member keeps the suffrage it has.
func (n *Node) join(ctx context.Context, voter bool) {
	fresh := len(n.roster.Servers()) == 0
	for wait := formEvery; ; wait = min(2*wait, joinBackoff) {
		if n.settled(fresh, fresh && voter) {
			n.refused.clear()
			return
		}
		// The configuration may have changed since the last attempt.
		if s, ok := n.roster.Server(n.cfg.ID); ok && !fresh {
			voter = s.Suffrage == raft.Voter
		}
		n.joinAnySeed(ctx, voter)
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return
		}
	}
}

// joinAnySeed asks one seed after the other until one has admitted this node. It logs the errors.
func (n *Node) joinAnySeed(ctx context.Context, voter bool) {
	for _, url := range n.seedURLs() {
		// Join may list this node itself.
		if url == URL(n.cfg.HTTPAdvertise) {
			continue
		}
		err := n.requestJoin(ctx, url, voter)
		if err == nil {
			return
		}
		// An attempt that was cut short is no refusal.
		if ctx.Err() == nil {
			n.joinRejected(url, err, time.Now())
		}
	}
}

// requestJoin asks the node at url to admit this one, and waits up to joinFor for it to catch up.
func (n *Node) requestJoin(ctx context.Context, url string, voter bool) error {
	ctx, cancel := context.WithTimeout(ctx, joinFor)
	defer cancel()
	return n.cfg.Peers.Join(ctx, url, n.roster.Self(), MemberOptions{Voter: voter, ClusterID: n.roster.Identity().ClusterID})
}

// joinRejected logs why the node at url does not admit this one. An error that somebody has to act on is a warning
// and is kept for the status; it is logged again only after a while.
func (n *Node) joinRejected(url string, err error, now time.Time) {
	reason := joinRefusal(err)
	switch {
	case reason == nil:
		n.logger.Info("asking to be let in", "at", url, "error", err)
	case n.refused.note(reason, now):
		n.logger.Warn("the cluster does not let this node in", "at", url, "error", err)
	}
}

// JoinRefusals returns the errors of Peers.Join that last until somebody acts on them.
func JoinRefusals() []error {
	return []error{ErrForeignFolder, ErrOtherIncarnation, ErrDuplicateAddress, ErrTooManyVoters, ErrTooOld}
}

// joinRefusal returns the error of JoinRefusals that err wraps; nil if a retry may succeed.
func joinRefusal(err error) error {
	for _, reason := range JoinRefusals() {
		if errors.Is(err, reason) {
			return reason
		}
	}
	return nil
}

// refused keeps why this node was last not admitted, for its status and its log.
type refused struct {
	mu   sync.Mutex
	last error               // of joinRefusal
	said map[error]time.Time // when each was logged
}

// note keeps a refusal and reports whether it is time to log it.
func (r *refused) note(reason error, now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.last = reason
	if at, known := r.said[reason]; known && now.Sub(at) < quietlog.RepeatAfter {
		return false
	}
	if r.said == nil {
		r.said = map[error]time.Time{}
	}
	r.said[reason] = now
	return true
}

// clear forgets the refusal.
func (r *refused) clear() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.last = nil
}

// text is the last refusal, "" if there is none.
func (r *refused) text() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.last == nil {
		return ""
	}
	return r.last.Error()
}

// settled reports whether this node need not ask to join: it is in raft's configuration with its address and, if
// voter is true, with a vote, or there is nobody to ask. A member that is not in its own newest configuration was
// removed: an operator has to add it again. A node that is fresh may only have received an older configuration.
func (n *Node) settled(fresh, voter bool) bool {
	if n.cfg.Peers == nil || len(n.cfg.Join) == 0 && len(n.roster.Servers()) == 0 {
		return true
	}
	s, ok := n.roster.Server(n.cfg.ID)
	if !ok {
		return !fresh
	}
	if n.raft.Load().State() == raft.Leader {
		return true // a leader records its own address; see membership.Changes.Tend
	}
	return string(s.Address) == n.roster.Address() && (!voter || s.Suffrage == raft.Voter)
}
