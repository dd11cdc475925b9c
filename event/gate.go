package event

import (
	"slices"
	"strings"
	"sync"

	"github.com/ringrift/ringlog/event/canon"
)

// Bounds of a gate.
const (
	maxShapes = 256 // shapes whose warnings it keeps
	// Unknown types of a request for which the nearest known ones are looked up: each takes about as long as checking
	// a hundred events.
	maxLookups = 8
)

// Gate applies a policy to the events of one request. It checks the keys that payloads of a type have in common once,
// and computes warnings once for all events of the same type and shape, which then share them. It is not safe for
// concurrent use.
// A gate is worth its memory where a request has many events of few types, which is the common case.
// Gates are kept for later requests, so a gate must not refer to a request that is over.
type Gate struct {
	policy Policy
	// by type: the keys that its last payload had
	outlines outlines
	// emptied when it has maxShapes entries
	shapes map[gateShape]gateWarnings
	// by unknown type as it was sent: the nearest known ones, as text; emptied when it has maxShapes entries
	near    map[Type]string
	lookups int // for near, that are left to this request
	// of the content hashes
	hasher *canon.Hasher
	before Event // the event being normalized as it was sent; a field so that it is not allocated each time
}

// gateShape identifies events that get the same warnings.
type gateShape struct {
	sent  Type // the type as it was sent
	shape uint64
}

// gateWarnings are the warnings of a gateShape.
// The list is shared by all events that get it, so nobody may change it.
type gateWarnings struct {
	sent Type // of the gateShape, in memory of its own
	list []Warning
	// The nearest known types are missing, since too many were looked up for the request: a later one completes it.
	incomplete bool
}

// gates keeps closed gates with what they remember, for the next request under the same policy.
var gates sync.Pool

// Gate returns a gate for one request, which the caller closes after it.
func (p *Policy) Gate() *Gate {
	// A gate of another policy is dropped: settings change rarely.
	// Comparing policies compares pointers: the same catalogue and dedup policies.
	g, ok := gates.Get().(*Gate)
	if !ok || g.policy != *p {
		g = &Gate{policy: *p, hasher: canon.NewHasher()}
	}
	g.lookups = maxLookups
	return g
}

// Close releases the gate. The warnings that it returned stay valid.
// It must not be called twice, or two callers would get the same gate.
func (g *Gate) Close() {
	g.before = Event{} // refers to the request
	gates.Put(g)
}

// Normalize is Policy.Normalize. The warnings must not be changed.
func (g *Gate) Normalize(e *Event) (Hash, []Warning, error) {
	// Warnings are about the event as it was sent, which normalizing changes.
	g.before = *e
	known, shape, _, err := g.policy.normalize(e, &g.outlines, true)
	if err != nil {
		return Hash{}, nil, err
	}
	// The outline of a type has the shape and the warnings of the event before.
	warnings := g.warnings(&g.before, g.outlines.of(known.Definition), shape)
	return g.hasher.ContentHash(known.Value, e.Payload), warnings, nil
}

// Check is Policy.Check.
func (g *Gate) Check(e *Event) error {
	// The outlines speed it up as they do for Normalize; the shape is not needed.
	_, _, _, err := g.policy.normalize(e, &g.outlines, true)
	return err
}

// CheckEnvelope is Check without the payload.
func (g *Gate) CheckEnvelope(e *Event) error {
	_, _, err := g.policy.envelope(e, g.policy.Limits.orDefault(), true)
	return err
}

// warnings returns the warnings of an event by its shape; last is the outline of its type.
func (g *Gate) warnings(sent *Event, last *outline, shape uint64) []Warning {
	// The common case: the same shape as the event of that type before.
	key := gateShape{sent.Type, shape}
	if key == last.shape && shape != uniqueShape {
		return last.warned
	}
	// A new shape, or warnings that depend on values: normalize the event as it was sent again, now with warnings.
	// It costs another pass over the payload, once for each shape.
	warned, known := g.shapes[key]
	completed := warned.incomplete && g.lookups > 0
	if !known || completed || shape == uniqueShape {
		key.sent = Type(strings.Clone(string(sent.Type))) // so that the gate does not keep the request in memory
		warned.sent = key.sent
		_, _, warned.list, _ = g.policy.normalize(sent, nil, false)
		warned.incomplete = !g.suggest(key.sent, warned.list)
		// A producer may make up shapes without end, so all are forgotten from time to time.
		if g.shapes == nil || len(g.shapes) == maxShapes {
			g.shapes = make(map[gateShape]gateWarnings)
		}
		g.shapes[key] = warned
	}
	// The next event of the type is compared with this one first.
	last.shape, last.warned = gateShape{warned.sent, shape}, warned.list
	if warned.incomplete {
		last.shape = gateShape{} // it is looked up again
	}
	return warned.list
}

// suggest adds the nearest known types to the warning of an unknown one, as Policy.Normalize does. It reports whether
// nothing is missing: it looks up few types in a request.
func (g *Gate) suggest(sent Type, warnings []Warning) (complete bool) {
	i := slices.IndexFunc(warnings, func(w Warning) bool { return w.Reason == WarningUnknownType })
	if i < 0 {
		return true
	}
	near, known := g.near[sent]
	if !known {
		// The warning is sent without them rather than holding up the request.
		if g.lookups == 0 {
			return false
		}
		g.lookups--
		if g.near == nil || len(g.near) == maxShapes {
			g.near = make(map[Type]string)
		}
		near = g.policy.catalogue().nearText(string(sent))
		g.near[sent] = near
	}
	warnings[i].Message += near
	return true
}
