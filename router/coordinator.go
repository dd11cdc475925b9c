package router

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/ringrift/ringlog/event"
)

// completeCoordinator makes of a coordinator the types that its entry in the registry declares, unless the subscription
// names its own.
func (r *Router) completeCoordinator(s *Subscription) error {
	if s.Coordinator == "" {
		return nil
	}
	if s.Flow != "" {
		return errors.New("both a Coordinator and a Flow: each says which types it is for")
	}

	// An entry is found by its name or its class. From here on the subscription has the name, which the cluster
	// compares.
	list := r.options.Catalogue.Coordinators()
	i := slices.IndexFunc(list, func(c event.Coordinator) bool {
		return c.Name == s.Coordinator || (c.Class != "" && c.Class == s.Coordinator)
	})
	if i < 0 {
		return fmt.Errorf("the registry has no coordinator %q: ringlog audit --only components lists them", s.Coordinator)
	}
	entry := list[i]
	s.Coordinator = entry.Name

	// A subscription that names no types gets those that the entry declares.
	declared := entry.SubscribedEvents
	if len(s.Types) == 0 && len(s.Categories) == 0 {
		if len(declared) == 0 {
			return fmt.Errorf("the registry does not list what %s subscribes to: give Types", entry.Name)
		}
		for _, t := range declared {
			s.Types = append(s.Types, string(t))
		}
		return nil
	}

	// The types are the caller's; how they differ from the entry is worth a line.
	if missing, undeclared := r.drift(s, declared); len(declared) > 0 && len(missing)+len(undeclared) > 0 {
		r.options.Logger.Warn("a subscription differs from what the registry declares of its coordinator",
			"subscription", s.Name, "coordinator", entry.Name,
			"missing", strings.Join(missing, " "), "undeclared", strings.Join(undeclared, " "))
	}
	return nil
}

// drift returns the declared types that a subscription does not receive, and the types that it receives and that are
// not declared.
func (r *Router) drift(s *Subscription, declared []event.Type) (missing, undeclared []string) {
	// Both lists are of types that the catalogue has: what else a pattern matches, no entry could declare.
	m := s.filter().Compile(r.options.Catalogue)
	for _, d := range r.options.Catalogue.Definitions() {
		switch is := slices.Contains(declared, d.Name); {
		case is && !m.MatchType(string(d.Name)):
			missing = append(missing, string(d.Name))
		case !is && m.MatchType(string(d.Name)):
			undeclared = append(undeclared, string(d.Name))
		}
	}
	return missing, undeclared
}

// checkCoordinator refuses a second coordinator: a router is registered as one.
func (r *Router) checkCoordinator(s *subscriber) error {
	for _, other := range r.subscribers() {
		if have := other.spec.Coordinator; have != "" && s.spec.Coordinator != "" && have != s.spec.Coordinator {
			return fmt.Errorf("the router is %s's already: make a router for %s", have, s.spec.Coordinator)
		}
	}
	return nil
}
