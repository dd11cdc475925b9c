package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/ringrift/ringlog/cmd/ringlog/internal/shell"
	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/internal/platform/asyncapi"
)

// printAsyncAPI prints the AsyncAPI document of a node, or one of the built-in catalogue.
func printAsyncAPI(ctx context.Context, sh *shell.Shell, builtin bool) (err error) {
	var document []byte
	if builtin {
		// The version is in the document, so its reader knows which catalogue it has.
		document, err = asyncapi.Document(asyncapi.Log{Catalogue: event.Builtin(), Version: buildVersion().Version})
	} else {
		err = sh.Fetch(ctx, "/asyncapi.json", &document)
	}
	if err != nil {
		return err
	}
	if sh.JSON {
		return sh.PrintLine(json.RawMessage(document))
	}
	// People read it, too.
	// A node sends it without line breaks.
	var indented bytes.Buffer
	if err := json.Indent(&indented, bytes.TrimSpace(document), "", "  "); err != nil {
		return err
	}
	_, err = fmt.Fprintln(sh.Out, indented.String())
	return err
}

// printReference prints a reference of the types in Markdown: a chapter for each category, with a table of the
// payload's fields for each type.
func printReference(ctx context.Context, sh *shell.Shell, builtin bool, category string) error {
	list, err := readTypes(ctx, sh, builtin, category)
	if err != nil {
		return err
	}
	text := reference(list)
	// As JSON it is one member, so that every output of the program is an object.
	return sh.Emit(map[string]string{"markdown": text}, func() error {
		_, err := fmt.Fprint(sh.Out, text)
		return err
	})
}

// reference is what printReference prints.
func reference(list typeList) string {
	// The former names of each type, which are sorted where they are printed.
	aliases := map[event.Type][]string{}
	for alias, t := range list.Aliases {
		aliases[t] = append(aliases[t], alias)
	}
	// Own types are in the reference, too: subscribers receive them.
	types := slices.Concat(list.Types, list.Own)
	slices.SortStableFunc(types, func(a, b *event.Definition) int {
		return cmp.Or(strings.Compare(a.Category, b.Category), strings.Compare(string(a.Name), string(b.Name)))
	})

	var out strings.Builder
	fmt.Fprintf(&out, "# Event types\n\n%s. No payload field is required.\n", shell.Count(len(types), "type"))
	// Types are sorted by category, so a new one begins with the first of its types.
	chapter := ""
	for i, d := range types {
		if i == 0 || d.Category != chapter {
			chapter = d.Category
			fmt.Fprintf(&out, "\n## %s\n", cmp.Or(chapter, "without a category"))
		}
		fmt.Fprintf(&out, "\n### %s\n\n", d.Name)
		slices.Sort(aliases[d.Name])
		// Lines without a name are left out.
		for _, line := range []struct {
			what  string
			names []string
		}{
			{"value", []string{d.Value}},
			{"aliases", aliases[d.Name]},
			{"emitted by", d.Emitters},
			{"read by", d.Subscribers},
		} {
			if len(line.names) > 0 {
				fmt.Fprintf(&out, "- %s: %s\n", line.what, codeSpans(line.names))
			}
		}
		if len(d.Payload) == 0 {
			fmt.Fprint(&out, "- payload: not documented\n")
			continue
		}
		fmt.Fprint(&out, "\n| field | type |\n| --- | --- |\n")
		for _, f := range d.Payload {
			// A bar would end the cell, also within code.
			fmt.Fprintf(&out, "| %s | %s |\n", strings.ReplaceAll(codeSpan(f.Name), "|", `\|`), f.Type)
		}
	}
	return out.String()
}

// codeSpans returns texts as code in Markdown, separated by commas.
func codeSpans(texts []string) string {
	var spans []string
	for _, text := range texts {
		spans = append(spans, codeSpan(text))
	}
	return strings.Join(spans, ", ")
}

// codeSpan returns a text as code in Markdown, so that nothing in it is markup. It begins and ends with more backticks
// than the text has in a row.
func codeSpan(text string) string {
	// It grows until the text does not have it.
	fence := "`"
	for strings.Contains(text, fence) {
		fence += "`"
	}
	// A backtick at either end needs a space, which is not shown.
	if len(fence) > 1 {
		return fence + " " + text + " " + fence
	}
	return fence + text + fence
}
