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

// journal is a file of fixed size with the entries that bolt does not have yet.
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
// Records are written one after the other, each once the one before is synced. Once bolt
// has all their entries the next record begins at the start again; after it comes what
// is left of an earlier round, whose entries bolt has. The salt, which nobody outside
// knows, keeps what a client sends from looking like a record.
//
// Whole blocks are written, past the page cache where the file system can do so: that
// saves a copy and a look through the cache at each sync. A block that has the end of one
// record and the start of the next is written again with the same bytes before.
type journal struct {
	f    *os.File
	salt []byte
	end  int64  // where the next record goes
	used int64  // after it there are only zeros; end <= used
	buf  []byte // blocks; the first is the one that end is in, up to end
}

const (
	journalBytes  = 1 << 20
	journalBlock  = 4096
	journalHeader = journalBlock

	journalMagic  = "RLJ1"
	journalSummed = len(journalMagic) + 16

	recordMagic = "RLJR"
	recordHead  = len(recordMagic) + 4
	recordFrame = recordHead + 4
	entryFixed  = fixedSize + 4
)

// openJournal opens the journal at path. Unless readOnly it creates a missing file.
func openJournal(path string, readOnly bool) (*journal, error) {
	open := os.Open
	if !readOnly {
		open = openDirect
		if err := createFile(path, createJournal); err != nil {
			return nil, err
		}
	}
	f, err := open(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, damaged(path, "it is missing")
	}
	if err != nil {
		return nil, fmt.Errorf("raftstore: open %s: %w", path, err)
	}
	j := &journal{f: f, buf: blocks(journalMost + 2*journalBlock)}
	err = j.readHeader()
	if err == nil && !readOnly { // a process that was killed may not have synced its records
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
		return fmt.Errorf("raftstore: open %s: %w", j.f.Name(), err)
	}
	if info.Size() != journalBytes {
		return damaged(j.f.Name(), fmt.Sprintf("it has %d bytes of %d", info.Size(), journalBytes))
	}
	head := blocks(journalHeader)
	if _, err := j.f.ReadAt(head, 0); err != nil {
		return damaged(j.f.Name(), err.Error())
	}
	switch {
	case string(head[:len(journalMagic)]) != journalMagic:
		return damaged(j.f.Name(), "it is no journal")
	case binary.LittleEndian.Uint32(head[journalSummed:]) != crc32.Checksum(head[:journalSummed], crcTable()):
		return damaged(j.f.Name(), "its checksum differs")
	}
	j.salt = head[len(journalMagic):journalSummed]
	return nil
}

// load returns the entries after last, with which bolt ends. Nothing can be appended
// until bolt has them and rewind or clear was called.
func (j *journal) load(last uint64) ([]*raft.Log, error) {
	j.end, j.used = journalBytes, journalBytes
	raw := blocks(journalBytes - journalHeader)
	if _, err := j.f.ReadAt(raw, journalHeader); err != nil && err != io.EOF {
		return nil, damaged(j.f.Name(), err.Error())
	}

	// The round ends with a record that is torn, or that does not follow the one
	// before, because it is of an earlier round.
	var logs []*raft.Log
	for {
		record, size := j.record(raw)
		if size == 0 || (len(logs) > 0 && record[0].Index != logs[len(logs)-1].Index+1) {
			break
		}
		logs, raw = append(logs, record...), raw[size:]
	}

	// Bolt has got the first entries since; the rest must follow what bolt has.
	next := last + 1
	for len(logs) > 0 && logs[0].Index < next {
		logs = logs[1:]
	}
	for _, l := range logs {
		if l.Index != next {
			return nil, damaged(j.f.Name(), fmt.Sprintf("entries %d to %d are missing before it", next, l.Index-1))
		}
		next++
	}
	return logs, j.checkEnd(raw, next)
}

// checkEnd looks in raw, which follows the last record, for one that was written later:
// then what is between them is no torn write, but damage.
func (j *journal) checkEnd(raw []byte, next uint64) error {
	for {
		at := bytes.Index(raw, []byte(recordMagic))
		if at < 0 {
			return nil
		}
		raw = raw[at:]
		if logs, size := j.record(raw); size > 0 && logs[0].Index >= next {
			return damaged(j.f.Name(), fmt.Sprintf("entry %d cannot be read, entry %d can", next, logs[0].Index))
		}
		raw = raw[len(recordMagic):]
	}
}

// append makes the entries durable. The caller checks that they fit.
func (j *journal) append(logs []*raft.Log) error {
	// The record comes after what the first block already has.
	start := int(j.end % journalBlock)
	b := append(j.buf[start:start], recordMagic...)
	b = append(b, 0, 0, 0, 0) // its size, known below
	for _, l := range logs {
		b = appendEntry(b, l)
	}
	binary.LittleEndian.PutUint32(b[len(recordMagic):], uint32(len(b)-recordHead))
	b = binary.LittleEndian.AppendUint32(b, j.sum(b))

	// The rest of the last block is zeros.
	end := start + len(b)
	written := inBlocks(end)
	clear(j.buf[end:written])
	if err := j.write(j.buf[:written], j.end-int64(start)); err != nil {
		return err
	}

	// The next record begins in the block with which this one ends.
	j.end += int64(len(b))
	j.used = max(j.used, j.end)
	copy(j.buf[:journalBlock], j.buf[end-end%journalBlock:])
	return nil
}

// inBlocks rounds a size up.
func inBlocks(size int) int { return (size + journalBlock - 1) / journalBlock * journalBlock }

// blocks returns memory for size bytes that begins at a block of memory, as direct writes require.
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

// fits reports whether there is room for a record of that size.
func (j *journal) fits(size int) bool { return j.end+int64(size) <= journalBytes }

// rewind starts the journal again: bolt has the entries of its records.
func (j *journal) rewind() { j.end = journalHeader }

// clear removes the records, before bolt deletes entries that they hold.
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

// record decodes the record that raw begins with; size is 0 if there is none.
func (j *journal) record(raw []byte) (logs []*raft.Log, size int) {
	if len(raw) < recordFrame || string(raw[:len(recordMagic)]) != recordMagic {
		return nil, 0
	}
	n := uint64(binary.LittleEndian.Uint32(raw[len(recordMagic):]))
	if n > uint64(min(len(raw), journalMost)-recordFrame) {
		return nil, 0
	}
	summed := recordHead + int(n)
	if binary.LittleEndian.Uint32(raw[summed:]) != j.sum(raw[:summed]) {
		return nil, 0
	}
	for b := raw[recordHead:summed]; len(b) > 0; {
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
	l = &raft.Log{
		Index: le.Uint64(b), Term: le.Uint64(b[8:]), Type: raft.LogType(b[16]),
		// In UTC, because bolt's encoding cannot hold every time of every zone.
		AppendedAt: time.Unix(int64(le.Uint64(b[17:])), int64(le.Uint32(b[25:]))).UTC(),
	}
	n, m := uint64(le.Uint32(b[29:])), uint64(le.Uint32(b[33:]))
	b = b[entryFixed:]
	if n+m > uint64(len(b)) {
		return nil, nil, false
	}
	l.Extensions, l.Data = b[:n:n], b[n:n+m:n+m]
	return l, b[n+m:], true
}

func (j *journal) close() error { return j.f.Close() }
