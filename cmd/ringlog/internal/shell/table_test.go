package shell

import (
	"bytes"
	"strconv"
	"strings"
	"testing"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
)

func TestLinesAreBrokenAtSpacesAndCommas(t *testing.T) {
	for _, test := range []struct{ in, want string }{
		{"short", "short"},
		{"two words of this", "two words\nof this"},
		{"type=AB,CDE,FGH x", "type=AB,\nCDE,FGH x"},
		{"abcdefghijklm", "abcdefghij\nklm"},
		{"  indented for more", "  indented\n  for more"},
		{"a line\nand another line", "a line\nand\nanother\nline"},
		{"\x1b[32mgreen for two\x1b[0m", "\x1b[32mgreen for\x1b[0m\n\x1b[32mtwo\x1b[0m"},
		{"\x1b[1mwide\x1b[0m fits", "\x1b[1mwide\x1b[0m fits"},
	} {
		if got := WrapAt(test.in, 10); got != test.want {
			t.Errorf("%q becomes %q, not %q", test.in, got, test.want)
		}
	}
}

func TestATableFitsTheTerminal(t *testing.T) {
	header := table.Row{"id", Extra("time"), "type", Extra("count"), "error"}
	rows := []table.Row{
		{1, "2026-11-25T17:37:59Z", "TRAINING_COMPLETED", 3, "out of memory on gpu 3: cannot allocate 24 GiB"},
	}
	for _, test := range []struct {
		columns        string
		has, hasnt     string
		terminal, wide bool
	}{
		{"200", "COUNT", "\x00", true, false},
		{"72", "TIME", "COUNT", true, false},
		{"50", "TRAINING_COMPLETED", "TIME", true, false},
		{"20", "ERROR", "TIME", true, false},
		{"20", "COUNT", "\x00", false, true},
	} {
		var out bytes.Buffer
		sh := &Shell{Out: &out, OutTerminal: test.terminal, Getenv: func(string) string { return test.columns }}
		if err := sh.Table(header, rows); err != nil {
			t.Fatal(err)
		}
		printed := out.String()
		if !strings.Contains(printed, test.has) || strings.Contains(printed, test.hasnt) {
			t.Errorf("%s columns:\n%s", test.columns, printed)
		}
		columns, err := strconv.Atoi(test.columns)
		if err != nil {
			t.Fatal(err)
		}
		if wide := text.LongestLineLen(printed) > columns; wide != test.wide {
			t.Errorf("%s columns, and a line of %d:\n%s", test.columns, text.LongestLineLen(printed), printed)
		}
	}
}
