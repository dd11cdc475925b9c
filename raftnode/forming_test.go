package raftnode

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"syscall"
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

func TestEachURLThatIsWaitedForIsNamedWithItsReason(t *testing.T) {
	ab := peersNamed("a", "b")
	refused := &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}
	at := func(r Report) heard { return heard{"http://" + r.ID, r} }
	for _, test := range []struct {
		name    string
		known   []datadir.Peer
		answers []heard
		silent  map[string]error
		want    []string
	}{
		{"nobody there", ab[:1], nil, map[string]error{
			"http://b": fmt.Errorf("%w: %w", ErrNoLeader, refused), "http://c": context.DeadlineExceeded,
			"http://d": fmt.Errorf("%w: %w", ErrNoLeader, ErrOtherToken), "http://http-a": refused,
			"http://e": &net.DNSError{Err: "no such host", Name: "e"},
		}, []string{
			"http://b: connection refused", "http://c: no answer within 1s",
			"http://d: the two nodes have different cluster tokens", "http://e: no such host",
		}},
		{"the node itself, and one that agrees", ab, []heard{at(says("a", nil)), at(says("b", ab))}, nil, nil},
		{"other numbers", ab[:1], []heard{
			at(says("b", nil, func(r *Report) { r.Expect = 5 })), at(says("c", nil, func(r *Report) { r.Expect = 0 })),
		}, nil, []string{
			"http://b: b expects 5 nodes, this node 3",
			"http://c: c forms no cluster: it was started as a non-voter or without --bootstrap-expect",
		}},
		{"one that does not know this node", ab, []heard{at(says("b", ab[1:]))}, nil, []string{"http://b: b knows of b"}},
		{"settled, and one came back with another folder", ab, []heard{at(says("b", nil, reborn))}, nil,
			[]string{"http://b: b has another data folder than when the nodes agreed to form the cluster"}},
	} {
		if got := waitingFor(ab[0], 3, test.known, test.answers, test.silent); !slices.Equal(got, test.want) {
			t.Errorf("%s: %q", test.name, got)
		}
	}
}

// Two nodes that raft could not keep apart are named, with what they share.
func TestNodesThatDoNotFitTogetherAreNamed(t *testing.T) {
	twice := peersNamed("a", "a")
	if got := clash(twice); got != "another id for one of two nodes: http://http-a and http://http-a are both a" {
		t.Error(got)
	}
	ab := peersNamed("a", "b")
	ab[1].Raft = ab[0].Raft
	if got := clash(ab); got != "another raft address for one of two nodes: a and b both have raft-a" {
		t.Error(got)
	}
	if got := peerTexts(ab[:1]); got[0] != "a (http http-a, raft raft-a, incarnation folder-a)" {
		t.Error(got)
	}
	e := NotFormedError{Expect: 3, Known: []string{"a"}, Waiting: []string{"http://b: connection refused"}}
	if !strings.HasSuffix(e.Error(), "1 of 3 nodes known (a); waiting for http://b: connection refused") {
		t.Error(e.Error())
	}
}
