package main

import (
	"context"
	"fmt"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/urfave/cli/v2"

	"github.com/ringrift/ringlog/cmd/ringlog/internal/replay"
	"github.com/ringrift/ringlog/cmd/ringlog/internal/shell"
)

// stateCommand is state.
func stateCommand(sh *shell.Shell) *cli.Command {
	return &cli.Command{
		Name: "state", Usage: "print cursors, members, leader, settings and dead letters as they were",
		UsageText: shell.Examples("ringlog state --at 7", "ringlog state --at 4711 --incident incident.ringlog",
			"ringlog state --at 4711 --data-dir n1"),
		Description: "The state is had by replaying the log from a state before it, in this process: of the cluster " +
			"(which sends it\nthat part of its log), of an incident, or of a stopped node. It can be as old as what the " +
			"node keeps. -o json\nhas all of it; a table of the settings has those that were changed, and of the dead " +
			"letters the last " + fmt.Sprint(stateLetters) + ".",
		Flags: []cli.Flag{
			&cli.Uint64Flag{Name: "at", Usage: "after the entry with the event at `OFFSET`"},
			&cli.Uint64Flag{Name: "index", Usage: "after the entry `INDEX` of raft's log, which may have no event"},
			&cli.StringFlag{Name: "incident", Usage: "of an incident `FILE`, instead of a running cluster"},
			&cli.StringFlag{Name: "data-dir", Usage: "data `DIR` of a stopped node, instead of a running cluster"},
		},
		Action: shell.NoArgs(func(c *cli.Context) error {
			w := replay.Wanted{At: c.Uint64("at"), Index: c.Uint64("index"), Incident: c.String("incident"),
				DataDir: c.String("data-dir")}
			// Offsets and indexes begin at 1, so 0 is a flag that is not given.
			switch {
			case (w.At == 0) == (w.Index == 0):
				return shell.Usagef("say when: --at OFFSET, or --index INDEX")
			case w.Incident != "" && w.DataDir != "":
				return shell.Usagef("--incident and --data-dir exclude each other")
			}
			return showState(c.Context, sh, w)
		}),
	}
}

// stateLetters is how many dead letters are shown to people.
const stateLetters = 20

// showState prints a state of the past.
func showState(ctx context.Context, sh *shell.Shell, w replay.Wanted) error {
	// It ends what it has opened before it returns: s is a copy.
	s, err := replay.StateAt(ctx, sh, w)
	if err != nil {
		return err
	}
	return sh.Emit(s, func() error {
		err := sh.Facts("cluster", s.ClusterID, "index", s.Index, "term", s.Term, "time", shell.Moment(s.Time),
			"last offset", s.LastOffset, "digest", s.Digest,
			"leader", fmt.Sprintf("%s since %s", s.Leader.ID, shell.Moment(s.Leader.Since)))
		if err != nil {
			return err
		}
		return printStateTables(sh, &s)
	})
}

// printStateTables prints the lists of a state, each after an empty line; a list that is empty is left out.
func printStateTables(sh *shell.Shell, s *replay.State) error {
	// The rows first, so that a list without any can be left out with its header.
	members, cursors, letters, changed := []table.Row{}, []table.Row{}, []table.Row{}, []table.Row{}
	for _, m := range s.Members {
		members = append(members, table.Row{m.ID, m.Raft, m.HTTP, yesNo(m.Voter), yesNo(m.Online), m.Version})
	}
	for _, c := range s.Cursors {
		cursors = append(cursors, table.Row{c.Name, c.Committed, lagText(c), cursorKind(c), c.Generation,
			filterText(c.Filter)})
	}
	// The newest are at the end of the list.
	for _, l := range s.Letters[max(0, len(s.Letters)-stateLetters):] {
		letters = append(letters, table.Row{l.ID, l.Cursor, l.Offset, l.Type, l.State, oneLine(l.Error)})
	}
	// A setting that has its default is no news to people.
	for _, one := range s.Settings {
		if one.Value != one.Default {
			changed = append(changed, table.Row{one.Key, settingText(one, one.Value), settingText(one, one.Default)})
		}
	}
	for _, list := range []struct {
		header table.Row
		rows   []table.Row
	}{
		{table.Row{"member", "raft", "http", "voter", "online", "version"}, members},
		{table.Row{"cursor", "committed", "lag", "kind", "generation", "filter"}, cursors},
		{table.Row{"dead letter", "cursor", "offset", "type", "state", "error"}, letters},
		{table.Row{"setting", "value", "default"}, changed},
	} {
		if len(list.rows) == 0 {
			continue
		}
		if err := sh.Print(""); err != nil {
			return err
		}
		if err := sh.Table(list.header, list.rows); err != nil {
			return err
		}
	}
	return nil
}
