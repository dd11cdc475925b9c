package where

import (
	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/types"

	"github.com/ringrift/ringlog/event"
)

// Scope has the variables of one event, for one evaluation after another. It decodes the payload once, when an
// expression first uses it. It is not safe for concurrent use. It is the activation of an evaluation: CEL asks it for
// each variable by name.
type Scope struct {
	event    *event.Event   // not changed
	of       *Members       // nil decodes all of the payload
	language bool           // numbers and texts are those of a Language
	payload  map[string]any // what is decoded of the payload; its memory is kept between events
	decoded  bool           // payload or failure is that of event
	failure  error          // why the payload could not be decoded
	resolved any            // payload as any, so that handing it out does not allocate
}

// NewScope returns a scope for expressions of a Language, which use no more of a payload than of.
func NewScope(of *Members) *Scope { return &Scope{of: of, language: true} }

// Reset makes the variables those of another event.
func (s *Scope) Reset(ev *event.Event) {
	// The map stays the one in resolved.
	clear(s.payload)
	s.event, s.decoded, s.failure = ev, false, nil
}

// Parent implements cel.Activation.
func (s *Scope) Parent() cel.Activation { return nil }

// ResolveName implements cel.Activation.
func (s *Scope) ResolveName(name string) (any, bool) {
	// Each name of eventVariables has a case.
	switch name {
	case "payload":
		return s.members(), true
	case "type":
		return string(s.event.Type), true
	case "value":
		return s.event.EffectiveValue(), true
	case "source":
		return s.event.Source, true
	case "key":
		return s.event.Key, true
	case "correlation_id":
		return s.event.CorrelationID, true
	case "causation_id":
		return s.event.CausationID, true
	case "dedup_id":
		return s.event.DedupID, true
	case "offset":
		return s.number(s.event.Offset), true
	case "term":
		return s.number(s.event.Term), true
	case "time":
		return s.event.Time, true
	case "appended_at":
		return s.event.AppendedAt, true
	}
	return nil, false
}

// number returns a number of the log as expressions see it.
func (s *Scope) number(n uint64) any {
	if s.language {
		return float64(n)
	}
	return int64(n)
}

// members returns the payload as CEL sees it.
func (s *Scope) members() any {
	if !s.decoded {
		s.decode()
	}
	// An error as a value fails the expression that uses it.
	if s.failure != nil {
		return types.WrapErr(s.failure)
	}
	return s.resolved
}

// decode decodes what is used of the payload.
func (s *Scope) decode() {
	// Once: the map is filled again for each event.
	if s.payload == nil {
		s.payload = map[string]any{}
		s.resolved = s.payload
	}
	// nil has all members decoded.
	var wanted map[string]bool
	if s.of != nil && !s.of.all {
		wanted = s.of.names
	}
	d := decoder{inLanguage: s.language}
	d.Data = s.event.Payload
	s.failure = d.object(s.payload, wanted)
	s.decoded = true
}

// Members are the members of payloads that expressions use. The zero value is none.
type Members struct {
	names map[string]bool
	all   bool // an expression uses the payload as a whole, or by a computed name
}

// Add adds what an expression uses.
func (m *Members) Add(x *Expression) {
	if m.names == nil {
		m.names = map[string]bool{}
	}
	m.all = m.all || x.whole
	for _, name := range x.members {
		m.names[name] = true
	}
}
