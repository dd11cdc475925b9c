// Package where evaluates conditions on events in the Common Expression Language. A subscription or a sink uses one to
// choose events by their payload, which an event.Filter cannot.
//
//	c, err := where.Compile(`payload.epoch > 3 && source.startsWith("trainer-")`)
//	met, err := c.Match(&ev)
//
// It promises that an evaluation is bounded in its work, changes nothing, and is safe for concurrent use; and that an
// expression at fault is reported with line and column.
package where

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/types"

	"github.com/ringrift/ringlog/event"
)

// Condition is a compiled condition on events. It sees
//
//	type, value, source, key, correlation_id, causation_id, dedup_id   string
//	payload                                                             map; whole numbers are int, others double
//	offset, term                                                        int, 0 for an event that is not in the log
//	time, appended_at                                                   timestamp
//
// It is safe for concurrent use.
// A condition cannot loop, call out or change anything: CEL has no such expressions, and its cost is bounded.
type Condition struct {
	program cel.Program
}

// Error says what is wrong with a condition, and at which position.
// It is written for people: a program only learns that the condition is at fault.
type Error struct {
	Expression   string
	Line, Column int // from 1
	Message      string
}

// Error prints line and column, the message, and the line with the position marked.
func (e *Error) Error() string {
	lines := strings.Split(e.Expression, "\n")
	text := fmt.Sprintf("where: line %d, column %d: %s", e.Line, e.Column, e.Message)
	if e.Line < 1 || e.Line > len(lines) {
		return text
	}
	line := strings.ReplaceAll(lines[e.Line-1], "\t", " ") // a tab would move the mark
	return fmt.Sprintf("%s\n | %s\n | %s^", text, line, strings.Repeat(".", max(e.Column-1, 0)))
}

// costLimit bounds the work of one evaluation, in steps of CEL's cost model.
const costLimit = 1 << 20

// Compile compiles a condition. The error is an *Error if the expression is at fault.
func Compile(expression string) (*Condition, error) {
	env, err := environment()
	if err != nil {
		return nil, fmt.Errorf("where: %w", err)
	}
	// The first issue is enough: the others often follow from it.
	ast, issues := env.Compile(expression)
	if issues.Err() != nil {
		first := issues.Errors()[0]
		line, column := max(first.Location.Line(), 1), max(first.Location.Column()+1, 1)
		return nil, &Error{expression, line, column, first.Message}
	}
	// A condition on any value, such as payload.done, is checked when it is evaluated.
	if t := ast.OutputType(); !t.IsExactType(cel.BoolType) && !t.IsExactType(cel.DynType) {
		return nil, &Error{expression, 1, 1, fmt.Sprintf("it gives %s, not bool", t)}
	}
	program, err := env.Program(ast, cel.CostLimit(costLimit))
	if err != nil {
		return nil, fmt.Errorf("where: %w", err)
	}
	return &Condition{program}, nil
}

// environment declares the variables of a condition.
func environment() (*cel.Env, error) {
	// All names are declared, so a misspelt one is an error when it is compiled.
	options := []cel.EnvOption{
		cel.Variable("payload", cel.MapType(cel.StringType, cel.DynType)),
		cel.Variable("offset", cel.IntType), cel.Variable("term", cel.IntType),
		cel.Variable("time", cel.TimestampType), cel.Variable("appended_at", cel.TimestampType),
		// payload.loss > 1 must hold for 2 and for 1.5 alike.
		cel.CrossTypeNumericComparisons(true),
	}
	for _, name := range []string{"type", "value", "source", "key", "correlation_id", "causation_id", "dedup_id"} {
		options = append(options, cel.Variable(name, cel.StringType))
	}
	return cel.NewEnv(options...)
}

// Match reports whether an event meets the condition. If the condition cannot be evaluated, for example because the
// payload lacks a field that it names, the event does not meet it, and the error says why.
func (c *Condition) Match(ev *event.Event) (bool, error) {
	// A payload that lacks a field is an error of the evaluation, not of the condition.
	out, _, err := c.program.Eval(&scope{ev: ev})
	if err != nil {
		return false, err
	}
	met, ok := out.(types.Bool)
	if !ok {
		return false, fmt.Errorf("it gives %s, not bool", out.Type().TypeName())
	}
	return bool(met), nil
}

// scope is the variables of one evaluation. It decodes the payload only if the condition uses it.
type scope struct {
	ev      *event.Event
	payload any // decoded; nil before its first use
}

// Parent implements cel.Activation.
func (s *scope) Parent() cel.Activation { return nil }

// ResolveName implements cel.Activation.
func (s *scope) ResolveName(name string) (any, bool) {
	// Each name of environment has a case.
	switch name {
	case "payload":
		return s.decoded(), true
	case "type":
		return string(s.ev.Type), true
	case "value":
		return s.ev.EffectiveValue(), true
	case "source":
		return s.ev.Source, true
	case "key":
		return s.ev.Key, true
	case "correlation_id":
		return s.ev.CorrelationID, true
	case "causation_id":
		return s.ev.CausationID, true
	case "dedup_id":
		return s.ev.DedupID, true
	case "offset":
		return int64(s.ev.Offset), true
	case "term":
		return int64(s.ev.Term), true
	case "time":
		return s.ev.Time, true
	case "appended_at":
		return s.ev.AppendedAt, true
	}
	return nil, false
}

// decoded returns the payload as CEL sees it.
func (s *scope) decoded() any {
	if s.payload != nil {
		return s.payload
	}
	// A failure is not kept: the next use of the payload fails the same way.
	var fields map[string]any
	dec := json.NewDecoder(bytes.NewReader(s.ev.Payload))
	dec.UseNumber()
	if err := dec.Decode(&fields); err != nil {
		return types.WrapErr(errors.New("the payload is not a JSON object"))
	}
	s.payload = plainNumbers(fields)
	return s.payload
}

// plainNumbers replaces whole numbers by int64 and all others by float64, in place.
func plainNumbers(v any) any {
	// CEL knows int and double, and no literals.
	switch v := v.(type) {
	case json.Number:
		if n, err := v.Int64(); err == nil {
			return n
		}
		f, _ := v.Float64() // out of range: infinite, as in Python
		return f
	case map[string]any:
		for k, e := range v {
			v[k] = plainNumbers(e)
		}
	case []any:
		for i, e := range v {
			v[i] = plainNumbers(e)
		}
	}
	return v
}
