package raftstore

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"
)

// badDisk is a log store below the checks whose writes go wrong on demand.
type badDisk struct {
	innerLog
	err  error
	hang chan struct{} // writes wait for it to be closed
}

func (d *badDisk) StoreLogs(logs []*raft.Log) error {
	if d.hang != nil {
		<-d.hang
	}
	if d.err != nil {
		return d.err
	}
	return d.innerLog.StoreLogs(logs)
}

func openOnBadDisk(t *testing.T, opts Options) (*Stores, *badDisk) {
	t.Helper()
	disk := &badDisk{}
	opts.Dir = t.TempDir()
	s, err := open(opts, func(in innerLog) innerLog {
		disk.innerLog = in
		return disk
	})
	if err != nil {
		t.Fatal(err)
	}
	return s, disk
}

func TestNothingGoesOnAfterAFailedSync(t *testing.T) {
	var fatal fatals
	s, disk := openOnBadDisk(t, Options{Fatal: fatal.call})
	defer s.Close()
	store(t, s, 1, 3, 1)
	disk.err = syscall.EIO
	wantError(t, s.Log().StoreLog(entry(4, 1)), ErrDiskFailed)
	wantError(t, fatal.only(t), ErrDiskFailed)
	wantError(t, fatal.only(t), syscall.EIO)

	disk.err = nil
	_, lastErr := s.Log().LastIndex()
	_, termErr := s.Stable().GetUint64([]byte(keyCurrentTerm))
	for _, err := range []error{
		s.Log().StoreLog(entry(4, 1)), s.Log().DeleteRange(1, 2), s.Log().GetLog(1, new(raft.Log)), lastErr,
		s.Stable().SetUint64([]byte(keyCurrentTerm), 2), s.Stable().SetUint64([]byte(keyVoteTerm), 2),
		s.Stable().Set([]byte("other"), nil), termErr,
	} {
		wantError(t, err, ErrDiskFailed)
	}
	wantError(t, fatal.only(t), ErrDiskFailed)
}

// TestAHungDiskIsFatalInBoundedTime runs on a clock of its own.
func TestAHungDiskIsFatalInBoundedTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var fatal fatals
		s, disk := openOnBadDisk(t, Options{SyncTimeout: 8 * time.Second, Fatal: fatal.call})
		time.Sleep(time.Second) // off the watchdog's beat
		disk.hang = make(chan struct{})
		stored := make(chan error, 1)
		go func() { stored <- s.Log().StoreLog(entry(1, 1)) }()

		time.Sleep(7900 * time.Millisecond)
		synctest.Wait()
		if err := fatal.only(t); err != nil {
			t.Fatalf("%v before the timeout", err)
		}
		time.Sleep(2100 * time.Millisecond)
		synctest.Wait()
		wantError(t, fatal.only(t), ErrDiskHung)
		wantError(t, s.Stable().SetUint64([]byte(keyCurrentTerm), 2), ErrDiskHung)

		close(disk.hang)
		wantError(t, <-stored, ErrDiskHung)
		wantError(t, s.Close(), ErrDiskHung)
		wantError(t, fatal.only(t), ErrDiskHung)
		if err := errors.Join(disk.innerLog.Close(), s.stable.file.close(), s.log.mark.close()); err != nil {
			t.Fatal(err)
		}
	})
}

// TestASlowDiskIsNotHung writes again and again, each time just fast enough.
func TestASlowDiskIsNotHung(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var fatal fatals
		s, disk := openOnBadDisk(t, Options{SyncTimeout: 8 * time.Second, Fatal: fatal.call})
		for i := range uint64(5) {
			disk.hang = make(chan struct{})
			time.AfterFunc(7*time.Second, func() { close(disk.hang) })
			if err := s.Log().StoreLog(entry(i+1, 1)); err != nil {
				t.Fatal(err)
			}
		}
		closeStores(t, s)
	})
}

func TestOnStoreSeesEachBatch(t *testing.T) {
	var count, size int
	s, err := Open(Options{Dir: t.TempDir(), Fatal: func(err error) {
		t.Error(err)
	}, OnStore: func(entries, bytes int, took time.Duration) {
		count, size = count+entries, size+bytes
		if took <= 0 {
			t.Errorf("stored within %v", took)
		}
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	store(t, s, 1, 5, 1)
	if want := 5 * len(entry(1, 1).Data); count != 5 || size != want {
		t.Fatalf("saw %d entries of %d bytes, want 5 of %d", count, size, want)
	}
}

func TestClosedStoresRefuse(t *testing.T) {
	s := openStores(t, t.TempDir())
	closeStores(t, s)
	closeStores(t, s)
	wantError(t, s.Log().StoreLog(entry(1, 1)), ErrClosed)
	_, err := s.Stable().Get([]byte(keyVoteCandidate))
	wantError(t, err, ErrClosed)
}

// The environment of the helper process below.
const (
	helperDir   = "RINGLOG_TEST_RAFTSTORE_DIR"
	helperCount = "RINGLOG_TEST_RAFTSTORE_COUNT" // of entries in a write
	exitFatal   = 3
)

// storeUntilFatal is the helper process: it stores entries, prints each index
// that is durable, and ends as a node does when a write fails.
func storeUntilFatal(dir string, count uint64) int {
	s, err := Open(Options{Dir: dir, Fatal: func(err error) {
		fmt.Println("fatal:", err, errors.Is(err, ErrDiskFailed))
		os.Exit(exitFatal)
	}})
	if err != nil {
		fmt.Println("open:", err)
		return 1
	}
	for i := uint64(1); i <= 200*count; i += count {
		if err := s.Log().StoreLogs(entries(i, i+count-1, 1)); err != nil {
			fmt.Println("went on after:", err)
			return 1
		}
		fmt.Println("durable", i+count-1)
	}
	return 0
}

// TestAFailingDiskEndsTheProcess makes the kernel fail one sync of a real
// process. What the process said was durable must be there afterwards.
func TestAFailingDiskEndsTheProcess(t *testing.T) {
	strace, err := exec.LookPath("strace")
	if err != nil {
		t.Skip("strace is not installed")
	}
	if out, err := exec.Command(strace, "-f", "-o", os.DevNull, "true").CombinedOutput(); err != nil {
		t.Skipf("strace does not work here: %v: %s", err, out)
	}
	failing := func(t *testing.T, count uint64) {
		dir := t.TempDir()
		cmd := exec.Command(strace, "-f", "-o", os.DevNull, "-e", "trace=fsync,fdatasync",
			"-e", "inject=fsync,fdatasync:error=EIO:when=40+", os.Args[0])
		cmd.Env = append(os.Environ(), helperDir+"="+dir, helperCount+"="+fmt.Sprint(count))
		out, err := cmd.Output()
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.ExitCode() != exitFatal {
			t.Fatalf("ended with %v, want exit code %d:\n%s", err, exitFatal, out)
		}
		last, fatal := lastDurable(out)
		if !strings.Contains(fatal, "input/output error") || !strings.HasSuffix(fatal, "true") || last == 0 {
			t.Fatalf("durable up to %d, then %q", last, fatal)
		}
		s := openStores(t, dir)
		first, end, err := s.log.span()
		if err != nil || first != 1 || end < last || end > last+count {
			t.Fatalf("log is %d to %d (%v), want 1 to %d or %d more", first, end, err, last, count)
		}
		wantSpan(t, s, 1, end, 1)
	}
	t.Run("through the journal", func(t *testing.T) { failing(t, 1) })
	t.Run("past the journal", func(t *testing.T) { failing(t, 400) })
}

func lastDurable(out []byte) (last uint64, fatal string) {
	for lines := bufio.NewScanner(bytes.NewReader(out)); lines.Scan(); {
		if _, err := fmt.Sscanf(lines.Text(), "durable %d", &last); err != nil {
			fatal = lines.Text()
		}
	}
	return last, fatal
}
