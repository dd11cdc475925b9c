package raftstore

import (
	"fmt"
	"testing"

	"github.com/hashicorp/raft"
)

// BenchmarkStoreLogs stores batches as a busy leader does, few large frames, a batch of 256 events, and what one
// caller sends.
func BenchmarkStoreLogs(b *testing.B) {
	for _, c := range []struct{ entries, size int }{
		{16, 256 << 10},
		{64, 64 << 10},
		{1, 64 << 10},
		{1, 20 << 10},
		{1, 1 << 10},
	} {
		b.Run(fmt.Sprintf("%dx%dKiB", c.entries, c.size>>10), func(b *testing.B) { benchStoreLogs(b, c.entries, c.size) })
	}
}

func benchStoreLogs(b *testing.B, count, size int) {
	s, err := Open(Options{Dir: b.TempDir(), Fatal: func(err error) { b.Error(err) }})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	data := make([]byte, size)
	for i := range data {
		data[i] = byte(i * 7)
	}
	b.SetBytes(int64(count * size))
	b.ReportAllocs()
	next := uint64(1)
	for b.Loop() {
		batch := make([]*raft.Log, count)
		for i := range batch {
			batch[i] = &raft.Log{Index: next, Term: 1, Data: data}
			next++
		}
		if err := s.Log().StoreLogs(batch); err != nil {
			b.Fatal(err)
		}
		if next > 2048 { // as compaction does, so the folder stays small
			if err := s.deletePrefix(next - 1025); err != nil {
				b.Fatal(err)
			}
		}
	}
}

func (s *Stores) deletePrefix(to uint64) error {
	first, _, err := s.log.span()
	if err != nil {
		return err
	}
	return s.log.DeleteRange(first, to)
}

// BenchmarkOpen opens a log of half a gigabyte, as a node does that starts again.
func BenchmarkOpen(b *testing.B) {
	const count, size = 6000, 90 << 10
	opts := Options{Dir: b.TempDir(), Fatal: func(err error) { b.Error(err) }}
	s, err := Open(opts)
	if err != nil {
		b.Fatal(err)
	}
	data := make([]byte, size)
	for i := uint64(1); i <= count; i += 4 {
		batch := make([]*raft.Log, 4)
		for j := range batch {
			batch[j] = &raft.Log{Index: i + uint64(j), Term: 1, Data: data}
		}
		if err := s.Log().StoreLogs(batch); err != nil {
			b.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		b.Fatal(err)
	}
	b.SetBytes(count * size)
	b.ReportAllocs()
	for b.Loop() {
		s, err := Open(opts)
		if err != nil {
			b.Fatal(err)
		}
		if err := s.Close(); err != nil {
			b.Fatal(err)
		}
	}
}
