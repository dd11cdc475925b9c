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

// Declaration is a view as users write it, in JSON or in TOML with the same names. docs/views.md explains it. Parse
// reads one, and Compile checks it. The text is stored in the state and compiled on every node, so what a member means
// must not depend on a node.
type Declaration struct {
	Name        string `json:"name"`                  // see viewName
	Description string `json:"description,omitempty"` // for people

	// What the view reads, and the key of the row into which an event is folded.
	event.Filter
	Where string `json:"where,omitempty"` // CEL on the event; "" is all that pass the filter
	Key   string `json:"key,omitempty"`   // CEL on the event, a string; "" is the key of the event
	// MaxKeys bounds the rows; 0 is a million. Events of other keys are skipped once there are as many.
	MaxKeys int `json:"max_keys,omitempty"`

	Fields   map[string]Field  `json:"fields"`             // by name, 1 to maxFields
	Computed map[string]string `json:"computed,omitempty"` // CEL on the row
	Rules    []Rule            `json:"rules,omitempty"`    // in the order in which they are asked
}

// Field is one value of a row. Which members it takes depends on its kind. A duration is a text such as 90s, 36h or 7d.
// The table in takes has which kind takes which.
type Field struct {
	Kind     string `json:"kind"`                // last, count, sum, min, max, mean, rate, ewma, slope or distinct
	Of       string `json:"of,omitempty"`        // CEL on the event: the value
	Where    string `json:"where,omitempty"`     // CEL on the event; "" is every event of the row
	Reset    string `json:"reset,omitempty"`     // CEL on the event: whether the field forgets what was before it
	Window   string `json:"window,omitempty"`    // a duration; "" is all events of the row
	HalfLife string `json:"half_life,omitempty"` // a duration: in which the weight of a value halves
	Per      string `json:"per,omitempty"`       // second, minute, hour or day
	Points   int    `json:"points,omitempty"`    // of a slope, the newest
	Limit    int    `json:"limit,omitempty"`     // of distinct values that are counted exactly
}

// Rule publishes an event when its condition becomes true, and another when it ends. It holds for one row at a time:
// each key begins and ends for itself.
type Rule struct {
	Name    string `json:"name"`               // unique in the declaration; see viewName
	When    string `json:"when"`               // CEL on the row
	Until   string `json:"until,omitempty"`    // CEL on the row; "" is when it no longer holds
	MinHold string `json:"min_hold,omitempty"` // how long it lasts at least, once begun

	Emit         string            `json:"emit"`                    // the type that is published when it begins
	Payload      map[string]string `json:"payload,omitempty"`       // CEL on the row and the event
	Ended        string            `json:"ended,omitempty"`         // "" publishes nothing when it ends
	EndedPayload map[string]string `json:"ended_payload,omitempty"` // as Payload; only with Ended
}

// Bounds of a declaration.
const (
	MaxBytes      = 64 << 10 // of a declaration, as JSON
	maxDepth      = 16       // of nested objects and lists
	maxExpression = 4096     // bytes
	maxFields     = 64       // and as many computed ones
	maxRules      = 16       // each is asked for every event of a row
	maxPayload    = 32       // members that a rule declares
	maxRowBytes   = 32 << 10 // which the fields of a row may take
	maxText       = 1024     // bytes of a last value
	maxPoints     = 1000     // of a slope
	maxDistinct   = 1000     // values that a distinct distinguishes

	defaultKeys = 1_000_000 // rows of a view
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
	// A TOML document never begins with a brace, so the first character decides.
	if !bytes.HasPrefix(bytes.TrimSpace(text), []byte("{")) {
		var err error
		if text, err = fromTOML(text); err != nil {
			return d, err
		}
	}
	// encoding/json takes the last of two members with the same name.
	if _, err := canon.Rewrite(text, maxDepth, 4*MaxBytes); err != nil {
		// The position is one in text, of TOML in its JSON. Line and column count from 1.
		before := text[:min(int(max(err.Position, 0)), len(text))]
		line, column := bytes.Count(before, []byte("\n"))+1, len(before)-bytes.LastIndexByte(before, '\n')
		place := strings.TrimPrefix(strings.TrimPrefix(err.Field, "payload"), ".")
		return d, wrong(place, "line %d, column %d: %s", line, column, err.Message)
	}
	// A misspelt member would otherwise be ignored, and the view would fold something else.
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&d); err != nil {
		return d, misfit(err)
	}
	return d, nil
}

// fromTOML returns TOML as JSON. Both forms are checked and decoded by one path then, with the same messages.
func fromTOML(text []byte) ([]byte, error) {
	var members map[string]any
	err := toml.Unmarshal(text, &members)
	// An error of the syntax knows where it is.
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

// misfit explains why JSON is no Declaration. err is that of encoding/json.
func misfit(err error) error {
	var kind *json.UnmarshalTypeError
	if errors.As(err, &kind) {
		return wrong(kind.Field, "%s is expected, not %s", canon.Expected(kind.Type), canon.Found(kind))
	}
	// What is left is a member that a declaration does not have: its message is in the words of Go.
	text := strings.TrimPrefix(err.Error(), "json: ")
	return wrong("", "%s", strings.Replace(text, "unknown field", "it has no member", 1))
}

// refused returns an error of package event with a place. Without one it is the field that the error names.
func refused(place string, err error) error {
	var e *event.Error
	if errors.As(err, &e) {
		return wrong(cmp.Or(place, e.Field), "%s", e.Message)
	}
	return wrong(place, "%v", err)
}

// Names are parts of sources, dedup ids and URLs (viewName), and variables of expressions (fieldName).
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
	// Whoever compiles a declaration may have made it in other ways than by Parse.
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
