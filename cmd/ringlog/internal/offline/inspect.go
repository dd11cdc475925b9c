package offline

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/cmd/ringlog/internal/shell"
	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/fsm"
)

// Options say what to read of a node, running or stopped.
type Options struct {
	// of a stopped node; "" asks a running one
	DataDir string
	From    api.Position // log: where to begin; raft: atOffset is an index
	Count   uint64       // 0 is all
	// the whole state, in canonical form
	Dump bool
}

// PrintLog prints the events of a stopped node. Ages count back from the time of its state.
func PrintLog(_ context.Context, sh *shell.Shell, o Options) (err error) {
	return withFolder(o.DataDir, func(f *folder) error {
		log := f.machine.Log()
		_, last := log.Bounds()
		// The time of the state counts as now: a stopped node has no later one.
		next, err := o.From.Resolve(log, f.machine.Time())
		if err != nil {
			return err
		}
		p := shell.NewPrinter(sh)
		// A count of 0 is no limit.
		left, all := o.Count, event.Matcher{}
		if left == 0 {
			left = math.MaxUint64
		}
		// In chunks: a log does not fit into memory.
		for next <= last && left > 0 {
			chunk, err := log.Read(next, &all, int(min(left, 1000)))
			if err != nil {
				if failed := p.Out.Flush(); !errors.Is(err, failed) {
					err = errors.Join(err, failed)
				}
				return err
			}
			for i := range chunk.Events {
				if err := p.Event(&chunk.Events[i]); err != nil {
					return err
				}
			}
			left -= uint64(len(chunk.Events))
			// Where to read on: the last events of a chunk may have been skipped.
			next = chunk.Next
		}
		return p.Out.Flush()
	})
}

// PrintState prints where the state of a stopped node is, or all of it.
func PrintState(_ context.Context, sh *shell.Shell, o Options) error {
	return withFolder(o.DataDir, func(f *folder) error {
		// The whole state is for programs that compare: it has one form only.
		if o.Dump {
			return f.machine.Dump(sh.Out)
		}
		// Programs get everything, people what identifies the node and its position.
		p, stats := f.machine.Position(), f.machine.Stats()
		all := map[string]any{"node": f.marker, "position": p, "stats": stats,
			"leadership": f.machine.Leadership(), "members": f.machine.Members()}
		return sh.Emit(all, func() error {
			return sh.Facts("node", f.marker.NodeID, "incarnation", f.marker.Incarnation, "cluster", p.ClusterID,
				"index", p.Index, "term", p.Term,
				"time", shell.Time(p.Time), "offsets", fmt.Sprintf("%d to %d", p.First, p.Last), "digest",
				p.Digest, "feature level", p.FeatureLevel,
				"log bytes", stats.Bytes, "appended",
				fmt.Sprintf("%d of clients, %d of the cluster", stats.Accepted, stats.Emitted),
				"cursors", stats.Cursors, "producers", stats.Producers)
		})
	})
}

// PrintDedup prints the figures of the dedup window of a stopped node.
func PrintDedup(_ context.Context, sh *shell.Shell, o Options) error {
	return withFolder(o.DataDir, func(f *folder) error {
		// The settings say what the window is, the figures how far it is filled.
		stats, settings := f.machine.Stats(), f.machine.Settings()
		all := map[string]any{"keys": stats.DedupKeys, "bytes": stats.DedupBytes,
			"window": settings.DedupWindow.String(), "max_keys": settings.DedupMaxKeys,
			"accepted": stats.Accepted, "suppressed": stats.Suppressed, "replayed": stats.Replayed}
		return sh.Emit(all, func() error {
			return sh.Facts("keys in the window", stats.DedupKeys, "of at most", settings.DedupMaxKeys, "window",
				settings.DedupWindow, "memory", stats.DedupBytes,
				"accepted", stats.Accepted, "suppressed", stats.Suppressed, "replayed", stats.Replayed)
		})
	})
}

// Cursors returns the cursors of a stopped node, groups with their policy as it was given. It does not read the
// events: if a filter may not pass all of them, LagEvents is an upper bound.
func Cursors(dir string) (list []api.Cursor, err error) {
	return list, withFolder(dir, func(f *folder) error {
		_, last := f.machine.Log().Bounds()
		settings := f.machine.Settings()
		// The end of the log, by which the lag is counted, is the same for all of them.
		for _, c := range f.machine.Cursors() {
			list = append(list, cursorOf(c, last, &settings))
		}
		return nil
	})
}

// cursorOf converts a stored cursor of a log whose last offset is last.
func cursorOf(c fsm.Cursor, last uint64, settings *fsm.Settings) api.Cursor {
	one := api.Cursor{
		Name:       c.Name,
		Filter:     c.Filter,
		Policy:     api.CursorPolicy(c.Policy),
		Committed:  c.Committed,
		Generation: c.Generation,
		Start:      c.Start,
		Created:    c.Created,
		Touched:    c.Touched,
		Seeks:      c.Seeks,
		LastSeek:   (*api.Seek)(c.LastSeek),
		Scanned:    c.Scanned,
		Found:      c.Found,
		Moved:      c.Moved,
		Stalled:    (*api.Stall)(c.Stalled),
		Gap:        (*api.Gap)(c.Gap),
		// A cursor may have passed the end of the log; min keeps the difference from wrapping around.
		LagEvents:    last - min(last, c.Passed()),
		Backpressure: (*api.LagPressure)(settings.PressureOf(&c)),
	}
	// Which of those events pass the filter is not known: at least none, at most LagEvents.
	if !c.Filter.Empty() && one.LagEvents > 0 {
		one.LagAtLeast = new(uint64)
	}
	// Only a leader knows how many events are in flight, so Pending stays 0.
	if g := c.Group; g != nil {
		one.Group = &api.GroupInfo{
			AckWait:      g.Policy.AckWait.String(),
			MaxDeliver:   g.Policy.MaxDeliver,
			MaxPending:   g.Policy.MaxPending,
			Redelivering: uint64(len(g.Retries)),
		}
	}
	return one
}

// Settings returns the settings of a stopped node.
func Settings(dir string) (list []api.Setting, err error) {
	return list, withFolder(dir, func(f *folder) error {
		// All that there are, those that have their default too.
		for _, one := range f.machine.ListSettings() {
			list = append(list, api.Setting(one))
		}
		return nil
	})
}
