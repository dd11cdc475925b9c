package integration

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// netCluster is a cluster whose voters have a network namespace each, so
// real packets between them can be lost. The test itself is at the hub, which stays
// connected to every voter when links between voters are cut.
//
//	PREFIX-hub   bridge 10.77.0.1 ─┬─ PREFIX-n1  eth0 10.77.0.11
//	                               ├─ PREFIX-n2  eth0 10.77.0.12
//	                               └─ PREFIX-n3  eth0 10.77.0.13
//
// The machine's own network is not touched, and as nothing leads out of the hub
// every netCluster has the same addresses.
//
// A packet is dropped where it arrives, so its sender does not notice.
type netCluster struct {
	*cluster
	spaces map[*process]*namespace
	hub    *namespace

	mu     sync.Mutex          // guards faults and the rules in the namespaces
	faults map[link]impairment // of every link between two voters
}

// link is one direction between two voters.
type link struct{ from, to *process }

// impairment is what happens to packets of a link; the zero one lets everything pass.
type impairment struct {
	loss int // percent of the packets; 100 is a cut
	rate int // kilobytes a second that pass; 0 is unlimited
}

var cut = impairment{loss: 100}

const (
	hubAddr  = "10.77.0.1"
	httpPort = "8770"
	raftPort = "9770"
)

// voterAddr returns the address of the i-th voter on the bridge.
func voterAddr(i int) string { return fmt.Sprintf("10.77.0.%d", 11+i) }

// newNetCluster prepares voters in namespaces of their own without starting them.
// The test is skipped where that is not possible.
func newNetCluster(t testing.TB, voters int, args ...string) *netCluster {
	t.Helper()
	needNamespaces(t)
	prefix := fmt.Sprintf("%s%d-%s", spacePrefix, os.Getpid(), strings.ToLower(rand.Text()[:6]))
	c := &netCluster{spaces: map[*process]*namespace{}, faults: map[link]impairment{}, hub: newNamespace(t, prefix+"-hub")}
	var addrs []string
	c.hub.mustRun(t, "", "ip", "link", "add", "bridge", "type", "bridge")
	c.hub.mustRun(t, "", "ip", "addr", "add", hubAddr+"/24", "dev", "bridge")
	c.hub.mustRun(t, "", "ip", "link", "set", "bridge", "up")
	var spaces []*namespace
	for i := range voters {
		name, port := fmt.Sprintf("%s-n%d", prefix, i+1), fmt.Sprintf("port%d", i+1)
		spaces = append(spaces, c.hub.connect(t, name, port, voterAddr(i)))
		addrs = append(addrs, net.JoinHostPort(voterAddr(i), httpPort), net.JoinHostPort(voterAddr(i), raftPort))
	}
	// The kernel brings links up in the background, at most once a second, and drops packets until then.
	for i, space := range spaces {
		c.hub.awaitLink(t, fmt.Sprintf("port%d", i+1), "state forwarding")
		space.awaitLink(t, "eth0", "state UP")
	}
	c.cluster = newClusterAt(t, t.TempDir(), addrs, append([]string{"--insecure"}, args...)...)
	transport := &http.Transport{DialContext: c.hub.dial}
	t.Cleanup(transport.CloseIdleConnections)
	c.cluster.web, c.cluster.within = &http.Client{Transport: transport}, c.hub.enter()
	for i, p := range c.nodes {
		c.spaces[p] = spaces[i]
		p.within, p.web = spaces[i].enter(), &http.Client{Transport: transport, Timeout: plainHTTP.Timeout}
	}
	return c
}

// partition cuts every link between voters of different groups. Voters that no
// group names are a group together.
func (c *netCluster) partition(groups ...[]*process) {
	c.t.Helper()
	side := map[*process]int{}
	for i, group := range groups {
		for _, p := range group {
			side[p] = i + 1
		}
	}
	c.change(func(l link) impairment {
		if side[l.from] != side[l.to] {
			return cut
		}
		return c.faults[l]
	})
}

// isolate cuts a voter off from all others.
func (c *netCluster) isolate(p *process) {
	c.t.Helper()
	c.partition([]*process{p})
}

// oneWay drops what one voter sends to another; the other direction passes.
func (c *netCluster) oneWay(from, to *process) {
	c.t.Helper()
	c.change(func(l link) impairment {
		if l == (link{from, to}) {
			return cut
		}
		return c.faults[l]
	})
}

// impair impairs every link between a voter and the others, each way.
func (c *netCluster) impair(p *process, by impairment) {
	c.t.Helper()
	c.change(func(l link) impairment {
		if l.from == p || l.to == p {
			return by
		}
		return c.faults[l]
	})
}

// heal ends all impairments.
func (c *netCluster) heal() {
	c.t.Helper()
	c.change(func(link) impairment { return impairment{} })
}

// change asks next what is to happen on every link, and applies it.
func (c *netCluster) change(next func(link) impairment) {
	c.t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	faults := map[link]impairment{}
	for _, to := range c.nodes {
		for _, from := range c.nodes {
			if l := (link{from, to}); from != to {
				faults[l] = next(l)
			}
		}
	}
	c.faults = faults
	for _, to := range c.nodes {
		c.spaces[to].mustRun(c.t, c.rules(to), "nft", "-f", "-")
	}
}

// rules are the faults of what arrives at a voter, for nft, in one transaction.
func (c *netCluster) rules(to *process) string {
	var b strings.Builder
	b.WriteString("table inet faults\ndelete table inet faults\ntable inet faults {\n chain arriving {\n")
	b.WriteString("  type filter hook input priority 0; policy accept;\n")
	for i, from := range c.nodes {
		switch f := c.faults[link{from, to}]; {
		case f.loss >= 100:
			fmt.Fprintf(&b, "  ip saddr %s drop\n", voterAddr(i))
		case f.loss > 0:
			fmt.Fprintf(&b, "  ip saddr %s numgen random mod 100 < %d drop\n", voterAddr(i), f.loss)
		case f.rate > 0:
			fmt.Fprintf(&b, "  ip saddr %s limit rate over %d kbytes/second drop\n", voterAddr(i), f.rate)
		}
	}
	b.WriteString(" }\n}\n")
	return b.String()
}

// spacePrefix begins the names of all namespaces of all runs; the id of the
// process that made it follows.
const spacePrefix = "ringlog-"

// namespace is a network namespace, by its name.
type namespace struct{ name string }

// needNamespaces skips the test if this machine cannot have any, and removes
// what a killed run has left.
func needNamespaces(t testing.TB) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("network namespaces need root")
	}
	for _, tool := range []string{"ip", "nft", "nsenter"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("network namespaces need %s (iproute2, nftables, util-linux): %v", tool, err)
		}
	}
	out, err := exec.Command("ip", "netns", "list").CombinedOutput()
	if err != nil {
		t.Skipf("ip netns list: %v: %s", err, out)
	}
	for line := range strings.Lines(string(out)) {
		name, _, _ := strings.Cut(strings.TrimSpace(line), " ")
		rest, ours := strings.CutPrefix(name, spacePrefix)
		owner, _, _ := strings.Cut(rest, "-")
		if pid, err := strconv.Atoi(owner); ours && err == nil && unix.Kill(pid, 0) == unix.ESRCH {
			_ = exec.Command("ip", "netns", "del", name).Run() // another run may do the same
		}
	}
}

// newNamespace makes a network namespace that is removed with the test.
func newNamespace(t testing.TB, name string) *namespace {
	t.Helper()
	n := &namespace{name}
	if out, err := exec.Command("ip", "netns", "add", name).CombinedOutput(); err != nil {
		t.Skipf("no network namespaces here: ip netns add: %v: %s", err, out)
	}
	t.Cleanup(func() {
		if out, err := exec.Command("ip", "netns", "del", name).CombinedOutput(); err != nil {
			t.Errorf("ip netns del %s: %v: %s", name, err, out)
		}
	})
	n.mustRun(t, "", "ip", "link", "set", "lo", "up")
	return n
}

// connect makes a namespace that is joined to this one's bridge.
func (n *namespace) connect(t testing.TB, name, port, addr string) *namespace {
	t.Helper()
	to := newNamespace(t, name)
	n.mustRun(t, "", "ip", "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", name)
	n.mustRun(t, "", "ip", "link", "set", port, "master", "bridge", "up")
	to.mustRun(t, "", "ip", "addr", "add", addr+"/24", "dev", "eth0")
	to.mustRun(t, "", "ip", "link", "set", "eth0", "up")
	return to
}

// awaitLink waits until the details of a link include the state.
func (n *namespace) awaitLink(t testing.TB, link, state string) {
	t.Helper()
	show := append(n.enter(), "ip", "-details", "-oneline", "link", "show", "dev", link)
	err := poll(30*time.Second, func() error {
		out, err := exec.Command(show[0], show[1:]...).CombinedOutput()
		if err == nil && !bytes.Contains(out, []byte(state)) {
			err = fmt.Errorf("no %q after 30 s in: %s", state, out)
		}
		return err
	})
	if err != nil {
		t.Fatalf("%s: %v", strings.Join(show, " "), err)
	}
}

// enter is what to put before a command that is to run inside. nsenter replaces itself
// with the command, so the process and its id are the command's. ip netns exec would
// give it a mount namespace as well, in which file systems stay mounted that are unmounted outside.
func (n *namespace) enter() []string {
	return []string{"nsenter", "--net=" + filepath.Join("/run/netns", n.name), "--"}
}

// mustRun runs a command inside the namespace.
func (n *namespace) mustRun(t testing.TB, stdin string, command ...string) {
	t.Helper()
	args := append(n.enter(), command...)
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Stdin = strings.NewReader(stdin)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v: %s\n%s", strings.Join(args, " "), err, out, stdin)
	}
}

// dial connects from inside.
func (n *namespace) dial(ctx context.Context, network, addr string) (conn net.Conn, err error) {
	err = n.inside(func() error {
		conn, err = (&net.Dialer{}).DialContext(ctx, network, addr)
		return err
	})
	return conn, err
}

// inside calls f on a thread that is in the namespace. A socket stays in the namespace
// in which it was made. The thread returns to its own namespace and is kept: if it ended,
// the processes that it started would be killed with it, as Pdeathsig asks.
func (n *namespace) inside(f func() error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	outside, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		return err
	}
	defer outside.Close()
	there, err := os.Open(filepath.Join("/run/netns", n.name))
	if err != nil {
		return err
	}
	defer there.Close()
	if err := unix.Setns(int(there.Fd()), unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("enter namespace %s: %w", n.name, err)
	}
	defer func() {
		if err := unix.Setns(int(outside.Fd()), unix.CLONE_NEWNET); err != nil {
			panic(fmt.Sprintf("leave namespace %s: %v", n.name, err))
		}
	}()
	return f()
}

// probes are sockets of all voters' namespaces, to see which packets arrive.
type probes struct {
	c     *netCluster
	conns []*net.UDPConn
	round byte
}

// probeAddr returns the address at which the i-th voter's namespace listens for probes.
func probeAddr(i int) *net.UDPAddr { return &net.UDPAddr{IP: net.ParseIP(voterAddr(i)), Port: 7} }

// newProbes opens a socket in the namespace of every voter.
func newProbes(c *netCluster) *probes {
	p := &probes{c: c}
	for i, node := range c.nodes {
		err := c.spaces[node].inside(func() error {
			conn, err := net.ListenUDP("udp4", probeAddr(i))
			p.conns = append(p.conns, conn)
			return err
		})
		if err != nil {
			c.t.Fatal(err)
		}
		c.t.Cleanup(func() { p.conns[i].Close() })
	}
	return p
}

// count sends datagrams from each voter to each other, and returns how many
// arrived, by sender and receiver.
func (p *probes) count(each int) (arrived [][]int) {
	p.c.t.Helper()
	// Datagrams name their round, so a late one of the round before is not counted.
	p.round++
	at, sent := make([][]int, len(p.conns)), make(chan struct{})
	var receiving sync.WaitGroup
	for to := range p.conns {
		receiving.Go(func() { at[to] = p.receive(to, sent) })
	}
	for range each { // each voter sends to all, itself included
		for from, conn := range p.conns {
			for to := range p.conns {
				if _, err := conn.WriteToUDP([]byte{p.round, byte(from)}, probeAddr(to)); from != to && err != nil {
					p.c.t.Errorf("send from n%d to n%d: %v", from+1, to+1, err)
				}
			}
		}
	}
	// at is by receiver, the result by sender.
	close(sent)
	receiving.Wait()
	for from := range p.conns {
		row := make([]int, len(p.conns))
		for to := range p.conns {
			row[to] = at[to][from]
		}
		row[from] = 0 // what it sent to itself is no link
		arrived = append(arrived, row)
	}
	return arrived
}

// receive counts, by sender, what comes until all is sent and nothing more comes.
func (p *probes) receive(to int, sent <-chan struct{}) []int {
	const quiet = 100 * time.Millisecond
	from, packet := make([]int, len(p.conns)), make([]byte, 16)
	for last := false; ; {
		_ = p.conns[to].SetReadDeadline(time.Now().Add(quiet))
		n, err := p.conns[to].Read(packet)
		switch {
		case err != nil && last:
			return from
		case err == nil && n == 2 && packet[0] == p.round:
			from[packet[1]]++
		}
		select {
		case <-sent:
			last = true
		default:
		}
	}
}

// The faults that the tests inject are what they are said to be: packets of the
// direction named are lost and no others, and none after a heal.
func TestInjectedNetworkFaults(t *testing.T) {
	c := newNetCluster(t, 4)
	p, a, b := newProbes(c), c.nodes[0], c.nodes[1]
	const all = 20
	const y, n = all, 0
	for _, step := range []struct {
		name string
		do   func()
		want [4][4]int // by sender and receiver
	}{
		{"at first", func() {}, [4][4]int{{0, y, y, y}, {y, 0, y, y}, {y, y, 0, y}, {y, y, y, 0}}},
		{"isolate a", func() { c.isolate(a) }, [4][4]int{{0, n, n, n}, {n, 0, y, y}, {n, y, 0, y}, {n, y, y, 0}}},
		{"heal", c.heal, [4][4]int{{0, y, y, y}, {y, 0, y, y}, {y, y, 0, y}, {y, y, y, 0}}},
		{"two and two", func() { c.partition([]*process{a, b}) },
			[4][4]int{{0, y, n, n}, {y, 0, n, n}, {n, n, 0, y}, {n, n, y, 0}}},
		{"and a from b", func() { c.oneWay(a, b) }, [4][4]int{{0, n, n, n}, {y, 0, n, n}, {n, n, 0, y}, {n, n, y, 0}}},
		{"each alone", func() { c.partition(c.nodes[:1], c.nodes[1:2], c.nodes[2:3]) }, [4][4]int{}},
		{"heal all", c.heal, [4][4]int{{0, y, y, y}, {y, 0, y, y}, {y, y, 0, y}, {y, y, y, 0}}},
	} {
		step.do()
		got := p.count(all)
		for i := range got {
			if !slices.Equal(got[i], step.want[i][:]) {
				t.Errorf("%s: of n%d's packets %v arrived, want %v", step.name, i+1, got[i], step.want[i])
			}
		}
	}
	c.impair(a, impairment{loss: 30})
	var got [4][4]int
	for range 200 / all { // as many at a time as a socket holds unread
		for from, row := range p.count(all) {
			for to, arrived := range row {
				got[from][to] += arrived
			}
		}
	}
	for _, share := range []int{got[0][1], got[1][0], got[0][3], got[3][0]} {
		if share < 100 || share > 180 { // 140 are expected; each bound is 6 standard deviations away
			t.Errorf("with 30 %% lost at n1, %d of 200 packets arrived", share)
		}
	}
	if got[1][2] != 200 {
		t.Errorf("with losses at n1 alone, %d of 200 packets from n2 to n3 arrived", got[1][2])
	}
}

// Nodes are killed, paused and found in their namespaces like others, and nothing
// of a cluster is left when its test ends.
func TestNamespacesAreLeftClean(t *testing.T) {
	// A cluster whose test is over when its subtest is.
	var pids []string
	t.Run("cluster", func(t *testing.T) {
		c := newNetCluster(t, 3)
		c.startAll()
		for _, p := range c.nodes {
			out, err := exec.Command("ip", "netns", "pids", c.spaces[p].name).Output()
			if pid := strconv.Itoa(p.cmd.Process.Pid); err != nil || !slices.Contains(strings.Fields(string(out)), pid) {
				t.Fatalf("%s is process %s, in its namespace are %q (%v)", p.id, pid, out, err)
			}
			pids = append(pids, strconv.Itoa(p.cmd.Process.Pid))
		}
		if out := c.mustRun("cluster", "members", "--json"); !strings.Contains(out, voterAddr(2)) {
			t.Errorf("cluster members from the hub: %s", out)
		}
	})
	// Neither its processes nor its namespaces are left.
	for _, pid := range pids {
		if _, err := os.Stat("/proc/" + pid); err == nil {
			t.Errorf("process %s is still running", pid)
		}
	}
	mine := []byte(fmt.Sprintf("%s%d-", spacePrefix, os.Getpid()))
	out, err := exec.Command("ip", "netns", "list").Output()
	left := err != nil || bytes.Contains(out, mine)
	if left && !t.Failed() && len(pids) > 0 {
		t.Errorf("namespaces are left (%v):\n%s", err, out)
	}
}
