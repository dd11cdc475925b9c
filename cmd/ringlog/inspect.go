package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/urfave/cli/v2"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/cmd/ringlog/internal/offline"
	"github.com/ringrift/ringlog/cmd/ringlog/internal/shell"
)

// inspectCommand is inspect. Each subject is read from a running node, or with --data-dir from the folder of a stopped
// one, which works without a leader and writes nothing.
func inspectCommand(sh *shell.Shell) *cli.Command {
	dataDir := &cli.StringFlag{Name: "data-dir", Usage: "data `DIR` of a stopped node, instead of a running cluster"}
	from := &cli.StringFlag{Name: "from", Usage: "start at `WHERE`: " + api.PositionForms, Value: "start"}
	count := &cli.Uint64Flag{Name: "n", Usage: "print at most `COUNT`; 0 means all"}
	// Each subject has two readers: of a running cluster, and of a folder.
	command := func(name, usage string, online, offline func(context.Context, *shell.Shell, offline.Options) error,
		flags ...cli.Flag) *cli.Command {
		return &cli.Command{Name: name, Usage: usage, Flags: append([]cli.Flag{dataDir}, flags...),
			UsageText: shell.Examples("ringlog inspect "+name, "ringlog inspect "+name+" --data-dir n1"),
			Action: shell.NoArgs(func(c *cli.Context) error {
				o, err := inspectOptionsOf(c)
				if err != nil {
					return err
				}
				if o.DataDir != "" {
					return offline(c.Context, sh, o)
				}
				return online(c.Context, sh, o)
			})}
	}
	raft := command("raft", "print the raft log, term and vote", inspectRaft, offline.PrintRaft, from, count)
	raft.Description = "An entry is a configuration (the members), a noop (the beginning of a term) or a command. HOLDS " +
		"counts what a\n" +
		"command does, by kind: publish, cursor commit and so on. termstart is the first one of a new leader, and intent\n" +
		"announces that it hands over."
	return &cli.Command{
		Name: "inspect", Usage: "inspect a node, running or stopped",
		UsageText:   shell.Examples("ringlog inspect raft -n 5", "ringlog inspect state --data-dir n1"),
		Description: "With --data-dir it reads the folder of a stopped node: no leader is needed, nothing is written.",
		Subcommands: []*cli.Command{
			command("log", "print the stored events", inspectLog, offline.PrintLog, from, count),
			raft,
			command("state", "print the position of the state machine", inspectState, offline.PrintState,
				&cli.BoolFlag{Name: "dump", Usage: "offline: print the whole state in canonical form"}),
			command("dedup", "print the figures of the dedup window", inspectDedup, offline.PrintDedup),
			command("cursors", "print the durable cursors",
				withoutOptions(listCursors), offlineCursors),
			command("settings", "print the replicated settings",
				withoutOptions(listSettings), offlineSettings),
		},
	}
}

// withoutOptions adapts the body of another verb, which takes no options, to inspect.
func withoutOptions(
	list func(context.Context, *shell.Shell) error,
) func(context.Context, *shell.Shell, offline.Options) error {
	return func(ctx context.Context, sh *shell.Shell, _ offline.Options) error { return list(ctx, sh) }
}

// inspectOptionsOf reads the flags.
func inspectOptionsOf(c *cli.Context) (o offline.Options, err error) {
	// A running node does not serve its whole state.
	o = offline.Options{DataDir: c.String("data-dir"), Count: c.Uint64("n"), Dump: c.Bool("dump")}
	if o.Dump && o.DataDir == "" {
		return o, shell.Usagef("--dump needs --data-dir: stop the node first, or save a snapshot and restore it " +
			"elsewhere")
	}
	// The subjects without --from have an empty text here.
	if from := c.String("from"); from != "" {
		o.From, err = shell.ParsePosition("from", from)
	}
	return o, err
}

// inspectLog prints the events that the first endpoint has.
func inspectLog(ctx context.Context, sh *shell.Shell, o offline.Options) error {
	// As tail --local --until-end: what that node has, whether it leads or not.
	return tail(ctx, sh, tailOptions{from: &o.From, count: o.Count, untilEnd: true, local: true})
}

// inspectRaft prints what a running node says of its raft log.
func inspectRaft(ctx context.Context, sh *shell.Shell, _ offline.Options) error {
	// Entries of the raft log are not served: they are read offline.
	return withStatus(ctx, sh, func(s nodeStatus, raw json.RawMessage) error {
		return sh.Emit(raw, func() error {
			return sh.Facts("node", s.NodeID, "role", s.Role, "term", s.Term, "leader", leaderText(s), "committed",
				s.CommitIndex,
				"applied", s.AppliedIndex, "members", membersText(sh, s.Members), "entries",
				"only offline: --data-dir of a stopped node")
		})
	})
}

// withStatus calls show with the status of a node.
func withStatus(ctx context.Context, sh *shell.Shell, show func(nodeStatus, json.RawMessage) error) error {
	// Any node will do: the answer names the one that gave it.
	ctx, cancel := context.WithTimeout(ctx, sh.Timeout)
	defer cancel()
	s, raw, err := anyStatus(ctx, sh)
	if err != nil {
		return err
	}
	return show(s, raw)
}

// inspectState prints the position of a running node's state.
func inspectState(ctx context.Context, sh *shell.Shell, _ offline.Options) error {
	// A running node reports its state in its status; the whole state is read offline.
	return withStatus(ctx, sh, func(s nodeStatus, raw json.RawMessage) error {
		return sh.Emit(raw, func() error {
			return sh.Facts("node", s.NodeID, "cluster", s.ClusterID, "index", s.AppliedIndex, "term", s.Term,
				"offsets", offsetsText(s),
				"digest", fmt.Sprintf("%s at %d", s.Digest.Hex, s.Digest.Index), "cursors", len(s.Cursors))
		})
	})
}

// inspectDedup prints the figures of a running node's dedup window.
func inspectDedup(ctx context.Context, sh *shell.Shell, _ offline.Options) error {
	// The status is read again as JSON, as its figures differ from build to build.
	return withStatus(ctx, sh, func(_ nodeStatus, raw json.RawMessage) error {
		var all struct {
			Dedup map[string]any `json:"dedup"`
		}
		if err := json.Unmarshal(raw, &all); err != nil {
			return err
		}
		return sh.Emit(all.Dedup, func() error {
			// All fields are printed, in order, so new ones need no change here.
			var facts []any
			for _, key := range slices.Sorted(maps.Keys(all.Dedup)) {
				facts = append(facts, strings.ReplaceAll(key, "_", " "), all.Dedup[key])
			}
			return sh.Facts(facts...)
		})
	})
}

// offlineCursors prints the cursors of a stopped node. Its events are not read, so the lag of a
// cursor with a filter is known by its bounds alone.
func offlineCursors(_ context.Context, sh *shell.Shell, o offline.Options) error {
	// The folder is only read, and none of its events.
	list, err := offline.Cursors(o.DataDir)
	if err != nil {
		return err
	}
	return shell.EmitEach(sh, "cursor", list, table.Row{"name", "committed", "lag", "generation", "filter", "gap"},
		func(c api.Cursor) table.Row {
			return table.Row{c.Name, c.Committed, lagText(c), c.Generation, filterText(c.Filter), gapText(sh, c)}
		})
}

// offlineSettings prints the settings in a stopped node's state.
func offlineSettings(_ context.Context, sh *shell.Shell, o offline.Options) error {
	// The same table as of a running cluster, so the two can be compared.
	list, err := offline.Settings(o.DataDir)
	if err != nil {
		return err
	}
	return printSettings(sh, list)
}
