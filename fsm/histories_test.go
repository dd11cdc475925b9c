package fsm

import (
	"errors"
	"flag"
	"fmt"
	"maps"
	"reflect"
	"runtime/debug"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"pgregory.net/rapid"

	"github.com/ringrift/ringlog/internal/kv"
	"github.com/ringrift/ringlog/internal/longtest"
)

// How many histories a run goes through, and how many commands they have on average at
// least.
const (
	histories      = 10_000
	shortHistories = 500
	shards         = 4
	minCommands    = 50
)

// The machine against the model, over random histories of every kind of command: cursors,
// groups and dead letters together. A second machine applies the same entries, but loads
// its state again, is closed and reopened, and is replaced by a checkpoint of itself on the
// way: it must give the same answers, the same digests and in the end the same dump.
func TestMachineAgreesWithModel(t *testing.T) {
	n := histories
	if !longtest.Enabled() {
		n = shortHistories
	}
	if f := flag.Lookup("rapid.checks"); f.Value.String() != f.DefValue {
		n, _ = strconv.Atoi(f.Value.String())
	}
	setFlag(t, "rapid.checks", strconv.Itoa(max(1, n/shards))) // a fifth with -short
	setFlag(t, "rapid.steps", "17")                            // entries of a history
	t.Cleanup(func() func() { before := debug.SetGCPercent(400); return func() { debug.SetGCPercent(before) } }())
	counts := &tally{n: map[string]int{}}
	t.Run("histories", func(t *testing.T) {
		for i := range shards {
			t.Run(fmt.Sprint(i), func(t *testing.T) {
				t.Parallel()
				p := &pair{}
				defer p.close()
				rapid.Check(t, func(t *rapid.T) { p.history(t, counts) })
			})
		}
	})
	if !t.Failed() {
		counts.enough(t)
	}
}

func setFlag(t *testing.T, name, value string) {
	f := flag.Lookup(name)
	before := f.Value.String()
	t.Cleanup(func() { flag.Set(name, before) })
	if err := f.Value.Set(value); err != nil {
		t.Fatal(err)
	}
}

// pair is the two machines that histories go through. Emptying one costs far less than
// opening another, so that they are kept for some histories.
type pair struct {
	plain, troubled     *Machine
	plainFS, troubledFS vfs.FS
	used                int
}

const historiesPerMachine = 8

// empty has the machines as if they were just opened. After a failure they are made again.
func (p *pair) empty(t tb) {
	if p.used++; p.plain == nil || p.used == historiesPerMachine {
		p.close()
		p.used = 0
		p.plainFS, p.troubledFS = vfs.NewMem(), vfs.NewMem()
		p.plain, p.troubled = open(t, p.plainFS), open(t, p.troubledFS)
		return
	}
	for _, m := range []*Machine{p.plain, p.troubled} {
		clearKeys(t, m.db)
		become(m, newState())
	}
}

func (p *pair) close() {
	for _, m := range []*Machine{p.plain, p.troubled} {
		if m != nil {
			m.Close()
		}
	}
	p.plain, p.troubled = nil, nil
}

func clearKeys(t tb, db kv.DB) {
	batch := db.NewBatch()
	defer batch.Close()
	it, err := db.Iter(nil, nil)
	if err != nil {
		t.Fatalf("clear: %v", err)
	}
	defer it.Close()
	for ok := it.First(); ok; ok = it.Next() {
		if err := batch.Delete(it.Key()); err != nil {
			t.Fatalf("clear: %v", err)
		}
	}
	if err := batch.Commit(kv.NoSync); err != nil {
		t.Fatalf("clear: %v", err)
	}
}

// setKey stores a value beside the entries, as an older build or a damaged disk may have left it.
func setKey(t tb, db kv.DB, key, value []byte) {
	batch := db.NewBatch()
	defer batch.Close()
	if err := errors.Join(batch.Set(key, value), batch.Commit(kv.Sync)); err != nil {
		t.Fatalf("set %q: %v", key, err)
	}
}

// reload has a machine forget what it has in memory, and read it from the database: what
// a restart does, but for the database's own part in it.
func reload(t tb, m *Machine) {
	s, err := loadState(m.db)
	if err != nil {
		t.Fatalf("reload: %v", err)
	}
	become(m, s)
	if err := s.fillWindow(m.log); err != nil {
		t.Fatalf("reload: %v", err)
	}
}

func become(m *Machine, s *state) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.s, m.columns = s, columnsCache{}
	m.catalogue.Store(s.catalogue)
	m.advance(s.meta.Applied)
	m.log.Attach(m.db, s.meta.First, s.meta.Last)
}

// stored is every key and value of a database, which is what a dump is made of.
func stored(t tb, db kv.DB) (list []string) {
	it, err := db.Iter(nil, nil)
	if err != nil {
		t.Fatalf("read: %v", err)
	}
	defer it.Close()
	for ok := it.First(); ok; ok = it.Next() {
		value, err := it.ValueAndErr()
		if err != nil {
			t.Fatalf("read: %v", err)
		}
		list = append(list, string(it.Key()), string(value))
	}
	return list
}

// run is one history on its way.
type run struct {
	*pair
	t      *rapid.T
	model  *model
	drawn  *history
	counts map[string]int
	index  uint64
	term   uint64
	now    time.Time
}

func (p *pair) history(t *rapid.T, counts *tally) {
	whole := false
	defer func() {
		if !whole {
			p.close()
		}
	}()
	p.empty(t)
	r := &run{
		pair:   p,
		t:      t,
		model:  newModel(),
		drawn:  &history{sent: map[string][]request{}},
		counts: map[string]int{"history": 1},
		index:  2,
		term:   1,
		now:    epoch,
	}
	for _, m := range []*Machine{p.plain, p.troubled} {
		threeVoters(t, m, r.model)
	}
	most := rapid.SampledFrom([]int{8, 1, 14}).Draw(t, "commands of an entry at most")
	t.Repeat(map[string]func(*rapid.T){"entry": func(t *rapid.T) { r.t = t; r.entry(most) }})
	r.ends()
	whole = true
	counts.add(r.counts, r.model.met)
}

// entry draws one and has both machines and the model decide it.
func (r *run) entry(most int) {
	r.index++
	r.now = r.now.Add(rapid.SampledFrom([]time.Duration{
		0, time.Second, 9999999999, 10 * time.Second, time.Minute, 16 * time.Minute, -time.Second,
	}).Draw(r.t, "wait"))
	if rapid.IntRange(0, 9).Draw(r.t, "election") == 0 {
		r.term++
		r.counts["election"]++
	}
	requests := make([]request, rapid.IntRange(0, most).Draw(r.t, "requests"))
	for i := range requests {
		requests[i] = r.drawn.request(r.t, r.model, r.term)
		r.counts[fmt.Sprintf("%T", requests[i].command)]++
	}
	r.counts["command"] += len(requests)
	leader := fmt.Sprintf("n%d", r.term%3)
	e := gated(r.plain.Policy().Dedup, r.index, r.term, leader, r.now, requests...)
	want := r.model.entry(r.term, leader, r.now, requests)
	got := applyTo(r.t, r.plain, e)
	for i, q := range requests {
		if text := describe(q, got[i]); text != want[i] {
			r.t.Fatalf("entry %d, %T: %s, want %s (%v)", r.index, q.command, text, want[i], got[i].Refusal)
		}
	}
	r.troubled = trouble(r.t, r.troubled, r.troubledFS, r.counts)
	again := applyTo(r.t, r.troubled, e)
	if !reflect.DeepEqual(again, got) && !slices.Equal(encode(again), encode(got)) {
		r.t.Fatalf("entry %d: the reopened machine answers otherwise:\n%s\n%s", r.index, encode(again), encode(got))
	}
	_, a := r.plain.Digest()
	if _, b := r.troubled.Digest(); a != b {
		r.t.Fatalf("entry %d: digests differ", r.index)
	}
	if a, b := r.plain.Stats().DedupKeys, r.troubled.Stats().DedupKeys; a != b { // which decides when a window is full
		r.t.Fatalf("entry %d: %d keys in the dedup window, %d after what happened", r.index, a, b)
	}
	for _, m := range []*Machine{r.plain, r.troubled} {
		if got, want := m.Stats().PolicyKeys, r.model.policyKeys(); got != want {
			r.t.Fatalf("entry %d: dedup policies have %d keys, want %d", r.index, got, want)
		}
	}
	checkGroups(r.t, r.troubled, r.model)
	checkFlows(r.t, r.troubled, r.model.flows)
}

// What may happen to the second machine before an entry. The generator prefers the ends of
// a list.
var troubles = append(append(make([]string, 20), "reload", "reload", "reload", "restart", "snapshot"),
	make([]string, 20)...)

// trouble has a machine load its state again, or closes and reopens it, or swaps a
// checkpoint of itself in; it returns the machine to continue with.
func trouble(t *rapid.T, m *Machine, fs vfs.FS, counts map[string]int) *Machine {
	switch rapid.SampledFrom(troubles).Draw(t, "trouble") {
	case "reload":
		counts["state loaded again"]++
		reload(t, m)
	case "restart":
		counts["restart"]++
		if err := m.Close(); err != nil {
			t.Fatalf("close: %v", err)
		}
		return open(t, fs)
	case "snapshot":
		counts["snapshot"]++
		position, err := m.Checkpoint("incoming")
		if err != nil || position.Index != m.Applied() {
			t.Fatalf("checkpoint at %d: %v", position.Index, err)
		}
		if err := m.Swap("incoming"); err != nil {
			t.Fatalf("swap: %v", err)
		}
	}
	return m
}

func (r *run) ends() {
	checkLog(r.t, r.plain, r.model)
	checkLetters(r.t, r.troubled, r.model)
	reload(r.t, r.troubled)
	checkGroups(r.t, r.troubled, r.model)
	if !slices.Equal(stored(r.t, r.plain.db), stored(r.t, r.troubled.db)) {
		r.t.Fatalf("dumps differ:\n%s\n%s", dump(r.t, r.plain), dump(r.t, r.troubled))
	}
}

// tally is what all histories together have met.
type tally struct {
	mu sync.Mutex
	n  map[string]int
}

func (c *tally) add(lists ...map[string]int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, list := range lists {
		for what, n := range list {
			c.n[what] += n
		}
	}
}

// floors is how often each thing must be met in a thousand histories: about half of what
// is usual.
var floors = map[string]int{
	"history":                          1000,
	"command":                          1000 * minCommands,
	"election":                         1000,
	"restart":                          100,
	"snapshot":                         100,
	"state loaded again":               300,
	"frame.Publish":                    5000,
	"frame.CursorCreate":               1500,
	"frame.CursorOpen":                 1000,
	"frame.CursorCommit":               1000,
	"frame.CursorSeek":                 500,
	"frame.CursorChange":               300,
	"frame.CursorDelete":               500,
	"frame.Trim":                       500,
	"frame.SettingSet":                 700,
	"frame.DedupPolicySet":             700,
	"duplicate by a policy":            300,
	"policy with another window":       30,
	"key of a policy expired":          300,
	"frame.VoterHealth":                400,
	"frame.DeadLetter":                 1500,
	"frame.Redrive":                    1500,
	"frame.Purge":                      500,
	"frame.LetterImport":               300,
	"frame.LetterKeep":                 150,
	"letter kept before":               10,
	"kept letter gone":                 10,
	"frame.GroupCreate":                1000,
	"frame.GroupSettle":                4000,
	"frame.GroupDead":                  1000,
	"frame.FlowPut":                    500,
	"frame.FlowRemove":                 200,
	"letter dead again":                10,
	"letter repeated":                  50,
	"letter resolved":                  50,
	"letter revived":                   50,
	"letter without room":              10,
	"letters redriven":                 200,
	"letters stored":                   700,
	"letter about letters":             50,
	"letters stale":                    50,
	"letters too old":                  50,
	"dead in a group":                  200,
	"letter of a group resolved":       15,
	"letter resolved out of order":     5,
	"group passed by a trim":           100,
	"settled out of order":             1000,
	"retry kept":                       100,
	"retry again":                      50,
	"settlement of another generation": 400,
	"settlement of another term":       100,
	"settlement out of order":          80,
	"settlement past the tail":         10,
}

// enough logs what was met, and fails where that is too little to prove anything.
func (c *tally) enough(t *testing.T) {
	n := c.n["history"]
	for _, what := range slices.Sorted(maps.Keys(floors)) {
		t.Logf("%8d %s", c.n[what], what)
		if floor := floors[what] * n / 1000; n >= shortHistories*4 && c.n[what] < floor {
			t.Errorf("%s was met %d times in %d histories, want %d", what, c.n[what], n, floor)
		}
	}
}
