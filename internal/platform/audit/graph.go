package audit

import (
	"fmt"
	"io"
	"strings"

	"github.com/ringrift/ringlog/event"
)

// graph is a report as a picture: edges lead from components to the events that they emit, and from events to the
// components that subscribe.
type graph struct {
	// their ids are c1, c2 and so on, in this order
	components []string
	// those with a wire, or all if none has one
	events []Entry
	edges  []edge
}

// edge is an arrow of the graph.
type edge struct {
	from, to string // ids
	loose    bool   // subscribed by a pattern
}

// graph draws the entries that have a wire, or all entries if none has one.
func (r *Report) graph() *graph {
	g := &graph{}
	// Components get short ids in the order in which the entries name them.
	ids := map[string]string{}
	id := func(component string) string {
		if ids[component] == "" {
			ids[component] = fmt.Sprintf("c%d", len(ids)+1)
			g.components = append(g.components, component)
		}
		return ids[component]
	}
	for _, e := range r.Types {
		if len(e.Emitters)+len(e.Subscribers) == 0 {
			continue
		}
		// One edge for each component and direction, however many wires declare it.
		g.events = append(g.events, e)
		seen := map[edge]bool{}
		for _, w := range e.Emitters {
			g.add(seen, edge{from: id(w.Component), to: eventID(e.Name)})
		}
		for _, w := range named(e.Subscribers) {
			g.add(seen, edge{from: eventID(e.Name), to: id(w.Component), loose: w.Pattern != ""})
		}
	}
	// An empty picture would look like a failure.
	if len(g.events) == 0 {
		g.events = r.Types
	}
	return g
}

// add adds an edge unless the event has it already.
func (g *graph) add(seen map[edge]bool, e edge) {
	// Several wires of one component are one arrow.
	if !seen[e] {
		seen[e] = true
		g.edges = append(g.edges, e)
	}
}

// named drops the wires by pattern of components that also have one by name.
func named(list []Wire) (out []Wire) {
	// A component counts as named if one of its wires has no pattern.
	byName := map[string]bool{}
	for _, w := range list {
		byName[w.Component] = byName[w.Component] || w.Pattern == ""
	}
	// A component that only patterns connect keeps all of them: each is an arrow.
	for _, w := range list {
		if w.Pattern == "" || !byName[w.Component] {
			out = append(out, w)
		}
	}
	return out
}

// eventID returns the node id of an event, in which neither format allows a dot.
func eventID(t event.Type) string { return "e_" + strings.ReplaceAll(string(t), ".", "_") }

// colour returns the colour of a class, the same in both formats.
func colour(c Class) string {
	// Green needs no attention, orange and red do; violet are names that are not types.
	switch c {
	case Connected:
		return "#c8e6c9"
	case Orphan:
		return "#ffe0b2"
	case Dead:
		return "#ffcdd2"
	case Alias, Unknown:
		return "#e1bee7"
	}
	return "#eeeeee"
}

// dot writes the graph for Graphviz.
func (g *graph) dot(w io.Writer) {
	// From left to right: emitters, events, subscribers.
	fmt.Fprint(w, "digraph wiring {\n  rankdir=LR;\n  node [fontname=\"sans-serif\"];\n")
	// Components have the ids that graph gave them: c1, c2 and so on, in this order.
	for i, name := range g.components {
		fmt.Fprintf(w, "  c%d [shape=box, label=%s];\n", i+1, quoted(name))
	}
	for _, e := range g.events {
		fmt.Fprintf(w, "  %s [shape=ellipse, style=filled, fillcolor=%s, label=%s, tooltip=%s];\n",
			eventID(e.Name), quoted(colour(e.Class)), quoted(string(e.Name)), quoted(string(e.Class)))
	}
	for _, e := range g.edges {
		// Dashed: the subscription matches the event by a pattern, and does not name it.
		style := ""
		if e.loose {
			style = " [style=dashed]"
		}
		fmt.Fprintf(w, "  %s -> %s%s;\n", e.from, e.to, style)
	}
	fmt.Fprint(w, "}\n")
}

// quoted returns a DOT string, in which only quotes and backslashes are special.
func quoted(s string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(s) + `"`
}

// mermaid writes the graph as a flow chart for Mermaid.
func (g *graph) mermaid(w io.Writer) {
	fmt.Fprint(w, "flowchart LR\n")
	// Components have the ids that graph gave them: c1, c2 and so on, in this order.
	for i, name := range g.components {
		fmt.Fprintf(w, "  c%d[%s]\n", i+1, entity(name))
	}
	for _, e := range g.events {
		fmt.Fprintf(w, "  %s([%s]):::%s\n", eventID(e.Name), entity(string(e.Name)), e.Class)
	}
	// A dotted arrow is a subscription by pattern.
	for _, e := range g.edges {
		arrow := "-->"
		if e.loose {
			arrow = "-.->"
		}
		fmt.Fprintf(w, "  %s %s %s\n", e.from, arrow, e.to)
	}
	// Each event refers to the style of its class by name.
	for _, c := range Classes() {
		fmt.Fprintf(w, "  classDef %s fill:%s,stroke:#616161,color:#212121\n", c, colour(c))
	}
}

// entity returns a Mermaid label, in which quotes and the beginnings of entities are written as entities.
func entity(s string) string {
	return `"` + strings.NewReplacer("#", "#35;", `"`, "#quot;", "<", "#lt;", ">", "#gt;").Replace(s) + `"`
}
