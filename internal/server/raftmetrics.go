package server

import (
	"fmt"
	"strings"
	"sync"

	raftmetrics "github.com/hashicorp/go-metrics/compat"
	"github.com/prometheus/client_golang/prometheus"
)

// RaftMetrics shows raft's own measurements in a registry. Raft keeps them in one place for the whole process, so
// a program calls it once, before its first node. It uses whichever metrics library the build selects for raft.
func RaftMetrics(registry prometheus.Registerer) error {
	sink := &raftSink{all: map[string]prometheus.Collector{}}
	if err := registry.Register(sink); err != nil {
		return fmt.Errorf("server: raft metrics: %w", err)
	}
	// Host names and Go's runtime are not raft's, and other collectors show them.
	cfg := raftmetrics.DefaultConfig("")
	cfg.EnableHostname, cfg.EnableRuntimeMetrics = false, false
	if _, err := raftmetrics.NewGlobal(cfg, sink); err != nil {
		return fmt.Errorf("server: raft metrics: %w", err)
	}
	return nil
}

// raftSink keeps raft's samples as histograms. The metrics library's own sink keeps summaries, which take several
// percent of a node's CPU where it stores entry by entry, and whose quantiles cannot be added up over nodes.
type raftSink struct {
	mu  sync.RWMutex
	all map[string]prometheus.Collector // by kind, name and labels, as series joins them
}

var (
	// The sink takes raft's samples, and is a collector of what it has.
	_ raftmetrics.MetricSink = (*raftSink)(nil)
	_ prometheus.Collector   = (*raftSink)(nil)
)

// Describe implements prometheus.Collector: raft names its series as it goes.
func (s *raftSink) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (s *raftSink) Collect(out chan<- prometheus.Metric) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	// The lock is held for reading: samples may be added meanwhile.
	for _, c := range s.all {
		c.Collect(out)
	}
}

// SetGauge implements MetricSink, as do all below.
func (s *raftSink) SetGauge(key []string, v float32) { s.SetGaugeWithLabels(key, v, nil) }

func (s *raftSink) SetGaugeWithLabels(key []string, v float32, labels []raftmetrics.Label) {
	// Each kind has its constructor; series calls it once for a name.
	newGauge := func(o prometheus.Opts) prometheus.Gauge { return prometheus.NewGauge(prometheus.GaugeOpts(o)) }
	series(s, 'g', key, labels, newGauge).Set(float64(v))
}

// EmitKey drops what is not a series.
func (s *raftSink) EmitKey([]string, float32) {}

func (s *raftSink) IncrCounter(key []string, v float32) { s.IncrCounterWithLabels(key, v, nil) }

func (s *raftSink) IncrCounterWithLabels(key []string, v float32, labels []raftmetrics.Label) {
	newCounter := func(o prometheus.Opts) prometheus.Counter { return prometheus.NewCounter(prometheus.CounterOpts(o)) }
	series(s, 'c', key, labels, newCounter).Add(float64(v))
}

func (s *raftSink) AddSample(key []string, v float32) { s.AddSampleWithLabels(key, v, nil) }

func (s *raftSink) AddSampleWithLabels(key []string, v float32, labels []raftmetrics.Label) {
	series(s, 'h', key, labels, func(o prometheus.Opts) prometheus.Histogram {
		return prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:        o.Name,
			Help:        o.Help,
			ConstLabels: o.ConstLabels,
			Buckets:     sampleBuckets,
		})
	}).Observe(float64(v))
}

// sampleBuckets suit milliseconds, which most samples are, and numbers of entries.
var sampleBuckets = []float64{.01, .03, .1, .3, 1, 3, 10, 30, 100, 300, 1000, 3000, 10_000}

// series returns the series of a kind, name and labels, and creates it the first time. A kind is of one type
// C.
func series[C prometheus.Collector](
	s *raftSink, kind byte, key []string, labels []raftmetrics.Label,
	create func(prometheus.Opts) C,
) C {
	// Raft measures often, so that finding a series should not allocate. Separators keep the parts of an id apart.
	var buffer [160]byte
	id := append(buffer[:0], kind)
	for _, part := range key {
		id = append(append(id, 0), part...)
	}
	for _, l := range labels {
		id = append(append(append(append(id, 1), l.Name...), 0), l.Value...)
	}
	// Most calls find their series under the read lock.
	s.mu.RLock()
	found, there := s.all[string(id)]
	s.mu.RUnlock()
	if there {
		return found.(C)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	// Another goroutine may have created it between the two locks.
	found, there = s.all[string(id)]
	if there {
		return found.(C)
	}
	// Prometheus takes none of these characters in a name.
	name := strings.NewReplacer(" ", "_", ".", "_", "=", "_", "-", "_", "/", "_").Replace(strings.Join(key, "_"))
	values := prometheus.Labels{}
	for _, l := range labels {
		values[l.Name] = strings.ToValidUTF8(l.Value, "?")
	}
	// The first caller creates it, and all later ones share it.
	c := create(prometheus.Opts{Name: name, Help: raftHelp(key), ConstLabels: values})
	s.all[string(id)] = c
	return c
}

// raftHelp describes a series of raft, which has no text for it: by its name there, which raft's documents explain.
func raftHelp(key []string) string {
	return fmt.Sprintf("Measured by hashicorp/raft as %s; times are in milliseconds.", strings.Join(key, "."))
}
