package raftnode

import (
	"testing"

	"github.com/ringrift/ringlog/raftnode/datadir"
	"github.com/ringrift/ringlog/raftnode/rafttransport"
)

// A cluster "own" of a, b and c, and one "other", as a sees them.
func TestWhoIsInTheWrongPlace(t *testing.T) {
	at := func(place, cluster string) heard {
		p := peer(place)
		return heard{"http://" + p.HTTP,
			Report{ID: place, ClusterID: cluster, RaftAddr: p.Raft, HTTPAddr: p.HTTP, Incarnation: cluster + "-" + place}}
	}
	byName := func(place, cluster string) heard { // reached by another name than members know
		h := at(place, cluster)
		h.url = "http://name-of-" + place
		return h
	}
	url := func(places ...string) (urls []string) {
		for _, p := range places {
			urls = append(urls, "http://"+peer(p).HTTP)
		}
		return urls
	}
	for _, test := range []struct {
		name    string
		seeds   []string
		others  []datadir.Peer
		heard   []heard
		foreign bool
		certain bool
	}{
		{"alone, with no seed", nil, nil, nil, false, true},
		{"alone, and the seeds are silent", url("b", "c"), nil, nil, false, false},
		{"alone, and a seed is of no cluster yet", url("b"), nil, []heard{at("b", "")}, false, false},
		{"alone, and its only seed is itself", url("a"), nil, []heard{at("a", "own")}, false, true},
		{"a cluster of one in a member's place", url("a", "b", "c"), nil, []heard{at("a", "own"), at("b", "other")},
			true, false},
		{"a folder of three in a member's place, its own cluster alive", url("b", "c"), peersNamed("y", "z"),
			[]heard{at("b", "other"), at("y", "own"), at("z", "own")}, true, false},
		{"the same addresses in both clusters", url("b", "c"), peersNamed("b", "c"),
			[]heard{at("b", "other"), at("c", "other")}, true, false},
		{"one member's place has a stray, the other is silent", url("b", "c"), peersNamed("b", "c"),
			[]heard{at("b", "other")}, false, false},
		{"one member's place has a stray, the other is well", url("b", "c"), peersNamed("b", "c"),
			[]heard{at("b", "other"), at("c", "own")}, false, true},
		{"the same, reached by names", []string{"http://name-of-b", "http://name-of-c"}, peersNamed("b", "c"),
			[]heard{byName("b", "other")}, false, false},
		{"a seed that serves another cluster by now, the members silent", url("b", "c", "old"), peersNamed("b", "c"),
			[]heard{at("old", "other")}, false, false},
		{"the same, a member answers", url("b", "c", "old"), peersNamed("b", "c"),
			[]heard{at("old", "other"), at("c", "own")}, false, true},
		{"all well", url("a", "b", "c"), peersNamed("b", "c"), []heard{at("a", "own"), at("b", "own"), at("c", "own")},
			false, true},
		{"recovered, and the members before return", url("b", "c"), peersNamed("b", "c"),
			[]heard{at("b", "old"), at("c", "old")}, false, false},
		{"recovered alone, and the seeds are of the cluster before", url("b", "c"), nil,
			[]heard{at("b", "old"), at("c", "old")}, false, false},
		{"no seeds, two strays", nil, peersNamed("b", "c"), []heard{at("b", "other"), at("c", "other")}, true, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			k := newKinship(rafttransport.Identity{ClusterID: "own", NodeID: "a", Incarnation: "own-a"}, []string{"old"},
				test.seeds, test.others, test.heard)
			if other, found := k.foreign(); found != test.foreign || found && other.report.ClusterID != "other" {
				t.Errorf("foreign: %v, %+v", found, other)
			}
			if k.certain() != test.certain {
				t.Errorf("certain: %v", k.certain())
			}
		})
	}
}
