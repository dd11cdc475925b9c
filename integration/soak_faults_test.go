package integration

import (
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// soakFault is one way to break a cluster. do breaks it, lets that last, mends it and returns.
type soakFault struct {
	name   string
	needs  need
	voters int // at least; 0 is any
	do     func(*soak, *rand.Rand)
}

// need is what a fault takes beside processes.
type need int

const (
	nothing    need = iota
	namespaces      // each voter in a network namespace of its own
	disks           // each voter on a file system of its own
	tracer          // strace
)

var soakFaults = []soakFault{
	{"kill leader", nothing, 0, func(s *soak, r *rand.Rand) { s.kill(r, s.leader()) }},
	{"kill follower", nothing, 0, func(s *soak, r *rand.Rand) { s.kill(r, s.followers(1)...) }},
	{"kill leader and heir", nothing, 0, func(s *soak, r *rand.Rand) {
		first := s.leader()
		first.kill()
		second := s.otherThan(first)
		if second != nil {
			second.kill()
			s.last(r)
			second.start()
		}
		first.start()
	}},
	{"kill majority", nothing, 0, func(s *soak, r *rand.Rand) { s.kill(r, s.random(r, len(s.nodes)/2+1)...) }},
	{"kill all", nothing, 0, func(s *soak, r *rand.Rand) { s.kill(r, s.nodes...) }},
	{"kill five times", nothing, 0, func(s *soak, r *rand.Rand) {
		for range 5 {
			p := s.random(r, 1)[0]
			p.kill()
			p.start()
		}
	}},
	{"SIGTERM leader", nothing, 0, func(s *soak, r *rand.Rand) {
		p := s.leader()
		p.stop()
		s.last(r)
		p.start()
	}},
	{"step down", nothing, 0, func(s *soak, _ *rand.Rand) { s.tolerant("cluster", "step-down") }},
	{"step down, heir killed", nothing, 0, func(s *soak, r *rand.Rand) {
		s.tolerant("cluster", "step-down")
		s.kill(r, s.leader())
	}},
	{"pause leader", nothing, 0, func(s *soak, r *rand.Rand) { s.pause(r, s.leader()) }},
	{"pause follower", nothing, 0, func(s *soak, r *rand.Rand) { s.pause(r, s.followers(1)...) }},
	{"pause all", nothing, 0, func(s *soak, r *rand.Rand) { s.pause(r, s.nodes...) }},
	{"pause leader repeatedly", nothing, 0, func(s *soak, r *rand.Rand) {
		p := s.leader()
		for range 4 {
			s.pause(rand.New(rand.NewPCG(r.Uint64(), 1)), p)
		}
	}},

	{"isolate leader", namespaces, 0, func(s *soak, r *rand.Rand) { s.cut(r, func() { s.net.isolate(s.leader()) }) }},
	{"isolate follower", namespaces, 0, func(s *soak, r *rand.Rand) { s.cut(r, func() { s.net.isolate(s.followers(1)[0]) }) }},
	{"leader hears nobody", namespaces, 0, func(s *soak, r *rand.Rand) {
		l := s.leader()
		s.cut(r, func() {
			for _, p := range others(s.nodes, l) {
				s.net.oneWay(p, l)
			}
		})
	}},
	{"nobody hears the leader", namespaces, 0, func(s *soak, r *rand.Rand) {
		l := s.leader()
		s.cut(r, func() {
			for _, p := range others(s.nodes, l) {
				s.net.oneWay(l, p)
			}
		})
	}},
	{"one link, one way", namespaces, 0, func(s *soak, r *rand.Rand) {
		two := s.random(r, 2)
		s.cut(r, func() { s.net.oneWay(two[0], two[1]) })
	}},
	{"one link cut", namespaces, 0, func(s *soak, r *rand.Rand) {
		two := s.random(r, 2)
		s.cut(r, func() { s.net.oneWay(two[0], two[1]); s.net.oneWay(two[1], two[0]) })
	}},
	{"leader in the minority", namespaces, 5, func(s *soak, r *rand.Rand) {
		s.cut(r, func() { s.net.partition([]*process{s.leader(), s.followers(1)[0]}) })
	}},
	{"everybody alone", namespaces, 0, func(s *soak, r *rand.Rand) {
		s.cut(r, func() {
			var groups [][]*process
			for _, p := range s.nodes {
				groups = append(groups, []*process{p})
			}
			s.net.partition(groups...)
		})
	}},
	{"isolate leader, kill its heir", namespaces, 0, func(s *soak, r *rand.Rand) {
		l := s.leader()
		s.net.isolate(l)
		if heir := s.otherThan(l); heir != nil {
			s.kill(r, heir)
		}
		s.net.heal()
	}},
	{"20 % loss everywhere", namespaces, 0, func(s *soak, r *rand.Rand) {
		s.cut(r, func() {
			for _, p := range s.nodes {
				s.net.lossy(p, 20)
			}
		})
	}},
	{"20 % loss at the leader", namespaces, 0, func(s *soak, r *rand.Rand) { s.cut(r, func() { s.net.lossy(s.leader(), 20) }) }},
	{"flapping link", namespaces, 0, func(s *soak, r *rand.Rand) {
		p := s.random(r, 1)[0]
		for range 5 {
			s.net.isolate(p)
			wait(time.Second)
			s.net.heal()
			wait(time.Second)
		}
	}},
	{"thin link to a follower", namespaces, 0, func(s *soak, r *rand.Rand) {
		s.cut(r, func() { s.net.thin(s.followers(1)[0], 100+r.IntN(2000)) })
	}},

	{"replace a voter", nothing, 0, func(s *soak, r *rand.Rand) { s.replace(s.followers(1)[0]) }},
	{"replace the leader", nothing, 0, func(s *soak, r *rand.Rand) { s.replace(s.leader()) }},
	{"replace every voter in turn", nothing, 0, func(s *soak, r *rand.Rand) {
		for _, i := range r.Perm(len(s.nodes)) {
			s.replace(s.nodes[i])
			s.whole()
		}
	}},
	{"replace a voter that was away", nothing, 0, func(s *soak, r *rand.Rand) {
		p := s.followers(1)[0]
		p.kill()
		s.last(r)
		s.trim()
		s.replace(p)
	}},
	{"demote and promote", nothing, 0, func(s *soak, _ *rand.Rand) {
		p := s.followers(1)[0]
		s.tolerant("cluster", "demote", p.id, "--yes")
		s.eventually(30*time.Second, "promotion of "+p.id, func() error {
			out, err := s.run("cluster", "promote", p.id)
			if err != nil {
				return fmt.Errorf("%w: %s", err, out)
			}
			return nil
		})
	}},
	{"trim while one is killed", nothing, 0, func(s *soak, r *rand.Rand) {
		p := s.followers(1)[0]
		p.kill()
		s.last(r)
		s.trim()
		s.last(r)
		p.start()
	}},
	{"trim while one is paused", nothing, 0, func(s *soak, r *rand.Rand) {
		p := s.followers(1)[0]
		p.signal(syscall.SIGSTOP)
		s.last(r)
		s.trim()
		p.signal(syscall.SIGCONT)
	}},

	{"disk of the leader full", disks, 0, func(s *soak, r *rand.Rand) { s.fill(r, s.leader()) }},
	{"disk of a follower full", disks, 0, func(s *soak, r *rand.Rand) { s.fill(r, s.followers(1)[0]) }},
	{"disk of the leader hangs", disks, 0, func(s *soak, r *rand.Rand) { s.freeze(r, s.leader()) }},
	{"disk of a follower hangs", disks, 0, func(s *soak, r *rand.Rand) { s.freeze(r, s.followers(1)[0]) }},
	{"power loss of one", disks, 0, func(s *soak, r *rand.Rand) { s.losePower(r, s.random(r, 1)...) }},
	{"power loss of all", disks, 0, func(s *soak, r *rand.Rand) { s.losePower(r, s.nodes...) }},
	{"power loss of a majority", disks, 0, func(s *soak, r *rand.Rand) { s.losePower(r, s.random(r, len(s.nodes)/2+1)...) }},
	{"failed sync at the leader", tracer, 0, func(s *soak, r *rand.Rand) { s.failSync(r, s.leader()) }},
	{"failed sync at a follower", tracer, 0, func(s *soak, r *rand.Rand) { s.failSync(r, s.followers(1)[0]) }},
	{"slow syncs at the leader", tracer, 0, func(s *soak, r *rand.Rand) { s.slowSync(r, s.leader()) }},
	{"slow syncs at a follower", tracer, 0, func(s *soak, r *rand.Rand) { s.slowSync(r, s.followers(1)[0]) }},
	{"flipped bit", nothing, 0, func(s *soak, r *rand.Rand) {
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
	{"cut file", nothing, 0, func(s *soak, r *rand.Rand) {
		s.damage(r, func(f *os.File, size int64) error { return f.Truncate(r.Int64N(size)) })
	}},
}

// wait lets time pass: how long a fault lasts is what it is.
func wait(d time.Duration) { <-time.After(d) }

// last lets a fault last for 1 to 8 seconds.
func (s *soak) last(r *rand.Rand) { wait(time.Second + time.Duration(r.IntN(7000))*time.Millisecond) }

// followers are n voters that do not lead.
func (s *soak) followers(n int) []*process { return others(s.nodes, s.leader())[:n] }

// random are n voters.
func (s *soak) random(r *rand.Rand, n int) (chosen []*process) {
	for _, i := range r.Perm(len(s.nodes))[:n] {
		chosen = append(chosen, s.nodes[i])
	}
	return chosen
}

// otherThan is who leads after p, or nil if nobody does within some seconds.
func (s *soak) otherThan(p *process) *process {
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); wait(20 * time.Millisecond) {
		for _, other := range others(s.nodes, p) {
			if st, err := other.status(); err == nil && st.Role == "leader" {
				return other
			}
		}
	}
	return nil
}

// tolerant runs a command that an election under way may refuse.
func (s *soak) tolerant(args ...string) {
	if out, err := s.run(args...); err != nil {
		s.t.Logf("ringlog %s: %v: %s", strings.Join(args, " "), err, strings.TrimSpace(out))
	}
}

func (s *soak) kill(r *rand.Rand, victims ...*process) {
	for _, p := range victims {
		p.signal(syscall.SIGKILL)
	}
	for _, p := range victims {
		p.wait()
	}
	s.last(r)
	for _, p := range victims {
		p.start()
	}
}

func (s *soak) pause(r *rand.Rand, victims ...*process) {
	for _, p := range victims {
		p.signal(syscall.SIGSTOP)
	}
	s.last(r)
	for _, p := range victims {
		p.signal(syscall.SIGCONT)
	}
}

// cut impairs the network, for a while.
func (s *soak) cut(r *rand.Rand, impair func()) {
	impair()
	s.last(r)
	s.net.heal()
}

// replace puts an empty node in a voter's place, as docs/operations.md says.
func (s *soak) replace(p *process) {
	p.kill()
	s.eventually(30*time.Second, "removal of "+p.id, func() error {
		out, err := s.run("cluster", "remove", p.id, "--yes")
		if err != nil && !strings.Contains(out, "not_found") {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	})
	if err := removeContents(p.dir); err != nil {
		s.t.Fatal(err)
	}
	var seeds []string
	for _, other := range others(s.nodes, p) {
		seeds = append(seeds, other.url())
	}
	p.args = append([]string{"--join", strings.Join(seeds, ",")}, s.args...)
	p.start()
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
	if upTo > 1 {
		s.tolerant("compact", "--before", fmt.Sprint(upTo), "--force", "--yes")
	}
}

// fill leaves hardly any room on a node's disk.
func (s *soak) fill(r *rand.Rand, p *process) {
	ballast := filepath.Join(s.disks[p].mount, "ballast")
	var st syscall.Statfs_t
	if err := syscall.Statfs(s.disks[p].mount, &st); err != nil {
		s.t.Fatal(err)
	}
	room := int64(st.Bavail) * st.Bsize
	leave := []int64{1 << 20, 32 << 20, 128 << 20}[r.IntN(3)]
	if room > leave {
		s.disks[p].must("fallocate", "-l", fmt.Sprint(room-leave), ballast)
	}
	s.last(r)
	if err := os.Remove(ballast); err != nil && !os.IsNotExist(err) {
		s.t.Fatal(err)
	}
	s.restartEnded(p, "DISK_FAILED")
}

// freeze holds up all writes to a node's disk.
func (s *soak) freeze(r *rand.Rand, p *process) {
	s.disks[p].must("xfs_freeze", "-f", s.disks[p].mount)
	s.last(r)
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
		s.last(r)
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
	case <-time.After(20 * time.Second):
		s.h.violation("%s did not end although every sync failed for 20 s", p.id)
	}
	tr.stop()
	s.last(r)
	s.restartEnded(p, "DISK_FAILED")
}

func (s *soak) slowSync(r *rand.Rand, p *process) {
	tr := s.traced().trace(p, delay(time.Duration(50+r.IntN(450))*time.Millisecond))
	s.last(r)
	tr.stop()
}

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
	s.t.Logf("damaged %s of %s", strings.TrimPrefix(name, p.dir), p.id)
	p.start()
	s.last(r)
	s.replace(p)
}

// lookForTools finds out what the machine lets the soak do.
func (s *soak) lookForTools() {
	s.strace, _ = exec.LookPath("strace")
}

// possible reports whether this machine and cluster can have the fault.
func (s *soak) possible(f *soakFault) bool {
	switch f.needs {
	case namespaces:
		return s.net != nil && len(s.nodes) >= f.voters
	case disks:
		return s.disks != nil
	case tracer:
		return s.strace != ""
	}
	return true
}
