package raftnode

import (
	"testing"

	"github.com/ringrift/ringlog/raftnode/datadir"
)

func peer(id string) datadir.Peer {
	return datadir.Peer{ID: id, Raft: "raft-" + id, HTTP: "http-" + id, Incarnation: "folder-" + id}
}

func peersNamed(ids ...string) (list []datadir.Peer) {
	for _, id := range ids {
		list = append(list, peer(id))
	}
	return list
}

// says is what a node without a cluster reports, that sees known.
func says(id string, known []datadir.Peer, change ...func(*Report)) Report {
	p := peer(id)
	r := Report{ID: id, RaftAddr: p.Raft, HTTPAddr: p.HTTP, Incarnation: p.Incarnation, Expect: 3, Known: known}
	for _, f := range change {
		f(&r)
	}
	return r
}

func agreed(r *Report)    { r.Agreed = true }
func clustered(r *Report) { r.ClusterID, r.Expect = "c", 0 }
func reborn(r *Report)    { r.Incarnation += "-new" }

func TestFormingAClusterTakesTheSameWordOfAll(t *testing.T) {
	abc := peersNamed("a", "b", "c")
	for _, test := range []struct {
		name    string
		self    string
		settled []datadir.Peer
		reports []Report
		want    formStep
	}{
		{"alone", "a", nil, nil, formWait},
		{"two of three", "a", nil, []Report{says("b", peersNamed("a", "b"))}, formWait},
		{"all seen, not all see all", "a", nil, []Report{says("b", abc), says("c", peersNamed("a", "c"))}, formWait},
		{"all see the same", "a", nil, []Report{says("b", abc), says("c", abc)}, formAgree},
		{"the own report among them", "a", nil, []Report{says("a", abc), says("b", abc), says("c", abc)}, formAgree},
		{"one answers twice", "a", nil, []Report{says("b", abc), says("b", abc)}, formWait},
		{"a fourth", "a", nil, []Report{says("b", abc), says("c", abc), says("d", abc)}, formWait},
		{"one id, two folders", "a", nil, []Report{says("b", abc), says("b", abc, reborn)}, formWait},
		{"another expects another number", "a", nil,
			[]Report{says("b", abc), says("c", abc, func(r *Report) { r.Expect = 5 })}, formWait},
		{"one is in a cluster", "a", nil, []Report{says("b", abc), says("c", abc, clustered)}, formJoin},
		{"settled, the others not yet", "a", abc, []Report{says("b", abc, agreed), says("c", abc)}, formWait},
		{"settled, all of them", "a", abc, []Report{says("b", abc, agreed), says("c", abc, agreed)}, formBegin},
		{"settled, not the lowest id", "b", abc, []Report{says("a", abc, agreed), says("c", abc, agreed)}, formWait},
		{"settled, a fourth comes", "a", abc, []Report{says("b", abc, agreed), says("c", abc, agreed), says("d", nil)},
			formBegin},
		{"settled, one came back with another folder", "a", abc,
			[]Report{says("b", abc, agreed), says("c", abc, agreed, reborn)}, formWait},
		{"settled, on another set than the others", "a", abc,
			[]Report{says("b", peersNamed("b", "c", "d"), agreed), says("c", abc, agreed)}, formWait},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got, _ := decideForming(peer(test.self), 3, test.settled, test.reports); got != test.want {
				t.Errorf("step %d, want %d", got, test.want)
			}
		})
	}
}

func TestALoneNodeFormsItsClusterAtOnce(t *testing.T) {
	a := peersNamed("a")
	if step, known := decideForming(a[0], 1, nil, nil); step != formAgree || len(known) != 1 {
		t.Errorf("step %d with %v", step, known)
	}
	if step, _ := decideForming(a[0], 1, a, nil); step != formBegin {
		t.Errorf("step %d", step)
	}
}
