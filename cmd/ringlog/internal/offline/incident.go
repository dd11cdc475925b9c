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
		kept, err := statestore.KeptIn(filepath.Join(dir, datadir.HistoryDir))
		if err != nil {
			return err
		}
		now := f.machine.Time()
		since, err := incident.TimeAt(from, f.machine.Log(), now)
		if err != nil {
			return err
		}
		until, err := incident.TimeAt(to, f.machine.Log(), now)
		if err != nil {
			return err
		}
		scratch, err := os.MkdirTemp("", "ringlog-incident-")
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, os.RemoveAll(scratch)) }()
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
		return errors.Join(gathered.Write(ctx, w), gathered.Close())
	})
}
