package fsm

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/ringrift/ringlog/internal/frame"
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

// The stories hold the cluster's own events as they were appended. What decides their payloads
// is frozen: type, fields and the kind of each value.
func TestOwnEventsAreFrozen(t *testing.T) {
	files, err := filepath.Glob("testdata/*.story")
	if err != nil || len(files) == 0 {
		t.Fatalf("no stories: %v", err)
	}
	emitted := regexp.MustCompile(`(?m)^ +\d+ ([A-Z_]+) (\{.*\})$`)
	kinds := map[string]bool{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, found := range emitted.FindAllSubmatch(text, -1) {
			var payload map[string]any
			if err := json.Unmarshal(found[2], &payload); err != nil {
				t.Fatalf("%s: %s: %v", file, found[0], err)
			}
			for field, value := range payload {
				kinds[fmt.Sprintf("%s %s %T\n", found[1], field, value)] = true
			}
		}
	}
	frozen(t, "own_events.golden", []byte(strings.Join(slices.Sorted(maps.Keys(kinds)), "")))
}

// A build that does not know the cluster's level does not open its state: it would decide otherwise than others.
func TestAStateOfANewerLevelIsNotOpened(t *testing.T) {
	fs := vfs.NewMem()
	m := open(t, fs)
	newer := frame.Member{ID: "n1", FeatureLevel: FeatureLevel + 1}
	applyTo(t, m, entryOf(1, 1, "n1", epoch, do(frame.MemberPut{Member: newer})))
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
	if m, err := Open(Options{Dir: "state", FS: fs}); !errors.Is(err, ErrNewerFormat) {
		t.Errorf("%v", err)
		if err == nil {
			m.Close()
		}
	}
}
