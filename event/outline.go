package event

// What a gate remembers is bounded: outlines, keys of each, bytes of a key.
const (
	maxOutlines = 256
	maxOutlined = 64
	maxKeyText  = 256
)

// outline is the first keys of the outermost object of a payload that was verified, canonical and in order. Most payloads
// of a type have the same: a key that stands at its place there needs no other look.
type outline struct {
	keys  []outlined
	shape gateShape
	told  []Warning // of that shape
}

type outlined struct {
	text []byte // from its first quote to its value: "elo":_
	hash uint64
}

// at is the i-th key, empty where there is none.
func (o *outline) at(i int) (text []byte, hash uint64) {
	if i < len(o.keys) {
		return o.keys[i].text, o.keys[i].hash
	}
	return nil, 0
}

// put makes text the i-th key and the last: it follows those before it, and others may follow it than did.
func (o *outline) put(i int, text []byte, hash uint64) {
	if i >= maxOutlined || i > len(o.keys) {
		return
	}
	o.keys = o.keys[:i]
	switch {
	case len(text) > maxKeyText:
		return
	case i < cap(o.keys):
		o.keys = o.keys[:i+1]
	default:
		o.keys = append(o.keys, outlined{})
	}
	k := &o.keys[i]
	k.text, k.hash = append(k.text[:0], text...), hash
}

// outlines are those of the payloads of each type. The zero outlines is ready.
type outlines struct {
	last *Definition
	like *outline // of last
	all  map[*Definition]*outline
}

// of is the outline of a type's payloads, one for all that are not in the catalogue.
func (o *outlines) of(def *Definition) *outline {
	if o.like != nil && o.last == def {
		return o.like
	}
	like := o.all[def]
	if like == nil {
		if o.all == nil || len(o.all) == maxOutlines {
			o.all = make(map[*Definition]*outline)
		}
		like = new(outline)
		o.all[def] = like
	}
	o.last, o.like = def, like
	return like
}
