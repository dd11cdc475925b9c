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

// folding is what one call of a view works with. Calls one after another share its memory.
type folding struct {
	view  *View
	event *where.Scope
	key   string
	row   row
	began int64 // when the condition began whose end is published; 0 is none

	// What fields and computed fields are, once they were asked for.
	values []any
	known  []bool

	state, out []byte
}

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
	if err := f.open(stored, found); err != nil {
		return nil, err
	}
	if !found {
		counted, err := countKey(rows, v.maxKeys)
		if err != nil {
			return nil, err
		}
		if !counted {
			return nil, skip(rows, e.Offset, "max_keys")
		}
	}
	if found && e.Offset <= f.row.offset {
		return nil, nil
	}
	// Time never falls, whatever the events have.
	at := timeOf(e.AppendedAt)
	if found {
		at = max(at, f.row.at)
	}
	f.row.at, f.row.offset = at, e.Offset
	f.fold()
	firings := f.fire(e)
	f.out = f.row.appendRules(f.out)
	return firings, rows.Set(rowPrefix+f.key, f.out)
}

// truth reports whether a condition is met; one that is nil always is.
func truth(condition *where.Expression, vars cel.Activation) (bool, error) {
	if condition == nil {
		return true, nil
	}
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
	if v.key != nil {
		value, err := v.key.Eval(vars)
		if err != nil {
			return "", err
		}
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
	clear(f.known)
	f.began = 0
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
	r := &f.row
	f.out = binary.AppendUvarint(binary.AppendVarint(append(f.out[:0], rowForm), r.at), r.offset)
	for i := range f.view.fields {
		state := f.foldField(&f.view.fields[i], r.states[i])
		f.out = fields.Append(f.out, state)
		// If out moves while it grows, the state is still where it was.
		r.states[i] = f.out[len(f.out)-len(state):]
	}
}

// foldField returns the state of a field after the event, which is valid until the next call. What cannot be computed
// or taken is counted.
func (f *folding) foldField(d *field, state []byte) []byte {
	if d.reset != nil {
		forget, err := truth(d.reset, f.event)
		if err != nil {
			f.row.skipped++
		}
		if forget {
			state = nil
		}
	}
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
	if err == nil {
		var ok bool
		if f.state, ok = d.kind.fold(f.state[:0], state, f.row.at, value); ok {
			return f.state
		}
	}
	f.row.skipped++
	return state
}

// Parent implements cel.Activation. Expressions on the row see the row first, and those of payloads the event as well.
func (f *folding) Parent() cel.Activation { return nil }

// ResolveName implements cel.Activation.
func (f *folding) ResolveName(name string) (any, bool) {
	if slot, ok := f.view.slots[name]; ok {
		return variable(f.value(slot)), true
	}
	switch name {
	case "key":
		return f.key, true
	case "updated_at":
		return time.Unix(0, f.row.at).UTC(), true
	case "began_at":
		if f.began == 0 {
			return types.NullValue, true
		}
		return time.Unix(0, f.began).UTC(), true
	}
	return f.event.ResolveName(name)
}

// variable returns the value of a field as expressions see it.
func variable(value any) any {
	switch v := value.(type) {
	case nil:
		return types.NullValue
	case moreThan:
		return float64(v) + 1
	}
	return value
}

// value returns what a field or a computed field is, nil if it has no value.
func (f *folding) value(slot int) any {
	if f.known[slot] {
		return f.values[slot]
	}
	var value any
	if i := slot - len(f.view.fields); i < 0 {
		value = f.view.fields[slot].kind.show(f.row.states[slot], f.row.at)
	} else if v, err := f.view.computed[i].of.Eval(f); err == nil {
		value = v
	}
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
		case !h.holds && f.begins(r):
			*h = holding{true, f.row.at, f.row.offset}
			f.began = 0
			firings = append(firings, f.firing(r, e, r.emit, r.payload, nil))
		case h.holds && f.row.at-h.at >= r.minHold && f.ends(r):
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

// ends reports whether a rule ends.
func (f *folding) ends(r *rule) bool {
	if r.until == nil {
		met, err := truth(r.when, f)
		return err == nil && !met
	}
	met, err := truth(r.until, f)
	return err == nil && met
}

// firing returns what a rule publishes at its begin, or at the end of what began.
func (f *folding) firing(r *rule, e *event.Event, t event.Type, payload []computed, began *holding) Firing {
	offset := strconv.FormatUint(e.Offset, 10)
	body := map[string]any{"view": f.view.name, "rule": r.name, "key": f.key, "offset": e.Offset, "fields": f.shown()}
	if began != nil {
		body["began_offset"] = began.offset
	}
	for _, member := range payload {
		body[member.name] = f.member(member)
	}
	ev := event.New(t, body)
	ev.Source, ev.Key = "view/"+f.view.name, f.key
	ev.CausationID, ev.CorrelationID, ev.Trace = offset, e.CorrelationID, e.Trace
	ev.DedupID = dedupID(f.view.name, r.name, f.key, offset)
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
	if text, err := json.Marshal(value); err != nil || len(text) > maxMember {
		return nil
	}
	return value
}

// dedupID names one firing. A key that would make it longer than the log allows is replaced by its hash.
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
	Key     string               `json:"key"`
	Offset  uint64               `json:"offset"` // of its last event
	At      time.Time            `json:"at"`     // when that was appended
	Fields  map[string]any       `json:"fields"`
	Rules   map[string]shownRule `json:"rules,omitempty"`
	Skipped uint64               `json:"skipped,omitempty"` // values that no field could take
}

// shownRule is the state of a rule.
type shownRule struct {
	Holds  bool       `json:"holds"`
	Since  *time.Time `json:"since,omitempty"`
	Offset uint64     `json:"offset,omitempty"` // with which it began
}

// Show implements Fold.
func (v *View) Show(rows Rows, key string) (json.RawMessage, bool, error) {
	stored, found, err := rows.Get(rowPrefix + key)
	if err != nil || !found {
		return nil, false, err
	}
	f := v.newFolding()
	f.key = key
	if err := f.open(stored, true); err != nil {
		return nil, false, err
	}
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
	err = rows.Each(rowPrefix, rowPrefix+after, func(key string, _ []byte) bool {
		keys = append(keys, strings.TrimPrefix(key, rowPrefix))
		return len(keys) < limit
	})
	return keys, err
}

// KeyOf implements Fold.
func (v *View) KeyOf(row string) (key string, ok bool) { return strings.CutPrefix(row, rowPrefix) }

// Skipped implements Fold.
func (v *View) Skipped(rows Rows) (Skipped, error) { return readSkipped(rows) }

var _ Fold = (*View)(nil)
