package server

import (
	"regexp"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

// A HELP text is read alone, beside one name: it is a sentence that says what is counted, and no other has the same.
func TestEachHelpOfTheMetricsStandsAlone(t *testing.T) {
	t.Parallel()
	s := newSite(t, nil)
	s.publish("A", 1, 1)
	s.ok("PUT", "/v1/cursors/c", "")
	s.ok("PUT", "/v1/groups/g", "")
	helps := map[string]string{}
	for line := range strings.Lines(s.ok("GET", "/metrics", "").body) {
		if rest, ok := strings.CutPrefix(line, "# HELP ringlog_"); ok {
			name, help, _ := strings.Cut(strings.TrimSpace(rest), " ")
			helps["ringlog_"+name] = help
		}
	}
	// Raft's measurements are shown by a program, not by each server.
	sink, registry := &raftSink{all: map[string]prometheus.Collector{}}, prometheus.NewRegistry()
	registry.MustRegister(sink)
	sink.IncrCounter([]string{"raft", "apply"}, 1)
	sink.AddSample([]string{"raft", "commitTime"}, 1)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		helps[f.GetName()] = f.GetHelp()
	}

	if len(helps) < 50 {
		t.Errorf("only %d metrics: %v", len(helps), helps)
	}
	sentence := regexp.MustCompile(`^[A-Z][a-z].*[a-z0-9]\.$`)
	pronoun := regexp.MustCompile(`(?i)^(of )?(those|these|them)\b|\bof those\b`)
	names := map[string]string{}
	for name, help := range helps {
		if !sentence.MatchString(help) || len(strings.Fields(help)) < 4 || pronoun.MatchString(help) {
			t.Errorf("%s: %q does not say alone what it is", name, help)
		}
		if other, used := names[help]; used {
			t.Errorf("%s and %s: %q", name, other, help)
		}
		names[help] = name
	}
}
