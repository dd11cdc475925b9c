package integration

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// wallClock is how far one node's wall clock is off. The node reads it from a file that it has mapped, whenever it
// asks for the time: it runs a binary whose package time does that (testdata/stepped_clock.go.txt). So one node's
// clock steps on a machine whose own clock may not be set. Monotonic time is unaffected, as it is when a clock is set.
type wallClock struct {
	file   string
	offset *int64
}

// newWallClock maps the file from which nodes read the offset of their wall clock.
func newWallClock(t testing.TB, file string) *wallClock {
	t.Helper()
	f, err := os.Create(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.Truncate(8); err != nil {
		t.Fatal(err)
	}
	page, err := unix.Mmap(int(f.Fd()), 0, 8, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Munmap(page) })
	return &wallClock{file: file, offset: (*int64)(unsafe.Pointer(&page[0]))}
}

// set changes the offset, which the nodes see at once.
func (c *wallClock) set(offset time.Duration) { atomic.StoreInt64(c.offset, offset.Nanoseconds()) }

// buildWithClocks builds a ringlog whose wall clock can be stepped, which compiles the standard library once more.
func buildWithClocks(t testing.TB, dir string) (binary string) {
	t.Helper()
	goroot, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		t.Fatal(err)
	}
	source := filepath.Join(strings.TrimSpace(string(goroot)), "src", "time")
	text, err := os.ReadFile(filepath.Join(source, "time.go"))
	if err != nil {
		t.Fatal(err)
	}
	// Of time.Now one line is replaced; the function that it then calls is in a file of its own.
	const reading = "sec, nsec, mono := runtimeNow()"
	if strings.Count(string(text), reading) != 1 {
		t.Fatalf("time.Now of this Go does not read the clock as %q: change buildWithClocks", reading)
	}
	changed := filepath.Join(dir, "time.go.txt")
	text = []byte(strings.Replace(string(text), reading, "sec, nsec, mono := steppedNow()", 1))
	if err := os.WriteFile(changed, text, 0o644); err != nil {
		t.Fatal(err)
	}
	added, err := filepath.Abs("testdata/stepped_clock.go.txt")
	if err != nil {
		t.Fatal(err)
	}
	// The toolchain itself is left alone: an overlay replaces the files in this build only.
	overlay, err := json.Marshal(map[string]any{"Replace": map[string]string{
		filepath.Join(source, "time.go"):          changed,
		filepath.Join(source, "stepped_clock.go"): added,
	}})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(file, overlay, 0o644); err != nil {
		t.Fatal(err)
	}
	binary = filepath.Join(dir, "ringlog")
	out, err := exec.Command("go", "build", "-overlay", file, "-o", binary, "../cmd/ringlog").CombinedOutput()
	if err != nil {
		t.Fatalf("build a ringlog whose clock can be stepped: %v\n%s", err, out)
	}
	return binary
}

// useClocks lets the nodes run with clocks that can be stepped.
func (s *soak) useClocks(t testing.TB) {
	dir := t.TempDir()
	binary := buildWithClocks(t, dir)
	s.clocks = map[*process]*wallClock{}
	for _, p := range s.nodes {
		c := newWallClock(t, filepath.Join(dir, p.id+".clock"))
		s.clocks[p], p.binary = c, binary
		p.env = append(p.env, "RINGLOG_CLOCK_FILE="+c.file)
	}
}

// stepOne moves one voter's wall clock by up to an hour, for a while. Replicated time must not follow it.
func (s *soak) stepOne(r *rand.Rand, p *process) {
	// Further ahead than a majority ever was: append times may be as far ahead as that without a violation.
	ahead := s.h.majorityAhead + 5*time.Minute
	by := ahead + time.Duration(r.Int64N(int64(max(time.Minute, time.Hour-ahead))))
	if r.IntN(3) == 0 {
		by = -by
	}
	defer s.step(by, 0, p)()
	s.letLast(r)
}

// stepMajority moves the wall clocks of the leader and as many others as are a majority with it, for a while.
// Replicated time follows them if they are ahead, and continues as before if they are not.
func (s *soak) stepMajority(r *rand.Rand) {
	stepped := append([]*process{s.leader()}, s.followers(len(s.nodes)/2)...)
	by := s.h.majorityAhead + time.Minute + time.Duration(r.Int64N(int64(9*time.Minute)))
	if by > time.Hour || r.IntN(3) == 0 {
		defer s.step(-time.Minute-time.Duration(r.Int64N(int64(59*time.Minute))), 0, stepped...)()
		s.letLast(r)
		return
	}
	s.h.jump()
	defer s.h.jump()
	defer s.step(by, by, stepped...)()
	s.eventually(longest, "replicated time that follows a majority of clocks", func() error {
		for _, p := range s.nodes {
			v, err := s.view(p)
			if err != nil || v.Role != "leader" {
				continue
			}
			if !slices.Contains(stepped, p) {
				return nil // its clock is right, and nothing is to be followed
			}
			if ahead := time.Until(v.Time); ahead < by-2*time.Second {
				return fmt.Errorf("%s leads, replicated time is ahead by %s, the clocks of %d voters by %s",
					p.id, ahead, len(stepped), by)
			}
			return nil
		}
		return fmt.Errorf("no node leads")
	})
	s.letLast(r)
}

// step moves wall clocks, requires that their nodes see it, and returns what puts them right.
func (s *soak) step(by, majorityAhead time.Duration, nodes ...*process) (mend func()) {
	// The clocks step, and each node answers with the new time.
	began := time.Now()
	s.t.Logf("the clocks of %s step by %s", ids(nodes), by.Round(time.Second))
	s.h.clocksWere(0, majorityAhead)
	for _, p := range nodes {
		s.clocks[p].set(by)
	}
	for _, p := range nodes {
		s.eventually(longest, "step of the clock of "+p.id, func() error {
			date, err := dateAt(p)
			if err != nil {
				return err
			}
			if off := time.Until(date); (off - by).Abs() > 30*time.Second {
				return fmt.Errorf("it is off by %s, wanted is %s", off, by)
			}
			return nil
		})
	}
	return func() {
		for _, p := range nodes {
			s.clocks[p].set(0)
		}
		s.h.clocksWere(time.Since(began), majorityAhead)
	}
}

// dateAt returns a node's wall clock, which is in the Date header of every answer.
func dateAt(p *process) (time.Time, error) {
	resp, err := cmp.Or(p.web, plainHTTP).Get(p.url() + "/v1/cluster")
	if err != nil {
		return time.Time{}, err
	}
	resp.Body.Close()
	return http.ParseTime(resp.Header.Get("Date"))
}

// ids lists the ids of nodes.
func ids(nodes []*process) string {
	var names []string
	for _, p := range nodes {
		names = append(names, p.id)
	}
	return strings.Join(names, ", ")
}
