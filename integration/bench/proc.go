package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// procField returns the number after "NAME:" in a file of /proc/PID.
func procField(pid int, file, name string) (int64, error) {
	path := filepath.Join("/proc", strconv.Itoa(pid), file)
	text, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if rest, found := strings.CutPrefix(line, name+":"); found {
			return strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
		}
	}
	return 0, fmt.Errorf("%s has no %s", path, name)
}

// writtenBytes is what a process had the kernel write to disk.
// The kernel counts a page when it becomes dirty: a page that changes twice before it is written counts once.
func writtenBytes(pid int) (int64, error) { return procField(pid, "io", "write_bytes") }

// rssAnon is a process's anonymous memory in MB.
func rssAnon(pid int) (float64, error) {
	kb, err := procField(pid, "status", "RssAnon")
	// The kernel prints kibibytes.
	return float64(kb) * 1024 / 1e6, err
}

// cpuTicks is the processor time that processes have used, in hundredths of a second.
// A tick of Linux (USER_HZ) is that long.
func cpuTicks(pids []int) (sum int64) {
	for _, pid := range pids {
		text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
		if err != nil {
			continue // it has ended, which others notice
		}
		// The name, in parentheses, may have spaces; utime and stime are the 12th and 13th field after it.
		_, afterName, _ := strings.Cut(string(text), ") ")
		f := strings.Fields(afterName)
		if len(f) < 13 {
			continue
		}
		for _, field := range f[11:13] {
			n, _ := strconv.ParseInt(field, 10, 64)
			sum += n
		}
	}
	return sum
}

// processorTime is for how long, in hundredths of a second, all processors were busy, and for
// how long the host of the virtual machine used them otherwise (steal time).
type processorTime struct{ busy, stolen float64 }

// processors reads the processor time since the machine was started.
func processors() (p processorTime) {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return p
	}
	// The first line is the sum of all processors; its field 0 is the name "cpu".
	line, _, _ := strings.Cut(string(text), "\n")
	for i, field := range strings.Fields(line) {
		n, _ := strconv.ParseFloat(field, 64)
		switch i {
		case 1, 2, 3, 6, 7: // user, nice, system, irq, softirq
			p.busy += n
		case 8:
			p.stolen = n
		}
	}
	return p
}

// stolenSince returns the host's share of the time in which the processors had something to do.
func (p processorTime) stolenSince(before processorTime) float64 {
	stolen := p.stolen - before.stolen
	// At least one tick: a machine that did nothing would divide by 0.
	return stolen / max(1, p.busy-before.busy+stolen)
}

const (
	quietWindow = 250 * time.Millisecond
	quietTicks  = 3 // in a window: 12 % of a processor, all processes together
	quietWithin = 6 * time.Second
)

// quiet waits until the processes have done what earlier work left them to do in the background,
// for quietWithin at most, so it is not charged to the next measurement.
func quiet(ctx context.Context, pids []int) {
	tick := time.NewTicker(quietWindow)
	defer tick.Stop()
	// From then on the measurement begins, at rest or not.
	late := time.After(quietWithin)
	// Each window is compared with the end of the one before.
	for before := cpuTicks(pids); ; {
		select {
		case <-tick.C:
		case <-late:
			return
		case <-ctx.Done():
			return
		}
		now := cpuTicks(pids)
		if now-before <= quietTicks {
			return
		}
		before = now
	}
}

const lookEvery = 500 * time.Millisecond

// whileAll returns a context that ends when one of the processes does. stop ends the watch.
func whileAll(ctx context.Context, pids []int) (watched context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(lookEvery)
		defer tick.Stop()
		for { // a process that has ended and was waited for is not in /proc
			for _, pid := range pids {
				if _, err := os.Stat(filepath.Join("/proc", strconv.Itoa(pid))); err != nil {
					// Only the first cause is kept.
					cancel(fmt.Errorf("the server with process id %d ended", pid))
				}
			}
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
		}
	}()
	return ctx, func() {
		// Once stop returns, nothing reads /proc.
		cancel(nil)
		<-done
	}
}
