package calls

import (
	"fmt"
	"math/rand/v2"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ringrift/ringlog/api/ringlog/v1/ringlogv1connect"
)

// Node is the address of one node with its stubs.
type Node struct {
	// Of a node for CallNode this alone is set.
	URL    string
	Log    ringlogv1connect.LogServiceClient
	Cursor ringlogv1connect.CursorServiceClient
	Group  ringlogv1connect.GroupServiceClient

	noStream  atomic.Int64 // until then, in Unix nanoseconds, it is not asked for a publish stream
	noCluster atomic.Int64 // until then, in Unix nanoseconds, it is not asked for its cluster
	foreign   atomic.Bool  // it was reported as one of another cluster

	// Guarded by nodes.mu.
	// How many failed in a row.
	failures int
	avoid    time.Time // until then it is asked last
	leads    bool      // it did when it answered last
}

// nodes chooses the node to ask: the leader if it is known, else the one that answered
// last, else in the order given. A call aside, which any node serves as well, goes to the
// leader last; which of the others is first differs from client to client. Nodes that failed
// lately come last of all.
type nodes struct {
	// It makes the stubs of a node. mu is held, so it must not connect.
	dial func(url string) *Node

	mu  sync.Mutex
	all []*Node // the configured ones first
	// Asked first; nil is none.
	preferred *Node
	leader    string // as an answer to a publish named it last
	aside     uint32 // which node is the first for calls aside, modulo their number
}

// maxNodes bounds the list against nodes that name ever new leaders.
const maxNodes = 64

// Bounds of how long a node that failed is asked last, or not at all.
const (
	minAvoid = time.Second
	maxAvoid = 15 * time.Second
)

// newNodes returns the nodes with these addresses.
func newNodes(urls []string, dial func(string) *Node) *nodes {
	s := &nodes{dial: dial, aside: rand.Uint32()}
	for _, u := range urls {
		base, _ := BaseURL(u, "http") // validated before
		s.add(base)
	}
	return s
}

// BaseURL makes an endpoint as people write it a URL without a trailing slash.
func BaseURL(s, scheme string) (string, error) {
	if !strings.Contains(s, "://") {
		s = scheme + "://" + s
	}

	// A path is allowed: a proxy may serve the cluster under one.
	u, err := url.Parse(s)
	switch {
	case err != nil:
		return "", fmt.Errorf("endpoint %q: %w", s, err)
	case u.Scheme != "http" && u.Scheme != "https", u.Host == "", u.RawQuery != "", u.Fragment != "":
		return "", fmt.Errorf("endpoint %q is not like http://host:port", s)
	case strings.HasSuffix(strings.TrimRight(u.Path, "/"), "/v1"):
		return "", fmt.Errorf("endpoint %q: leave /v1 out, which requests add themselves", s)
	}
	return strings.TrimRight(u.String(), "/"), nil
}

// add returns the node of a URL, adding it to the list if it is new, or nil if the list is
// full. mu is held, but for newNodes.
func (s *nodes) add(base string) *Node {
	for _, n := range s.all {
		if n.URL == base {
			return n
		}
	}

	// A cluster has a handful of nodes: more are not followed.
	if len(s.all) >= maxNodes {
		return nil
	}
	n := s.dial(base)
	s.all = append(s.all, n)
	return n
}

// pick returns the best node that is not in tried, or nil. With choosy it is none that
// failed lately: if others answer, a call must not wait for a machine that is gone,
// which takes as long as an attempt may. With aside the leader is the last choice.
func (s *nodes) pick(tried []*Node, choosy, aside bool) *Node {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	first := 0
	if aside {
		first = int(s.aside % uint32(len(s.all)))
	}
	var best *Node
	for i := range s.all {
		n := s.all[(first+i)%len(s.all)]
		if slices.Contains(tried, n) || (choosy && now.Before(n.avoid)) {
			continue
		}

		// Of equal ones the first is best.
		if best == nil || s.before(n, best, aside, now) {
			best = n
		}
	}
	return best
}

// before reports whether a is to be asked before b, which comes first otherwise.
func (s *nodes) before(a, b *Node, aside bool, now time.Time) bool {
	badA, badB := now.Before(a.avoid), now.Before(b.avoid)
	switch {
	case badA != badB:
		return badB
	case badA:
		// Of those that failed, the first whose time is over.
		return a.avoid.Before(b.avoid)
	case aside:
		return b.leads && !a.leads
	}
	return a == s.preferred
}

// worked notes that n served a request, and which leader it named, "" for none.
func (s *nodes) worked(n *Node, leader string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	// After a success it is asked in its usual place again.
	n.failures, n.avoid = 0, time.Time{}
	if leader != "" {
		_, named, _ := strings.Cut(leader, "://")
		_, own, _ := strings.Cut(n.URL, "://")
		n.leads = named == own
	}
	// A leader that is known stays preferred: a follower may have served this request.
	if s.preferred == nil {
		s.preferred = n
	}
}

// failed notes that n did not answer, or not as a node should.
func (s *nodes) failed(n *Node) {
	s.mu.Lock()
	defer s.mu.Unlock()

	// The time doubles with each failure in a row.
	// The shift is limited, as each failure would double the time without end.
	n.avoid = time.Now().Add(min(minAvoid<<min(n.failures, 10), maxAvoid))
	n.failures++
	if s.preferred == n {
		s.preferred = nil
	}
}

// declined notes that n answered but cannot serve, and which leader it named.
func (s *nodes) declined(n *Node, leader string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	// It answers, so it is not avoided.
	if s.preferred == n {
		s.preferred = nil
	}
	if leader != "" {
		s.follow(n, leader)
	}
}

// follow prefers the leader that n named, by URL or by host:port.
func (s *nodes) follow(n *Node, leader string) {
	if secure, ok := strings.CutPrefix(leader, "http://"); ok && strings.HasPrefix(n.URL, "https://") {
		leader = secure // the token must not be sent in clear because a node names its plain address
	}
	scheme, _, _ := strings.Cut(n.URL, "://")
	// An address without a scheme has that of the node that named it.
	base, err := BaseURL(leader, scheme)
	if err != nil {
		return
	}
	// If there is no room for it, the preference stays.
	if l := s.add(base); l != nil {
		s.preferred = l
	}
}

// named takes in which leader an answer of n named. A client of a single endpoint keeps to
// that, which may be a proxy's.
func (s *nodes) named(n *Node, leader string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	// The last condition holds for nearly every answer, and saves the parsing.
	if leader == "" || len(s.all) < 2 || (s.preferred == n && s.leader == leader) {
		return
	}
	s.leader = leader
	s.follow(n, leader)
}

// learn prefers a leader that the cluster's status named.
func (s *nodes) learn(leader string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.all) > 0 {
		// Any node will do, since only its scheme is used.
		s.follow(s.all[0], leader)
	}
}

// allWithin reports whether all nodes are in list.
func (s *nodes) allWithin(list []*Node) bool {
	return len(s.except(list...)) == 0
}

// except returns all nodes that are not in list.
func (s *nodes) except(list ...*Node) []*Node {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(s.all), func(n *Node) bool { return slices.Contains(list, n) })
}
