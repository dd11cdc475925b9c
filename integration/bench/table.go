package main

import (
	"maps"
	"slices"
	"strings"
)

// table is one of Markdown.
type table struct{ text strings.Builder }

// newTable begins a table with its heads.
func newTable(head ...string) *table {
	t := &table{}
	t.row(head...)
	t.text.WriteString("|" + strings.Repeat(" --- |", len(head)) + "\n")
	return t
}

// row adds a row. A | in a cell is escaped.
func (t *table) row(cells ...string) {
	for _, c := range cells {
		t.text.WriteString("| " + strings.ReplaceAll(c, "|", `\|`) + " ")
	}
	t.text.WriteString("|\n")
}

func (t *table) String() string { return t.text.String() }

// metric is a name in JSON and what people call it.
type metric struct{ key, name string }

// metricNames are all figures in the order of the columns.
func metricNames() []metric {
	return []metric{
		{perSecond, "events/s"},
		{p50, "p50, ms"},
		{p99, "p99, ms"},
		{longest, "max, ms"},
		{perByte, "bytes written per payload byte"},
		{caughtUp, "caught up, s"},
		{memory, "RssAnon, MB"},
		{pause, "longest wait during a snapshot, ms"},
		{usualPause, "without, ms"},
	}
}

// metricName returns what people call a figure.
func metricName(key string) string {
	for _, m := range metricNames() {
		if m.key == key {
			return m.name
		}
	}
	return key
}

// sortedKeys returns the keys of a map in order.
func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
