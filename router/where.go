package router

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

// Where is a compiled condition on events, in the Common Expression Language. It sees
//
//	type, value, source, key, correlation_id, causation_id, dedup_id   string
//	payload                                                             map; whole numbers are int, others double
//	offset, term                                                        int, 0 for an event that is not in the log
//	time, appended_at                                                   timestamp
//
// as in `payload.epoch > 3 && source.startsWith("trainer-")`. It is safe for concurrent use.
type Where struct {
	program cel.Program
}

// WhereError says what is wrong with a condition, and where.
type WhereError struct {
	Expression   string
	Line, Column int // from 1
	Message      string
}

// Error prints line and column, the message, and the line with the place marked.
func (e *WhereError) Error() string {
	lines := strings.Split(e.Expression, "\n")
	text := fmt.Sprintf("where: line %d, column %d: %s", e.Line, e.Column, e.Message)
	if e.Line < 1 || e.Line > len(lines) {
		return text
	}
	return fmt.Sprintf("%s\n | %s\n | %s^", text, strings.ReplaceAll(lines[e.Line-1], "\t", " "), strings.Repeat(".", max(e.Column-1, 0)))
}

// whereCost bounds the work of one evaluation, in steps of CEL's cost model.
const whereCost = 1 << 20

// CompileWhere compiles a condition. The error is a *WhereError where the expression is at
// fault.
func CompileWhere(expression string) (*Where, error) {
	env, err := whereEnvironment()
	if err != nil {
		return nil, fmt.Errorf("router: where: %w", err)
	}
	ast, issues := env.Compile(expression)
	if issues.Err() != nil {
		first := issues.Errors()[0]
		return nil, &WhereError{expression, max(first.Location.Line(), 1), max(first.Location.Column()+1, 1), first.Message}
	}
	if t := ast.OutputType(); !t.IsExactType(cel.BoolType) && !t.IsExactType(cel.DynType) {
		return nil, &WhereError{expression, 1, 1, fmt.Sprintf("it gives %s, not bool", t)}
	}
	program, err := env.Program(ast, cel.CostLimit(whereCost))
	if err != nil {
		return nil, fmt.Errorf("router: where: %w", err)
	}
	return &Where{program}, nil
}

func whereEnvironment() (*cel.Env, error) {
	options := []cel.EnvOption{
		cel.Variable("payload", cel.MapType(cel.StringType, cel.DynType)),
		cel.Variable("offset", cel.IntType), cel.Variable("term", cel.IntType),
		cel.Variable("time", cel.TimestampType), cel.Variable("appended_at", cel.TimestampType),
		cel.CrossTypeNumericComparisons(true),
	}
	for _, name := range []string{"type", "value", "source", "key", "correlation_id", "causation_id", "dedup_id"} {
		options = append(options, cel.Variable(name, cel.StringType))
	}
	return cel.NewEnv(options...)
}

// Match reports whether an event meets the condition. An event for which it can not be
// evaluated, as when it names a field that the payload does not have, does not meet it;
// the error says why.
func (w *Where) Match(ev *event.Event) (bool, error) {
	out, _, err := w.program.Eval(&whereScope{ev: ev})
	if err != nil {
		return false, err
	}
	met, ok := out.(types.Bool)
	if !ok {
		return false, fmt.Errorf("it gives %s, not bool", out.Type().TypeName())
	}
	return bool(met), nil
}

// whereScope gives an evaluation its variables, and decodes the payload only where it is
// asked for.
type whereScope struct {
	ev      *event.Event
	payload any
}

// Parent implements cel.Activation.
func (s *whereScope) Parent() cel.Activation { return nil }

// ResolveName implements cel.Activation.
func (s *whereScope) ResolveName(name string) (any, bool) {
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

func (s *whereScope) decoded() any {
	if s.payload != nil {
		return s.payload
	}
	var fields map[string]any
	dec := json.NewDecoder(bytes.NewReader(s.ev.Payload))
	dec.UseNumber()
	if err := dec.Decode(&fields); err != nil {
		return types.WrapErr(errors.New("the payload is not a JSON object"))
	}
	s.payload = plainNumbers(fields)
	return s.payload
}

// plainNumbers makes whole numbers int64 and all others float64, in place.
func plainNumbers(v any) any {
	switch v := v.(type) {
	case json.Number:
		if n, err := v.Int64(); err == nil {
			return n
		}
		f, _ := v.Float64() // past its range: infinite, as in Python
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
