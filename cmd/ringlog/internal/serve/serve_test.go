package serve

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"runtime/metrics"
	"strings"
	"testing"
	"time"
)

func TestThreadsGetTimerSlack(t *testing.T) {
	threads, err := filepath.Glob("/proc/self/task/*")
	if err != nil || len(threads) == 0 {
		t.Skip("there is no /proc")
	}
	slackenTimers()
	for _, thread := range threads {
		file := filepath.Join("/proc", filepath.Base(thread), "timerslack_ns")
		slack, err := os.ReadFile(file)
		switch {
		case errors.Is(err, fs.ErrNotExist): // it ended
		case errors.Is(err, fs.ErrPermission):
			t.Skip(err)
		case err != nil || strings.TrimSpace(string(slack)) != "250000":
			t.Errorf("%s has %s (%v)", file, slack, err)
		}
	}
}

// TestGarbageWaitsForTheFloor counts the collections that half a gigabyte of garbage leads to, and has the
// heap outgrow the floor then.
func TestGarbageWaitsForTheFloor(t *testing.T) {
	t.Setenv("GOGC", "")
	const floor = 128 << 20
	collectAbove(floor)
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	start := m.NumGC
	for range 512 << 10 {
		garbage = make([]byte, 1<<10)
	}
	runtime.ReadMemStats(&m)
	if n := m.NumGC - start; n == 0 || n > 12 { // with Go's default it would be 30 to 100
		t.Errorf("%d collections", n)
	}
	garbage = make([]byte, floor)
	gogc := []metrics.Sample{{Name: "/gc/gogc:percent"}}
	for deadline := time.Now().Add(10 * time.Second); ; runtime.Gosched() {
		runtime.GC()
		metrics.Read(gogc)
		if gogc[0].Value.Uint64() == 100 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("a heap above the floor grows by %d %%", gogc[0].Value.Uint64())
		}
	}
	garbage = nil
	for _, c := range []struct {
		live uint64
		want int
	}{{0, 3100}, {4 << 20, 3100}, {16 << 20, 700}, {64 << 20, 100}, {1 << 30, 100}} {
		if got := growth(c.live, floor); got != c.want {
			t.Errorf("a heap of %d bytes grows by %d %%, want %d", c.live, got, c.want)
		}
	}
}

var garbage []byte
