package where

import (
	"cmp"
	"fmt"
	"slices"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"
	"cel.dev/cel-go/parser"
)

// Language is the expressions over an event and over other variables. All its numbers are double: those of a payload,
// offset and term, and whole literals in arithmetic, so that payload.wins / payload.games is a quotient and
// payload.loss * 2 has a result for 1 as for 1.5. Only size() and int() give whole numbers.
//
// A text of a payload that is longer than 4096 bytes is null, which bounds what joining and matching texts costs.
//
// The same values give the same result on every host: loops go through the keys of a map in their order, and there are
// no time zones but UTC and fixed differences from it.
//
// It is safe for concurrent use. Compile changes a parsed expression before it checks it: makeDouble its whole
// literals, sortLoops its loops. What cannot be made the same everywhere is refused.
type Language struct {
	env *cel.Env // the variables and functions that are declared
}

// NewLanguage declares the variables of expressions: of the event, if ofEvent, and names, which take any value.
func NewLanguage(ofEvent bool, names ...string) (*Language, error) {
	options := []cel.EnvOption{cel.CrossTypeNumericComparisons(true), inOrder()}
	// One of the names may hide a variable of the event, such as the key of a row that of its event.
	if ofEvent {
		for _, v := range eventVariables(cel.DoubleType) {
			if !slices.Contains(names, v.name) {
				options = append(options, cel.Variable(v.name, v.of))
			}
		}
	}
	for _, name := range names {
		options = append(options, cel.Variable(name, cel.DynType))
	}
	env, err := cel.NewEnv(options...)
	if err != nil {
		return nil, fmt.Errorf("where: declare variables: %w", err)
	}
	return &Language{env}, nil
}

// EventVariables returns the names of the variables of an event.
func EventVariables() []string {
	var names []string
	for _, v := range eventVariables(cel.DoubleType) {
		names = append(names, v.name)
	}
	return names
}

// Want is what an expression has to give.
type Want uint8

// The wants. An expression whose result is not known before it is evaluated, such as payload.x, passes all.
const (
	Any Want = iota
	Bool
	String
	Number
)

// Expression is a compiled expression. It is safe for concurrent use.
type Expression struct {
	program cel.Program
	members []string // of the payload that it selects
	whole   bool     // it uses the payload in another way as well
	names   []string // the variables that it uses, sorted

	// A plain selection such as payload.elo, and one compared with a text, are evaluated without CEL. path is nil if
	// the expression is another.
	path    []string // the variable and the members below it
	literal *string  // what it is compared with; nil if it is not
	missing []error  // of each part of path, if that is missing; the variable never is
}

// Compile compiles an expression. The error is an *Error with the place if the expression is at fault. place is where
// the expression is, such as fields.elo.of.
func (l *Language) Compile(place, expression string, want Want) (*Expression, error) {
	// Parsing and checking are two steps: between them the tree is changed.
	parsed, issues := l.env.Parse(expression)
	if issues.Err() != nil {
		return nil, placed(place, firstIssue(expression, issues))
	}
	// A host's time zones and patterns of unknown work, both while positions are those of the text.
	if at, message := refused(parsed.NativeRep(), hostZone, variablePattern); message != "" {
		return nil, &Error{place, expression, max(at.Line(), 1), max(at.Column()+1, 1), message}
	}
	// Inner expressions come first: whether an operand is whole depends on what is below it.
	ast.PostOrderVisit(parsed.NativeRep().Expr(), ast.NewExprVisitor(makeDouble))
	sortLoops(parsed.NativeRep())
	// The types, of the tree as it is evaluated.
	checked, issues := l.env.Check(parsed)
	if issues.Err() != nil {
		return nil, placed(place, firstIssue(expression, issues))
	}
	if text := want.refuses(checked.OutputType()); text != "" {
		return nil, &Error{place, expression, 1, 1, text}
	}
	// Counting steps takes as long as the evaluation. Without a loop there are no more than the expression is long.
	x := &Expression{}
	var options []cel.ProgramOption
	if x.inspect(checked.NativeRep().Expr()) {
		options = append(options, cel.CostLimit(costLimit))
	}
	program, err := l.env.Program(checked, options...)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", place, err)
	}
	x.program = program
	return x, nil
}

// placed returns the error with its place.
func placed(place string, err *Error) *Error {
	err.Place = place
	return err
}

// refuses says why a result of type t is not what is wanted; "" if it may be.
func (w Want) refuses(t *cel.Type) string {
	// Whole numbers and durations become float64 when they are returned, see native.
	numeric := gives(t, cel.DoubleType) || t.IsExactType(cel.IntType) || t.IsExactType(cel.UintType) ||
		t.IsExactType(cel.DurationType)
	switch {
	case w == Bool && !gives(t, cel.BoolType):
		return fmt.Sprintf("it gives %s, not bool", t)
	case w == String && !gives(t, cel.StringType):
		return fmt.Sprintf("it gives %s, not string", t)
	case w == Number && !numeric:
		return fmt.Sprintf("it gives %s, not a number", t)
	}
	return ""
}

// makeDouble makes the whole literals among the operands of arithmetic, or the results of a choice, double, unless
// another of them is whole for sure. Numbers of a payload are double, and CEL has no arithmetic between a double and an
// int: payload.loss * 2 would fail whatever the loss is.
func makeDouble(e ast.Expr) {
	operands, ok := numbersOf(e)
	if !ok || slices.ContainsFunc(operands, isWhole) {
		return
	}
	for _, operand := range operands {
		if n, ok := wholeLiteral(operand); ok {
			operand.SetKindCase(ast.NewExprFactory().NewLiteral(operand.ID(), types.Double(n)))
		}
	}
}

// numbersOf returns what has one type: the operands of arithmetic, the results of a choice, the elements of a list. It
// returns false for an expression that joins no values.
func numbersOf(e ast.Expr) ([]ast.Expr, bool) {
	if e.Kind() == ast.ListKind {
		return e.AsList().Elements(), true
	}
	if e.Kind() != ast.CallKind {
		return nil, false
	}
	call := e.AsCall()
	switch call.FunctionName() {
	case operators.Add, operators.Subtract, operators.Multiply, operators.Divide, operators.Negate:
		return call.Args(), true
	// The first argument is the condition.
	case operators.Conditional:
		return call.Args()[1:], true
	}
	return nil, false
}

// wholeLiteral returns the value of a whole literal. It returns false for another expression.
func wholeLiteral(e ast.Expr) (types.Int, bool) {
	if e.Kind() != ast.LiteralKind {
		return 0, false
	}
	n, ok := e.AsLiteral().(types.Int)
	return n, ok
}

// isWhole reports whether an expression gives a whole number by what it calls.
func isWhole(e ast.Expr) bool {
	// Arithmetic with one whole operand is whole: makeDouble has left its literals as they are.
	if operands, ok := numbersOf(e); ok {
		return slices.ContainsFunc(operands, isWhole)
	}
	// exists_one counts in whole numbers.
	if e.Kind() == ast.IdentKind {
		return e.AsIdent() == parser.HiddenAccumulatorName
	}
	if e.Kind() != ast.CallKind {
		return false
	}
	function := e.AsCall().FunctionName()
	return function == "int" || function == "size" || function == operators.Modulo || isTimeGetter(function)
}

// inspect notes what an expression uses, and reports whether it loops. e is the checked expression. An expression that
// uses the payload other than by selecting a member, such as payload[name], needs all of it.
func (x *Expression) inspect(e ast.Expr) (loops bool) {
	// How often the payload is named, and how many of these are selections of a member.
	used, selected := 0, 0
	ast.PostOrderVisit(e, ast.NewExprVisitor(func(e ast.Expr) {
		switch e.Kind() {
		case ast.IdentKind:
			x.names = append(x.names, e.AsIdent())
			if e.AsIdent() == "payload" {
				used++
			}
		case ast.SelectKind:
			if of := e.AsSelect().Operand(); of.Kind() == ast.IdentKind && of.AsIdent() == "payload" {
				x.members = append(x.members, e.AsSelect().FieldName())
				selected++
			}
		case ast.ComprehensionKind:
			loops = true
		}
	}))
	slices.Sort(x.names)
	x.names, x.whole = slices.Compact(x.names), used > selected
	x.plain(e)
	return loops
}

// plain notes a selection, alone or compared with a text. Such an expression needs none of CEL's interpreter.
func (x *Expression) plain(e ast.Expr) {
	// SELECTION == 'text', not the other way around.
	if e.Kind() == ast.CallKind && e.AsCall().FunctionName() == operators.Equals {
		args := e.AsCall().Args()
		text, ok := literalText(args[1])
		if !ok {
			return
		}
		x.literal = &text
		e = args[0]
	}
	// From the last member back to the variable. has(payload.x) is a selection, too, but a test.
	for e.Kind() == ast.SelectKind && !e.AsSelect().IsTestOnly() {
		x.path = append(x.path, e.AsSelect().FieldName())
		e = e.AsSelect().Operand()
	}
	if e.Kind() != ast.IdentKind {
		x.path = nil
		return
	}
	x.path = append(x.path, e.AsIdent())
	slices.Reverse(x.path)
	// The messages are those of CEL.
	for _, name := range x.path {
		x.missing = append(x.missing, fmt.Errorf("no such key: %s", name))
	}
}

// Names returns the variables that the expression uses, sorted.
func (x *Expression) Names() []string { return x.names }

// Eval returns the value of the expression: nil, bool, float64, string, time.Time, []any or map[string]any. A duration
// is its seconds. An error is about the values of the variables, such as a payload that lacks a member.
func (x *Expression) Eval(vars cel.Activation) (any, error) {
	if v, err, ok := x.selected(vars); ok {
		return v, err
	}
	out, _, err := x.program.Eval(vars)
	if err != nil {
		return nil, err
	}
	return native(out)
}

// selected evaluates a plain selection. It leaves what is unusual to CEL. It returns false for ok then.
func (x *Expression) selected(vars cel.Activation) (v any, err error, ok bool) {
	if x.path == nil {
		return nil, nil, false
	}
	v, ok = vars.ResolveName(x.path[0])
	if !ok {
		return nil, nil, false
	}
	// A member of what is no object is an error, whose text is CEL's.
	for i, name := range x.path[1:] {
		members, ok := v.(map[string]any)
		if !ok {
			return nil, nil, false
		}
		if v, ok = members[name]; !ok {
			return nil, x.missing[i+1], true
		}
	}
	// A value of CEL is left to it, as an error is.
	if _, ok := v.(ref.Val); ok {
		return nil, nil, false
	}
	if x.literal == nil {
		return v, nil, true
	}
	text, ok := v.(string)
	return text == *x.literal, nil, ok
}

// native returns a value of CEL as Go's. All numbers become float64. A type that no JSON has, such as bytes, is an
// error.
func native(v ref.Val) (any, error) {
	switch v := v.(type) {
	case types.Null:
		return nil, nil
	case types.Bool:
		return bool(v), nil
	case types.Double:
		return float64(v), nil
	case types.Int:
		return float64(v), nil
	case types.Uint:
		return float64(v), nil
	case types.String:
		return string(v), nil
	case types.Timestamp:
		return v.UTC(), nil
	case types.Duration:
		return v.Seconds(), nil
	case traits.Mapper:
		return nativeMap(v)
	case traits.Lister:
		return nativeList(v)
	}
	return nil, fmt.Errorf("it gives %s, which no JSON has", cmp.Or(v.Type().TypeName(), "a value"))
}

// nativeList returns a list of CEL. An empty one is not nil.
func nativeList(v traits.Lister) (any, error) {
	list := []any{}
	for it := v.Iterator(); it.HasNext() == types.True; {
		element, err := native(it.Next())
		if err != nil {
			return nil, err
		}
		list = append(list, element)
	}
	return list, nil
}

// nativeMap returns a map of CEL, whose keys must be texts. An empty one is not nil.
func nativeMap(v traits.Mapper) (any, error) {
	members := map[string]any{}
	for it := v.Iterator(); it.HasNext() == types.True; {
		key := it.Next()
		name, ok := key.(types.String)
		if !ok {
			return nil, fmt.Errorf("it gives a map with a key that is %s, not string", key.Type().TypeName())
		}
		member, err := native(v.Get(key))
		if err != nil {
			return nil, err
		}
		members[string(name)] = member
	}
	return members, nil
}
