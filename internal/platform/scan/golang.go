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

// golang finds what a Go file emits and subscribes to: event.New, event.Event, emit.X, Subscription and Filter.
func (f *file) golang(src string) error {
	files := gotoken.NewFileSet()
	parsed, err := parser.ParseFile(files, f.name, src, parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	g := goFile{file: f, files: files, imports: map[string]string{}}
	for _, spec := range parsed.Imports {
		imported, err := strconv.Unquote(spec.Path.Value)
		if err != nil || (imported != modulePath && !strings.HasPrefix(imported, modulePath+"/")) {
			continue
		}
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
	files   *gotoken.FileSet
	imports map[string]string // packages of the module, by their name in this file
}

// qualified returns the package and name of an expression such as event.TrainingCompleted.
func (g goFile) qualified(e ast.Expr) (pkg, name string) {
	if s, ok := e.(*ast.SelectorExpr); ok {
		if x, ok := s.X.(*ast.Ident); ok {
			return g.imports[x.Name], s.Sel.Name
		}
	}
	return "", ""
}

// visit judges calls and composite literals.
func (g goFile) visit(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.CallExpr:
		if pkg, name := g.qualified(n.Fun); pkg == "event" && name == "New" && len(n.Args) > 0 {
			g.goType(Emitter, n.Args[0])
		}
	case *ast.CompositeLit:
		elide(n)
		pkg, name := g.qualified(n.Type)
		switch {
		case pkg == "emit":
			if known, ok := g.camel[strings.ToUpper(name)]; ok {
				g.add(Emitter, known, g.line(n))
			}
		case pkg == "event" && name == "Event":
			g.eachField(n, "Type", func(e ast.Expr) { g.goType(Emitter, e) })
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
	if pointer, ok := element.(*ast.StarExpr); ok {
		element = pointer.X
	}
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

// eachField calls do with the value of a field.
func (g goFile) eachField(lit *ast.CompositeLit, name string, do func(ast.Expr)) {
	for _, e := range lit.Elts {
		if pair, ok := e.(*ast.KeyValueExpr); ok {
			if key, ok := pair.Key.(*ast.Ident); ok && key.Name == name {
				do(pair.Value)
			}
		}
	}
}

// goTypes reads a list of types.
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

// goType reads an expression that is a type.
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
	if lit, ok := e.(*ast.BasicLit); ok && lit.Kind == gotoken.STRING {
		if written, err := strconv.Unquote(lit.Value); err == nil {
			g.add(role, written, g.line(e))
		}
		return
	}
	if pkg, name := g.qualified(e); pkg == "event" {
		if known, ok := g.camel[strings.ToUpper(name)]; ok {
			g.add(role, known, g.line(e))
			return
		}
	}
	g.dynamic(role, g.line(e))
}
