package fsm

import (
	"fmt"
	"testing"
	"time"

	"github.com/ringrift/ringlog/event"
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
