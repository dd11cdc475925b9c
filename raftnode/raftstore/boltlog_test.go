package raftstore

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
)

func largeEntry(index uint64, size int) *raft.Log {
	l := entry(index, 1)
	l.Data = bytes.Repeat(fmt.Appendf(nil, "%d|", index), size/2+1)[:size:size]
	if size == 0 {
		l.Data = nil
	}
	return l
}

// pieceSizes are where one piece becomes two and more.
func pieceSizes() []int {
	return []int{
		0,
		1,
		pieceBytes - 1,
		pieceBytes,
		pieceBytes + 1,
		2*pieceBytes - 1,
		2 * pieceBytes,
		2*pieceBytes + 1,
		1 << 20,
	}
}

// TestLargeEntriesComeBackWhole stores entries around the sizes at which they are
// cut, alone and together, and takes both ends of the log away.
func TestLargeEntriesComeBackWhole(t *testing.T) {
	dir := t.TempDir()
	s := openUnmanaged(t, dir)
	var logs []*raft.Log
	for i, size := range append(pieceSizes(), pieceSizes()...) {
		logs = append(logs, largeEntry(uint64(i+1), size))
	}
	alone := len(pieceSizes())
	for _, l := range logs[:alone] {
		if err := s.Log().StoreLog(l); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Log().StoreLogs(logs[alone:]); err != nil {
		t.Fatal(err)
	}
	closeStores(t, s)
	s = openStores(t, dir)
	for _, l := range logs {
		wantEntry(t, s, l)
	}
	last := uint64(len(logs))
	for _, cut := range [][2]uint64{{1, 5}, {last - 4, last}} {
		if err := s.Log().DeleteRange(cut[0], cut[1]); err != nil {
			t.Fatal(err)
		}
	}
	first, end, err := s.log.span()
	if err != nil || first != 6 || end != last-5 {
		t.Fatalf("log is %d to %d (%v)", first, end, err)
	}
	for _, l := range logs[5 : last-5] {
		wantEntry(t, s, l)
	}
}

// TestAMissingPieceIsNoEntry takes pieces out of the file: from the
// middle or the start of an entry, which is a hole, and from the end of one, which
// is an entry with another checksum.
func TestAMissingPieceIsNoEntry(t *testing.T) {
	for _, c := range []struct {
		index uint64
		piece int
		want  error
	}{{7, 0, ErrDamaged}, {7, 1, ErrDamaged}, {7, 5, ErrCorruptEntry}} {
		dir := t.TempDir()
		s := openUnmanaged(t, dir)
		var logs []*raft.Log // more than goes into the journal
		for i := range uint64(9) {
			logs = append(logs, largeEntry(i+1, 5*pieceBytes+10))
		}
		if err := s.Log().StoreLogs(logs); err != nil {
			t.Fatal(err)
		}
		closeStores(t, s)
		raw, err := raftboltdb.NewBoltStore(logFile(dir))
		if err != nil {
			t.Fatal(err)
		}
		key := pieceKey(c.index, c.piece)
		if err := raw.DeleteRange(key, key); err != nil {
			t.Fatal(err)
		}
		raw.Close()
		s, err = Open(Options{Dir: dir, Fatal: func(error) {}})
		if err == nil {
			err = s.Log().GetLog(c.index, new(raft.Log))
			s.Close()
		}
		wantError(t, err, c.want)
		if !strings.Contains(err.Error(), fmt.Sprintf("entry %d", c.index)) {
			t.Errorf("%v does not name entry %d", err, c.index)
		}
	}
}

// TestAnAppendWritesLittleMoreThanItsEntry counts the bytes of the pages that bolt
// takes for appends of one large entry each.
func TestAnAppendWritesLittleMoreThanItsEntry(t *testing.T) {
	log, err := openBolt(t.TempDir()+"/raft.db", false, &sizes{})
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	const count, size = 200, 100 << 10
	for i := range uint64(count) {
		if err := log.StoreLogs([]*raft.Log{largeEntry(i+1, size)}); err != nil {
			t.Fatal(err)
		}
	}
	stats := log.store.Stats().TxStats
	written := float64(stats.GetPageAlloc()) / (count * size)
	t.Logf("%.2f bytes written for a byte stored", written)
	if written > 1.5 { // uncut it is 4.6
		t.Errorf("%.2f bytes written for a byte stored", written)
	}
}

// TestALogOfPlainIndexesIsRefused opens a log as raft-boltdb alone writes it.
func TestALogOfPlainIndexesIsRefused(t *testing.T) {
	dir := t.TempDir()
	closeStores(t, openUnmanaged(t, dir))
	raw, err := raftboltdb.NewBoltStore(logFile(dir))
	if err != nil {
		t.Fatal(err)
	}
	sealed := seal(entry(1, 1))
	if err := errors.Join(raw.StoreLog(&sealed), raw.Close()); err != nil {
		t.Fatal(err)
	}
	_, err = Open(Options{Dir: dir, Fatal: func(error) {}})
	wantError(t, err, ErrDamaged)
	_, err = OpenReadOnly(dir)
	wantError(t, err, ErrDamaged)
}
