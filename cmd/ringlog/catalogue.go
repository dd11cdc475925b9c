package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/urfave/cli/v2"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/client"
	"github.com/ringrift/ringlog/cmd/ringlog/internal/shell"
	"github.com/ringrift/ringlog/event"
)

// aType names the argument in errors, as in "catalogue show takes one argument: an event type".
const aType = "an event type"

// catalogueCommand is catalogue and its verbs. Those that list or show types ask the cluster, whose catalogue has the
// types that were registered at run time; with --builtin they need no cluster.
func catalogueCommand(sh *shell.Shell) *cli.Command {
	// One flag for the verbs that read: register and validate always need the cluster.
	builtin := &cli.BoolFlag{Name: "builtin", Usage: "use the catalogue of this program, without asking a cluster"}
	return &cli.Command{
		Name: "catalogue", Aliases: []string{"catalog"}, Usage: "list, check and register event types",
		UsageText: shell.Examples(
			"ringlog catalogue ls --category training",
			"ringlog catalogue show TRAINING_COMPLETED",
		),
		Subcommands: []*cli.Command{
			{Name: "ls", Usage: "list all types",
				UsageText: shell.Examples("ringlog catalogue ls", "ringlog catalogue ls --category training"),
				Flags:     []cli.Flag{builtin, &cli.StringFlag{Name: "category", Usage: "only types of this `CATEGORY`"}},
				Action: shell.NoArgs(func(c *cli.Context) error {
					return listTypes(c.Context, sh,
						c.Bool("builtin"), c.String("category"))
				})},
			{Name: "show", Usage: "show one type, by any of its spellings", ArgsUsage: "TYPE",
				UsageText: shell.Examples("ringlog catalogue show training_completed"),
				Flags:     []cli.Flag{builtin},
				Action: shell.Args(1, aType, func(c *cli.Context) error {
					return showType(c.Context, sh, c.Args().First(), c.Bool("builtin"))
				})},
			{Name: "schema", Usage: "print the JSON Schema of a type's payload", ArgsUsage: "TYPE",
				UsageText: shell.Examples("ringlog catalogue schema TRAINING_COMPLETED"),
				Flags:     []cli.Flag{builtin},
				Action: shell.Args(1, aType, func(c *cli.Context) error {
					return showSchema(c.Context, sh, c.Args().First(), c.Bool("builtin"))
				})},
			{Name: "doc", Usage: "print a reference of all types in Markdown",
				UsageText: shell.Examples("ringlog catalogue doc > types.md", "ringlog catalogue doc --category training"),
				Flags:     []cli.Flag{builtin, &cli.StringFlag{Name: "category", Usage: "only types of this `CATEGORY`"}},
				Action: shell.NoArgs(func(c *cli.Context) error {
					return printReference(c.Context, sh, c.Bool("builtin"), c.String("category"))
				})},
			{Name: "asyncapi", Usage: "print types, emitters and listeners as an AsyncAPI 3 document",
				UsageText: shell.Examples("ringlog catalogue asyncapi > asyncapi.json"),
				Description: "For the tools of https://www.asyncapi.com, which draw, check and generate from it. With " +
					"--builtin it has neither listeners nor nodes.",
				Flags: []cli.Flag{builtin},
				Action: shell.NoArgs(func(c *cli.Context) error {
					return printAsyncAPI(c.Context, sh, c.Bool("builtin"))
				})},
			{Name: "validate", Usage: "check events as publish would, without publishing", ArgsUsage: "[FILE|-]",
				UsageText:   shell.Examples("ringlog catalogue validate --strict events.ndjson"),
				Description: "Reads NDJSON or one JSON array. Exits 6 if an event would be refused.",
				Flags: []cli.Flag{&cli.BoolFlag{Name: "strict",
					Usage: "refuse unknown types, as strict validation does"}},
				Action: func(c *cli.Context) error {
					// Without an argument the standard input is read, so Args does not fit.
					if c.NArg() > 1 {
						return shell.Exactly(c, 1, "a file, or - for the standard input")
					}
					return validateEvents(c.Context, sh, cmp.Or(c.Args().First(), "-"), c.Bool("strict"))
				}},
			{Name: "register", Usage: "register types on all nodes", ArgsUsage: "FILE",
				UsageText: shell.Examples("ringlog catalogue register types.json --dry-run",
					"ringlog catalogue register types.json"),
				Description: "FILE holds definitions in the form that catalogue ls -o json prints: one object, " +
					"or an array of objects.",
				Flags: []cli.Flag{&cli.BoolFlag{Name: "dry-run",
					Usage: "check the definitions, and register none"}},
				Action: shell.Args(1, "a file of definitions, or -", func(c *cli.Context) error {
					return registerTypes(c.Context, sh, c.Args().First(), c.Bool("dry-run"))
				})},
		},
	}
}

// typeList is the catalogue as GET /v1/catalogue answers, or a category of it.
type typeList struct {
	Types   []*event.Definition   `json:"types"`
	Aliases map[string]event.Type `json:"aliases"`
	// Own are the types that only the cluster emits. They are not in Types, because nobody can publish them.
	Own []*event.Definition `json:"-"`
}

// readTypes reads the cluster's catalogue, which has the types that were registered at run time, or this program's.
func readTypes(ctx context.Context, sh *shell.Shell, builtin bool, category string) (list typeList, err error) {
	list = typeList{Types: event.Builtin().Definitions(), Aliases: event.Builtin().Aliases()}
	if !builtin {
		list = typeList{}
		if err := sh.Fetch(ctx, "/v1/catalogue", &list); err != nil {
			return list, err
		}
	}
	// A category is compared in any case, as types are.
	other := func(d *event.Definition) bool { return category != "" && !strings.EqualFold(d.Category, category) }
	list.Types = slices.DeleteFunc(slices.Clone(list.Types), other)
	// A node's answer has no types of the cluster's own, so these are always this program's.
	list.Own = slices.DeleteFunc(slices.Clone(event.Builtin().Own()), other)
	if len(list.Types) == 0 {
		return list, shell.NotFoundf("no type is in category %q: the categories are %s", category,
			strings.Join(event.Builtin().Categories(), ", "))
	}
	return list, nil
}

// listTypes prints the built-in types, and names those that the cluster adds.
func listTypes(ctx context.Context, sh *shell.Shell, builtin bool, category string) error {
	list, err := readTypes(ctx, sh, builtin, category)
	if err != nil {
		return err
	}
	// They are a notice beside the list: nobody can publish them.
	var own []string
	for _, d := range list.Own {
		own = append(own, string(d.Name))
	}
	if len(own) > 0 {
		sh.Say("the cluster adds its own: %s (ringlog catalogue show TYPE)", strings.Join(own, ", "))
	}
	// Only documented payloads have fields: 0 is a payload of which nothing is known.
	return shell.EmitEach(sh, "type", list.Types, table.Row{"type", "value", "category", "payload fields"},
		func(d *event.Definition) table.Row {
			return table.Row{d.Name, d.Value, d.Category, len(d.Payload)}
		})
}

// typeInfo is a type as GET /v1/catalogue/{type} answers.
type typeInfo struct {
	event.Definition
	// how the name was resolved: by name, value, alias or topic
	Via event.Via `json:"via"`
	// the name is an alias that reads like the name of another type
	Renamed bool `json:"renamed,omitempty"`
}

// lookUpType finds a type in the cluster's catalogue, or in this program's. A name that is in neither is an error
// that says which names come near.
func lookUpType(ctx context.Context, sh *shell.Shell, name string, builtin bool) (info typeInfo, err error) {
	if !builtin {
		return info, sh.Fetch(ctx, "/v1/catalogue/"+url.PathEscape(name), &info)
	}
	// The same rules as a node's: names in any case, values, aliases and topics.
	found, known := event.Builtin().Resolve(name)
	if !known {
		return info, shell.NotFoundf("%s is not in the catalogue; nearest known types: %s", found.Type,
			strings.Join(event.Builtin().Nearest(name, 3), ", "))
	}
	return typeInfo{Definition: *found.Definition, Via: found.Via, Renamed: found.Renamed}, nil
}

// showType prints what is known of one type.
func showType(ctx context.Context, sh *shell.Shell, name string, builtin bool) error {
	// Any spelling will do, and the answer says which one it was.
	t, err := lookUpType(ctx, sh, name, builtin)
	if err != nil {
		return err
	}
	return sh.Emit(t, func() error {
		// The payload as name and type of each field.
		var fields []string
		for _, f := range t.Payload {
			fields = append(fields, f.Name+" "+f.Type)
		}
		facts := []any{"type", t.Name, "value", t.Value, "category", t.Category, "status", t.Status,
			"payload", cmp.Or(strings.Join(fields, ", "), "not documented"),
			"emitted by", cmp.Or(strings.Join(t.Emitters, ", "), "not documented"),
			"read by", cmp.Or(strings.Join(t.Subscribers, ", "), "not documented")}
		// Of the cluster's own events this program knows when they are emitted.
		if own, ok := event.Builtin().Definition(t.Name); ok && own.When() != "" {
			facts = append(facts, "emitted when", own.When())
		}
		// An alias can be mistaken for a type of its own: a notice beside the answer.
		if t.Renamed {
			sh.Say("%s is an alias that looks like another type", name)
		}
		return sh.Facts(facts...)
	})
}

// showSchema prints the JSON Schema of a type's payload.
func showSchema(ctx context.Context, sh *shell.Shell, name string, builtin bool) error {
	var schema []byte
	if builtin {
		t, err := lookUpType(ctx, sh, name, true)
		if err != nil {
			return err
		}
		// The node's answer ends with a newline, too.
		schema = append(t.JSONSchema(), '\n')
	} else if err := sh.Fetch(ctx, "/v1/catalogue/"+url.PathEscape(name)+"/schema", &schema); err != nil {
		return err
	}
	// With -o json it is one line, as everything else.
	if sh.JSON {
		return sh.PrintLine(json.RawMessage(schema))
	}
	_, err := sh.Out.Write(schema)
	return err
}

// readInput reads a file, or the standard input for -. It returns at most maxPayload bytes, or an error about an
// input that is longer.
func readInput(sh *shell.Shell, name string) ([]byte, error) {
	var raw []byte
	var err error
	// One byte above the limit shows that the input is too long.
	switch {
	case name == "-" && sh.InTerminal:
		return nil, shell.Usagef("- reads the standard input, which is a terminal: pipe data in, or name a file")
	case name == "-":
		raw, err = io.ReadAll(io.LimitReader(sh.In, maxPayload+1))
	// A file is read up to the same bound as the standard input.
	default:
		raw, err = readFileBounded(name)
	}
	if err != nil {
		return nil, shell.Usagef("%w", err)
	}
	// One byte more than the limit is read, so a longer input is noticed.
	if len(raw) > maxPayload {
		return nil, shell.Usagef("%s is larger than %d bytes", name, maxPayload)
	}
	return raw, nil
}

// verdict is the cluster's judgement of one event of the input.
type verdict struct {
	Row int `json:"row"` // from 1
	api.Verdict
}

// words says in a line what publishing the event would do.
func (v verdict) words() string {
	// An event that is refused has no warnings.
	if v.Error != nil {
		return "refused: " + v.Error.Message
	}
	// Warnings do not refuse an event, so one with warnings would be published.
	var words []string
	for _, w := range v.Warnings {
		words = append(words, w.Field+": "+w.Message)
	}
	return cmp.Or(strings.Join(words, "; "), "good")
}

// validateEvents has a node judge events without publishing them.
func validateEvents(ctx context.Context, sh *shell.Shell, file string, strict bool) error {
	raw, err := readInput(sh, file)
	if err != nil {
		return err
	}
	// The route takes one array; NDJSON is made into one.
	in, err := asArray(raw)
	if err != nil {
		return err
	}
	// Strict validation refuses types that the catalogue does not know.
	query := url.Values{}
	if strict {
		query.Set("strict", "true")
	}
	// Valid sums up the events: it is false if any would be refused.
	var answer struct {
		Valid  bool      `json:"valid"`
		Events []verdict `json:"events"`
	}
	// Any node can judge: nothing is appended.
	if err := sh.Call(ctx, http.MethodPost, "/v1/catalogue/validate", query, in, &answer); err != nil {
		return err
	}
	// Events are counted as people count lines.
	for i := range answer.Events {
		answer.Events[i].Row = i + 1
	}
	err = shell.EmitEach(sh, "event", answer.Events, table.Row{"event", "type", "verdict"}, func(v verdict) table.Row {
		return table.Row{v.Row, v.Type, v.words()}
	})
	// A script sees by the exit code that a publish would be refused.
	if err == nil && !answer.Valid {
		err = shell.CodeError(shell.ExitRefused)
	}
	return err
}

// asArray makes NDJSON a JSON array, so both go the same way. A line that is no JSON is an error with its number.
func asArray(raw []byte) (json.RawMessage, error) {
	// An array is sent as it is: the node reports what is wrong with it.
	if strings.HasPrefix(strings.TrimSpace(string(raw)), "[") {
		return raw, nil
	}
	// NDJSON: each line has to be JSON by itself, so an error names its line.
	var rows []json.RawMessage
	for n, line := range strings.Split(string(raw), "\n") {
		line = strings.TrimSpace(line)
		if line == "" {
			continue
		}
		if !json.Valid([]byte(line)) {
			// The decoder of events knows best what is wrong and where.
			_, err := event.DecodeOne([]byte(line), event.Limits{EventBytes: maxPayload, RequestBytes: maxPayload})
			return nil, fmt.Errorf("line %d: %w", n+1, cmp.Or(err, errors.New("not JSON")))
		}
		rows = append(rows, json.RawMessage(line))
	}
	// An empty input most likely is a mistake of the pipe before it.
	if len(rows) == 0 {
		return nil, shell.Usagef("no event in the input")
	}
	return json.Marshal(rows)
}

// registerTypes registers definitions on all nodes, or with a dry run checks them.
func registerTypes(ctx context.Context, sh *shell.Shell, file string, dryRun bool) error {
	// As with validate, - is the standard input.
	raw, err := readInput(sh, file)
	if err != nil {
		return err
	}
	// A dry run is the node's: it checks against the catalogue as it is now.
	query := url.Values{}
	if dryRun {
		query.Set("dry_run", "true")
	}
	// The body goes out as it is: the node knows best what is wrong with a definition.
	return sh.WithClient(ctx, func(ctx context.Context, c *client.Client) error {
		var answer struct {
			Registered []string `json:"registered"`
			DryRun     bool     `json:"dry_run"`
		}
		if err := c.Admin().Do(ctx, http.MethodPost, "/v1/catalogue", query, raw, &answer); err != nil {
			return err
		}
		return sh.Emit(answer, func() error {
			// All of them or none: the answer lists the same names in both cases.
			verb := "registered"
			if dryRun {
				verb = "could be registered:"
			}
			_, err := fmt.Fprintln(sh.Out, verb, strings.Join(answer.Registered, ", "))
			return err
		})
	})
}
