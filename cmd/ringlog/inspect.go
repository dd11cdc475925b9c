package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/urfave/cli/v2"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/event"
)

type inspectOptions struct {
	dataDir string
	from    api.Position // log: where to begin; raft: atOffset is an index
	count   uint64       // 0 is all
	dump    bool
}

func inspectCommand(sh *shell) *cli.Command {
	dataDir := &cli.StringFlag{Name: "data-dir", Usage: "`DIR` of a stopped node, instead of a running cluster"}
	from := &cli.StringFlag{Name: "from", Usage: "`WHERE` to begin: " + api.PositionForms, Value: "start"}
	count := &cli.Uint64Flag{Name: "n", Usage: "at most `COUNT`; 0 is all"}
	command := func(name, usage string, online, offline func(context.Context, *shell, inspectOptions) error, flags ...cli.Flag) *cli.Command {
		return &cli.Command{Name: name, Usage: usage, Flags: append([]cli.Flag{dataDir}, flags...), Action: func(c *cli.Context) error {
			if err := exactly(c, 0, ""); err != nil {
				return err
			}
			o, err := inspectOptionsOf(c)
			if err != nil {
				return err
			}
			if o.dataDir != "" {
				return offline(c.Context, sh, o)
			}
			return online(c.Context, sh, o)
		}}
	}
	return &cli.Command{
		Name: "inspect", Usage: "look inside a node, running or stopped",
		Description: "With --data-dir a stopped node's folder is read as it is: no leader is needed and nothing is written.",
		Subcommands: []*cli.Command{
			command("log", "the events stored", inspectLog, offlineLog, from, count),
			command("raft", "the consensus log, term and vote", inspectRaft, offlineRaft, from, count),
			command("state", "where the state machine stands", inspectState, offlineState, &cli.BoolFlag{Name: "dump", Usage: "offline: the whole state in canonical form"}),
			command("dedup", "the keys of the dedup window", inspectDedup, offlineDedup),
			command("cursors", "the durable subscribers", func(ctx context.Context, sh *shell, _ inspectOptions) error { return listCursors(ctx, sh) }, offlineCursors),
			command("settings", "the replicated settings", func(ctx context.Context, sh *shell, _ inspectOptions) error { return listSettings(ctx, sh) }, offlineSettings),
		},
	}
}

func inspectOptionsOf(c *cli.Context) (o inspectOptions, err error) {
	o = inspectOptions{dataDir: c.String("data-dir"), count: c.Uint64("n"), dump: c.Bool("dump")}
	if o.dump && o.dataDir == "" {
		return o, usagef("--dump needs --data-dir: stop the node first, or save a snapshot and restore it elsewhere")
	}
	if from := c.String("from"); from != "" {
		o.from, err = parsePosition("from", from)
	}
	return o, err
}

func inspectLog(ctx context.Context, sh *shell, o inspectOptions) error {
	return tail(ctx, sh, tailOptions{from: &o.from, count: o.count, untilEnd: true, local: true})
}

func inspectRaft(ctx context.Context, sh *shell, _ inspectOptions) error {
	return withStatus(ctx, sh, func(s nodeStatus, raw json.RawMessage) error {
		return sh.emit(raw, func() error {
			return sh.facts("node", s.NodeID, "role", s.Role, "term", s.Term, "leader", leaderText(s), "committed", s.CommitIndex,
				"applied", s.AppliedIndex, "members", membersText(s.Members), "entries", "only offline: --data-dir of a stopped node")
		})
	})
}

func withStatus(ctx context.Context, sh *shell, show func(nodeStatus, json.RawMessage) error) error {
	ctx, cancel := context.WithTimeout(ctx, sh.timeout)
	defer cancel()
	s, raw, err := sh.anyStatus(ctx)
	if err != nil {
		return err
	}
	return show(s, raw)
}

func inspectState(ctx context.Context, sh *shell, _ inspectOptions) error {
	return withStatus(ctx, sh, func(s nodeStatus, raw json.RawMessage) error {
		return sh.emit(raw, func() error {
			return sh.facts("node", s.NodeID, "cluster", s.ClusterID, "index", s.AppliedIndex, "term", s.Term, "offsets", offsetsText(s),
				"digest", fmt.Sprintf("%s at %d", s.Digest.Hex, s.Digest.Index), "cursors", len(s.Cursors))
		})
	})
}

func inspectDedup(ctx context.Context, sh *shell, _ inspectOptions) error {
	return withStatus(ctx, sh, func(_ nodeStatus, raw json.RawMessage) error {
		var all struct {
			Dedup map[string]any `json:"dedup"`
		}
		if err := json.Unmarshal(raw, &all); err != nil {
			return err
		}
		return sh.emit(all.Dedup, func() error {
			var facts []any
			for _, key := range sortedKeys(all.Dedup) {
				facts = append(facts, strings.ReplaceAll(key, "_", " "), all.Dedup[key])
			}
			return sh.facts(facts...)
		})
	})
}

func offlineLog(_ context.Context, sh *shell, o inspectOptions) (err error) {
	return withFolder(o.dataDir, func(f *folder) error {
		log := f.machine.Log()
		_, last := log.Bounds()
		next, err := o.from.Resolve(log, f.machine.Time())
		if err != nil {
			return err
		}
		p := newPrinter(sh)
		left, all := o.count, event.Matcher{}
		if left == 0 {
			left = math.MaxUint64
		}
		for next <= last && left > 0 {
			chunk, err := log.Read(next, &all, int(min(left, 1000)))
			if err != nil {
				return errors.Join(err, p.out.Flush())
			}
			for i := range chunk.Events {
				if err := p.event(&chunk.Events[i]); err != nil {
					return err
				}
			}
			left -= uint64(len(chunk.Events))
			next = chunk.Next
		}
		return p.out.Flush()
	})
}

func withFolder(dir string, body func(*folder) error) error {
	f, err := openFolder(dir)
	if err != nil {
		return err
	}
	return errors.Join(body(f), f.close())
}

func offlineState(_ context.Context, sh *shell, o inspectOptions) error {
	return withFolder(o.dataDir, func(f *folder) error {
		if o.dump {
			return f.machine.Dump(sh.out)
		}
		p, stats := f.machine.Position(), f.machine.Stats()
		all := map[string]any{"node": f.marker, "position": p, "stats": stats, "leadership": f.machine.Leadership(), "members": f.machine.Members()}
		return sh.emit(all, func() error {
			return sh.facts("node", f.marker.NodeID, "incarnation", f.marker.Incarnation, "cluster", p.ClusterID, "index", p.Index, "term", p.Term,
				"time", localTime(p.Time), "offsets", fmt.Sprintf("%d to %d", p.First, p.Last), "digest", p.Digest, "feature level", p.FeatureLevel,
				"log bytes", stats.Bytes, "appended", fmt.Sprintf("%d of clients, %d of the cluster", stats.Accepted, stats.Emitted),
				"cursors", stats.Cursors, "producers", stats.Producers)
		})
	})
}

func offlineDedup(_ context.Context, sh *shell, o inspectOptions) error {
	return withFolder(o.dataDir, func(f *folder) error {
		stats, settings := f.machine.Stats(), f.machine.Settings()
		all := map[string]any{"keys": stats.DedupKeys, "bytes": stats.DedupBytes, "window": settings.DedupWindow.String(), "max_keys": settings.DedupMaxKeys,
			"accepted": stats.Accepted, "suppressed": stats.Suppressed, "replayed": stats.Replayed}
		return sh.emit(all, func() error {
			return sh.facts("keys in the window", stats.DedupKeys, "of at most", settings.DedupMaxKeys, "window", settings.DedupWindow, "memory", stats.DedupBytes,
				"accepted", stats.Accepted, "suppressed", stats.Suppressed, "replayed", stats.Replayed)
		})
	})
}

func offlineCursors(_ context.Context, sh *shell, o inspectOptions) error {
	return withFolder(o.dataDir, func(f *folder) error {
		_, last := f.machine.Log().Bounds()
		var list []cursorInfo
		for _, c := range f.machine.Cursors() {
			one := cursorInfo{Cursor: c, LagEvents: last - min(last, c.Passed()), Group: storedGroup(c.Group)}
			if !c.Filter.Empty() && one.LagEvents > 0 { // nothing looks at the events here
				one.LagAtLeast = new(uint64)
			}
			list = append(list, one)
		}
		return emitEach(sh, list, table.Row{"name", "committed", "lag", "generation", "filter", "gap"}, func(c cursorInfo) table.Row {
			return table.Row{c.Name, c.Committed, c.lagText(), c.Generation, filterText(c.Filter), gapText(c)}
		})
	})
}

func offlineSettings(_ context.Context, sh *shell, o inspectOptions) error {
	return withFolder(o.dataDir, func(f *folder) error { return sh.printSettings(f.machine.ListSettings()) })
}
