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
// It is filled with zeros when it is created: a sync of blocks that were written before
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
// has all their entries the next record is written at the start again; the rest of the
// file still holds records of earlier rounds, whose entries bolt has. Clients do not know
// the salt, so nothing they send looks like a record.
//
// Whole blocks are written, past the page cache where the file system can do so: that
// saves a copy, and a walk through the cache at each sync. A block that has the end of one
// record and the start of the next is written twice, the second time with the same bytes
// before the new ones.
type journal struct {
	f    *os.File
	salt []byte // begins every checksum of a record
	end  int64  // where the next record begins
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

// openJournal opens the journal at path and checks its header. Unless readOnly it creates a missing file,
// and makes durable what is in it. Call load next.
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
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	j := &journal{f: f, buf: blocks(journalMost + 2*journalBlock)}
	err = j.readHeader()
	if err == nil && !readOnly { // a killed process may have left records that it did not sync
		err = datasync(f)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return j, nil
}

// createJournal creates a journal without records, with a new salt.
func createJournal(path string) error {
	file := make([]byte, journalBytes)
	copy(file, journalMagic)
	// The salt is random: producers, who choose what entries hold, do not know it.
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

// readHeader checks the file's size and header, and reads the salt.
func (j *journal) readHeader() error {
	info, err := j.f.Stat()
	if err != nil {
		return fmt.Errorf("open %s: %w", j.f.Name(), err)
	}
	if info.Size() != journalBytes {
		return damaged(j.f.Name(), fmt.Sprintf("it has %d bytes of %d", info.Size(), journalBytes))
	}
	// A direct read needs aligned memory and a whole block.
	head := blocks(journalHeader)
	if _, err := j.f.ReadAt(head, 0); err != nil {
		return damaged(j.f.Name(), err.Error())
	}
	switch {
	case string(head[:len(journalMagic)]) != journalMagic:
		return damaged(j.f.Name(), "it is not a journal")
	case binary.LittleEndian.Uint32(head[journalSummed:]) != crc32.Checksum(head[:journalSummed], crcTable()):
		return damaged(j.f.Name(), "its checksum differs")
	}
	j.salt = head[len(journalMagic):journalSummed]
	return nil
}

// load returns the journal's entries after last, the last index of bolt. Nothing can be
// appended until bolt has them and rewind or clear was called.
func (j *journal) load(last uint64) ([]*raft.Log, error) {
	j.end, j.used = journalBytes, journalBytes
	raw := blocks(journalBytes - journalHeader)
	if _, err := j.f.ReadAt(raw, journalHeader); err != nil && err != io.EOF {
		return nil, damaged(j.f.Name(), err.Error())
	}

	// The round ends before a record that is torn, or that does not follow the one before
	// because it is of an earlier round.
	var logs []*raft.Log
	for {
		record, size := j.record(raw)
		if size == 0 || (len(logs) > 0 && record[0].Index != logs[len(logs)-1].Index+1) {
			break
		}
		logs, raw = append(logs, record...), raw[size:]
	}

	// Bolt may have the first entries already; the rest must follow what bolt has.
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

// checkEnd searches raw, the bytes after the last record, for a record of entry next or a
// later one. If there is one, the bytes before it are damage and not a torn write: a record
// is only written once the one before is synced.
func (j *journal) checkEnd(raw []byte, next uint64) error {
	for {
		// A torn record may end anywhere, so each occurrence of the magic is tried.
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

// append writes the entries as one record and returns once it is durable. The caller checks that they fit.
func (j *journal) append(logs []*raft.Log) error {
	// The first block begins with bytes that are written already; the record follows them.
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

// inBlocks rounds a size up to whole blocks.
func inBlocks(size int) int { return (size + journalBlock - 1) / journalBlock * journalBlock }

// blocks returns size zeroed bytes that begin at a multiple of the block size, as direct I/O requires.
func blocks(size int) []byte {
	b := make([]byte, size+journalBlock)
	skip := -int(uintptr(unsafe.Pointer(unsafe.SliceData(b)))) & (journalBlock - 1)
	return b[skip : skip+size : skip+size]
}

// write writes whole blocks at a multiple of the block size, and syncs them.
func (j *journal) write(b []byte, at int64) error {
	if _, err := j.f.WriteAt(b, at); err != nil {
		return err
	}
	return datasync(j.f)
}

// fits reports whether there is room for a record of size bytes before the end of the file.
func (j *journal) fits(size int) bool { return j.end+int64(size) <= journalBytes }

// rewind makes the next record begin at the start again. Bolt must have the entries of all records. The old
// records stay until they are overwritten.
func (j *journal) rewind() { j.end = journalHeader }

// clear durably overwrites all records with zeros. It has to come before bolt deletes entries that they hold.
func (j *journal) clear() error {
	if j.used > journalHeader {
		if err := j.write(blocks(inBlocks(int(j.used-journalHeader))), journalHeader); err != nil {
			return err
		}
	}
	j.end, j.used = journalHeader, journalHeader
	return nil
}

// sum is the checksum of a record's bytes b, after the salt.
func (j *journal) sum(b []byte) uint32 {
	return crc32.Update(crc32.Checksum(j.salt, crcTable()), crcTable(), b)
}

// record decodes the record that raw begins with; size is its bytes, 0 if raw begins with no whole record.
// The entries share the memory of raw.
func (j *journal) record(raw []byte) (logs []*raft.Log, size int) {
	if len(raw) < recordFrame || string(raw[:len(recordMagic)]) != recordMagic {
		return nil, 0
	}
	// The size is not covered yet, so it may be any number.
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

// recordSize is the bytes of a record with these entries.
func recordSize(logs []*raft.Log) int {
	size := recordFrame
	for _, l := range logs {
		size += entryFixed + len(l.Extensions) + len(l.Data)
	}
	return size
}

// appendEntry appends an entry's encoding to b.
func appendEntry(b []byte, l *raft.Log) []byte {
	b = appendFixed(b, l, len(l.Extensions))
	b = binary.LittleEndian.AppendUint32(b, uint32(len(l.Data)))
	return append(append(b, l.Extensions...), l.Data...)
}

// readEntry decodes the entry that b begins with. The entry shares the memory of b.
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
	// Both sizes have 32 bits: the sum does not overflow.
	if n+m > uint64(len(b)) {
		return nil, nil, false
	}
	l.Extensions, l.Data = b[:n:n], b[n:n+m:n+m]
	return l, b[n+m:], true
}

func (j *journal) close() error { return j.f.Close() }
