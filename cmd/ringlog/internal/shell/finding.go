package shell

import (
	"fmt"
	"strings"
)

// Finding is the outcome of one comparison or check.
type Finding struct {
	Check  string `json:"check"`
	OK     bool   `json:"ok"`
	Found  string `json:"found"`
	Remedy string `json:"remedy,omitempty"` // what to do if it is not OK
	// NotDone reports that the check could not be done, which is no problem. It is not OK either.
	NotDone bool `json:"not_done,omitempty"`
}

// PrintFinding prints a finding with a mark that says whether it is good.
func (sh *Shell) PrintFinding(f Finding) error {
	return sh.Emit(f, func() error {
		mark := sh.Mark(f.OK)
		if f.NotDone {
			mark = sh.Paint(Warn, "-")
		}
		if err := sh.Hang("", mark, f.Check+": "+f.Found); err != nil || f.Remedy == "" {
			return err
		}
		return sh.Hang("  ", "", f.Remedy)
	})
}

// Hang prints a text after a mark, of which each line begins below the first one where a terminal breaks it.
func (sh *Shell) Hang(indent, mark, text string) error {
	if mark != "" {
		mark += " "
	}
	first := indent + mark
	// Without a terminal Width is 0, and the text stays on its line.
	if room := sh.Width() - columns(first); room > 0 {
		text = strings.ReplaceAll(WrapAt(text, room), "\n", "\n"+strings.Repeat(" ", columns(first)))
	}
	_, err := fmt.Fprintln(sh.Out, first+text)
	return err
}

// PrintFindings prints all findings, and fails with ExitFailed if one that could be checked is not OK.
func (sh *Shell) PrintFindings(findings []Finding) error {
	bad := 0
	// A check may find several problems.
	failed := map[string]bool{}
	for _, f := range findings {
		// Findings are printed as they are in the list. One that is bad makes its check count as failed.
		is := !f.OK && !f.NotDone
		failed[f.Check] = failed[f.Check] || is
		if is {
			bad++
		}
		if err := sh.PrintFinding(f); err != nil {
			return err
		}
	}
	if bad > 0 {
		checks := 0
		for _, is := range failed {
			if is {
				checks++
			}
		}
		sh.Say("%s, in %d of %s", Count(bad, "problem"), checks, Count(len(failed), "check"))
		return CodeError(ExitFailed)
	}
	return nil
}

// Mark is the sign of an outcome.
func (sh *Shell) Mark(ok bool) string {
	// A mark is read without its color, too.
	if ok {
		return sh.Paint(Good, "✓")
	}
	return sh.Paint(Bad, "✗")
}
