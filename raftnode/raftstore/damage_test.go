package raftstore

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"

	"github.com/ringrift/ringlog/raftnode/datadir"
)

// wantError checks what err is, and that it names a remedy if it is damage.
func wantError(t testing.TB, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("error is %v, want %v", err, want)
	}
	if errors.Is(err, ErrDamaged) && !strings.Contains(err.Error(), datadir.Rejoin) {
		t.Fatalf("%v names no remedy", err)
	}
}

const lastIndex = 300

// usedFolder is the raft folder of a node that stored, voted and compacted, and was
// killed. Its journal holds the newest entries.
func usedFolder(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	s := openStores(t, dir)
	store(t, s, 1, 100, 4)
	for i := uint64(101); i <= lastIndex; i += 10 {
		if i == 251 || i == 281 {
			if err := errors.Join(s.log.inner.(*journaledLog).flush(nil), s.Log().DeleteRange(1, 20)); err != nil {
				t.Fatal(err)
			}
		}
		store(t, s, i, i+9, 4)
	}
	vote(t, s, 4, "n2:9770")
	return copyDir(t, dir)
}

func logFile(dir string) string { return filepath.Join(dir, datadir.BoltFile) }

func rewrite(t testing.TB, file string, change func([]byte) []byte) {
	t.Helper()
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, change(raw), 0o600); err != nil {
		t.Fatal(err)
	}
}

func flipAt(offset, bit int) func([]byte) []byte {
	return func(raw []byte) []byte {
		raw[offset] ^= 1 << bit
		return raw
	}
}

// TestAFlippedBitInAnEntryIsNotServed flips one bit of an entry's data, which
// bolt gives out without an error.
func TestAFlippedBitInAnEntryIsNotServed(t *testing.T) {
	dir := usedFolder(t)
	rewrite(t, logFile(dir), func(raw []byte) []byte {
		at := bytes.LastIndex(raw, entry(57, 4).Data)
		if at < 0 {
			t.Fatal("entry 57 is not in the file")
		}
		return flipAt(at+6, 0)(raw)
	})
	var fatal fatals
	s, err := Open(Options{Dir: dir, Fatal: fatal.call})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	wantEntry(t, s, entry(56, 4))
	err = s.Log().GetLog(57, new(raft.Log))
	wantError(t, err, ErrCorruptEntry)
	wantError(t, fatal.only(t), ErrCorruptEntry)
	for _, part := range []string{"entry 57", dir, datadir.Rejoin} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q does not name %q", err, part)
		}
	}
	wantError(t, s.Log().StoreLog(entry(lastIndex+1, 4)), ErrCorruptEntry)
}

// TestAFlippedBitInTheVoteIsNotVotedWith flips one bit of the candidate in each
// copy of the record that the file has.
func TestAFlippedBitInTheVoteIsNotVotedWith(t *testing.T) {
	dir := usedFolder(t)
	rewrite(t, filepath.Join(dir, datadir.StableFile), func(raw []byte) []byte {
		candidate := []byte(base64.StdEncoding.EncodeToString([]byte("n2:9770")))
		if !bytes.Contains(raw, candidate) {
			t.Fatal("the candidate is not in the file")
		}
		other := bytes.Clone(candidate)
		other[0] ^= 1
		return bytes.ReplaceAll(raw, candidate, other)
	})
	_, err := Open(Options{Dir: dir, Fatal: func(error) {}})
	wantError(t, err, ErrDamaged)
	_, err = OpenReadOnly(dir)
	wantError(t, err, ErrDamaged)
}

// TestAHoleInTheLogIsRefused takes entries out of the file.
func TestAHoleInTheLogIsRefused(t *testing.T) {
	dir := usedFolder(t)
	raw, err := raftboltdb.NewBoltStore(logFile(dir))
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(boltLog{raw}.DeleteRange(50, 60), raw.Close()); err != nil {
		t.Fatal(err)
	}
	_, err = Open(Options{Dir: dir, Fatal: func(error) {}})
	wantError(t, err, ErrDamaged)
	if !strings.Contains(err.Error(), "entries 50 to 60 are missing") {
		t.Fatal(err)
	}
}

// forgetful is a log that cannot find one entry.
type forgetful struct {
	innerLog
	index uint64
}

func (f forgetful) GetLog(index uint64, l *raft.Log) error {
	if index == f.index {
		return raft.ErrLogNotFound
	}
	return f.innerLog.GetLog(index, l)
}

// TestALostEntryIsNotTakenForOneThatNeverWas distinguishes a hole, at which raft would
// continue or panic, from the ends of the log, at which it sends a snapshot.
func TestALostEntryIsNotTakenForOneThatNeverWas(t *testing.T) {
	var fatal fatals
	s, err := open(Options{Dir: t.TempDir(), Fatal: fatal.call}, func(in innerLog) innerLog { return forgetful{in, 7} })
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	store(t, s, 5, 10, 1)
	s.log.recent.remove(5, 10)
	for _, outside := range []uint64{4, 11} {
		if err := s.Log().GetLog(outside, new(raft.Log)); err != raft.ErrLogNotFound {
			t.Fatalf("entry %d: %v", outside, err)
		}
	}
	if err := fatal.only(t); err != nil {
		t.Fatal(err)
	}
	wantError(t, s.Log().GetLog(7, new(raft.Log)), ErrCorruptEntry)
	wantError(t, fatal.only(t), ErrCorruptEntry)
}

// TestDamagedFilesAreRefused is the table of what happens to files.
func TestDamagedFilesAreRefused(t *testing.T) {
	emptied := func([]byte) []byte { return nil }
	half := func(raw []byte) []byte { return raw[:len(raw)/2] }
	zeroPage := func(page int) func([]byte) []byte {
		return func(raw []byte) []byte {
			clear(raw[page*4096 : (page+1)*4096])
			return raw
		}
	}
	type damage struct {
		name   string
		change func([]byte) []byte // nil removes the file
	}
	damages := []damage{
		{"emptied", emptied}, {"removed", nil}, {"one byte", func(raw []byte) []byte { return raw[:1] }},
		{"cut to a page", func(raw []byte) []byte { return raw[:4096] }},
		{"zeroed meta 0", zeroPage(0)},
		{"zeroed meta 1", zeroPage(1)},
	}
	boltOnly := []damage{
		{"cut in half", half},
		{"zeroed root", func(raw []byte) []byte { return zeroPage(rootPage(raw))(raw) }},
	}
	dir := usedFolder(t)
	files := map[string][]damage{
		datadir.StableFile:  append(damages, boltOnly...),
		datadir.BoltFile:    append(damages, boltOnly...),
		datadir.JournalFile: append(damages, damage{"cut in half", half}),
	}
	for file, damages := range files {
		for _, d := range damages {
			t.Run(file+"/"+d.name, func(t *testing.T) {
				hurt := copyDir(t, dir)
				path := filepath.Join(hurt, file)
				if d.change == nil {
					os.Remove(path)
				} else {
					rewrite(t, path, d.change)
				}
				s, err := Open(Options{Dir: hurt, Fatal: func(error) {}})
				if err == nil {
					s.Close()
				}
				wantError(t, err, ErrDamaged)
			})
		}
	}
}

// rootPage is the page of the root bucket, from the newer meta.
func rootPage(raw []byte) int {
	b := &boltFile{}
	m0, m1 := native.Uint64(raw[pageHeader+48:]), native.Uint64(raw[4096+pageHeader+48:])
	meta := raw[pageHeader:]
	if m1 > m0 {
		meta = raw[4096+pageHeader:]
	}
	b.meta.root = native.Uint64(meta[16:])
	return int(b.meta.root)
}

// TestNoDamageIsServedSilently flips random bits and zeroes random sectors of
// every file. Whatever happens, a start is refused by name, or an entry is, or
// all is as it was. A panic or fault would end the test binary.
func TestNoDamageIsServedSilently(t *testing.T) {
	if testing.Short() {
		t.Skip("one goroutine damages a file at many places")
	}
	dir := usedFolder(t)
	seed := rand.Uint64()
	rnd := rand.New(rand.NewPCG(seed, 1))
	t.Logf("seed %d", seed)
	refused, found, harmless := 0, 0, 0
	for _, file := range liveFiles(t, dir) {
		for i := range 60 {
			hurt := copyDir(t, dir)
			what := hurtFile(t, rnd, filepath.Join(hurt, file), i%4 == 0)
			switch err := verdict(t, hurt); {
			case err == nil:
				harmless++
			case errors.Is(err, ErrCorruptEntry):
				found++
			case errors.Is(err, ErrDamaged):
				refused++
			default:
				t.Fatalf("%s, %s: %v", file, what, err)
			}
			os.RemoveAll(hurt)
		}
	}
	t.Logf("refused %d, entry refused %d, harmless %d", refused, found, harmless)
	if refused == 0 || found == 0 {
		t.Fatal("the damage did not reach the files")
	}
}

func liveFiles(t *testing.T, dir string) (files []string) {
	err := fs.WalkDir(os.DirFS(dir), ".", func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			files = append(files, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// hurtFile damages a bit or a sector in the part of the file that is in use.
func hurtFile(t *testing.T, rnd *rand.Rand, path string, sector bool) (what string) {
	rewrite(t, path, func(raw []byte) []byte {
		used := len(bytes.TrimRight(raw, "\x00"))
		at := rnd.IntN(used)
		if sector {
			at -= at % 512
			what = fmt.Sprintf("sector at %d zeroed", at)
			clear(raw[at:min(at+512, len(raw))])
			return raw
		}
		bit := rnd.IntN(8)
		what = fmt.Sprintf("bit %d at %d flipped", bit, at)
		return flipAt(at, bit)(raw)
	})
	return what
}

// verdict opens a damaged folder and reads all of it, as a starting node does.
// Nil means that everything is as it was written.
func verdict(t *testing.T, dir string) error {
	s, err := Open(Options{Dir: dir, Fatal: func(error) {}})
	if err != nil {
		return err
	}
	defer s.Close()
	term, err := s.Stable().GetUint64([]byte(keyVoteTerm))
	candidate, err2 := s.Stable().Get([]byte(keyVoteCandidate))
	if err := errors.Join(err, err2); err != nil {
		return err
	}
	first, last, err := s.log.span()
	if err != nil {
		return err
	}
	if term != 4 || string(candidate) != "n2:9770" || first != 21 || last != lastIndex {
		return fmt.Errorf("silently changed: vote %d %q, log %d to %d", term, candidate, first, last)
	}
	for i := first; i <= last; i++ {
		var got raft.Log
		if err := s.Log().GetLog(i, &got); err != nil {
			return err
		}
		if want := entry(i, 4); !reflect.DeepEqual(want, &got) {
			return fmt.Errorf("entry %d silently changed: %s", i, cmp.Diff(want, &got))
		}
	}
	return nil
}

// TestAFileCutUnderARunningNodeIsAnError cuts the mapped file, which is SIGBUS
// to whoever reads it next.
func TestAFileCutUnderARunningNodeIsAnError(t *testing.T) {
	dir := usedFolder(t)
	var fatal fatals
	s, err := Open(Options{Dir: dir, Fatal: fatal.call})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := os.Truncate(logFile(dir), 4096); err != nil {
		t.Fatal(err)
	}
	if err := s.Log().GetLog(57, new(raft.Log)); err == nil {
		t.Fatal("an entry was read from a file that is cut")
	}
	wantError(t, fatal.only(t), ErrCorruptEntry)
}

// TestAFileCutWhileItIsLookedThrough stands for pages that the disk cannot read, which are the
// same fault.
func TestAFileCutWhileItIsLookedThrough(t *testing.T) {
	dir := t.TempDir()
	s := openStores(t, dir)
	for i := range uint64(256) {
		if err := s.Log().StoreLog(&raft.Log{Index: i + 1, Term: 1, Data: make([]byte, 16<<10)}); err != nil {
			t.Fatal(err)
		}
	}
	closeStores(t, s)
	file := logFile(dir)
	cut := func([]byte, int) error { return os.Truncate(file, 1<<20) }
	err := checkBoltFile(file, map[string]visitor{logsBucket: cut})
	if wantError(t, err, ErrDamaged); err != nil && !strings.Contains(err.Error(), "cannot be read to its end") {
		t.Error(err)
	}
}

func TestAFolderInUseIsNotOpenedTwice(t *testing.T) {
	dir := t.TempDir()
	openStores(t, dir)
	_, err := Open(Options{Dir: dir, Fatal: func(error) {}})
	wantError(t, err, datadir.ErrInUse)
	_, err = OpenReadOnly(dir)
	wantError(t, err, datadir.ErrInUse)
}
