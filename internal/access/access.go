// Package access says who a caller is and what it may do. Every route of a server needs one of its permissions, and the
// operations ask it which types of events and which cursors are the caller's.
package access

import (
	"context"
	"slices"
	"sync/atomic"

	"github.com/ringrift/ringlog/event"
)

// Role is what a token is for. A role is a word in the log, so its meaning must not change.
type Role string

// The roles of tokens.
const (
	Monitor    Role = "monitor"    // sees how the cluster is, and no events
	Subscriber Role = "subscriber" // reads events, through cursors and groups of its own
	Publisher  Role = "publisher"  // publishes events
	Operator   Role = "operator"   // keeps the cluster running
	Admin      Role = "admin"      // all data and all power
)

// Roles are all roles, the least powerful first.
func Roles() []Role { return []Role{Monitor, Subscriber, Publisher, Operator, Admin} }

// Scoped reports whether a token of the role may be bound to types and cursors. What the others do is about all of
// them.
func (r Role) Scoped() bool { return r == Subscriber || r == Publisher }

// Means says what a role may do, for people.
func (r Role) Means() string {
	switch r {
	case Monitor:
		return "sees how the cluster is: status, metrics, names of cursors and groups; no events"
	case Subscriber:
		return "reads events, has cursors, groups and their dead letters"
	case Publisher:
		return "publishes events, also at a time"
	case Operator:
		return "settings but those of retention and access, compaction that passes no cursor, redrive and purge of " +
			"dead letters, step-down, types, flows, views, resources"
	case Admin:
		return "everything: members, backups, forced compaction, tokens. Full access to all data and operations"
	}
	return ""
}

// Permission is what a route needs of its caller. The zero Permission is none: a route that has it is not served.
type Permission uint8

// The permissions.
const (
	_          Permission = iota
	Open                  // anybody, also without a token
	Known                 // any token
	Observe               // how the cluster is
	Metrics               // the same for Prometheus; a setting opens it to anybody
	Inspect               // names and places of cursors and groups
	Subscribe             // events, and a cursor's or group's own
	Letters               // dead letters
	Publish               // events to append
	Coordinate            // roles of daemons, allocations, registrations
	Operate               // what keeps a cluster running
	Administer            // all data or all power
	Peer                  // calls between nodes
)

// granted are the roles that have each permission. Admin has every one but Peer, and so it is not listed.
var granted = [...][]Role{
	Open:       {Monitor, Subscriber, Publisher, Operator},
	Known:      {Monitor, Subscriber, Publisher, Operator},
	Observe:    {Monitor, Operator},
	Metrics:    {Monitor, Operator},
	Inspect:    {Monitor, Subscriber, Operator},
	Subscribe:  {Subscriber},
	Letters:    {Subscriber, Operator},
	Publish:    {Publisher},
	Coordinate: {Subscriber, Publisher, Operator},
	Operate:    {Operator},
	Administer: {},
	Peer:       {},
}

// Declared reports whether there is such a permission.
func (p Permission) Declared() bool { return p != 0 && int(p) < len(granted) }

// To reports whether a role has the permission.
func (p Permission) To(r Role) bool {
	if !p.Declared() || !slices.Contains(Roles(), r) {
		return false
	}
	return (r == Admin && p != Peer) || slices.Contains(granted[p], r)
}

// Holders are the roles that have the permission, as a refusal names them.
func (p Permission) Holders() []Role {
	return slices.DeleteFunc(Roles(), func(r Role) bool { return !p.To(r) })
}

// Principal is who makes a call. It does not change, and is safe for concurrent use.
type Principal struct {
	name    string
	trusted bool // of a cluster without tokens, or with the cluster token: everything is allowed
	node    bool // of another node, by its certificate
	roles   []Role
	types   []string
	cursors []string

	compiled atomic.Pointer[compiled]
}

// compiled is what the patterns of types mean by one catalogue.
type compiled struct {
	catalogue *event.Catalogue
	matcher   event.Matcher
}

// Root is whoever has the cluster token. It may do everything.
func Root() *Principal { return &Principal{name: "root", trusted: true} }

// Anybody is a caller of a cluster that lets everybody in.
func Anybody() *Principal { return &Principal{trusted: true} }

// Member is another node of the cluster. It calls on its own behalf, or on another principal's, which it names.
func Member(id string) *Principal { return &Principal{name: "node " + id, node: true} }

// Holder is whoever has the token of a name. Without types, or without cursors, it is good for all of them. Roles that
// this build does not know grant nothing.
func Holder(name string, roles, types, cursors []string) *Principal {
	p := &Principal{name: name, types: types, cursors: cursors}
	for _, r := range roles {
		p.roles = append(p.roles, Role(r))
	}
	return p
}

// nobody is the caller of a call without a principal.
var nobody = &Principal{cursors: []string{""}, types: []string{""}}

type (
	principalKey struct{}
	actKey       struct{}
)

// With returns a context of a call that p makes.
func With(ctx context.Context, p *Principal) context.Context {
	return context.WithValue(ctx, principalKey{}, p)
}

// Of returns who makes a call. A context that says nothing of it is of nobody, who may do nothing.
func Of(ctx context.Context) *Principal {
	if p, known := ctx.Value(principalKey{}).(*Principal); known && p != nil {
		return p
	}
	return nobody
}

// Acting returns a context of a call that does an act of operators and admins, of that name.
func Acting(ctx context.Context, act string) context.Context {
	return context.WithValue(ctx, actKey{}, act)
}

// Act returns which act a call does, and whose it is. It is "" for any other call, and where the caller is not known by
// name or is neither operator nor admin: who moves a cursor of its own is neither.
func Act(ctx context.Context) (act string, by *Principal) {
	act, _ = ctx.Value(actKey{}).(string)
	by = Of(ctx)
	if by.name == "" || !by.May(Operate) {
		return "", by
	}
	return act, by
}

// String is the name of the token, "root", "node ID", or "" for a caller that is not known.
func (p *Principal) String() string { return p.name }

// Nobody reports whether the caller is not known.
func (p *Principal) Nobody() bool { return p == nobody }

// IsNode reports whether the caller may speak for others: it has the cluster token, or a node's certificate.
func (p *Principal) IsNode() bool { return p.trusted || p.node }

// May reports whether the caller has a permission.
func (p *Principal) May(need Permission) bool {
	switch {
	case !need.Declared():
		return false
	case p.trusted || need == Open:
		return true
	case p.node:
		return need == Peer
	}
	return slices.ContainsFunc(p.roles, need.To)
}

// AllTypes reports whether the events of all types are the caller's.
func (p *Principal) AllTypes() bool { return p.trusted || len(p.types) == 0 }

// AllCursors reports whether all cursors and groups are the caller's.
func (p *Principal) AllCursors() bool { return p.trusted || len(p.cursors) == 0 }

// Types returns the patterns of the types that are the caller's, none if all are.
func (p *Principal) Types() []string {
	if p.AllTypes() {
		return nil
	}
	return p.types
}

// Matcher returns what allows the types that are the caller's, by a catalogue, and nil if all are. The caller may ask
// for every request: it is compiled once for each catalogue.
func (p *Principal) Matcher(c *event.Catalogue) *event.Matcher {
	if p.AllTypes() {
		return nil
	}
	known := p.compiled.Load()
	if known == nil || known.catalogue != c {
		known = &compiled{c, event.Filter{Types: p.types}.Compile(c)}
		p.compiled.Store(known)
	}
	return &known.matcher
}

// Cursor reports whether a cursor or group is the caller's.
func (p *Principal) Cursor(name string) bool {
	return p.AllCursors() || slices.ContainsFunc(p.cursors, func(pattern string) bool {
		return event.Glob(pattern, name)
	})
}

// Covers reports whether every event that passes a filter is the caller's.
func (p *Principal) Covers(c *event.Catalogue, f event.Filter) bool {
	return p.AllTypes() || f.Within(p.types, c)
}
