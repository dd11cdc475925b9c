package event

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ringrift/ringlog/event/canon"
	"github.com/ringrift/ringlog/internal/human"
)

// DedupMode says by what two events of a type are the same.
type DedupMode string

// The dedup modes.
const (
	DedupOff     DedupMode = "off"     // no two are
	DedupContent DedupMode = "content" // by the whole payload
	DedupFields  DedupMode = "fields"  // by some fields of the payload
)

// Bounds of a dedup policy.
const (
	MaxDedupFields   = 16
	MaxDedupFieldLen = 256 // bytes of a field's name
	MinDedupWindow   = time.Second
	MaxDedupWindow   = 31 * 24 * time.Hour
)

// DedupPolicy says which events of a type are duplicates, for those that do not say so themselves: an event with a
// DedupID or NoDedup goes by that.
type DedupPolicy struct {
	Mode DedupMode `json:"mode"`
	// Fields are the outermost payload fields that are compared, sorted, each once. An event that has none of them is
	// compared by its content.
	Fields []string `json:"fields,omitempty"`
	// Window is how long after an event was appended the same is not appended again; 0 is the setting dedup.window.
	Window time.Duration `json:"window_ns,omitempty"`
}

// Validate returns what is wrong with a policy, as an *Error. Its rules take part in decisions of the state machine: a
// change needs a feature level.
func (p *DedupPolicy) Validate() error {
	switch p.Mode {
	case DedupOff, DedupContent, DedupFields:
	default:
		err := fieldError(ReasonInvalidField, "mode", "%q is no dedup mode", p.Mode)
		err.Remedy = "send off, content or fields"
		return err
	}
	// Fields belong to one mode, and a window to those that compare.
	switch {
	case p.Mode == DedupFields && len(p.Fields) == 0:
		err := fieldError(ReasonInvalidField, "fields", "none, and the mode is fields")
		err.Remedy = "name the payload fields to compare"
		return err
	case p.Mode != DedupFields && len(p.Fields) > 0:
		err := fieldError(ReasonInvalidField, "fields", "the mode %s compares none", p.Mode)
		err.Remedy = "leave them out, or send the mode fields"
		return err
	case len(p.Fields) > MaxDedupFields:
		return fieldError(ReasonInvalidField, "fields", "%d fields, the limit is %d", len(p.Fields), MaxDedupFields)
	case p.Mode == DedupOff && p.Window != 0:
		err := fieldError(ReasonInvalidField, "window", "the mode off has none")
		err.Remedy = "leave it out"
		return err
	case p.Window != 0 && (p.Window < MinDedupWindow || p.Window > MaxDedupWindow):
		err := fieldError(ReasonInvalidField, "window", "%s is not from %s to %s",
			human.Exact(p.Window), human.Exact(MinDedupWindow), human.Exact(MaxDedupWindow))
		err.Remedy = "send one such as 90s or 24h, or leave it out for the setting dedup.window"
		return err
	}
	for i, name := range p.Fields {
		if name == "" || len(name) > MaxDedupFieldLen {
			return fieldError(ReasonInvalidField, "fields", "a name of %d bytes, the limits are 1 and %d", len(name),
				MaxDedupFieldLen)
		}
		if i > 0 && p.Fields[i-1] >= name {
			return fieldError(ReasonInvalidField, "fields", "%q is there twice, or not in its order", name)
		}
	}
	return nil
}

// Equal reports whether two policies are the same.
func (p *DedupPolicy) Equal(other *DedupPolicy) bool {
	return p.SameKeys(other) && p.Window == other.Window
}

// SameKeys reports whether two policies compare events by the same.
func (p *DedupPolicy) SameKeys(other *DedupPolicy) bool {
	return p.Mode == other.Mode && slices.Equal(p.Fields, other.Fields)
}

// DedupRule is what a gate needs of a policy.
// It is prepared once for a policy, and used for every event of the type.
type DedupRule struct {
	Mode DedupMode
	keys []string // of the fields, as canonical payloads spell them
}

// ruleOf returns the rule of a policy.
func ruleOf(p DedupPolicy) *DedupRule {
	rule := &DedupRule{Mode: p.Mode}
	for _, name := range p.Fields {
		// The canonical spelling of a key may have escapes. Making an object and reading it back finds that
		// spelling.
		// An object with that field alone, in canonical form, has the key.
		object, err := json.Marshal(map[string]int{name: 0})
		if err == nil {
			object, err = Canonicalize(object, DefaultLimits())
		}
		if err != nil {
			continue // no payload can have the field
		}
		v := canon.Verifier{Data: object, MaxDepth: 1}
		v.Next()
		rule.keys = append(rule.keys, string(v.Key))
	}
	return rule
}

// Key returns what an event is compared by under the mode fields. payload is canonical. some is false if it has none of
// the fields.
//
// The key is the SHA-256 of the domain "dedup_fields\x00" and, for each field, in the order of the policy, its name and
// its value as the canonical payload spells them, each after its length as a uvarint. The length of an absent field is
// 0, so it differs from every value, null included, and keys of different lists of fields differ.
func (r *DedupRule) Key(payload []byte) (key Hash, some bool) {
	// The payload was verified, so no depth is too much for it.
	v := canon.Verifier{Data: payload, MaxDepth: len(payload) + 1}
	var values [MaxDedupFields][]byte
	// A key of a canonical payload occurs once, and Value is its canonical text.
	for v.Next() {
		if i := r.index(v.Key); i >= 0 {
			values[i] = v.Value
			some = true
		}
	}
	// Most keys fit into 256 bytes, which stay on the stack.
	b := append(make([]byte, 0, 256), "dedup_fields\x00"...)
	// values has room for any policy; this policy's fields are the first of them.
	for i, value := range values[:len(r.keys)] {
		b = append(binary.AppendUvarint(b, uint64(len(r.keys[i]))), r.keys[i]...)
		b = append(binary.AppendUvarint(b, uint64(len(value))), value...)
	}
	return sha256.Sum256(b), some
}

// index returns which of the fields has the key, -1 for none.
func (r *DedupRule) index(key []byte) int {
	// There are few fields, so a map would cost more.
	for i, k := range r.keys {
		if string(key) == k {
			return i
		}
	}
	return -1
}

// DedupPolicies are the policies of all types. They are immutable; nil has none.
type DedupPolicies struct {
	byType map[Type]*DedupRule
}

// NewDedupPolicies returns the catalogue's policies with those that were set in their place.
func NewDedupPolicies(set map[Type]DedupPolicy) *DedupPolicies {
	all := &DedupPolicies{byType: make(map[Type]*DedupRule)}
	for _, d := range DedupDefaults() {
		all.byType[d.Type] = &DedupRule{Mode: d.Mode}
	}
	// What was set comes second, and so replaces the default of its type.
	for t, p := range set {
		all.byType[t] = ruleOf(p)
	}
	return all
}

// Of returns what the policy of a type asks for, nil for none.
func (p *DedupPolicies) Of(t Type) *DedupRule {
	if p == nil {
		return nil
	}
	return p.byType[t]
}

// DedupDefault is the catalogue's policy for a type, for as long as the cluster has set no other. Mode is always
// DedupOff: the node that checks an event applies it, so builds with other defaults agree about what is in the log.
type DedupDefault struct {
	Type   Type      `json:"type"`
	Mode   DedupMode `json:"mode"`
	Reason string    `json:"reason"`
}

// DedupDefaults returns the catalogue's policies, by type. The list must not be changed.
func DedupDefaults() []DedupDefault { return dedupDefaults() }

// dedupDefaults parses dedup.json on first use. It panics if the file is broken, which a test rules out.
var dedupDefaults = sync.OnceValue(func() []DedupDefault {
	data, err := catalogueFiles.ReadFile("dedup.json")
	if err != nil {
		panic(err)
	}
	var list []DedupDefault
	d := json.NewDecoder(bytes.NewReader(data))
	// A typing error in the file must not turn a policy off.
	d.DisallowUnknownFields()
	if err := d.Decode(&list); err != nil {
		panic(fmt.Sprintf("dedup.json: %v", err))
	}
	slices.SortFunc(list, func(a, b DedupDefault) int { return strings.Compare(string(a.Type), string(b.Type)) })
	return list
})
