package blackbox

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/ringrift/ringlog/internal/longtest"
)

// journals are the bytes of journals with different lives.
func journals(t *testing.T) map[string][]byte {
	lives := map[string]func(j *Journal){
		"appended":  func(j *Journal) {},
		"settled":   func(j *Journal) { settle(t, j, 11); add(t, j, sample(50)); add(t, j, sample(51)) },
		"compacted": nil,
	}
	out := make(map[string][]byte)
	for name, live := range lives {
		fs := vfs.NewMem()
		if live == nil {
			j := open(t, fs, 8<<10)
			for i := range 40 {
				add(t, j, sample(i))
			}
			settle(t, j, 20)
			for i := 40; i < 70; i++ {
				add(t, j, sample(i))
			}
		} else {
			j := open(t, fs, 0)
			for i := range 30 {
				add(t, j, sample(i))
			}
			live(j)
		}
		out[name] = content(t, fs)
	}
	return out
}

// usable opens what is left of a journal, and checks that it is a prefix of the
// whole one, at least the lines before the first touched byte, and continues.
func usable(t *testing.T, damaged []byte, whole []Record, wholeID string, atLeast int) {
	t.Helper()
	fs := holding(t, damaged)
	_, seen, readErr := read(fs, file)
	j := open(t, fs, 0)
	got := j.Records()
	if j.ID() != wholeID {
		if len(got) > 0 || !errors.Is(readErr, ErrDamaged) || !strings.Contains(j.Dropped(), file+".damaged") {
			t.Fatalf("a new journal has %d records, Read says %v, Dropped %q", len(got), readErr, j.Dropped())
		}
		aside, err := readFile(fs, file+".damaged")
		if err != nil || !bytes.Equal(aside, damaged) {
			t.Fatalf("what could not be read is gone: %v", err)
		}
	} else {
		if len(got) < atLeast || len(got) > len(whole) || readErr != nil {
			t.Fatalf("%d records of %d, at least %d are good; Read says %v", len(got), len(whole), atLeast, readErr)
		}
		same(t, "Open", got, whole[:len(got)])
		same(t, "Read", seen, got)
	}
	more := add(t, j, sample(99))
	again := open(t, fs, 0)
	same(t, "after an Append", again.Records(), append(got, more))
	if again.ID() != j.ID() || again.Dropped() != "" {
		t.Fatalf("reopened: id %s for %s, dropped %q", again.ID(), j.ID(), again.Dropped())
	}
}

// stride is the step from byte to byte; the long way is for runs that have time.
func stride() int {
	if !longtest.Enabled() {
		return 31
	}
	return 1
}

func TestAJournalCutAnywhereIsReadUpToTheCut(t *testing.T) {
	for name, raw := range journals(t) {
		t.Run(name, func(t *testing.T) {
			id, whole, err := read(holding(t, raw), file)
			if err != nil || len(whole) < 25 {
				t.Fatalf("%d records, %v", len(whole), err)
			}
			for cut := 0; cut <= len(raw); cut += stride() {
				lines := bytes.Count(raw[:cut], []byte("\n"))
				usable(t, raw[:cut], whole, id, lines-1)
				if t.Failed() {
					t.Fatalf("cut at %d", cut)
				}
			}
		})
	}
}

func TestAFlippedByteEndsTheReadingThere(t *testing.T) {
	for name, raw := range journals(t) {
		t.Run(name, func(t *testing.T) {
			id, whole, _ := read(holding(t, raw), file)
			for i := 0; i < len(raw); i += stride() {
				damaged := slices.Clone(raw)
				damaged[i] = []byte{raw[i] ^ 1<<(i%8), ^raw[i], raw[i] ^ 0x20, '\n'}[i%4]
				if damaged[i] == raw[i] {
					damaged[i] = 'x'
				}
				before := bytes.Count(raw[:i], []byte("\n")) - 1 // records
				if _, s, _, _ := decode(damaged); len(s.entries) != max(before, 0) {
					t.Fatalf("byte %d is %#x, was %#x: %d records are believed, %d are before it", i, damaged[i], raw[i],
						len(s.entries), before)
				}
				if i%5 == 0 {
					usable(t, damaged, whole, id, before)
				}
			}
		})
	}
}

// A seq that a lost record had was perhaps sent to the others already: were it used
// again, they would take the new record for the old one.
func TestASeqIsNeverUsedTwice(t *testing.T) {
	for name, raw := range journals(t) {
		t.Run(name, func(t *testing.T) {
			_, whole, _ := read(holding(t, raw), file)
			newest := whole[len(whole)-1].Seq
			header := bytes.IndexByte(raw, '\n') + 1
			for i := header; i < len(raw); i += 3 * stride() {
				damaged := slices.Clone(raw)
				damaged[i] ^= 0x55
				if r := add(t, open(t, holding(t, damaged), 0), sample(0)); r.Seq <= newest {
					t.Fatalf("byte %d damaged: seq %d is given again, %d was the newest", i, r.Seq, newest)
				}
			}
		})
	}

	fs := vfs.NewMem()
	j := open(t, fs, 0)
	add(t, j, sample(0))
	old := content(t, fs)
	for i := range 5 {
		add(t, j, sample(i))
	}
	restored := open(t, holding(t, old), 0)
	settle(t, restored, 6) // the log has six records of this journal, this copy only one
	if r := add(t, restored, sample(1)); r.Seq != 7 {
		t.Fatalf("an older copy continues with %d", r.Seq)
	}
}

func TestAJournalOfANewerFormatIsRefused(t *testing.T) {
	line, err := seal(map[string]any{"format": format + 1, "shape": "unknown"})
	if err != nil {
		t.Fatal(err)
	}
	fs := holding(t, append(line, "what a newer program writes"...))
	before := content(t, fs)
	_, err = Open(file, Options{FS: fs})
	_, _, readErr := read(fs, file)
	for _, err := range []error{err, readErr} {
		if !errors.Is(err, ErrNewerFormat) || !strings.Contains(err.Error(), file) ||
			!strings.Contains(err.Error(), fmt.Sprint(format)) {
			t.Errorf("got %v", err)
		}
	}
	if !bytes.Equal(content(t, fs), before) {
		t.Error("the file was changed")
	}
}

// FuzzRead feeds any bytes, and lines with checksums that fit, to Read and Open.
func FuzzRead(f *testing.F) {
	fs := vfs.NewMem()
	j := open(f, fs, 0)
	for i := range 4 {
		add(f, j, sample(i))
	}
	settle(f, j, 2)
	raw := content(f, fs)
	f.Add(raw, false)
	f.Add(raw[:len(raw)-9], false)
	var bodies [][]byte
	for line := range bytes.Lines(raw) {
		bodies = append(bodies, line[sumLen+1:])
	}
	f.Add(bytes.Join(bodies, nil), true)
	f.Add([]byte("{\"format\":1,\"id\":\"a\",\"settled\":0,\"next\":4611686018427387904}\n"), true)
	f.Fuzz(func(t *testing.T, raw []byte, sealed bool) {
		if sealed {
			raw = sealLines(raw)
		}
		fs := holding(t, raw)
		_, seen, err := read(fs, file)
		if errors.Is(err, ErrNewerFormat) {
			return
		}
		if err != nil && !errors.Is(err, ErrDamaged) {
			t.Fatal(err)
		}
		if !slices.IsSortedFunc(seen, func(a, b Record) int {
			if a.Seq < b.Seq {
				return -1
			}
			return 1
		}) {
			t.Fatalf("seqs do not rise: %v", seen)
		}
		j := open(t, fs, 1<<20)
		same(t, "Open", j.Records(), seen)
		if j.state.Load().next > maxSeq-1 {
			return
		}
		more := add(t, j, sample(1))
		again := open(t, fs, 1<<20)
		same(t, "after an Append", again.Records(), append(seen, more))
		if again.Dropped() != "" || again.Settled() != j.Settled() {
			t.Fatalf("reopened: %q, settled %d for %d", again.Dropped(), again.Settled(), j.Settled())
		}
	})
}

func sealLines(raw []byte) []byte {
	var out []byte
	for line := range bytes.Lines(raw) {
		body := bytes.TrimSuffix(line, []byte("\n"))
		out = fmt.Appendf(out, "%s %s\n", checksum(body), body)
	}
	return out
}
