package service

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/fsm"
	"github.com/ringrift/ringlog/internal/frame"
)

// DedupPolicies returns the dedup policies in force, by type: those that were set, and the catalogue's.
func (l *Log) DedupPolicies() []api.DedupPolicy {
	list := []api.DedupPolicy{}
	for _, set := range l.Machine().DedupPolicies() {
		list = append(list, l.policySet(set))
	}
	// Those of the catalogue, unless the type has one that was set.
	for _, d := range event.DedupDefaults() {
		if !slices.ContainsFunc(list, func(p api.DedupPolicy) bool { return p.Type == d.Type }) && l.knowsPolicies() {
			list = append(list, l.dedupPolicy(d.Type))
		}
	}
	slices.SortFunc(list, func(a, b api.DedupPolicy) int { return strings.Compare(string(a.Type), string(b.Type)) })
	return list
}

// DedupPolicy returns the dedup policy in force for a type, which may be the default.
func (l *Log) DedupPolicy(name string) (api.DedupPolicy, error) {
	t, _, err := l.policyType(name, false)
	if err != nil {
		return api.DedupPolicy{}, err
	}
	return l.dedupPolicy(t), nil
}

// SetDedupPolicy sets the dedup policy of a type on every node.
func (l *Log) SetDedupPolicy(ctx context.Context, name string, p api.NewDedupPolicy) (api.DedupPolicy, error) {
	// A policy for a type that nobody can publish is most likely a slip.
	t, warnings, err := l.policyType(name, true)
	if err != nil {
		return api.DedupPolicy{}, err
	}
	if p.Mode == "" {
		return api.DedupPolicy{}, api.Missing("mode", "off, content or fields")
	}
	// In one order and each once, so that equal policies are stored alike.
	fields := slices.Compact(slices.Sorted(slices.Values(p.Fields)))
	policy := event.DedupPolicy{Mode: event.DedupMode(p.Mode), Fields: fields}
	if p.Window != "" {
		if policy.Window, err = api.ParseAge("window", p.Window); err != nil {
			return api.DedupPolicy{}, err
		}
	}
	// The state machine would refuse the same, with less to say about it.
	if err := policy.Validate(); err != nil {
		return api.DedupPolicy{}, err
	}
	if _, err := l.proposeAndApply(ctx, frame.DedupPolicySet{Type: string(t), Policy: policy}); err != nil {
		return api.DedupPolicy{}, err
	}
	// As it is in force, not as it was sent.
	answer := l.dedupPolicy(t)
	answer.Warnings = append(warnings, l.fieldWarnings(t, policy.Fields)...)
	return answer, nil
}

// RemoveDedupPolicy removes the policy that was set for a type, and returns the one that is in force without it.
func (l *Log) RemoveDedupPolicy(ctx context.Context, name string) (api.DedupPolicy, error) {
	t, _, err := l.policyType(name, false)
	if err != nil {
		return api.DedupPolicy{}, err
	}
	// A policy without a mode is none.
	if _, err := l.proposeAndApply(ctx, frame.DedupPolicySet{Type: string(t)}); err != nil {
		return api.DedupPolicy{}, err
	}
	return l.dedupPolicy(t), nil
}

// policyType returns the type that a name means, as the gate stores it. If strict, it has to be one that clients can
// publish.
func (l *Log) policyType(name string, strict bool) (event.Type, []event.Warning, error) {
	// A type may have become unknown or reserved since its policy was set, which has to be removable all the same.
	policy := l.Machine().Policy()
	if !strict {
		policy.Strict, policy.Reserved = false, event.ReservedForeign
	}
	// The gate makes the name canonical.
	e := event.Event{Type: event.Type(name)}
	_, warnings, err := policy.Normalize(&e)
	return e.Type, warnings, err
}

// fieldWarnings says which fields of a policy the catalogue does not list for its type: an event without any of the
// fields is compared by its content.
func (l *Log) fieldWarnings(t event.Type, names []string) (list []event.Warning) {
	// A type of which no fields are listed says nothing.
	r, _ := l.Machine().Catalogue().Resolve(string(t))
	if r.Definition == nil || len(r.Definition.Payload) == 0 {
		return nil
	}
	for _, name := range names {
		if !slices.ContainsFunc(r.Definition.Payload, func(f event.Field) bool { return f.Name == name }) {
			list = append(list, event.Warning{Reason: event.WarningPayloadField, Field: "fields",
				Message: fmt.Sprintf("the catalogue lists no payload field %q of %s", name, t)})
		}
	}
	return list
}

// knowsPolicies reports whether all members know dedup policies: before, none is in force.
func (c *core) knowsPolicies() bool { return c.Machine().FeatureLevel() >= frame.LevelDedup }

// dedupPolicy returns the policy in force for a type.
func (c *core) dedupPolicy(t event.Type) api.DedupPolicy {
	// One that was set, then the catalogue's, then that of all types.
	if set, found := c.Machine().DedupPolicy(t); found {
		return c.policySet(set)
	}
	for _, d := range event.DedupDefaults() {
		if d.Type == t && c.knowsPolicies() {
			return api.DedupPolicy{Type: t, Mode: string(d.Mode), Origin: api.PolicyCatalogue, Reason: d.Reason}
		}
	}
	window := c.Machine().Settings().DedupWindow.String()
	return api.DedupPolicy{Type: t, Mode: string(event.DedupContent), Window: window, Origin: api.PolicyDefault}
}

// policySet is a policy that was set, as callers see it.
func (c *core) policySet(set fsm.SetDedupPolicy) api.DedupPolicy {
	p := api.DedupPolicy{
		Type:      set.Type,
		Mode:      string(set.Policy.Mode),
		Fields:    set.Policy.Fields,
		WindowSet: set.Policy.Window != 0,
		Origin:    api.PolicySet,
		Keys:      set.Keys,
	}
	// A policy without a window has that of the settings, unless nothing is compared.
	switch {
	case p.WindowSet:
		p.Window = set.Policy.Window.String()
	case set.Policy.Mode != event.DedupOff:
		p.Window = c.Machine().Settings().DedupWindow.String()
	}
	return p
}
