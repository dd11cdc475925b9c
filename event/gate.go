package event

// maxShapes bounds what a gate remembers.
const maxShapes = 256

// Gate lets the events of one request through a policy. It works the warnings out once for all events of the same type
// and shape, which then share them. It is not safe for concurrent use.
type Gate struct {
	policy *Policy
	last   gateShape
	told   []Warning // of last
	shapes map[gateShape][]Warning
}

type gateShape struct {
	sent  Type // as it came
	shape uint64
}

// Gate returns a gate for one request.
func (p *Policy) Gate() *Gate { return &Gate{policy: p} }

// Normalize is Policy.Normalize. The warnings must not be changed.
func (g *Gate) Normalize(e *Event) (Hash, []Warning, error) {
	before := *e
	known, shape, _, err := g.policy.normalize(e, true)
	if err != nil {
		return Hash{}, nil, err
	}
	return contentHash(known.Value, e.Payload), g.warnings(&before, shape), nil
}

func (g *Gate) warnings(sent *Event, shape uint64) []Warning {
	key := gateShape{sent.Type, shape}
	if key == g.last && shape != unlikeOthers {
		return g.told
	}
	told, known := g.shapes[key]
	if !known || shape == unlikeOthers {
		_, _, told, _ = g.policy.normalize(sent, false)
		if g.shapes == nil || len(g.shapes) == maxShapes {
			g.shapes = make(map[gateShape][]Warning)
		}
		g.shapes[key] = told
	}
	g.last, g.told = key, told
	return told
}
