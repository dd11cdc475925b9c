package event

import (
	"cmp"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/ringrift/ringlog/event/canon"
)

// Bounds of one registered flow.
const (
	maxFlowEdges  = 64
	maxFlowFields = 8 // in RunBy
)

// Stages returns the types at the ends of the flow's edges, sorted.
func (f *Flow) Stages() (types []Type) {
	for _, e := range f.Edges {
		types = append(types, e[0], e[1])
	}
	// A type may be at the end of several edges.
	slices.Sort(types)
	return slices.Compact(types)
}

// FilterOf returns a filter that passes the stages of flows, and every event where these are more than it can list.
func FilterOf(flows []Flow) (f Filter) {
	for i := range flows {
		for _, t := range flows[i].Stages() {
			f.Types = append(f.Types, string(t))
		}
	}
	slices.Sort(f.Types)
	f.Types = slices.Compact(f.Types)
	// Empty, the filter passes everything, and the caller chooses among it.
	if len(f.Types) > maxFilterEntries {
		f.Types = nil
	}
	return f
}

// WithFlows returns a catalogue that also has the given flows; c itself does not change. A flow replaces the
// registered one of its name. One with the name of a built-in flow has no edges: its RunBy becomes that of the
// built-in flow. Types are accepted in any spelling, unknown ones too. Errors are *Error, and their Field names the
// flow, as in FLOW.edges[2].
func (c *Catalogue) WithFlows(flows ...Flow) (*Catalogue, error) {
	// A shallow copy: everything but the flows is shared with c.
	next := *c
	next.flows = slices.Clone(c.flows)
	for _, f := range flows {
		if err := next.registerFlow(f); err != nil {
			return nil, err.Under(canon.PathStep([]byte(f.Name)))
		}
	}
	// The built-in ones stay first.
	// "canonical" comes before "registered", so comparing statuses is enough.
	slices.SortStableFunc(next.flows, func(a, b Flow) int {
		if a.Status == StatusRegistered && b.Status == StatusRegistered {
			return strings.Compare(a.Name, b.Name)
		}
		return cmp.Compare(a.Status, b.Status)
	})
	return &next, nil
}

// registerFlow checks a flow and adds it. c is a copy that WithFlows has not returned yet.
func (c *Catalogue) registerFlow(f Flow) *Error {
	// The caller's edges stay as they are.
	f.Edges = slices.Clone(f.Edges)
	for i, edge := range f.Edges {
		for end := range edge {
			// Of an unknown type, what it would be stored as.
			found, _ := c.Resolve(string(edge[end]))
			f.Edges[i][end] = found.Type
		}
	}
	if err := f.check(); err != nil {
		return err
	}
	// A name is used once: a built-in flow keeps its edges, and a registered one is replaced as a whole.
	at := slices.IndexFunc(c.flows, func(g Flow) bool { return g.Name == f.Name })
	switch {
	case at >= 0 && c.flows[at].Status == StatusCanonical && len(f.Edges) > 0:
		err := fieldError(ReasonInvalidField, "edges", "the built-in flow has its own")
		err.Remedy = "choose another name, or send run_by alone, to say how its runs are found"
		return err
	case at >= 0 && c.flows[at].Status == StatusCanonical:
		// The clone of the slice has this flow by value, so c's is not changed.
		c.flows[at].RunBy = f.RunBy
		return nil
	case len(f.Edges) == 0:
		err := fieldError(ReasonInvalidField, "edges", "missing, and there is no built-in flow of the name")
		err.Remedy = `send pairs of types: "edges": [["CAUSE", "EFFECT"]]`
		return err
	}
	// What remains is a flow of the caller's own, or a new form of it.
	f.Status = StatusRegistered
	if at >= 0 {
		c.flows[at] = f
	} else {
		c.flows = append(c.flows, f)
	}
	return nil
}

// ParseFlows reads flows to register: one object or an array of them, each with name, edges, edge_notes, run_by and
// document. It is strict; errors are *Error with a position or the name of the flow. Types may be in any case, with -
// or . for _. The state machine decides by what this refuses, so a key that a later build accepts, or a rule that it
// drops, needs a feature level.
func ParseFlows(data []byte) ([]Flow, error) {
	d := flowReader{}
	if err := d.list(data, "flow", d.flow); err != nil {
		return nil, err
	}
	return d.flows, nil
}

// flowReader reads flows.
type flowReader struct {
	listReader
	flows []Flow
}

// flow reads one flow.
func (d *flowReader) flow() *Error {
	// The object is read twice: for its keys, and then by encoding/json for its values.
	start := d.Pos
	if d.Peek() != '{' {
		return d.Unexpected("a flow object")
	}
	if err := d.Skip(); err != nil {
		return err
	}
	end := d.Pos
	d.Pos = start
	err := d.known([]string{"name", "status", "document", "edges", "edge_notes", "run_by"}, func(key string) *Error {
		// Notes have keys of their own to check.
		if key == "edge_notes" && d.Peek() == '[' {
			return d.Elements(d.note)
		}
		return d.Skip()
	})
	if err != nil {
		return err
	}
	// An edge is a list here: of an array, encoding/json would drop a third type and make up a missing one.
	var read struct {
		Flow
		Edges [][]Type `json:"edges"`
	}
	if bad := json.Unmarshal(d.Data[start:end], &read); bad != nil {
		err := d.shape(start, bad)
		err.Field = strings.TrimPrefix(err.Field, "Flow.") // encoding/json names the embedded struct
		return err
	}
	f := read.Flow
	// The status is the catalogue's to give.
	f.Status, f.Edges = "", make([][2]Type, len(read.Edges))
	f.EdgeNotes = append([]FlowNote{}, f.EdgeNotes...) // [] in JSON, not null
	for i, edge := range read.Edges {
		if len(edge) != 2 {
			return d.Fail(start, ReasonInvalidField, "an edge is two types, its cause and its effect, not %d", len(edge)).
				Under(fmt.Sprintf("edges[%d]", i))
		}
		f.Edges[i] = [2]Type{Type(foldName(string(edge[0]))), Type(foldName(string(edge[1])))}
	}
	if err := f.check(); err != nil {
		return err.Under(canon.PathStep([]byte(f.Name)))
	}
	d.flows = append(d.flows, f)
	return nil
}

// note checks the keys of the i-th note; encoding/json reads the values later.
func (d *flowReader) note(i int) *Error {
	var err *Error
	if d.Peek() == '{' {
		err = d.known([]string{"edge", "condition", "to_state"}, func(string) *Error { return d.Skip() })
	} else {
		err = d.Unexpected("a note object")
	}
	if err != nil {
		return err.Under(fmt.Sprintf("edge_notes[%d]", i))
	}
	return nil
}

// check checks a flow without regard to the catalogue. One without edges has to say how its runs are found.
func (f *Flow) check() *Error {
	lim := DefaultLimits()
	// Neither a colon nor an equals sign, which separate the parts of a deadline.
	if !regexp.MustCompile(`^[a-z][a-z0-9_-]{0,63}$`).MatchString(f.Name) {
		return fieldError(ReasonInvalidField, "name", "a flow's name is 1 to 64 of a-z, 0-9, _ and -, a letter first")
	}
	if err := checkName("document", f.Document, lim); err != nil {
		return err
	}
	switch {
	case len(f.Edges) > maxFlowEdges:
		return fieldError(ReasonTooLarge, "edges", "%d edges, the limit is %d", len(f.Edges), maxFlowEdges)
	case len(f.RunBy) > maxFlowFields:
		return fieldError(ReasonTooLarge, "run_by", "%d fields, the limit is %d", len(f.RunBy), maxFlowFields)
	case len(f.Edges) == 0 && len(f.RunBy) == 0:
		return fieldError(ReasonInvalidField, "edges", "missing")
	// The number of edges bounds that of the notes.
	case len(f.EdgeNotes) > len(f.Edges):
		return fieldError(ReasonTooLarge, "edge_notes", "%d notes on %d edges", len(f.EdgeNotes), len(f.Edges))
	}
	for i, field := range f.RunBy {
		path := fmt.Sprintf("run_by[%d]", i)
		if err := checkName(path, field, lim); err != nil {
			return err
		}
		// Commas and equals signs separate the parts where a run is written as text.
		if field == "" || strings.ContainsAny(field, ",=") || slices.Contains(f.RunBy[:i], field) {
			return fieldError(ReasonInvalidField, path, "it has to be the name of a payload field, each once, without , and =")
		}
	}
	for i, n := range f.EdgeNotes {
		path := fmt.Sprintf("edge_notes[%d]", i)
		if n.Edge < 0 || n.Edge >= len(f.Edges) {
			return fieldError(ReasonInvalidField, path+".edge", "there is no edge %d", n.Edge)
		}
		if err := checkName(path+".condition", n.Condition, lim); err != nil {
			return err
		}
		if err := checkName(path+".to_state", n.ToState, lim); err != nil {
			return err
		}
	}
	return f.checkEdges()
}

// checkEdges checks that each edge leads from one stage to another, and each stage back to a first one: runs that
// begin on a cycle would have no beginning. A cycle after that is allowed.
func (f *Flow) checkEdges() *Error {
	nameForm := regexp.MustCompile(`^[A-Z][A-Z0-9]*(_[A-Z0-9]+)*$`)
	// The stages that some edge leads to. The others are first ones.
	effects := map[Type]bool{}
	for i, edge := range f.Edges {
		path := fmt.Sprintf("edges[%d]", i)
		for _, t := range edge {
			switch {
			case !nameForm.MatchString(string(t)) || len(t) > longestTypeName:
				return fieldError(ReasonInvalidType, path, "%q is not a type's name: words of letters and digits, "+
					"%d bytes at most", t, longestTypeName)
			case t == ChainOverdue:
				// It is an event of the run that it reports, which could be overdue after it again.
				return fieldError(ReasonReservedType, path, "%s cannot be a stage: the cluster reports runs by it", t)
			}
		}
		if edge[0] == edge[1] {
			return fieldError(ReasonInvalidField, path, "%s leads to itself", edge[0])
		}
		if slices.Contains(f.Edges[:i], edge) {
			return fieldError(ReasonInvalidField, path, "%s->%s is listed twice", edge[0], edge[1])
		}
		effects[edge[1]] = true
	}
	// Everything that first stages lead to, until nothing is added.
	reached := map[Type]bool{}
	// Each pass reaches at least one stage more, so as many passes as edges are enough.
	for range f.Edges {
		for _, edge := range f.Edges {
			if !effects[edge[0]] || reached[edge[0]] {
				reached[edge[1]] = true
			}
		}
	}
	// A stage that is never reached has no run in which it could occur.
	for i, edge := range f.Edges {
		if effects[edge[0]] && !reached[edge[0]] {
			err := fieldError(ReasonInvalidField, fmt.Sprintf("edges[%d]", i),
				"%s is on a cycle, or after one, to which no first stage leads", edge[0])
			err.Remedy = "add an edge from a stage that is no edge's effect"
			return err
		}
	}
	return nil
}
