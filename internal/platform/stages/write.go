package stages

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/internal/human"
)

// Format is how a chain is written.
type Format string

// The formats.
const (
	Text    Format = "text"
	JSON    Format = "json" // one line
	Mermaid Format = "mermaid"
)

// ParseFormat reads a format's name.
func ParseFormat(text string) (Format, error) {
	// A format is spelt exactly, as on the command line.
	switch f := Format(text); f {
	case Text, JSON, Mermaid:
		return f, nil
	}
	return "", fmt.Errorf("stages: there is no format %q: use text, json or mermaid", text)
}

// Write writes the chain. The text has times in UTC.
func (c *Chain) Write(w io.Writer, f Format) error {
	// The chain is written at once, so a failure of the encoder leaves no half of it.
	var b bytes.Buffer
	switch f {
	case JSON:
		enc := json.NewEncoder(&b)
		enc.SetEscapeHTML(false)
		if err := enc.Encode(c); err != nil {
			return fmt.Errorf("stages: write chain: %w", err)
		}
	case Mermaid:
		c.mermaid(&b)
	default:
		c.text(&b)
	}
	// An error of the writer is the caller's own, and is returned as it is.
	_, err := w.Write(b.Bytes())
	return err
}

// text writes the chain for people.
// The parts are separated by empty lines, so a reader finds the flows.
func (c *Chain) text(b *bytes.Buffer) {
	fmt.Fprintf(b, "%s: %s in %s\n", c.CorrelationID, human.Count(len(c.Events), "event"), human.Seconds(c.Seconds))
	c.caveats(b)
	c.way(b)
	if len(c.Covered) > 0 {
		fmt.Fprintf(b, "\nits events are also stages of %s\n", strings.Join(c.Covered, ", "))
	}
}

// way writes the events and the runs through the flows.
func (c *Chain) way(b *bytes.Buffer) {
	var rows []string
	for i := range c.Events {
		rows = append(rows, c.Events[i].line())
	}
	// The events are one table; each flow has one of its own.
	columns(b, rows)
	for i := range c.Flows {
		c.Flows[i].text(b)
	}
	// Without a flow nothing is outside of one.
	if len(c.Flows) == 0 && len(c.Runs) == 0 && len(c.Events) > 0 {
		b.WriteString("\nno flow has any of these events as a stage\n")
	} else if len(c.Outside) > 0 {
		fmt.Fprintf(b, "\nno stage of these flows: %s\n", offsets(c.Outside))
	}
}

// WriteNews writes as text what the events after an offset have added, and what is missing now.
func (c *Chain) WriteNews(w io.Writer, after uint64) error {
	// A copy of the chain without what was written before. What is missing now is written each time.
	news := *c
	old := func(e Event) bool { return e.Offset <= after }
	news.Events = slices.DeleteFunc(slices.Clone(c.Events), old)
	news.Outside = slices.DeleteFunc(slices.Clone(c.Outside), func(offset uint64) bool { return offset <= after })
	news.Flows = slices.Clone(c.Flows)
	for i := range news.Flows {
		r := &news.Flows[i]
		r.Starts = slices.DeleteFunc(slices.Clone(r.Starts), func(s Start) bool { return s.Offset <= after })
		r.Edges = slices.DeleteFunc(slices.Clone(r.Edges), func(e Edge) bool {
			return max(e.FromOffset, e.ToOffset) <= after
		})
	}
	// Written at once, as Write does.
	var b bytes.Buffer
	news.way(&b)
	_, err := w.Write(b.Bytes())
	return err
}

// caveats writes why earlier events may be missing.
func (c *Chain) caveats(b *bytes.Buffer) {
	// Each line is a reason, and there may be several.
	if c.BeginningTrimmed {
		fmt.Fprintf(b, "the beginning may be trimmed: the log is kept from offset %d on\n", c.Scope.KeptFrom)
	}
	if c.Scope.From > c.Scope.KeptFrom {
		fmt.Fprintf(b, "only events from offset %d on were looked at\n", c.Scope.From)
	}
	if len(c.Runs) > 0 {
		fmt.Fprintf(b, "some are stages of runs that their payloads name: %s\n", strings.Join(c.Runs, " "))
	}
	if c.Scope.LeftOut > 0 {
		fmt.Fprintf(b, "the oldest %s left out\n", human.Count(c.Scope.LeftOut, "event"))
	}
}

// line returns the event in columns.
func (e *Event) line() string {
	// The first event follows none.
	after := "-"
	if e.AfterSeconds != 0 {
		after = "+" + human.Seconds(e.AfterSeconds)
	}
	at := e.At.UTC().Format("2006-01-02T15:04:05.000Z07:00")
	return fmt.Sprintf("%d\t%s\t%s\t%s\t%s", e.Offset, at, e.Type, after, e.Source)
}

// text writes one flow: its state, what was taken or skipped, and what is missing.
func (r *Run) text(b *bytes.Buffer) {
	state := "complete"
	if !r.Complete {
		state = "not complete"
	}
	// The rows are in three parts: unexpected starts, what happened, what is missing.
	fmt.Fprintf(b, "\n%s: %s\n", r.Flow, state)
	// A start with the first stage is what one expects, and is not written.
	var rows []string
	for _, s := range r.Starts {
		if !s.First {
			rows = append(rows, fmt.Sprintf("starts\t%s\t\tnot the flow's first stage", stage(s.Type, s.Offset)))
		}
	}
	for i := range r.Edges {
		rows = append(rows, r.Edges[i].line())
	}
	for i := range r.Next {
		rows = append(rows, r.Next[i].line())
	}
	columns(b, rows)
}

// columns writes rows with aligned columns; tabs separate the cells.
func columns(b *bytes.Buffer, rows []string) {
	var padded bytes.Buffer
	// The width of a column follows from its widest cell.
	t := tabwriter.NewWriter(&padded, 0, 0, 2, ' ', 0)
	for _, row := range rows {
		fmt.Fprintln(t, row)
	}
	_ = t.Flush() // into memory
	// An empty last cell would leave spaces at the end of a line.
	for line := range strings.Lines(padded.String()) {
		fmt.Fprintf(b, "  %s\n", strings.TrimRight(line, " \n"))
	}
}

// line returns an edge in columns. A skipped one took no time.
func (e *Edge) line() string {
	// An edge that was skipped has no event at one end at least, so no time between two.
	took := ""
	if e.State != Skipped {
		took = human.Seconds(e.Seconds)
	}
	words := []string{}
	if e.Late {
		words = append(words, "late: its deadline is "+human.Seconds(e.DeadlineSeconds))
	}
	if e.Basis == ByCausation {
		words = append(words, "by causation id")
	}
	words = append(words, notes(e.Condition, e.ToState)...)
	from, to := stage(e.From, e.FromOffset), stage(e.To, e.ToOffset)
	return fmt.Sprintf("%s\t%s -> %s\t%s\t%s", e.State, from, to, took, strings.Join(words, ", "))
}

// line returns a missing edge in columns.
func (n *Next) line() string {
	// An optional edge is not missing: another one out of the stage was taken.
	label, words := "missing", []string{}
	switch {
	case n.Overdue:
		label = "OVERDUE"
	case n.Optional:
		label = "may follow"
	}
	if n.DeadlineSeconds > 0 && !n.Optional {
		words = append(words, "its deadline is "+human.Seconds(n.DeadlineSeconds))
	}
	words = append(words, notes(n.Condition, n.ToState)...)
	from, waiting := stage(n.From, n.FromOffset), human.Seconds(n.WaitingSeconds)
	return fmt.Sprintf("%s\t%s -> %s\tfor %s\t%s", label, from, n.To, waiting, strings.Join(words, ", "))
}

// stage prints a stage, with the offset of its event if there is one.
func stage(t event.Type, offset uint64) string {
	if offset == 0 {
		return string(t)
	}
	return fmt.Sprintf("%s %d", t, offset)
}

// notes prints the condition of an edge and the state that it leads to.
func notes(condition, toState string) (words []string) {
	// The condition is quoted from the flow: nothing here evaluates it.
	if condition != "" {
		words = append(words, "where "+condition)
	}
	if toState != "" {
		words = append(words, "to "+toState)
	}
	return words
}

// offsets prints a list of offsets.
func offsets(list []uint64) string { return strings.Trim(fmt.Sprint(list), "[]") }

// mermaid draws each flow: solid lines are edges taken, dotted ones are missing or skipped.
func (c *Chain) mermaid(b *bytes.Buffer) {
	// The correlation id is a comment of the drawing, which nothing shows.
	fmt.Fprintf(b, "flowchart LR\n  %%%% %s\n", escape(c.CorrelationID))
	for i := range c.Flows {
		c.Flows[i].mermaid(b, i)
	}
	b.WriteString("  classDef missing stroke-dasharray: 5 5\n  classDef overdue stroke:#c00,stroke-dasharray: 5 5\n")
}

// drawing names the nodes of one flow.
// Each flow is a subgraph, whose nodes have ids of their own.
type drawing struct {
	b     *bytes.Buffer
	flow  int
	nodes map[string]bool
}

// node returns the id of a stage, which it draws the first time. A stage with an event is identified by its offset,
// any other by its type.
func (d *drawing) node(t event.Type, offset uint64, class string) string {
	// Two events of one type are two nodes, so laps stay apart.
	id, label := fmt.Sprintf("f%d_%s", d.flow, t), string(t)
	if offset != 0 {
		id, label, class = fmt.Sprintf("f%d_%d", d.flow, offset), fmt.Sprintf("%s<br/>%d", t, offset), ""
	}
	if !d.nodes[id] {
		d.nodes[id] = true
		fmt.Fprintf(d.b, "    %s[\"%s\"]%s\n", id, label, class)
	}
	return id
}

// mermaid draws one flow: its starts, its edges, and what is missing.
func (r *Run) mermaid(b *bytes.Buffer, n int) {
	fmt.Fprintf(b, "  subgraph f%d[\"%s\"]\n", n, r.Flow)
	// Nodes are drawn when they are first needed; starts may have no edge.
	d := drawing{b, n, map[string]bool{}}
	for _, s := range r.Starts {
		d.node(s.Type, s.Offset, "")
	}
	// What happened. A stage without an event is dashed.
	for _, e := range r.Edges {
		from, to := d.node(e.From, e.FromOffset, ":::missing"), d.node(e.To, e.ToOffset, ":::missing")
		switch {
		case e.State == Skipped:
			fmt.Fprintf(b, "    %s -. skipped .-> %s\n", from, to)
		case e.Late:
			fmt.Fprintf(b, "    %s -->|late: %s| %s\n", from, human.Seconds(e.Seconds), to)
		default:
			fmt.Fprintf(b, "    %s -->|%s| %s\n", from, human.Seconds(e.Seconds), to)
		}
	}
	// What is missing.
	for _, x := range r.Next {
		class, label := ":::missing", "missing for "+human.Seconds(x.WaitingSeconds)
		if x.Overdue {
			class, label = ":::overdue", "overdue after "+human.Seconds(x.WaitingSeconds)
		} else if x.Optional {
			label = "may follow"
		}
		from, to := d.node(x.From, x.FromOffset, ""), d.node(x.To, 0, class)
		fmt.Fprintf(b, "    %s -. %s .-> %s\n", from, label, to)
	}
	b.WriteString("  end\n")
}

// escape keeps a name from ending its line.
func escape(s string) string { return strings.Join(strings.Fields(s), " ") }
