package view

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/pelletier/go-toml/v2"

	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/event/canon"
)

// Declaration is a view as users write it, in JSON or in TOML with the same names. docs/views.md explains it.
type Declaration struct {
	Name        string `json:"name"`
	Description string `json:"description,omitempty"`

	// What the view reads, and the key of the row into which an event is folded.
	event.Filter
	Where string `json:"where,omitempty"` // CEL on the event; "" is all that pass the filter
	Key   string `json:"key,omitempty"`   // CEL on the event, a string; "" is the key of the event
	// MaxKeys bounds the rows; 0 is a million. Events of other keys are skipped once there are as many.
	MaxKeys int `json:"max_keys,omitempty"`

	Fields   map[string]Field  `json:"fields"`
	Computed map[string]string `json:"computed,omitempty"` // CEL on the row
	Rules    []Rule            `json:"rules,omitempty"`
}

// Field is one value of a row. Which members it takes depends on its kind. A duration is a text such as 90s, 36h or 7d.
type Field struct {
	Kind     string `json:"kind"`
	Of       string `json:"of,omitempty"`    // CEL on the event: the value
	Where    string `json:"where,omitempty"` // CEL on the event; "" is every event of the row
	Reset    string `json:"reset,omitempty"` // CEL on the event: whether the field forgets what was before it
	Window   string `json:"window,omitempty"`
	HalfLife string `json:"half_life,omitempty"`
	Per      string `json:"per,omitempty"`    // second, minute, hour or day
	Points   int    `json:"points,omitempty"` // of a slope, the newest
	Limit    int    `json:"limit,omitempty"`  // of distinct values that are counted exactly
}

// Rule publishes an event when its condition becomes true, and another when it ends.
type Rule struct {
	Name    string `json:"name"`
	When    string `json:"when"`               // CEL on the row
	Until   string `json:"until,omitempty"`    // CEL on the row; "" is when it no longer holds
	MinHold string `json:"min_hold,omitempty"` // how long it lasts at least, once begun

	Emit         string            `json:"emit"`
	Payload      map[string]string `json:"payload,omitempty"` // CEL on the row and the event
	Ended        string            `json:"ended,omitempty"`   // "" publishes nothing when it ends
	EndedPayload map[string]string `json:"ended_payload,omitempty"`
}

// Bounds of a declaration.
const (
	MaxBytes      = 64 << 10 // of a declaration, as JSON
	maxDepth      = 16
	maxExpression = 4096 // bytes
	maxFields     = 64   // and as many computed ones
	maxRules      = 16
	maxPayload    = 32       // members that a rule declares
	maxRowBytes   = 32 << 10 // which the fields of a row may take
	maxText       = 1024     // bytes of a last value
	maxPoints     = 1000
	maxDistinct   = 1000

	defaultKeys = 1_000_000
	maxKeys     = 10_000_000
)

// Error says what is wrong with a declaration, and where in it.
type Error struct {
	Place   string // such as fields.elo.of; "" is the declaration
	Message string
}

// Error prints the place and the message.
func (e *Error) Error() string { return "view: " + cmp.Or(e.Place, "declaration") + ": " + e.Message }

// wrong returns an Error with a formatted message.
func wrong(place, format string, args ...any) error {
	return &Error{place, fmt.Sprintf(format, args...)}
}

// Parse reads a declaration as JSON, or as TOML if the first character is not a brace. Names that a declaration does
// not have, and names that are given twice, are errors. It does not compile the expressions.
func Parse(text []byte) (Declaration, error) {
	var d Declaration
	if len(text) > MaxBytes {
		return d, wrong("", "%d bytes, the limit is %d", len(text), MaxBytes)
	}
	if !bytes.HasPrefix(bytes.TrimSpace(text), []byte("{")) {
		var err error
		if text, err = fromTOML(text); err != nil {
			return d, err
		}
	}
	// encoding/json takes the last of two members with the same name.
	if _, err := canon.Rewrite(text, maxDepth, 4*MaxBytes); err != nil {
		before := text[:min(int(max(err.Position, 0)), len(text))]
		line, column := bytes.Count(before, []byte("\n"))+1, len(before)-bytes.LastIndexByte(before, '\n')
		place := strings.TrimPrefix(strings.TrimPrefix(err.Field, "payload"), ".")
		return d, wrong(place, "line %d, column %d: %s", line, column, err.Message)
	}
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&d); err != nil {
		return d, misfit(err)
	}
	return d, nil
}

// fromTOML returns TOML as JSON.
func fromTOML(text []byte) ([]byte, error) {
	var members map[string]any
	err := toml.Unmarshal(text, &members)
	var at *toml.DecodeError
	if errors.As(err, &at) {
		line, column := at.Position()
		return nil, wrong("", "line %d, column %d: %v", line, column, err)
	}
	if err != nil {
		return nil, wrong("", "%v", err)
	}
	out, err := json.Marshal(members)
	if err != nil {
		return nil, wrong("", "%v", err)
	}
	return out, nil
}

// misfit explains why JSON is no Declaration.
func misfit(err error) error {
	var kind *json.UnmarshalTypeError
	if errors.As(err, &kind) {
		return wrong(kind.Field, "%s is expected, not %s", canon.Expected(kind.Type), canon.Found(kind))
	}
	text := strings.TrimPrefix(err.Error(), "json: ")
	return wrong("", "%s", strings.Replace(text, "unknown field", "it has no member", 1))
}

// refused returns an error of package event with a place.
func refused(place string, err error) error {
	var e *event.Error
	if errors.As(err, &e) {
		return wrong(cmp.Or(place, e.Field), "%s", e.Message)
	}
	return wrong(place, "%v", err)
}

var (
	viewName  = regexp.MustCompile(`^[a-z0-9][a-z0-9._-]{0,63}$`)
	fieldName = regexp.MustCompile(`^[a-z_][a-z0-9_]{0,63}$`)
)

// checkName checks the name of a view or a rule.
func checkName(place, name string) error {
	if !viewName.MatchString(name) {
		return wrong(place, "%q is not a name: up to 64 of a-z, 0-9, '.', '_' and '-', a letter or digit first", name)
	}
	return nil
}

// checkFieldName checks the name of a field, which is a variable of expressions.
func checkFieldName(place, name string) error {
	if !fieldName.MatchString(name) {
		return wrong(place, "%q is not a name: up to 64 of a-z, 0-9 and '_', not a digit first", name)
	}
	if reserved()[name] {
		return wrong(place, "the name has a meaning in expressions already; choose another")
	}
	return nil
}

// check checks what needs no compiling.
func (d *Declaration) check() error {
	if err := checkName("name", d.Name); err != nil {
		return err
	}
	if text, err := json.Marshal(d); err != nil || len(text) > MaxBytes {
		return wrong("", "more than %d bytes", MaxBytes)
	}
	if err := d.Filter.Validate(); err != nil {
		return refused("", err)
	}
	switch {
	case len(d.Fields) == 0:
		return wrong("fields", "none; declare at least one")
	case len(d.Fields) > maxFields:
		return wrong("fields", "%d of them, the limit is %d", len(d.Fields), maxFields)
	case len(d.Computed) > maxFields:
		return wrong("computed", "%d of them, the limit is %d", len(d.Computed), maxFields)
	case len(d.Rules) > maxRules:
		return wrong("rules", "%d of them, the limit is %d", len(d.Rules), maxRules)
	}
	return nil
}
