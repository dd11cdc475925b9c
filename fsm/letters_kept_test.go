package fsm

import (
	"testing"
	"time"

	"github.com/ringrift/ringlog/internal/frame"
)

// keep returns the request that keeps the event of a handler without a cursor. Requests with the same number have the
// same origin.
func keep(n int) request {
	copied := ev(n)
	return do(frame.LetterKeep{Origin: [frame.OriginSize]byte{1, byte(n), byte(n >> 8)}, From: "p1",
		Letter: frame.DeadLetter{Cursor: "live.h", Handler: "h", Error: "e", Event: frame.EncodeCopy(&copied)}})
}

// letterKeys returns how many keys there are of letters, of any kind.
func letterKeys(t *testing.T, m *Machine) (n int) {
	t.Helper()
	for _, prefix := range []byte{prefixLetter, prefixCopy, prefixLetterIndex} {
		err := scanKeys(m.db, []byte{prefix}, []byte{prefix + 1}, func([]byte, []byte) error { n++; return nil })
		if err != nil {
			t.Fatal(err)
		}
	}
	return n
}

// Whatever ends a kept letter, nothing is left of it: handlers may fail for years. The same holds where the node was
// opened again or took a snapshot while the letters were there.
func TestNothingIsLeftOfKeptLetters(t *testing.T) {
	if testing.Short() {
		t.Skip("one goroutine, whose bytes are counted")
	}
	const letters = 10_000
	ids := make([]uint64, letters)
	for i := range ids {
		ids[i] = uint64(i + 1)
	}
	steps := func(of func(ids []uint64) frame.Command) (requests []request) {
		for from := 0; from < letters; from += frame.MaxLetters {
			requests = append(requests, do(of(ids[from:min(from+frame.MaxLetters, letters)])))
		}
		return requests
	}
	purge := func(ids []uint64) frame.Command { return frame.Purge{Letters: ids} }
	redrive := func(ids []uint64) frame.Command { return frame.Redrive{Letters: ids} }
	commit := frame.CursorCommit{Name: "live.h", Generation: 1}
	ends := map[string]func(n *node){
		"purged": func(n *node) { n.decide(steps(purge)...) },
		"too old": func(n *node) {
			n.decide(do(frame.SettingSet{Key: "dlq.max_age", Value: "1h"}))
			n.at = n.at.Add(2 * time.Hour)
			for range letters/maxAgedOut + 1 {
				n.decide(publish(ev(0)))
			}
		},
		"handled": func(n *node) {
			n.decide(do(frame.CursorCreate{Name: "live.h"}), do(frame.CursorOpen{Name: "live.h"}))
			n.decide(steps(redrive)...)
			reload(t, n.m)
			_, commit.Offset = n.m.Log().Bounds()
			n.decide(do(commit))
		},
	}
	for name, end := range ends {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			n.decide(do(frame.TermStart{ClusterID: "c"}),
				do(frame.MemberPut{Member: frame.Member{ID: "n1", FeatureLevel: FeatureLevel}}))
			var kept []request
			for i := range letters {
				kept = append(kept, keep(i))
			}
			n.decide(kept...)
			if got := n.m.Stats().Letters.Count; got != letters {
				t.Fatalf("%d letters", got)
			}
			reload(t, n.m)
			end(n)
			if keys, left := letterKeys(t, n.m), n.m.Stats().Letters.Count; keys != 0 || left != 0 {
				t.Errorf("%d letters and %d keys are left", left, keys)
			}
		})
	}
}

// A request that is repeated while its letter is there, dead or under way, keeps nothing more. After the letter is gone
// it keeps the event again. What was imported stays out for ever.
func TestALetterIsKeptOnceWhileItIsThere(t *testing.T) {
	n := newNode(t)
	n.decide(do(frame.TermStart{ClusterID: "c"}),
		do(frame.MemberPut{Member: frame.Member{ID: "n1", FeatureLevel: FeatureLevel}}),
		do(frame.CursorCreate{Name: "live.h"}))
	copied := ev(9)
	imported := do(frame.LetterImport{Letters: []frame.ImportedLetter{{Origin: [frame.OriginSize]byte{9},
		Event: frame.EncodeCopy(&copied)}}})
	want := func(what string, r Result, done int, id uint64) {
		t.Helper()
		if r.Letters == nil || r.Letters.Done != done || r.Letters.First != id || r.Letters.Skipped != 1-done {
			t.Errorf("%s: %+v, want %d letters, the first of them %d", what, r.Letters, done, id)
		}
	}
	first := n.decide(keep(1), keep(1), imported)
	want("the first", first[0], 1, 1)
	want("again in the same entry", first[1], 0, 0)
	want("imported", first[2], 1, 2)
	want("in the next entry", n.decide(keep(1))[0], 0, 0)
	reload(t, n.m)
	want("after a restart", n.decide(keep(1))[0], 0, 0)
	n.decide(do(frame.Redrive{Letters: []uint64{1}}))
	want("while it is under way", n.decide(keep(1))[0], 0, 0)
	n.decide(do(frame.CursorDelete{Name: "live.h"}))

	purged := n.decide(do(frame.Purge{Letters: []uint64{1, 2}}), keep(1), keep(1), imported)
	if purged[0].Letters.Done != 2 {
		t.Fatalf("%+v", purged[0].Letters)
	}
	want("after the purge", purged[1], 1, 3)
	want("again after the purge", purged[2], 0, 0)
	want("imported again after the purge", purged[3], 0, 0)
}
