package shell

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

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

// Paint colours a text if the output is a terminal that takes colours.
func (sh *Shell) Paint(t Tone, s string) string {
	if !sh.Colour || s == "" {
		return s
	}
	return "\x1b[" + string(t) + "m" + s + "\x1b[0m"
}

// PaintErr colours a text of a notice, which is printed on stderr.
// Standard output may be a terminal while standard error goes to a file.
func (sh *Shell) PaintErr(t Tone, s string) string {
	if !sh.ErrTerminal {
		return s
	}
	return sh.Paint(t, s)
}

// Width returns how many columns the output has, 0 where it is no terminal: then nothing is wrapped or cut.
func (sh *Shell) Width() int { return sh.columns(sh.Out, sh.OutTerminal) }

// columns returns how many columns a terminal has. It is asked each time, as a window may change.
func (sh *Shell) columns(w io.Writer, terminal bool) int {
	if !terminal {
		return 0
	}
	// The variable is for terminals whose size is not known, and for people who want it narrower.
	if n, err := strconv.Atoi(sh.Getenv("COLUMNS")); err == nil && n > 0 {
		return n
	}
	if f, ok := w.(interface{ Fd() uintptr }); ok {
		if n, _, err := term.GetSize(int(f.Fd())); err == nil && n > 0 {
			return n
		}
	}
	// A terminal that does not know its size is taken for one of the usual width.
	return 80
}

// Height returns how many lines the terminal of the output has, 0 if there is none or that is not known.
func (sh *Shell) Height() int {
	if f, ok := sh.Out.(*os.File); ok && sh.OutTerminal {
		if _, n, err := term.GetSize(int(f.Fd())); err == nil {
			return n
		}
	}
	return 0
}

// Extra is the name of a column that is left out on a terminal without enough room for it.
type Extra string

// Table prints rows below a header, in plain columns, which cut and awk can take apart. On a terminal, cells are
// wrapped so that no row is wider than it.
func (sh *Shell) Table(header table.Row, rows []table.Row) error {
	_, err := fmt.Fprintln(sh.Out, sh.TableText(header, rows))
	return err
}

// TableText returns what Table prints.
func (sh *Shell) TableText(header table.Row, rows []table.Row) string {
	width := sh.Width()
	// Only a terminal has too little room. What is read by programs has all columns.
	if width > 0 {
		header, rows = withoutExtras(header, rows, width)
	}
	// The library's style is changed until only spaces are left between columns.
	t := table.NewWriter()
	style := table.StyleDefault
	style.Options = table.OptionsNoBordersAndSeparators
	style.Box.PaddingLeft, style.Box.PaddingRight = "", columnGap
	style.Format.Header = text.FormatUpper
	t.SetStyle(style)
	// The header is painted here and not by the library, whose switch for colours is global.
	if len(header) > 0 {
		names := make(table.Row, len(header))
		for i, name := range header {
			names[i] = sh.Paint(Strong, fmt.Sprint(name))
		}
		t.AppendHeader(names)
	}
	t.AppendRows(rows)
	if width > 0 {
		t.SetColumnConfigs(fit(header, rows, width))
	}
	t.SuppressTrailingSpaces()
	return t.Render()
}

// columnGap is between two columns.
const columnGap = "  "

// readable is how narrow a column of sentences may get before a column that is Extra is left out.
const readable = 24

// withoutExtras leaves out the last column that is Extra, until the others have enough room.
func withoutExtras(header table.Row, rows []table.Row, width int) (table.Row, []table.Row) {
	// Each turn leaves out one column, so this ends.
	for {
		// natural is as wide as the cells are; floor as wide as the longest word.
		natural, floor := widthsOf(header, rows)
		least, last := len(columnGap)*(len(natural)-1), -1
		// A column of short cells keeps its width. One of sentences has to stay readable.
		for i := range natural {
			least += min(natural[i], max(floor[i], readable))
		}
		for i, name := range header {
			if _, extra := name.(Extra); extra {
				last = i
			}
		}
		if least <= width || last < 0 {
			return header, rows
		}
		// The caller's rows are not changed.
		without := func(row table.Row) table.Row { return slices.Concat(row[:last], row[min(last+1, len(row)):]) }
		header = without(header)
		shorter := make([]table.Row, len(rows))
		for i, row := range rows {
			if shorter[i] = row; len(row) > last {
				shorter[i] = without(row)
			}
		}
		rows = shorter
	}
}

// widthsOf returns for each column how wide its cells are, and how wide they are at least without a broken word.
func widthsOf(header table.Row, rows []table.Row) (natural, floor []int) {
	// The header counts as a row.
	for _, row := range append([]table.Row{header}, rows...) {
		for i := range row {
			// A row may be shorter than others.
			if i == len(natural) {
				natural, floor = append(natural, 0), append(floor, 0)
			}
			cell := fmt.Sprint(row[i])
			// Widths are those on a screen: an escape sequence has none, and some letters have two.
			natural[i] = max(natural[i], text.LongestLineLen(cell))
			for _, part := range partsOf(cell) {
				floor[i] = max(floor[i], text.StringWidthWithoutEscSequences(strings.TrimSpace(part)))
			}
		}
	}
	return natural, floor
}

// fit returns the widths of columns that make a table fit. Sentences are narrowed first, down to their longest word;
// if that is not enough, words are broken.
func fit(header table.Row, rows []table.Row, width int) []table.ColumnConfig {
	natural, floor := widthsOf(header, rows)
	// The room for the cells themselves; the last column has a gap too, which is not printed.
	room := width - len(columnGap)*(len(natural)-1)
	least := make([]int, len(natural))
	for i := range least {
		// If words have to be broken, down to one character.
		least[i] = 1
	}
	configs := make([]table.ColumnConfig, len(natural))
	// The inner call keeps words whole. The outer one breaks them if that did not suffice.
	for i, w := range narrow(narrow(natural, floor, room), least, room) {
		configs[i] = table.ColumnConfig{Number: i + 1, WidthMax: w, WidthMaxEnforcer: WrapAt}
	}
	return configs
}

// narrow takes from the widest columns, one character after the other and none below its floor, until they fit.
// widths is changed, and returned.
func narrow(widths, floor []int, room int) []int {
	// One character at a time is taken, so that the widest columns end alike.
	total := 0
	for _, w := range widths {
		total += w
	}
	for ; total > room; total-- {
		widest := -1
		for i, w := range widths {
			// Of several that are equally wide, the first.
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

// columns is how many columns a text takes on a screen.
func columns(s string) int { return text.StringWidthWithoutEscSequences(s) }

// partsOf splits a text after its spaces and commas, where a line may be broken.
func partsOf(s string) []string {
	// The zero byte marks where to split, so spaces and commas stay with the word before them.
	return strings.FieldsFunc(breaks.ReplaceAllString(s, "$0\x00"), func(r rune) bool { return r == 0 })
}

var breaks = regexp.MustCompile(`[ ,\n]+`)

// WrapAt breaks the lines that are longer than width: after a space or a comma, and within a word only if the word
// alone is too long. What follows is indented as its line is. Colours end before a break and begin again after it.
func WrapAt(s string, width int) string {
	if text.LongestLineLen(s) <= width {
		return s
	}
	lines := strings.Split(s, "\n")
	for i, line := range lines {
		lines[i] = wrapLine(line, width)
	}
	return strings.Join(lines, "\n")
}

func wrapLine(line string, width int) string {
	indent := line[:len(line)-len(strings.TrimLeft(line, " "))]
	// On a terminal that is narrower than the indent, text would have no room.
	if len(indent) >= width {
		indent = ""
	}
	// used is the width of the present line, colour the sequence in force, escape one that has begun.
	var b []byte
	used, colour, escape := 0, "", ""
	newline := func() {
		b = bytes.TrimRight(b, " ")
		// The colour ends before the break and begins again after the indent.
		if colour != "" {
			b = append(b, text.EscapeReset...)
		}
		b = append(b, "\n"+indent+colour...)
		used = len(indent)
	}
	for _, part := range partsOf(line) {
		// A part that does not fit begins a new line, unless this line has nothing but its indent.
		if w := text.StringWidthWithoutEscSequences(strings.TrimRight(part, " ")); used > len(indent) && used+w > width {
			newline()
		}
		for _, r := range part {
			// An escape sequence has no width. Each sets one colour, or ends it.
			if r == text.EscapeStartRune || escape != "" {
				b, escape = utf8.AppendRune(b, r), escape+string(r)
				if r == text.EscapeStopRune {
					colour, escape = strings.TrimPrefix(escape, text.EscapeReset), ""
				}
				continue
			}
			// The part alone is too long: it is broken here, in its middle.
			if used+text.RuneWidth(r) > width {
				// Spaces at the end of a line are not seen.
				if r == ' ' {
					continue
				}
				newline()
			}
			b, used = utf8.AppendRune(b, r), used+text.RuneWidth(r)
		}
	}
	return string(b)
}

// Wrap breaks the lines of a text that are longer than those of the terminal, if the output is one.
func (sh *Shell) Wrap(s string) string {
	if width := sh.Width(); width > 0 {
		return WrapAt(s, width)
	}
	return s
}

// wrapColumns breaks a line of columns, which two spaces or more separate, between two of them, so that what follows is
// read as one. Only a column that is too long by itself is broken within, as WrapAt does.
func wrapColumns(line string, width int) string {
	line, end := strings.TrimSuffix(line, "\n"), line[len(strings.TrimSuffix(line, "\n")):]
	body := strings.TrimLeft(line, " ")
	indent := line[:len(line)-len(body)]
	at := -1
	// The last gap before which the columns fit into the line.
	for _, gap := range gaps.FindAllStringIndex(body, -1) {
		if columns(indent+body[:gap[0]]) <= width {
			at = gap[0]
		}
	}
	// A line that fits, or whose first column is too long, has no gap to be broken at.
	if at < 0 || columns(line) <= width {
		return WrapAt(line, width) + end
	}
	return indent + body[:at] + "\n" + wrapColumns(indent+"    "+strings.TrimLeft(body[at:], " "), width) + end
}

// gaps are between columns.
var gaps = regexp.MustCompile(`  +`)

// Wrapped returns the output with long lines broken as wrapColumns does. Each write has whole lines.
func (sh *Shell) Wrapped() io.Writer { return wrapped{sh} }

type wrapped struct{ sh *Shell }

// Write implements io.Writer.
func (w wrapped) Write(b []byte) (int, error) {
	lines := strings.SplitAfter(string(b), "\n")
	if width := w.sh.Width(); width > 0 {
		for i, line := range lines {
			lines[i] = wrapColumns(line, width)
		}
	}
	_, err := io.WriteString(w.sh.Out, strings.Join(lines, ""))
	// All of b was taken, however many bytes the breaks added.
	return len(b), err
}

// Print prints a text, which may have lines longer than those of the terminal.
func (sh *Shell) Print(s string) error {
	_, err := fmt.Fprintln(sh.Out, sh.Wrap(s))
	return err
}

// Facts prints names and values, one a line. On a terminal, a value that is longer than the line is wrapped.
func (sh *Shell) Facts(pairs ...any) error {
	// The longest name sets the column in which the values start.
	width := 0
	for i := 0; i < len(pairs); i += 2 {
		// Every other one is a name.
		width = max(width, len(pairs[i].(string)))
	}
	var b strings.Builder
	indent := "\n" + strings.Repeat(" ", width+len(columnGap))
	// Negative without a terminal: then no value is wrapped.
	room := sh.Width() - width - len(columnGap)
	for i := 0; i < len(pairs); i += 2 {
		value := fmt.Sprint(pairs[i+1])
		if room > 0 {
			value = strings.ReplaceAll(WrapAt(value, room), "\n", indent)
		}
		fmt.Fprintf(&b, "%-*s  %s\n", width, pairs[i], strings.TrimRight(value, " "))
	}
	_, err := io.WriteString(sh.Out, b.String())
	return err
}
