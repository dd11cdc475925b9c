package event

import (
	"cmp"
	"encoding/json"
	"slices"
)

// Statuses of a Definition.
const (
	StatusCanonical    = "canonical"    // the platform documents it
	StatusRegistered   = "registered"   // added at run time
	StatusCluster      = "cluster"      // emitted only by the cluster and not documented by the platform
	StatusAlias        = "alias"        // replaced by another name
	StatusTestOnly     = "test_only"    // a placeholder in sample code
	StatusUndocumented = "undocumented" // the platform uses it, and its lists lack it
)

// DefinitionStatuses returns the statuses that a Definition may have.
func DefinitionStatuses() []string {
	return []string{StatusCanonical, StatusRegistered, StatusCluster, StatusUndocumented}
}

// Definition is the catalogue's entry for one type. It must not be changed.
// The catalogue shares it with all readers.
type Definition struct {
	// canonical, as in TRAINING_COMPLETED
	Name Type `json:"name"`
	// as it is hashed, as in training_completed
	Value       string   `json:"value"`
	Status      string   `json:"status,omitempty"`   // one of the statuses above
	AliasOf     string   `json:"alias_of,omitempty"` // of StatusAlias: the name that replaces it
	Category    string   `json:"category"`           // "" for a registered type without one
	Payload     []Field  `json:"payload"`
	Emitters    []string `json:"emitters,omitempty"`    // file:line or component names, as documented
	Subscribers []string `json:"subscribers,omitempty"` // coordinators, modules or classes, as documented
	// whether it crosses processes, nil if that is not documented
	CrossProcess      *bool    `json:"cross_process,omitempty"`
	CrossProcessBasis string   `json:"cross_process_basis,omitempty"` // what CrossProcess is concluded from
	Impact            string   `json:"impact,omitempty"`
	Documents         []string `json:"documents,omitempty"` // where the platform mentions the type

	// by name, made by index
	fields map[string]fieldType

	// of what the cluster emits
	when     string
	meanings map[string]string // by field; not all have one
}

// Field is one documented payload field. No field is required.
type Field struct {
	Name string `json:"name"`
	Type string `json:"type"` // any, string, path, integer, number, boolean or timestamp
	// where it is documented
	Source string `json:"source,omitempty"`
	// two lists of the documents have it
	InBoth bool `json:"in_both,omitempty"`
}

// fieldType is the type of a documented payload field.
type fieldType uint8

const (
	anyField fieldType = iota
	stringField
	pathField
	integerField
	numberField
	booleanField
	timestampField
)

// fieldTypes are the names of the field types, indexed by fieldType.
func fieldTypes() []string {
	return []string{"any", "string", "path", "integer", "number", "boolean", "timestamp"}
}

// index prepares the lookups. The definition must not change afterwards.
// Lookups happen for each member of each payload, so they are prepared once.
func (d *Definition) index() {
	d.fields = make(map[string]fieldType, len(d.Payload))
	// A name that is listed twice has the type of the last one.
	for _, f := range d.Payload {
		d.fields[f.Name] = f.fieldType()
	}
}

// fieldType returns the field's type, anyField for a name that is not known.
func (f Field) fieldType() fieldType { return fieldType(max(0, slices.Index(fieldTypes(), f.Type))) }

// builtin reports whether the definition came with the program.
func (d *Definition) builtin() bool {
	return d.Status == StatusCanonical || d.Status == StatusUndocumented
}

// matches reports whether a folded pattern matches the name or the value.
func (d *Definition) matches(pattern string) bool {
	return Glob(pattern, string(d.Name)) || Glob(pattern, foldName(d.Value))
}

// kindOf returns the kind of a canonical JSON value, as far as field types distinguish kinds: its first byte, 't'
// for both booleans, '0' for an integer and '.' for any other number. 3.0 counts as an integer: Python may have
// computed it.
// Canonical JSON has no white space, so the first byte decides.
func kindOf(value []byte) byte {
	switch first := value[0]; first {
	case 'n', '"', '{', '[':
		return first
	case 't', 'f':
		return 't'
	}
	// A number: an exponent, or a fraction other than .0, makes it a float.
	for i, c := range value {
		if c == 'e' || (c == '.' && string(value[i:]) != ".0") {
			return '.'
		}
	}
	return '0'
}

// accepts reports whether a value of a kind belongs to the type. null, Python's None, belongs to every type.
func (t fieldType) accepts(kind byte) bool {
	// The kinds that kindOf returns; whatever is left is '.', a number with a fraction.
	switch kind {
	case 'n':
		return true
	case '"':
		return t == anyField || t == stringField || t == pathField || t == timestampField
	case 't':
		return t == anyField || t == booleanField
	case '{', '[':
		return t == anyField
	case '0':
		return t == anyField || t == integerField || t == numberField || t == timestampField
	}
	return t == anyField || t == numberField || t == timestampField
}

// jsonTypes returns the types of JSON Schema for a field type, nil for any.
func (t fieldType) jsonTypes() []string {
	// Python may send None for any of them, so null is always one of the types.
	switch t {
	case stringField, pathField:
		return []string{"string", "null"}
	case integerField:
		return []string{"integer", "null"}
	case numberField:
		return []string{"number", "null"}
	case booleanField:
		return []string{"boolean", "null"}
	case timestampField:
		return []string{"number", "string", "null"}
	}
	return nil
}

// When returns when the cluster emits an event of the type, "" for a type that it does not emit.
func (d *Definition) When() string { return d.when }

// JSONSchema describes the payload as JSON Schema, draft 2020-12. Other fields are allowed and none is required,
// since a publish warns of a difference and never refuses it.
func (d *Definition) JSONSchema() []byte {
	type property struct {
		Type        []string `json:"type,omitempty"`
		Description string   `json:"description,omitempty"`
	}
	// encoding/json prints a map sorted by key, so that the schema is the same each time.
	properties := map[string]property{}
	for _, f := range d.Payload {
		p := property{Type: f.fieldType().jsonTypes()}
		switch f.fieldType() {
		case timestampField:
			p.Description = "epoch seconds, or an RFC 3339 time"
		case pathField:
			p.Description = "file system path"
		}
		p.Description = cmp.Or(d.meanings[f.Name], p.Description)
		properties[f.Name] = p
	}
	schema := struct {
		Schema      string              `json:"$schema"`
		Title       string              `json:"title"`
		Description string              `json:"description"`
		Type        string              `json:"type"`
		Properties  map[string]property `json:"properties"`
		Additional  bool                `json:"additionalProperties"`
	}{
		"https://json-schema.org/draft/2020-12/schema", string(d.Name),
		"payload of " + d.Value + ", category " + d.Category, "object", properties, true,
	}
	if d.when != "" {
		schema.Description += "; the cluster emits it when: " + d.when
	}
	out, err := json.MarshalIndent(schema, "", "  ")
	if err != nil {
		panic("event: schema of " + string(d.Name) + ": " + err.Error()) // unreachable: only strings and booleans
	}
	return out
}
