package main

import (
	"os"
	"strings"
	"testing"

	"github.com/ringrift/ringlog/cmd/ringlog/internal/shell"
)

// Without --session a claim is of the process that runs the command. A process that has ended has given its children to
// the first one, and its number may be another's later.
func TestTheSessionOfACommandIsItsParents(t *testing.T) {
	if got, err := sessionOf("mine", 1); err != nil || got != "mine" {
		t.Errorf("%q, %v", got, err)
	}
	for _, parent := range []int{0, 1} {
		if got, err := sessionOf("", parent); shell.ExitCode(err) != shell.ExitUsage ||
			!strings.Contains(err.Error(), "--session is needed") {
			t.Errorf("parent %d: %q, %v", parent, got, err)
		}
	}
	mine, err := sessionOf("", os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	again, _ := sessionOf("", os.Getpid())
	other, _ := sessionOf("", os.Getppid())
	if mine != again || mine == other {
		t.Errorf("%q, again %q, another %q", mine, again, other)
	}
	if _, err := os.Stat("/proc/self/stat"); err != nil {
		t.Skip("the system does not say when a process began")
	}
	stat, err := processStat(os.Getpid())
	if err != nil || !strings.HasSuffix(mine, ":"+stat[statStarted]) || stat[statStarted] == "0" {
		t.Errorf("%q, %v", mine, err)
	}
}
