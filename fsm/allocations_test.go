package fsm

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/internal/frame"
)

// sharesNode applies entries to two machines. The second one is loaded again from what is stored after each.
type sharesNode struct {
	t            *testing.T
	m, other     *Machine
	index, shown uint64
	at           time.Time
}

func newSharesNode(t *testing.T, capacity uint64) *sharesNode {
	n := &sharesNode{t: t, m: open(t, vfs.NewMem()), other: open(t, vfs.NewMem()), at: epoch}
	t.Cleanup(func() { n.m.Close(); n.other.Close() })
	n.entry(do(frame.TermStart{ClusterID: "c", Members: []frame.Member{{ID: "n1", FeatureLevel: FeatureLevel}}}))
	n.entry(do(frame.ResourceSet{Name: "A", Capacity: capacity, Preemptible: true}))
	return n
}

// entry applies an entry and returns how many events of each type it has appended.
func (n *sharesNode) entry(requests ...request) map[event.Type]int {
	n.t.Helper()
	n.index++
	e := entryOf(n.index, 1, "n1", n.at, requests...)
	applyTo(n.t, n.m, e)
	applyTo(n.t, n.other, e)
	reload(n.t, n.other)
	counts := map[event.Type]int{}
	_, last := n.m.Log().Bounds()
	for ; n.shown < last; n.shown++ {
		e, err := n.m.Log().Get(n.shown + 1)
		if err != nil {
			n.t.Fatal(err)
		}
		counts[e.Type]++
	}
	if r, known := n.m.Resource("A"); known && r.Granted > r.Capacity {
		n.t.Fatalf("%d of %d are granted", r.Granted, r.Capacity)
	}
	return counts
}

// settles has time pass, with an entry without commands whenever something is due, and returns the events of each.
func (n *sharesNode) settles(d time.Duration) (list []map[event.Type]int) {
	n.t.Helper()
	end := n.at.Add(d)
	for len(list) < 1000 {
		due := n.m.NextDeadline()
		if due.IsZero() || due.After(end) {
			break
		}
		if due.After(n.at) {
			n.at = due
		}
		list = append(list, n.entry(do(frame.Tick{})))
	}
	n.at = end
	if a, b := dump(n.t, n.m), dump(n.t, n.other); !bytes.Equal(a, b) {
		n.t.Fatalf("dumps differ:\n%s\n%s", a, b)
	}
	return list
}

// asks returns requests for an amount of A each, with ids of their own.
func asks(name string, count int, amount uint64, priority frame.Priority, ttl time.Duration) (list []request) {
	for i := range count {
		list = append(list, do(frame.AllocationRequest{ID: fmt.Sprintf("%s-%04d", name, i), Holder: name,
			Amounts: []frame.Amount{{Resource: "A", Amount: amount}}, Priority: priority, TTL: ttl, Wait: true}))
	}
	return list
}

// An entry ends, grants and preempts a bounded number of allocations, and the next ones continue, also on a node that
// was restarted meanwhile.
func TestManyAllocationsTakeSeveralEntries(t *testing.T) {
	const many = 300
	n := newSharesNode(t, many)
	n.entry(asks("low", many, 1, frame.PriorityLow, time.Hour)...)
	n.entry(asks("normal", many, 1, frame.PriorityNormal, 2*time.Hour)...)

	// Preempted for one CRITICAL request.
	total := map[event.Type]int{}
	add := func(list ...map[event.Type]int) {
		t.Helper()
		for _, counts := range list {
			sum := 0
			for kind, count := range counts {
				sum, total[kind] = sum+count, total[kind]+count
			}
			if sum > claimsAtOnce+1 {
				t.Fatalf("an entry has %v, the bound is %d", counts, claimsAtOnce)
			}
		}
	}
	add(n.entry(asks("critical", 1, many, frame.PriorityCritical, time.Minute)...))
	add(n.settles(0)...)
	if total[event.JobPreempted] != many || total[event.AllocationGranted] != 1 {
		t.Fatalf("%v", total)
	}

	// Granted once that has ended, and ended at the same time.
	add(n.settles(2 * time.Minute)...)
	if total[event.AllocationGranted] != 1+many {
		t.Fatalf("%v", total)
	}
	add(n.settles(2 * time.Hour)...)
	if total[event.AllocationLost] != 1+many || len(n.m.Allocations("", 1)) != 0 {
		t.Fatalf("%v", total)
	}
}

// A large request of low priority is granted although small ones of a higher priority arrive all the time.
func TestNobodyStarves(t *testing.T) {
	n := newSharesNode(t, 10)
	n.entry(asks("small", 10, 1, frame.PriorityHigh, 10*time.Second)...)
	n.entry(asks("large", 1, 10, frame.PriorityLow, time.Hour)...)
	for second := range 150 {
		n.at = n.at.Add(time.Second)
		n.entry(asks(fmt.Sprint("small", second), 1, 1, frame.PriorityHigh, 10*time.Second)...)
		if x, _ := n.m.Allocation("large-0000"); x.Fence != 0 {
			if second < 119 {
				t.Errorf("granted after %d s, before those of a higher priority", second+1)
			}
			return
		}
	}
	t.Errorf("still waits after %s", n.at.Sub(epoch))
}

// What has risen while it waited is not preempted, and does not preempt.
func TestWhatHasRisenIsNotPreempted(t *testing.T) {
	n := newSharesNode(t, 10)
	n.entry(asks("first", 1, 10, frame.PriorityNormal, time.Hour)...)
	n.entry(asks("risen", 2, 5, frame.PriorityLow, time.Hour)...)
	n.at = n.at.Add(time.Minute)
	n.entry(do(frame.AllocationRelease{ID: "first-0000"}))
	if got := n.entry(asks("critical", 1, 5, frame.PriorityCritical, time.Hour)...); len(got) != 0 {
		t.Errorf("a CRITICAL request ends what has waited for long: %v", got)
	}
	n.entry(do(frame.AllocationRelease{ID: "risen-0000"}))
	n.entry(do(frame.AllocationRelease{ID: "risen-0001"}), asks("low", 1, 5, frame.PriorityLow, time.Hour)[0])
	n.entry(asks("late", 1, 10, frame.PriorityLow, time.Hour)...)
	for range 5 {
		n.at = n.at.Add(time.Minute)
		if got := n.entry(do(frame.Tick{})); got[event.JobPreempted] != 0 {
			t.Errorf("a request that rose to CRITICAL preempts: %v", got)
		}
	}
}
