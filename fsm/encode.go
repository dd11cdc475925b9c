package fsm

import (
	"encoding"
	"encoding/json"
	"strconv"
)

// object writes a JSON object field by field, byte for byte as encoding/json does. What is stored with
// every entry is written so: reflection took a sixth of what applying a small entry costs.
type object struct {
	b   []byte // what is written so far, without the closing brace
	err error  // the first one; what follows is written nevertheless
}

// newObject begins an object in a buffer of that many bytes. More room is made where it is not enough.
func newObject(room int) *object { return &object{b: append(make([]byte, 0, room), '{')} }

// end returns the object, and the first error of a field. The object must not be written to afterwards.
func (o *object) end() ([]byte, error) { return append(o.b, '}'), o.err }

// name begins a field; its name needs no escapes.
func (o *object) name(name string) {
	// It is the first field only right after the opening brace.
	if o.b[len(o.b)-1] != '{' {
		o.b = append(o.b, ',')
	}
	o.b = append(append(append(o.b, '"'), name...), '"', ':')
}

// uint writes a number. The methods below write one field each.
func (o *object) uint(name string, v uint64) {
	o.name(name)
	o.b = strconv.AppendUint(o.b, v, 10)
}

// int writes a number that may be negative.
func (o *object) int(name string, v int64) {
	o.name(name)
	o.b = strconv.AppendInt(o.b, v, 10)
}

// string writes a text, by encoding/json where it has characters to escape.
func (o *object) string(name, v string) {
	for i := range len(v) {
		// What encoding/json escapes, and all that is not ASCII, which it checks.
		if c := v[i]; c < ' ' || c > '~' || c == '"' || c == '\\' || c == '<' || c == '>' || c == '&' {
			o.value(name, v) // escaped
			return
		}
	}
	o.name(name)
	o.b = append(append(append(o.b, '"'), v...), '"')
}

// text writes what marshals itself to text without characters to escape, such as a time or a digest.
func (o *object) text(name string, v encoding.TextAppender) {
	o.name(name)
	// It is appended in place, so nothing is allocated.
	b, err := v.AppendText(append(o.b, '"'))
	if err != nil {
		o.keepError(err)
		return
	}
	o.b = append(b, '"')
}

// flag writes a true value: a false one is left out.
func (o *object) flag(name string) {
	o.name(name)
	o.b = append(o.b, "true"...)
}

// value writes anything.
func (o *object) value(name string, v any) {
	// Without a value the object is not JSON; end returns the error then.
	o.name(name)
	b, err := json.Marshal(v)
	o.keepError(err)
	o.b = append(o.b, b...)
}

// object writes one inside. fields writes its fields with the same methods.
func (o *object) object(name string, fields func()) {
	o.name(name)
	o.b = append(o.b, '{')
	fields()
	o.b = append(o.b, '}')
}

// keepError remembers the first error.
func (o *object) keepError(err error) {
	if o.err == nil {
		o.err = err
	}
}

// encode writes a meta as encoding/json would: TestEncodedAsJSON compares them.
func (m *meta) encode() ([]byte, error) {
	o := newObject(768)
	// The order and the names are those of the tags of meta.
	o.int("format", int64(m.Format))
	o.uint("applied", m.Applied)
	o.uint("term", m.Term)
	o.int("time_ns", m.Time)
	o.uint("first", m.First)
	o.uint("last", m.Last)
	o.uint("bytes", m.Bytes)
	o.uint("trimmed_bytes", m.TrimmedBytes)
	o.uint("dedup_floor", m.WindowStart)
	o.uint("columns_from", m.ColumnsFrom)
	o.int("max_window_ns", int64(m.MaxWindow))
	o.uint("touch", m.Touch)
	o.string("cluster_id", m.ClusterID)
	o.uint("feature_level", uint64(m.FeatureLevel))
	o.object("leadership", func() {
		l := &m.Leadership
		// The last two are left out while they are zero.
		o.uint("term", l.Term)
		o.string("leader", l.Leader)
		o.text("since", l.Since)
		o.text("last", l.Last)
		if l.Intent != nil {
			o.value("intent", l.Intent)
		}
		if l.Decided {
			o.flag("decided")
		}
	})
	if m.LastStep != nil {
		o.value("last_clock_step", m.LastStep)
	}
	o.object("counters", func() {
		c := &m.Counters
		o.uint("accepted", c.Accepted)
		o.uint("suppressed", c.Suppressed)
		o.uint("refused", c.Refused)
		o.uint("replayed", c.Replayed)
		o.uint("emitted", c.Emitted)
	})
	o.text("digest", m.Digest)

	// From here on a field is left out while it is zero, as omitzero does.
	if m.Letters != (letterTotals{}) {
		o.value("letters", m.Letters)
	}
	if m.Receipts != (receiptTotals{}) {
		o.object("receipts", func() {
			o.uint("from", m.Receipts.From)
			o.uint("bytes", m.Receipts.Bytes)
		})
	}
	if m.GroupGenerations != 0 {
		o.uint("group_generations", m.GroupGenerations)
	}
	if m.StallDue != 0 {
		o.int("stall_due_ns", m.StallDue)
	}
	if m.Stepped != 0 {
		o.int("stepped_ns", m.Stepped)
	}
	if m.NotHeld != (holdMark{}) {
		o.object("not_held", func() {
			o.uint("passed", m.NotHeld.Passed)
			if m.NotHeld.Name != "" {
				o.string("name", m.NotHeld.Name)
			}
		})
	}
	if m.RetentionWaits {
		o.flag("retention_waits")
	}
	if m.TrimReason != "" {
		o.string("trim_reason", m.TrimReason)
	}
	if m.MaxPolicyWindow != 0 {
		o.int("max_policy_window_ns", int64(m.MaxPolicyWindow))
	}
	if m.Led != 0 {
		o.int("led_ns", m.Led)
	}
	if m.Arrivals != 0 {
		o.uint("allocation_arrivals", m.Arrivals)
	}
	if m.ViewRevision != 0 {
		o.uint("view_revision", m.ViewRevision)
	}
	return o.end()
}

// encode writes a producer as encoding/json would.
func (p *producer) encode() ([]byte, error) {
	o := newObject(128)
	// The order and the names are those of the tags of producer.
	o.string("id", p.ID)
	o.uint("last", p.Last)
	o.int("used", p.Used)
	o.uint("touch", p.Touch)
	// Most producers have small results alone.
	if p.Large != 0 {
		o.uint("large", p.Large)
	}
	if p.Bytes != 0 {
		o.uint("bytes", p.Bytes)
	}
	return o.end()
}
