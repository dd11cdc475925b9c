package shell

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/urfave/cli/v2"
)

// The help is laid out here, as the library's templates have no examples and lines of any length. It is laid out when
// it is asked for: every run of the program would pay for the text of all verbs.

const (
	helpWidth  = 80 // of a line, in characters
	flagColumn = 24 // at which descriptions of flags start
	verbColumn = 14 // and those of verbs
)

// Examples are lines that people copy, each of which runs as it is. A command keeps them in UsageText, which this
// program uses for nothing else.
func Examples(lines ...string) string { return strings.Join(lines, "\n") }

// helpText lays out the help of a command; path is how it is typed, such as "ringlog cursor seek".
func helpText(path string, c *cli.Command) string {
	var b strings.Builder
	b.WriteString(strings.Join(WrapText(path+" - "+c.Usage, helpWidth), "\n") + "\n\nUSAGE\n")
	fmt.Fprintf(&b, "  %s\n", usageLine(path, c))
	if len(c.Aliases) > 0 {
		fmt.Fprintf(&b, "  also typed as: %s\n", strings.Join(c.Aliases, ", "))
	}
	if c.Description != "" {
		b.WriteByte('\n')
		writeParagraphs(&b, c.Description)
	}
	// The verbs that can follow, how they are typed, and then every flag.
	if verbs := visible(c.Subcommands); len(verbs) > 0 {
		b.WriteString("\nVERBS\n")
		writeCommands(&b, verbs)
	}
	if c.UsageText != "" {
		// Each line is an example.
		fmt.Fprintf(&b, "\nEXAMPLES\n  %s\n", strings.ReplaceAll(c.UsageText, "\n", "\n  "))
	}
	if flags := visibleFlags(c.Flags); len(flags) > 0 {
		b.WriteString("\nFLAGS\n")
		writeFlags(&b, flags)
	}
	b.WriteString("\nFlags of every verb, such as -e and -o json: ringlog help\n")
	return b.String()
}

// usageLine is the form of a command.
func usageLine(path string, c *cli.Command) string {
	// A noun is followed by a verb; one that has an action of its own says so in ArgsUsage.
	line := path
	if len(visibleFlags(c.Flags)) > 0 {
		line += " [flags]"
	}
	switch {
	case c.ArgsUsage != "":
		line += " " + c.ArgsUsage
	case len(visible(c.Subcommands)) > 0:
		line += " VERB"
	}
	return line
}

// appHelp lays out the help of the program: its verbs by category, in the order in which they are declared.
func appHelp(app *cli.App) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s - %s\n\nUSAGE\n", app.Name, app.Usage)
	writeParagraphs(&b, app.UsageText)
	// Each category once, where its first verb is.
	verbs := visible(app.Commands)
	var done []string
	for _, first := range verbs {
		// Its verbs were printed with the first of them.
		if slices.Contains(done, first.Category) {
			continue
		}
		done = append(done, first.Category)
		fmt.Fprintf(&b, "\n%s\n", strings.ToUpper(first.Category))
		writeCommands(&b, slices.DeleteFunc(slices.Clone(verbs), func(c *cli.Command) bool {
			return c.Category != first.Category
		}))
	}
	b.WriteString("\nFLAGS OF EVERY VERB\n")
	writeFlags(&b, visibleFlags(app.Flags))
	return b.String()
}

// visible returns the commands that the help lists.
func visible(list []*cli.Command) []*cli.Command {
	return slices.DeleteFunc(slices.Clone(list), func(c *cli.Command) bool { return c.Hidden })
}

// visibleFlags returns the flags that the help lists. The flag that the library adds for the help itself is not.
func visibleFlags(list []cli.Flag) (flags []cli.DocGenerationFlag) {
	for _, f := range list {
		doc, documented := f.(cli.DocGenerationFlag)
		shown, can := f.(cli.VisibleFlag)
		// A flag that cannot be hidden is shown.
		if documented && f != cli.HelpFlag && (!can || shown.IsVisible()) {
			flags = append(flags, doc)
		}
	}
	return flags
}

// writeCommands prints a line for each command.
func writeCommands(b *strings.Builder, list []*cli.Command) {
	for _, c := range list {
		writeEntry(b, verbColumn, c.Name, c.Usage)
	}
}

// writeFlags prints each flag: its names with the form of its value, what it means, its default and its variables.
func writeFlags(b *strings.Builder, list []cli.DocGenerationFlag) {
	for _, f := range list {
		value, text := flagValue(f)
		var names []string
		for _, name := range f.Names() {
			names = append(names, dashed(name))
		}
		// The short name comes first, and long names are aligned.
		// All long names count as equal here: -f has two characters, --f and longer names three or more.
		slices.SortStableFunc(names, func(a, b string) int { return min(len(a), 3) - min(len(b), 3) })
		left := strings.Join(names, ", ")
		if strings.HasPrefix(left, "--") {
			left = "    " + left
		}
		if value != "" {
			left += " " + value
		}
		// A description may word the default itself.
		if byDefault := flagDefault(f); byDefault != "" && !strings.Contains(text, "(default") {
			text += " (default: " + byDefault + ")"
		}
		if doc, ok := f.(cli.DocGenerationSliceFlag); ok && doc.IsSliceFlag() && !strings.Contains(text, "repeatable") {
			text += " (repeatable)"
		}
		if env := f.GetEnvVars(); len(env) > 0 {
			text += " [$" + strings.Join(env, ", $") + "]"
		}
		writeEntry(b, flagColumn, left, text)
	}
}

// flagValue returns the name of a flag's value, and its description. The name is in backquotes in the description;
// if that begins with it and a colon, it is no part of the text.
func flagValue(f cli.DocGenerationFlag) (value, text string) {
	text = f.GetUsage()
	before, rest, quoted := strings.Cut(text, "`")
	value, after, closed := strings.Cut(rest, "`")
	switch {
	case !f.TakesValue():
		return "", text
	case quoted && closed && before == "" && strings.HasPrefix(after, ": "):
		// The name is left out of a text that begins with it and a colon.
		return value, after[2:]
	case quoted && closed:
		return value, before + value + after
	}
	// The type says what to write.
	switch f.(type) {
	case *cli.DurationFlag:
		return "DURATION", text
	case *cli.IntFlag, *cli.Uint64Flag:
		return "N", text
	default:
		return "VALUE", text
	}
}

// flagDefault returns what a flag is by default, "" if that is nothing.
func flagDefault(f cli.DocGenerationFlag) string {
	text := f.GetDefaultText()
	// The library quotes texts; a zero is what the description explains, or nothing.
	if plain, err := strconv.Unquote(text); err == nil {
		text = plain
	}
	if text == "0" || text == "0s" || text == "false" {
		return ""
	}
	// 5m, not 5m0s.
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	return text
}

// writeEntry prints a name, and what it means: beside it, from a column on, or below a name that is too long.
func writeEntry(b *strings.Builder, column int, name, text string) {
	const indent = 2
	fmt.Fprintf(b, "%*s%s", indent, "", name)
	lines := WrapText(text, helpWidth-column)
	// A long name has the line for itself.
	used := indent + len([]rune(name))
	if used > column-2 {
		b.WriteByte('\n')
		used = 0
	}
	for _, line := range lines {
		fmt.Fprintf(b, "%*s%s\n", column-used, "", line)
		used = 0
	}
}

// writeParagraphs prints text in lines of the help's width. A line that begins with two spaces stays as it is.
func writeParagraphs(b *strings.Builder, text string) {
	const indent = "  "
	for i, paragraph := range strings.Split(text, "\n\n") {
		// Paragraphs are separated by an empty line, as in the text.
		if i > 0 {
			b.WriteByte('\n')
		}
		if strings.HasPrefix(paragraph, indent) {
			b.WriteString(paragraph + "\n")
			continue
		}
		for _, line := range WrapText(paragraph, helpWidth-len(indent)) {
			b.WriteString(indent + line + "\n")
		}
	}
}

// WrapText breaks a text at its spaces into lines of at most width characters, if words allow that. Breaks that the
// text has count as spaces. Characters are counted, not bytes.
func WrapText(text string, width int) (lines []string) {
	line := ""
	for _, word := range strings.Fields(text) {
		if line != "" && len([]rune(line))+1+len([]rune(word)) > width {
			lines = append(lines, line)
			line = ""
		}
		if line != "" {
			line += " "
		}
		line += word
	}
	return append(lines, line)
}

func init() { cli.HelpPrinter = printHelp }

// printHelp prints the help of a program or a command that Prepare completed, for the library. A command has the words
// by which it is typed in place of a template.
func printHelp(w io.Writer, path string, what any) {
	text := ""
	switch what := what.(type) {
	case *cli.App:
		text = appHelp(what)
	case *cli.Command:
		text = helpText(path, what)
	}
	_, _ = io.WriteString(w, text) // as the library, which has no use for the error
}

// Tools is the category of verbs about the program itself.
const Tools = "this program"

// helpCommand is help: of what path is, the program or a noun; of the commands below it; or of a topic.
func helpCommand(path string, own func() string, below []*cli.Command) *cli.Command {
	help := &cli.Command{
		Name: "help", Aliases: []string{"h"}, Category: Tools,
		Usage: "print the help of a verb, or what the exit codes mean", ArgsUsage: "[NOUN] [VERB] | exit-codes",
		UsageText: Examples("ringlog help cursor seek", "ringlog help exit-codes"),
	}
	below = append(slices.Clone(below), help)
	help.Action = func(c *cli.Context) error {
		text, err := helpOf(path, own, below, c.Args().Slice())
		if err != nil {
			return err
		}
		_, err = io.WriteString(c.App.Writer, text)
		return err
	}
	return help
}

// helpOf returns the help of what args lead to from path on. own is the help of path itself, which is printed
// without arguments.
func helpOf(path string, own func() string, commands []*cli.Command, args []string) (string, error) {
	if len(args) == 1 && strings.HasPrefix(args[0], "exit") {
		return exitCodesText(), nil
	}
	text := own()
	// Each argument leads one level down.
	for _, name := range args {
		c := find(commands, name)
		if c == nil {
			typed := strings.Join(args, " ")
			return "", Usagef("there is no verb %q%s", typed, nearVerb(commands, name, ": see ringlog help"))
		}
		path += " " + c.Name
		text, commands = helpText(path, c), c.Subcommands
	}
	return text, nil
}

// exitCodesText prints the exit codes.
func exitCodesText() string {
	var b strings.Builder
	b.WriteString("EXIT CODES\n")
	for _, c := range ExitCodes() {
		writeEntry(&b, 6, strconv.Itoa(c.Code), c.Meaning)
	}
	b.WriteString("\n")
	writeParagraphs(&b, "ringlog check has the exit codes of monitoring plugins instead: 0 ok, 1 warning, 2 "+
		"critical, 3 unknown.")
	return b.String()
}
