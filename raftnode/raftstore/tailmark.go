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

// tailFile is in the raft folder.
const tailFile = "tail"

// tailMark remembers the last index that was stored. A log that lost its end
// looks like one that never had it: the journal takes a damaged last record for a
// torn write, and bolt believes a page that counts fewer entries than it has. The mark shows it.
//
// Raising the mark is not synced, so it costs microseconds; it happens after
// the entries are durable. Lowering it is synced, and happens before they are
// deleted. So what survives a crash is at most what the log has, and after a crash
// of the process alone it is exact. One that cannot be read is no mark.
//
//	+------------+--------------+----------------------+
//	| "RLTM" 4   | last 8, LE   | CRC-32C of both 4, LE|
//	+------------+--------------+----------------------+
type tailMark struct {
	f *os.File

	mu   sync.Mutex
	last uint64
}

const (
	tailMagic = "RLTM"
	tailSize  = len(tailMagic) + 8 + 4
)

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

func encodeTail(last uint64) []byte {
	buf := binary.LittleEndian.AppendUint64([]byte(tailMagic), last)
	return binary.LittleEndian.AppendUint32(buf, crc32.Checksum(buf, crcTable()))
}

// decodeTail returns 0 for what is no mark.
func decodeTail(buf []byte) uint64 {
	last := binary.LittleEndian.Uint64(buf[len(tailMagic):])
	if string(encodeTail(last)) != string(buf) {
		return 0
	}
	return last
}

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
