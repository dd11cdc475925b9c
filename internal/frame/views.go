package frame

import (
	"encoding/binary"

	"github.com/ringrift/ringlog/internal/fields"
)

// ViewDefine defines a view, or defines it otherwise. Revision is that of the views against which the declaration was
// checked: it is refused if another one was defined since.
type ViewDefine struct {
	Name        string
	Declaration string
	Revision    uint64
}

// ViewRemove removes a view.
type ViewRemove struct{ Name string }

// ViewEmission names the firings of a view whose events are at the offsets after From, up to To.
type ViewEmission struct {
	View       string // its name; empty is no emission
	Generation uint64
	From       uint64
	To         uint64
}

// ViewSkip passes over firings that cannot be published.
type ViewSkip struct{ ViewEmission }

// Kind implements Command.
func (ViewDefine) Kind() Kind { return KindViewDefine }
func (ViewRemove) Kind() Kind { return KindViewRemove }
func (ViewSkip) Kind() Kind   { return KindViewSkip }

// appendTo writes name, declaration, revision.
func (c ViewDefine) appendTo(b []byte) []byte {
	return binary.AppendUvarint(fields.Append(fields.Append(b, c.Name), c.Declaration), c.Revision)
}

// appendTo writes name.
func (c ViewRemove) appendTo(b []byte) []byte { return fields.Append(b, c.Name) }

// appendTo writes view, generation, from, to.
func (e ViewEmission) appendTo(b []byte) []byte {
	b = binary.AppendUvarint(fields.Append(b, e.View), e.Generation)
	return binary.AppendUvarint(binary.AppendUvarint(b, e.From), e.To)
}

// viewEmission refuses one without a view: its command would be encoded as another kind.
func (d *decoder) viewEmission() ViewEmission {
	e := ViewEmission{View: d.string(), Generation: d.Uvarint(), From: d.Uvarint(), To: d.Uvarint()}
	if e.View == "" {
		d.Fail("firings without a view")
	}
	return e
}
