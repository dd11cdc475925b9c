package fsm

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// frozen compares with a file of testdata what takes part in decisions and so in the digest:
// two builds that differ in it diverge. If a test that calls it fails, take the change back, or
// give the new form a feature level of its own and the old one until then. Only what is
// new may be written with -update.
func frozen(t *testing.T, name string, got []byte) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(file, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s holds something else; nodes of the two builds would diverge:\n%s", file, got)
	}
}

func TestSettingsAreFrozen(t *testing.T) {
	var b bytes.Buffer
	for _, d := range definitions() {
		fmt.Fprintf(&b, "%s | level %d | %q | %s\n", d.key, d.level, d.fallback, d.rule.values)
	}
	frozen(t, "settings.golden", b.Bytes())
}
