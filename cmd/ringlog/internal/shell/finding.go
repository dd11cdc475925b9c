package shell

import "fmt"

// Finding is the outcome of one comparison or check.
type Finding struct {
	Check  string `json:"check"`
	OK     bool   `json:"ok"`
	Found  string `json:"found"`
	Remedy string `json:"remedy,omitempty"` // what to do if it is not OK
}

// PrintFinding prints a finding with a mark that says whether it is good.
func (sh *Shell) PrintFinding(f Finding) error {
	return sh.Emit(f, func() error {
		text := fmt.Sprintf("%s %s: %s\n", sh.Mark(f.OK), f.Check, f.Found)
		if f.Remedy != "" {
			text += "  " + f.Remedy + "\n"
		}
		_, err := fmt.Fprint(sh.Out, text)
		return err
	})
}

// PrintFindings prints all findings, and fails with ExitFailed if one is not OK.
func (sh *Shell) PrintFindings(findings []Finding) error {
	bad := 0
	for _, f := range findings {
		if !f.OK {
			bad++
		}
		if err := sh.PrintFinding(f); err != nil {
			return err
		}
	}
	if bad > 0 {
		sh.Say("%d of %d checks failed", bad, len(findings))
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
