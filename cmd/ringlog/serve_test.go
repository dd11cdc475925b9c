package main

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestThreadsGetTimerSlack(t *testing.T) {
	threads, err := filepath.Glob("/proc/self/task/*")
	if err != nil || len(threads) == 0 {
		t.Skip("there is no /proc")
	}
	slackenTimers()
	for _, thread := range threads {
		file := filepath.Join("/proc", filepath.Base(thread), "timerslack_ns")
		slack, err := os.ReadFile(file)
		switch {
		case errors.Is(err, fs.ErrNotExist): // it ended
		case errors.Is(err, fs.ErrPermission):
			t.Skip(err)
		case err != nil || strings.TrimSpace(string(slack)) != "250000":
			t.Errorf("%s has %s (%v)", file, slack, err)
		}
	}
}
