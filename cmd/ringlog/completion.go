package main

import (
	"cmp"
	"context"
	_ "embed" // the scripts below
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/ringrift/ringlog/cmd/ringlog/internal/shell"
	"github.com/ringrift/ringlog/event"
)

// The scripts ask the program itself what may follow, with completeVerb and the words up to the cursor.
var (
	//go:embed completion.bash
	bashCompletion string
	//go:embed completion.zsh
	zshCompletion string
	//go:embed completion.fish
	fishCompletion string
)

// completionCommand is completion. It prints a script and changes nothing: people source it, or put it where their
// shell looks for it.
func completionCommand(sh *shell.Shell) *cli.Command {
	return &cli.Command{
		Name: "completion", Usage: "print a shell's completion script", ArgsUsage: "bash|zsh|fish",
		// In the shell of that name, which reads what is printed.
		UsageText: shell.Examples("source <(ringlog completion bash)", "source <(ringlog completion zsh)",
			"ringlog completion fish | source"),
		Action: shell.Args(1, "bash, zsh or fish", func(c *cli.Context) error {
			script := map[string]string{"bash": bashCompletion, "zsh": zshCompletion, "fish": fishCompletion}[c.Args().First()]
			if script == "" {
				return shell.Usagef("there is no completion for %q: use bash, zsh or fish", c.Args().First())
			}
			_, err := fmt.Fprint(sh.Out, script)
			return err
		}),
	}
}

const (
	completeVerb   = "__complete"
	completeWithin = time.Second // to ask a node for names
)

// complete prints what the last of the words may become, one on a line. If it prints nothing, the shell offers files.
// It runs no verb: whoever presses a key wants nothing to happen.
func complete(ctx context.Context, sh *shell.Shell, app *cli.App, words []string) {
	words, last := joinBroken(words)
	typed := words[len(words)-1]
	for _, word := range candidates(ctx, sh, app, words) {
		// A name with any of these would have to be quoted, as each shell does in its own way.
		if strings.HasPrefix(word, typed) && !strings.ContainsAny(word, " \t\"'`$&|;<>()*?[]#~!\\") {
			fmt.Fprintln(sh.Out, word[len(typed)-len(last):])
		}
	}
}

// joinBroken returns the words as they were typed, and what the shell has of the last: bash breaks them at = and :.
func joinBroken(words []string) (joined []string, last string) {
	glue := false
	for _, word := range words {
		breaks := word == "=" || word == ":"
		if n := len(joined); n > 0 && (glue || breaks) {
			joined[n-1] += word
		} else {
			joined = append(joined, word)
		}
		glue, last = breaks, word
		if breaks {
			last = ""
		}
	}
	return joined, last
}

// candidates returns what the last of the words may be.
func candidates(ctx context.Context, sh *shell.Shell, app *cli.App, words []string) []string {
	last := words[len(words)-1]
	before := append([]string{app.Name}, words[:len(words)-1]...)
	// help is followed by what it is about.
	about := slices.DeleteFunc(slices.Clone(before), func(word string) bool { return word == "help" })
	line, err := shell.ReadLine(app, about)
	if err != nil || line.Ended {
		return nil
	}
	flag, _, hasValue := strings.Cut(last, "=")
	command, path := line.Command(app)
	switch {
	case line.Flag != "":
		return namesOf(ctx, sh, app, line, flagValues[strings.TrimLeft(line.Flag, "-")])
	case strings.HasPrefix(last, "-") && hasValue:
		values := namesOf(ctx, sh, app, line, flagValues[strings.TrimLeft(flag, "-")])
		for i := range values {
			values[i] = flag + "=" + values[i]
		}
		return values
	case strings.HasPrefix(last, "-"):
		return flagNames(line.Flags())
	case len(line.Arguments) > 0:
		return nil
	case len(line.Commands) > 0:
		return verbNames(line.Commands)
	case len(about) < len(before) || command == nil:
		return nil
	}
	// A verb that makes something takes a new name.
	if slices.Contains([]string{"create", "add"}, path[len(path)-1]) {
		return nil
	}
	kind, _, _ := strings.Cut(strings.Trim(command.ArgsUsage, "[]."), " ")
	return namesOf(ctx, sh, app, line, cmp.Or(argumentNames[path[0]+" "+kind], argumentNames[kind]))
}

// flagValues are what a flag may be: words, or the kind of names that nameLists has.
var flagValues = map[string]string{
	"output": "text json", "o": "text json", "consistency": "linearizable local",
	"log-level": "trace debug info warn error", "tls-mode": "off allow require",
	"restart": "always on-failure never", "priority": "low normal high critical",
	"type": "types", "reply": "types", "group": "groups", "cursor": "cursors", "cursors": "cursors", "flow": "flows",
	"context": "contexts",
}

// argumentNames are what the argument of a verb may be, by its name in the verb's usage, with the noun or without.
var argumentNames = map[string]string{
	"bash|zsh|fish": "bash zsh fish", "TYPE": "types", "ROLE": "roles", "KEY": "settings", "RESOURCE": "resources",
	"cursor NAME": "cursors", "group NAME": "groups", "view NAME": "views", "token NAME": "tokens",
	"flow NAME": "flows", "context NAME": "contexts", "cluster ID": "members", "scheduled ID": "scheduled",
	"allocation ID": "allocations", "clients ID": "clients",
}

// nameLists are the lists of names that a node has: what they are called in its answer, and the field with the name.
var nameLists = map[string]struct{ path, list, field string }{
	"cursors": {"/v1/cursors", "cursors", "name"}, "groups": {"/v1/groups", "groups", "name"},
	"roles": {"/v1/roles", "roles", "role"}, "settings": {"/v1/settings", "settings", "key"},
	"resources": {"/v1/resources", "resources", "resource"}, "views": {"/v1/views", "views", "name"},
	"tokens": {"/v1/tokens", "tokens", "name"}, "flows": {"/v1/flows", "flows", "name"},
	"members": {"/v1/members", "members", "id"}, "scheduled": {"/v1/scheduled", "scheduled", "id"},
	"allocations": {"/v1/allocations", "allocations", "allocation"}, "clients": {"/v1/clients", "clients", "id"},
}

// namesOf returns the words in kind, or the names that it stands for.
func namesOf(ctx context.Context, sh *shell.Shell, app *cli.App, line *shell.Line, kind string) (names []string) {
	list, known := nameLists[kind]
	switch {
	case kind == "types":
		for _, d := range event.Builtin().Definitions() {
			names = append(names, string(d.Name))
		}
		return names
	case kind == "contexts":
		if all, err := sh.ReadContexts(); err == nil {
			names = all.Names()
		}
		return names
	case !known:
		return strings.Fields(kind)
	}
	app.Commands, app.Action = nil, func(c *cli.Context) error {
		ctx, cancel := context.WithTimeout(c.Context, completeWithin)
		defer cancel()
		var answer map[string]json.RawMessage
		if err := sh.Call(ctx, http.MethodGet, list.path, nil, nil, &answer); err != nil {
			return err
		}
		var rows []map[string]any
		err := json.Unmarshal(answer[list.list], &rows)
		for _, row := range rows {
			name, _ := row[list.field].(string)
			names = append(names, name)
		}
		return err
	}
	// The flags that were typed say whom to ask. Without an answer there are no names.
	_ = app.RunContext(ctx, append(line.Program(), "--consistency", "local"))
	return names
}

// flagNames returns the flags as they are typed, in their order.
func flagNames(flags []cli.Flag) (names []string) {
	for _, flag := range flags {
		names = append(names, "--"+flag.Names()[0])
	}
	return names
}

// verbNames returns the verbs that the help lists.
func verbNames(commands []*cli.Command) (names []string) {
	for _, c := range commands {
		if !c.Hidden {
			names = append(names, c.Name)
		}
	}
	return names
}
