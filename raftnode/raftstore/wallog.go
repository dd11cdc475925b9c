package raftstore

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	wal "github.com/hashicorp/raft-wal"
	"github.com/hashicorp/raft-wal/fs"
	"github.com/hashicorp/raft-wal/segment"
	"github.com/hashicorp/raft-wal/types"

	"github.com/ringrift/ringlog/raftnode/datadir"
)

const segmentsRecord = "segments"

// openWAL opens the log in the folder dir, or creates it, and adds what its whole segments
// have to found.
func openWAL(dir string, opts Options, found *sizes) (*wal.WAL, error) {
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
	return store, nil
}

// prepareWAL makes the folder. Its list of segments is created before the first
// segment, so segments without one are damage.
func prepareWAL(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("raftstore: open %s: %w", dir, err)
	}
	segments, err := segmentFiles(dir)
	if err != nil {
		return fmt.Errorf("raftstore: open %s: %w", dir, err)
	}
	meta := filepath.Join(dir, datadir.WALMetaFile)
	if len(segments) > 0 && !exists(meta) {
		return damaged(meta, "it is missing, yet there are segments")
	}
	return nil
}

func segmentFiles(dir string) (paths []string, err error) {
	files, err := os.ReadDir(dir)
	for _, f := range files {
		if filepath.Ext(f.Name()) == ".wal" {
			paths = append(paths, filepath.Join(dir, f.Name()))
		}
	}
	return paths, err
}

// syncSegments makes durable what a process that was killed had perhaps not synced.
func syncSegments(dir string) error {
	segments, err := segmentFiles(dir)
	for _, path := range segments {
		f, openErr := os.Open(path)
		if openErr == nil {
			openErr = errors.Join(f.Sync(), f.Close())
		}
		err = errors.Join(err, openErr)
	}
	return errors.Join(err, datadir.SyncDir(dir))
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
	m.record, state, err = openSegments(dir, false)
	if err == nil {
		err = syncSegments(dir)
	}
	if err == nil {
		err = m.mendTail(dir, &state)
	}
	m.segments = state.Segments
	return state, err
}

// mendTail finishes what a process had begun that ended while it sealed the last segment: raft-wal would take that for
// one to append to, and refuse to.
func (m *walMeta) mendTail(dir string, state *types.PersistentState) error {
	last := len(state.Segments) - 1
	if last < 0 || !state.Segments[last].SealTime.IsZero() {
		return nil
	}
	tail := &state.Segments[last]
	w, err := segment.NewFiler(dir, fs.New()).RecoverTail(*tail)
	if errors.Is(err, os.ErrNotExist) { // raft-wal creates it
		return nil
	}
	if err != nil {
		return err
	}
	sealed, indexStart, err := w.Sealed()
	if err := errors.Join(err, w.Close()); err != nil || !sealed {
		return err
	}
	whole, err := indexIsOf(filepath.Join(dir, segment.FileName(*tail)), indexStart, tailEntries(*tail, w.LastIndex()))
	if err != nil || !whole {
		return err
	}
	tail.SealTime, tail.MaxIndex, tail.IndexStart = time.Now(), w.LastIndex(), indexStart
	next := types.SegmentInfo{ID: state.NextSegmentID, BaseIndex: tail.MaxIndex + 1, MinIndex: tail.MaxIndex + 1,
		Codec: tail.Codec, SizeLimit: tail.SizeLimit, CreateTime: tail.SealTime}
	state.NextSegmentID++
	state.Segments = append(state.Segments, next)
	return m.CommitState(*state)
}

func tailEntries(tail types.SegmentInfo, last uint64) uint64 {
	if last == 0 {
		return 0
	}
	return last - tail.BaseIndex + 1
}

// indexIsOf reports whether the index at indexStart in a segment is of so many entries. If not it belongs to a write
// that was cut off, and its header is removed, at which a look through the segment then ends.
func indexIsOf(path string, indexStart, entries uint64) (bool, error) {
	const header, size = 8, 4 // of a frame, and of what the index has for an entry
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return false, err
	}
	defer f.Close()
	var head [header]byte
	if _, err := f.ReadAt(head[:], int64(indexStart)-header); err != nil {
		return false, err
	}
	if uint64(binary.LittleEndian.Uint32(head[4:])) == size*entries {
		return true, nil
	}
	if _, err := f.WriteAt(make([]byte, header), int64(indexStart)-header); err != nil {
		return false, err
	}
	return false, f.Sync()
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
