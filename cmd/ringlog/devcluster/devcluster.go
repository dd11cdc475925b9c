// Package devcluster runs the voters of a cluster as processes of their own on
// 127.0.0.1: for a cluster to play with, for the guided tour and for tests.
//
// It promises that every process it started has ended when Close returns, also
// where the caller is killed (on Linux), and that an exit nobody asked for is
// reported on Exits. Each node's log goes to a file beside its data folder.
//
//	c, err := devcluster.Start(ctx, devcluster.Options{Program: exe, Dir: dir, Voters: 3})
//	leader, err := c.WaitLeader(ctx)
//	err = c.Kill(leader.NodeID)
//	err = c.Close(ctx)
package devcluster

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
)

// ErrUnknownNode is a node id that the cluster does not have.
var ErrUnknownNode = errors.New("no such node")

// Options say what to run. Program and Dir are required.
// Ports and folders that are not given are chosen, so several clusters run on one machine.
type Options struct {
	Program string   // path of the ringlog program
	Name    string   // its argument 0; "" is Program
	Args    []string // more arguments of serve, for every node
	Env     []string // of the processes; nil is this process's, without RINGLOG_*
	Token   string   // cluster token that the nodes have, to ask them for their status

	Dir       string // data folders and logs are made below it
	Voters    int    // 0 is 3
	HTTPPorts []int  // one a voter; none are free ones
	RaftPorts []int  // as HTTPPorts
}

// Node is one voter.
// Its id, addresses and files stay the same over restarts.
type Node struct {
	ID   string `json:"id"`
	HTTP string `json:"http"` // host:port
	Raft string `json:"raft"`
	Dir  string `json:"data_dir"`
	Log  string `json:"log"` // file
}

// URL is where the node answers.
func (n Node) URL() string { return "http://" + n.HTTP }

// Exit is a process that ended although nobody asked for it.
type Exit struct {
	Node Node
	Err  error  // nil if it ended with code 0
	Tail string // of its log, which nearly always has the reason; the file may be removed when this is read
}

// Cluster is a set of running voters. It is safe for concurrent use.
type Cluster struct {
	// complete: fill has chosen what was not given
	opts  Options
	nodes []Node    // in the order of their ids; it does not change after Start
	exits chan Exit // buffered; an exit that does not fit is dropped

	mu sync.Mutex
	// mu guards what follows.
	processes map[string]*process // those running, by node id
	closed    bool                // no process starts any more
}

// Start starts the voters. It returns once the processes run; WaitLeader says when
// they are of use.
// An error leaves no process, but the folder as it is.
func Start(ctx context.Context, opts Options) (_ *Cluster, err error) {
	if opts.Voters == 0 {
		opts.Voters = 3
	}
	if err := opts.fill(); err != nil {
		return nil, fmt.Errorf("devcluster: start: %w", err)
	}
	// An exit is rarely read at once: each node may end 16 times before one is dropped.
	c := &Cluster{opts: opts, exits: make(chan Exit, 16*opts.Voters), processes: map[string]*process{}}
	// All nodes are known before the first one starts: each joins through the others.
	for i := range opts.Voters {
		c.nodes = append(c.nodes, opts.node(i))
	}
	// Processes that run already are ended if a later one does not start.
	defer func() {
		if err != nil {
			err = errors.Join(err, c.Close(ctx))
		}
	}()
	for _, n := range c.nodes {
		if err := c.Restart(n.ID); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// fill completes the options, and chooses ports if none are given.
func (o *Options) fill() error {
	if o.Program == "" || o.Dir == "" {
		return errors.New("a program and a folder are required")
	}
	// The variables of the command line would count as settings of the nodes.
	if o.Env == nil {
		o.Env = slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "RINGLOG_") })
	}
	// All ports are found in one call: two calls could find the same one.
	ports, err := FreePorts(2 * o.Voters)
	if err != nil {
		return err
	}
	if len(o.HTTPPorts) == 0 {
		o.HTTPPorts = ports[:o.Voters]
	}
	if len(o.RaftPorts) == 0 {
		o.RaftPorts = ports[o.Voters:]
	}
	if len(o.HTTPPorts) != o.Voters || len(o.RaftPorts) != o.Voters {
		return fmt.Errorf("%d HTTP and %d raft ports for %d voters", len(o.HTTPPorts), len(o.RaftPorts), o.Voters)
	}
	return os.MkdirAll(o.Dir, 0o700)
}

// node returns the i-th voter, counted from 0: n1, n2 and so on.
func (o *Options) node(i int) Node {
	id := "n" + strconv.Itoa(i+1)
	return Node{ID: id, HTTP: loopback(o.HTTPPorts[i]), Raft: loopback(o.RaftPorts[i]),
		Dir: filepath.Join(o.Dir, id), Log: filepath.Join(o.Dir, id+".log")}
}

// loopback returns an address that this machine alone reaches.
func loopback(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

// Ports are looked for below the range from which the kernel takes those of
// outgoing connections, so none of these gets in between.
const (
	firstPort = 15_000
	lastPort  = 32_000
	portTries = 1000
)

// The ports are tried one after the other from a random one on: the clusters of a process get different ports, also
// while some of their nodes are stopped, and other processes most likely look elsewhere.
var (
	begin = rand.Int64N(lastPort - firstPort)
	tried atomic.Int64
)

// FreePorts finds n ports of 127.0.0.1 that nobody listens on now. They are free when it returns: another process
// may take one before the caller does.
func FreePorts(n int) (ports []int, err error) {
	var listeners []net.Listener
	defer func() {
		for _, l := range listeners {
			err = errors.Join(err, l.Close())
		}
	}()
	for range portTries {
		if len(ports) == n {
			return ports, nil
		}
		port := firstPort + int((begin+tried.Add(1))%(lastPort-firstPort))
		// The listener stays open until the end, so no port is found twice.
		if l, err := net.Listen("tcp", loopback(port)); err == nil {
			listeners, ports = append(listeners, l), append(ports, port)
		}
	}
	return nil, fmt.Errorf("devcluster: no %d free ports from %d to %d", n, firstPort, lastPort)
}

// Nodes are all voters, running or not.
func (c *Cluster) Nodes() []Node { return slices.Clone(c.nodes) }

// Node finds a voter.
func (c *Cluster) Node(id string) (Node, error) {
	// By its id, running or not.
	i := slices.IndexFunc(c.nodes, func(n Node) bool { return n.ID == id })
	if i < 0 {
		return Node{}, fmt.Errorf("devcluster: node %q: %w", id, ErrUnknownNode)
	}
	return c.nodes[i], nil
}

// URLs are where the voters answer.
func (c *Cluster) URLs() []string {
	urls := make([]string, len(c.nodes))
	for i, n := range c.nodes {
		urls[i] = n.URL()
	}
	return urls
}

// PID is a voter's process id, 0 if it does not run.
func (c *Cluster) PID(id string) int {
	if p := c.running(id); p != nil {
		return p.cmd.Process.Pid
	}
	return 0
}

// running returns the process of a node, nil if none runs.
func (c *Cluster) running(id string) *process {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.processes[id]
}

// Exits reports processes that ended by themselves.
func (c *Cluster) Exits() <-chan Exit { return c.exits }

// others returns the URLs that a node joins through, separated by commas.
func (c *Cluster) others(id string) string {
	var urls []string
	// A node does not join itself.
	for _, n := range c.nodes {
		if n.ID != id {
			urls = append(urls, n.URL())
		}
	}
	return strings.Join(urls, ",")
}
