package audit

import (
	"cmp"
	"maps"
	"slices"

	"github.com/ringrift/ringlog/event"
)

// Component is a coordinator, module or class, with the number of types that it is wired to.
type Component struct {
	Name      string `json:"name"`            // the one name of all its spellings
	Class     string `json:"class,omitempty"` // of a coordinator
	File      string `json:"file,omitempty"`  // of its module
	Layer     int    `json:"layer,omitempty"` // 0 if it is not in the registry
	LayerName string `json:"layer_name,omitempty"`
	Pattern   string `json:"pattern,omitempty"`  // how the registry brings it up
	Delegate  string `json:"delegate,omitempty"` // the coordinator that does its work
	Declared  string `json:"declared,omitempty"` // what the registry says of its subscriptions
	Named     int    `json:"named"`              // types that it subscribes to by name
	Matched   int    `json:"matched"`            // types that it subscribes to only by pattern or category
	Dead      int    `json:"dead"`               // of both, the types that nobody emits
	Emits     int    `json:"emits"`              // types that it emits
	Orphans   int    `json:"orphans"`            // of those, the types that nobody subscribes to
}

// Layer is a layer of the registry.
// Types are counted once a layer, so the sums of layers may exceed the number of types.
type Layer struct {
	Layer        int    `json:"layer"`
	Name         string `json:"name"`         // of the layer
	Coordinators int    `json:"coordinators"` // how many the registry has in it
	Subscribed   int    `json:"subscribed"`   // types that one of them subscribes to
	Dead         int    `json:"dead"`         // of those, the types that nobody emits
	Emitted      int    `json:"emitted"`      // types that one of them emits
	Orphans      int    `json:"orphans"`      // of those, the types that nobody subscribes to
}

// Category is a category of the catalogue with its types by class. Names without a category are under "".
type Category struct {
	Name   string        `json:"name"`
	Totals map[Class]int `json:"totals"`
}

// components returns the coordinators in the order of the registry, then all others that emit or subscribe, by name.
// types are those of the report. One that has several wires to a component counts once.
func (b *book) components(types []Entry) []Component {
	var list []Component
	// The place of a component in list.
	index := map[string]int{}
	for _, c := range b.declared.Coordinators {
		index[c.Name] = len(list)
		list = append(list, Component{
			Name: c.Name, Class: c.Class, File: c.File,
			Layer: c.Layer, LayerName: c.LayerName, Pattern: c.Pattern,
			Delegate: c.Delegate, Declared: c.Declared,
		})
	}
	// Components that only wires name come after the registry's, sorted.
	others := map[string]bool{}
	for _, e := range types {
		for _, w := range slices.Concat(e.Emitters, e.Subscribers) {
			if _, listed := index[w.Component]; !listed {
				others[w.Component] = true
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(others)) {
		index[name] = len(list)
		list = append(list, Component{Name: name})
	}
	// Count each type once for each of its components.
	for _, e := range types {
		for name, how := range wiresByComponent(e) {
			list[index[name]].count(e.Class, how)
		}
	}
	return list
}

// part is how one component is wired to one type.
type part struct{ emits, named, matched bool }

// wiresByComponent sums up how each component is wired to one type.
func wiresByComponent(e Entry) map[string]part {
	parts := map[string]part{}
	for _, w := range e.Emitters {
		p := parts[w.Component]
		p.emits = true
		parts[w.Component] = p
	}
	// A component may subscribe by name and by pattern; count decides which one counts.
	for _, w := range e.Subscribers {
		p := parts[w.Component]
		p.named = p.named || w.Pattern == ""
		p.matched = p.matched || w.Pattern != ""
		parts[w.Component] = p
	}
	return parts
}

// count adds one type.
func (c *Component) count(class Class, how part) {
	// What it emits counts apart from what it subscribes to: a component may do both with one type.
	if how.emits {
		c.Emits++
		c.Orphans += one(class == Orphan)
	}
	// A type that it subscribes to by name and by pattern counts once, as named.
	switch {
	case how.named:
		c.Named++
	case how.matched:
		c.Matched++
	default:
		return
	}
	c.Dead += one(class == Dead)
}

// one counts: 1 for true, 0 for false.
func one(is bool) int {
	if is {
		return 1
	}
	return 0
}

// layersOf counts coordinators and types by layer. A type counts once for each layer, however many coordinators use
// it. Components that are not in the registry are in no layer.
func layersOf(registry []event.Coordinator, types []Entry) []Layer {
	// The layers of the registry, and the layer of each coordinator.
	layers, of := map[int]*Layer{}, map[string]int{}
	for _, c := range registry {
		if layers[c.Layer] == nil {
			layers[c.Layer] = &Layer{Layer: c.Layer, Name: c.LayerName}
		}
		layers[c.Layer].Coordinators++
		of[c.Name] = c.Layer
	}
	// For each type, find the layers that emit it or subscribe to it, before they are counted.
	for _, e := range types {
		emitted, subscribed := map[int]bool{}, map[int]bool{}
		for name, how := range wiresByComponent(e) {
			if layer, listed := of[name]; listed {
				emitted[layer] = emitted[layer] || how.emits
				subscribed[layer] = subscribed[layer] || how.named || how.matched
			}
		}
		for n, l := range layers {
			l.Emitted += one(emitted[n])
			l.Orphans += one(emitted[n] && e.Class == Orphan)
			l.Subscribed += one(subscribed[n])
			l.Dead += one(subscribed[n] && e.Class == Dead)
		}
	}
	// In the order of the layers.
	list := []Layer{}
	for _, n := range slices.Sorted(maps.Keys(layers)) {
		list = append(list, *layers[n])
	}
	return list
}

// categoriesOf counts the names of each category by class.
func categoriesOf(types []Entry) []Category {
	// A name that is not a type of the catalogue has no category.
	found := map[string]map[Class]int{}
	for _, e := range types {
		if found[e.Category] == nil {
			found[e.Category] = map[Class]int{}
		}
		found[e.Category][e.Class]++
	}
	// Sorted, since maps have no order; an empty list is [] in JSON.
	list := []Category{}
	for name, totals := range found {
		list = append(list, Category{name, totals})
	}
	slices.SortFunc(list, func(a, b Category) int { return cmp.Compare(a.Name, b.Name) })
	return list
}
