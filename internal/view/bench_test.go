package view_test

import (
	"fmt"
	"math/rand/v2"
	"syscall"
	"testing"
	"time"

	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/internal/view"
)

// BenchmarkRebuild folds events of a hundred keys, some a minute apart, into views of a few fields.
func BenchmarkRebuild(b *testing.B) {
	views := map[string]*view.View{"plain": compile(b, `{"name": "plain", "types": ["EVALUATION_COMPLETED"], "fields": {
		"last": {"kind": "last", "of": "payload.elo_estimate"}, "count": {"kind": "count"},
		"mean": {"kind": "mean", "of": "payload.elo_estimate"},
		"smooth": {"kind": "ewma", "of": "payload.elo_estimate", "half_life": "1h"},
		"rate": {"kind": "rate", "window": "1h"}}}`)}
	all, err := view.Platform()
	if err != nil {
		b.Fatal(err)
	}
	for _, d := range all {
		if views[d.Name], err = view.Compile(d); err != nil {
			b.Fatal(err)
		}
	}
	random := rand.New(rand.NewPCG(1, 2))
	var events []*event.Event
	for s := newSeries(); len(events) < 20_000; {
		ev := s.next(time.Second, event.EvaluationCompleted, "", fmt.Sprintf(
			`{"board_type": "hex8", "config_key": "hex8_%dp", "duration": %g, "elo_estimate": %g, "game_count": %d, `+
				`"new_games": %d, "win_rate": %g}`,
			random.IntN(100), random.Float64()*100, 1500+random.Float64()*100, 1+random.IntN(50), random.IntN(50),
			random.Float64()))
		ev.Source = fmt.Sprintf("worker-%d", random.IntN(30))
		events = append(events, ev)
	}
	of := map[string]event.Type{"throughput": "SELFPLAY_COMPLETE", "training_urgency": "NEW_GAMES_AVAILABLE"}
	for name, v := range views {
		b.Run(name, func(b *testing.B) {
			rows := newMemory()
			offset := uint64(0)
			b.ReportAllocs()
			before := processorTime(b)
			for b.Loop() {
				ev := *events[offset%uint64(len(events))]
				offset++
				if t, ok := of[name]; ok {
					ev.Type = t
				}
				if name == "plain" {
					ev.Key = ev.Source
				}
				ev.Offset, ev.AppendedAt = offset, start.Add(time.Duration(offset)*time.Second)
				if _, err := v.Apply(rows, &ev); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.N)/(processorTime(b)-before).Seconds(), "events/core-s")
		})
	}
}

// processorTime returns how long the process has run on processors, which other processes do not lengthen.
func processorTime(b *testing.B) time.Duration {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		b.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}
