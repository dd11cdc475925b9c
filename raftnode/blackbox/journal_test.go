package blackbox

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	gocmp "github.com/google/go-cmp/cmp"

	"github.com/ringrift/ringlog/internal/longtest"
)

func TestARecordComesBackAsItWasWritten(t *testing.T) {
	path := filepath.Join(t.TempDir(), file)
	if id, records, err := Read(path); id != "" || records != nil || err != nil {
		t.Fatalf("a missing file: %q, %v, %v", id, records, err)
	}
	j, err := Open(path, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	var want []Record
	for i := range 10 {
		r := sample(i)
		r.At = r.At.In(time.FixedZone("elsewhere", 3600))
		stored := add(t, j, r)
		r.Seq, r.At = uint64(i+1), r.At.UTC()
		same(t, "Append", []Record{stored}, []Record{r})
		if len(stored.Peers) > 0 {
			stored.Peers[0].ID = "the caller's own copy"
		}
		want = append(want, r)
	}
	settle(t, j, 4)
	settle(t, j, 3)
	same(t, "Records", j.Records(), want)
	id, records, err := Read(path) // of a running node
	if err != nil || id != j.ID() {
		t.Fatalf("read: id %q, %v", id, err)
	}
	same(t, "Read", records, want)
	if err := errors.Join(j.Close(), j.Close()); err != nil {
		t.Fatal(err)
	}
	if _, err := j.Append(sample(0)); !errors.Is(err, ErrClosed) {
		t.Fatalf("append to a closed one: %v", err)
	}
	if err := j.Settle(9); !errors.Is(err, ErrClosed) {
		t.Fatalf("settle a closed one: %v", err)
	}
	again, err := Open(path, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	same(t, "reopened", again.Records(), want)
	if again.ID() != id || again.Settled() != 4 || again.Dropped() != "" {
		t.Fatalf("reopened: id %s for %s, settled %d, dropped %q", again.ID(), id, again.Settled(), again.Dropped())
	}
	os.Remove(path)
	fresh, err := Open(path, Options{})
	if err != nil || fresh.ID() == id {
		t.Fatalf("a new file has the id %s of the old one, %v", id, err)
	}
	fresh.Close()
}

// checkDrop checks what a rewrite left of the records that were there before: what
// went is worth less, or older, than everything that stayed.
func checkDrop(t *testing.T, before, after []Record, settled uint64) {
	t.Helper()
	class := func(r Record) string {
		switch {
		case r.Seq <= settled:
			return "1 settled"
		case r.Kind == View:
			return "2 view"
		}
		return "3 other"
	}
	order := func(a, b Record) int { return cmp.Or(cmp.Compare(class(a), class(b)), cmp.Compare(a.Seq, b.Seq)) }
	newest := before[len(before)-1]
	var gone, stayed []Record
	for _, r := range before[:len(before)-1] {
		bySeq := func(a Record, seq uint64) int { return cmp.Compare(a.Seq, seq) }
		if _, found := slices.BinarySearchFunc(after, r.Seq, bySeq); found {
			stayed = append(stayed, r)
		} else {
			gone = append(gone, r)
		}
	}
	if len(after) == 0 || after[len(after)-1].Seq != newest.Seq || len(stayed)+1 != len(after) {
		t.Fatalf("the newest record went, or one came from nowhere: %d of %d", len(after), len(before))
	}
	if len(gone) > 0 && len(stayed) > 0 {
		if g, s := slices.MaxFunc(gone, order), slices.MinFunc(stayed, order); order(g, s) > 0 {
			t.Fatalf("%d (%s) went before %d (%s)", g.Seq, class(g), s.Seq, class(s))
		}
	}
}

// newestOf is the newest record of a kind that is not settled.
func newestOf(list []Record, kind Kind, settled uint64) uint64 {
	for _, r := range slices.Backward(list) {
		if r.Kind == kind && r.Seq > settled {
			return r.Seq
		}
	}
	return 0
}

func TestAHundredThousandRecordsStayWithinTheirRoom(t *testing.T) {
	const maxBytes = 64 << 10
	appends := 100_000
	if !longtest.Enabled() {
		appends = 20_000
	}
	fs := vfs.NewMem()
	j := open(t, fs, maxBytes)
	rng := rand.New(rand.NewPCG(1, 2))
	var held []Record // what should be there
	size, rewrites := int64(0), 0
	for i := range appends {
		held = append(held, add(t, j, anyRecord(rng)))
		info, err := fs.Stat(file)
		if err != nil {
			t.Fatal(err)
		}
		if info.Size() > maxBytes {
			t.Fatalf("%d bytes after %d records", info.Size(), i+1)
		}
		if info.Size() < size {
			rewrites++
			now := j.Records()
			checkDrop(t, held, now, j.Settled())
			for _, kind := range []Kind{Lost, Restored} {
				if a, b := newestOf(held, kind, j.Settled()), newestOf(now, kind, j.Settled()); a != b {
					t.Fatalf("the newest %s is %d, was %d", kind, b, a)
				}
			}
			held = now
		}
		size = info.Size()
		if rng.IntN(3000) == 0 { // late, so views and others have to go as well
			settle(t, j, held[rng.IntN(len(held))].Seq)
		}
	}
	if rewrites < appends/2000 || rewrites > appends/20 {
		t.Errorf("%d rewrites for %d appends", rewrites, appends)
	}
	same(t, "Records", j.Records(), held)
	smaller := open(t, fs, maxBytes/4)
	same(t, "reopened", smaller.Records(), held)
	add(t, smaller, sample(0))
	if n := len(content(t, fs)); n > maxBytes/4 {
		t.Errorf("%d bytes after it was opened with less room", n)
	}
}

func TestARecordLargerThanTheRoomIsRefused(t *testing.T) {
	if _, err := Open(file, Options{FS: vfs.NewMem(), MaxBytes: leastMaxBytes - 1}); err == nil {
		t.Fatal("no room at all was accepted")
	}
	j := open(t, vfs.NewMem(), leastMaxBytes)
	first := add(t, j, sample(0))
	big := sample(1)
	big.Cause = string(make([]byte, leastMaxBytes))
	if _, err := j.Append(big); !errors.Is(err, ErrTooLarge) {
		t.Fatalf("got %v", err)
	}
	same(t, "Records", j.Records(), []Record{first})
}

// held is what a journal holds.
type held struct {
	id      string
	settled uint64
	records []Record
}

// At every step of the disk the machine stops. What was acknowledged before is
// there afterwards, and of what was under way all or nothing.
func TestWhatWasAcknowledgedSurvivesACrashAtAnyStep(t *testing.T) {
	mem := vfs.NewCrashableMem()
	var crashed []*vfs.MemFS
	rng := rand.New(rand.NewPCG(3, 4))
	d := &disk{FS: mem}
	d.fault = func(string) error {
		crashed = append(crashed, mem.CrashClone(vfs.CrashCloneCfg{}),
			mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 50, RNG: rng}))
		return nil
	}
	const maxBytes = 4 << 10
	j := open(t, d, maxBytes)
	now := func(j *Journal) held { return held{j.ID(), j.Settled(), j.Records()} }
	crashes := 0
	do := func(what string, act func()) {
		crashed = nil
		before := now(j)
		act()
		after, during := now(j), len(crashed)
		d.fault("afterwards")
		for i, fs := range crashed {
			got := now(open(t, fs, maxBytes))
			if i < during && reflect.DeepEqual(got, before) {
				continue
			}
			if diff := gocmp.Diff(after, got, gocmp.AllowUnexported(held{})); diff != "" {
				t.Fatalf("%s, crash %d, %d of them during it (-want +got):\n%s", what, i, during, diff)
			}
		}
		crashes += len(crashed)
	}
	for i := range 120 {
		do(fmt.Sprint("append ", i), func() { add(t, j, anyRecord(rng)) })
		if i%25 == 24 {
			do(fmt.Sprint("settle ", i), func() { settle(t, j, uint64(i-3)) })
		}
		if i%40 == 39 {
			do(fmt.Sprint("reopen ", i), func() { j = open(t, d, maxBytes) })
		}
	}
	if crashes < 500 {
		t.Errorf("only %d crashes", crashes)
	}
}

// A process that dies between a write and its sync leaves a record that the next one
// reads, and may send to others. The machine may crash right then.
func TestWhatOpenReadStaysThroughACrash(t *testing.T) {
	for _, step := range []string{"sync", "syncdir"} {
		t.Run(step, func(t *testing.T) {
			mem := vfs.NewCrashableMem()
			d := &disk{FS: mem, fault: healthy}
			j := open(t, d, 0)
			add(t, j, sample(0))
			if step == "syncdir" {
				j = open(t, d, 0) // so that the next Append begins a new file
			}
			d.fault = failing(step, 0)
			if _, err := j.Append(sample(1)); err == nil {
				t.Fatal("nothing failed")
			}
			seen := open(t, mem, 0).Records()
			if len(seen) != 2 {
				t.Fatalf("%d records are seen", len(seen))
			}
			same(t, "after the crash", open(t, mem.CrashClone(vfs.CrashCloneCfg{}), 0).Records(), seen)
		})
	}
}

func TestAFailingDiskLosesNothingAndHidesNothing(t *testing.T) {
	for _, step := range []string{"create", "write", "sync", "rename", "syncdir"} {
		for n := range 3 {
			for _, full := range []bool{false, true} { // an Append extends the file, or makes room
				t.Run(fmt.Sprint(step, n, full), func(t *testing.T) {
					d := &disk{FS: vfs.NewMem(), fault: healthy}
					j := open(t, d, 4<<10)
					fill := 5
					if full {
						fill = 60
					}
					for i := range fill {
						add(t, j, sample(i))
					}
					d.fault = failing(step, n)
					failed := 0
					for i := range 40 {
						before := j.Records()
						r, err := j.Append(sample(fill + i))
						if err != nil {
							failed++
							wantDiskError(t, err)
							same(t, "after a failed Append", j.Records(), before)
						}
						if err == nil && r.Seq <= before[len(before)-1].Seq {
							t.Fatalf("seq %d after %d", r.Seq, before[len(before)-1].Seq)
						}
						onDisk(t, d.FS, j, err == nil)
					}
					if failed > 1 || failed == 0 && (step == "write" || step == "sync" || full) {
						t.Fatalf("%d appends failed for one fault", failed)
					}
				})
			}
		}
	}
}

// onDisk checks that a reopened journal has every record of j; exactly those, if
// the last write succeeded.
func onDisk(t *testing.T, fs vfs.FS, j *Journal, exact bool) {
	t.Helper()
	_, got, err := read(fs, file)
	if err != nil {
		t.Fatal(err)
	}
	want := j.Records()
	if !exact && len(got) > 0 && got[len(got)-1].Seq > want[len(want)-1].Seq {
		// The unacknowledged record made it; room may have been made for it.
		newest := got[len(got)-1]
		checkDrop(t, append(want, newest), got, j.Settled())
		return
	}
	same(t, "on the disk", got, want)
}

func wantDiskError(t *testing.T, err error) {
	t.Helper()
	if !errors.Is(err, syscall.EIO) {
		t.Fatalf("got %v", err)
	}
	if want := "append to " + file; len(err.Error()) < len(want) || err.Error()[:len(want)] != want {
		t.Fatalf("%q does not name the file", err)
	}
}

func TestAFailedSettleSettlesNothing(t *testing.T) {
	for _, step := range []string{"create", "write", "sync", "rename", "syncdir"} {
		t.Run(step, func(t *testing.T) {
			d := &disk{FS: vfs.NewMem(), fault: healthy}
			j := open(t, d, 0)
			for i := range 5 {
				add(t, j, sample(i))
			}
			want := j.Records()
			d.fault = failing(step, 0)
			if err := j.Settle(3); !errors.Is(err, syscall.EIO) || j.Settled() != 0 {
				t.Fatalf("got %v, settled %d", err, j.Settled())
			}
			same(t, "Records", j.Records(), want)
			settle(t, j, 3)
			again := open(t, d.FS, 0)
			same(t, "reopened", again.Records(), want)
			if again.Settled() != 3 || again.Dropped() != "" {
				t.Fatalf("settled %d, dropped %q", again.Settled(), again.Dropped())
			}
		})
	}
}

func TestADiskThatHangsDoesNotHideTheRecords(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &disk{FS: vfs.NewMem(), fault: healthy}
		j := open(t, d, 0)
		first := add(t, j, sample(0))
		hung := make(chan struct{})
		d.fault = func(step string) error {
			if step == "sync" {
				<-hung
			}
			return nil
		}
		done := make(chan struct{})
		go func() {
			defer close(done)
			j.Append(sample(1))
		}()
		synctest.Wait()
		meanwhile := j.Records() // would deadlock with the Append
		close(hung)
		<-done
		same(t, "Records", meanwhile, []Record{first})
		if n := len(j.Records()); n != 2 {
			t.Fatalf("%d records", n)
		}
	})
}

func TestManyWritersAndReaders(t *testing.T) {
	j := open(t, vfs.NewMem(), 8<<10)
	var all sync.WaitGroup
	for w := range 4 {
		all.Go(func() {
			for i := range 200 {
				r, err := j.Append(sample(i + w))
				if err != nil {
					t.Error(err)
				}
				if i%50 == 49 {
					if err := j.Settle(r.Seq - 10); err != nil {
						t.Error(err)
					}
				}
			}
		})
		all.Go(func() {
			for range 200 {
				list := j.Records()
				for i := 1; i < len(list); i++ {
					if list[i].Seq <= list[i-1].Seq {
						t.Errorf("seq %d after %d", list[i].Seq, list[i-1].Seq)
					}
				}
			}
		})
	}
	all.Wait()
	if r := add(t, j, sample(0)); r.Seq != 801 {
		t.Errorf("801 appends end with seq %d", r.Seq)
	}
}
