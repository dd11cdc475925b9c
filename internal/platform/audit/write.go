package audit

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/ringrift/ringlog/internal/human"
)

// Format is a form of a report.
type Format string

// The formats.
// The first two are of the report, the last two of the graph of who emits what.
const (
	Text    Format = "text"    // for people
	JSON    Format = "json"    // a Report, on one line
	DOT     Format = "dot"     // a graph for Graphviz
	Mermaid Format = "mermaid" // a flow chart for Mermaid
)

// ErrFormat is wrapped by errors about the name of a format.
var ErrFormat = errors.New("there is no such format")

// ParseFormat reads the name of a format; "" is Text. An error wraps ErrFormat.
func ParseFormat(name string) (Format, error) {
	switch f := Format(name); f {
	case "":
		return Text, nil
	case Text, JSON, DOT, Mermaid:
		return f, nil
	}
	return "", fmt.Errorf("audit: %q: %w; use text, json, dot or mermaid", name, ErrFormat)
}

// Write writes the report. Equal reports give equal bytes. An error is one of w, or wraps ErrFormat.
func (r *Report) Write(w io.Writer, f Format) error {
	// Graphs are written without checking each line: the flush at the end returns the first error.
	out := bufio.NewWriter(w)
	var err error
	switch f {
	case Text:
		err = r.writeText(out)
	case JSON:
		enc := json.NewEncoder(out)
		enc.SetEscapeHTML(false)
		err = enc.Encode(r)
	case DOT:
		r.graph().dot(out)
	case Mermaid:
		r.graph().mermaid(out)
	default:
		_, err = ParseFormat(string(f))
	}
	if err != nil {
		return err
	}
	return out.Flush()
}

// Section is a table of a report for people, under a title.
type Section struct {
	Title  string   // one line
	Header []string // nil is none
	Rows   [][]any  // cells are printed as fmt.Print does
}

// page collects sections.
type page struct{ sections []Section }

// section adds rows under a title and a header. Without rows it adds nothing: a title over nothing would only be read
// and skipped. The header has its columns between tabs; "" is none.
func (p *page) section(title, header string, rows [][]any) {
	if len(rows) == 0 {
		return
	}
	s := Section{Title: title, Rows: rows}
	if header != "" {
		s.Header = strings.Split(header, "\t")
	}
	p.sections = append(p.sections, s)
}

// write prints the section as columns of its own width. It cannot fail, as it prints into memory.
func (s Section) write(b *bytes.Buffer) {
	// A blank line before each section, the first one included.
	fmt.Fprintf(b, "\n%s\n", s.Title)
	// Columns are as wide as their longest cell, with two blanks between.
	var padded bytes.Buffer
	out := tabwriter.NewWriter(&padded, 0, 0, 2, ' ', 0)
	if s.Header != nil {
		fmt.Fprintln(out, strings.Join(s.Header, "\t"))
	}
	for _, row := range s.Rows {
		// A tab ends a cell, so none follows the last one.
		for i, cell := range row {
			if i > 0 {
				fmt.Fprint(out, "\t")
			}
			fmt.Fprint(out, cell)
		}
		fmt.Fprintln(out)
	}
	_ = out.Flush() // into memory
	// An empty last cell leaves spaces at the end of its line.
	for line := range strings.Lines(padded.String()) {
		fmt.Fprintln(b, strings.TrimRight(line, " \n"))
	}
}

// writeText writes the report for people.
func (r *Report) writeText(w io.Writer) error {
	var b bytes.Buffer
	fmt.Fprintln(&b, r.ScopeText())
	for _, s := range r.Sections() {
		s.write(&b)
	}
	_, err := w.Write(b.Bytes())
	return err
}

// ClassTotals returns how many names each class has, with what each means.
func (r *Report) ClassTotals() Section {
	s := Section{Title: human.Count(r.Names, "name")}
	// Every class is there, also with a count of 0.
	for _, c := range Classes() {
		s.Rows = append(s.Rows, []any{c, r.Totals[c], meaning(c)})
	}
	return s
}

// Sections returns the report for people: totals, a section for each class, and what spans classes. A class without
// names has no section.
func (r *Report) Sections() []Section {
	p := &page{sections: []Section{r.ClassTotals()}}
	// One section for each class, in the order of what needs attention.
	p.section("Orphan events: emitted, and nobody listens", "EVENT\tEMITTED BY",
		r.rows(Orphan, func(e Entry) []any { return []any{e.label(), wiresText(e.Emitters)} }))
	p.section("Dead subscriptions: somebody listens, and nobody emits", "EVENT\tSUBSCRIBED TO BY",
		r.rows(Dead, func(e Entry) []any { return []any{e.label(), wiresText(e.Subscribers)} }))
	p.section("Well connected", "EVENT\tEMITTED BY\tSUBSCRIBED TO BY",
		r.rows(Connected, func(e Entry) []any {
			return []any{e.label(), wiresText(e.Emitters), wiresText(e.Subscribers)}
		}))
	p.section("Unknown names", "NAME\tSTATUS\tLIKELY\tEMITTED BY\tSUBSCRIBED TO BY",
		r.rows(Unknown, func(e Entry) []any {
			status, likely := strings.ReplaceAll(e.Status, "_", " "), strings.Join(e.Likely, ", ")
			return []any{e.Name, dash(status), dash(likely), wiresText(e.Emitters), wiresText(e.Subscribers)}
		}))
	p.section("Aliases", "NAME\tSTORED AS\tSUBSCRIBED TO BY",
		r.rows(Alias, func(e Entry) []any { return []any{e.Name, e.AliasOf, wiresText(e.Subscribers)} }))
	p.section("Unwired: in the catalogue, and no declaration emits or subscribes to it",
		"EVENT\tCATEGORY\tNAMED IN FINDINGS ALONE",
		r.rows(Unwired, func(e Entry) []any {
			return []any{e.label(), e.Category, dash(strings.Join(e.Unbacked, ", "))}
		}))
	// What spans classes.
	r.writeDrift(p)
	r.writeTallies(p)
	r.writeFindings(p)
	return p.sections
}

// meaning explains a class in the totals.
func meaning(c Class) string {
	// In the order of Classes; what is left is Unknown.
	switch c {
	case Connected:
		return "emitted, and somebody listens"
	case Orphan:
		return "emitted, and nobody listens"
	case Dead:
		return "somebody listens, and nobody emits"
	case Unwired:
		return "in the catalogue, and nothing else is known"
	case Alias:
		return "former names"
	}
	return "in no catalogue"
}

// ScopeText says for people what the report covers.
func (r *Report) ScopeText() string {
	// Declarations always; log and subscriptions where a cluster was asked.
	s := r.Scope
	words := "Wiring audit of what is declared"
	if r.Live {
		words = "Wiring audit of what is registered and seen alone"
	}
	if s.LastOffset > 0 {
		words += fmt.Sprintf(", of offsets %d to %d of the log (%s)", s.FirstOffset, s.LastOffset,
			human.Count(s.Events, "event"))
		// A report of a part of the log says what else there is.
		if s.FirstOffset > s.KeptFrom {
			words += fmt.Sprintf(", which begins at %d", s.KeptFrom)
		}
	}
	if s.Subscriptions > 0 {
		words += ", and of " + human.Count(s.Subscriptions, "subscription")
	}
	if len(r.CatchAll) > 0 {
		words += "\nSubscribed to everything, which connects nothing in particular: " + strings.Join(r.CatchAll, ", ")
	}
	return words
}

// rows returns a row for each name of a class. They are in the order of the report, by name.
func (r *Report) rows(c Class, row func(Entry) []any) (rows [][]any) {
	for _, e := range r.Types {
		if e.Class == c {
			rows = append(rows, row(e))
		}
	}
	return rows
}

// label returns the name, marked if it is critical or reserved.
func (e Entry) label() string {
	// The subscriptions of a critical type must not be missing, and a reserved one is the cluster's to emit.
	label := string(e.Name)
	if e.Critical {
		label += " (critical)"
	}
	if e.Reserved {
		label += " (reserved)"
	}
	return label
}

// wiresText prints each component once, with all sources of its wires.
func wiresText(list []Wire) string {
	// A component may be wired to the event in several ways.
	var names []string
	// By component, what is known of each of its wires.
	how := map[string][]string{}
	for _, w := range list {
		if how[w.Component] == nil {
			names = append(names, w.Component)
		}
		// The number of events, else the pattern, else the basis.
		known := w.Pattern
		switch {
		case w.Events > 0:
			known = fmt.Sprintf("%d in the log", w.Events)
		case known == "":
			known = strings.ReplaceAll(string(w.Basis), "_", " ")
		}
		how[w.Component] = append(how[w.Component], known)
	}
	// The components keep the order of their first wire.
	for i, n := range names {
		names[i] = fmt.Sprintf("%s (%s)", n, strings.Join(how[n], ", "))
	}
	return dash(strings.Join(names, "; "))
}

// dash prints an empty cell as a dash, so columns stay visible.
func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// writeDrift writes the names that drift apart.
func (r *Report) writeDrift(p *page) {
	// One row for each group of spellings, the recommended one first.
	var rows [][]any
	for _, d := range r.Drift {
		rows = append(rows, []any{d.Kind, strings.Join(d.Names, " / "), d.Detail, dash(strings.Join(d.InUse, ", "))})
	}
	p.section("Names that drift", "KIND\tNAMES\tWHY\tIN USE BY", rows)
}

// writeTallies writes the counts by component, by layer and by category.
func (r *Report) writeTallies(p *page) {
	// Three tables: of components, of layers and of categories.
	var rows [][]any
	// A component that is not in the registry has no layer.
	for _, c := range r.Components {
		layer := "-"
		if c.Layer > 0 {
			layer = fmt.Sprint(c.Layer)
		}
		rows = append(rows, []any{
			c.Name, layer, dash(c.Declared), c.Named, c.Matched, c.Dead, c.Emits, c.Orphans,
		})
	}
	p.section("Components", "NAME\tLAYER\tDECLARES\tBY NAME\tBY PATTERN\tDEAD\tEMITS\tORPHANS", rows)
	rows = nil
	for _, l := range r.Layers {
		rows = append(rows, []any{l.Layer, l.Name, l.Coordinators, l.Subscribed, l.Dead, l.Emitted, l.Orphans})
	}
	p.section("Layers", "LAYER\tNAME\tCOORDINATORS\tSUBSCRIBED\tDEAD\tEMITTED\tORPHANS", rows)
	rows = nil
	for _, c := range r.Categories {
		// All have the same columns.
		row := []any{dash(c.Name)}
		// One column for each class, in the order of the header below.
		for _, class := range Classes() {
			row = append(row, c.Totals[class])
		}
		rows = append(rows, row)
	}
	p.section("Categories", "NAME\tCONNECTED\tORPHAN\tDEAD\tUNWIRED\tALIAS\tUNKNOWN", rows)
}

// writeFindings writes the recorded findings with their verdicts, and how many there are of each.
func (r *Report) writeFindings(p *page) {
	// The findings of each kind.
	for _, kind := range FindingKinds() {
		var rows [][]any
		for _, f := range r.Findings {
			if f.Kind != kind {
				continue
			}
			because := f.Because
			if len(f.Evidence) > 0 {
				because += ": " + strings.Join(f.Evidence, "; ")
			}
			rows = append(rows, []any{f.Subject, dash(f.Severity), f.Says, verdictWords(f.Verdict), because})
		}
		p.section("Recorded: "+strings.ReplaceAll(kind, "_", " ")+"s",
			"SUBJECT\tSEVERITY\tSAYS\tVERDICT\tBECAUSE", rows)
	}
	// Their numbers.
	var rows [][]any
	for _, t := range r.Tally {
		row := []any{strings.ReplaceAll(t.Kind, "_", " ") + "s", t.Findings}
		for _, v := range Verdicts() {
			row = append(row, t.Verdicts[v])
		}
		rows = append(rows, row)
	}
	p.section("Recorded findings", "KIND\tFINDINGS\tCONFIRMED\tCONTRADICTED\tNOT DERIVABLE", rows)
}

// verdictWords prints a verdict for people.
func verdictWords(v Verdict) string { return strings.ReplaceAll(string(v), "_", " ") }
