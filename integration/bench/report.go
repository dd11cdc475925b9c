package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
)

// Report is everything that was measured, and on what.
// Its exported fields are what --json writes.
type Report struct {
	Machine     Machine             `json:"machine"`
	Settings    map[string][]string `json:"settings"` // by system
	Rounds      int                 `json:"rounds"`
	Quick       bool                `json:"quick"`
	Comparisons []Comparison        `json:"comparisons"`
	Results     []Result            `json:"results"`
	Failures    []Failure           `json:"failures"`
	Samples     []Sample            `json:"samples"`

	systems []string // in the order in which they were asked for
}

// Result is what a system gave for a work in one way, over all rounds.
type Result struct {
	Work   string            `json:"work"`
	System string            `json:"system"`
	Way    string            `json:"way"`
	Values map[string]Spread `json:"values"`
}

// newReport summarizes what was measured and compares it with the goals.
func newReport(r *runner, m Machine) *Report {
	rep := &Report{
		Machine:  m,
		Settings: map[string][]string{},
		Rounds:   r.rounds,
		Quick:    r.scale.quick,
		Results:  resultsOf(r.samples),
		Failures: r.failures,
		Samples:  r.samples,
	}
	// Also of a system that failed: its settings explain the failure.
	for _, s := range r.systems {
		rep.Settings[s.name()] = s.settings()
		rep.systems = append(rep.systems, s.name())
	}
	rep.Comparisons = compareAll(rep.Results, rep.Samples)
	return rep
}

// resultsOf summarizes samples, in the order of their first.
func resultsOf(samples []Sample) (results []Result) {
	// The values of each figure, by what was measured.
	type id struct{ work, system, way string }
	values := map[id]map[string][]float64{}
	// A map has no order: these are its keys as they first came.
	var order []id
	for _, s := range samples {
		k := id{s.Work, s.System, s.Way}
		if values[k] == nil {
			values[k], order = map[string][]float64{}, append(order, k)
		}
		for name, v := range s.Values {
			values[k][name] = append(values[k][name], v)
		}
	}
	// Their median and extremes.
	for _, k := range order {
		r := Result{Work: k.work, System: k.system, Way: k.way, Values: map[string]Spread{}}
		for name, list := range values[k] {
			r.Values[name] = spreadOf(list)
		}
		results = append(results, r)
	}
	return results
}

// write prints the tables and writes the files that are named.
func (r *Report) write(markdown, jsonFile string) error {
	// To standard output first, and into the files even if that fails: one of them will have the report.
	text := r.markdown()
	_, err := io.WriteString(os.Stdout, text)
	if markdown != "" {
		err = errors.Join(err, os.WriteFile(markdown, []byte(text), 0o644))
	}
	if jsonFile != "" {
		// It has every sample, so each median can be checked.
		all, failed := json.MarshalIndent(r, "", "  ")
		err = errors.Join(err, failed, os.WriteFile(jsonFile, append(all, '\n'), 0o644))
	}
	return err
}

// markdown returns the report as people read it: goals and ratios, a table for each work, failures, the machine.
func (r *Report) markdown() string {
	var b strings.Builder
	fmt.Fprintf(&b, "# ringlog side by side\n\n%d rounds; medians, and in brackets the least and the greatest.", r.Rounds)
	if r.Quick {
		b.WriteString(" A quick run: too short to conclude from.")
	}
	b.WriteString("\n\n## Goals\n\n")
	r.writeGoals(&b)
	// The works in the order of a turn, then those of restarts.
	works := append(allWorks(),
		work{name: restartWork, about: "a node of ringlog is killed and started again: " +
			"until it has applied what was committed when it was started; " +
			"the memory it then has, with an empty dedup window; " +
			"the longest wait of a publisher while the leader takes a snapshot, and in as many events without one"},
		work{name: restartBaseWork, about: "the same with a twentieth of the events, " +
			"and twenty snapshots in a row, so that as many waits are looked at"},
		work{name: growthWork, about: "the medians of the one by those of the other"})
	// A work without results has no section.
	for _, w := range works {
		r.writeWork(&b, w)
	}
	r.writeFailures(&b)
	r.writeMachine(&b)
	return b.String()
}

// writeGoals reports which goals are reached. A ratio divides ringlog's value by the peer's of the same round.
func (r *Report) writeGoals(b *strings.Builder) {
	// Comparisons without a goal go into a table of their own.
	judged := newTable("work", "figure", "ringlog", "against", "measured", "goal", "least", "verdict")
	others := newTable("work", "figure", "ringlog", "against", "measured")
	for _, c := range r.Comparisons {
		// The dash is for a figure by itself, which has no peer.
		cells := []string{c.Work, metricName(c.Metric), joined(c.System, c.Way), "–", c.Figure.String()}
		switch {
		case c.Peer != "":
			cells[1], cells[3] = "ratio of "+cells[1], joined(c.Peer, c.PeerWay)
		case c.Work == growthWork:
			cells[1] = "growth of " + cells[1]
		}
		if c.Verdict == "" {
			// The goal names another peer than this one.
			others.row(cells...)
			continue
		}
		sign := "≥ "
		if c.Lower {
			sign = "≤ "
		}
		judged.row(append(cells, sign+figure(c.Goal), sign+figure(c.Least), c.Verdict)...)
	}
	b.WriteString(judged.String() + "\n## Other ratios\n\n" + others.String())
}

// joined names a system and its way.
func joined(system, way string) string {
	if way == "" {
		return system
	}
	return system + ", " + way
}

// writeWork writes the table of one work: a row for each system and way, a column for each figure that any has.
func (r *Report) writeWork(b *strings.Builder, w work) {
	var own []Result
	var metrics []string
	// Systems in the order of the command line, the ways of each in the order in which they were measured.
	for _, name := range r.systems {
		for _, res := range r.Results {
			if res.Work == w.name && res.System == name {
				own = append(own, res)
			}
		}
	}
	// The columns are the figures that at least one system has.
	for _, m := range metricNames() {
		for _, res := range own {
			if _, ok := res.Values[m.key]; ok {
				metrics = append(metrics, m.key)
				break
			}
		}
	}
	if len(own) == 0 {
		// The work was not asked for, or it failed everywhere.
		return
	}
	fmt.Fprintf(b, "\n## %s\n\n%s.\n\n", w.name, strings.ToUpper(w.about[:1])+w.about[1:])
	head := []string{"system", "way"}
	for _, m := range metrics {
		head = append(head, metricName(m))
	}
	t := newTable(head...)
	for _, res := range own {
		cells := []string{res.System, cmp.Or(res.Way, "–")}
		for _, m := range metrics {
			// Of a figure that this system does not have, the empty Spread prints as a dash.
			cells = append(cells, res.Values[m].String())
		}
		t.row(cells...)
	}
	b.WriteString(t.String())
}

// writeFailures lists the first line of each error, if there were any.
func (r *Report) writeFailures(b *strings.Builder) {
	if len(r.Failures) == 0 {
		return
	}
	b.WriteString("\n## What failed\n\n")
	t := newTable("work", "system", "round", "error")
	for _, f := range r.Failures {
		// The rest of it, such as the ends of logs, is in the JSON file.
		first, _, _ := strings.Cut(f.Error, "\n")
		t.row(f.Work, f.System, fmt.Sprint(f.Round), first)
	}
	b.WriteString(t.String())
}

// writeMachine writes what the figures were taken on, and how.
func (r *Report) writeMachine(b *strings.Builder) {
	m := r.Machine
	b.WriteString("\n## On what\n\n")
	t := newTable("what", "")
	t.row("processor", fmt.Sprintf("%s, %d cores", m.CPU, m.Cores))
	t.row("memory", fmt.Sprintf("%d MB", m.MemoryMB))
	t.row("kernel, file system", m.Kernel+", "+m.FileSystem)
	// Before and after the rounds, since the disk of a virtual machine may change its speed.
	var syncs []string
	for _, ms := range m.FdatasyncMs {
		syncs = append(syncs, figure(ms)+" ms")
	}
	t.row("fdatasync of 4 KiB, median of 200, before and after", strings.Join(syncs, ", "))
	t.row("load before and after", m.LoadBefore+"; "+m.LoadAfter)
	t.row("payload; what making up an event costs each client",
		fmt.Sprintf("%s bytes; %s ns", figure(m.PayloadBytes), figure(m.GeneratorNs)))
	t.row("Go, Python", m.Go+", "+m.Python)
	// Sorted, so the reports of two runs can be compared line by line.
	for _, path := range sortedKeys(m.Versions) {
		t.row(path, m.Versions[path])
	}
	for _, name := range r.systems {
		t.row(name, strings.Join(r.Settings[name], "; "))
	}
	t.row("disturbed", disturbed(r.Samples))
	t.row("how", "three processes a system on loopback, on an empty folder each round; "+
		"all systems are up and do each work one after the other, beginning with another one each time, the rest idle; "+
		"a warm-up of each measurement is not counted; "+
		"the next begins when the processes are at rest, or after 6 s; "+
		"one during which the host took more than 5 % of the processors' working time is made again, "+
		"at most five times, and the least disturbed counts; "+
		"callers that publish one event and wait are measured in three parts of a second each")
	b.WriteString(t.String())
}

// disturbed reports how many measurements count although the host took more CPU time than is negligible.
func disturbed(samples []Sample) string {
	all, bad, most := 0, 0, 0.0
	for _, s := range samples {
		if s.Attempts > 0 {
			// A measurement that is made once, disturbed or not, has no attempts.
			all, most = all+1, max(most, s.Stolen)
		}
		if s.Stolen > maxStolen {
			bad++
		}
	}
	return fmt.Sprintf("%d of %d measurements count with more than %.0f %% of the processors' working time "+
		"taken by the host, at most %.0f %%",
		bad, all, 100*maxStolen, 100*most)
}
