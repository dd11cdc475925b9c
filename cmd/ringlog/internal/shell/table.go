package shell

import (
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
	"golang.org/x/term"
)

// Tone is what a colour says. All are readable on dark and on light backgrounds: none is bright or white.
type Tone string

// The tones, each the parameter of its escape sequence.
const (
	Good   Tone = "32" // green: the leader, what is healthy
	Warn   Tone = "33" // dark yellow: what will need attention
	Bad    Tone = "31" // red: what is unhealthy or gone
	Strong Tone = "1"  // bold: what a line is about
)

// Paint colours a text where the output is a terminal that takes colours.
func (sh *Shell) Paint(t Tone, s string) string {
	if !sh.Colour || s == "" {
		return s
	}
	return "\x1b[" + string(t) + "m" + s + "\x1b[0m"
}

// PaintErr colours a text of a notice, which is printed on stderr.
func (sh *Shell) PaintErr(t Tone, s string) string {
	if !sh.ErrTerminal {
		return s
	}
	return sh.Paint(t, s)
}

// Width returns how many columns the output has, 0 where it is no terminal: then nothing is wrapped or cut. It is asked
// for each time, as a window may change.
func (sh *Shell) Width() int {
	if !sh.OutTerminal {
		return 0
	}
	// The variable is for terminals whose size is not known, and for people who want it narrower.
	if n, err := strconv.Atoi(sh.Getenv("COLUMNS")); err == nil && n > 0 {
		return n
	}
	if f, ok := sh.Out.(*os.File); ok {
		if n, _, err := term.GetSize(int(f.Fd())); err == nil && n > 0 {
			return n
		}
	}
	return 80
}

// Table prints rows below a header, in plain columns, which cut and awk can take apart. On a terminal, cells are
// wrapped so that no row is wider than it.
func (sh *Shell) Table(header table.Row, rows []table.Row) error {
	// The library's style is changed until only spaces are left between columns.
	t := table.NewWriter()
	style := table.StyleDefault
	style.Options = table.OptionsNoBordersAndSeparators
	style.Box.PaddingLeft, style.Box.PaddingRight = "", columnGap
	style.Format.Header = text.FormatUpper
	t.SetStyle(style)
	// The header is painted here and not by the library, whose switch for colours is global.
	names := make(table.Row, len(header))
	for i, name := range header {
		names[i] = sh.Paint(Strong, fmt.Sprint(name))
	}
	t.AppendHeader(names)
	t.AppendRows(rows)
	if width := sh.Width(); width > 0 {
		t.SetColumnConfigs(fit(header, rows, width))
	}
	t.SuppressTrailingSpaces()
	_, err := fmt.Fprintln(sh.Out, t.Render())
	return err
}

// columnGap is between two columns.
const columnGap = "  "

// fit returns the widths of columns that make a table fit. Sentences are narrowed first, down to their longest word
// within reason; where that is not enough, words are broken.
func fit(header table.Row, rows []table.Row, width int) []table.ColumnConfig {
	natural, floor := make([]int, len(header)), make([]int, len(header))
	for _, row := range append([]table.Row{header}, rows...) {
		for i := range min(len(row), len(header)) {
			cell := fmt.Sprint(row[i])
			natural[i] = max(natural[i], text.LongestLineLen(cell))
			for word := range strings.FieldsSeq(cell) {
				floor[i] = max(floor[i], text.StringWidthWithoutEscSequences(word))
			}
		}
	}
	// What is left for the cells themselves; the last column has a gap too, which is not printed.
	room := width - len(columnGap)*(len(header)-1)
	widths := narrow(natural, floor, room)
	least := make([]int, len(header))
	for i := range least {
		least[i] = 1
	}
	widths = narrow(widths, least, room)
	configs := make([]table.ColumnConfig, len(header))
	for i, w := range widths {
		configs[i] = table.ColumnConfig{Number: i + 1, WidthMax: w, WidthMaxEnforcer: text.WrapSoft}
	}
	return configs
}

// narrow takes from the widest columns, one character after the other and none below its floor, until they fit.
func narrow(widths, floor []int, room int) []int {
	total := 0
	for _, w := range widths {
		total += w
	}
	for ; total > room; total-- {
		widest := -1
		for i, w := range widths {
			if w > floor[i] && (widest < 0 || w > widths[widest]) {
				widest = i
			}
		}
		if widest < 0 {
			break // all are as narrow as they may be
		}
		widths[widest]--
	}
	return widths
}

// Facts prints names and values, one a line. On a terminal, a value that is longer than the line is wrapped.
func (sh *Shell) Facts(pairs ...any) error {
	// The longest name sets the column in which the values start.
	width := 0
	for i := 0; i < len(pairs); i += 2 {
		width = max(width, len(pairs[i].(string)))
	}
	var b strings.Builder
	indent := "\n" + strings.Repeat(" ", width+len(columnGap))
	room := sh.Width() - width - len(columnGap)
	for i := 0; i < len(pairs); i += 2 {
		value := fmt.Sprint(pairs[i+1])
		if room > 0 {
			value = strings.ReplaceAll(text.WrapSoft(value, room), "\n", indent)
		}
		fmt.Fprintf(&b, "%-*s  %s\n", width, pairs[i], strings.TrimRight(value, " "))
	}
	_, err := io.WriteString(sh.Out, b.String())
	return err
}
