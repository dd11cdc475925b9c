package raftstore

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/raft"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(helperDir); dir != "" {
		count, err := strconv.ParseUint(os.Getenv(helperCount), 10, 64)
		if err != nil {
			panic(err)
		}
		os.Exit(storeUntilFatal(dir, count))
	}
	flag.Parse()
	lowerDefault("rapid.checks", "10") // each run restarts a store on a real disk
	goleak.VerifyTestMain(m)
}

// lowerDefault sets a flag that the command line does not set.
func lowerDefault(name, value string) {
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == name })
	if !given {
		if err := flag.Set(name, value); err != nil {
			panic(err)
		}
	}
}

// fatals collects what Options.Fatal was called with.
type fatals struct {
	mu   sync.Mutex
	errs []error
}

func (f *fatals) call(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.errs = append(f.errs, err)
}

// only returns the single fatal error, nil for none.
func (f *fatals) only(t testing.TB) error {
	t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.errs) > 1 {
		t.Fatalf("Fatal was called %d times: %v", len(f.errs), f.errs)
	}
	return errors.Join(f.errs...)
}

// openStores opens dir and fails the test on an error or an unexpected Fatal.
func openStores(t testing.TB, dir string) *Stores {
	t.Helper()
	s, err := Open(Options{Dir: dir, Fatal: func(err error) { t.Errorf("fatal: %v", err) }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeStores(t, s) })
	return s
}

func closeStores(t testing.TB, s *Stores) {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// entry is the entry at index, the same each time.
func entry(index, term uint64) *raft.Log {
	l := &raft.Log{
		Index:      index,
		Term:       term,
		Type:       raft.LogCommand,
		Data:       fmt.Appendf(nil, "event-%d-of-term-%d", index, term),
		AppendedAt: time.Unix(1767225600, int64(index)).UTC(),
	}
	if index%3 == 0 {
		l.Extensions = []byte{byte(index)}
	}
	if index%7 == 0 {
		l.Type, l.Data = raft.LogNoop, nil
	}
	return l
}

func entries(first, last, term uint64) []*raft.Log {
	var logs []*raft.Log
	for i := first; i <= last; i++ {
		logs = append(logs, entry(i, term))
	}
	return logs
}

func store(t testing.TB, s *Stores, first, last, term uint64) {
	t.Helper()
	if err := s.Log().StoreLogs(entries(first, last, term)); err != nil {
		t.Fatal(err)
	}
}

// wantSpan checks the ends of the log, that all in between is readable and
// right, and that nothing outside is there.
func wantSpan(t testing.TB, s *Stores, first, last, term uint64) {
	t.Helper()
	gotFirst, gotLast, err := s.log.span()
	if err != nil || gotFirst != first || gotLast != last {
		t.Fatalf("log is %d to %d (%v), want %d to %d", gotFirst, gotLast, err, first, last)
	}
	for i := first; i <= last && i > 0; i++ {
		wantEntry(t, s, entry(i, term))
	}
	for _, outside := range []uint64{0, first - 1, last + 1} {
		if err := s.Log().GetLog(outside, new(raft.Log)); first > 0 && err != raft.ErrLogNotFound {
			t.Fatalf("entry %d outside of %d to %d: %v", outside, first, last, err)
		}
	}
}

// wantEntry reads an entry as raft does, and from the disk.
func wantEntry(t testing.TB, s *Stores, want *raft.Log) {
	t.Helper()
	for _, read := range []func(uint64, *raft.Log) error{s.Log().GetLog, s.log.read} {
		got := raft.Log{Data: []byte("stale"), Extensions: []byte("stale")}
		if err := read(want.Index, &got); err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(want, &got) {
			t.Fatalf("entry %d (-want +got):\n%s", want.Index, cmp.Diff(want, &got))
		}
	}
}

// copyDir is what the disk holds at this moment: the state after a crash of the
// process.
func copyDir(t testing.TB, dir string) string {
	t.Helper()
	to := filepath.Join(t.TempDir(), "crashed")
	if err := os.CopyFS(to, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	return to
}
