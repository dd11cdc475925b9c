package stages

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/ringrift/ringlog/event"
)

// Deadlines are the longest times that edges of flows may take. An edge without one is never late.
// They come from a setting of the cluster, or from a file for one question.
type Deadlines map[edgeOf]time.Duration

// edgeOf is an edge by its flow and ends, whose types have their canonical names.
type edgeOf struct {
	flow     string
	from, to event.Type
}

// ErrDeadline reports a deadline that is invalid or is for an edge that does not exist.
var ErrDeadline = errors.New("no deadline")

// of returns the deadline of an edge by its index, 0 if it has none.
func (d Deadlines) of(f event.Flow, edge int) time.Duration {
	return d[edgeOf{f.Name, f.Edges[edge][0], f.Edges[edge][1]}]
}

// Texts returns the deadlines in the form that ParseDeadlines reads, sorted.
func (d Deadlines) Texts() []string {
	texts := []string{}
	// Each text can be given to ParseDeadlines again, also by a person.
	for e, limit := range d {
		texts = append(texts, fmt.Sprintf("%s:%s->%s=%s", e.flow, e.from, e.to, limit))
	}
	slices.Sort(texts)
	return texts
}

// ParseDeadlines reads deadlines in the form FLOW:CAUSE->EFFECT=DURATION, with types in any spelling. The error wraps
// ErrDeadline.
// Queries of the HTTP interface have such texts.
func ParseDeadlines(c *event.Catalogue, texts []string) (Deadlines, error) {
	d := Deadlines{}
	// Neither a flow nor a type has a colon or an equals sign in its name, so the first one separates.
	for _, text := range texts {
		flow, rest, _ := strings.Cut(text, ":")
		edge, limit, ok := strings.Cut(rest, "=")
		if !ok {
			return nil, fmt.Errorf("stages: %w: %q is not FLOW:CAUSE->EFFECT=DURATION", ErrDeadline, text)
		}
		if err := d.set(c, flow, edge, limit); err != nil {
			return nil, err
		}
	}
	return d, nil
}

// ParseEachDeadline is ParseDeadlines that keeps those it accepts, and joins the errors of the others.
func ParseEachDeadline(c *event.Catalogue, texts []string) (Deadlines, error) {
	d, refused := Deadlines{}, []error{}
	for _, text := range texts {
		one, err := ParseDeadlines(c, []string{text})
		maps.Copy(d, one)
		refused = append(refused, err)
	}
	return d, errors.Join(refused...)
}

// ReadDeadlines reads a file such as {"training_pipeline": {"TRAINING_STARTED->TRAINING_COMPLETED": "6h"}}. The error
// wraps ErrDeadline, or an *event.Error if the file is not JSON.
func ReadDeadlines(c *event.Catalogue, file []byte) (Deadlines, error) {
	// The canonical form has no duplicate keys; encoding/json would keep the last one.
	// A duplicate would silently count or not count, depending on the order.
	canonical, err := event.Canonicalize(file, event.Limits{EventBytes: math.MaxInt, NameBytes: math.MaxInt})
	if err != nil {
		return nil, fmt.Errorf("stages: deadlines: %w", err)
	}
	var flows map[string]map[string]string
	if err := json.Unmarshal(canonical, &flows); err != nil {
		return nil, fmt.Errorf(`stages: %w: %w: the form is {"FLOW": {"CAUSE->EFFECT": "10m"}}`, ErrDeadline, err)
	}
	// In a fixed order, so that the same file always gives the same error.
	d := Deadlines{}
	for _, flow := range slices.Sorted(maps.Keys(flows)) {
		for _, edge := range slices.Sorted(maps.Keys(flows[flow])) {
			if err := d.set(c, flow, edge, flows[flow][edge]); err != nil {
				return nil, err
			}
		}
	}
	return d, nil
}

// set adds one deadline; flow, edge and text are as written.
func (d Deadlines) set(c *event.Catalogue, flow, edge, text string) error {
	// A deadline of what does not exist is a typing error: it would never be late.
	f, err := flowNamed(c.Flows(), flow)
	if err != nil {
		return fmt.Errorf("stages: %w: %w", ErrDeadline, err)
	}
	// The edge, by any spelling of its types.
	cause, effect, ok := strings.Cut(edge, "->")
	from, _ := c.Resolve(strings.TrimSpace(cause))
	to, _ := c.Resolve(strings.TrimSpace(effect))
	if !ok || !slices.Contains(f.Edges, [2]event.Type{from.Type, to.Type}) {
		return fmt.Errorf("stages: %w: %s has no edge %q; it has %s", ErrDeadline, f.Name, edge, edgeNames(f))
	}
	// Its limit, which must be the only one.
	limit, err := time.ParseDuration(text)
	if err != nil || limit <= 0 {
		return fmt.Errorf("stages: %w: %s %s: %q is not a duration such as 90s, 10m or 36h",
			ErrDeadline, f.Name, edge, text)
	}
	key := edgeOf{f.Name, from.Type, to.Type}
	if _, twice := d[key]; twice {
		return fmt.Errorf("stages: %w: %s %s->%s has two", ErrDeadline, f.Name, from.Type, to.Type)
	}
	d[key] = limit
	return nil
}

// edgeNames lists the edges of a flow for an error.
func edgeNames(f event.Flow) string {
	var names []string
	// All edges are listed: a flow has few.
	for _, e := range f.Edges {
		names = append(names, fmt.Sprintf("%s->%s", e[0], e[1]))
	}
	return strings.Join(names, ", ")
}

// ErrNoFlow reports a name that no flow has.
var ErrNoFlow = errors.New("there is no such flow")

// FindFlow returns the flow with a name. The error wraps ErrNoFlow and lists the names that exist.
func FindFlow(flows []event.Flow, name string) (event.Flow, error) {
	f, err := flowNamed(flows, name)
	if err != nil {
		return f, fmt.Errorf("stages: %w", err)
	}
	return f, nil
}

// flowNamed is FindFlow for callers that name the package in their own error.
func flowNamed(flows []event.Flow, name string) (event.Flow, error) {
	// The names that exist are listed, so that a typing error is seen at once.
	var names []string
	for _, f := range flows {
		if f.Name == name {
			return f, nil
		}
		names = append(names, f.Name)
	}
	return event.Flow{}, fmt.Errorf("%w: %q; there are %s", ErrNoFlow, name, strings.Join(names, ", "))
}
