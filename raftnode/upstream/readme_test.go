package upstream

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// What README.md names exists: files, tests and mutants.
func TestThePageNamesWhatThereIs(t *testing.T) {
	page, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	var tests strings.Builder
	for _, pattern := range []string{"../*_test.go", "../*/*_test.go", "../../internal/server/*_test.go"} {
		files, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			source, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			tests.Write(source)
		}
	}
	for _, name := range regexp.MustCompile(`\bTest\w+`).FindAllString(string(page), -1) {
		if !strings.Contains(tests.String(), "func "+name+"(") {
			t.Errorf("there is no %s", name)
		}
	}
	for _, name := range regexp.MustCompile(`\b[a-z]+(?:_[a-z]+)+\b`).FindAllString(string(page), -1) {
		if _, err := os.Stat("../../integration/mutants/" + name + ".patch"); err != nil {
			t.Error(err)
		}
	}
	for _, path := range regexp.MustCompile("`([a-z/]+\\.go)`").FindAllStringSubmatch(string(page), -1) {
		if _, err := os.Stat("../" + path[1]); err != nil {
			t.Error(err)
		}
	}
}
