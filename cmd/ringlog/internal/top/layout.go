package top

import (
	"strings"

	"github.com/jedib0t/go-pretty/v6/text"

	"github.com/ringrift/ringlog/cmd/ringlog/internal/shell"
)

// column is one of a table.
type column struct {
	name  string // its title, which layout makes upper case
	right bool   // it has numbers
	least int    // it may be cut to so many columns of the terminal; 0 is never
	extra int    // the higher, the sooner it is left out where there is not enough room; 0 is never
}

// cell is a text, with the tone that it is painted in.
type cell struct {
	text string
	tone shell.Tone
}

// gap is between two columns.
const gap = "  "

// layout returns a table of which each row is one line of at most wide columns. What it leaves out depends on all rows,
// so that nothing moves while one scrolls.
func (m Model) layout(columns []column, rows [][]cell, wide int) part {
	// Each column starts as wide as its widest text. Texts are cleaned first, as that changes their width.
	widths := make([]int, len(columns))
	for i, c := range columns {
		widths[i] = width(c.name)
		for _, row := range rows {
			row[i].text = clean(row[i].text)
			widths[i] = max(widths[i], width(row[i].text))
		}
	}
	out := make([]bool, len(columns)) // columns that are left out
	// total returns how wide the table is, with columns that may be cut as narrow as they get if least is set.
	total := func(least bool) int {
		sum := -len(gap)
		for i, c := range columns {
			switch {
			case out[i]:
			case least && c.least > 0:
				sum += min(widths[i], c.least) + len(gap)
			default:
				sum += widths[i] + len(gap)
			}
		}
		return sum
	}
	// First what can be done without is left out, then what is longest is cut.
	for total(true) > wide {
		last := -1
		// The column with the highest extra goes first. Of equal ones it is the first from the left.
		for i, c := range columns {
			if !out[i] && c.extra > 0 && (last < 0 || c.extra > columns[last].extra) {
				last = i
			}
		}
		// Nothing else can be left out: row cuts what is too wide then.
		if last < 0 {
			break
		}
		out[last] = true
	}
	// One column of the terminal at a time is taken from the widest column, so that the long ones end equally wide.
	for total(false) > wide {
		widest := -1
		for i, c := range columns {
			if !out[i] && c.least > 0 && widths[i] > c.least && (widest < 0 || widths[i] > widths[widest]) {
				widest = i
			}
		}
		if widest < 0 {
			break
		}
		widths[widest]--
	}
	// The titles are laid out as a row, with the widths of the rows.
	var p part
	titles := make([]cell, len(columns))
	for i, c := range columns {
		titles[i].text = strings.ToUpper(c.name)
	}
	p.title = m.row(columns, titles, widths, out, wide)
	for _, row := range rows {
		p.lines = append(p.lines, m.row(columns, row, widths, out, wide))
	}
	return p
}

// row returns one line of a table. It is at most wide columns of the terminal, without spaces at its end.
func (m Model) row(columns []column, row []cell, widths []int, out []bool, wide int) string {
	var b strings.Builder
	used := 0
	for i, c := range columns {
		if out[i] {
			continue
		}
		if used > 0 {
			b.WriteString(gap[:max(0, min(len(gap), wide-used))])
			used += len(gap)
		}
		// On a terminal that is too narrow for any row, what is beyond its edge is cut.
		room := min(widths[i], wide-used)
		if room <= 0 {
			break
		}
		shown := pad(cut(row[i].text, room), room, c.right)
		// Spaces are not painted, so that a line has no more sequences than words.
		word := strings.TrimSpace(shown)
		b.WriteString(strings.Replace(shown, word, m.paint(row[i].tone, word), 1))
		used += room
	}
	return strings.TrimRight(b.String(), " ")
}

// width returns how many columns of a terminal a text takes. Some characters take two, and escape sequences none.
func width(s string) int { return text.StringWidthWithoutEscSequences(s) }

// cut returns a text that takes at most so many columns.
func cut(s string, columns int) string {
	switch {
	case columns <= 0:
		return ""
	case width(s) <= columns:
		return s
	}
	return text.Snip(s, columns, "…")
}

// pad fills a text with spaces up to so many columns.
func pad(s string, columns int, left bool) string {
	spaces := strings.Repeat(" ", max(0, columns-width(s)))
	if left {
		return spaces + s
	}
	return s + spaces
}
