package fsm

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/internal/frame"
)

// training makes the n-th of a varying stream of events of about 256 bytes.
func training(n int) event.Event {
	const payload = `{"config_key": "hex8_2p", "epoch": %d, "loss": 0.%d, ` +
		`"model_path": "models/hex8_2p/candidate-%d.pt", "policy_accuracy": 0.%d, "samples": %d, ` +
		`"trainer": "gpu-node-%d", "val_loss": 0.%d}`
	e := event.New(event.TrainingCompleted, fmt.Appendf(nil, payload,
		n%50, n*7919%100000, n*31, n*104729%100000, n*4096, n%12, n*15485863%100000))
	e.Source = fmt.Sprintf("trainer-%d", n%7)
	return e
}

// BenchmarkApply decides and stores entries of fresh events of one producer, with a full dedup window
// moving along, by how many events there are to an entry.
func BenchmarkApply(b *testing.B) {
	for _, perEntry := range []int{1, 64, 1024} {
		b.Run(fmt.Sprintf("events=%d", perEntry), func(b *testing.B) {
			m, err := Open(Options{Dir: b.TempDir()})
			if err != nil {
				b.Fatal(err)
			}
			defer m.Close()
			next, index := 0, uint64(0)
			for b.Loop() {
				b.StopTimer()
				events := make([]event.Event, perEntry)
				for i := range events {
					events[i] = training(next)
					next++
				}
				index++
				e := entryOf(index, 1, "n1", epoch.Add(time.Duration(index*uint64(perEntry))*100*time.Microsecond),
					produce("6f1d9c1e-7c5a-7e0b-9b1c-2a4f0d3e5b6a", index, events...))
				b.StartTimer()
				if out, err := m.Apply(e.index, e.term, e.data); err != nil || out.Results[0].Refusal != nil {
					b.Fatal(err, out)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*perEntry), "ns/event")
		})
	}
}

// BenchmarkApplyBesidePolicies decides entries of 64 fresh events while no type has a dedup policy, while a thousand
// other types have one with a key in its window, and while the events' own type has one.
func BenchmarkApplyBesidePolicies(b *testing.B) {
	own := event.DedupPolicy{Mode: event.DedupFields, Fields: []string{"epoch", "samples"}, Window: time.Minute}
	for _, policies := range []string{"none", "others", "own"} {
		b.Run("policies="+policies, func(b *testing.B) {
			m, err := Open(Options{Dir: b.TempDir()})
			if err != nil {
				b.Fatal(err)
			}
			defer m.Close()
			index := uint64(0)
			entry := func(at time.Time, requests ...request) entry {
				index++
				return gated(m.Policy().Dedup, index, 1, "n1", at, requests...)
			}
			set := func(t string, p event.DedupPolicy) request { return do(frame.DedupPolicySet{Type: t, Policy: p}) }
			applyTo(b, m, entry(epoch, do(frame.MemberPut{Member: frame.Member{ID: "n1", FeatureLevel: FeatureLevel}})))
			switch policies {
			case "own":
				applyTo(b, m, entry(epoch, set(string(event.TrainingCompleted), own)))
			case "others":
				for i := range maxPolicies {
					other := event.New(event.Type(fmt.Sprintf("OTHER_%d", i)), nil)
					hour := event.DedupPolicy{Mode: event.DedupContent, Window: time.Hour}
					applyTo(b, m, entry(epoch, set(string(other.Type), hour)))
					applyTo(b, m, entry(epoch, publish(other)))
				}
			}
			next := 0
			for b.Loop() {
				b.StopTimer()
				events := make([]event.Event, 64)
				for i := range events {
					events[i] = training(next)
					next++
				}
				e := entry(epoch.Add(time.Duration(next)*100*time.Microsecond), publish(events...))
				b.StartTimer()
				if out, err := m.Apply(e.index, e.term, e.data); err != nil || out.Results[0].Refusal != nil {
					b.Fatal(err, out)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*64), "ns/event")
		})
	}
}

// BenchmarkRead goes through a log of 200 entries, as a reader in the past does.
func BenchmarkRead(b *testing.B) {
	m, err := Open(Options{Dir: b.TempDir(), CacheBytes: 1})
	if err != nil {
		b.Fatal(err)
	}
	defer m.Close()
	const entries, perEntry = 200, 1024
	for i := range entries {
		events := make([]event.Event, perEntry)
		for j := range events {
			events[j] = training(i*perEntry + j)
		}
		e := entryOf(uint64(i+1), 1, "n1", epoch, publish(events...))
		if _, err := m.Apply(e.index, e.term, e.data); err != nil {
			b.Fatal(err)
		}
	}
	all := event.Filter{}.Compile(event.Builtin())
	read := 0
	for b.Loop() {
		first, last := m.Log().Bounds()
		for from := first; from <= last; {
			c, err := m.Log().Read(from, &all, perEntry)
			if err != nil {
				b.Fatal(err)
			}
			read += len(c.Events)
			from = c.Next
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(read), "ns/event")
}

// BenchmarkRenewRoles renews 10 000 leases by how many of them a command has. An entry has the commands of 10 ms. With
// leases of 15 s, each renewed every 5 s, core-% is the share of one core that deciding takes.
func BenchmarkRenewRoles(b *testing.B) {
	const roles = 10_000
	for _, perCommand := range []int{1, 100, 1000} {
		b.Run(fmt.Sprintf("leases=%d", perCommand), func(b *testing.B) {
			r := newBesideRoles(b, roles, 0)
			// The commands of a round, each with the leases of one client.
			var commands []request
			for from := 0; from < roles; from += perCommand {
				var c frame.RoleRenew
				for _, one := range r.m.Roles(roleName(from-1), perCommand) {
					c.Leases = append(c.Leases, frame.RoleLease{Role: one.Name, Fence: one.Fence})
				}
				commands = append(commands, do(c))
			}
			benchmarkRounds(b, r, commands, roles)
		})
	}
}

// benchmarkRounds decides the commands that renew some leases once, each time that a third of their TTL has passed.
func benchmarkRounds(b *testing.B, r *beside, commands []request, leases int) {
	const every = DefaultRoleTTL / 3
	atOnce := max(1, len(commands)/500)
	for b.Loop() {
		for from := 0; from < len(commands); from += atOnce {
			b.StopTimer()
			r.index++
			r.at = r.at.Add(10 * time.Millisecond)
			e := entryOf(r.index, 1, "n1", r.at, commands[from:from+atOnce]...)
			b.StartTimer()
			out, err := r.m.Apply(e.index, e.term, e.data)
			if err != nil || len(out.Results[0].LostLeases) > 0 {
				b.Fatal(err, out)
			}
		}
	}
	round := float64(b.Elapsed().Nanoseconds()) / float64(b.N)
	b.ReportMetric(round/float64(leases), "ns/lease")
	b.ReportMetric(100*round/float64(every), "core-%")
}

// BenchmarkRenewAllocations is BenchmarkRenewRoles for 10 000 allocations of one resource.
func BenchmarkRenewAllocations(b *testing.B) {
	const many = 10_000
	for _, perCommand := range []int{1, 100, 1000} {
		b.Run(fmt.Sprintf("leases=%d", perCommand), func(b *testing.B) {
			r := newBesideAllocations(b, many, many)
			var commands []request
			for after := ""; ; {
				var c frame.AllocationRenew
				for _, one := range r.m.Allocations(after, perCommand) {
					c.Leases, after = append(c.Leases, frame.AllocationLease{ID: one.Session, Fence: one.Fence}), one.Session
				}
				if len(c.Leases) == 0 {
					break
				}
				commands = append(commands, do(c))
			}
			benchmarkRounds(b, r, commands, many)
		})
	}
}

// BenchmarkPassAllocationsOn decides entries in which a holder releases, the first in the queue is granted, and another
// request enters it, by how many wait.
func BenchmarkPassAllocationsOn(b *testing.B) {
	for _, waiting := range []int{1, 10_000} {
		b.Run(fmt.Sprintf("waiting=%d", waiting), func(b *testing.B) {
			r := newBesideAllocations(b, waiting+1, 1)
			first, next := 0, waiting+1
			for b.Loop() {
				b.StopTimer()
				r.index++
				r.at = r.at.Add(time.Microsecond)
				e := entryOf(r.index, 1, "n1", r.at, do(frame.AllocationRelease{ID: allocationName(first)}), oneOf(next))
				first, next = first+1, next+1
				b.StartTimer()
				if _, err := r.m.Apply(e.index, e.term, e.data); err != nil {
					b.Fatal(err)
				}
			}
			x, found := r.m.Allocation(allocationName(first))
			if res, _ := r.m.Resource("A"); !found || x.Fence == 0 || res.Grants != 1 || res.Waiting != waiting {
				b.Errorf("%+v is granted: %t, of %+v", x, found, res)
			}
		})
	}
}

func allocationName(n int) string { return fmt.Sprintf("allocation-%08d", n) }

// oneOf requests one of the resource A.
func oneOf(n int) request {
	return do(frame.AllocationRequest{ID: allocationName(n), Holder: fmt.Sprintf("gpu-%d:4711", n%300),
		Amounts: []frame.Amount{{Resource: "A", Amount: 1}}, Priority: frame.PriorityNormal, TTL: time.Hour, Wait: true})
}

// newBesideAllocations has that many requests of one of a resource, which is enough for capacity of them, and a log
// without cursors.
func newBesideAllocations(t testing.TB, requests, capacity int) *beside {
	b := newBeside(t, nil, 0, 0)
	b.entry(t, do(frame.ResourceSet{Name: "A", Capacity: uint64(capacity)}))
	for n := 0; n < requests; n += 100 {
		var list []request
		for i := n; i < min(n+100, requests); i++ {
			list = append(list, oneOf(i))
		}
		b.entry(t, list...)
	}
	return b
}

// BenchmarkMemory fills a machine with 10 000 roles, claims that wait, allocations, requests that wait or scheduled
// events, and reports the heap that one takes.
func BenchmarkMemory(b *testing.B) {
	const many = 10_000
	heap := func() float64 {
		var s runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&s)
		return float64(s.HeapAlloc)
	}
	for _, c := range []struct {
		of   string
		fill func(testing.TB) *beside
	}{
		{"roles", func(t testing.TB) *beside { return newBesideRoles(t, many, 0) }},
		{"claims", func(t testing.TB) *beside { return newBesideRoles(t, many/10, 9) }},
		{"allocations", func(t testing.TB) *beside { return newBesideAllocations(t, many, many) }},
		{"requests", func(t testing.TB) *beside { return newBesideAllocations(t, many, 1) }},
		{"scheduled", func(t testing.TB) *beside { return newBesideSchedules(t, many) }},
	} {
		b.Run("of="+c.of, func(b *testing.B) {
			for b.Loop() {
				before := heap()
				empty := newBeside(b, nil, 0, 0)
				without := heap()
				full := c.fill(b)
				b.ReportMetric((heap()-without-(without-before))/many, "B/each")
				runtime.KeepAlive(empty)
				runtime.KeepAlive(full)
			}
		})
	}
}

// scheduleOf schedules the n-th event.
func scheduleOf(n int, at time.Time) request {
	e := training(n)
	return do(frame.Schedule{ID: fmt.Sprintf("schedule-%08d", n), At: at, Event: frame.EncodeCopy(&e)})
}

// newBesideSchedules has that many events scheduled for a later time, and a log without cursors.
func newBesideSchedules(t testing.TB, events int) *beside {
	b := newBeside(t, nil, 0, 0)
	for n := 0; n < events; n += 100 {
		var list []request
		for i := range 100 {
			list = append(list, scheduleOf(n+i, epoch.Add(1000*time.Hour)))
		}
		b.entry(t, list...)
	}
	return b
}

// BenchmarkSchedule decides pairs of entries, of which one schedules an event and the next publishes it, by how many
// others wait for their time.
func BenchmarkSchedule(b *testing.B) {
	for _, waiting := range []int{0, 10_000} {
		b.Run(fmt.Sprintf("waiting=%d", waiting), func(b *testing.B) {
			r, next := newBesideSchedules(b, waiting), waiting
			for b.Loop() {
				b.StopTimer()
				r.at = r.at.Add(time.Millisecond)
				one := entryOf(r.index+1, 1, "n1", r.at, scheduleOf(next, r.at.Add(time.Millisecond)))
				r.at, next = r.at.Add(time.Millisecond), next+1
				two := entryOf(r.index+2, 1, "n1", r.at)
				r.index += 2
				b.StartTimer()
				for _, e := range []entry{one, two} {
					if _, err := r.m.Apply(e.index, e.term, e.data); err != nil {
						b.Fatal(err)
					}
				}
			}
		})
	}
}

// BenchmarkBesideRoles decides entries of one event beside roles that they do not touch.
func BenchmarkBesideRoles(b *testing.B) {
	for _, c := range []struct{ roles, waiters int }{{0, 0}, {10_000, 0}, {10_000, 10}} {
		b.Run(fmt.Sprintf("roles=%d/waiters=%d", c.roles, c.waiters), func(b *testing.B) {
			r := newBesideRoles(b, c.roles, c.waiters)
			for b.Loop() {
				b.StopTimer()
				r.index++
				r.at = r.at.Add(time.Microsecond)
				e := entryOf(r.index, 1, "n1", r.at, r.requests()...)
				b.StartTimer()
				if _, err := r.m.Apply(e.index, e.term, e.data); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func roleName(n int) string { return fmt.Sprintf("ROLE_%06d", n) }

// newBesideRoles has that many roles held, with that many waiters each, and a log without cursors.
func newBesideRoles(t testing.TB, roles, waiters int) *beside {
	b := newBeside(t, nil, 0, 0)
	for n := 0; n < roles; n += 100 {
		var claims []request
		for role := n; role < n+100; role++ {
			for w := range waiters + 1 {
				claims = append(claims, claim(roleName(role), fmt.Sprintf("gpu-%d:4711:%d", role%300, w), time.Hour))
			}
		}
		b.entry(t, claims...)
	}
	return b
}
