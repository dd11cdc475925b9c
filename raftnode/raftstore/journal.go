package raftstore

import (
	"bytes"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"time"
	"unsafe"

	"github.com/hashicorp/raft"
)

// journal is a file of fixed size with the entries that the store behind it has not yet.
// It is written with zeros when it is made: a sync of blocks that were written before
// is one write of the disk. Integers are little-endian.
//
//	file:     +----------+---------+----------+---------------+--------+--------+ - - -
//	          | "RLJ1" 4 | salt 16 | CRC-32C 4| zeros to 4096 | record | record |
//	          +----------+---------+----------+---------------+--------+--------+ - - -
//
//	record:   +----------+--------+-----------+----------+
//	          | "RLJR" 4 | size 4 | entries   | CRC-32C 4|    over salt and all before it
//	          |          |        | size bytes|          |
//	          +----------+--------+-----------+----------+
//
//	entry:    Index 8 | Term 8 | Type 1 | AppendedAt s 8, ns 4 | n 4 | m 4 | Extensions n | Data m
//
// Records are written one after the other, each once the one before is synced. Once all
// are in the store the next one begins at the start again; behind it stand what is
// left of old ones, whose entries the store has. The salt, which nobody outside
// knows, keeps what a client sends from looking like a record.
//
// Whole blocks are written, past the page cache where the file system can do so: that
// spares a copy and a look through the cache at each sync. A block that has the end of one
// record and the start of the next is written again with the same bytes before.
type journal struct {
	f    *os.File
	path string
	salt []byte
	end  int64  // where the next record goes
	used int64  // behind it are zeros
	buf  []byte // blocks; it begins with the one that end is in
}

const (
	journalBytes  = 1 << 20
	journalBlock  = 4096
	journalHeader = journalBlock

	journalMagic  = "RLJ1"
	journalSummed = len(journalMagic) + 16

	recordMagic = "RLJR"
	recordFrame = len(recordMagic) + 4 + 4
	entryFixed  = fixedSize + 4
)

// openJournal opens the journal at path.
func openJournal(path string, readOnly bool) (*journal, error) {
	open := openDirect
	if readOnly {
		open = os.Open
	}
	f, err := open(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, damaged(path, "it is missing")
	}
	if err != nil {
		return nil, fmt.Errorf("raftstore: open %s: %w", path, err)
	}
	j := &journal{f: f, path: path, buf: blocks(journalMost + 2*journalBlock)}
	err = j.readHeader()
	if err == nil && !readOnly { // a process that was killed had perhaps not synced its records
		err = datasync(f)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return j, nil
}

// createJournal makes one without entries.
func createJournal(path string) error {
	file := make([]byte, journalBytes)
	copy(file, journalMagic)
	if _, err := rand.Read(file[len(journalMagic):journalSummed]); err != nil {
		return err
	}
	binary.LittleEndian.PutUint32(file[journalSummed:], crc32.Checksum(file[:journalSummed], crcTable()))
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(file)
	return errors.Join(err, f.Sync(), f.Close())
}

func (j *journal) readHeader() error {
	info, err := j.f.Stat()
	if err != nil {
		return fmt.Errorf("raftstore: open %s: %w", j.path, err)
	}
	if info.Size() != journalBytes {
		return damaged(j.path, fmt.Sprintf("it has %d bytes of %d", info.Size(), journalBytes))
	}
	head := blocks(journalHeader)
	if _, err := j.f.ReadAt(head, 0); err != nil {
		return damaged(j.path, err.Error())
	}
	switch {
	case string(head[:len(journalMagic)]) != journalMagic:
		return damaged(j.path, "it is no journal")
	case binary.LittleEndian.Uint32(head[journalSummed:]) != crc32.Checksum(head[:journalSummed], crcTable()):
		return damaged(j.path, "its checksum differs")
	}
	j.salt = head[len(journalMagic):journalSummed]
	return nil
}

// load returns the entries behind last, with which the store ends. Nothing fits in
// before the store has them and rewind or clear was called.
func (j *journal) load(last uint64) ([]*raft.Log, error) {
	j.end, j.used = journalBytes, journalBytes
	raw := blocks(journalBytes - journalHeader)
	if _, err := j.f.ReadAt(raw, journalHeader); err != nil && err != io.EOF {
		return nil, damaged(j.path, err.Error())
	}
	var pending []*raft.Log
	next := last + 1
	at, before := 0, uint64(0)
	for {
		logs, size := j.record(raw[at:])
		if size == 0 || before > 0 && logs[0].Index != before+1 { // torn, or of a round before
			break
		}
		at, before = at+size, logs[len(logs)-1].Index
		for _, l := range logs {
			switch {
			case l.Index < next && len(pending) == 0: // stored since
			case l.Index == next:
				pending, next = append(pending, l), l.Index+1
			default:
				return nil, damaged(j.path, fmt.Sprintf("entries %d to %d are missing before it", next, l.Index-1))
			}
		}
	}
	return pending, j.nothingLost(raw[at:], next)
}

// nothingLost looks behind the last record for one that was written after it: then what
// stands between is no write that was cut off, but damage.
func (j *journal) nothingLost(raw []byte, next uint64) error {
	for {
		at := bytes.Index(raw, []byte(recordMagic))
		if at < 0 {
			return nil
		}
		raw = raw[at:]
		if logs, size := j.record(raw); size > 0 && logs[0].Index >= next {
			return damaged(j.path, fmt.Sprintf("entry %d can not be read, entry %d can", next, logs[0].Index))
		}
		raw = raw[len(recordMagic):]
	}
}

// append makes the entries durable.
func (j *journal) append(logs []*raft.Log) error {
	before := int(j.end % journalBlock)
	b := append(j.buf[before:before], recordMagic...)
	b = append(b, 0, 0, 0, 0)
	for _, l := range logs {
		b = appendEntry(b, l)
	}
	binary.LittleEndian.PutUint32(b[len(recordMagic):], uint32(len(b)-len(recordMagic)-4))
	b = binary.LittleEndian.AppendUint32(b, j.sum(b))
	end := before + len(b)
	written := inBlocks(end)
	clear(j.buf[end:written])
	if err := j.write(j.buf[:written], j.end-int64(before)); err != nil {
		return err
	}
	j.end += int64(len(b))
	j.used = max(j.used, j.end)
	copy(j.buf[:journalBlock], j.buf[end-end%journalBlock:])
	return nil
}

// inBlocks rounds a size up.
func inBlocks(size int) int { return (size + journalBlock - 1) / journalBlock * journalBlock }

// blocks returns memory for size bytes that begins at a block of memory, as direct writes want it.
func blocks(size int) []byte {
	b := make([]byte, size+journalBlock)
	skip := -int(uintptr(unsafe.Pointer(unsafe.SliceData(b)))) & (journalBlock - 1)
	return b[skip : skip+size : skip+size]
}

func (j *journal) write(b []byte, at int64) error {
	if _, err := j.f.WriteAt(b, at); err != nil {
		return err
	}
	return datasync(j.f)
}

// fits reports whether a record of that size has room.
func (j *journal) fits(size int) bool { return j.end+int64(size) <= journalBytes }

// rewind forgets the records: the store has their entries.
func (j *journal) rewind() { j.end = journalHeader }

// clear removes the records, before the store loses entries that they hold.
func (j *journal) clear() error {
	if j.used > journalHeader {
		if err := j.write(blocks(inBlocks(int(j.used-journalHeader))), journalHeader); err != nil {
			return err
		}
	}
	j.end, j.used = journalHeader, journalHeader
	return nil
}

func (j *journal) sum(b []byte) uint32 {
	return crc32.Update(crc32.Checksum(j.salt, crcTable()), crcTable(), b)
}

// record reads the one that raw begins with; size is 0 where there is none.
func (j *journal) record(raw []byte) (logs []*raft.Log, size int) {
	if len(raw) < recordFrame || string(raw[:len(recordMagic)]) != recordMagic {
		return nil, 0
	}
	n := uint64(binary.LittleEndian.Uint32(raw[len(recordMagic):]))
	if n > uint64(min(len(raw), journalMost)-recordFrame) {
		return nil, 0
	}
	summed := recordFrame - 4 + int(n)
	if binary.LittleEndian.Uint32(raw[summed:]) != j.sum(raw[:summed]) {
		return nil, 0
	}
	for b := raw[recordFrame-4 : summed]; len(b) > 0; {
		l, rest, ok := readEntry(b)
		if !ok {
			return nil, 0
		}
		logs, b = append(logs, l), rest
	}
	if len(logs) == 0 {
		return nil, 0
	}
	return logs, recordFrame + int(n)
}

func recordSize(logs []*raft.Log) int {
	size := recordFrame
	for _, l := range logs {
		size += entryFixed + len(l.Extensions) + len(l.Data)
	}
	return size
}

func appendEntry(b []byte, l *raft.Log) []byte {
	b = appendFixed(b, l, len(l.Extensions))
	b = binary.LittleEndian.AppendUint32(b, uint32(len(l.Data)))
	return append(append(b, l.Extensions...), l.Data...)
}

func readEntry(b []byte) (l *raft.Log, rest []byte, ok bool) {
	if len(b) < entryFixed {
		return nil, nil, false
	}
	le := binary.LittleEndian
	l = &raft.Log{Index: le.Uint64(b), Term: le.Uint64(b[8:]), Type: raft.LogType(b[16]),
		AppendedAt: time.Unix(int64(le.Uint64(b[17:])), int64(le.Uint32(b[25:]))).UTC()} // bolt can not store a time of every zone
	n, m := uint64(le.Uint32(b[29:])), uint64(le.Uint32(b[33:]))
	if b = b[entryFixed:]; n+m > uint64(len(b)) {
		return nil, nil, false
	}
	l.Extensions, l.Data = b[:n:n], b[n:n+m:n+m]
	return l, b[n+m:], true
}

func (j *journal) close() error { return j.f.Close() }
