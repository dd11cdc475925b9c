package raftstore

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/hashicorp/raft-wal/segment"

	"github.com/ringrift/ringlog/raftnode/datadir"
)

// TestAStartFinishesASeal has a process end after it wrote the batch that fills a segment, and before the list of
// segments said so. Of the batch all is on disk, or not all.
func TestAStartFinishesASeal(t *testing.T) {
	for name, change := range map[string]func([]byte) []byte{
		"whole": func(raw []byte) []byte { return raw },
		"torn": func(raw []byte) []byte {
			index := bytes.Index(raw, []byte{segment.FrameIndex, 0, 0, 0, 180 * 4 & 0xff, 180 * 4 >> 8, 0, 0})
			clear(raw[index+8 : index+8+50*4])
			return breakEntry(raw, entry(150, 4))
		},
		"without its commit": func(raw []byte) []byte {
			used := len(bytes.TrimRight(raw, "\x00"))
			clear(raw[(used-1)/8*8:])
			return raw
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			s := openStores(t, dir, WAL)
			store(t, s, 1, 100, 4)
			for i := uint64(101); i <= 180; i += 10 {
				store(t, s, i, i+9, 4)
			}
			if err := s.log.inner.(*journaledLog).flush(nil); err != nil {
				t.Fatal(err)
			}
			for wal := filepath.Join(dir, datadir.WALDir); ; time.Sleep(time.Millisecond) {
				if found, err := segmentFiles(wal); err != nil {
					t.Fatal(err)
				} else if len(found) == 2 {
					break
				}
			}
			crashed := copyDir(t, dir)
			rewrite(t, takeSealBack(t, filepath.Join(crashed, datadir.WALDir)), change)

			r, err := OpenReadOnly(crashed, WAL)
			if err != nil {
				t.Fatal(err)
			}
			next := uint64(1)
			for l, err := range r.Entries(1, 1<<40) {
				if err != nil || l.Index != next {
					t.Fatalf("entry %d, %v; want %d", l.Index, err, next)
				}
				next++
			}
			if err := r.Close(); err != nil || next != 181 {
				t.Fatalf("read up to %d, %v", next, err)
			}
			for last := uint64(180); last < 200; last += 10 { // again, with a tail that was made by the start
				s := openStores(t, crashed, WAL)
				wantSpan(t, s, 1, last, 4)
				store(t, s, last+1, last+10, 4)
				if err := s.log.inner.(*journaledLog).flush(nil); err != nil {
					t.Fatal(err)
				}
				crashed = copyDir(t, crashed)
			}
			wantSpan(t, openStores(t, crashed, WAL), 1, 200, 4)
		})
	}
}

// takeSealBack takes the newest seal back in a list of segments, and returns the file it is of.
func takeSealBack(t *testing.T, wal string) string {
	r, state, err := openSegments(wal, false)
	if err != nil || len(state.Segments) != 2 || state.Segments[0].SealTime.IsZero() {
		t.Fatalf("segments are %+v, %v", state.Segments, err)
	}
	first := &state.Segments[0]
	first.SealTime, first.MaxIndex, first.IndexStart = time.Time{}, 0, 0
	state.Segments, state.NextSegmentID = state.Segments[:1], state.Segments[1].ID
	if err := errors.Join((&walMeta{record: r}).CommitState(state), r.close()); err != nil {
		t.Fatal(err)
	}
	files, err := segmentFiles(wal)
	if err := errors.Join(err, os.Remove(files[1])); err != nil {
		t.Fatal(err)
	}
	return files[0]
}
