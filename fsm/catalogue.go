package fsm

import (
	"fmt"
	"maps"
	"slices"

	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/internal/frame"
)

// Bounds of what can be added to the catalogue at run time.
const (
	maxTypes = 10_000
	maxFlows = 64
)

// register adds event types. Whether they agree with the built-in catalogue is checked where the
// request comes in, because builds may differ in it; the decision depends only on what every build
// reads alike.
func (a *applier) register(c frame.Register) Result {
	defs, err := event.ParseDefinitions(c.Definitions)
	if err != nil {
		return refuse(Invalid, "definitions", err.Error(),
			"send a JSON array in the form of GET /v1/catalogue, or ringlog catalogue ls -o json")
	}
	// A type that is registered again takes no further place.
	added := map[event.Type]bool{}
	for _, d := range defs {
		if _, known := a.s.types[d.Name]; !known {
			added[d.Name] = true
		}
	}

	// All of them fit, or none is added.
	if len(a.s.types)+len(added) > maxTypes {
		return refuse(Overloaded, "definitions",
			fmt.Sprintf("there would be more than %d registered types", maxTypes), "")
	}
	for _, d := range defs {
		a.s.types[d.Name] = d
		a.tx.setJSON(key(prefixType, string(d.Name)), d)
	}
	a.s.stale.types = true
	return Result{}
}

// loadType reads a registered type. Its name is in the value.
func (s *state) loadType(_ string, value []byte) error {
	defs, err := event.ParseDefinitions(value)
	if err == nil {
		s.types[defs[0].Name] = defs[0]
	}
	return err
}

// putFlows adds flows, or replaces those of the same name. As with types, whether they agree with the built-in ones is
// checked where the request comes in.
func (a *applier) putFlows(c frame.FlowPut) Result {
	flows, err := event.ParseFlows(c.Flows)
	if err != nil {
		return refuse(Invalid, "flows", err.Error(),
			"send a JSON array in the form of GET /v1/flows, or ringlog flow ls -o json")
	}
	// A flow that replaces another takes no further place.
	added := map[string]bool{}
	for _, f := range flows {
		if _, known := a.s.flows[f.Name]; !known {
			added[f.Name] = true
		}
	}

	// All of them fit, or none is added.
	if len(a.s.flows)+len(added) > maxFlows {
		return refuse(Overloaded, "flows", fmt.Sprintf("there would be more than %d registered flows", maxFlows),
			"remove some that nobody follows")
	}
	for _, f := range flows {
		a.s.flows[f.Name] = f
		a.tx.setJSON(key(prefixFlow, f.Name), f)
	}
	a.s.stale.flows = true
	return Result{}
}

// removeFlow removes a flow that was added.
func (a *applier) removeFlow(c frame.FlowRemove) Result {
	if _, known := a.s.flows[c.Name]; !known {
		return refuse(NotFound, "name", fmt.Sprintf("no flow %q is registered", c.Name),
			"list them: GET /v1/flows, or ringlog flow ls; the built-in ones stay")
	}
	delete(a.s.flows, c.Name)
	a.tx.Delete(key(prefixFlow, c.Name))
	a.s.stale.flows = true
	return Result{}
}

// loadFlow reads a registered flow. Its name is in the value.
func (s *state) loadFlow(_ string, value []byte) error {
	flows, err := event.ParseFlows(value)
	if err == nil {
		s.flows[flows[0].Name] = flows[0]
	}
	return err
}

// stale says what an entry, or the load of the state, has changed of what is compiled for readers and for the gate.
type stale struct{ types, flows, policies bool }

// compile brings up to date what is compiled, once for all commands of an entry: none of them reads it.
func (s *state) compile() {
	if s.stale.types {
		s.compileTypes()
	}
	if s.stale.types || s.stale.flows {
		s.compileFlows()
	}
	if s.stale.policies {
		s.compilePolicies()
	}
	s.stale = stale{}
}

// compileTypes adds the registered types to the built-in ones. One that this build's catalogue contradicts is left
// out: the built-in meaning wins.
func (s *state) compileTypes() {
	var types []event.Definition
	for _, name := range slices.Sorted(maps.Keys(s.types)) {
		types = append(types, s.types[name])
	}
	s.typed = extend(event.Builtin(), (*event.Catalogue).With, types)
}

// compileFlows adds the registered flows, which name types. As with types, the built-in meaning wins.
func (s *state) compileFlows() {
	var flows []event.Flow
	for _, name := range slices.Sorted(maps.Keys(s.flows)) {
		flows = append(flows, s.flows[name])
	}
	s.catalogue = extend(s.typed, (*event.Catalogue).WithFlows, flows)
}

// extend adds all at once where they fit together, else those that do, one by one.
func extend[T any](c *event.Catalogue, with func(*event.Catalogue, ...T) (*event.Catalogue, error),
	all []T) *event.Catalogue {
	if len(all) == 0 {
		return c
	}
	if extended, err := with(c, all...); err == nil {
		return extended
	}
	for _, one := range all {
		if extended, err := with(c, one); err == nil {
			c = extended
		}
	}
	return c
}
