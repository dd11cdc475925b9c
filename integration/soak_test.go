package integration

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
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
)

// soak is a cluster under load that is broken in one way after the other.
type soak struct {
	*cluster
	net     *netCluster        // nil without namespaces
	disks   map[*process]*disk // nil without file systems to mount
	strace  string
	deck    []*soakFault // to come
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
	Failures []string              `json:"failures"`
}

// soakTime is what one fault cost.
type soakTime struct {
	Lasted   float64 `json:"lasted"`   // seconds, from the fault to its end
	NoAcks   float64 `json:"no_acks"`  // the longest time without an acknowledgement, from the fault to health
	Recovery float64 `json:"recovery"` // from the fault's end until one leader has all voters healthy and caught up
}

// A cluster under every kind of load is broken in every way this machine allows, drawn at random
// from a seed. No promise is broken: nothing acknowledged is lost or stored twice, nothing refused
// appears, reads and cursors are linearizable, every node has the same log, the group handles
// every event, and no node panics.
func TestSoak(t *testing.T) {
	if *soakLasts == 0 {
		t.Skip("the soak runs with -soak DURATION: make soak")
	}
	seed := *soakSeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("seed %d, %d voters, %s", seed, *soakVoters, *soakLasts)
	s := newSoak(t, *soakVoters, seed)
	began := time.Now()
	rng := rand.New(rand.NewPCG(seed, 0))
	s.startAll()
	s.whole()
	s.clients.start(t.Context())
	lastCheck := time.Now()
	for time.Since(began) < *soakLasts && len(s.h.violations) == 0 {
		s.breakOnce(s.draw(rng), rand.New(rand.NewPCG(rng.Uint64(), 0)))
		if time.Since(lastCheck) > 30*time.Second && time.Since(began) < *soakLasts {
			s.check()
			s.clients.start(t.Context())
			lastCheck = time.Now()
		}
	}
	if len(s.h.violations) == 0 {
		s.check()
		s.mustRun("verify")
	}
	s.finish(seed, time.Since(began))
}

func newSoak(t *testing.T, voters int, seed uint64) *soak {
	s := &soak{h: newHistory(), logRead: map[*process]int64{}}
	rng := rand.New(rand.NewPCG(seed, 1))
	if rng.IntN(2) == 0 { // a raft log so short that who is away for a moment needs a snapshot
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
	s.figures.Faults = map[string][]soakTime{}
	s.clients = newSoakClients(s.h, s.cluster, seed)
	s.lookForTools()
	return s
}

// draw chooses the next fault. All possible ones come before any of them does again.
func (s *soak) draw(rng *rand.Rand) *soakFault {
	if len(s.deck) == 0 {
		for i := range soakFaults {
			if f := &soakFaults[i]; s.possible(f) && strings.Contains(f.name, *soakOnly) {
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
	s.h.gap()
	began := time.Now()
	f.do(s, rng)
	mended := time.Now()
	s.whole()
	cost := soakTime{
		Lasted: mended.Sub(began).Seconds(), NoAcks: s.h.gap().Seconds(), Recovery: time.Since(mended).Seconds(),
	}
	s.figures.Faults[f.name] = append(s.figures.Faults[f.name], cost)
	s.lookForPanics()
}

// whole waits until all nodes follow one leader, all are healthy voters, and each has applied what
// the leader had committed then.
func (s *soak) whole() {
	s.t.Helper()
	committed := uint64(0)
	s.eventually(2*time.Minute, "health of all voters", func() error {
		var first clusterView
		for i, p := range s.nodes {
			v, err := s.view(p)
			if err != nil {
				return fmt.Errorf("%s: %w", p.id, err)
			}
			if i == 0 {
				first = v
			}
			if v.LeaderID == "" || v.LeaderID != first.LeaderID || v.Term != first.Term {
				return fmt.Errorf("%s follows %q in term %d, %s %q in term %d", p.id, v.LeaderID, v.Term, s.nodes[0].id, first.LeaderID, first.Term)
			}
			if v.Role == "leader" {
				committed = max(committed, 1)
				for _, m := range v.Members {
					if !m.Healthy || !m.Voter {
						return fmt.Errorf("%s: healthy %t, voter %t, says %s", m.ID, m.Healthy, m.Voter, p.id)
					}
				}
				if len(v.Members) != len(s.nodes) {
					return fmt.Errorf("%s knows %d members", p.id, len(v.Members))
				}
				if committed == 1 {
					committed = v.CommitIndex
				}
			}
			if v.AppliedIndex < committed {
				return fmt.Errorf("%s has applied %d of %d", p.id, v.AppliedIndex, committed)
			}
		}
		if committed == 0 {
			return fmt.Errorf("nobody leads")
		}
		return nil
	})
}

func (s *soak) view(p *process) (v clusterView, err error) {
	web := plainHTTP
	if p.web != nil {
		web = p.web
	}
	return v, getJSONBy(s.t.Context(), web, p.url()+"/v1/cluster", &v)
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

// check stops the load and holds the new part of the log of every node against the history.
func (s *soak) check() {
	s.t.Helper()
	tail := s.clients.pause()
	from := s.h.checkedTo + 1
	var first []soakStored
	for i, p := range s.nodes {
		part := s.readFrom(p, from, tail)
		if i == 0 {
			first = part
			continue
		}
		if len(part) != len(first) {
			s.h.violation("%s has %d events from offset %d to %d, %s has %d", p.id, len(part), from, tail, s.nodes[0].id, len(first))
			continue
		}
		if at := slices.IndexFunc(part, func(e soakStored) bool { return e != first[e.Offset-part[0].Offset] }); at >= 0 {
			s.h.violation("%s has another event at offset %d than %s", p.id, part[at].Offset, s.nodes[0].id)
		}
	}
	s.h.check(s.nodes[0].id, first, tail)
	s.h.checkCursors()
	s.clients.group.check(first)
	s.t.Logf("checked to offset %d: %+v", tail, s.h.counts)
}

// readFrom reads a part of a node's own log.
func (s *soak) readFrom(p *process, from, to uint64) (part []soakStored) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), 2*time.Minute)
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

// finish prints the run's table. Its figures are kept beside those of earlier runs, if a file is
// named for them, and the table of all is put into docs/reliability.md.
func (s *soak) finish(seed uint64, took time.Duration) {
	revision, _ := exec.Command("git", "rev-parse", "--short", "HEAD").Output()
	s.figures.Revision, s.figures.Seed, s.figures.Voters = strings.TrimSpace(string(revision)), seed, len(s.nodes)
	s.figures.Seconds, s.figures.Counts, s.figures.Failures = took.Seconds(), s.h.counts, s.h.violations
	if len(s.h.violations) > 0 {
		s.t.Errorf("%d violations:\n%s", len(s.h.violations), strings.Join(s.h.violations, "\n"))
	}
	s.t.Logf("\n%s", soakTable([]soakRun{s.figures}))
	if *soakResults != "" {
		if err := keepResults(*soakResults, "../docs/reliability.md", s.figures); err != nil {
			s.t.Fatal(err)
		}
	}
}

// keepResults appends a run to a file and renders the table of all its runs into a document.
func keepResults(results, document string, run soakRun) error {
	text, err := os.ReadFile(results)
	if err != nil && !os.IsNotExist(err) {
		return err
	}
	line, err := json.Marshal(run)
	if err != nil {
		return err
	}
	text = append(append(text, line...), '\n')
	var runs []soakRun
	for lines := json.NewDecoder(bytes.NewReader(text)); lines.More(); {
		var r soakRun
		if err := lines.Decode(&r); err != nil {
			return fmt.Errorf("%s: %w", results, err)
		}
		runs = append(runs, r)
	}
	if err := os.WriteFile(results, text, 0o644); err != nil {
		return err
	}
	const begin, end = "<!-- make soak writes what follows -->\n", "<!-- up to here -->\n"
	page, err := os.ReadFile(document)
	if err != nil {
		return err
	}
	before, rest, found := strings.Cut(string(page), begin)
	_, after, ended := strings.Cut(rest, end)
	if !found || !ended {
		return fmt.Errorf("%s has no place for the table", document)
	}
	return os.WriteFile(document, []byte(before+begin+"\n"+soakTable(runs)+"\n"+end+after), 0o644)
}

// soakTable is the table of docs/reliability.md over some runs.
func soakTable(runs []soakRun) string {
	var b strings.Builder
	var sum soakCounts
	faults, seconds, violations := map[string][]soakTime{}, 0.0, 0
	for _, r := range runs {
		seconds += r.Seconds
		violations += len(r.Failures)
		sum.add(r.Counts)
		for name, times := range r.Faults {
			faults[name] = append(faults[name], times...)
		}
	}
	total := 0
	for _, times := range faults {
		total += len(times)
	}
	fmt.Fprintf(&b, "%d runs, %.1f hours, %d faults, %d violations.\n\n", len(runs), seconds/3600, total, violations)
	fmt.Fprintf(&b, "| events acknowledged | refused | of unknown outcome | of those stored | duplicates suppressed | linearizable reads | cursor operations | deliveries | group acknowledgements |\n")
	fmt.Fprintf(&b, "| --- | --- | --- | --- | --- | --- | --- | --- | --- |\n| %d | %d | %d | %d | %d | %d | %d | %d | %d |\n\n",
		sum.Acked, sum.Refused, sum.Unknown, sum.UnknownStored, sum.Duplicates, sum.LinearizableReads, sum.CursorOps, sum.Deliveries, sum.Acks)
	fmt.Fprintf(&b, "| fault | times | lasts, median s | no acknowledgement, p50 / p99 s | recovery, p50 / p99 s |\n| --- | --- | --- | --- | --- |\n")
	for _, f := range soakFaults {
		times := faults[f.name]
		if len(times) == 0 {
			continue
		}
		of := func(get func(soakTime) float64) (p50, p99 float64) {
			var values []float64
			for _, t := range times {
				values = append(values, get(t))
			}
			slices.Sort(values)
			return values[(len(values)-1)/2], values[(len(values)-1)*99/100]
		}
		lasts, _ := of(func(t soakTime) float64 { return t.Lasted })
		quiet50, quiet99 := of(func(t soakTime) float64 { return t.NoAcks })
		back50, back99 := of(func(t soakTime) float64 { return t.Recovery })
		fmt.Fprintf(&b, "| %s | %d | %.1f | %.2f / %.2f | %.2f / %.2f |\n", f.name, len(times), lasts, quiet50, quiet99, back50, back99)
	}
	return b.String()
}

func (c *soakCounts) add(o soakCounts) {
	c.Acked += o.Acked
	c.Refused += o.Refused
	c.Unknown += o.Unknown
	c.UnknownStored += o.UnknownStored
	c.Duplicates += o.Duplicates
	c.LinearizableReads += o.LinearizableReads
	c.CursorOps += o.CursorOps
	c.Deliveries += o.Deliveries
	c.Acks += o.Acks
}
