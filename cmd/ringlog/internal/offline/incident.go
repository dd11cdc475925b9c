package offline

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/raftnode/datadir"
	"github.com/ringrift/ringlog/raftnode/incident"
	"github.com/ringrift/ringlog/raftnode/statestore"
)

// WriteIncident writes a slice of the past of a stopped node. Entries that its state has not applied are left out: it
// is not known whether they were committed. Ages count back from the time of the state.
func WriteIncident(ctx context.Context, dir string, w io.Writer, from, to api.Position) error {
	return withFolder(dir, func(f *folder) (err error) {
		r, err := f.raft()
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, r.Close()) }()
		// The checkpoints of the past that the node has kept: the slice begins with one of them, or with an empty
		// state.
		kept, err := statestore.KeptIn(filepath.Join(dir, datadir.HistoryDir))
		if err != nil {
			return err
		}
		// A stopped node has no later time than the one of its state.
		now := f.machine.Time()
		since, err := incident.TimeAt(from, f.machine.Log(), now)
		if err != nil {
			return err
		}
		until, err := incident.TimeAt(to, f.machine.Log(), now)
		if err != nil {
			return err
		}
		// Files are gathered in a folder of their own: nothing is written to the node's.
		scratch, err := os.MkdirTemp("", "ringlog-incident-")
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, os.RemoveAll(scratch)) }()
		// Gather takes the newest checkpoint before the slice, and the entries from there on.
		gathered, err := incident.Gather(ctx, filepath.Join(scratch, "files"), incident.Source{
			NodeID:  f.marker.NodeID,
			Machine: f.machine,
			Kept:    kept,
			First:   r.Summary().First,
			Entry:   r.GetLog,
		}, since, until)
		if err != nil {
			return err
		}
		// The slice is closed before the folder below it is removed.
		return errors.Join(gathered.Write(ctx, w), gathered.Close())
	})
}
