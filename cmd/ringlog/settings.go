package main

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/urfave/cli/v2"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/cmd/ringlog/internal/shell"
	"github.com/ringrift/ringlog/internal/human"
)

// settingsCommand is settings and its verbs. Settings are replicated: a change counts on all nodes from the same entry
// of the log on.
func settingsCommand(sh *shell.Shell) *cli.Command {
	return &cli.Command{
		Name: "settings", Usage: "show and change settings: dedup window, retention, limits",
		UsageText: shell.Examples(
			"ringlog settings ls",
			"ringlog settings get dedup.window",
			"ringlog settings set dedup.window 2m",
		),
		Subcommands: []*cli.Command{
			// All of them, also those that have their default.
			{Name: "ls", Usage: "list settings", Action: shell.Bare(sh, listSettings),
				UsageText: shell.Examples("ringlog settings ls")},
			{Name: "get", Usage: "print the value of a setting", ArgsUsage: "KEY",
				UsageText: shell.Examples("ringlog settings get dedup.window"),
				Action:    shell.Named(sh, "the key of a setting", getSetting)},
			// The value is one argument: quote it if it has spaces.
			{Name: "set", Usage: `change a setting; "" restores the default`, ArgsUsage: "KEY VALUE",
				UsageText: shell.Examples("ringlog settings set dedup.window 2m",
					"ringlog settings set retention.bytes 2GiB", `ringlog settings set dedup.window ""`),
				Action: shell.Args(2, "a key and a value", func(c *cli.Context) error {
					return setSetting(c.Context, sh, c.Args().Get(0), c.Args().Get(1))
				})},
		},
	}
}

// fetchSettings reads all settings.
func fetchSettings(ctx context.Context, sh *shell.Shell) ([]api.Setting, error) {
	// The node that answers has them in its state.
	var answer struct {
		Settings []api.Setting `json:"settings"`
	}
	err := sh.Fetch(ctx, "/v1/settings", &answer)
	return answer.Settings, err
}

// listSettings prints all settings.
func listSettings(ctx context.Context, sh *shell.Shell) error {
	// Each with its default, so a change is seen.
	list, err := fetchSettings(ctx, sh)
	if err != nil {
		return err
	}
	return printSettings(sh, list)
}

// printSettings prints settings with their defaults and meanings.
func printSettings(sh *shell.Shell, list []api.Setting) error {
	return shell.EmitEach(sh, "setting", list, table.Row{"key", "value", "meaning"}, func(s api.Setting) table.Row {
		// A value that is not the default stands out, with the default beside it.
		value := settingText(s, s.Value)
		if s.Value != s.Default {
			value = sh.Paint(shell.Strong, value) + fmt.Sprintf(" (default %s)", cmp.Or(settingText(s, s.Default), `""`))
		}
		return table.Row{s.Key, value, s.Doc}
	})
}

// settingText prints a value for people: durations in their one form, bytes followed by their size in larger units.
func settingText(s api.Setting, value string) string {
	n, err := strconv.ParseUint(value, 10, 63)
	// Only keys about bytes are sizes, and small numbers need no unit.
	if err != nil || n < 1<<10 || !strings.Contains(s.Key, "bytes") {
		return human.ExactText(value)
	}
	return fmt.Sprintf("%s (%s)", value, shell.Size(n))
}

// settingPath is the route of a setting.
func settingPath(key string) string { return "/v1/settings/" + url.PathEscape(key) }

// getSetting prints the value of one setting.
func getSetting(ctx context.Context, sh *shell.Shell, key string) error {
	// The value alone, so a script can use it.
	var s api.Setting
	if err := sh.Fetch(ctx, settingPath(key), &s); err != nil {
		return err
	}
	return sh.Emit(s, func() error { _, err := fmt.Fprintln(sh.Out, human.ExactText(s.Value)); return err })
}

// setSetting changes a setting and prints what it is now.
func setSetting(ctx context.Context, sh *shell.Shell, key, value string) error {
	// The node checks the value: it knows the form of each key. Units of bytes are this program's.
	if strings.Contains(key, "bytes") && value != "" {
		n, err := shell.ParseSize(key, value)
		if err != nil {
			return err
		}
		value = strconv.FormatUint(n, 10)
	}
	var s api.Setting
	if err := sh.Call(ctx, http.MethodPut, settingPath(key), nil, map[string]string{"value": value}, &s); err != nil {
		return err
	}
	return sh.Emit(s, func() error {
		_, err := fmt.Fprintf(sh.Out, "%s is %s\n", s.Key, cmp.Or(human.ExactText(s.Value), `""`))
		return err
	})
}
