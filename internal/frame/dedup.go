package frame

import (
	"encoding/binary"
	"time"

	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/internal/fields"
)

// DedupPolicySet sets the dedup policy of a type. Without a mode it removes the one that was set.
type DedupPolicySet struct {
	Type   string
	Policy event.DedupPolicy
}

// Kind implements Command.
func (DedupPolicySet) Kind() Kind { return KindDedupPolicySet }

// appendTo writes type, mode, fields, window.
func (c DedupPolicySet) appendTo(b []byte) []byte {
	b = fields.Append(fields.Append(b, c.Type), string(c.Policy.Mode))
	b = appendStrings(b, c.Policy.Fields)
	return binary.AppendVarint(b, int64(c.Policy.Window))
}

// dedupPolicySet reads what DedupPolicySet.appendTo wrote.
func (d *decoder) dedupPolicySet() DedupPolicySet {
	return DedupPolicySet{Type: d.string(), Policy: event.DedupPolicy{
		Mode:   event.DedupMode(d.string()),
		Fields: d.strings(),
		Window: time.Duration(d.Varint()),
	}}
}
