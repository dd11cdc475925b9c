package where

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common"
	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"
)

// sorted is the function around what a loop goes through. No expression can name it: its name has a character that
// names do not have.
const sorted = "@sorted"

// inOrder declares the function: it returns its argument, a map with an iterator in the order of its keys. Other values
// come back as they are: lists have an order.
func inOrder() cel.EnvOption {
	any := cel.TypeParamType("T")
	return cel.Function(sorted, cel.Overload("sorted", []*cel.Type{any}, any, cel.UnaryBinding(func(v ref.Val) ref.Val {
		if m, ok := v.(traits.Mapper); ok {
			return sortedMap{m}
		}
		return v
	})))
}

// sortLoops puts the function around what each loop goes through. CEL goes through a map in the order of Go's, which
// is another each time.
func sortLoops(tree *ast.AST) {
	// The ranges of all loops, and the highest id, above which new ones are free.
	var loops []ast.Expr
	next := int64(0)
	ast.PostOrderVisit(tree.Expr(), ast.NewExprVisitor(func(e ast.Expr) {
		next = max(next, e.ID())
		if e.Kind() == ast.ComprehensionKind {
			loops = append(loops, e.AsComprehension().IterRange())
		}
	}))
	// What it goes through moves below the call, with an id of its own and the same position.
	for _, of := range loops {
		next++
		inner := ast.NewExprFactory().NewUnspecifiedExpr(next)
		inner.SetKindCase(of)
		if position, ok := tree.SourceInfo().GetOffsetRange(of.ID()); ok {
			tree.SourceInfo().SetOffsetRange(next, position)
		}
		of.SetKindCase(ast.NewExprFactory().NewCall(of.ID(), sorted, inner))
	}
}

// sortedMap is a map that is gone through in the order of its keys. Everything else is asked of the map itself.
type sortedMap struct{ traits.Mapper }

// Iterator implements traits.Iterable.
func (m sortedMap) Iterator() traits.Iterator {
	// An iterator walks the whole map before it returns the first key, so a loop costs n log n.
	var keys []ref.Val
	for it := m.Mapper.Iterator(); it.HasNext() == types.True; {
		keys = append(keys, it.Next())
	}
	// Keys are bool, int, uint and string; only one of them is common.
	slices.SortFunc(keys, func(a, b ref.Val) int {
		return cmp.Or(cmp.Compare(a.Type().TypeName(), b.Type().TypeName()),
			cmp.Compare(fmt.Sprint(a.Value()), fmt.Sprint(b.Value())))
	})
	return types.NewRefValList(types.DefaultTypeAdapter, keys).Iterator()
}

// maxPattern bounds a regular expression, in bytes: its work is its length times that of the text.
const maxPattern = 256

// refusal says what is wrong with a call whose last argument is this one, and "" if nothing is. fixed says whether the
// argument is a literal, and text is its text then.
type refusal func(function, text string, fixed bool) string

// refused returns the first call of an expression that one of the rules refuses. at is where the argument is in the
// text, and message what the rule says. Of no such call the message is empty.
func refused(tree *ast.AST, rules ...refusal) (at common.Location, message string) {
	ast.PostOrderVisit(tree.Expr(), ast.NewExprVisitor(func(e ast.Expr) {
		if e.Kind() != ast.CallKind || message != "" || len(e.AsCall().Args()) == 0 {
			return
		}
		args := e.AsCall().Args()
		last := args[len(args)-1]
		text, fixed := literalText(last)
		for _, rule := range rules {
			if message = rule(e.AsCall().FunctionName(), text, fixed); message != "" {
				at = tree.SourceInfo().GetStartLocation(last.ID())
				return
			}
		}
	}))
	return at, message
}

// hostZone refuses a time zone that depends on the files of a host. A getter without a zone is UTC's. It has no
// argument, so refused does not ask about it.
func hostZone(function, text string, fixed bool) string {
	if !isTimeGetter(function) || (fixed && (text == "UTC" || strings.Contains(text, ":"))) {
		return ""
	}
	return "a time zone is 'UTC' or a difference from it such as '+02:00': a name depends on the files of a host"
}

// variablePattern refuses a regular expression of unknown work, such as one that an event has.
func variablePattern(function, text string, fixed bool) string {
	if function != "matches" || (fixed && len(text) <= maxPattern) {
		return ""
	}
	return fmt.Sprintf("a pattern is a text in the expression, of up to %d bytes", maxPattern)
}

// isTimeGetter reports whether a function returns a part of a time.
func isTimeGetter(function string) bool {
	switch function {
	case "getFullYear", "getMonth", "getDate", "getDayOfMonth", "getDayOfWeek", "getDayOfYear", "getHours", "getMinutes",
		"getSeconds", "getMilliseconds":
		return true
	}
	return false
}

// literalText returns the text of a literal.
func literalText(e ast.Expr) (string, bool) {
	if e.Kind() != ast.LiteralKind {
		return "", false
	}
	text, ok := e.AsLiteral().(types.String)
	return string(text), ok
}
