package integration

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
)

// The lines of docs/reliability.md between which the table is.
const (
	tableBegins = "<!-- make soak writes what follows -->\n"
	tableEnds   = "<!-- up to here -->\n"
)

// keepResults appends a run to a file of results, and writes the table of all of them into the document.
func keepResults(results, document string, run soakRun) error {
	line, err := json.Marshal(run)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(results, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = f.Write(append(line, '\n'))
	err = errors.Join(err, f.Close())
	if err != nil {
		return err
	}
	return renderResults(results, document)
}

// renderResults writes the table of all kept runs into the document.
func renderResults(results, document string) error {
	runs, err := readResults(results)
	if err != nil {
		return err
	}
	page, err := os.ReadFile(document)
	if err != nil {
		return err
	}
	before, rest, found := strings.Cut(string(page), tableBegins)
	_, after, ended := strings.Cut(rest, tableEnds)
	if !found || !ended {
		return fmt.Errorf("%s has no place for the table", document)
	}
	return os.WriteFile(document, []byte(before+tableBegins+"\n"+soakTable(runs)+"\n"+tableEnds+after), 0o644)
}

// readResults reads the kept runs, one JSON object a line.
func readResults(file string) (runs []soakRun, err error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	for lines := json.NewDecoder(bytes.NewReader(text)); lines.More(); {
		var r soakRun
		if err := lines.Decode(&r); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		runs = append(runs, r)
	}
	return runs, nil
}

// soakTable is the table of docs/reliability.md over some runs.
func soakTable(runs []soakRun) string {
	// The sums over all runs.
	var b strings.Builder
	var sum soakCounts
	faults, notDone, never := map[string][]soakTime{}, map[string]int{}, map[string]string{}
	seconds, violations, total := 0.0, 0, 0
	for _, r := range runs {
		seconds += r.Seconds
		violations += len(r.Failures)
		sum.add(r.Counts)
		for name, times := range r.Faults {
			faults[name] = append(faults[name], times...)
			total += len(times)
		}
		for name, n := range r.NotDone {
			notDone[name] += n
		}
		maps.Copy(never, r.Never)
	}
	// What the clients did, in one row; then the faults, a row each.
	fmt.Fprintf(&b, "%d runs, %.1f hours, %d faults, %d violations.\n\n", len(runs), seconds/3600, total, violations)
	tableRow(&b, "events acknowledged", "refused", "of unknown outcome", "of those stored", "duplicates suppressed",
		"linearizable reads", "cursor operations", "of those not checked", "deliveries", "group acknowledgements")
	tableRow(&b, slices.Repeat([]any{"---"}, 10)...)
	tableRow(&b, sum.Acked, sum.Refused, sum.Unknown, sum.UnknownStored, sum.Duplicates,
		sum.LinearizableReads, sum.CursorOps, sum.CursorOpsUnchecked, sum.Deliveries, sum.Acks)
	b.WriteString("\n")
	tableRow(&b, "fault", "n", "not done", "lasts, median s",
		"no acknowledgement, median / p99 s", "recovery, median / p99 s")
	tableRow(&b, slices.Repeat([]any{"---"}, 6)...)
	for _, f := range soakFaults {
		if times := faults[f.name]; len(times) > 0 || notDone[f.name] > 0 {
			tableRow(&b, f.name, len(times), notDone[f.name],
				quantiles(times, 1, func(t soakTime) float64 { return t.Lasted }, 50),
				quantiles(times, 2, func(t soakTime) float64 { return t.NoAcks }, 50, 99),
				quantiles(times, 2, func(t soakTime) float64 { return t.Recovery }, 50, 99))
		}
	}
	// The faults that some machine or cluster lacked something for.
	var lacking []string
	for _, f := range soakFaults {
		if why := never[f.name]; why != "" {
			lacking = append(lacking, fmt.Sprintf("%s (%s)", f.name, why))
		}
	}
	if len(lacking) > 0 {
		fmt.Fprintf(&b, "\nNot possible in some of the runs: %s.\n", strings.Join(lacking, ", "))
	}
	return b.String()
}

// tableRow writes one row of a Markdown table.
func tableRow(b *strings.Builder, cells ...any) {
	for _, cell := range cells {
		fmt.Fprintf(b, "| %v ", cell)
	}
	b.WriteString("|\n")
}

// quantiles prints the values that the given percentages of the times do not exceed, with the given decimals. Of fewer
// than a hundred times the 99 % are all.
func quantiles(times []soakTime, decimals int, get func(soakTime) float64, percent ...int) string {
	var values []float64
	for _, t := range times {
		if v := get(t); v >= 0 {
			values = append(values, v)
		}
	}
	if len(values) == 0 {
		return "–"
	}
	slices.Sort(values)
	var parts []string
	for _, p := range percent {
		rank := (len(values)*p + 99) / 100
		parts = append(parts, fmt.Sprintf("%.*f", decimals, values[rank-1]))
	}
	return strings.Join(parts, " / ")
}

// add adds the counts of another run.
func (c *soakCounts) add(o soakCounts) {
	c.Acked += o.Acked
	c.Refused += o.Refused
	c.Unknown += o.Unknown
	c.UnknownStored += o.UnknownStored
	c.Duplicates += o.Duplicates
	c.LinearizableReads += o.LinearizableReads
	c.CursorOps += o.CursorOps
	c.CursorOpsUnchecked += o.CursorOpsUnchecked
	c.Deliveries += o.Deliveries
	c.Acks += o.Acks
}
