package shell

import "fmt"

// Finding is the outcome of one comparison.
type Finding struct {
	Check string `json:"check"`
	OK    bool   `json:"ok"`
	Found string `json:"found"`
}

// PrintFinding prints a finding with a mark that says whether it is good.
func (sh *Shell) PrintFinding(f Finding) error {
	return sh.Emit(f, func() error {
		_, err := fmt.Fprintf(sh.Out, "%s %s: %s\n", sh.Mark(f.OK), f.Check, f.Found)
		return err
	})
}

// Mark is the sign of an outcome.
func (sh *Shell) Mark(ok bool) string {
	// A mark is read without its color, too.
	if ok {
		return sh.Paint(Good, "✓")
	}
	return sh.Paint(Bad, "✗")
}
