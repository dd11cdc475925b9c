package service

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/internal/frame"
	"github.com/ringrift/ringlog/internal/platform/stages"
)

// RegisterFlows adds flows to the catalogue of every node, or replaces those of the same name. It warns of stages whose
// types are not in the catalogue, and refuses them under strict validation.
func (l *Log) RegisterFlows(ctx context.Context, definitions []byte, dryRun bool) (api.FlowsRegistered, error) {
	done := api.FlowsRegistered{Registered: []string{}, DryRun: dryRun}
	// What is malformed is refused before anything is compared with the catalogue.
	flows, err := event.ParseFlows(definitions)
	if err != nil {
		return done, err
	}
	policy := l.Machine().Policy()
	extended, err := policy.Catalogue.WithFlows(flows...)
	if err != nil {
		return done, err
	}
	for i := range flows {
		f, warned := &flows[i], map[event.Type]bool{}
		done.Registered = append(done.Registered, f.Name)
		// The types get their canonical names here: builds may differ in how they are spelt.
		for n, edge := range f.Edges {
			for end := range edge {
				found, known := policy.Catalogue.Resolve(string(edge[end]))
				f.Edges[n][end] = found.Type
				if known || warned[found.Type] {
					continue
				}
				warned[found.Type] = true
				// The warning is that of a filter with the type: such a stage is subscribed to.
				for _, w := range l.FilterWarnings(event.Filter{Types: []string{string(found.Type)}}) {
					w.Field = fmt.Sprintf("%s.edges[%d]", f.Name, n)
					done.Warnings = append(done.Warnings, w)
				}
			}
		}
	}
	if len(done.Warnings) > 0 && policy.Strict {
		return done, api.Refuse(api.UnknownType, done.Warnings[0].Field, done.Warnings[0].Message,
			"register the type: POST /v1/catalogue, or ringlog catalogue register FILE; validation.strict is on")
	}
	// A flow that is replaced must keep the edges that the settings have deadlines for.
	if err := l.keepsDeadlines(extended); err != nil || dryRun {
		return done, err
	}
	// With the canonical names, and not as it was sent.
	canonical, err := json.Marshal(flows)
	if err != nil {
		return done, err
	}
	_, err = l.proposeAndApply(ctx, frame.FlowPut{Flows: canonical})
	return done, err
}

// changeDeadlines is the remedy for flows that the setting chain.deadlines needs.
const changeDeadlines = "change the setting first: PUT /v1/settings/chain.deadlines, " +
	"or ringlog settings set chain.deadlines …"

// keepsDeadlines refuses flows without an edge for which the setting chain.deadlines has a deadline. next is the
// catalogue as it would be.
func (l *Log) keepsDeadlines(next *event.Catalogue) error {
	// Each by itself: one that is void already is not the flow's fault.
	for _, text := range l.Machine().Settings().ChainDeadlines {
		one := []string{text}
		if _, err := stages.ParseDeadlines(l.Machine().Catalogue(), one); err != nil {
			continue
		}
		if _, err := stages.ParseDeadlines(next, one); err != nil {
			return api.Refuse(api.Conflict, "edges", "the setting chain.deadlines has "+text,
				changeDeadlines)
		}
	}
	return nil
}

// RemoveFlow removes a registered flow and returns it. A built-in one stays, and gets back how its runs are found.
func (l *Log) RemoveFlow(ctx context.Context, name string) (event.Flow, error) {
	// As this node has it; the state machine decides whether there is one.
	before, _ := stages.FindFlow(l.Machine().Catalogue().Flows(), name)
	has := func(text string) bool { return strings.HasPrefix(text, name+":") }
	// A built-in flow still has its edges without the registration, so its deadlines stay in force.
	built := slices.ContainsFunc(event.Builtin().Flows(), func(f event.Flow) bool { return f.Name == name })
	if deadlines := l.Machine().Settings().ChainDeadlines; !built && slices.ContainsFunc(deadlines, has) {
		return before, api.Refuse(api.Conflict, "name", "the setting chain.deadlines has deadlines of the flow "+name,
			changeDeadlines)
	}
	_, err := l.proposeAndApply(ctx, frame.FlowRemove{Name: name})
	return before, err
}
