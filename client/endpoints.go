package client

import (
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ringrift/ringlog/api/ringlog/v1/ringlogv1connect"
)

// endpoint is one node's address with its stubs.
type endpoint struct {
	url    string
	log    ringlogv1connect.LogServiceClient
	cursor ringlogv1connect.CursorServiceClient
	group  ringlogv1connect.GroupServiceClient

	lineless atomic.Int64 // until then, in Unix nanoseconds, it is not asked for a line
	nameless atomic.Int64 // until then, in Unix nanoseconds, it is not asked for its cluster

	// Guarded by endpoints.mu.
	failures int
	avoid    time.Time // until then it is asked last
}

// endpoints chooses whom to ask: the leader where it is known, else whoever
// answered last, else in the order given; who failed lately comes last.
type endpoints struct {
	dial func(url string) *endpoint

	mu        sync.Mutex
	all       []*endpoint // the configured ones in front
	preferred *endpoint
	leader    string // as it was named with a publish last
}

// maxEndpoints bounds the list against nodes that name ever new leaders.
const maxEndpoints = 64

// Bounds of how long a node that failed is asked last, or not at all.
const (
	minAvoid = time.Second
	maxAvoid = 15 * time.Second
)

func newEndpoints(urls []string, dial func(string) *endpoint) *endpoints {
	s := &endpoints{dial: dial}
	for _, u := range urls {
		base, _ := baseURL(u, "http") // validated before
		s.add(base)
	}
	return s
}

func (s *endpoints) add(base string) *endpoint {
	for _, e := range s.all {
		if e.url == base {
			return e
		}
	}
	if len(s.all) >= maxEndpoints {
		return nil
	}
	e := s.dial(base)
	s.all = append(s.all, e)
	return e
}

// pick returns the best endpoint that is not in tried, or nil. With choosy it is none
// that failed lately: where others answer, a call must not wait for a machine that is
// gone, which takes as long as an attempt may.
func (s *endpoints) pick(tried []*endpoint, choosy bool) *endpoint {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	var best *endpoint
	for _, e := range s.all {
		if !has(tried, e) && !(choosy && now.Before(e.avoid)) && (best == nil || s.before(e, best, now)) {
			best = e
		}
	}
	return best
}

func has(list []*endpoint, e *endpoint) bool {
	for _, one := range list {
		if one == e {
			return true
		}
	}
	return false
}

// before reports whether a is to be asked before b, which stands in front of it.
func (s *endpoints) before(a, b *endpoint, now time.Time) bool {
	badA, badB := now.Before(a.avoid), now.Before(b.avoid)
	switch {
	case badA != badB:
		return badB
	case badA:
		return a.avoid.Before(b.avoid)
	}
	return a == s.preferred
}

// worked notes that e served a request, and which leader it named, "" for none.
func (s *endpoints) worked(e *endpoint, leader string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e.failures, e.avoid = 0, time.Time{}
	if leader != "" {
		s.follow(e, leader)
	} else if s.preferred == nil {
		s.preferred = e
	}
}

// failed notes that e did not answer, or not as a node should.
func (s *endpoints) failed(e *endpoint) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e.avoid = time.Now().Add(min(minAvoid<<min(e.failures, 10), maxAvoid))
	e.failures++
	if s.preferred == e {
		s.preferred = nil
	}
}

// declined notes that e answered but can not serve, and which leader it named.
func (s *endpoints) declined(e *endpoint, leader string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.preferred == e {
		s.preferred = nil
	}
	if leader != "" {
		s.follow(e, leader)
	}
}

// follow prefers the leader that e named, by URL or by host:port.
func (s *endpoints) follow(e *endpoint, leader string) {
	if secure, ok := strings.CutPrefix(leader, "http://"); ok && strings.HasPrefix(e.url, "https://") {
		leader = secure // the token must not go in clear because a node names its plain address
	}
	scheme, _, _ := strings.Cut(e.url, "://")
	base, err := baseURL(leader, scheme)
	if err != nil {
		return
	}
	if l := s.add(base); l != nil {
		s.preferred = l
	}
}

// named takes in which leader an answer of e named. A client of a single endpoint keeps to
// that, which may be a proxy's.
func (s *endpoints) named(e *endpoint, leader string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if leader == "" || len(s.all) < 2 || (s.preferred == e && s.leader == leader) {
		return
	}
	s.leader = leader
	s.follow(e, leader)
}

// learn prefers a leader that the cluster's status named.
func (s *endpoints) learn(leader string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.all) > 0 {
		s.follow(s.all[0], leader)
	}
}

// within reports whether all endpoints are in list.
func (s *endpoints) within(list []*endpoint) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.all {
		if !has(list, e) {
			return false
		}
	}
	return true
}

// others returns all endpoints but e.
func (s *endpoints) others(e *endpoint) []*endpoint {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []*endpoint
	for _, one := range s.all {
		if one != e {
			out = append(out, one)
		}
	}
	return out
}
