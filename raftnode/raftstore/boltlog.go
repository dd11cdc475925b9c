package raftstore

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
	"go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"
)

// boltLog is the log in a bolt file.
//
// A bolt leaf is not split before it has five keys, and each append writes the last
// leaf again: an entry of 100 KiB would cost half a megabyte. So a large entry is cut
// into pieces, each an entry of raft-boltdb, of a size that puts two of them on two
// pages; what is written again then is small.
//
//	key:    +-------------+------------+
//	        | index, high | piece, low |     big endian, as raft-boltdb writes an Index
//	        | 48 bits     | 16 bits    |
//	        +-------------+------------+
//	value:  piece 0 is the entry with the start of its Data; the others are Data only.
//	        All but the last piece hold pieceBytes of Data.
//
// The seal, which covers all of Data, proves that no piece is missing or of another entry.
type boltLog struct{ store *raftboltdb.BoltStore }

const (
	pieceBits  = 16
	pieceBytes = 3950
	maxIndex   = 1<<(64-pieceBits) - 1

	// Buckets of raft-boltdb; "conf" stays empty, as term and vote are in stable.db.
	logsBucket = "logs"
	confBucket = "conf"
)

// boltOptions never skip a sync of data. The list of free pages is not synced:
// it is rebuilt on start, and each append writes less.
func boltOptions(readOnly bool) *bbolt.Options {
	return &bbolt.Options{
		Timeout:        time.Second, // for the file's lock
		NoFreelistSync: true,
		FreelistType:   bbolt.FreelistMapType,
		ReadOnly:       readOnly,
	}
}

// openBolt opens the log in the bolt file at path after checking its structure and that
// no piece is missing, and adds the sizes of its entries to found. Unless readOnly it
// creates a missing file.
func openBolt(path string, readOnly bool, found *sizes) (b boltLog, err error) {
	open := func(path string) (err error) {
		b.store, err = raftboltdb.New(raftboltdb.Options{Path: path, BoltOptions: boltOptions(readOnly)})
		return err
	}
	// A new file is created under another name, so a crash leaves none or a whole one.
	if !readOnly {
		create := func(path string) error {
			if err := open(path); err != nil {
				return err
			}
			return b.Close()
		}
		if err := createFile(path, create); err != nil {
			return boltLog{}, err
		}
	}
	// One pass over the file checks its structure and its keys, and sums up the sizes.
	buckets := map[string]visitor{logsBucket: denseKeys(found), confBucket: nil}
	if err := checkBoltFile(path, buckets); err != nil {
		return boltLog{}, err
	}
	if err := protect(func() error { return open(path) }); err != nil {
		return boltLog{}, openError(path, err)
	}

	// A process that was killed may have written pages without syncing them. They are served from now on, so
	// they must survive a crash of the machine.
	if !readOnly {
		if err := b.store.Sync(); err != nil {
			return boltLog{}, errors.Join(openError(path, err), b.Close())
		}
	}
	return b, nil
}

// openError wraps an error of bbolt in opening or reading path as ErrDamaged or datadir.ErrInUse, if it is
// one of these.
func openError(path string, err error) error {
	switch {
	case errors.Is(err, ErrDamaged):
		return err
	case errors.Is(err, berrors.ErrTimeout):
		return inUse(path, err)
	case errors.Is(err, errPanicked):
		return damaged(path, err.Error())
	}
	return fmt.Errorf("open %s: %w", path, err)
}

// denseKeys returns a visitor that requires the entries to follow one another without a
// gap, and the pieces of each entry as well, and adds their sizes to found.
func denseKeys(found *sizes) visitor {
	var last uint64 // the key before; 0: none
	return func(key []byte, size int) error {
		if len(key) != 8 {
			return fmt.Errorf("an index has %d bytes", len(key))
		}
		// An index takes the high bits of a key. The logs of earlier versions had the index itself as the key.
		at := binary.BigEndian.Uint64(key)
		index, piece, before := at>>pieceBits, at&(1<<pieceBits-1), last>>pieceBits
		switch {
		case index == 0:
			return fmt.Errorf("key %d is of a log that an earlier version wrote, or of none", at)
		case last == 0 && piece == 0, // the log's first entry
			index == before && at == last+1,
			index == before+1 && piece == 0:
			last = at
			found.add(index, int64(size))
			return nil
		case last != 0 && index > before+1:
			return fmt.Errorf("entries %d to %d are missing", before+1, index-1)
		}
		return fmt.Errorf("a piece of entry %d is missing before piece %d of entry %d", max(before, 1), piece, index)
	}
}

// pieceKey is the key of piece number piece of an entry.
func pieceKey(index uint64, piece int) uint64 { return index<<pieceBits | uint64(piece) }

// FirstIndex returns the first index written, 0 for no entries.
func (b boltLog) FirstIndex() (uint64, error) {
	key, err := b.store.FirstIndex()
	return key >> pieceBits, err
}

// LastIndex returns the last index written, 0 for no entries.
func (b boltLog) LastIndex() (uint64, error) {
	key, err := b.store.LastIndex()
	return key >> pieceBits, err
}

// GetLog reads the pieces of an entry and joins them.
func (b boltLog) GetLog(index uint64, l *raft.Log) error {
	if index > maxIndex {
		return raft.ErrLogNotFound
	}
	if err := b.piece(index, 0, l); err != nil {
		return err
	}
	// A full piece is followed by another, or was the last of an entry that fills it.
	for n := 1; len(l.Data) == n*pieceBytes; n++ {
		var more raft.Log
		err := b.piece(index, n, &more)
		if errors.Is(err, raft.ErrLogNotFound) {
			break
		}
		if err != nil {
			return err
		}
		l.Data = append(l.Data, more.Data...)
	}
	l.Index = index
	return nil
}

// piece reads piece n of an entry into l, whose Index is then the key.
func (b boltLog) piece(index uint64, n int, l *raft.Log) error {
	key := pieceKey(index, n)
	if err := b.store.GetLog(key, l); err != nil {
		return err
	}
	if l.Index != key {
		return fmt.Errorf("%w: key %x", errWrongIndex, l.Index)
	}
	return nil
}

// StoreLogs stores entries in one transaction.
func (b boltLog) StoreLogs(logs []*raft.Log) error {
	pieces := make([]*raft.Log, 0, len(logs))
	for _, l := range logs {
		if l.Index > maxIndex || len(l.Data) >= pieceBytes<<pieceBits {
			return fmt.Errorf("entry %d of %d bytes is beyond what the log can hold", l.Index, len(l.Data))
		}
		pieces = appendPieces(pieces, l)
	}
	return b.store.StoreLogs(pieces)
}

// appendPieces cuts an entry into pieces, which share its Data.
func appendPieces(pieces []*raft.Log, l *raft.Log) []*raft.Log {
	first := *l
	first.Index, first.Data = pieceKey(l.Index, 0), l.Data[:min(pieceBytes, len(l.Data))]
	pieces = append(pieces, &first)
	for n := 1; n*pieceBytes < len(l.Data); n++ {
		data := l.Data[n*pieceBytes : min((n+1)*pieceBytes, len(l.Data))]
		pieces = append(pieces, &raft.Log{Index: pieceKey(l.Index, n), Data: data})
	}
	return pieces
}

// DeleteRange deletes entries, both ends included, in one transaction.
func (b boltLog) DeleteRange(low, high uint64) error {
	return b.store.DeleteRange(pieceKey(low, 0), pieceKey(min(high, maxIndex), 1<<pieceBits-1))
}

// Close closes the file.
func (b boltLog) Close() error { return b.store.Close() }
