package scan

import (
	"go/ast"
	"go/parser"
	gotoken "go/token"
	"path"
	"strconv"
	"strings"
)

// modulePath is that of the packages whose names count in Go.
const modulePath = "github.com/ringrift/ringlog"

// golang finds what a Go file emits and subscribes to: event.New, event.Event, emit.X, Subscription and Filter. The
// file is parsed but not type-checked: a name counts by the package that it is qualified with.
func (f *file) golang(src string) error {
	files := gotoken.NewFileSet()
	parsed, err := parser.ParseFile(files, f.name, src, parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	g := goFile{file: f, files: files, imports: map[string]string{}}
	// Other packages may have functions and types of the same names, so only imports of this module count.
	for _, spec := range parsed.Imports {
		imported, err := strconv.Unquote(spec.Path.Value)
		if err != nil || (imported != modulePath && !strings.HasPrefix(imported, modulePath+"/")) {
			continue
		}
		// Under which name this file knows the package.
		name := path.Base(imported)
		if spec.Name != nil {
			name = spec.Name.Name
		}
		g.imports[name] = path.Base(imported)
	}
	ast.Inspect(parsed, g.visit)
	return nil
}

// goFile is a Go file that is scanned.
type goFile struct {
	*file
	files   *gotoken.FileSet  // positions of its nodes
	imports map[string]string // packages of the module, by their name in this file
}

// qualified returns the package and name of an expression such as event.TrainingCompleted. Both are empty for another
// expression, and pkg is for a package that is not the module's.
func (g goFile) qualified(e ast.Expr) (pkg, name string) {
	if s, ok := e.(*ast.SelectorExpr); ok {
		if x, ok := s.X.(*ast.Ident); ok {
			return g.imports[x.Name], s.Sel.Name
		}
	}
	return "", ""
}

// visit judges calls and composite literals. It is called for outer nodes first, and returns true to be called for
// those below.
func (g goFile) visit(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.CallExpr:
		if pkg, name := g.qualified(n.Fun); pkg == "event" && name == "New" && len(n.Args) > 0 {
			g.goType(Emitter, n.Args[0])
		}
	case *ast.CompositeLit:
		// Before the elements are visited, which come after the list.
		elide(n)
		pkg, name := g.qualified(n.Type)
		switch {
		// A payload struct of package emit has the name of its type in CamelCase.
		case pkg == "emit":
			if known, ok := g.camel[strings.ToUpper(name)]; ok {
				g.add(Emitter, known, g.line(n))
			}
		// Published as a literal.
		case pkg == "event" && name == "Event":
			g.eachField(n, "Type", func(e ast.Expr) { g.goType(Emitter, e) })
		// Both have their types in lists.
		case (pkg == "router" && name == "Subscription") || (pkg == "event" && name == "Filter"):
			g.eachField(n, "Types", g.goTypes)
			g.eachField(n, "Patterns", g.goTypes)
		}
	}
	return true
}

// elide gives elements of a list or map that leave their type out the one that they have.
func elide(lit *ast.CompositeLit) {
	var element ast.Expr
	switch t := lit.Type.(type) {
	case *ast.ArrayType:
		element = t.Elt
	case *ast.MapType:
		element = t.Value
	default:
		return
	}
	// A list of pointers has literals without the &.
	if pointer, ok := element.(*ast.StarExpr); ok {
		element = pointer.X
	}
	// Elements of maps, and those of lists with an index, are pairs.
	for _, e := range lit.Elts {
		if pair, ok := e.(*ast.KeyValueExpr); ok {
			e = pair.Value
		}
		if inner, ok := e.(*ast.CompositeLit); ok && inner.Type == nil {
			inner.Type = element
		}
	}
}

// line returns where a node begins.
func (g goFile) line(n ast.Node) int { return g.files.Position(n.Pos()).Line }

// eachField calls do with the value of a field. A literal without names of fields has none.
func (g goFile) eachField(lit *ast.CompositeLit, name string, do func(ast.Expr)) {
	for _, e := range lit.Elts {
		if pair, ok := e.(*ast.KeyValueExpr); ok {
			if key, ok := pair.Key.(*ast.Ident); ok && key.Name == name {
				do(pair.Value)
			}
		}
	}
}

// goTypes reads a list of types. What is no list literal, such as a variable, is dynamic.
func (g goFile) goTypes(e ast.Expr) {
	list, ok := e.(*ast.CompositeLit)
	if !ok {
		g.dynamic(Subscriber, g.line(e))
		return
	}
	for _, e := range list.Elts {
		g.goType(Subscriber, e)
	}
}

// goType reads an expression that is a type. It adds at most one place.
func (g goFile) goType(role Role, e ast.Expr) {
	// A conversion does not change what is written.
	for {
		call, ok := e.(*ast.CallExpr)
		if !ok || len(call.Args) != 1 {
			break
		}
		if name, basic := call.Fun.(*ast.Ident); !basic || name.Name != "string" {
			if pkg, name := g.qualified(call.Fun); pkg != "event" || name != "Type" {
				break
			}
		}
		e = call.Args[0]
	}
	// A text, as it is written.
	if lit, ok := e.(*ast.BasicLit); ok && lit.Kind == gotoken.STRING {
		if written, err := strconv.Unquote(lit.Value); err == nil {
			g.add(role, written, g.line(e))
		}
		return
	}
	// A constant of package event has the name of its type in CamelCase.
	if pkg, name := g.qualified(e); pkg == "event" {
		if known, ok := g.camel[strings.ToUpper(name)]; ok {
			g.add(role, known, g.line(e))
			return
		}
	}
	g.dynamic(role, g.line(e))
}
