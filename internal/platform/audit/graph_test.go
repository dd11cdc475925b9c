package audit

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/ringrift/ringlog/event"
)

// picture is what a reader of a graph format makes of it.
type picture struct {
	labels map[string]string    // by node
	edges  map[[2]string]string // by ends: solid or dashed
}

func (p *picture) check() error {
	for ends := range p.edges {
		for _, id := range ends {
			if _, drawn := p.labels[id]; !drawn {
				return fmt.Errorf("an edge leads to %s, which is no node", id)
			}
		}
	}
	return nil
}

// parseDOT reads the part of the DOT language that the report uses, statement by
// statement: ID [attributes], ID -> ID [attributes], node [attributes], ID=ID.
func parseDOT(text string) (*picture, error) {
	token := regexp.MustCompile(`^\s*("(?:[^"\\]|\\.)*"|->|[A-Za-z_][A-Za-z_0-9]*|[{}\[\];,=])`)
	var tokens []string
	for rest := text; strings.TrimSpace(rest) != ""; {
		m := token.FindStringSubmatch(rest)
		if m == nil {
			return nil, fmt.Errorf("no token at %.30q", rest)
		}
		tokens, rest = append(tokens, m[1]), rest[len(m[0]):]
	}
	if len(tokens) < 4 || !slices.Equal(tokens[:3], []string{"digraph", "wiring", "{"}) || tokens[len(tokens)-1] != "}" {
		return nil, errors.New("not digraph wiring { … }")
	}
	p := &picture{map[string]string{}, map[[2]string]string{}}
	for statement := range splitTokens(tokens[3:len(tokens)-1], ";") {
		if err := p.statement(statement); err != nil {
			return nil, fmt.Errorf("%q: %w", statement, err)
		}
	}
	return p, p.check()
}

func splitTokens(tokens []string, end string) func(func([]string) bool) {
	return func(yield func([]string) bool) {
		for len(tokens) > 0 {
			i := slices.Index(tokens, end)
			if i < 0 {
				yield(append([]string{"unfinished"}, tokens...))
				return
			}
			if !yield(tokens[:i]) {
				return
			}
			tokens = tokens[i+1:]
		}
	}
}

func (p *picture) statement(s []string) error {
	word := regexp.MustCompile(`^([A-Za-z_0-9]+)$`)
	var attributes map[string]string
	if i := slices.Index(s, "["); i >= 0 {
		if s[len(s)-1] != "]" {
			return errors.New("no ]")
		}
		attributes = map[string]string{}
		for j, part := range strings.Split(strings.Join(s[i+1:len(s)-1], "\x00"), "\x00,\x00") {
			kv := strings.Split(part, "\x00")
			if len(kv) != 3 || kv[1] != "=" {
				return fmt.Errorf("attribute %d", j)
			}
			attributes[kv[0]] = kv[2]
		}
		s = s[:i]
	}
	switch {
	case len(s) == 3 && s[1] == "=" && attributes == nil:
	case len(s) == 1 && s[0] == "node":
	case len(s) == 1 && word.MatchString(s[0]) && attributes["label"] != "":
		if _, twice := p.labels[s[0]]; twice {
			return errors.New("drawn twice")
		}
		label := attributes["label"]
		p.labels[s[0]] = strings.NewReplacer(`\\`, `\`, `\"`, `"`).Replace(label[1 : len(label)-1])
	case len(s) == 3 && s[1] == "->" && word.MatchString(s[0]) && word.MatchString(s[2]):
		style := "solid"
		if attributes["style"] != "" {
			style = attributes["style"]
		}
		p.edges[[2]string{s[0], s[2]}] = style
	default:
		return errors.New("no statement of the language")
	}
	return nil
}

// parseMermaid reads the lines of a flow chart.
func parseMermaid(text string) (*picture, error) {
	node := regexp.MustCompile(`^  (\w+)(?:\["([^"]*)"\]|\(\["([^"]*)"\]\):::(\w+))$`)
	edges := regexp.MustCompile(`^  (\w+) (-->|-\.->) (\w+)$`)
	class := regexp.MustCompile(`^  classDef (\w+) fill:#[0-9a-f]{6},stroke:#[0-9a-f]{6},color:#[0-9a-f]{6}$`)
	p := &picture{map[string]string{}, map[[2]string]string{}}
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	if lines[0] != "flowchart LR" {
		return nil, errors.New("no flowchart LR")
	}
	used, defined := map[string]bool{}, map[string]bool{}
	for _, line := range lines[1:] {
		if m := node.FindStringSubmatch(line); m != nil {
			p.labels[m[1]] = strings.NewReplacer("#quot;", `"`, "#35;", "#", "#lt;", "<", "#gt;", ">").Replace(m[2] + m[3])
			if m[4] != "" {
				used[m[4]] = true
			}
		} else if m := edges.FindStringSubmatch(line); m != nil {
			p.edges[[2]string{m[1], m[3]}] = map[string]string{"-->": "solid", "-.->": "dashed"}[m[2]]
		} else if m := class.FindStringSubmatch(line); m != nil {
			defined[m[1]] = true
		} else {
			return nil, fmt.Errorf("no line of a flow chart: %q", line)
		}
	}
	for name := range used {
		if !defined[name] {
			return nil, fmt.Errorf("class %s is not defined", name)
		}
	}
	return p, p.check()
}

// Both pictures can be read, and show the same as the report, whatever people call
// their cursors and sources.
func TestThePicturesShowTheReport(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := Run(event.Builtin(), evidences().Draw(t, "evidence"))
		if lists := rapid.SliceOfDistinct(rapid.SampledFrom(Lists()), rapid.ID[string]).Draw(t, "lists"); len(lists) > 0 {
			r = r.Only(lists)
		}
		pictures := map[Format]*picture{}
		for format, parse := range map[Format]func(string) (*picture, error){DOT: parseDOT, Mermaid: parseMermaid} {
			var out bytes.Buffer
			if err := r.Write(&out, format); err != nil {
				t.Fatal(err)
			}
			p, err := parse(out.String())
			if err != nil {
				t.Fatalf("%s: %v", format, err)
			}
			pictures[format] = p
		}
		dot, mermaid := pictures[DOT], pictures[Mermaid]
		if !maps.Equal(dot.labels, mermaid.labels) || len(dot.edges) != len(mermaid.edges) {
			t.Fatalf("the pictures differ: %v, %v", dot.labels, mermaid.labels)
		}
		if got, want := drawn(dot), wanted(r); !maps.Equal(got, want) {
			t.Fatalf("drawn are %v, not %v", got, want)
		}
	})
}

// drawn are the edges by label, with their style.
func drawn(p *picture) map[[2]string]string {
	out := map[[2]string]string{}
	for ends, style := range p.edges {
		out[[2]string{p.labels[ends[0]], p.labels[ends[1]]}] = style
	}
	return out
}

func wanted(r *Report) map[[2]string]string {
	out := map[[2]string]string{}
	for _, e := range r.Types {
		for _, w := range e.Emitters {
			out[[2]string{w.Component, string(e.Name)}] = "solid"
		}
		for _, w := range e.Subscribers {
			ends := [2]string{string(e.Name), w.Component}
			if w.Pattern == "" {
				out[ends] = "solid"
			} else if out[ends] == "" {
				out[ends] = "dashed"
			}
		}
	}
	return out
}

// Where Graphviz is installed, it reads the report.
func TestGraphvizReadsTheReport(t *testing.T) {
	program, err := exec.LookPath("dot")
	if err != nil {
		t.Skip("graphviz is not installed")
	}
	var in bytes.Buffer
	if err := Run(event.Builtin(), cluster()).Write(&in, DOT); err != nil {
		t.Fatal(err)
	}
	draw := exec.CommandContext(t.Context(), program, "-Tcanon")
	draw.Stdin = &in
	if out, err := draw.CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}
