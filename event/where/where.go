// Package where evaluates conditions on events in the Common Expression Language. A subscription or a sink uses one to
// choose events by their payload, which an event.Filter cannot.
//
//	c, err := where.Compile(`payload.epoch > 3 && source.startsWith("trainer-")`)
//	met, err := c.Match(&ev)
//
// A Language has expressions that give values, of an event and of other variables; views use them.
//
// It promises that an evaluation is bounded in its work, changes nothing, and is safe for concurrent use; and that an
// expression at fault is reported with line and column.
package where

import (
	"cmp"
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
// A condition cannot loop, call out or change anything: CEL has no such expressions, and its cost is bounded. The
// pattern of matches is a text in the expression, of up to 256 bytes.
type Condition struct {
	program cel.Program
}

// Error says what is wrong with a condition, and at which position.
// It is written for people: a program only learns that the condition is at fault. Compile and Language.Compile return
// it.
type Error struct {
	Place        string // of the expression in what it is a part of, such as fields.elo.of; "" is a condition alone
	Expression   string
	Line, Column int // from 1
	Message      string
}

// Error prints line and column, the message, and the line with the position marked.
func (e *Error) Error() string {
	lines := strings.Split(e.Expression, "\n")
	text := fmt.Sprintf("%s: line %d, column %d: %s", cmp.Or(e.Place, "where"), e.Line, e.Column, e.Message)
	if e.Line < 1 || e.Line > len(lines) {
		return text
	}
	line := strings.ReplaceAll(lines[e.Line-1], "\t", " ") // a tab would move the mark
	return fmt.Sprintf("%s\n | %s\n | %s^", text, line, strings.Repeat(".", max(e.Column-1, 0)))
}

// costLimit bounds the work of one evaluation, in steps of CEL's cost model. An evaluation that needs more ends with an
// error.
const costLimit = 1 << 20

// Compile compiles a condition. The error is an *Error if the expression is at fault.
func Compile(expression string) (*Condition, error) {
	// All names are declared, so a misspelt one is an error. payload.loss > 1 must hold for 2 and for 1.5 alike.
	options := []cel.EnvOption{cel.CrossTypeNumericComparisons(true)}
	for _, v := range eventVariables(cel.IntType) {
		options = append(options, cel.Variable(v.name, v.of))
	}
	env, err := cel.NewEnv(options...)
	if err != nil {
		return nil, fmt.Errorf("where: %w", err)
	}
	// Syntax and types in one step.
	ast, issues := env.Compile(expression)
	if issues.Err() != nil {
		return nil, firstIssue(expression, issues)
	}
	// The cost limit is compared after a call: it would not bound a pattern that an event brings.
	if at, message := refused(ast.NativeRep(), variablePattern); message != "" {
		return nil, &Error{Expression: expression, Line: at.Line(), Column: at.Column() + 1, Message: message}
	}
	// A condition on any value, such as payload.done, is checked when it is evaluated.
	if t := ast.OutputType(); !gives(t, cel.BoolType) {
		return nil, &Error{Expression: expression, Line: 1, Column: 1, Message: fmt.Sprintf("it gives %s, not bool", t)}
	}
	// The limit is counted while it is evaluated, since loops go through what an event brings.
	program, err := env.Program(ast, cel.CostLimit(costLimit))
	if err != nil {
		return nil, fmt.Errorf("where: %w", err)
	}
	return &Condition{program}, nil
}

// firstIssue returns the first issue of an expression. It is enough: the others often follow from it.
func firstIssue(expression string, issues *cel.Issues) *Error {
	// CEL counts columns from 0. An issue without a position gets the first.
	first := issues.Errors()[0]
	line, column := max(first.Location.Line(), 1), max(first.Location.Column()+1, 1)
	return &Error{Expression: expression, Line: line, Column: column, Message: first.Message}
}

// gives reports whether an expression of type t may give what is wanted. A type that is only known once it is evaluated
// may be any.
func gives(t, want *cel.Type) bool { return t.IsExactType(want) || t.IsExactType(cel.DynType) }

// variable is a variable of expressions.
type variable struct {
	name string    // as expressions write it
	of   *cel.Type // what the checker knows of its value
}

// eventVariables returns the variables of an event. number is what offset and term are. Scope.ResolveName has a value
// for each.
func eventVariables(number *cel.Type) []variable {
	list := []variable{
		{"payload", cel.MapType(cel.StringType, cel.DynType)}, {"offset", number}, {"term", number},
		{"time", cel.TimestampType}, {"appended_at", cel.TimestampType},
	}
	for _, name := range []string{"type", "value", "source", "key", "correlation_id", "causation_id", "dedup_id"} {
		list = append(list, variable{name, cel.StringType})
	}
	return list
}

// Match reports whether an event meets the condition. If the condition cannot be evaluated, for example because the
// payload lacks a field that it names, the event does not meet it, and the error says why.
func (c *Condition) Match(ev *event.Event) (bool, error) {
	// A payload that lacks a field is an error of the evaluation, not of the condition.
	out, _, err := c.program.Eval(&Scope{event: ev})
	if err != nil {
		return false, err
	}
	// A condition of any type passed the checker.
	met, ok := out.(types.Bool)
	if !ok {
		return false, fmt.Errorf("it gives %s, not bool", out.Type().TypeName())
	}
	return bool(met), nil
}
