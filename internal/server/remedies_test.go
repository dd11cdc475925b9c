package server

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// Callers who have HTTP alone get the remedies, too: a text that names a verb of the command line names a request
// beside it.
func TestRemediesNameMoreThanTheCommandLine(t *testing.T) {
	t.Parallel()
	verb := regexp.MustCompile(`(: |, |or |see )ringlog [a-z]`)
	request := regexp.MustCompile(`(GET|PUT|POST|DELETE) /v1/`)
	read := 0
	for _, room := range []string{".", "../service", "../group/engine", "../../fsm", "../../event", "../../api"} {
		files, err := filepath.Glob(filepath.Join(room, "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			places := token.NewFileSet()
			parsed, err := parser.ParseFile(places, file, nil, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			ast.Inspect(parsed, func(n ast.Node) bool {
				text, is := literalText(n)
				if is && verb.MatchString(text) {
					read++
					if !request.MatchString(text) {
						t.Errorf("%s: %q", places.Position(n.Pos()), text)
					}
				}
				// The parts of a text that was put together are not looked at one by one.
				return !is
			})
		}
	}
	if read < 20 {
		t.Errorf("only %d remedies were found", read)
	}
}

// literalText returns the constant parts of a string that is written in one expression; false for any other node.
func literalText(n ast.Node) (text string, is bool) {
	switch n := n.(type) {
	case *ast.BasicLit:
		if n.Kind != token.STRING {
			return "", false
		}
		text, err := strconv.Unquote(n.Value)
		return text, err == nil
	case *ast.BinaryExpr:
		if n.Op != token.ADD {
			return "", false
		}
		left, isLeft := literalText(n.X)
		right, isRight := literalText(n.Y)
		return left + right, isLeft || isRight
	}
	return "", false
}
