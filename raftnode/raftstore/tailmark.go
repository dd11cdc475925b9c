package raftstore

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"sync"
)

// tailFile is the name of the tail mark in the raft folder.
const tailFile = "tail"

// tailMark remembers the last index that was stored. A log that lost its end looks like
// one that never had it: the journal takes a damaged last record for a torn write, and
// bolt trusts a page that counts fewer entries than it has. The mark shows the loss.
//
// Raising the mark is not synced, so it costs microseconds; it happens after
// the entries are durable. Lowering it is synced, and happens before they are
// deleted. So what survives a crash is at most what the log has, and after a crash
// of the process alone it is exact. A mark that cannot
// be decoded counts as none.
//
//	+------------+--------------+----------------------+
//	| "RLTM" 4   | last 8, LE   | CRC-32C of both 4, LE|
//	+------------+--------------+----------------------+
type tailMark struct {
	f *os.File

	mu   sync.Mutex
	last uint64 // equals the file's; 0: no entry, or not known
}

const (
	tailMagic = "RLTM"
	tailSize  = len(tailMagic) + 8 + 4
)

// openTailMark opens the mark at path and creates a missing one.
func openTailMark(path string) (*tailMark, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("raftstore: open %s: %w", path, err)
	}
	buf := make([]byte, tailSize)
	if _, err := f.ReadAt(buf, 0); err != nil && err != io.EOF {
		return nil, errors.Join(fmt.Errorf("raftstore: read %s: %w", path, err), f.Close())
	}
	return &tailMark{f: f, last: decodeTail(buf)}, nil
}

// encodeTail returns the content of the file.
func encodeTail(last uint64) []byte {
	buf := binary.LittleEndian.AppendUint64([]byte(tailMagic), last)
	return binary.LittleEndian.AppendUint32(buf, crc32.Checksum(buf, crcTable()))
}

// decodeTail returns the index of a mark, 0 if buf is not a mark. buf has tailSize bytes.
func decodeTail(buf []byte) uint64 {
	last := binary.LittleEndian.Uint64(buf[len(tailMagic):])
	if string(encodeTail(last)) != string(buf) {
		return 0
	}
	return last
}

// set writes the mark without a sync.
func (t *tailMark) set(last uint64) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.last == last {
		return nil
	}
	if _, err := t.f.WriteAt(encodeTail(last), 0); err != nil {
		return fmt.Errorf("raftstore: write %s: %w", t.f.Name(), err)
	}
	t.last = last
	return nil
}

// lower sets the mark durably.
func (t *tailMark) lower(last uint64) error {
	if err := t.set(last); err != nil {
		return err
	}
	if err := t.f.Sync(); err != nil {
		return fmt.Errorf("raftstore: sync %s: %w", t.f.Name(), err)
	}
	return nil
}

func (t *tailMark) close() error { return errors.Join(t.f.Sync(), t.f.Close()) }
