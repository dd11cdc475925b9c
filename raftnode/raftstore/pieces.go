package raftstore

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
)

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
// That none is missing or strange is known from the seal, which covers all of Data.
const (
	pieceBits  = 16
	pieceBytes = 3950
	maxIndex   = 1<<(64-pieceBits) - 1
)

// boltLog is the log in a bolt file.
type boltLog struct{ store *raftboltdb.BoltStore }

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

// GetLog reads an entry and puts it together.
func (b boltLog) GetLog(index uint64, l *raft.Log) error {
	if index > maxIndex {
		return raft.ErrLogNotFound
	}
	if err := b.piece(index, 0, l); err != nil {
		return err
	}
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

// StoreLog stores one entry.
func (b boltLog) StoreLog(l *raft.Log) error { return b.StoreLogs([]*raft.Log{l}) }

// StoreLogs stores entries in one transaction.
func (b boltLog) StoreLogs(logs []*raft.Log) error {
	pieces := make([]*raft.Log, 0, len(logs))
	for _, l := range logs {
		if l.Index > maxIndex || len(l.Data) >= pieceBytes<<pieceBits {
			return fmt.Errorf("entry %d of %d bytes is beyond what the log can hold", l.Index, len(l.Data))
		}
		pieces = append(pieces, cut(l)...)
	}
	return b.store.StoreLogs(pieces)
}

// cut returns an entry in pieces, which share its Data.
func cut(l *raft.Log) []*raft.Log {
	first := *l
	first.Index, first.Data = pieceKey(l.Index, 0), l.Data[:min(pieceBytes, len(l.Data))]
	pieces := []*raft.Log{&first}
	for at := pieceBytes; at < len(l.Data); at += pieceBytes {
		pieces = append(pieces, &raft.Log{Index: pieceKey(l.Index, len(pieces)), Data: l.Data[at:min(at+pieceBytes, len(l.Data))]})
	}
	return pieces
}

// DeleteRange deletes entries, both ends included, in one transaction.
func (b boltLog) DeleteRange(low, high uint64) error {
	return b.store.DeleteRange(pieceKey(low, 0), pieceKey(min(high, maxIndex), 1<<pieceBits-1))
}

// Close closes the file.
func (b boltLog) Close() error { return b.store.Close() }

// denseKeys returns a visitor that wants each entry to follow the one before, and
// the pieces of one each other, and adds what they have to found.
func denseKeys(found *sizes) visitor {
	var last uint64
	return func(bucket string, key []byte, size int) error {
		if bucket != logsBucket {
			return nil
		}
		if len(key) != 8 {
			return fmt.Errorf("an index has %d bytes", len(key))
		}
		at := binary.BigEndian.Uint64(key)
		index, piece, before := at>>pieceBits, at&(1<<pieceBits-1), last>>pieceBits
		switch {
		case index == 0:
			return fmt.Errorf("key %d is of a log that an earlier version wrote, or of none", at)
		case last == 0 && piece == 0, at == last+1 && index == before, index == before+1 && piece == 0:
			last = at
			found.add(index, int64(size))
			return nil
		case last != 0 && index > before+1:
			return fmt.Errorf("entries %d to %d are missing", before+1, index-1)
		}
		return fmt.Errorf("a piece of entry %d is missing before piece %d of entry %d", max(before, 1), piece, index)
	}
}
