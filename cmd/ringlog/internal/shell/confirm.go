package shell

import (
	"bufio"
	"fmt"
	"strings"

	"github.com/urfave/cli/v2"
)

// Consent says whether a verb that destroys something may do so without asking, or only previews it.
// DryRun counts before Yes: a preview asks for nothing.
type Consent struct {
	DryRun bool // print what would be done, and do nothing
	Yes    bool // do not ask
}

// ConsentFlags are the flags of verbs that destroy something.
func ConsentFlags() []cli.Flag {
	return []cli.Flag{
		&cli.BoolFlag{Name: "dry-run", Usage: "print what would be done, and do nothing"},
		&cli.BoolFlag{Name: "yes", Aliases: []string{"y"}, Usage: "do not ask for confirmation"},
	}
}

// ConsentOf reads those flags.
func ConsentOf(c *cli.Context) Consent { return Consent{DryRun: c.Bool("dry-run"), Yes: c.Bool("yes")} }

// Confirm asks on a terminal. Without one, only --yes will do.
// A refusal ends the verb with ExitFailed, and nothing was done.
func (sh *Shell) Confirm(c Consent, question string, args ...any) error {
	// The question names what would be lost, so it is also the text of a refusal.
	question = fmt.Sprintf(question, args...)
	if c.Yes {
		return nil
	}
	// Nobody can answer: refuse rather than guess.
	if !sh.InTerminal || !sh.ErrTerminal {
		return Usagef("%s There is no terminal to confirm on: pass --yes, or --dry-run to preview", question)
	}
	fmt.Fprintf(sh.Err, "%s [y/N] ", question)
	// A read of a terminal cannot be cancelled. After an interrupt it blocks until the process ends.
	answers := make(chan string, 1)
	go func() {
		answer, _ := bufio.NewReader(sh.In).ReadString('\n') // the end of the input is no answer
		answers <- strings.ToLower(strings.TrimSpace(answer))
	}()
	select {
	// Anything but y or yes is a no.
	case answer := <-answers:
		if answer == "y" || answer == "yes" {
			return nil
		}
	case <-sh.Interrupted:
		fmt.Fprintln(sh.Err) // the question has no end of line
	}
	sh.Say("nothing was done")
	return CodeError(ExitFailed)
}
