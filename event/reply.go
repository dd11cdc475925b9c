package event

import (
	"slices"
	"strings"
)

// Replies are the types that say what became of a run that an event has started.
type Replies struct {
	Success []Type // any of them; empty if no outcome is known
	Failure []Type
}

// The last words of types that begin something, end it, and say that it has failed.
var (
	beginnings = []string{"_STARTED", "_REQUESTED", "_TRIGGERED", "_INITIATED"}
	endings    = []string{"_COMPLETED", "_COMPLETE"}
	failings   = []string{"_FAILED", "_TIMEOUT", "_REJECTED", "_ROLLED_BACK"}
)

// RepliesTo returns the types that answer t, a name in any spelling. The flows name them: they are the effects of t. An
// effect that only begins something, such as TRAINING_STARTED, is followed to its own effects. A type that begins
// something and is in no flow is answered by its namesake, as CMAES_TRIGGERED by CMAES_COMPLETED. Failures are the
// effects whose names say so, and the failures of the catalogue with the name of t or of an answer, as
// TRAINING_FAILED is one of TRAINING_STARTED.
func (c *Catalogue) RepliesTo(t Type) (r Replies) {
	found, _ := c.Resolve(string(t))
	t = found.Type
	// Walk the flows from t on; types that begin something are walked through, each once.
	walk := []Type{t}
	for i := 0; i < len(walk); i++ {
		for _, f := range c.flows {
			for _, edge := range f.Edges {
				effect := edge[1]
				switch {
				case edge[0] != walk[i] || effect == t:
				case hasWord(effect, beginnings):
					walk = appendNew(walk, effect)
				case hasWord(effect, failings):
					r.Failure = appendNew(r.Failure, effect)
				default:
					r.Success = appendNew(r.Success, effect)
				}
			}
		}
	}
	// Without a flow the name decides.
	if len(r.Success) == 0 && hasWord(t, beginnings) {
		r.Success = c.namesakes(r.Success, t, endings)
	}
	// Each answer may fail as what it is named after does.
	for _, of := range append([]Type{t}, r.Success...) {
		r.Failure = c.namesakes(r.Failure, of, failings)
	}
	// What a flow names as a success is one, whatever its name says, and no event answers itself.
	r.Failure = slices.DeleteFunc(r.Failure, func(f Type) bool { return f == t || slices.Contains(r.Success, f) })
	return r
}

// hasWord reports whether a type ends with one of the words.
func hasWord(t Type, words []string) bool {
	return slices.ContainsFunc(words, func(w string) bool { return strings.HasSuffix(string(t), w) })
}

// namesakes adds to a list the known types that differ from t in the last word alone, which is one of the words.
func (c *Catalogue) namesakes(list []Type, t Type, words []string) []Type {
	// Without two words there is no namesake.
	last := strings.LastIndexByte(string(t), '_')
	if last < 0 {
		return list
	}
	for _, w := range words {
		if d, known := c.types[t[:last]+Type(w)]; known && d.Status != StatusCluster {
			list = appendNew(list, d.Name)
		}
	}
	return list
}

// appendNew appends a type that the list has not.
func appendNew(list []Type, t Type) []Type {
	if slices.Contains(list, t) {
		return list
	}
	return append(list, t)
}
