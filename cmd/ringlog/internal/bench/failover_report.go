package bench

import (
	"fmt"
	"math"
	"slices"
	"strconv"

	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/ringrift/ringlog/cmd/ringlog/internal/shell"
)

// failoverResult is the benchmark's result.
type failoverResult struct {
	Bench  string   `json:"bench"`
	Voters int      `json:"voters"`
	Timing []string `json:"timing"` // arguments of serve; none are the defaults
	// nil if there was no such act.
	Kills     *gapSummary `json:"kills,omitempty"`
	StepDowns *gapSummary `json:"step_downs,omitempty"`
	// in their order
	Acts  []failoverAct  `json:"acts"`
	Audit *failoverAudit `json:"audit,omitempty"` // nil where it was cut short
	// it was cut short
	Partial bool `json:"partial"`
}

// gapSummary is how long the gaps of one kind of act are, and the medians of their
// parts, in milliseconds.
type gapSummary struct {
	Count int     `json:"count"`
	MinMs float64 `json:"min_ms"`
	// of the gaps, as Min, P95 and Max
	MedianMs float64 `json:"median_ms"`
	P95Ms    float64 `json:"p95_ms"`
	MaxMs    float64 `json:"max_ms"`
	DetectMs float64 `json:"detect_median_ms"`
	ElectMs  float64 `json:"elect_median_ms"`
	ResumeMs float64 `json:"resume_median_ms"`
}

// result summarizes the acts so far.
func (f *failover) result(partial bool) failoverResult {
	// Concat copies, and makes an empty list of nil, which JSON shows as [].
	return failoverResult{Bench: "failover", Voters: f.opts.voters, Timing: slices.Concat([]string{}, f.opts.timing),
		Kills: summarize(f.acts, actKill), StepDowns: summarize(f.acts, actStepDown),
		Acts: slices.Concat([]failoverAct{}, f.acts), Partial: partial}
}

// summarize returns the gaps of the acts of a kind, nil if there was no such act. Each column is sorted
// by itself, so its median is its own.
func summarize(acts []failoverAct, kind string) *gapSummary {
	// column returns one figure of the acts of this kind, sorted.
	column := func(of func(failoverAct) float64) (list []float64) {
		for _, a := range acts {
			if a.Act == kind {
				list = append(list, of(a))
			}
		}
		slices.Sort(list)
		return list
	}
	gaps := column(func(a failoverAct) float64 { return a.GapMs })
	if len(gaps) == 0 {
		return nil
	}
	return &gapSummary{Count: len(gaps), MinMs: gaps[0], MedianMs: median(gaps), P95Ms: rank(gaps, 95),
		MaxMs:    gaps[len(gaps)-1],
		DetectMs: median(column(func(a failoverAct) float64 { return a.DetectMs })),
		ElectMs:  median(column(func(a failoverAct) float64 { return a.ElectMs })),
		ResumeMs: median(column(func(a failoverAct) float64 { return a.ResumeMs }))}
}

// median returns the median of a sorted list, which is not empty, to three decimals.
func median(sorted []float64) float64 {
	// Half the sum of the two in the middle, which are the same one of an odd number.
	n := len(sorted)
	// 500 instead of 1000, as the sum has two values.
	return math.Round(500*(sorted[(n-1)/2]+sorted[n/2])) / 1000
}

// rank returns a percentile of a sorted list: the least value that at least percent of it do not exceed.
func rank(sorted []float64, percent int) float64 {
	// Rounded up to a rank, so the value is one that was measured.
	return sorted[max(0, (len(sorted)*percent+99)/100-1)]
}

// print prints it as JSON, or as one table of all and one of each kind.
func (r failoverResult) print(sh *shell.Shell) error {
	// Programs get each act and all figures at once.
	if sh.JSON {
		return sh.PrintLine(r)
	}
	// Whole milliseconds are as exact as the polling is.
	ms := func(v float64) string { return strconv.FormatFloat(v, 'f', 0, 64) }
	// The first table has a row for each act, the second one for each kind that occurred.
	var rows []table.Row
	for i, a := range r.Acts {
		rows = append(rows, table.Row{i + 1, a.Act, a.From, a.To, a.Term, ms(a.GapMs), ms(a.DetectMs),
			ms(a.ElectMs), ms(a.ResumeMs)})
	}
	if err := sh.Table(table.Row{"", "act", "from", "to", "term", "gap ms", "detect", "elect", "resume"},
		rows); err != nil {
		return err
	}
	if _, err := fmt.Fprintln(sh.Out); err != nil {
		return err
	}
	rows = nil
	for _, kind := range []struct {
		name string
		of   *gapSummary
	}{{actKill, r.Kills}, {actStepDown, r.StepDowns}} {
		if s := kind.of; s != nil {
			rows = append(rows, table.Row{kind.name, s.Count, ms(s.MinMs), ms(s.MedianMs), ms(s.P95Ms),
				ms(s.MaxMs), ms(s.DetectMs), ms(s.ElectMs), ms(s.ResumeMs)})
		}
	}
	if err := sh.Table(table.Row{"act", "times", "gap min", "median", "p95", "max ms", "detect median", "elect",
		"resume"}, rows); err != nil {
		return err
	}
	// A run that was cut short has no audit.
	if r.Audit != nil {
		sh.Say("failover: %d voters; %s", r.Voters, r.Audit)
	}
	return nil
}
