package raftstore

import (
	"errors"
	"fmt"
	"iter"
	"os"
	"path/filepath"

	"github.com/hashicorp/raft"
	wal "github.com/hashicorp/raft-wal"
	"github.com/hashicorp/raft-wal/fs"
	"github.com/hashicorp/raft-wal/segment"
	"github.com/hashicorp/raft-wal/types"

	"github.com/ringrift/ringlog/raftnode/datadir"
)

// Summary says what a stopped node's raft folder holds.
type Summary struct {
	Kind          Kind
	First, Last   uint64 // of the log; 0, 0 if it is empty
	LastStored    uint64 // what the tail mark says; above Last means that entries are lost; 0 is unknown
	CurrentTerm   uint64
	VoteTerm      uint64
	VoteCandidate string // address of whom this node voted for in VoteTerm
}

// Reader looks at a stopped node's raft folder and writes nothing.
type Reader struct {
	summary Summary
	file    string
	scan    scanner
	close   func() error
}

// scanner calls fn for each index of [from, to] in order, with an error in
// place of an entry that can not be read, until fn returns false.
type scanner func(from, to uint64, fn func(index uint64, l *raft.Log, err error) bool) error

// OpenReadOnly opens the raft folder of a stopped node. It refuses with
// datadir.ErrInUse while the node runs, and with ErrDamaged where the structure
// of a file is damaged; a damaged entry only shows in Entries.
func OpenReadOnly(dir string, kind Kind) (*Reader, error) {
	r := &Reader{summary: Summary{Kind: kind}, close: func() error { return nil }}
	if err := r.readStable(filepath.Join(dir, datadir.StableFile)); err != nil {
		return nil, err
	}
	if raw, err := os.ReadFile(filepath.Join(dir, tailFile)); err == nil && len(raw) == tailSize {
		r.summary.LastStored = decodeTail(raw)
	}
	if err := r.openLog(dir); err != nil {
		return nil, errors.Join(err, r.Close())
	}
	return r, nil
}

func (r *Reader) openLog(dir string) (err error) {
	switch r.summary.Kind {
	case Bolt:
		err = r.openBolt(filepath.Join(dir, datadir.BoltFile))
	case WAL:
		err = r.openWAL(filepath.Join(dir, datadir.WALDir))
	default:
		err = fmt.Errorf("raftstore: open %s: unknown log store %q: use %s or %s", dir, r.summary.Kind, Bolt, WAL)
	}
	if err != nil {
		return err
	}
	return r.openJournal(filepath.Join(dir, datadir.JournalFile))
}

func (r *Reader) readStable(path string) error {
	rec, body, err := openRecord(path, stableRecord, true)
	if err != nil {
		return err
	}
	state, err := decodeStable(path, body)
	r.summary.CurrentTerm = state.Numbers[keyCurrentTerm]
	r.summary.VoteTerm = state.Numbers[keyVoteTerm]
	r.summary.VoteCandidate = string(state.Bytes[keyVoteCandidate])
	return errors.Join(err, rec.close())
}

func (r *Reader) openBolt(path string) error {
	bolt, err := openBoltFile(path, true, &sizes{})
	if err != nil {
		return err
	}
	r.file, r.close, r.scan = path, bolt.Close, scanBolt(bolt)
	err = protect(func() (err error) {
		if r.summary.First, err = bolt.FirstIndex(); err != nil {
			return err
		}
		r.summary.Last, err = bolt.LastIndex()
		return err
	})
	return openError(path, err)
}

func scanBolt(bolt boltLog) scanner {
	return func(from, to uint64, fn func(uint64, *raft.Log, error) bool) error {
		for index := from; index <= to; index++ {
			var l raft.Log
			err := protect(func() error { return bolt.GetLog(index, &l) })
			if !fn(index, &l, err) {
				break
			}
		}
		return nil
	}
}

// openJournal adds the entries that only the journal has.
func (r *Reader) openJournal(path string) error {
	j, err := openJournal(path, true)
	if err != nil {
		return err
	}
	pending, err := j.load(r.summary.Last)
	if err := errors.Join(err, j.close()); err != nil || len(pending) == 0 {
		return err
	}
	r.scan = thenPending(r.scan, r.summary.Last, pending)
	r.summary.Last = pending[len(pending)-1].Index
	return nil
}

// thenPending goes on with pending behind last.
func thenPending(scan scanner, last uint64, pending []*raft.Log) scanner {
	return func(from, to uint64, fn func(uint64, *raft.Log, error) bool) error {
		more := true
		if from <= last {
			err := scan(from, min(to, last), func(index uint64, l *raft.Log, err error) bool {
				more = fn(index, l, err)
				return more
			})
			if err != nil {
				return err
			}
		}
		for _, l := range pending {
			if more && l.Index >= from && l.Index <= to {
				stored := *l
				more = fn(l.Index, &stored, nil)
			}
		}
		return nil
	}
}

// openWAL reads the segments by themselves: raft-wal can only open for writing.
func (r *Reader) openWAL(dir string) error {
	record, state, err := openSegments(dir, true)
	if err != nil {
		return err
	}
	r.file, r.close = dir, record.close // it is locked as long as it is open
	last, err := endOfTail(dir, state.Segments)
	if err != nil {
		return err
	}
	r.scan = scanWAL(dir, state.Segments, last)
	return r.scan(1, ^uint64(0), func(index uint64, _ *raft.Log, _ error) bool {
		if r.summary.First == 0 {
			r.summary.First = index
		}
		r.summary.Last = index
		return true
	})
}

// endOfTail is the last entry of the unsealed segment that a start would find: a batch that was cut off is none.
func endOfTail(dir string, segments []types.SegmentInfo) (last uint64, err error) {
	for _, s := range segments {
		if !s.SealTime.IsZero() {
			continue
		}
		err := protect(func() error {
			w, err := segment.NewFiler(dir, readOnlyFS{fs.New()}).RecoverTail(s)
			if err != nil {
				return err
			}
			last = w.LastIndex()
			return w.Close()
		})
		if err != nil && !errors.Is(err, os.ErrNotExist) { // raft-wal creates it on start
			return 0, damaged(filepath.Join(dir, segment.FileName(s)), err.Error())
		}
	}
	return last, nil
}

// readOnlyFS opens what is written to for reading.
type readOnlyFS struct{ types.VFS }

// OpenWriter implements types.VFS.
func (r readOnlyFS) OpenWriter(dir, name string) (types.WritableFile, error) {
	f, err := r.OpenReader(dir, name)
	return readOnlyFile{f}, err
}

type readOnlyFile struct{ types.ReadableFile }

// WriteAt implements types.WritableFile.
func (readOnlyFile) WriteAt([]byte, int64) (int, error) { return 0, os.ErrPermission }

// Sync implements types.WritableFile.
func (readOnlyFile) Sync() error { return os.ErrPermission }

// scanWAL reads the unsealed segment up to last.
func scanWAL(dir string, segments []types.SegmentInfo, last uint64) scanner {
	return func(from, to uint64, fn func(uint64, *raft.Log, error) bool) error {
		more := true
		stopping := func(index uint64, l *raft.Log, err error) bool {
			more = fn(index, l, err)
			return more
		}
		for _, s := range segments {
			low, high := max(from, s.MinIndex), min(to, last)
			if !s.SealTime.IsZero() {
				high = min(to, s.MaxIndex)
			}
			if !more || low > high {
				continue
			}
			if err := scanSegment(dir, s, low, high, stopping); err != nil {
				return damaged(filepath.Join(dir, segment.FileName(s)), err.Error())
			}
		}
		return nil
	}
}

func scanSegment(dir string, s types.SegmentInfo, low, high uint64, fn func(uint64, *raft.Log, error) bool) error {
	filer, codec := segment.NewFiler(dir, fs.New()), &wal.BinaryCodec{}
	// No upper bound for DumpSegment: it would drop the batch the bound is in.
	return protect(func() error {
		return filer.DumpSegment(s.BaseIndex, s.ID, low-1, 0, func(_ types.SegmentInfo, e types.LogEntry) (bool, error) {
			if e.Index > high {
				return false, nil
			}
			var l raft.Log
			err := protect(func() error { return codec.Decode(e.Data, &l) })
			return fn(e.Index, &l, err), nil
		})
	})
}

// Summary returns what the folder holds.
func (r *Reader) Summary() Summary { return r.summary }

// Entries yields the entries from..to, both included and cut to what is there,
// in order. A damaged one comes with ErrCorruptEntry and its index, and the
// entries behind it follow.
func (r *Reader) Entries(from, to uint64) iter.Seq2[*raft.Log, error] {
	return func(yield func(*raft.Log, error) bool) {
		next, last := max(from, r.summary.First), min(to, r.summary.Last)
		if next == 0 || next > last {
			return
		}
		more := true
		err := r.scan(next, last, func(index uint64, l *raft.Log, err error) bool {
			if index != next {
				more = yield(&raft.Log{Index: next}, corrupt(r.file, next, errMissing))
			}
			next = index + 1
			if more {
				more = yield(r.verified(index, l, err))
			}
			return more
		})
		if err != nil && more {
			yield(&raft.Log{Index: next}, err)
		}
	}
}

var errMissing = errors.New("it is missing")

func (r *Reader) verified(index uint64, l *raft.Log, err error) (*raft.Log, error) {
	if err == nil {
		err = unseal(l, index)
	}
	if err != nil {
		return &raft.Log{Index: index}, corrupt(r.file, index, err)
	}
	return l, nil
}

// Close lets the files go. It is idempotent.
func (r *Reader) Close() error {
	closeFiles := r.close
	r.close = func() error { return nil }
	return closeFiles()
}
