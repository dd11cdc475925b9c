package shell

import (
	"regexp"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"
)

// level is one command on the way from the program to the verb, with the flags
// that are its own.
// The levels of "ringlog -o json cursor seek c --to end" are ringlog, cursor and seek.
type level struct {
	name  string
	flags []cli.Flag
	args  []string // its flags with their values, as they were typed
}

// Line is a command line as far as it was read.
type Line struct {
	Commands  []*cli.Command // of which one may come next
	Arguments []string       // in their order
	Flag      string         // the last word is this flag, whose value is missing
	Ended     bool           // by --: what comes next is no flag

	levels []level
}

// Command returns the innermost command, nil if that is the program, and the names on the way to it.
func (l *Line) Command(app *cli.App) (c *cli.Command, path []string) {
	commands := app.Commands
	for _, below := range l.levels[1:] {
		c = find(commands, below.name)
		commands, path = c.Subcommands, append(path, c.Name)
	}
	return c, path
}

// Flags returns the flags that the next word may be.
func (l *Line) Flags() (flags []cli.Flag) {
	for _, one := range l.levels {
		flags = append(flags, one.flags...)
	}
	return flags
}

// Program returns the program with its own flags, without a verb.
func (l *Line) Program() []string { return append([]string{l.levels[0].name}, l.levels[0].args...) }

// ReadLine reads a command line, of which the first word is the program. It gives each flag to the command that knows
// it, the innermost first, and unknown ones to the innermost, for the parser to complain. A verb that runs a command
// needs -- before a command with flags, which could be the verb's own.
func ReadLine(app *cli.App, words []string) (*Line, error) {
	// The program itself is the outermost command.
	l := &Line{levels: []level{{name: words[0], flags: app.Flags}}, Commands: app.Commands}
	runs := false
	rest := words[1:]
	for len(rest) > 0 {
		token := rest[0]
		rest = rest[1:]
		// After -- nothing is a flag.
		if token == "--" {
			l.Arguments, l.Ended = append(append(l.Arguments, "--"), rest...), true
			break
		}
		// A single - is an argument: standard input.
		if strings.HasPrefix(token, "-") && token != "-" {
			if runs && len(l.Arguments) > 0 {
				verb := l.levels[len(l.levels)-1].name
				return nil, Usagef("put -- before the command, or %s could be a flag of ringlog %s: ringlog %s … -- %s %s",
					token, verb, verb, strings.Join(l.Arguments, " "), token)
			}
			var unfinished int
			rest, unfinished = takeFlag(l.levels, token, rest)
			// The parser would take what follows for the value that is missing: it gets nothing after the flag.
			if unfinished > 0 {
				l.Flag, l.levels, l.Arguments = token, l.levels[:unfinished], nil
			}
			continue
		}
		// After the first argument no word is a verb, even one that has the name of one.
		if c := find(l.Commands, token); c != nil && len(l.Arguments) == 0 {
			l.levels = append(l.levels, level{name: token, flags: c.Flags})
			l.Commands, runs = c.Subcommands, strings.HasPrefix(c.ArgsUsage, "-- ")
			continue
		}
		l.Arguments = append(l.Arguments, token)
	}
	return l, nil
}

// Intersperse lets flags be anywhere: after arguments, and the program's own after the verb.
func Intersperse(app *cli.App, args []string) ([]string, error) {
	if len(args) == 0 {
		return args, nil
	}
	l, err := ReadLine(app, args)
	if err != nil {
		return nil, err
	}
	// The library would answer for itself where help is asked for of a verb that does not exist.
	asked := slices.ContainsFunc(l.levels[len(l.levels)-1].args, isHelp)
	if asked && len(l.Arguments) > 0 && len(l.Commands) > 0 {
		name := l.Arguments[0]
		return nil, Usagef("there is no verb %q%s", name, nearVerb(l.Commands, name, ": see ringlog help"))
	}
	// Every command is followed by its own flags; the arguments come last.
	var out []string
	for _, one := range l.levels {
		out = append(append(out, one.name), one.args...)
	}
	return append(out, l.Arguments...), nil
}

// isHelp reports the flag for the help.
func isHelp(token string) bool {
	name := strings.TrimLeft(token, "-")
	return name != token && slices.Contains(cli.HelpFlag.Names(), name)
}

// find returns the command of a name, nil if there is none.
func find(commands []*cli.Command, name string) *cli.Command {
	// By its name or an alias.
	i := slices.IndexFunc(commands, func(c *cli.Command) bool { return c.HasName(name) })
	if i < 0 {
		return nil
	}
	return commands[i]
}

// shortWithNumber is a flag of one letter and its value in one word.
var shortWithNumber = regexp.MustCompile(`^(-[a-z])([0-9]+)$`)

// takeFlag gives a flag, with its value if it takes one, to the innermost level
// that knows it. If the value is missing, unfinished is how many levels there are up to that one.
func takeFlag(levels []level, token string, rest []string) (after []string, unfinished int) {
	// A value may be part of the token, as in --to=end, or the token after it.
	name, _, hasValue := strings.Cut(strings.TrimLeft(token, "-"), "=")
	// The help that is asked for is that of the innermost command.
	last := &levels[len(levels)-1]
	// No command lists the flag for help.
	if isHelp(token) {
		last.args = append(last.args, token)
		return rest, 0
	}
	// The innermost command that knows a flag gets it.
	for i := len(levels) - 1; i >= 0; i-- {
		known, takesValue := lookupFlag(levels[i].flags, name)
		if !known {
			continue
		}
		levels[i].args = append(levels[i].args, token)
		if !takesValue || hasValue {
			return rest, 0
		}
		if len(rest) == 0 {
			return nil, i + 1
		}
		levels[i].args = append(levels[i].args, rest[0])
		return rest[1:], 0
	}
	// -n5 is -n 5.
	// Only where no command knows the whole word as a flag.
	if m := shortWithNumber.FindStringSubmatch(token); m != nil {
		return takeFlag(levels, m[1], append([]string{m[2]}, rest...))
	}
	// An unknown flag stays with the verb, whose parser will complain.
	last.args = append(last.args, token)
	return rest, 0
}

// lookupFlag says whether a command has a flag, and whether that takes a value.
func lookupFlag(flags []cli.Flag, name string) (known, takesValue bool) {
	for _, f := range flags {
		if !slices.Contains(f.Names(), name) {
			continue
		}
		// All flags of the library can be asked whether they take a value.
		documented, ok := f.(cli.DocGenerationFlag)
		return true, ok && documented.TakesValue()
	}
	return false, false
}
