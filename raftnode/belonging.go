package raftnode

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/ringrift/ringlog/raftnode/datadir"
	"github.com/ringrift/ringlog/raftnode/rafttransport"
)

const (
	// belongEvery is how often a node asks whether it belongs, until that is certain.
	belongEvery = time.Second
	// supersededAfter is how often in a row a node of a cluster that was recovered without it
	// finds no leader before it ends.
	supersededAfter = 10
)

// watchBelonging ends the node when its data folder belongs to another cluster than its peers: a
// swapped volume, or a restored cluster that is started at an old member's address. It
// would otherwise acknowledge, in a member's place, events that the members never get.
//
// It also ends a node whose cluster was recovered without it, once it has had no leader for a
// while. A quorum of the old cluster keeps its leader and its nodes: it was recovered by mistake.
func (j *joiner) watchBelonging(ctx context.Context) {
	if j.cfg.Peers == nil {
		return
	}
	tick := time.NewTicker(belongEvery)
	defer tick.Stop()
	// leaderless counts rounds in a row without a leader, and certain stays true once it is.
	leaderless, certain := 0, false
	for {
		// An empty folder belongs to no cluster yet and may join any.
		if own := j.roster.Identity(); own.ClusterID != "" {
			answers := j.answersOfMembers()
			// Until it is certain, seeds that are not members are asked as well; after that only successors matter,
			// and the pings report those.
			if !certain {
				answers, _ = j.askSeeds(ctx)
			}
			k := newKinship(own, j.machine.Predecessors(), j.cfg.Join, j.roster.Others(), answers)
			if other, found := k.foreign(); found && !certain {
				j.cfg.Fatal(k.misplaced(j.cfg.Dir, other))
				return
			}
			certain = certain || k.certain()
			successor, superseded := k.successor()
			// Only rounds in a row count: a leader of the own cluster means that it still has its quorum.
			leaderless++
			if leader, _ := j.roster.Leader(); leader != "" || !superseded {
				leaderless = 0
			}
			if leaderless == supersededAfter {
				j.cfg.Fatal(k.misplaced(j.cfg.Dir, successor))
				return
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// answersOfMembers are the last reports of the other members.
func (j *joiner) answersOfMembers() (answers []heard) {
	for _, r := range j.watch.Reports() {
		answers = append(answers, heard{URL(r.HTTPAddr), r})
	}
	return answers
}

// misplaced returns the error with which a node ends whose data folder, in dir, does not belong where the other
// node's does.
func (k *kinship) misplaced(dir string, other heard) error {
	if k.isSuccessor(other) {
		return fmt.Errorf("%w: %s is of cluster %s, from which cluster %s was recovered, to which %s at %s belongs",
			ErrRecoveredWithout, dir, k.cluster, other.report.ClusterID, other.report.ID, other.url)
	}
	return fmt.Errorf("%w: %s is of cluster %s, but %s at %s is of cluster %s: start this node "+
		"with the folder that it had there, or with an empty one; "+
		"if this is the right folder, --join must name nodes of its own cluster",
		ErrForeignFolder, dir, k.cluster, other.report.ID, other.url, other.report.ClusterID)
}

// heard is what the node at a URL reported.
type heard struct {
	url    string
	report Report
}

// kinship is what a node needs to decide whether its data folder belongs among its peers.
type kinship struct {
	cluster string         // the id of this node's cluster
	before  []string       // the clusters that it was recovered from
	seeds   []string       // of --join
	others  []datadir.Peer // the other members, as the own folder has them
	heard   []heard
}

// newKinship leaves this node itself out of the seeds and of those heard.
func newKinship(self rafttransport.Identity, before, seeds []string, others []datadir.Peer, answers []heard) kinship {
	k := kinship{cluster: self.ClusterID, before: before, seeds: slices.Clone(seeds), others: others}
	for _, h := range answers {
		// Join may name this node itself.
		if h.report.Incarnation == self.Incarnation {
			k.seeds = slices.DeleteFunc(k.seeds, func(url string) bool { return url == h.url })
		} else {
			k.heard = append(k.heard, h)
		}
	}
	return k
}

// foreign returns a peer whose cluster shows that this node is in the wrong place: a seed,
// where no seed is in the own cluster's places, or a member, where more than half of the
// other members' places answer for another cluster and nobody answers for the own. One
// foreign node in a member's place is that node's fault: it ends, this one stays.
func (k *kinship) foreign() (other heard, found bool) {
	if !k.seedFits() {
		for _, h := range k.heard {
			if k.isForeign(h) && slices.Contains(k.seeds, h.url) {
				return h, true
			}
		}
	}
	// Places are counted by member and not by answer, as one node may be heard at several URLs.
	taken := map[string]bool{} // ids of members in whose place another cluster's node answers
	for _, h := range k.heard {
		if i := slices.IndexFunc(k.others, h.inPlaceOf); i >= 0 && k.isForeign(h) {
			taken[k.others[i].ID] = true
			other = h
		}
	}
	return other, 2*len(taken) > len(k.others) && !k.confirmed()
}

// successor returns a node of a cluster that was recovered from the own one.
func (k *kinship) successor() (other heard, found bool) {
	i := slices.IndexFunc(k.heard, k.isSuccessor)
	if i < 0 {
		return other, false
	}
	return k.heard[i], true
}

// isSuccessor reports whether the node that was heard is of a cluster that was recovered from the own one.
func (k *kinship) isSuccessor(h heard) bool { return slices.Contains(h.report.Predecessors, k.cluster) }

// certain reports whether foreign can find nothing any more: data folders do not change while
// their nodes run.
func (k *kinship) certain() bool {
	alone := len(k.seeds) == 0 && len(k.others) == 0
	return alone || (k.confirmed() && (len(k.seeds) == 0 || k.seedFits()))
}

// seedFits reports whether a seed other than this node is a member of the own cluster, or in
// the place of one.
func (k *kinship) seedFits() bool {
	for _, seed := range k.seeds {
		// The own folder lists the seed as a member, whoever answers there.
		if slices.ContainsFunc(k.others, func(p datadir.Peer) bool { return p.HTTP != "" && URL(p.HTTP) == seed }) {
			return true
		}
	}
	return slices.ContainsFunc(k.heard, func(h heard) bool {
		return slices.Contains(k.seeds, h.url) && (k.isKin(h) || slices.ContainsFunc(k.others, h.inPlaceOf))
	})
}

// confirmed reports whether a node of the own cluster was heard.
func (k *kinship) confirmed() bool { return slices.ContainsFunc(k.heard, k.isKin) }

// isKin reports whether a node is of the own cluster.
func (k *kinship) isKin(h heard) bool { return h.report.ClusterID == k.cluster }

// isForeign reports whether a node's cluster may be the one that belongs here. One that the own
// cluster was recovered from is not, however many of its members return.
func (k *kinship) isForeign(h heard) bool {
	return h.report.ClusterID != "" && h.report.ClusterID != k.cluster && !slices.Contains(k.before, h.report.ClusterID)
}

// inPlaceOf reports whether the node that was heard has a member's address.
func (h heard) inPlaceOf(p datadir.Peer) bool {
	// A member's HTTP address may be known by another name than the one that it was reached by.
	atHTTP := p.HTTP != "" && (URL(p.HTTP) == h.url || p.HTTP == h.report.HTTPAddr)
	return atHTTP || p.Raft == h.report.RaftAddr
}
