package console

import (
	"strings"
	"testing"
)

// An operator may reach a node over a thin link.
func TestTheConsoleIsSmall(t *testing.T) {
	const most = 80 << 10
	sum := 0
	for name, file := range files() {
		size := len(file.Content)
		if file.Gzip != nil {
			size = len(file.Gzip)
		}
		t.Logf("%6d  %s", size, name)
		sum += size
	}
	if sum > most || sum < most/8 {
		t.Errorf("%d bytes in gzip, at most %d", sum, most)
	}
}

// What is named by its content may be kept forever, so nothing else may have such a name.
func TestScriptsAndStylesAreNamedByTheirContent(t *testing.T) {
	for name, file := range files() {
		code := strings.HasSuffix(name, ".js") || strings.HasSuffix(name, ".css")
		if file.Named != code || file.Type == "application/octet-stream" {
			t.Errorf("%s: named %v, type %s", name, file.Named, file.Type)
		}
	}
	if page, ok := Open(Index); !ok || page.Named {
		t.Errorf("the page: %v %v", page, ok)
	}
}
