package fsm

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"pgregory.net/rapid"

	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/internal/frame"
)

// sharesModel has the resources and all that is granted or waits, in the order of arrival. It looks at everything
// after each step.
type sharesModel struct {
	capacity    map[string]uint64
	preemptible map[string]bool
	shares      []*modelShare
	led         time.Duration // as in rolesModel
	now         time.Time
	events      []string
	counts      map[string]int
}

type modelShare struct {
	id       string
	amounts  []frame.Amount
	priority frame.Priority
	class    frame.Priority
	arrival  int
	ttl      time.Duration
	due      time.Duration // of led
	rises    time.Time
	granted  bool
	new      bool // granted by the present entry: nobody knows the fence yet
}

func (s *modelShare) of(resource string) uint64 {
	for _, one := range s.amounts {
		if one.Resource == resource {
			return one.Amount
		}
	}
	return 0
}

func (m *sharesModel) find(id string) *modelShare {
	for _, s := range m.shares {
		if s.id == id {
			return s
		}
	}
	return nil
}

// over reports whether a share has ended.
func (m *sharesModel) over(s *modelShare) bool { return s.due <= m.led }

func (m *sharesModel) remove(s *modelShare, what string) {
	m.shares = slices.DeleteFunc(m.shares, func(other *modelShare) bool { return other == s })
	if s.granted {
		m.events = append(m.events, fmt.Sprint(what, " ", s.id))
		m.counts[what]++
	}
}

// granted is how much of a resource is granted.
func (m *sharesModel) granted(resource string) (n uint64) {
	for _, s := range m.shares {
		if s.granted {
			n += s.of(resource)
		}
	}
	return n
}

// queue has those that wait for a resource, in their order.
func (m *sharesModel) queue(resource string) (list []*modelShare) {
	for class := frame.PriorityCritical; class >= frame.PriorityLow; class-- {
		for _, s := range m.shares {
			if !s.granted && s.class == class && s.of(resource) > 0 {
				list = append(list, s)
			}
		}
	}
	return list
}

// advance does what is to be done about a share that waits, and reports whether there was anything.
func (m *sharesModel) advance(s *modelShare) bool {
	lacks := false
	for _, one := range s.amounts {
		if one.Amount > m.capacity[one.Resource] {
			m.counts["dropped"]++
			m.remove(s, "")
			return true
		}
	}
	for _, one := range s.amounts {
		if m.queue(one.Resource)[0] != s {
			return false
		}
		lacks = lacks || m.granted(one.Resource)+one.Amount > m.capacity[one.Resource]
	}
	if lacks && !m.preempt(s) {
		return false
	}
	s.granted, s.new, s.rises = true, true, time.Time{}
	m.events = append(m.events, fmt.Sprint("ALLOCATION_GRANTED ", s.id, " as ", s.class))
	m.counts["granted"]++
	if s.class != s.priority {
		m.counts["risen"]++
	}
	return true
}

// preempt ends what is in the way of a CRITICAL one, if that is enough.
func (m *sharesModel) preempt(s *modelShare) bool {
	var victims []*modelShare
	for _, one := range s.amounts {
		free := m.capacity[one.Resource] + sum(victims, one.Resource)
		lows := slices.DeleteFunc(slices.Clone(m.shares), func(v *modelShare) bool {
			return !v.granted || v.class != frame.PriorityLow || v.of(one.Resource) == 0
		})
		slices.Reverse(lows)
		if m.granted(one.Resource)+one.Amount > m.capacity[one.Resource] && (!m.preemptible[one.Resource] ||
			m.granted(one.Resource)+one.Amount > m.capacity[one.Resource]+sum(lows, one.Resource)) {
			return false
		}
		for _, v := range lows {
			if m.granted(one.Resource)+one.Amount <= free {
				break
			}
			if !slices.Contains(victims, v) {
				victims, free = append(victims, v), free+v.of(one.Resource)
			}
		}
	}
	if s.priority != frame.PriorityCritical {
		return false
	}
	for _, v := range victims {
		m.remove(v, "JOB_PREEMPTED")
	}
	return true
}

func sum(list []*modelShare, resource string) (n uint64) {
	for _, s := range list {
		n += s.of(resource)
	}
	return n
}

// settle looks at the queues until nothing is to be done about the first of any.
func (m *sharesModel) settle() {
	for again := true; again; {
		again = false
		for _, resource := range slices.Sorted(maps.Keys(m.capacity)) {
			for queue := m.queue(resource); len(queue) > 0 && m.advance(queue[0]); queue = m.queue(resource) {
				again = true
			}
			if again {
				break
			}
		}
	}
}

// passes has time pass, and does what is due then. silence is as in ledOf.
func (m *sharesModel) passes(gap, silence time.Duration) {
	m.now = m.now.Add(gap)
	var dues []time.Duration
	for _, s := range m.shares {
		dues = append(dues, s.due)
	}
	if len(dues) > 0 {
		m.led += ledOf(gap, slices.Min(dues)-m.led, silence)
	}
	for _, s := range slices.Clone(m.shares) {
		s.new = false
		if m.over(s) {
			m.remove(s, "ALLOCATION_LOST")
		}
	}
	for _, s := range m.shares {
		if !s.granted && s.class < frame.PriorityCritical && !s.rises.After(m.now) {
			s.class++
			s.rises = m.now.Add(time.Minute)
		}
	}
	m.settle()
}

// Allocations against a model, over random histories of requests, renewals, releases, silence, changed capacities, new
// leaders and steps of the clock. A second machine is reopened and replaced by a checkpoint on the way and stays equal.
func TestAllocationsAgreeWithAModel(t *testing.T) {
	counts := map[string]int{}
	rapid.Check(t, func(t *rapid.T) {
		plainFS, troubledFS := vfs.NewMem(), vfs.NewMem()
		plain, troubled := open(t, plainFS), open(t, troubledFS)
		defer func() { plain.Close(); troubled.Close() }()
		term, index := uint64(1), uint64(0)
		m := &sharesModel{capacity: map[string]uint64{},
			preemptible: map[string]bool{}, now: epoch, counts: counts}
		var starts []request // of a term, in the next entry
		apply := func(r ...request) Result {
			index++
			e := entryOf(index, term, "n1", m.now, append(starts, r...)...)
			starts = nil
			got := applyTo(t, plain, e)
			troubled = trouble(t, troubled, troubledFS, counts)
			applyTo(t, troubled, e)
			return got[len(got)-1]
		}
		apply(do(frame.TermStart{ClusterID: "c", Members: []frame.Member{{ID: "n1", FeatureLevel: FeatureLevel}}}))
		set := func(name string, capacity uint64, preemptible bool) {
			m.capacity[name], m.preemptible[name] = capacity, preemptible
			apply(do(frame.ResourceSet{Name: name, Capacity: capacity, Preemptible: preemptible}))
			m.settle()
		}
		set("A", 10, true)
		set("B", 6, false)
		fences := map[string][]uint64{} // of each id, that were given out
		highest, arrivals := uint64(0), 0
		for range rapid.IntRange(1, 60).Draw(t, "entries") {
			gap := rapid.SampledFrom([]time.Duration{0, time.Second, 20 * time.Second, 61 * time.Second}).Draw(t, "wait")
			if due := troubled.NextDeadline(); due.After(m.now) && due.Before(m.now.Add(time.Hour)) &&
				rapid.IntRange(0, 2).Draw(t, "until due") == 0 {
				gap = due.Sub(m.now)
			}
			silence := time.Duration(-1)
			if rapid.IntRange(0, 9).Draw(t, "new leader") == 0 {
				term++
				silence = rapid.SampledFrom([]time.Duration{0, time.Second, time.Minute}).Draw(t, "silence")
				if silence > 0 || rapid.Bool().Draw(t, "starts") {
					starts = []request{do(frame.TermStart{ClusterID: "c", Cause: "lost", Silence: silence})}
				}
			}
			m.passes(gap, silence)
			id := rapid.SampledFrom([]string{"a", "b", "c", "d", "e", "f", "g"}).Draw(t, "id")
			switch action := rapid.IntRange(0, 10).Draw(t, "action"); {
			case action < 6:
				c := frame.AllocationRequest{ID: id, Holder: id, Wait: rapid.IntRange(0, 3).Draw(t, "no wait") > 0,
					Priority: rapid.SampledFrom([]frame.Priority{1, 1, 2, 3, 4}).Draw(t, "priority"),
					TTL:      rapid.SampledFrom([]time.Duration{30 * time.Second, 5 * time.Minute}).Draw(t, "ttl")}
				for _, name := range []string{"A", "B"} {
					if n := rapid.SampledFrom([]uint64{0, 1, 3, 6}).Draw(t, name); n > 0 {
						c.Amounts = append(c.Amounts, frame.Amount{Resource: name, Amount: n})
					}
				}
				x := m.find(id)
				if x != nil && rapid.IntRange(0, 3).Draw(t, "other request") > 0 {
					c.Amounts, c.Priority = x.amounts, x.priority
				}
				got := apply(do(c))
				over := false
				for _, one := range c.Amounts {
					over = over || one.Amount > m.capacity[one.Resource]
				}
				code := Code("")
				switch {
				case len(c.Amounts) == 0:
					code = Invalid
				case x != nil && (x.priority != c.Priority || !slices.Equal(x.amounts, c.Amounts)),
					over && (x == nil || !x.granted):
					code = Conflict
				case x == nil:
					arrivals++
					x = &modelShare{id: id, amounts: c.Amounts, priority: c.Priority, class: c.Priority, arrival: arrivals,
						ttl: c.TTL, due: m.led + c.TTL, rises: m.now.Add(time.Minute)}
					m.shares = append(m.shares, x)
					m.advance(x)
				case x.granted || c.Wait:
					x.ttl, x.due = c.TTL, m.led+c.TTL
				}
				if code == "" && !x.granted && !c.Wait {
					m.remove(x, "")
				}
				m.settle()
				if code != "" || got.Refusal != nil {
					if got.Refusal == nil || got.Refusal.Code != code {
						t.Fatalf("%+v: %+v, want %q", c, got.Refusal, code)
					}
					counts["refused"]++
					break
				}
				if got := got.Allocation; (got.Fence != 0) != x.granted || got.Waits != (!x.granted && c.Wait) {
					t.Fatalf("%+v: %+v, want %+v", c, got, x)
				}
				if !x.granted {
					counts["waits"]++
				}
			case action < 7:
				old := rapid.SampledFrom(append([]uint64{7}, fences[id]...)).Draw(t, "fence")
				got := apply(do(frame.AllocationRenew{Leases: []frame.AllocationLease{{ID: id, Fence: old}, {ID: "z"}}}))
				x := m.find(id)
				holds := x != nil && x.granted && !x.new && old == fences[id][len(fences[id])-1]
				if holds {
					x.due = m.led + x.ttl
					counts["renewed"]++
				}
				if lost := !slices.Contains(got.LostLeases, 0); lost != holds || !slices.Contains(got.LostLeases, 1) {
					t.Fatalf("%v, want the lease %t", got.LostLeases, holds)
				}
			case action < 8:
				apply(do(frame.AllocationRelease{ID: id}))
				if x := m.find(id); x != nil {
					m.remove(x, "ALLOCATION_RELEASED")
					m.settle()
				}
			case action < 9:
				set(rapid.SampledFrom([]string{"A", "B"}).Draw(t, "resource"), rapid.SampledFrom([]uint64{2, 6, 10}).
					Draw(t, "capacity"), rapid.Bool().Draw(t, "preemptible"))
			case action < 10:
				c := frame.AllocationRenewClaim{ID: id, Amounts: []frame.Amount{{Resource: "A", Amount: 6}}}
				x := m.find(id)
				if x != nil {
					c.Amounts = x.amounts
				}
				got := apply(do(c))
				over := false
				for _, one := range c.Amounts {
					over = over || one.Amount > m.capacity[one.Resource]
				}
				if refused := over && (x == nil || !x.granted); refused || got.Refusal != nil {
					if !refused || got.Refusal == nil || got.Refusal.Reason != ReasonOverCapacity {
						t.Fatalf("%+v: %+v, want a refusal %t", c, got.Refusal, refused)
					}
					break
				}
				if x != nil {
					x.due = m.led + x.ttl
					counts["claims renewed"]++
				}
				if a := got.Allocation; a.Waits != (x != nil && !x.granted) || (a.Fence != 0) != (x != nil && x.granted) {
					t.Fatalf("%+v: %+v, want %+v", c, a, x)
				}
			default:
				// A step beside a term start comes before what is due.
				if len(starts) > 0 {
					apply(do(frame.Tick{}))
				}
				to := m.now.Add(time.Minute)
				apply(do(frame.ClockStep{To: to, Agreed: []string{"n1"}}))
				m.now = to
			}

			// The events are the model's, and fences are their offsets, which rise.
			var events []string
			used := map[string]uint64{} // by what the events say
			_, end := troubled.Log().Bounds()
			for offset := uint64(1); offset <= end; offset++ {
				e, err := troubled.Log().Get(offset)
				if err != nil {
					t.Fatal(err)
				}
				var p struct {
					Allocation string
					Fence      uint64
					RisenTo    string `json:"risen_to"`
					Amounts    map[string]uint64
				}
				if err := json.Unmarshal(e.Payload, &p); err != nil {
					t.Fatal(err)
				}
				switch e.Type {
				case event.AllocationGranted:
					if p.Fence != offset {
						t.Fatalf("%d has the fence %d", offset, p.Fence)
					}
					if offset > highest {
						fences[p.Allocation], highest = append(fences[p.Allocation], offset), offset
					}
					for name, n := range p.Amounts {
						used[name] += n
					}
					events = append(events, fmt.Sprint(e.Type, " ", p.Allocation, " as ", p.RisenTo))
				case event.AllocationLost, event.AllocationReleased, event.JobPreempted:
					if !slices.Contains(fences[p.Allocation], p.Fence) || p.Fence >= offset {
						t.Fatalf("%d has the fence %d, of %v", offset, p.Fence, fences[p.Allocation])
					}
					for name, n := range p.Amounts {
						used[name] -= n
					}
					events = append(events, fmt.Sprint(e.Type, " ", p.Allocation))
				}
			}
			want := slices.Clone(m.events)
			if a, b := slices.Sorted(slices.Values(events)), slices.Sorted(slices.Values(want)); !slices.Equal(a, b) {
				t.Fatalf("events\n%q, want\n%q", events, want)
			}

			// The state is the model's.
			list := troubled.Allocations("", 100)
			if len(list) != len(m.shares) {
				t.Fatalf("%+v, want %d", list, len(m.shares))
			}
			for _, x := range list {
				s := m.find(x.Session)
				if s == nil || s.granted != (x.Fence != 0) || s.class != x.Class || !slices.Equal(s.amounts, x.Amounts) ||
					(s.granted && x.Fence != fences[s.id][len(fences[s.id])-1]) {
					t.Fatalf("%+v, want %+v", x, s)
				}
			}
			for _, r := range troubled.Resources("", 100) {
				if r.Granted != m.granted(r.Name) || r.Granted != used[r.Name] || r.Waiting != len(m.queue(r.Name)) ||
					r.Unsettled {
					t.Fatalf("%+v, want %d granted and %d waiting; by the events %d", r, m.granted(r.Name),
						len(m.queue(r.Name)), used[r.Name])
				}
			}
			if troubled.NextDeadline().IsZero() && len(list) > 0 {
				t.Fatal("nothing is due although something is granted or waits")
			}
		}
		if a, b := dump(t, plain), dump(t, troubled); !bytes.Equal(a, b) {
			t.Fatalf("dumps differ:\n%s\n%s", a, b)
		}
	})
	for _, kind := range []string{"granted", "waits", "risen", "dropped", "renewed", "claims renewed", "refused",
		"ALLOCATION_LOST", "ALLOCATION_RELEASED", "JOB_PREEMPTED", "restart", "snapshot"} {
		if counts[kind] == 0 && !testing.Short() { // which goes through few
			t.Errorf("no history has %s", kind)
		}
	}
}
