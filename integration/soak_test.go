package integration

import (
	"bytes"
	"cmp"
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ringrift/ringlog/client"
)

// Flags of TestSoak; make soak sets them.
var (
	soakLasts   = flag.Duration("soak", 0, "how long TestSoak runs; 0 skips it")
	soakVoters  = flag.Int("soak.voters", 3, "voters of TestSoak's cluster, 3 or 5")
	soakSeed    = flag.Uint64("soak.seed", 0, "what TestSoak draws its faults from; 0 chooses one")
	soakOnly    = flag.String("soak.only", "", "draw only faults whose name contains this")
	soakResults = flag.String("soak.results", "", "file to append the figures of the run to, as one line of JSON")
	soakClocks  = flag.Bool("soak.clocks", false, "let clocks step, too, with a standard library compiled for it")
	soakKeep    = flag.String("soak.keep", filepath.Join(os.TempDir(), "ringlog-soak"), "where failed runs are kept")
)

// longest is how long anything may take that has to happen. It is no promise of the cluster: what it took is in
// the figures. On a machine that is busy elsewhere little happens in time.
const longest = 5 * time.Minute

// soak is a cluster under load that is broken in one way after the other.
type soak struct {
	*cluster
	net     *netCluster        // nil without namespaces
	disks   map[*process]*disk // nil without file systems to mount
	clocks  map[*process]*wallClock
	strace  string
	deck    []*soakFault // the faults that come before any is repeated
	missing string       // why the fault under way is not done; "" if it is
	args    []string     // of serve, for replacements
	h       *history
	clients *soakClients
	logRead map[*process]int64 // up to where a node's diagnostics were looked through
	figures soakRun
}

// soakRun are the figures of one run.
type soakRun struct {
	Revision string                `json:"revision"`
	Seed     uint64                `json:"seed"`
	Voters   int                   `json:"voters"`
	Seconds  float64               `json:"seconds"`
	Counts   soakCounts            `json:"counts"`
	Faults   map[string][]soakTime `json:"faults"`
	NotDone  map[string]int        `json:"not_done"`   // by fault: how often it came up and could not be made
	Never    map[string]string     `json:"impossible"` // by fault: what this machine or cluster lacks for it
	Failures []string              `json:"failures"`
}

// soakTime is what one fault cost.
type soakTime struct {
	Lasted   float64 `json:"lasted"`   // seconds, from the fault to its end
	NoAcks   float64 `json:"no_acks"`  // the longest time without an acknowledgement, until health; -1 without load
	Recovery float64 `json:"recovery"` // from the fault's end until one leader has all voters healthy and caught up
}

// A cluster under every kind of load is broken in every way this machine allows, drawn at random
// from a seed. No promise is broken: nothing acknowledged is lost or stored twice, nothing refused
// appears, reads and cursors are linearizable, every node has the same log, terms and append times
// rise, the group handles every event, and no node panics.
func TestSoak(t *testing.T) {
	if *soakLasts == 0 {
		t.Skip("the soak runs with -soak DURATION: make soak")
	}
	// The cluster, whole and under load.
	seed := *soakSeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("seed %d, %d voters, %s", seed, *soakVoters, *soakLasts)
	s := newSoak(t, *soakVoters, seed)
	began := time.Now()
	defer func() { s.finish(t, time.Since(began)) }()
	rng := rand.New(rand.NewPCG(seed, 0))
	s.startAll()
	s.awaitWhole()
	s.mustRun("settings", "set", "dedup.window", soakWindow.String())
	s.mustRun("settings", "set", "producer.ttl", "24h") // no jump of replicated time ends a producer
	s.clients.start(t.Context())
	// One fault after the other; every 30 seconds the load pauses and everything is checked.
	lastCheck := time.Now()
	for time.Since(began) < *soakLasts && !s.h.violated() {
		s.breakOnce(s.nextFault(rng), rand.New(rand.NewPCG(rng.Uint64(), 0)))
		if time.Since(lastCheck) > 30*time.Second && time.Since(began) < *soakLasts && !s.h.violated() {
			s.check()
			s.clients.start(t.Context())
			lastCheck = time.Now()
		}
	}
	if !s.h.violated() {
		s.check()
		s.mustRun("verify")
	}
}

// witness makes every failure that the functions of cluster and process report a violation: an answer
// that is wrong, or one that does not come.
type witness struct {
	testing.TB
	h *history
}

// Fatal implements testing.TB.
func (w witness) Fatal(args ...any) {
	w.Helper()
	w.h.violation("%s", fmt.Sprint(args...))
	w.FailNow()
}

// Fatalf implements testing.TB.
func (w witness) Fatalf(format string, args ...any) {
	w.Helper()
	w.h.violation(format, args...)
	w.FailNow()
}

// newSoak starts the cluster of a run. As root every voter has a network namespace and a file system of its own.
func newSoak(t *testing.T, voters int, seed uint64) *soak {
	s := &soak{h: newHistory(), logRead: map[*process]int64{}}
	rng := rand.New(rand.NewPCG(seed, 1))
	if rng.IntN(2) == 0 { // a raft log that is short enough that a voter needs a snapshot after a moment's absence
		s.args = []string{"--raft-compact-interval", "1s", "--raft-compact-entries", "256", "--raft-trailing-entries", "64"}
	}
	if os.Geteuid() == 0 {
		s.net = newNetCluster(t, voters, s.args...)
		s.cluster = s.net.cluster
		s.args = append(s.args, "--insecure")
		s.disks = map[*process]*disk{}
		for _, p := range s.nodes {
			d := newDisk(t)
			s.disks[p] = d
			p.dir = filepath.Join(d.mount, p.id)
		}
	} else {
		s.cluster = newCluster(t, t.TempDir(), voters, s.args...)
	}
	s.strace, _ = exec.LookPath("strace")
	if *soakClocks {
		s.useClocks(t)
	}
	// From here on what fails in the cluster's own functions is a violation.
	s.cluster.t = witness{t, s.h}
	for _, p := range s.nodes {
		p.t = s.cluster.t
	}
	revision, _ := exec.Command("git", "rev-parse", "--short", "HEAD").Output()
	s.figures = soakRun{
		Revision: strings.TrimSpace(string(revision)), Seed: seed, Voters: voters,
		Faults: map[string][]soakTime{}, NotDone: map[string]int{}, Never: map[string]string{},
	}
	s.clients = newSoakClients(s.h, s.cluster, seed)
	return s
}

// nextFault chooses the next fault. All possible ones come before any of them does again.
func (s *soak) nextFault(rng *rand.Rand) *soakFault {
	if len(s.deck) == 0 {
		for i := range soakFaults {
			f := &soakFaults[i]
			if why := s.impossible(f); why != "" {
				s.figures.Never[f.name] = why
			} else if strings.Contains(f.name, *soakOnly) {
				s.deck = append(s.deck, f)
			}
		}
		if len(s.deck) == 0 {
			s.t.Fatalf("no fault is possible here whose name contains %q", *soakOnly)
		}
		rng.Shuffle(len(s.deck), func(i, j int) { s.deck[i], s.deck[j] = s.deck[j], s.deck[i] })
	}
	f := s.deck[0]
	s.deck = s.deck[1:]
	return f
}

// breakOnce has one fault happen and measures what it cost.
func (s *soak) breakOnce(f *soakFault, rng *rand.Rand) {
	s.t.Logf("%s", f.name)
	s.h.beginFault(f.name)
	if f.unloaded != nil {
		s.letLast(rng) // there has to be something to lose
		s.check()
	}
	// The fault, and the time until the cluster is whole again.
	s.h.gap()
	s.missing = ""
	began := time.Now()
	verify := func() {}
	if f.unloaded != nil {
		verify = f.unloaded(s)
	} else {
		f.do(s, rng)
	}
	repaired := time.Now()
	s.awaitWhole()
	cost := soakTime{
		Lasted: repaired.Sub(began).Seconds(), NoAcks: s.h.gap().Seconds(), Recovery: time.Since(repaired).Seconds(),
	}
	if f.unloaded != nil {
		cost.NoAcks = -1
		verify()
		s.clients.start(s.t.Context())
	}
	// What was not done has no cost.
	if s.missing != "" {
		s.t.Logf("%s: not done: %s", f.name, s.missing)
		s.figures.NotDone[f.name]++
	} else {
		s.figures.Faults[f.name] = append(s.figures.Faults[f.name], cost)
	}
	s.lookForPanics()
}

// notDone notes that the fault under way is not what its name says.
func (s *soak) notDone(format string, args ...any) { s.missing = fmt.Sprintf(format, args...) }

// awaitWhole waits until all nodes follow one leader, all are healthy voters, and each has applied what
// the leader had committed then. After a violation it returns at once.
func (s *soak) awaitWhole() {
	s.t.Helper()
	committed := uint64(0)
	s.eventually(longest, "health of all voters", func() error {
		if s.h.violated() {
			return nil
		}
		views := make([]clusterView, len(s.nodes))
		for i, p := range s.nodes {
			var err error
			views[i], err = s.view(p)
			if err != nil {
				return fmt.Errorf("%s: %w", p.id, err)
			}
		}
		// All nodes follow one leader, which is one of them.
		for i, v := range views {
			if v.LeaderID == "" || v.LeaderID != views[0].LeaderID || v.Term != views[0].Term {
				return fmt.Errorf("%s follows %q in term %d, %s %q in term %d", s.nodes[i].id, v.LeaderID, v.Term,
					s.nodes[0].id, views[0].LeaderID, views[0].Term)
			}
		}
		leader := slices.IndexFunc(views, func(v clusterView) bool { return v.Role == "leader" })
		if leader < 0 {
			return fmt.Errorf("no node leads")
		}
		// It has every node as a healthy voter.
		v := views[leader]
		if len(v.Members) != len(s.nodes) {
			return fmt.Errorf("%s knows %d members", s.nodes[leader].id, len(v.Members))
		}
		for _, m := range v.Members {
			if !m.Healthy || !m.Voter {
				return fmt.Errorf("%s reports of %s: healthy %t, voter %t", s.nodes[leader].id, m.ID, m.Healthy, m.Voter)
			}
		}
		// Each node has applied what was committed when all that was first true.
		if committed == 0 {
			committed = v.CommitIndex
		}
		for i, v := range views {
			if v.AppliedIndex < committed {
				return fmt.Errorf("%s has applied %d of %d", s.nodes[i].id, v.AppliedIndex, committed)
			}
		}
		return nil
	})
}

// view returns what a node reports of the cluster, and notes whether it claims to lead.
func (s *soak) view(p *process) (v clusterView, err error) {
	err = getJSON(s.t.Context(), cmp.Or(p.web, plainHTTP), p.url()+"/v1/cluster", &v)
	if err == nil && v.Role == "leader" {
		s.h.noteLeader(v.Term, p.id, p.id)
	}
	return v, err
}

// lookForPanics reads what the nodes have said since the last time.
func (s *soak) lookForPanics() {
	for _, p := range s.nodes {
		text, err := os.ReadFile(p.log)
		if err != nil {
			s.t.Fatal(err)
		}
		fresh := text[min(int64(len(text)), s.logRead[p]):]
		s.logRead[p] = int64(len(text))
		for _, sign := range []string{"panic:", "fatal error:", "DATA RACE", "goroutine 1 ["} {
			if at := bytes.Index(fresh, []byte(sign)); at >= 0 {
				s.h.violation("%s: %s", p.id, fresh[at:min(len(fresh), at+2000)])
				break
			}
		}
	}
}

// check stops the load and compares the new part of the log of every node with the history.
func (s *soak) check() {
	s.t.Helper()
	tail := s.clients.pause()
	// Every node has the same events as the first.
	from := s.h.checkedTo + 1
	var first []soakStored
	for i, p := range s.nodes {
		part := s.readFrom(p, from, tail)
		if i == 0 {
			first = part
			continue
		}
		if len(part) != len(first) {
			s.h.violation("%s has %d events from offset %d to %d, %s has %d",
				p.id, len(part), from, tail, s.nodes[0].id, len(first))
			continue
		}
		if at := slices.IndexFunc(part, func(e soakStored) bool { return e != first[e.Offset-part[0].Offset] }); at >= 0 {
			s.h.violation("%s has another event at offset %d than %s", p.id, part[at].Offset, s.nodes[0].id)
		}
	}
	// The first node's are what the history and the group require.
	s.h.check(s.nodes[0].id, first, tail)
	s.h.checkCursors()
	s.clients.group.check(first)
	s.clients.lease.check(first)
	s.checkTakeOver(rand.New(rand.NewPCG(s.figures.Seed, tail)))
	s.t.Logf("checked to offset %d: %+v", tail, s.h.counts)
}

// readFrom reads a part of a node's own log.
func (s *soak) readFrom(p *process, from, to uint64) (part []soakStored) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), longest)
	defer cancel()
	o := client.TailOptions{From: client.FromOffset(from), NoFollow: true, MinOffset: to}
	for e, err := range s.reader(p).Tail(ctx, o) {
		if err != nil {
			s.t.Fatalf("read %s from %d to %d: %v", p.id, from, to, err)
		}
		if e.Offset > to {
			break
		}
		part = append(part, storedOf(&e))
	}
	return part
}

// finish ends the run and prints its table. Its figures are kept beside those of earlier runs, if a file is
// named for them, and the table of all is put into docs/reliability.md. A run that found something is kept.
func (s *soak) finish(t *testing.T, took time.Duration) {
	for _, d := range s.disks {
		_ = exec.Command("xfs_freeze", "-u", d.mount).Run() // or its node would not end
	}
	for _, p := range s.nodes {
		p.signal(syscall.SIGKILL)
	}
	s.clients.end()
	s.figures.Seconds, s.figures.Counts, s.figures.Failures = took.Seconds(), s.h.counts, s.h.violations
	t.Logf("\n%s", soakTable([]soakRun{s.figures}))
	if *soakResults != "" {
		if err := keepResults(*soakResults, "../docs/reliability.md", s.figures); err != nil {
			t.Error(err)
		}
	}
	if !t.Failed() && len(s.h.violations) == 0 {
		return
	}
	dir, err := s.keepRun(*soakKeep)
	if err != nil {
		t.Errorf("keep the run in %s: %v", dir, err)
	}
	t.Errorf("%d violations, the run is kept in %s, repeat it: %s\n%s",
		len(s.h.violations), dir, s.repeat(), strings.Join(s.h.violations, "\n"))
}

// repeat is the command that draws the same faults in the same order.
func (s *soak) repeat() string {
	return fmt.Sprintf("go test ./integration -count=1 -v -timeout 0 -run '^TestSoak$' "+
		"-soak %s -soak.voters %d -soak.seed %d -soak.clocks=%t -soak.only '%s'",
		*soakLasts, s.figures.Voters, s.figures.Seed, *soakClocks, *soakOnly)
}
