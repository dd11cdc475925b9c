package event

import "github.com/ringrift/ringlog/event/canon"

// maxOutlines bounds the types whose outlines a gate keeps.
const maxOutlines = 256

// outline is what a gate remembers of the payloads of one type.
type outline struct {
	canon.Outline
	shape  gateShape // of the payload before
	warned []Warning // the warnings of that shape
}

// outlines holds one outline for each type, and one for all types that are not in the catalogue. The zero outlines is
// ready to use.
type outlines struct {
	last *Definition // the type asked for last; nil also is a type
	like *outline    // its outline
	all  map[*Definition]*outline
}

// of returns the outline of a type.
func (o *outlines) of(def *Definition) *outline {
	// The common case: events of one type follow each other.
	if o.like != nil && o.last == def {
		return o.like
	}
	like := o.all[def]
	if like == nil {
		if o.all == nil || len(o.all) == maxOutlines {
			o.all = make(map[*Definition]*outline) // full: start again
		}
		like = new(outline)
		o.all[def] = like
	}
	o.last, o.like = def, like
	return like
}
