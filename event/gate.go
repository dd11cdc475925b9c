package event

import (
	"strings"
	"sync"
)

// maxShapes bounds what a gate remembers.
const maxShapes = 256

// Gate lets the events of one request through a policy. It looks once at the keys that payloads of a type have in
// common, and works the warnings out once for all events of the same type and shape, which then share them. It is not
// safe for concurrent use.
type Gate struct {
	policy   Policy
	outlines outlines
	shapes   map[gateShape]gateTold
	hasher   *hasher
	before   Event // it was normalized; kept for its memory
}

type gateShape struct {
	sent  Type // as it came
	shape uint64
}

// gateTold is what the events of a shape are told.
type gateTold struct {
	sent Type // the shape's
	list []Warning
}

// gates are open to whoever has the same policy next, and keep what they remember.
var gates sync.Pool

// Gate returns a gate for one request, to be closed after it.
func (p *Policy) Gate() *Gate {
	if g, ok := gates.Get().(*Gate); ok && g.policy == *p {
		return g
	}
	return &Gate{policy: *p, hasher: newHasher()}
}

// Close gives the gate back. The warnings it told stay.
func (g *Gate) Close() {
	g.before = Event{} // of the request
	gates.Put(g)
}

// Normalize is Policy.Normalize. The warnings must not be changed.
func (g *Gate) Normalize(e *Event) (Hash, []Warning, error) {
	g.before = *e
	known, shape, _, err := g.policy.normalize(e, &g.outlines, true)
	if err != nil {
		return Hash{}, nil, err
	}
	return g.hasher.hash(known.Value, e.Payload), g.warnings(&g.before, g.outlines.of(known.Definition), shape), nil
}

// Check is Policy.Check.
func (g *Gate) Check(e *Event) error {
	_, _, _, err := g.policy.normalize(e, &g.outlines, true)
	return err
}

// CheckEnvelope is Check without a look at the payload.
func (g *Gate) CheckEnvelope(e *Event) error {
	_, _, err := g.policy.envelope(e, g.policy.Limits.orDefault(), true)
	return err
}

func (g *Gate) warnings(sent *Event, last *outline, shape uint64) []Warning {
	key := gateShape{sent.Type, shape}
	if key == last.shape && shape != unlikeOthers {
		return last.told
	}
	told, known := g.shapes[key]
	if !known || shape == unlikeOthers {
		key.sent = Type(strings.Clone(string(sent.Type))) // not to keep the request
		told.sent = key.sent
		_, _, told.list, _ = g.policy.normalize(sent, nil, false)
		if g.shapes == nil || len(g.shapes) == maxShapes {
			g.shapes = make(map[gateShape]gateTold)
		}
		g.shapes[key] = told
	}
	last.shape, last.told = gateShape{told.sent, shape}, told.list
	return told.list
}
