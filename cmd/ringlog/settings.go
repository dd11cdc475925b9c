package main

import (
	"context"
	"fmt"
	"net/http"
	"net/url"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/urfave/cli/v2"

	"github.com/ringrift/ringlog/fsm"
)

func settingsCommand(sh *shell) *cli.Command {
	return &cli.Command{
		Name: "settings", Usage: "what all nodes decide by: dedup window, retention, limits …",
		Subcommands: []*cli.Command{
			{Name: "ls", Usage: "all settings", Action: bare(sh, listSettings)},
			{Name: "get", Usage: "one setting's value", ArgsUsage: "KEY", Action: named(sh, "the key of a setting", getSetting)},
			{Name: "set", Usage: `change a setting; "" restores the default`, ArgsUsage: "KEY VALUE", Action: func(c *cli.Context) error {
				if err := exactly(c, 2, "a key and a value"); err != nil {
					return err
				}
				return setSetting(c.Context, sh, c.Args().Get(0), c.Args().Get(1))
			}},
		},
	}
}

func (sh *shell) settings(ctx context.Context) ([]fsm.Setting, error) {
	var answer struct {
		Settings []fsm.Setting `json:"settings"`
	}
	err := sh.fetch(ctx, "/v1/settings", &answer)
	return answer.Settings, err
}

func listSettings(ctx context.Context, sh *shell) error {
	list, err := sh.settings(ctx)
	if err != nil {
		return err
	}
	return sh.printSettings(list)
}

func (sh *shell) printSettings(list []fsm.Setting) error {
	return emitEach(sh, list, table.Row{"key", "value", "default", "meaning"}, func(s fsm.Setting) table.Row {
		shown := "same"
		if s.Value != s.Default {
			shown = s.Default
		}
		return table.Row{s.Key, s.Value, shown, s.Doc}
	})
}

func settingPath(key string) string { return "/v1/settings/" + url.PathEscape(key) }

func getSetting(ctx context.Context, sh *shell, key string) error {
	var s fsm.Setting
	if err := sh.fetch(ctx, settingPath(key), &s); err != nil {
		return err
	}
	return sh.emit(s, func() error { _, err := fmt.Fprintln(sh.out, s.Value); return err })
}

func setSetting(ctx context.Context, sh *shell, key, value string) error {
	var s fsm.Setting
	if err := sh.call(ctx, http.MethodPut, settingPath(key), nil, map[string]string{"value": value}, &s); err != nil {
		return err
	}
	return sh.emit(s, func() error { _, err := fmt.Fprintf(sh.out, "%s is %s\n", s.Key, s.Value); return err })
}
