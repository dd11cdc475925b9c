package shell

import (
	"cmp"
	"context"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"
	"github.com/xrash/smetrics"
)

// What the global flags are by default.
const (
	DefaultEndpoint = "http://127.0.0.1:8770"
	DefaultTimeout  = 10 * time.Second
)

// Prepare completes a program and its commands: wrong usage is answered alike at every level, verbs have their usual
// other names, and each command has its help.
func Prepare(app *cli.App) {
	app.Flags = append(app.Flags, cli.HelpFlag) // the library adds it only if it adds a help of its own
	top := func() string { return appHelp(app) }
	app.Commands = append(app.Commands, helpCommand(app.Name, top, app.Commands))
	app.Action = runGroup(app.Commands, cli.ShowAppHelp)
	app.OnUsageError = usageProblem
	for _, c := range app.Commands {
		prepare(app.Name, c)
	}
}

// prepare does this for a command, which is typed after path, and those below it.
func prepare(path string, c *cli.Command) {
	path += " " + c.Name
	if c.OnUsageError == nil {
		c.OnUsageError = usageProblem
	}
	for _, sub := range c.Subcommands {
		// The program's own verbs have no other names, only those of nouns.
		addUsualAliases(c.Subcommands, sub)
		prepare(path, sub)
	}
	// A wrong verb is named with the near one. Without a verb, a noun prints its help unless it has an action.
	if len(c.Subcommands) > 0 {
		alone := c.Action
		if alone == nil {
			alone = cli.ShowSubcommandHelp
		}
		c.Action = runGroup(c.Subcommands, alone)
	}
	c.CustomHelpTemplate = path // for printHelp
	c.HideHelpCommand = true    // the library would add its own
	// NOUN help VERB is help NOUN VERB.
	if len(c.Subcommands) > 0 {
		below := helpCommand(path, func() string { return helpText(path, c) }, c.Subcommands)
		below.Hidden = true
		c.Subcommands = append(c.Subcommands, below)
	}
}

// addUsualAliases gives a verb the other names that people type for it, unless a verb beside it has them.
func addUsualAliases(beside []*cli.Command, c *cli.Command) {
	var usual []string
	// Each name is an alias of the others; the verb's own is left out below, as it is a name of a verb.
	switch c.Name {
	case "ls", "members":
		usual = []string{"ls", "list"}
	case "rm", "remove":
		usual = []string{"rm", "remove", "delete"}
	case "info":
		usual = []string{"show"}
	case "show":
		usual = []string{"info"}
	}
	for _, name := range usual {
		if find(beside, name) == nil {
			c.Aliases = append(c.Aliases, name)
		}
	}
}

// runGroup is the action of a command that holds others: alone if no verb follows, and else the near one is
// suggested.
func runGroup(commands []*cli.Command, alone cli.ActionFunc) cli.ActionFunc {
	return func(c *cli.Context) error {
		if !c.Args().Present() {
			return alone(c)
		}
		name := c.Args().First()
		return Usagef("there is no verb %q%s", name, nearVerb(commands, name, whereVerbsAre(c, commands)))
	}
}

// whereVerbsAre lists the verbs of a noun. Those of the program are too many for a line.
func whereVerbsAre(c *cli.Context, commands []*cli.Command) string {
	// HelpName of the program itself is its own name.
	if c.Command.HelpName == c.App.Name {
		return ": see ringlog help"
	}
	var verbs []string
	for _, verb := range commands {
		if !verb.Hidden {
			verbs = append(verbs, verb.Name)
		}
	}
	return fmt.Sprintf("; the verbs of %s are %s", strings.TrimPrefix(c.Command.HelpName, c.App.Name+" "),
		strings.Join(verbs, ", "))
}

// nearVerb suggests a verb for one that does not exist; without a near one the result is otherwise.
// The result is the end of a sentence.
func nearVerb(commands []*cli.Command, name, otherwise string) string {
	// Aliases are candidates, too. A noun may have the very verb.
	var names, below []string
	for _, c := range commands {
		names = append(names, c.Names()...)
		if verb := find(c.Subcommands, name); verb != nil {
			below = append(below, strconv.Quote(c.Name+" "+verb.Name))
		}
	}
	// It replaces what was found in nouns: it is the command that does what was meant.
	if other := otherWord(commands, name); other != "" {
		below = []string{strconv.Quote(other)}
	}
	if len(below) > 0 {
		return ". Did you mean " + strings.Join(below, " or ") + "?"
	}
	return cmp.Or(DidYouMean(name, names, ""), otherwise)
}

// otherWord returns the command for a word that other programs have for it, "" if there is none.
func otherWord(commands []*cli.Command, name string) string {
	other := map[string]string{
		"nodes": "cluster members", "node": "cluster members", "ps": "cluster members", "member": "cluster members",
		"leader": "cluster status", "health": "check",
		"topics": "catalogue ls", "topic": "catalogue ls", "types": "catalogue ls",
		"events": "tail", "log": "tail", "logs": "tail", "read": "tail", "subscribe": "tail", "watch": "tail",
		"produce": "publish", "send": "publish", "append": "publish", "cat": "tail",
		"consumers": "cursor ls", "cursors": "cursor ls", "groups": "group ls", "subscribers": "clients",
		"backup": "snapshot save", "trim": "compact", "config": "settings", "deadletters": "dlq ls", "replay": "dlq redrive",
		"start": "serve", "server": "serve", "transfer": "step-down", "create": "save",
	}[name]
	noun, _, _ := strings.Cut(other, " ")
	if find(commands, noun) == nil { // of a noun's own verbs
		return ""
	}
	return other
}

// nearFlag suggests a flag for one that does not exist; without a near one the result is otherwise.
// The result is the end of a sentence.
func nearFlag(flags []cli.Flag, name, otherwise string) string {
	var names []string
	// Short names are candidates, too.
	for _, f := range flags {
		names = append(names, f.Names()...)
	}
	// The names that other programs have for where a read begins.
	if slices.Contains([]string{"since", "offset", "start"}, name) && slices.Contains(names, "from") {
		return `. Did you mean "--from"?`
	}
	// A short flag has one dash, and is compared with all names all the same.
	dashes := "--"
	if len(name) == 1 {
		dashes = "-"
	}
	return cmp.Or(DidYouMean(name, names, dashes), otherwise)
}

// DidYouMean suggests the name that differs from what was typed by one letter, by two neighbours that are exchanged, or
// by two letters in a word of six or more: a suggestion that is far off is worse than none.
func DidYouMean(typed string, names []string, dashes string) string {
	// The distance must be below the bound, and the nearest name wins. A single letter has no near name.
	nearest, least := "", min(2, max(len(typed)/3, min(1, len(typed)/2)))+1
	for _, name := range names {
		d := smetrics.WagnerFischer(typed, name, 1, 1, 1)
		// Neighbours that are exchanged are one mistake, which counts as two changes.
		if d == 2 && exchanged(typed, name) {
			d = 1
		}
		if d < least {
			nearest, least = name, d
		}
	}
	if nearest == "" {
		return ""
	}
	return fmt.Sprintf(". Did you mean %q?", dashes+nearest)
}

// exchanged reports whether a is b with two neighbours exchanged.
func exchanged(a, b string) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range len(a) - 1 {
		// At the first letter that differs: the two are exchanged, and all after them are equal.
		if a[i] != b[i] {
			return a[i] == b[i+1] && a[i+1] == b[i] && a[i+2:] == b[i+2:]
		}
	}
	return false
}

// usageProblem answers flags that cannot be read, with the near one if there
// is none of that name.
func usageProblem(c *cli.Context, err error, _ bool) error {
	// Package flag reports a flag without its value, and an unknown one, by its text alone.
	if name, unfinished := strings.CutPrefix(err.Error(), "flag needs an argument: -"); unfinished {
		return Usagef("%s needs a value", dashed(name))
	}
	// The text is that of Go's package flag, which has no error value for it.
	const unknown = "flag provided but not defined: -"
	name, isUnknown := strings.CutPrefix(err.Error(), unknown)
	// The program's flags may be anywhere on the line, so they are candidates, too.
	flags := c.App.Flags
	if c.Command != nil {
		// A copy, or the command's own list would grow.
		flags = append(append([]cli.Flag(nil), c.Command.Flags...), flags...)
	}
	if !isUnknown {
		return wrongValue(flags, err)
	}
	// HelpName is the way from the program to the verb. Of the program alone, the help lists the flags of every verb.
	help := ": see ringlog help"
	if c.Command != nil && c.Command.HelpName != "" {
		help += strings.TrimPrefix(c.Command.HelpName, c.App.Name)
	}
	return Usagef("there is no flag %s%s", dashed(name), nearFlag(flags, strings.TrimLeft(name, "-"), help))
}

// invalidValue is how package flag reports a value that it cannot read.
// The value comes first, quoted; then the flag; then the reason.
var invalidValue = regexp.MustCompile(`(?s)^invalid value (".*") for flag -(\S+): (parse error)$`)

// wrongValue answers a flag's wrong value with what the flag takes.
func wrongValue(flags []cli.Flag, err error) error {
	parts := invalidValue.FindStringSubmatch(err.Error())
	if parts == nil {
		return UsageError{err}
	}
	return Usagef("%s takes %s, not %s", dashed(parts[2]), takenBy(flags, parts[2]), parts[1])
}

// takenBy says what a flag takes, by its type.
func takenBy(flags []cli.Flag, name string) string {
	for _, f := range flags {
		if !slices.Contains(f.Names(), name) {
			continue
		}
		switch f.(type) {
		case *cli.DurationFlag:
			return "a duration such as 500ms, 5s or 2h"
		case *cli.IntFlag, *cli.Int64Flag, *cli.UintFlag, *cli.Uint64Flag:
			return "a whole number"
		case *cli.Float64Flag:
			return "a number"
		}
	}
	return "true or false" // the other types that are read at all are those of bool
}

// wrongVariable is how the library reports a variable whose value it cannot read, before any verb.
var wrongVariable = regexp.MustCompile(
	`(?s)^could not parse (".*") as \S+ value from environment variable "(.*)" for flag (\S+): `)

// ExplainVariable answers the wrong value of a variable as that of its flag is answered. Other errors stay as they are.
func ExplainVariable(app *cli.App, err error) error {
	if err == nil {
		return nil
	}
	parts := wrongVariable.FindStringSubmatch(err.Error())
	if parts == nil {
		return err
	}
	flags := slices.Clone(app.Flags)
	// The error names the flag and not its verb, so the flags of all verbs are looked through.
	var below func([]*cli.Command)
	below = func(list []*cli.Command) {
		for _, c := range list {
			flags = append(flags, c.Flags...)
			below(c.Subcommands)
		}
	}
	below(app.Commands)
	return Usagef("the variable %s takes %s, not %s", parts[2], takenBy(flags, parts[3]), parts[1])
}

// dashed returns a flag's name as it is typed.
func dashed(name string) string {
	// A name of one letter is typed with one dash.
	if len(name) == 1 {
		return "-" + name
	}
	return "--" + strings.TrimLeft(name, "-")
}

// Exactly checks the number of arguments of a verb.
func Exactly(c *cli.Context, n int, what string) error {
	if c.NArg() == n {
		return nil
	}
	// HelpName is the way from the program to the verb, such as "ringlog cursor seek".
	verb := strings.TrimPrefix(c.Command.HelpName, c.App.Name+" ")
	switch {
	case n == 0:
		return Usagef("%s takes no arguments, but got %q%s: see ringlog help %s", verb, c.Args().First(), ownFlags(c.Command),
			verb)
	case c.NArg() == 0:
		return Usagef("%s needs %s", verb, what)
	default:
		return Usagef("%s takes %s, but got %s", verb, what, Count(c.NArg(), "argument"))
	}
}

// ownFlags names the flags of a verb that has few of them, for somebody who typed a value without its flag.
func ownFlags(c *cli.Command) string {
	var names []string
	// The first name of a flag is its long one.
	for _, f := range c.VisibleFlags() {
		if name := f.Names()[0]; name != "help" {
			names = append(names, dashed(name))
		}
	}
	const few = 4
	if len(names) == 0 || len(names) > few {
		return ""
	}
	return " without " + strings.Join(names, " or ")
}

// Args is the action of a verb that takes n arguments; what names them in the error about any other number.
func Args(n int, what string, action cli.ActionFunc) cli.ActionFunc {
	return func(c *cli.Context) error {
		if err := Exactly(c, n, what); err != nil {
			return err
		}
		return action(c)
	}
}

// NoArgs is the action of a verb that takes flags alone.
func NoArgs(action cli.ActionFunc) cli.ActionFunc { return Args(0, "", action) }

// Bare is the action of a verb without flags or arguments.
func Bare(sh *Shell, body func(context.Context, *Shell) error) cli.ActionFunc {
	return NoArgs(func(c *cli.Context) error { return body(c.Context, sh) })
}

// Named is the action of a verb with one argument and no flags.
func Named(sh *Shell, what string, body func(ctx context.Context, sh *Shell, arg string) error) cli.ActionFunc {
	return Args(1, what, func(c *cli.Context) error { return body(c.Context, sh, c.Args().First()) })
}
