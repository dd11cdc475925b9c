package integration

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// soakFault is one way to break a cluster. do breaks it, lets that last, mends it and returns. unloaded is in
// its place where nothing may be under way: all is checked before it, and what it returns once the cluster is
// whole again.
type soakFault struct {
	name     string
	needs    need
	voters   int // at least; 0 is any
	do       func(*soak, *rand.Rand)
	unloaded func(*soak) (verify func())
}

// need is what a fault takes beside processes.
type need int

const (
	nothing    need = iota
	namespaces      // each voter in a network namespace of its own
	disks           // each voter on a file system of its own
	tracer          // strace
	clocks          // wall clocks that can be stepped
)

var soakFaults = []soakFault{
	{name: "kill leader", do: func(s *soak, r *rand.Rand) { s.kill(r, s.leader()) }},
	{name: "kill follower", do: func(s *soak, r *rand.Rand) { s.kill(r, s.followers(1)...) }},
	{name: "kill leader and heir", do: func(s *soak, r *rand.Rand) {
		first := s.leader()
		first.kill()
		if second := s.otherThan(first); second == nil {
			s.notDone("no node led after %s", first.id)
		} else {
			second.kill()
			s.letLast(r)
			second.start()
		}
		first.start()
	}},
	{name: "kill majority", do: func(s *soak, r *rand.Rand) { s.kill(r, s.random(r, len(s.nodes)/2+1)...) }},
	{name: "kill all", do: func(s *soak, r *rand.Rand) { s.kill(r, s.nodes...) }},
	{name: "kill five times", do: func(s *soak, r *rand.Rand) {
		for range 5 {
			p := s.random(r, 1)[0]
			p.kill()
			p.start()
		}
	}},
	{name: "SIGTERM leader", do: func(s *soak, r *rand.Rand) {
		p := s.leader()
		p.stop()
		s.letLast(r)
		p.start()
	}},
	{name: "step down", do: func(s *soak, _ *rand.Rand) { s.tolerant("cluster", "step-down") }},
	{name: "step down, heir killed", do: func(s *soak, r *rand.Rand) {
		s.tolerant("cluster", "step-down")
		s.kill(r, s.leader())
	}},
	{name: "pause leader", do: func(s *soak, r *rand.Rand) { s.pause(r, s.leader()) }},
	{name: "pause follower", do: func(s *soak, r *rand.Rand) { s.pause(r, s.followers(1)...) }},
	{name: "pause all", do: func(s *soak, r *rand.Rand) { s.pause(r, s.nodes...) }},
	{name: "pause leader repeatedly", do: func(s *soak, r *rand.Rand) {
		p := s.leader()
		for range 4 {
			s.pause(rand.New(rand.NewPCG(r.Uint64(), 1)), p)
		}
	}},

	{name: "isolate leader", needs: namespaces, do: func(s *soak, r *rand.Rand) {
		s.cut(r, func() { s.net.isolate(s.leader()) })
	}},
	{name: "isolate follower", needs: namespaces, do: func(s *soak, r *rand.Rand) {
		s.cut(r, func() { s.net.isolate(s.followers(1)[0]) })
	}},
	{name: "leader hears nobody", needs: namespaces, do: func(s *soak, r *rand.Rand) {
		l := s.leader()
		s.cut(r, func() {
			for _, p := range others(s.nodes, l) {
				s.net.oneWay(p, l)
			}
		})
	}},
	{name: "nobody hears the leader", needs: namespaces, do: func(s *soak, r *rand.Rand) {
		l := s.leader()
		s.cut(r, func() {
			for _, p := range others(s.nodes, l) {
				s.net.oneWay(l, p)
			}
		})
	}},
	{name: "one link, one way", needs: namespaces, do: func(s *soak, r *rand.Rand) {
		two := s.random(r, 2)
		s.cut(r, func() { s.net.oneWay(two[0], two[1]) })
	}},
	{name: "one link cut", needs: namespaces, do: func(s *soak, r *rand.Rand) {
		two := s.random(r, 2)
		s.cut(r, func() { s.net.oneWay(two[0], two[1]); s.net.oneWay(two[1], two[0]) })
	}},
	{name: "leader in the minority", needs: namespaces, voters: 5, do: func(s *soak, r *rand.Rand) {
		s.cut(r, func() { s.net.partition([]*process{s.leader(), s.followers(1)[0]}) })
	}},
	{name: "everybody alone", needs: namespaces, do: func(s *soak, r *rand.Rand) {
		s.cut(r, func() {
			var groups [][]*process
			for _, p := range s.nodes {
				groups = append(groups, []*process{p})
			}
			s.net.partition(groups...)
		})
	}},
	{name: "isolate leader, kill its heir", needs: namespaces, do: func(s *soak, r *rand.Rand) {
		l := s.leader()
		s.net.isolate(l)
		if heir := s.otherThan(l); heir == nil {
			s.notDone("no node led after %s", l.id)
		} else {
			s.kill(r, heir)
		}
		s.net.heal()
	}},
	{name: "20 % loss everywhere", needs: namespaces, do: func(s *soak, r *rand.Rand) {
		s.cut(r, func() {
			for _, p := range s.nodes {
				s.net.impair(p, impairment{loss: 20})
			}
		})
	}},
	{name: "20 % loss at the leader", needs: namespaces, do: func(s *soak, r *rand.Rand) {
		s.cut(r, func() { s.net.impair(s.leader(), impairment{loss: 20}) })
	}},
	{name: "flapping link", needs: namespaces, do: func(s *soak, r *rand.Rand) {
		p := s.random(r, 1)[0]
		for range 5 {
			s.net.isolate(p)
			letPass(time.Second)
			s.net.heal()
			letPass(time.Second)
		}
	}},
	{name: "thin link to a follower", needs: namespaces, do: func(s *soak, r *rand.Rand) {
		s.cut(r, func() { s.net.impair(s.followers(1)[0], impairment{rate: 100 + r.IntN(2000)}) })
	}},

	{name: "replace a voter", do: func(s *soak, r *rand.Rand) { s.replace(s.followers(1)[0]) }},
	{name: "replace the leader", do: func(s *soak, r *rand.Rand) { s.replace(s.leader()) }},
	{name: "replace every voter in turn", do: func(s *soak, r *rand.Rand) {
		for _, i := range r.Perm(len(s.nodes)) {
			s.replace(s.nodes[i])
			s.awaitWhole()
		}
	}},
	{name: "replace a voter that was away", do: func(s *soak, r *rand.Rand) {
		p := s.followers(1)[0]
		p.kill()
		s.letLast(r)
		s.trim()
		s.replace(p)
	}},
	{name: "wipe a voter", do: func(s *soak, _ *rand.Rand) { s.wipe(s.followers(1)[0]) }},
	{name: "recover from one voter", unloaded: (*soak).recoverFromOne},
	{name: "demote and promote", do: func(s *soak, _ *rand.Rand) {
		p := s.followers(1)[0]
		s.tolerant("cluster", "demote", p.id, "--yes")
		s.eventually(longest, "promotion of "+p.id, func() error {
			out, err := s.run("cluster", "promote", p.id)
			if err != nil {
				return fmt.Errorf("%w: %s", err, out)
			}
			return nil
		})
	}},
	{name: "trim while one is killed", do: func(s *soak, r *rand.Rand) {
		p := s.followers(1)[0]
		p.kill()
		s.letLast(r)
		s.trim()
		s.letLast(r)
		p.start()
	}},
	{name: "trim while one is paused", do: func(s *soak, r *rand.Rand) {
		p := s.followers(1)[0]
		p.signal(syscall.SIGSTOP)
		s.letLast(r)
		s.trim()
		p.signal(syscall.SIGCONT)
	}},

	{name: "disk of the leader full", needs: disks, do: func(s *soak, r *rand.Rand) { s.fill(r, s.leader()) }},
	{name: "disk of a follower full", needs: disks, do: func(s *soak, r *rand.Rand) { s.fill(r, s.followers(1)[0]) }},
	{name: "disk of the leader hangs", needs: disks, do: func(s *soak, r *rand.Rand) { s.freeze(r, s.leader()) }},
	{name: "disk of a follower hangs", needs: disks, do: func(s *soak, r *rand.Rand) {
		s.freeze(r, s.followers(1)[0])
	}},
	{name: "power loss of one", needs: disks, do: func(s *soak, r *rand.Rand) { s.losePower(r, s.random(r, 1)...) }},
	{name: "power loss of all", needs: disks, do: func(s *soak, r *rand.Rand) { s.losePower(r, s.nodes...) }},
	{name: "power loss of a majority", needs: disks, do: func(s *soak, r *rand.Rand) {
		s.losePower(r, s.random(r, len(s.nodes)/2+1)...)
	}},
	{name: "failed sync at the leader", needs: tracer, do: func(s *soak, r *rand.Rand) { s.failSync(r, s.leader()) }},
	{name: "failed sync at a follower", needs: tracer, do: func(s *soak, r *rand.Rand) {
		s.failSync(r, s.followers(1)[0])
	}},
	{name: "slow syncs at the leader", needs: tracer, do: func(s *soak, r *rand.Rand) { s.slowSync(r, s.leader()) }},
	{name: "slow syncs at a follower", needs: tracer, do: func(s *soak, r *rand.Rand) {
		s.slowSync(r, s.followers(1)[0])
	}},
	{name: "step the leader's clock", needs: clocks, do: func(s *soak, r *rand.Rand) { s.stepOne(r, s.leader()) }},
	{name: "step a follower's clock", needs: clocks, do: func(s *soak, r *rand.Rand) {
		s.stepOne(r, s.followers(1)[0])
	}},
	{name: "step the clocks of a majority", needs: clocks, do: func(s *soak, r *rand.Rand) { s.stepMajority(r) }},
	{name: "flipped bit", do: func(s *soak, r *rand.Rand) {
		s.damage(r, func(f *os.File, size int64) error {
			at, b := r.Int64N(size), make([]byte, 1)
			if _, err := f.ReadAt(b, at); err != nil {
				return err
			}
			b[0] ^= 1 << r.IntN(8)
			_, err := f.WriteAt(b, at)
			return err
		})
	}},
	{name: "cut file", do: func(s *soak, r *rand.Rand) {
		s.damage(r, func(f *os.File, size int64) error { return f.Truncate(r.Int64N(size)) })
	}},
}

// letPass waits for d where the passing of time is the subject: how long a fault lasts, or that nothing happens.
// What waits for a condition uses poll.
func letPass(d time.Duration) { <-time.After(d) }

// letLast lets a fault last for 1 to 8 seconds.
func (s *soak) letLast(r *rand.Rand) {
	letPass(time.Second + time.Duration(r.IntN(7000))*time.Millisecond)
}

// followers are n voters that do not lead.
func (s *soak) followers(n int) []*process { return others(s.nodes, s.leader())[:n] }

// random are n voters.
func (s *soak) random(r *rand.Rand, n int) (chosen []*process) {
	for _, i := range r.Perm(len(s.nodes))[:n] {
		chosen = append(chosen, s.nodes[i])
	}
	return chosen
}

// otherThan returns the node that leads after p, nil if none does within some seconds.
func (s *soak) otherThan(p *process) (leader *process) {
	_ = poll(10*time.Second, func() error {
		for _, other := range others(s.nodes, p) {
			if st, err := other.status(); err == nil && st.Role == "leader" {
				leader = other
				return nil
			}
		}
		return errors.New("no other node leads")
	})
	return leader
}

// tolerant runs a command that an election under way may refuse; then the fault is not done.
func (s *soak) tolerant(args ...string) {
	if out, err := s.run(args...); err != nil {
		s.notDone("ringlog %s: %v: %s", strings.Join(args, " "), err, strings.TrimSpace(out))
	}
}

// kill kills nodes, waits for the time of a fault, and starts them again.
func (s *soak) kill(r *rand.Rand, victims ...*process) {
	for _, p := range victims {
		p.signal(syscall.SIGKILL)
	}
	for _, p := range victims {
		p.wait()
	}
	s.letLast(r)
	for _, p := range victims {
		p.start()
	}
}

// pause stops nodes for the time of a fault.
func (s *soak) pause(r *rand.Rand, victims ...*process) {
	for _, p := range victims {
		p.signal(syscall.SIGSTOP)
	}
	s.letLast(r)
	for _, p := range victims {
		p.signal(syscall.SIGCONT)
	}
}

// cut impairs the network, for a while.
func (s *soak) cut(r *rand.Rand, impair func()) {
	impair()
	s.letLast(r)
	s.net.heal()
}

// replace puts an empty node in a voter's place, as docs/operations.md says.
func (s *soak) replace(p *process) {
	p.kill()
	s.eventually(longest, "removal of "+p.id, func() error {
		out, err := s.run("cluster", "remove", p.id, "--yes")
		if err != nil && !strings.Contains(out, "not_found") {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	})
	s.empty(p)
	p.start()
}

// empty removes a stopped node's data, and lets it join the others when it starts.
func (s *soak) empty(p *process) {
	if err := removeContents(p.dir); err != nil {
		s.t.Fatal(err)
	}
	var seeds []string
	for _, other := range others(s.nodes, p) {
		seeds = append(seeds, other.url())
	}
	p.args = append([]string{"--join", strings.Join(seeds, ",")}, s.args...)
}

// removeContents empties a folder, which may be where a file system is mounted.
func removeContents(dir string) error {
	entries, err := os.ReadDir(dir)
	if os.IsNotExist(err) {
		return nil
	}
	for _, e := range entries {
		if err := os.RemoveAll(filepath.Join(dir, e.Name())); err != nil {
			return err
		}
	}
	return err
}

// trim drops what has been checked, past every cursor.
func (s *soak) trim() {
	s.h.mu.Lock()
	upTo := s.h.checkedTo
	s.h.mu.Unlock()
	if upTo <= 1 {
		s.notDone("nothing is checked yet that may be trimmed")
		return
	}
	s.tolerant("compact", "--before", fmt.Sprint(upTo), "--force", "--yes")
}

// fill leaves hardly any room on a node's disk.
func (s *soak) fill(r *rand.Rand, p *process) {
	ballast := filepath.Join(s.disks[p].mount, "ballast")
	var st syscall.Statfs_t
	if err := syscall.Statfs(s.disks[p].mount, &st); err != nil {
		s.t.Fatal(err)
	}
	// How much is left decides whether the disk only counts as full or writes to it fail.
	room := int64(st.Bavail) * st.Bsize
	leave := []int64{1 << 20, 32 << 20, 128 << 20}[r.IntN(3)]
	if room > leave {
		s.disks[p].must("fallocate", "-l", fmt.Sprint(room-leave), ballast)
	} else {
		s.notDone("%d bytes are free on the disk of %s already", room, p.id)
	}
	s.letLast(r)
	if err := os.Remove(ballast); err != nil && !os.IsNotExist(err) {
		s.t.Fatal(err)
	}
	// Unless the removal is synced, a power loss brings the ballast back for good.
	s.disks[p].must("sync", "-f", s.disks[p].mount)
	s.restartEnded(p, "DISK_FAILED")
}

// freeze holds up all writes to a node's disk.
func (s *soak) freeze(r *rand.Rand, p *process) {
	s.disks[p].must("xfs_freeze", "-f", s.disks[p].mount)
	s.letLast(r)
	s.disks[p].must("xfs_freeze", "-u", s.disks[p].mount)
	s.restartEnded(p, "DISK_HUNG", "DISK_FAILED")
}

// losePower drops what was not synced on these nodes' disks, at one moment as far as that goes.
func (s *soak) losePower(r *rand.Rand, victims ...*process) {
	for _, p := range victims {
		s.disks[p].lose()
	}
	for _, p := range victims {
		p.kill()
	}
	if r.IntN(2) == 0 {
		s.letLast(r)
	}
	for _, p := range victims {
		s.disks[p].restore()
		p.start()
	}
}

// failSync lets a sync of the node's raft log fail, which has to end the node.
func (s *soak) failSync(r *rand.Rand, p *process) {
	tr := s.traced().trace(p, "inject=fdatasync,fsync:error=EIO")
	select {
	case <-p.done:
	case <-time.After(longest):
		s.h.violation("%s did not end although every sync failed for %s", p.id, longest)
	}
	tr.stop()
	s.letLast(r)
	s.restartEnded(p, "DISK_FAILED")
}

// slowSync delays each sync of a node by 50 to 500 ms for the time of a fault.
func (s *soak) slowSync(r *rand.Rand, p *process) {
	tr := s.traced().trace(p, delay(time.Duration(50+r.IntN(450))*time.Millisecond))
	s.letLast(r)
	tr.stop()
}

// traced returns the cluster as the durability tests have it.
func (s *soak) traced() *syncedCluster { return &syncedCluster{cluster: s.cluster, strace: s.strace} }

// restartEnded starts a node again that may have ended itself, with one of these names in its log.
func (s *soak) restartEnded(p *process, names ...string) {
	select {
	case <-p.done:
	default:
		return
	}
	if text := p.tail(); !slices.ContainsFunc(names, func(name string) bool { return strings.Contains(text, name) }) {
		s.h.violation("%s ended without one of %v in its log:\n%s", p.id, names, text)
	}
	p.start()
}

// damage changes a file of a stopped follower. The node may refuse to start, or end once it reads
// the damage, by name, or serve nothing wrong; it is replaced in any case.
func (s *soak) damage(r *rand.Rand, change func(f *os.File, size int64) error) {
	// Any file of a follower.
	p := s.followers(1)[0]
	p.kill()
	var files []string
	err := filepath.WalkDir(p.dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			if info, err := d.Info(); err == nil && info.Size() > 0 && d.Name() != "ballast" {
				files = append(files, path)
			}
		}
		return err
	})
	if err != nil || len(files) == 0 {
		s.t.Fatalf("list the files of %s: %d, %v", p.id, len(files), err)
	}
	name := files[r.IntN(len(files))]
	f, err := os.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		s.t.Fatal(err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err == nil {
		err = change(f, info.Size())
	}
	if err != nil {
		s.t.Fatalf("damage %s: %v", name, err)
	}
	// It runs with the damage for a while, then it is replaced.
	s.t.Logf("damaged %s of %s", strings.TrimPrefix(name, p.dir), p.id)
	p.start()
	s.letLast(r)
	s.replace(p)
}

// impossible says what this machine or cluster lacks for the fault; "" is nothing.
func (s *soak) impossible(f *soakFault) string {
	switch {
	case len(s.nodes) < f.voters:
		return fmt.Sprintf("takes %d voters", f.voters)
	case f.needs == namespaces && s.net == nil, f.needs == disks && s.disks == nil:
		return "takes root"
	case f.needs == tracer && s.strace == "":
		return "strace is not installed"
	case f.needs == clocks && s.clocks == nil:
		return "takes -soak.clocks"
	}
	return ""
}
