package shell

import (
	"bytes"
	"strings"
	"testing"
)

// Problems are counted as problems: one check may find several.
func TestFindingsAreCountedByCheck(t *testing.T) {
	var out, notices bytes.Buffer
	sh := &Shell{Out: &out, Err: &notices}
	err := sh.PrintFindings([]Finding{{Check: "cluster", Found: "a"}, {Check: "cluster", Found: "b", Remedy: "mend it"},
		{Check: "clock", OK: true, Found: "c"}})
	if ExitCode(err) != ExitFailed || notices.String() != "2 problems, in 1 of 2 checks\n" {
		t.Errorf("%v, %q", err, notices.String())
	}
	if want := "✗ cluster: a\n✗ cluster: b\n  mend it\n✓ clock: c\n"; out.String() != want {
		t.Errorf("%q", out.String())
	}
}

// On a terminal no line is wider than it, and what is broken begins below the text.
func TestAFindingFitsTheTerminal(t *testing.T) {
	var out bytes.Buffer
	sh := &Shell{Out: &out, OutTerminal: true, Getenv: func(string) string { return "20" }}
	slow := Finding{Check: "disk", Found: "it takes far too long", Remedy: "take another one, please"}
	if err := sh.PrintFinding(slow); err != nil {
		t.Fatal(err)
	}
	if want := "✗ disk: it takes far\n  too long\n  take another one,\n  please\n"; out.String() != want {
		t.Errorf("%q", out.String())
	}
}

// A line of columns is broken between two of them.
func TestColumnsAreBrokenBetweenTwo(t *testing.T) {
	for _, c := range []struct{ line, want string }{
		{"  short  line\n", "  short  line\n"},
		{"  taken  A 1 -> B 2  1.2s  by causation id, where x\n",
			"  taken  A 1 -> B 2  1.2s\n      by causation id,\n      where x\n"},
		{"  taken  A 1 -> B 2  1.2s  a  b  c\n", "  taken  A 1 -> B 2  1.2s\n      a  b  c\n"},
		{"one line of words without any columns\n", "one line of words without\nany columns\n"},
		{"  a-word-that-is-far-too-long-for-it  b\n", "  a-word-that-is-far-too-\n  long-for-it  b\n"},
	} {
		got := wrapColumns(c.line, 25)
		if got != c.want {
			t.Errorf("%q is %q, not %q", c.line, got, c.want)
		}
		for line := range strings.Lines(got) {
			if columns(strings.TrimSuffix(line, "\n")) > 25 {
				t.Errorf("%q is too long", line)
			}
		}
	}
}

// Only what is near is suggested.
func TestOnlyWhatIsNearIsSuggested(t *testing.T) {
	names := []string{"wait", "tail", "ls", "publish", "status", "get", "chain"}
	for typed, want := range map[string]string{"init": "", "tial": "tail", "lss": "ls", "pubilsh": "publish",
		"stats": "status", "statsu": "status", "gte": "get", "main": "", "x": "", "waot": "wait", "pubish": "publish",
		"chian": "chain", "brain": "", "": ""} {
		got := DidYouMean(typed, names, "")
		if want != "" {
			want = `. Did you mean "` + want + `"?`
		}
		if got != want {
			t.Errorf("%q: %q, not %q", typed, got, want)
		}
	}
}
