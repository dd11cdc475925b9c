package view

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/types"

	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/event/where"
	"github.com/ringrift/ringlog/internal/fields"
)

// maxKey and maxMember bound the key of a row and a member of a payload that a rule declares, in bytes.
const (
	maxKey    = 256
	maxMember = 4096
)

// folding is what one call of a view works with. Calls one after another share its memory. A call of Apply goes through
// open, which reads the row of the event's key, fold, which computes the new states of its fields, and fire, which
// moves its rules on. Expressions on the row ask the folding for their variables: it is their cel.Activation.
type folding struct {
	view  *View        // set once, by newFolding
	event *where.Scope // the event that is folded; it decodes only the members that the view uses
	key   string       // of the row
	row   row          // in parts; before fold as it is stored, after it with the event
	began int64        // when the condition began whose end is published; 0 is none

	// What fields and computed fields are, once they were asked for. Both are indexed by slot: the fields by name, then
	// the computed fields by name. open forgets what is known.
	values []any
	known  []bool

	// state has the new state of one field, and out the row as it will be stored. Both keep their memory between calls.
	state, out []byte
}

// newFolding returns a folding with places for all fields, rules and computed fields of the view.
func (v *View) newFolding() *folding {
	slots := len(v.fields) + len(v.computed)
	return &folding{view: v, event: where.NewScope(&v.members), values: make([]any, slots), known: make([]bool, slots),
		row: row{states: make([][]byte, len(v.fields)), rules: make([]holding, len(v.rules))}}
}

// Apply implements Fold.
func (v *View) Apply(rows Rows, e *event.Event) ([]Firing, error) {
	f := v.pool.Get().(*folding)
	defer v.pool.Put(f)
	f.event.Reset(e)
	// Whether it is for the view, and for which row.
	met, err := truth(v.where, f.event)
	if err != nil {
		return nil, skip(rows, e.Offset, "where")
	}
	if !met {
		return nil, nil
	}
	if f.key, err = v.keyOf(f.event, e); err != nil {
		return nil, skip(rows, e.Offset, "key")
	}
	stored, found, err := rows.Get(rowPrefix + f.key)
	if err != nil {
		return nil, err
	}
	// The row of the key: what is stored, or an empty one.
	if err := f.open(stored, found); err != nil {
		return nil, err
	}
	// The bound on rows is checked before anything is folded: an event beyond it must change nothing but the count of
	// skipped events.
	if !found {
		counted, err := countKey(rows, v.maxKeys)
		if err != nil {
			return nil, err
		}
		if !counted {
			return nil, skip(rows, e.Offset, "max_keys")
		}
	}
	// The row has the event already. Folding it again would count it twice.
	if found && e.Offset <= f.row.offset {
		return nil, nil
	}
	// Time never falls, whatever the events have.
	at := timeOf(e.AppendedAt)
	if found {
		at = max(at, f.row.at)
	}
	f.row.at, f.row.offset = at, e.Offset
	// Fields first, then rules: a rule sees the row with the event in it. What both have changed is stored as one row.
	f.fold()
	firings := f.fire(e)
	// Rows.Set does not keep out, so the next call may use its memory.
	f.out = f.row.appendRules(f.out)
	return firings, rows.Set(rowPrefix+f.key, f.out)
}

// truth reports whether a condition is met; one that is nil always is.
func truth(condition *where.Expression, vars cel.Activation) (bool, error) {
	if condition == nil {
		return true, nil
	}
	// The checker passes a condition whose type is known only once it is evaluated, such as payload.done.
	v, err := condition.Eval(vars)
	if err != nil {
		return false, err
	}
	met, ok := v.(bool)
	if !ok {
		return false, fmt.Errorf("it gives %T, not bool", v)
	}
	return met, nil
}

// keyOf returns the key of the row of an event.
func (v *View) keyOf(vars cel.Activation, e *event.Event) (string, error) {
	key := e.Key
	// Without an expression the key is that of the event.
	if v.key != nil {
		value, err := v.key.Eval(vars)
		if err != nil {
			return "", err
		}
		// A result that is no text is refused below, as an empty key.
		key, _ = value.(string)
	}
	// A firing has the key, and the log refuses others.
	if key == "" || len(key) > maxKey || !utf8.ValidString(key) || strings.ContainsFunc(key, unicode.IsControl) {
		return "", fmt.Errorf("%q is no key", key)
	}
	return key, nil
}

// open reads the row of the key.
func (f *folding) open(stored []byte, found bool) error {
	// Values and the begin of a condition are of the event before, maybe of another row.
	clear(f.known)
	f.began = 0
	// A key without a row begins with no states: each kind takes an empty one as its first.
	if !found {
		f.row.reset()
		return nil
	}
	if err := f.row.read(f.view, stored); err != nil {
		return fmt.Errorf("view %s: row %q: %w", f.view.name, f.key, err)
	}
	return nil
}

// fold folds the event into all fields, and leaves the row in out, up to its rules.
func (f *folding) fold() {
	// The row begins with its form, its time and its offset, as rowForm draws it.
	r := &f.row
	f.out = binary.AppendUvarint(binary.AppendVarint(append(f.out[:0], rowForm), r.at), r.offset)
	for i := range f.view.fields {
		// The states are in out from here on, and f.state is free for the next field.
		state := f.foldField(&f.view.fields[i], r.states[i])
		f.out = fields.Append(f.out, state)
		// If out moves while it grows, the state is still where it was.
		r.states[i] = f.out[len(f.out)-len(state):]
	}
}

// foldField returns the state of a field after the event, which is valid until the next call. What cannot be computed
// or taken is counted.
func (f *folding) foldField(d *field, state []byte) []byte {
	// A reset forgets before the event is folded, so the event that resets is the first of what follows. A condition
	// that fails forgets nothing.
	if d.reset != nil {
		forget, err := truth(d.reset, f.event)
		if err != nil {
			f.row.skipped++
		}
		if forget {
			state = nil
		}
	}
	// An event that is not for the field leaves its state, which the reset may have emptied.
	met, err := truth(d.where, f.event)
	if err == nil && !met {
		return state
	}
	// Null is no value, such as None in Python.
	var value any
	if err == nil && d.of != nil {
		value, err = d.of.Eval(f.event)
		if err == nil && value == nil {
			return state
		}
	}
	// The kind judges the value. What it appended of one that it refuses is in f.state and is not used.
	if err == nil {
		var ok bool
		if f.state, ok = d.kind.fold(f.state[:0], state, f.row.at, value); ok {
			return f.state
		}
	}
	// The event has no usable value: the field stays as it was, and the row says so.
	f.row.skipped++
	return state
}

// Parent implements cel.Activation. Expressions on the row see the row first, and those of payloads the event as well.
func (f *folding) Parent() cel.Activation { return nil }

// ResolveName implements cel.Activation.
func (f *folding) ResolveName(name string) (any, bool) {
	// Fields and computed fields. reserved keeps their names apart from all others.
	if slot, ok := f.view.slots[name]; ok {
		return variable(f.value(slot)), true
	}
	switch name {
	case "key":
		return f.key, true
	case "updated_at":
		return time.Unix(0, f.row.at).UTC(), true
	// It is null except in the payload of an end.
	case "began_at":
		if f.began == 0 {
			return types.NullValue, true
		}
		return time.Unix(0, f.began).UTC(), true
	}
	// Only the language of payloads declares the variables of the event.
	return f.event.ResolveName(name)
}

// variable returns the value of a field as expressions see it. A moreThan is one more than its limit, so that comparing
// it with the limit gives the right answer.
func variable(value any) any {
	switch v := value.(type) {
	case nil:
		return types.NullValue
	case moreThan:
		return float64(v) + 1
	}
	return value
}

// value returns what a field or a computed field is, nil if it has no value. It is computed once per event and slot. A
// computed field may ask for others, and never for itself: Compile refuses cycles.
func (f *folding) value(slot int) any {
	if f.known[slot] {
		return f.values[slot]
	}
	var value any
	// A computed field whose expression fails, because a field has no value for example, has none either.
	if i := slot - len(f.view.fields); i < 0 {
		value = f.view.fields[slot].kind.show(f.row.states[slot], f.row.at)
	} else if v, err := f.view.computed[i].of.Eval(f); err == nil {
		value = v
	}
	// A quotient by 0 is no number that JSON has.
	if x, ok := value.(float64); ok {
		value = finite(x)
	}
	f.values[slot], f.known[slot] = value, true
	return value
}

// fire moves the rules on, and returns what they publish.
func (f *folding) fire(e *event.Event) (firings []Firing) {
	for i := range f.view.rules {
		r, h := &f.view.rules[i], &f.row.rules[i]
		switch {
		// A rule begins or ends with an event, never both with one.
		case !h.holds && f.begins(r):
			*h = holding{true, f.row.at, f.row.offset}
			// The payload of a begin sees no began_at, even if another rule has just ended.
			f.began = 0
			firings = append(firings, f.firing(r, e, r.emit, r.payload, nil))
		// An end within min_hold is not remembered: the first event after it asks again.
		case h.holds && f.row.at-h.at >= r.minHold && f.ends(r):
			// The row forgets the begin in any case. Only a rule that publishes its end needs it once more.
			began := *h
			*h = holding{}
			if r.ended != "" {
				f.began = began.at
				firings = append(firings, f.firing(r, e, r.ended, r.atEnd, &began))
			}
		}
	}
	return firings
}

// begins reports whether a rule begins. A condition that has no answer, because a field has no value, changes nothing.
func (f *folding) begins(r *rule) bool {
	if met, err := truth(r.when, f); err != nil || !met {
		return false
	}
	// What would end it at once does not let it begin.
	return r.until == nil || !f.ends(r)
}

// ends reports whether a rule ends. Without until it ends once when is false. A condition that has no answer ends
// nothing.
func (f *folding) ends(r *rule) bool {
	if r.until == nil {
		met, err := truth(r.when, f)
		return err == nil && !met
	}
	met, err := truth(r.until, f)
	return err == nil && met
}

// firing returns what a rule publishes at its begin, or at the end of what began. began is nil at a begin, and the
// state that has ended at an end. All of the event follows from the row and the event that it is fired for, so every
// node makes the same one, with the same dedup id: the log takes it once.
func (f *folding) firing(r *rule, e *event.Event, t event.Type, payload []computed, began *holding) Firing {
	offset := strconv.FormatUint(e.Offset, 10)
	// The members that every firing has. They come first, and compilePayload refuses to declare them otherwise.
	body := map[string]any{"view": f.view.name, "rule": r.name, "key": f.key, "offset": e.Offset, "fields": f.shown()}
	if began != nil {
		body["began_offset"] = began.offset
	}
	for _, member := range payload {
		body[member.name] = f.member(member)
	}
	ev := event.New(t, body)
	ev.Source, ev.Key = "view/"+f.view.name, f.key
	// The firing is a step of the run and the trace of the event that caused it.
	ev.CausationID, ev.CorrelationID, ev.Trace = offset, e.CorrelationID, e.Trace
	ev.DedupID = dedupID(f.view.name, r.name, f.key, offset)
	// Time is that of the row, not a clock's, which would differ between nodes.
	ev.Time = time.Unix(0, f.row.at).UTC()
	return Firing{Rule: r.name, Key: f.key, Ended: began != nil, Event: ev}
}

// member returns the value of a member of a payload: null if it has none or is longer than maxMember.
func (f *folding) member(c computed) any {
	value, err := c.of.Eval(f)
	if x, ok := value.(float64); ok {
		value = finite(x)
	}
	if err != nil {
		return nil
	}
	value = plain(value)
	// A member that is too long must not cost the firing: the rest of its payload is still of use.
	if text, err := json.Marshal(value); err != nil || len(text) > maxMember {
		return nil
	}
	return value
}

// dedupID names one firing. A key that would make it longer than the log allows is replaced by its hash. At one offset
// an event is folded into one row of a view, and a rule begins or ends there, so the four parts name a firing.
func dedupID(view, rule, key, offset string) string {
	id := view + "/" + rule + "/" + key + "/" + offset
	if len(id) <= event.DefaultLimits().NameBytes {
		return id
	}
	sum := sha256.Sum256([]byte(key))
	return view + "/" + rule + "/" + hex.EncodeToString(sum[:16]) + "/" + offset
}

// shown returns the fields of the row as JSON has them.
func (f *folding) shown() map[string]any {
	shown := make(map[string]any, len(f.view.slots))
	for name, slot := range f.view.slots {
		shown[name] = plain(f.value(slot))
	}
	return shown
}

// shownRow is a row as Show returns it.
type shownRow struct {
	Key     string               `json:"key"`    // of the row
	Offset  uint64               `json:"offset"` // of its last event
	At      time.Time            `json:"at"`     // when that was appended
	Fields  map[string]any       `json:"fields"`
	Rules   map[string]shownRule `json:"rules,omitempty"`   // by name; all of the view's
	Skipped uint64               `json:"skipped,omitempty"` // values that no field could take
}

// shownRule is the state of a rule.
type shownRule struct {
	Holds  bool       `json:"holds"`
	Since  *time.Time `json:"since,omitempty"`  // the time of the event with which it began; nil if it does not hold
	Offset uint64     `json:"offset,omitempty"` // with which it began
}

// Show implements Fold.
func (v *View) Show(rows Rows, key string) (json.RawMessage, bool, error) {
	stored, found, err := rows.Get(rowPrefix + key)
	if err != nil || !found {
		return nil, false, err
	}
	// It has no event: fields and computed fields are those of the row alone.
	f := v.newFolding()
	f.key = key
	if err := f.open(stored, true); err != nil {
		return nil, false, err
	}
	// JSON has the members of maps in the order of their names, so equal rows give equal bytes.
	shown := shownRow{Key: key, Offset: f.row.offset, At: time.Unix(0, f.row.at).UTC(), Fields: f.shown(),
		Skipped: f.row.skipped, Rules: map[string]shownRule{}}
	for i, h := range f.row.rules {
		s := shownRule{Holds: h.holds, Offset: h.offset}
		if h.holds {
			since := time.Unix(0, h.at).UTC()
			s.Since = &since
		}
		shown.Rules[v.rules[i].name] = s
	}
	// HTML's characters stay as they are; the encoder ends with a newline, which is cut.
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(shown); err != nil {
		return nil, false, fmt.Errorf("view %s: row %q: %w", v.name, key, err)
	}
	return bytes.TrimSpace(b.Bytes()), true, nil
}

// Keys implements Fold.
func (v *View) Keys(rows Rows, after string, limit int) (keys []string, err error) {
	if limit <= 0 {
		return nil, nil
	}
	// A greater key has a greater row key, as all have the same prefix.
	err = rows.Each(rowPrefix, rowPrefix+after, func(key string, _ []byte) bool {
		keys = append(keys, strings.TrimPrefix(key, rowPrefix))
		return len(keys) < limit
	})
	return keys, err
}

// RowOf implements Fold. It takes every event for one that meets the condition of the view.
func (v *View) RowOf(e *event.Event) string {
	if v.key == nil {
		return rowPrefix + e.Key
	}
	f := v.pool.Get().(*folding)
	defer v.pool.Put(f)
	f.event.Reset(e)
	key, err := v.keyOf(f.event, e)
	if err != nil {
		return ""
	}
	return rowPrefix + key
}

// KeyOf implements Fold.
func (v *View) KeyOf(row string) (key string, ok bool) { return strings.CutPrefix(row, rowPrefix) }

// Skipped implements Fold.
func (v *View) Skipped(rows Rows) (Skipped, error) { return readSkipped(rows) }

var _ Fold = (*View)(nil)
