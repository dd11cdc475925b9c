package raftnode

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/ringrift/ringlog/raftnode/datadir"
	"github.com/ringrift/ringlog/raftnode/rafttransport"
)

// belongEvery is how often a node asks whether it belongs, until that is certain.
const belongEvery = time.Second

// belong ends the node when its data folder is of another cluster than its peers: a
// swapped volume, or a restored cluster that is started at an old member's address. It
// would otherwise acknowledge, in a member's place, events that the members never get.
func (n *Node) belong(ctx context.Context) {
	if n.cfg.Peers == nil {
		return
	}
	tick := time.NewTicker(belongEvery)
	defer tick.Stop()
	for {
		if own := n.identity(); own.ClusterID != "" {
			others := slices.DeleteFunc(n.knownPeers(), func(p datadir.Peer) bool { return p.ID == n.cfg.ID })
			k := newKinship(own, n.cfg.Join, others, n.askSeeds(ctx))
			if other, found := k.foreign(); found {
				n.cfg.Fatal(fmt.Errorf("raftnode: %w: %s is of cluster %s, but %s at %s is of cluster %s: start this node "+
					"with the folder that it had there, or with an empty one; if this is the right folder, --join must name nodes of its own cluster",
					ErrForeignFolder, n.cfg.Dir, own.ClusterID, other.report.ID, other.url, other.report.ClusterID))
				return
			}
			if k.certain() {
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

// heard is what the node at a URL reported.
type heard struct {
	url    string
	report Report
}

// kinship is what a node needs to decide whether its data folder belongs among its peers.
type kinship struct {
	cluster string         // the own cluster's id
	seeds   []string       // of --join
	others  []datadir.Peer // the other members, as the own folder has them
	heard   []heard
}

// newKinship leaves this node itself out of the seeds and of those heard.
func newKinship(self rafttransport.Identity, seeds []string, others []datadir.Peer, answers []heard) kinship {
	k := kinship{cluster: self.ClusterID, seeds: slices.Clone(seeds), others: others}
	for _, h := range answers {
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
	taken := map[string]bool{} // ids of members in whose place another cluster's node answers
	for _, h := range k.heard {
		if i := slices.IndexFunc(k.others, h.inPlaceOf); i >= 0 && k.isForeign(h) {
			taken[k.others[i].ID] = true
			other = h
		}
	}
	return other, 2*len(taken) > len(k.others) && !k.confirmed()
}

// certain reports that foreign can find nothing any more: data folders do not change while
// their nodes run.
func (k *kinship) certain() bool {
	alone := len(k.seeds) == 0 && len(k.others) == 0
	return alone || k.confirmed() && (len(k.seeds) == 0 || k.seedFits())
}

// seedFits reports whether a seed other than this node is a member of the own cluster, or in
// the place of one.
func (k *kinship) seedFits() bool {
	for _, seed := range k.seeds {
		if slices.ContainsFunc(k.others, func(p datadir.Peer) bool { return p.HTTP != "" && URL(p.HTTP) == seed }) {
			return true
		}
	}
	return slices.ContainsFunc(k.heard, func(h heard) bool {
		return slices.Contains(k.seeds, h.url) && (k.isKin(h) || slices.ContainsFunc(k.others, h.inPlaceOf))
	})
}

func (k *kinship) confirmed() bool { return slices.ContainsFunc(k.heard, k.isKin) }

func (k *kinship) isKin(h heard) bool { return h.report.ClusterID == k.cluster }

func (k *kinship) isForeign(h heard) bool {
	return h.report.ClusterID != "" && h.report.ClusterID != k.cluster
}

// inPlaceOf reports whether the node that was heard has an address of a member's.
func (h heard) inPlaceOf(p datadir.Peer) bool {
	return p.Raft == h.report.RaftAddr || p.HTTP != "" && (URL(p.HTTP) == h.url || p.HTTP == h.report.HTTPAddr)
}
