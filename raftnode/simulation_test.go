package raftnode

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/fsm"
	"github.com/ringrift/ringlog/internal/frame"
	"github.com/ringrift/ringlog/internal/longtest"
	"github.com/ringrift/ringlog/internal/view/engine"
)

// TestSimulation runs whole nodes, three and five of them, through cycles of faults
// and healing in a bubble where time is free, and holds what the log has against
// what was done. RINGLOG_SIM_CYCLES and RINGLOG_SIM_SEED choose how many and which
// faults; goroutines still run in any order, so a seed repeats the faults alone.
// `make simulate` looks for seeds that find something.
func TestSimulation(t *testing.T) {
	cycles := simulated(t, "RINGLOG_SIM_CYCLES", 1000)
	switch {
	case os.Getenv("RINGLOG_SIM_CYCLES") != "":
	case !longtest.Enabled():
		cycles = 100
	case raceEnabled == 1:
		cycles = 150
	}
	seed := simulated(t, "RINGLOG_SIM_SEED", 202)
	for _, c := range []struct {
		nodes  int
		cycles uint64
	}{{3, cycles * 6 / 10}, {5, cycles - cycles*6/10}} {
		t.Run(fmt.Sprintf("%d nodes", c.nodes), func(t *testing.T) {
			t.Parallel()
			t.Logf("RINGLOG_SIM_CYCLES=%d RINGLOG_SIM_SEED=%d", cycles, seed)
			dir := memoryDir(t)
			synctest.Test(t, func(t *testing.T) { simulate(t, dir, c.nodes, int(c.cycles), seed) })
		})
	}
}

func simulated(t *testing.T, variable string, fallback uint64) uint64 {
	text := os.Getenv(variable)
	if text == "" {
		return fallback
	}
	v, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatalf("%s: %v", variable, err)
	}
	return v
}

// memoryDir is a folder where a sync costs nothing, if there is such a place with
// room for what the nodes' stores preallocate.
func memoryDir(t *testing.T) string {
	const memory, room = "/dev/shm", 4 << 30
	var st unix.Statfs_t
	if err := unix.Statfs(memory, &st); err == nil && uint64(st.Bavail)*uint64(st.Bsize) >= room {
		if dir, err := os.MkdirTemp(memory, "ringlog-simulation-"); err == nil {
			t.Cleanup(func() { os.RemoveAll(dir) })
			return dir
		}
	}
	return t.TempDir()
}

func simulate(t *testing.T, dir string, nodes, cycles int, seed uint64) {
	s := newSimulationWith(t, dir, nodes, seed, func(cfg *Config) {
		if seed%2 == 0 { // then who was away, or led alone, needs a snapshot soon
			cfg.Timing.SnapshotThreshold, cfg.Timing.SnapshotInterval, cfg.Timing.TrailingLogs = 8, 2*time.Second, 1
		}
	})
	s.defineView()
	began := time.Now()
	done := 0
	for ; done < cycles && !t.Failed(); done++ {
		f := s.draw()
		s.now = fmt.Sprintf("cycle %d at %v: %v", done, time.Since(began).Round(time.Millisecond), f)
		s.cycle(f)
	}
	s.now = "the end"
	s.finish()
	t.Logf("%d cycles, %v of their time: %v", done, time.Since(began).Round(time.Second), s.tally())
	if enough := cycles / 4; done == cycles && cycles >= 40 && (len(s.story.elected) < enough || s.outages() == 0) {
		t.Errorf("%d elections and %d outages, at least %d and 1 were to be expected: did the faults do anything?",
			len(s.story.elected), s.outages(), enough)
	}
}

// simulation is a cluster in a bubble. One goroutine drives it.
type simulation struct {
	t      *testing.T
	rng    *rand.Rand
	net    *simnet
	ids    []string
	config map[string]Config
	disks  map[string]simDisk
	nodes  map[string]*Node // that run
	client *simClient
	story  *story
	read   map[string]int // by node: how many events of its log were compared
	faults []inflicted
	calm   []span  // times without any fault that were long enough for all to notice
	cutOff []ledBy // that had no majority for long, of nodes that ran on
	now    string  // what is done now, for messages

	crashes, stepdowns int

	mu   sync.Mutex
	dead []string // nodes that have asked to be ended
}

// inflicted is a fault as it was.
type inflicted struct {
	what     string
	from, to time.Time
	quorum   bool // a node could reach a majority
	whole    bool // as many as a majority could, and their disks write: else they elect late, or not
	seen     bool // a node ran all the time
	raftOnly bool // the nodes reached each other over HTTP: only that nobody led shows it
}

func newSimulation(t *testing.T, dir string, nodes int, seed uint64) *simulation {
	return newSimulationWith(t, dir, nodes, seed, func(*Config) {})
}

func newSimulationWith(t *testing.T, dir string, nodes int, seed uint64, change func(*Config)) *simulation {
	s := &simulation{t: t, rng: rand.New(rand.NewPCG(seed, uint64(nodes))), net: newSimnet(),
		config: map[string]Config{}, disks: map[string]simDisk{}, nodes: map[string]*Node{}, client: newSimClient(),
		story: newStory(), read: map[string]int{}, now: "forming"}
	var doors []string
	for i := range nodes {
		s.ids = append(s.ids, fmt.Sprintf("n%d", i+1))
		doors = append(doors, "http://"+s.ids[i])
	}
	for _, id := range s.ids {
		host := simHost{s.net, id}
		cfg := Config{ID: id, Dir: filepath.Join(dir, id), RaftBind: id + ":1", HTTPAdvertise: id, Secret: []byte("token"),
			Version: "test", BootstrapExpect: nodes, Join: doors, Peers: host, Network: host, Logger: testLogger(t, id),
			Timing: Timing{CommitTimeout: 200 * time.Millisecond, SnapshotThreshold: 32, TrailingLogs: 16},
			Fatal:  func(err error) { s.fatal(id, err) }}
		s.disks[id] = newSimDisk()
		s.disks[id].attach(&cfg)
		change(&cfg)
		s.config[id] = cfg
		s.start(id)
	}
	t.Cleanup(func() {
		for id := range s.nodes {
			s.crash(id)
		}
	})
	s.settle()
	return s
}

// fatal takes note of a node that cannot continue. Only a transfer that got stuck is
// something that faults of the network may lead to.
func (s *simulation) fatal(id string, err error) {
	if !errors.Is(err, ErrTransferStuck) {
		s.t.Errorf("%s: %s: fatal: %v", s.now, id, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dead = append(s.dead, id)
}

func (s *simulation) start(id string) {
	n, err := Open(context.Background(), s.config[id])
	if err != nil {
		s.t.Fatalf("%s: open %s: %v", s.now, id, err)
	}
	s.nodes[id] = n
	s.net.up(id, n)
}

func (s *simulation) crash(id string) {
	s.disks[id].thaw() // what was waiting goes wrong or right with the process
	n := s.nodes[id]
	delete(s.nodes, id)
	s.net.up(id, nil)
	n.transport.Close()
	n.closeOnce.Do(func() { n.closeErr = n.release() })
	s.crashes++
}

// stop ends a node gracefully, for which it may not have the time.
func (s *simulation) stop(id string) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(s.rng.Int64N(int64(3*time.Second))))
	defer cancel()
	n := s.nodes[id]
	if err := n.Close(ctx); err != nil {
		s.t.Errorf("%s: close %s: %v", s.now, id, err)
	}
	delete(s.nodes, id)
	s.net.up(id, nil)
}

// cycle inflicts a fault, lets clients write meanwhile, heals, and holds what the
// log has against all that was done.
func (s *simulation) cycle(f fault) {
	var writing sync.WaitGroup
	deposed, term := s.deposes(f), s.story.term
	if leader := s.leaderID(""); deposed && !slices.Contains(f.down, leader) {
		s.cutOff = append(s.cutOff, ledBy{leader, s.nodes[leader].proposer.OpenTerm()})
	}
	if f.stepDown {
		writing.Go(s.stepDown())
	}
	s.inflict(f, &writing)
	if f.again != nil {
		s.mend(f)
		s.decides()
		time.Sleep(time.Duration(s.rng.Int64N(int64(time.Second))))
		f = *f.again
		s.inflict(f, &writing)
	}
	s.mend(f)
	writing.Wait()
	s.settle()
	s.net.thinOut(thin{}, s.pick(func(link) bool { return true })...)
	s.write(0)()
	s.settle()
	s.compare()
	if deposed && s.story.term == term {
		s.t.Errorf("%s: the leader was without a majority and stayed in term %d", s.now, term)
	}
	if s.rng.IntN(2) == 0 {
		s.rest(4 * time.Second)
	}
}

// inflict lets a fault last for its time, while clients write.
func (s *simulation) inflict(f fault, writing *sync.WaitGroup) {
	s.net.cut(f.how, f.links...)
	for _, id := range f.down {
		if f.graceful {
			s.stop(id)
		} else {
			s.crash(id)
		}
	}
	for _, id := range f.sick {
		if s.nodes[id] != nil {
			s.disks[id][f.part].hang()
		}
	}
	from := time.Now()
	for range s.rng.IntN(3) + f.writes {
		writing.Go(s.write(time.Duration(s.rng.Int64N(int64(f.lasts)))))
	}
	time.Sleep(f.lasts)
	able := 0
	for _, id := range s.ids {
		if s.reachesMajority(id, f) {
			able++
		}
	}
	whole := able > len(s.ids)/2 && len(f.thin) == 0 && (len(f.sick) == 0 || f.part == journalDisk)
	s.faults = append(s.faults, inflicted{what: s.now, from: from, to: time.Now(), quorum: able > 0, whole: whole,
		seen: len(f.down) < len(s.ids), raftOnly: f.via == raftPort})
}

// decides waits until the cluster has acknowledged something.
func (s *simulation) decides() {
	for before := s.client.acknowledged(); s.client.acknowledged() == before; {
		s.write(0)()
		time.Sleep(20 * time.Millisecond)
	}
}

// outages counts the faults that left no majority.
func (s *simulation) outages() (count int) {
	for _, f := range s.faults {
		if !f.quorum {
			count++
		}
	}
	return count
}

// rest leaves the cluster alone.
func (s *simulation) rest(d time.Duration) {
	from := time.Now()
	time.Sleep(d)
	s.calm = append(s.calm, span{from: from, to: time.Now()})
}

// mend ends a fault. Only a thin link stays thin until all have caught up.
func (s *simulation) mend(f fault) {
	s.net.thinOut(thin{rate: f.rate}, f.thin...)
	for _, d := range s.disks {
		d.thaw()
	}
	if s.rng.IntN(2) == 0 {
		s.net.heal()
	}
	for _, id := range f.down {
		s.start(id)
	}
	s.net.heal()
}

// stepDown has the leader hand over, perhaps to one that cannot take it.
func (s *simulation) stepDown() func() {
	n, target := s.nodes[s.leaderID(s.ids[0])], ""
	if s.rng.IntN(2) == 0 {
		target = s.ids[s.rng.IntN(len(s.ids))]
	}
	s.stepdowns++
	return func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		_ = n.StepDown(ctx, target) // what came of it the log has
	}
}

// write publishes once, after a while, at a node that runs now.
func (s *simulation) write(after time.Duration) func() {
	running := s.running()
	if len(running) == 0 {
		return func() {}
	}
	n := running[s.rng.IntN(len(running))]
	patience := time.Duration(1+s.rng.IntN(5)) * time.Second
	return func() {
		time.Sleep(after)
		s.client.publish(n, patience)
	}
}

func (s *simulation) running() []*Node {
	var list []*Node
	for _, id := range s.ids {
		if n := s.nodes[id]; n != nil {
			list = append(list, n)
		}
	}
	return list
}

// settle waits until all nodes run, follow one leader and have equal digests.
func (s *simulation) settle() {
	const limit = 90 * time.Second
	deadline := time.Now().Add(limit)
	for !s.settled() {
		if time.Now().After(deadline) {
			for _, n := range s.running() {
				s.t.Logf("%+v", n.Status())
			}
			s.t.Fatalf("%s: %v later the nodes still do not agree", s.now, limit)
		}
		time.Sleep(20 * time.Millisecond)
		s.revive()
	}
}

// revive restarts nodes that asked for it.
func (s *simulation) revive() {
	s.mu.Lock()
	dead := s.dead
	s.dead = nil
	s.mu.Unlock()
	for _, id := range dead {
		if s.nodes[id] != nil {
			s.crash(id)
			s.start(id)
		}
	}
}

func (s *simulation) settled() bool {
	leader := s.nodes[s.leaderID("")]
	if leader == nil {
		return false
	}
	index, sum := leader.machine.Digest()
	return !slices.ContainsFunc(s.ids, func(id string) bool {
		n := s.nodes[id]
		follows, _ := n.roster.Leader()
		i, digest := n.machine.Digest()
		return follows != leader.cfg.ID || n.machine.Leadership().Leader != leader.cfg.ID || i != index || digest != sum
	})
}

// compare reads the rest of each node's log: what one has all have, and it is a story
// that can be true.
func (s *simulation) compare() {
	for _, n := range s.running() {
		for {
			from := s.read[n.cfg.ID]
			chunk, err := n.machine.Log().Read(uint64(from)+1, &event.Matcher{}, 1024)
			if err != nil || chunk.Gap != nil {
				s.t.Fatalf("%s: %s: reading from %d: %v, %+v", s.now, n.cfg.ID, from+1, err, chunk.Gap)
			}
			if len(chunk.Events) == 0 {
				break
			}
			for _, e := range chunk.Events {
				if err := s.story.hear(e); err != nil {
					s.t.Errorf("%s: the log of %s: %v", s.now, n.cfg.ID, err)
				}
			}
			s.read[n.cfg.ID] = int(chunk.Next) - 1
		}
		if s.read[n.cfg.ID] != len(s.story.events) {
			s.t.Errorf("%s: %s has %d events, others have %d", s.now, n.cfg.ID, s.read[n.cfg.ID], len(s.story.events))
		}
	}
	s.compareViews()
}

// simView is the view that all nodes fold.
const simView = "everything"

func (s *simulation) defineView() {
	s.now = "defining a view"
	for s.nodes[s.ids[0]].machine.FeatureLevel() < frame.LevelViews {
		time.Sleep(20 * time.Millisecond)
	}
	_, err := s.nodes[s.ids[0]].Propose(context.Background(), frame.Request{Command: frame.ViewDefine{Name: simView,
		Declaration: `{"name": "everything", "key": "type", "fields": {"n": {"kind": "count"},
			"mean": {"kind": "ewma", "of": "offset", "half_life": "1m"}, "rate": {"kind": "rate", "window": "1h"}}}`}})
	if err != nil {
		s.t.Fatalf("%s: %v", s.now, err)
	}
	s.settle()
}

// compareViews requires that all nodes have the same rows of the view, folded from all that the log ever had.
func (s *simulation) compareViews() {
	rows := map[engine.Status]string{} // the nodes
	for _, n := range s.running() {
		if _, defined := n.machine.ViewDefinitions().Get(simView); !defined {
			return
		}
		_, end := n.machine.Log().Bounds()
		err := n.views.Wait(context.Background(), simView, end)
		if err == nil {
			err = n.views.Read(simView, func(r *engine.Reader) error {
				if r.At != end || r.From != 1 || r.Rows == 0 {
					s.t.Errorf("%s: %s: %+v of a log that ends at %d", s.now, n.cfg.ID, r.Status, end)
				}
				rows[r.Status] += n.cfg.ID + " "
				return nil
			})
		}
		if err != nil {
			s.t.Errorf("%s: the view of %s: %v", s.now, n.cfg.ID, err)
		}
	}
	if len(rows) > 1 {
		s.t.Errorf("%s: the nodes have different rows: %+v", s.now, rows)
	}
}

// finish gives the cluster time for what it reports late, then reads all logs again
// from the start.
func (s *simulation) finish() {
	s.net.heal()
	s.rest(30 * time.Second)
	s.settle()
	clear(s.read)
	s.compare()
	for _, err := range slices.Concat(s.client.check(s.story.published), s.story.end()) {
		s.t.Error(err)
	}
	if s.running()[0].machine.FeatureLevel() >= 2 {
		for _, err := range s.story.outages(s.faults, s.calm, s.client.calls) {
			s.t.Error(err)
		}
		for _, l := range s.cutOff {
			if !s.story.expired[l] {
				s.t.Errorf("%s led term %d and was cut off, and there is no LEADER_LEASE_EXPIRED of it", l.leader, l.term)
			}
		}
	}
}

func (s *simulation) tally() string {
	counts := map[string]int{}
	for _, e := range s.story.events {
		if e.Source == fsm.EmittedBy {
			counts[string(e.Type)]++
		}
	}
	snapshots := 0
	for _, n := range s.running() {
		if first, err := n.stores.Log().FirstIndex(); err == nil && first > 1 {
			snapshots++
		}
	}
	return fmt.Sprintf("%d crashes, %d asked to step down, %d outages of the majority, "+
		"%d of %d nodes have compacted, writes %v, the log has %v",
		s.crashes, s.stepdowns, s.outages(), snapshots, len(s.ids), s.client.tally(),
		strings.TrimPrefix(fmt.Sprint(counts), "map"))
}
