package integration

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"
)

// Some tests require that the log reports exactly what they did. A machine that is starved or
// migrated pauses all nodes at once, and they rightly report that as well. So the test process
// watches whether the machine runs, with nothing of ringlog's, and such a test is repeated if
// it failed while the machine was paused.
const (
	pauseTick       = 20 * time.Millisecond
	pausedAfter     = 300 * time.Millisecond // the processors; less than half a lease
	diskPausedAfter = time.Second            // the disk, whose pauses cost no leader
	attempts        = 3
)

// machinePause is a time in which this machine, or its disk, was paused.
type machinePause struct {
	until time.Time
	took  time.Duration
	what  string
}

// machine records when the machine was paused, from its first use.
var machine = sync.OnceValue(func() *pauseRecorder {
	s := &pauseRecorder{}
	// The sleep is the measurement: it takes longer than it should while the processors are paused.
	go s.watch("the processors", pausedAfter, func() error { time.Sleep(pauseTick); return nil })
	go s.watchDisk()
	return s
})

// pauseRecorder has every pause of the machine, in the order in which they ended.
type pauseRecorder struct {
	mu   sync.Mutex // guards list
	list []machinePause
}

// watch repeats step, which takes a known short time on a machine that runs, and records each
// that took after or longer. It returns once step fails.
func (s *pauseRecorder) watch(what string, after time.Duration, step func() error) {
	for {
		start := time.Now()
		if err := step(); err != nil {
			fmt.Fprintln(os.Stderr, "watching", what, "ends:", err)
			return
		}
		if now := time.Now(); now.Sub(start) >= after {
			s.mu.Lock()
			s.list = append(s.list, machinePause{now, now.Sub(start), what})
			s.mu.Unlock()
		}
	}
}

// watchDisk syncs a block about ten times a second where the nodes have their folders.
func (s *pauseRecorder) watchDisk() {
	f, err := os.Create(filepath.Join(os.TempDir(), fmt.Sprintf("ringlog-pauses-%d", os.Getpid())))
	if err != nil {
		fmt.Fprintln(os.Stderr, "watching the disk:", err)
		return
	}
	defer f.Close()
	os.Remove(f.Name()) // the open file is enough
	block := make([]byte, 4096)
	s.watch("the disk", diskPausedAfter, func() error {
		time.Sleep(5 * pauseTick) // the pace; a sync costs the nodes some of the disk
		if _, err := f.WriteAt(block, 0); err != nil {
			return err
		}
		return f.Sync()
	})
}

// since returns what ended after from.
func (s *pauseRecorder) since(from time.Time) (list []machinePause) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, x := range s.list {
		if x.until.After(from) {
			list = append(list, x)
		}
	}
	return list
}

// whileTheMachineRuns runs f, and again if it failed while the machine was paused, which
// proves nothing. A failure on a machine that ran is one.
func whileTheMachineRuns(t *testing.T, f func(t testing.TB)) {
	seen := machine()
	for number := 1; ; number++ {
		from := time.Now()
		a := try(t, f)
		stops := seen.since(from)
		switch {
		case !a.Failed():
			return
		case len(stops) == 0 || number == attempts:
			t.FailNow()
		}
		for _, s := range stops {
			t.Logf("%s paused for %s until %s: this attempt proves nothing", s.what, s.took, s.until.Format("15:04:05.000"))
		}
	}
}

// attempt is a test whose failure is not yet the test's.
type attempt struct {
	testing.TB
	ctx context.Context

	mu       sync.Mutex
	failed   bool
	skipped  bool
	cleanups []func()
}

// try runs f as a test of its own: in a goroutine that FailNow ends, with a context that ends
// after it, and with cleanups that run before try returns. A test that skips ends t.
func try(t testing.TB, f func(testing.TB)) *attempt {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	a := &attempt{TB: t, ctx: ctx}
	a.inside(func() { f(a) })
	cancel()
	// Cleanups run last in, first out, and may fail as well.
	for len(a.cleanups) > 0 {
		last := a.cleanups[len(a.cleanups)-1]
		a.cleanups = a.cleanups[:len(a.cleanups)-1]
		a.inside(last)
	}
	if a.skipped && !a.failed {
		t.SkipNow()
	}
	return a
}

// inside runs f where Fatal may end it.
func (a *attempt) inside(f func()) {
	done := make(chan struct{})
	go func() { defer close(done); f() }()
	<-done
}

func (a *attempt) Context() context.Context { return a.ctx }

func (a *attempt) Cleanup(f func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.cleanups = append(slices.Clip(a.cleanups), f)
}

func (a *attempt) Failed() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.failed
}

func (a *attempt) Fail() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.failed = true
}

func (a *attempt) FailNow() { a.Fail(); runtime.Goexit() }

func (a *attempt) SkipNow() {
	a.mu.Lock()
	a.skipped = true
	a.mu.Unlock()
	runtime.Goexit()
}

func (a *attempt) Skip(args ...any) { a.Helper(); a.Log(args...); a.SkipNow() }

func (a *attempt) Skipf(format string, args ...any) { a.Helper(); a.Logf(format, args...); a.SkipNow() }

func (a *attempt) Error(args ...any) { a.Helper(); a.Log(args...); a.Fail() }

func (a *attempt) Errorf(format string, args ...any) { a.Helper(); a.Logf(format, args...); a.Fail() }

func (a *attempt) Fatal(args ...any) { a.Helper(); a.Log(args...); a.FailNow() }

func (a *attempt) Fatalf(format string, args ...any) {
	a.Helper()
	a.Logf(format, args...)
	a.FailNow()
}

// A failure counts unless the machine was paused during it.
func TestAFailureOnAMachineThatRunsCounts(t *testing.T) {
	// An attempt that fails is cleaned up, and its failure is not yet the test's.
	var order []string
	a := try(t, func(t testing.TB) {
		t.Cleanup(func() { order = append(order, "first") })
		t.Cleanup(func() {
			order = append(order, "last")
			if !t.Failed() || t.Context().Err() == nil {
				t.Log("a clean-up does not know that the attempt failed and is over")
				order = nil
			}
		})
		t.Fatalf("meant to fail")
	})
	if !a.Failed() || t.Failed() || !slices.Equal(order, []string{"last", "first"}) {
		t.Errorf("failed %v, the test itself %v, cleaned up %v", a.Failed(), t.Failed(), order)
	}
	if a := try(t, func(testing.TB) {}); a.Failed() {
		t.Error("failed without a reason")
	}
	// Of three steps the second is slow, and the third ends the watch: one pause is recorded.
	s := &pauseRecorder{}
	from, steps := time.Now(), 0
	s.watch("a test", pausedAfter, func() error {
		steps++
		if steps == 2 {
			time.Sleep(pausedAfter) // the pause that is to be recorded
		}
		return [...]error{1: nil, 2: nil, 3: os.ErrClosed}[steps]
	})
	if list := s.since(from); len(list) != 1 || list[0].took < pausedAfter || len(s.since(time.Now())) > 0 {
		t.Errorf("%v", list)
	}
}
