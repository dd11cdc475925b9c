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

// inspectOptions say what to read of a node, running or stopped.
type Options struct {
	DataDir string
	From    api.Position // log: where to begin; raft: atOffset is an index
	Count   uint64       // 0 is all
	Dump    bool
}

// PrintLog prints the events of a stopped node. Ages count back from the time of its state.
func PrintLog(_ context.Context, sh *shell.Shell, o Options) (err error) {
	return withFolder(o.DataDir, func(f *folder) error {
		log := f.machine.Log()
		_, last := log.Bounds()
		next, err := o.From.Resolve(log, f.machine.Time())
		if err != nil {
			return err
		}
		p := shell.NewPrinter(sh)
		left, all := o.Count, event.Matcher{}
		if left == 0 {
			left = math.MaxUint64
		}
		// In chunks: a log does not fit into memory.
		for next <= last && left > 0 {
			chunk, err := log.Read(next, &all, int(min(left, 1000)))
			if err != nil {
				return errors.Join(err, p.Out.Flush())
			}
			for i := range chunk.Events {
				if err := p.Event(&chunk.Events[i]); err != nil {
					return err
				}
			}
			left -= uint64(len(chunk.Events))
			next = chunk.Next
		}
		return p.Out.Flush()
	})
}

// PrintState prints where the state of a stopped node is, or all of it.
func PrintState(_ context.Context, sh *shell.Shell, o Options) error {
	return withFolder(o.DataDir, func(f *folder) error {
		if o.Dump {
			return f.machine.Dump(sh.Out)
		}
		p, stats := f.machine.Position(), f.machine.Stats()
		all := map[string]any{"node": f.marker, "position": p, "stats": stats,
			"leadership": f.machine.Leadership(), "members": f.machine.Members()}
		return sh.Emit(all, func() error {
			return sh.Facts("node", f.marker.NodeID, "incarnation", f.marker.Incarnation, "cluster", p.ClusterID,
				"index", p.Index, "term", p.Term,
				"time", shell.LocalTime(p.Time), "offsets", fmt.Sprintf("%d to %d", p.First, p.Last), "digest",
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

// storedCursors are the cursors of a stopped node, and the last offset of its log.
func Cursors(dir string) (list []fsm.Cursor, last uint64, err error) {
	return list, last, withFolder(dir, func(f *folder) error {
		list = f.machine.Cursors()
		_, last = f.machine.Log().Bounds()
		return nil
	})
}

// storedSettings are the settings of a stopped node.
func Settings(dir string) (list []fsm.Setting, err error) {
	return list, withFolder(dir, func(f *folder) error {
		list = f.machine.ListSettings()
		return nil
	})
}
