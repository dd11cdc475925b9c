package integration

import (
	"cmp"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/ringrift/ringlog/client"
	"github.com/ringrift/ringlog/internal/testaddr"
)

// binary is the ringlog that all tests run, built once.
var binary string

// TestMain builds ringlog once and runs the tests. If the variable of listener_test.go is set, this process is not a
// test but one that handles events.
func TestMain(m *testing.M) {
	if spec := os.Getenv(listenerVariable); spec != "" {
		if err := runListener(spec); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	// Clusters wait most of their time: more tests run beside each other than there are processors.
	if err := flag.Set("test.parallel", "4"); err != nil {
		panic(err)
	}
	// os.Exit runs no deferred functions, so the folder is removed by hand.
	dir, err := os.MkdirTemp("", "ringlog-integration-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	binary = filepath.Join(dir, "ringlog")
	build := exec.Command("go", "build", "-o", binary, "../cmd/ringlog")
	build.Stderr = os.Stderr
	if err := build.Run(); err != nil {
		fmt.Fprintln(os.Stderr, "build ringlog:", err)
		os.Exit(1)
	}
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}

// process is one node: where it lives and the process that runs it, if any.
type process struct {
	t    testing.TB
	id   string
	dir  string
	http string
	raft string
	args []string // of serve, beside id, folder and addresses
	log  string   // file of its output

	binary string       // "" is the one that all tests run
	env    []string     // beside the test's own
	within []string     // a command that the command line is passed to, if any
	web    *http.Client // how the node is reached; nil is plainHTTP
	secure bool         // it is reached over TLS

	mu   sync.Mutex
	cmd  *exec.Cmd
	done chan struct{} // closed when cmd has ended
}

// url returns the node's address for clients.
func (p *process) url() string {
	if p.secure {
		return "https://" + p.http
	}
	return "http://" + p.http
}

// start runs the node; it must not be running.
func (p *process) start() {
	p.t.Helper()
	out, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		p.t.Fatal(err)
	}
	defer out.Close() // the process has a descriptor of its own
	serve := []string{
		cmp.Or(p.binary, binary), "serve",
		"--id", p.id,
		"--data-dir", p.dir,
		"--http", p.http,
		"--raft", p.raft,
	}
	args := slices.Concat(p.within, serve, p.args)
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Stdout, cmd.Stderr = out, out
	cmd.Env = append(os.Environ(), p.env...)
	// The node ends with the test, even if the test is killed.
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	done := make(chan struct{})
	go func() { // ends with the process, which cluster.close kills
		_ = cmd.Wait()
		close(done)
	}()
	p.mu.Lock()
	p.cmd, p.done = cmd, done
	p.mu.Unlock()
}

// signal sends a signal, if the process runs.
func (p *process) signal(s os.Signal) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd != nil {
		_ = p.cmd.Process.Signal(s)
	}
}

// kill sends the process SIGKILL and waits until it is gone.
func (p *process) kill() {
	p.signal(syscall.SIGKILL)
	p.signal(syscall.SIGCONT) // if it is stopped
	p.wait()
}

// stop asks the process to end and waits until it has.
func (p *process) stop() {
	p.signal(syscall.SIGTERM)
	p.wait()
}

// wait waits until the process has ended.
func (p *process) wait() {
	p.mu.Lock()
	done := p.done
	p.mu.Unlock()
	if done == nil {
		return
	}
	select {
	case <-done:
	case <-time.After(2 * time.Minute):
		p.t.Fatalf("%s does not end; its log ends with\n%s", p.id, p.tail())
	}
}

// tail returns the end of the node's log.
func (p *process) tail() string {
	text, _ := os.ReadFile(p.log)
	return string(text[max(0, len(text)-3000):])
}

// status is the part of GET /status that the tests look at.
type status struct {
	NodeID       string `json:"node_id"`
	Role         string `json:"role"`
	LeaderID     string `json:"leader_id"`
	Term         uint64 `json:"term"`
	FirstOffset  uint64 `json:"first_offset"`
	LastOffset   uint64 `json:"last_offset"`
	AppliedIndex uint64 `json:"applied_index"`
	CommitIndex  uint64 `json:"commit_index"`
	Digest       struct {
		Index uint64 `json:"index"`
		Hex   string `json:"hex"`
	} `json:"digest"`
}

var plainHTTP = &http.Client{Timeout: 2 * time.Second}

// getJSON reads a JSON document over a client of the caller's, such as one inside a network namespace.
func getJSON(ctx context.Context, web *http.Client, url string, into any) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	resp, err := web.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", url, resp.Status)
	}
	return json.NewDecoder(resp.Body).Decode(into)
}

// status returns what the node reports of itself.
func (p *process) status() (s status, err error) {
	err = getJSON(context.Background(), cmp.Or(p.web, plainHTTP), p.url()+"/status", &s)
	return s, err
}

// cluster is a set of nodes that know each other.
type cluster struct {
	t      testing.TB
	nodes  []*process
	within []string     // a command that command lines are passed to, if any
	web    *http.Client // of clients; nil is their own

	readersMu sync.Mutex
	readers   map[*process]*client.Client
}

// reader is a client of one node alone.
func (c *cluster) reader(p *process) *client.Client {
	c.readersMu.Lock()
	defer c.readersMu.Unlock()
	if c.readers[p] == nil {
		if c.readers == nil {
			c.readers = map[*process]*client.Client{}
		}
		c.readers[p] = c.client(p.url())
	}
	return c.readers[p]
}

// newCluster prepares n voters under dir without starting them.
func newCluster(t testing.TB, dir string, n int, args ...string) *cluster {
	t.Helper()
	addrs := make([]string, 2*n)
	for i := range addrs {
		addrs[i] = testaddr.Free(t)
	}
	return newClusterAt(t, dir, addrs, args...)
}

// newClusterAt prepares a voter for each two addresses, HTTP's and raft's.
func newClusterAt(t testing.TB, dir string, addrs []string, args ...string) *cluster {
	t.Helper()
	c, n := &cluster{t: t}, len(addrs)/2
	var join []string
	for i := range n {
		join = append(join, "http://"+addrs[2*i])
	}
	for i := range n {
		id := fmt.Sprintf("n%d", i+1)
		c.nodes = append(c.nodes, &process{
			t:    t,
			id:   id,
			dir:  filepath.Join(dir, id),
			http: addrs[2*i],
			raft: addrs[2*i+1],
			log:  filepath.Join(t.TempDir(), id+".log"),
			args: append([]string{"--bootstrap-expect", fmt.Sprint(n), "--join", strings.Join(join, ",")}, args...),
		})
	}
	t.Cleanup(c.close)
	return c
}

// close ends all nodes, and shows the ends of their logs if the test has failed.
func (c *cluster) close() {
	for _, p := range c.nodes {
		p.kill()
		if c.t.Failed() {
			c.t.Logf("%s logged last:\n%s", p.id, p.tail())
		}
	}
}

// startAll starts every node and waits for a leader.
func (c *cluster) startAll() *cluster {
	c.t.Helper()
	for _, p := range c.nodes {
		p.start()
	}
	c.leader()
	return c
}

// endpoints returns the addresses of all nodes.
func (c *cluster) endpoints() (urls []string) {
	for _, p := range c.nodes {
		urls = append(urls, p.url())
	}
	return urls
}

// leader waits until a node reports that it leads, and returns it.
func (c *cluster) leader() *process {
	c.t.Helper()
	var found *process
	c.eventually(2*time.Minute, "a leader", func() error {
		for _, p := range c.nodes {
			if s, err := p.status(); err == nil && s.Role == "leader" {
				found = p
				return nil
			}
		}
		return fmt.Errorf("none of %d nodes leads", len(c.nodes))
	})
	return found
}

// poll calls condition every 20 ms until it returns nil. Once within has passed it returns the last error.
func poll(within time.Duration, condition func() error) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(within); ; <-tick.C {
		err := condition()
		if err == nil || time.Now().After(deadline) {
			return err
		}
	}
}

// eventually waits for a condition. If it is not met in time, the test fails with the condition's last error and
// the ends of the nodes' logs.
func (c *cluster) eventually(within time.Duration, what string, condition func() error) {
	c.t.Helper()
	if err := poll(within, condition); err != nil {
		for _, p := range c.nodes {
			c.t.Logf("%s logged last:\n%s", p.id, p.tail())
		}
		c.t.Fatalf("no %s within %s: %v", what, within, err)
	}
}

// converged waits until all nodes have applied all that was acknowledged and the
// same index, and checks that they have the same digest there. Nodes that just
// started may agree on an old state before a leader commits what their logs hold:
// hence the linearizable read.
func (c *cluster) converged() status {
	c.t.Helper()
	// Every node has what was acknowledged before now.
	for _, p := range c.nodes {
		o := client.TailOptions{From: client.FromEnd(), NoFollow: true, Consistency: client.Linearizable}
		for _, err := range c.reader(p).Tail(c.t.Context(), o) {
			if err != nil {
				c.t.Fatalf("linearizable read from %s: %v", p.id, err)
			}
		}
	}
	// Then all stop at one index: health reports and settings may still arrive at some of them.
	var agreed status
	c.eventually(3*time.Minute, "agreement of all nodes", func() error {
		all := make([]status, len(c.nodes))
		for i, p := range c.nodes {
			s, err := p.status()
			if err != nil {
				return err
			}
			all[i] = s
		}
		for _, s := range all[1:] {
			if s.Digest.Index != all[0].Digest.Index {
				return fmt.Errorf("%s is at %d, %s at %d", all[0].NodeID, all[0].Digest.Index, s.NodeID, s.Digest.Index)
			}
		}
		// From here on a difference is a failure and nothing to wait for.
		agreed = all[0]
		for _, s := range all[1:] {
			if s.Digest.Hex != all[0].Digest.Hex {
				c.t.Fatalf("at index %d %s has digest %s, %s has %s",
					s.Digest.Index, all[0].NodeID, all[0].Digest.Hex, s.NodeID, s.Digest.Hex)
			}
		}
		return nil
	})
	return agreed
}

// client returns a client of these endpoints, or of all nodes.
func (c *cluster) client(endpoints ...string) *client.Client {
	c.t.Helper()
	if len(endpoints) == 0 {
		endpoints = c.endpoints()
	}
	cl, err := client.New(client.Config{Endpoints: endpoints, HTTPClient: c.web})
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		_ = cl.Close(ctx)
	})
	return cl
}

// forget drops the readers. A client names the cluster that it met first, and a recovered cluster has another id.
func (c *cluster) forget() {
	c.readersMu.Lock()
	defer c.readersMu.Unlock()
	c.readers = nil
}

// run runs the command line against the cluster and returns what it printed.
func (c *cluster) run(args ...string) (string, error) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	line := slices.Concat(c.within, []string{binary}, args)
	cmd := exec.CommandContext(ctx, line[0], line[1:]...)
	cmd.Env = append(os.Environ(), "RINGLOG_ENDPOINTS="+strings.Join(c.endpoints(), ","))
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// mustRun runs a command of ringlog against the cluster and returns what it printed.
func (c *cluster) mustRun(args ...string) string {
	c.t.Helper()
	out, err := c.run(args...)
	if err != nil {
		c.t.Fatalf("ringlog %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return out
}
