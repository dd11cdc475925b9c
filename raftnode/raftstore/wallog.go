package raftstore

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	wal "github.com/hashicorp/raft-wal"
	"github.com/hashicorp/raft-wal/segment"
	"github.com/hashicorp/raft-wal/types"

	"github.com/ringrift/ringlog/raftnode/datadir"
)

const segmentsRecord = "segments"

// openWAL opens the log in the folder dir, or creates it, and adds what its whole segments
// have to found.
func openWAL(dir string, opts Options, found *sizes) (*walLog, error) {
	if err := prepareWAL(dir); err != nil {
		return nil, err
	}
	meta := &walMeta{}
	var store *wal.WAL
	err := protect(func() (err error) {
		store, err = wal.Open(dir, wal.WithMetaStore(meta), wal.WithSegmentSize(opts.segmentSize),
			wal.WithLogger(opts.Logger.Named("wal")))
		return err
	})
	if err != nil {
		return nil, errors.Join(walOpenError(dir, err), meta.Close())
	}
	meta.measure(dir, found)
	return &walLog{store, dir}, nil
}

// walLog is the log in the segments of a folder.
type walLog struct {
	*wal.WAL
	dir string
}

// Sync makes durable what a process that was killed had written.
func (w *walLog) Sync() error {
	segments, err := filepath.Glob(filepath.Join(w.dir, "*.wal"))
	for _, path := range segments {
		err = errors.Join(err, syncFile(path))
	}
	return err
}

func syncFile(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// prepareWAL makes the folder. Its list of segments is created before the first
// segment, so segments without one are damage.
func prepareWAL(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("raftstore: open %s: %w", dir, err)
	}
	segments, err := filepath.Glob(filepath.Join(dir, "*.wal"))
	if err != nil {
		return fmt.Errorf("raftstore: open %s: %w", dir, err)
	}
	meta := filepath.Join(dir, datadir.WALMetaFile)
	if len(segments) > 0 && !exists(meta) {
		return damaged(meta, "it is missing, yet there are segments")
	}
	return nil
}

// walOpenError tells damage from a disk or a lock that refuses.
func walOpenError(dir string, err error) error {
	known := errors.Is(err, ErrDamaged) || errors.Is(err, datadir.ErrInUse)
	var path *os.PathError
	switch {
	case known:
		return err
	case errors.As(err, &path) && !errors.Is(err, os.ErrNotExist):
		return fmt.Errorf("raftstore: open %s: %w", dir, err)
	}
	return damaged(dir, err.Error())
}

// walMeta keeps raft-wal's list of segments in a checked record instead of a
// plain bolt value. It implements types.MetaStore.
type walMeta struct {
	record   *record
	segments []types.SegmentInfo // as they were when it was opened
}

// Load opens the record in dir and returns the list of segments.
func (m *walMeta) Load(dir string) (state types.PersistentState, err error) {
	r, state, err := openSegments(dir, false)
	m.record, m.segments = r, state.Segments
	return state, err
}

// openSegments opens the record in dir and reads the list of segments.
func openSegments(dir string, readOnly bool) (r *record, state types.PersistentState, err error) {
	path := filepath.Join(dir, datadir.WALMetaFile)
	r, body, err := openRecord(path, segmentsRecord, readOnly)
	if err != nil || len(body) == 0 {
		return r, state, err
	}
	if err := json.Unmarshal(body, &state); err != nil {
		return nil, state, errors.Join(damaged(path, err.Error()), r.close())
	}
	return r, state, nil
}

// measure adds the sizes of the segments that were full when it was opened, as the last one
// has room for more.
func (m *walMeta) measure(dir string, found *sizes) {
	for _, s := range m.segments {
		if info, err := os.Stat(filepath.Join(dir, segment.FileName(s))); err == nil && !s.SealTime.IsZero() {
			found.add(s.MaxIndex, info.Size())
		}
	}
	m.segments = nil
}

// CommitState replaces the list of segments.
func (m *walMeta) CommitState(state types.PersistentState) error {
	body, err := json.Marshal(state)
	if err != nil {
		return err
	}
	return m.record.save(body)
}

// errNoStable: term and vote are in stable.db.
var errNoStable = errors.New("the log keeps no stable values")

// GetStable is not used.
func (m *walMeta) GetStable([]byte) ([]byte, error) { return nil, errNoStable }

// SetStable is not used.
func (m *walMeta) SetStable(_, _ []byte) error { return errNoStable }

// Close closes the record, if Load opened it.
func (m *walMeta) Close() error {
	if m.record == nil {
		return nil
	}
	return m.record.close()
}
