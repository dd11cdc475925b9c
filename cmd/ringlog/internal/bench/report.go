package bench

import (
	"cmp"
	"encoding/csv"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/ringrift/ringlog/cmd/ringlog/internal/shell"
)

// benchResult is the result for one payload size. Seconds and rates are of
// the measured part alone, LatencyOf says what the latencies are of, MB are 10^6 bytes of payload.
type benchResult struct {
	Bench           string  `json:"bench"`
	Size            int     `json:"size"` // asked for
	Events          int64   `json:"events"`
	Seconds         float64 `json:"seconds"`
	EventsPerSecond float64 `json:"events_per_second"`
	MBPerSecond     float64 `json:"mb_per_second"`
	quantiles
	Voters     int             `json:"voters"`
	EventBytes int             `json:"event_bytes"` // of a payload, as published
	Batch      int             `json:"batch"`
	Callers    int             `json:"callers"`
	Warmup     int             `json:"warmup_events"`
	Members    int             `json:"members,omitempty"` // of a group
	Keys       int             `json:"keys,omitempty"`    // of its events
	Partial    bool            `json:"partial"`           // it was cut short
	LatencyOf  string          `json:"latency_of"`
	Histogram  []latencyBucket `json:"histogram"`
}

// benchReport prints results as they come: rows of JSON or CSV, or for people a
// histogram each and at the end one table of all.
// A result is printed as soon as it is there: a long run shows what it has.
type benchReport struct {
	sh   *shell.Shell
	csv  *csv.Writer // nil unless asked for
	rows []benchResult
}

// newBenchReport prints results as they come, in the form that was asked for.
func newBenchReport(sh *shell.Shell, asCSV bool) *benchReport {
	out := &benchReport{sh: sh}
	// CSV has a writer of its own, which quotes what has to be quoted.
	if asCSV {
		out.csv = csv.NewWriter(sh.Out)
	}
	return out
}

// add takes in the result of one size.
func (p *benchReport) add(r benchResult) error {
	// All rows are kept, for the table at the end.
	p.rows = append(p.rows, r)
	switch {
	case p.csv != nil:
		if len(p.rows) == 1 {
			_ = p.csv.Write(csvHeader()) // Error below reports it, too
		}
		_ = p.csv.Write(csvRow(r))
		p.csv.Flush()
		return p.csv.Error()
	case p.sh.JSON:
		return p.sh.PrintLine(r)
	}
	return p.text(r)
}

// csvHeader names the columns.
func csvHeader() []string {
	// The names are those of the JSON keys.
	return []string{"bench", "size", "batch", "callers", "voters", "warmup_events", "events", "event_bytes", "seconds",
		"events_per_second", "mb_per_second", "p50_ms", "p90_ms", "p99_ms", "p999_ms", "max_ms", "partial"}
}

// csvRow is a result as a row.
func csvRow(r benchResult) []string {
	// Three decimals are more than a measurement is exact to.
	f := func(v float64) string { return strconv.FormatFloat(v, 'f', 3, 64) }
	return []string{r.Bench, strconv.Itoa(r.Size), strconv.Itoa(r.Batch), strconv.Itoa(r.Callers),
		strconv.Itoa(r.Voters),
		strconv.Itoa(r.Warmup), strconv.FormatInt(r.Events, 10), strconv.Itoa(r.EventBytes), f(r.Seconds),
		f(r.EventsPerSecond),
		f(r.MBPerSecond), f(r.P50ms), f(r.P90ms), f(r.P99ms), f(r.P999ms), f(r.MaxMs), strconv.FormatBool(r.Partial)}
}

// text prints a result and its histogram.
func (p *benchReport) text(r benchResult) error {
	// Nothing was measured: a histogram has a bucket for each latency.
	if len(r.Histogram) == 0 {
		return nil
	}
	_, err := fmt.Fprintf(p.sh.Out, "payloads of %d bytes: milliseconds of %s%s\n%s\n", r.EventBytes, r.LatencyOf,
		partialMark(r), bars(r.Histogram))
	return err
}

// partialMark marks a result that was cut short.
func partialMark(r benchResult) string {
	if r.Partial {
		return ", partial"
	}
	return ""
}

// barWidth is the length of the longest bar.
const barWidth = 40

// bars draws a line for each bucket, whose bar is as long as its share. No bucket with events is without a bar.
func bars(buckets []latencyBucket) string {
	// The longest bar is that of the fullest bucket.
	// There is a bucket: text is the only caller, and returns before if there is none.
	total, most := int64(0), slices.MaxFunc(buckets,
		func(a, b latencyBucket) int { return cmp.Compare(a.Count, b.Count) }).Count
	for _, b := range buckets {
		total += b.Count
	}
	var text strings.Builder
	for _, b := range buckets {
		// Rounded up: a bucket with a single event still shows.
		length := (b.Count*barWidth + most - 1) / most
		line := fmt.Sprintf("  <= %-8s %9d %5.1f %%  %s", strconv.FormatFloat(b.AtMostMs, 'f', -1, 64), b.Count,
			100*float64(b.Count)/float64(total), strings.Repeat("█", int(length)))
		text.WriteString(strings.TrimRight(line, " ") + "\n")
	}
	return text.String()
}

// finish prints what is about all sizes at once.
func (p *benchReport) finish() error {
	// Programs have everything from the rows.
	if p.csv != nil || p.sh.JSON || len(p.rows) == 0 {
		return nil
	}
	header := table.Row{"payload", "events", "seconds", "events/s", "MB/s", "p50 ms", "p90 ms", "p99 ms",
		"p99.9 ms", "max ms", ""}
	var rows []table.Row
	for _, r := range p.rows {
		ms := func(v float64) string { return strconv.FormatFloat(v, 'f', 2, 64) }
		rows = append(rows, table.Row{r.EventBytes, r.Events, fmt.Sprintf("%.2f", r.Seconds),
			fmt.Sprintf("%.0f", r.EventsPerSecond),
			fmt.Sprintf("%.1f", r.MBPerSecond), ms(r.P50ms), ms(r.P90ms), ms(r.P99ms), ms(r.P999ms), ms(r.MaxMs),
			strings.TrimPrefix(partialMark(r), ", ")})
	}
	// The parameters are notices below it: the same for all rows.
	if err := p.sh.Table(header, rows); err != nil {
		return err
	}
	r := p.rows[0]
	if r.Members > 0 {
		p.sh.Say("%s: %s, %s", r.Bench, shell.Count(r.Members, "member"), shell.Count(r.Keys, "key"))
	}
	p.sh.Say("%s: %s, batches of %d, %s, warm-up of %s", r.Bench, shell.Count(r.Voters, "voter"), r.Batch,
		shell.Count(r.Callers, "caller"), shell.Count(r.Warmup, "event"))
	return nil
}
