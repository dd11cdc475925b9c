package shell

import (
	"fmt"
	"strings"

	"github.com/urfave/cli/v2"
)

// ManPage returns the manual page of the program in the language of man(7), made of what the help has.
func ManPage(app *cli.App) string {
	// The order of the chapters is the usual one of manual pages.
	var b strings.Builder
	fmt.Fprintf(&b, ".TH %s 1 \"\" \"%s %s\"\n", strings.ToUpper(app.Name), app.Name, roff(app.Version))
	fmt.Fprintf(&b, ".SH NAME\n%s \\- %s\n", app.Name, roff(app.Usage))
	fmt.Fprintf(&b, ".SH SYNOPSIS\n.B %s\nVERB [flags] [arguments]\n", app.Name)
	b.WriteString(".SH FLAGS OF EVERY VERB\n")
	manFlags(&b, app.Flags)
	b.WriteString(".SH VERBS\n")
	manVerbs(&b, app.Name, app.Commands)
	b.WriteString(".SH EXIT STATUS\n")
	for _, c := range ExitCodes() {
		fmt.Fprintf(&b, ".TP\n.B %d\n%s\n", c.Code, roff(c.Meaning))
	}
	b.WriteString(".PP\nringlog check has the exit codes of monitoring plugins.\n")
	fmt.Fprintf(&b, ".SH FILES\n.TP\n.I /etc/ringlog/ringlog.toml\nthe configuration of a node that the package's unit "+
		"runs\n.TP\n.I ~/.config/ringlog/contexts.toml\nthe contexts of ringlog context\n")
	return b.String()
}

// manVerbs prints each verb with its flags, and then the verbs below it.
func manVerbs(b *strings.Builder, path string, list []*cli.Command) {
	for _, c := range visible(list) {
		if c.Name == "help" {
			continue
		}
		name := path + " " + c.Name
		// The form of the command is the heading, and what it does the first line.
		fmt.Fprintf(b, ".SS %s\n%s.\n", roff(usageLine(name, c)), roff(c.Usage))
		if c.Description != "" {
			fmt.Fprintf(b, ".PP\n%s\n", roff(c.Description))
		}
		manFlags(b, c.Flags)
		if c.UsageText != "" {
			fmt.Fprintf(b, ".PP\n.EX\n%s\n.EE\n", roff(c.UsageText))
		}
		manVerbs(b, name, c.Subcommands)
	}
}

// manFlags prints the flags with their variables.
func manFlags(b *strings.Builder, list []cli.Flag) {
	for _, f := range visibleFlags(list) {
		value, text := flagValue(f)
		// Flags with their values are tagged paragraphs, in the order of the help.
		var names []string
		for _, name := range f.Names() {
			names = append(names, dashed(name))
		}
		fmt.Fprintf(b, ".TP\n.B %s\n%s", roff(strings.TrimSpace(strings.Join(names, ", ")+" "+value)), roff(text))
		if byDefault := flagDefault(f); byDefault != "" && !strings.Contains(text, "(default") {
			fmt.Fprintf(b, " (default: %s)", roff(byDefault))
		}
		if env := f.GetEnvVars(); len(env) > 0 {
			fmt.Fprintf(b, " [$%s]", roff(strings.Join(env, ", $")))
		}
		b.WriteByte('\n')
	}
}

// roff escapes what man(7) reads as something else: backslashes, dashes, and what begins a line as a request does.
func roff(text string) string {
	text = strings.NewReplacer(`\`, `\e`, "-", `\-`).Replace(text)
	lines := strings.Split(text, "\n")
	// \& is an empty character: after it a dot or a quote begins no request.
	for i, line := range lines {
		if strings.HasPrefix(line, ".") || strings.HasPrefix(line, "'") {
			lines[i] = `\&` + line
		}
	}
	return strings.Join(lines, "\n")
}
