package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/cmd/ringlog/internal/shell"
)

// sweep is the answers of all nodes to one question: of those at the endpoints given, and of the
// members that they know of.
// A sweep needs no leader, and no list of all members: each node that answers names others, which are asked next.
type sweep[T sighted] struct {
	// without a second answer of a node that is reached by two URLs
	answers []answer[T]       // sorted by cluster and id; of a node that is reached twice the first
	members map[string]string // URL to id, as anybody knows them
	homes   map[string]string // URL to the cluster of whom that member is known to
}

// newSweep returns a sweep without answers.
func newSweep[T sighted]() sweep[T] {
	return sweep[T]{members: map[string]string{}, homes: map[string]string{}}
}

// sighted is an answer that names the node that gave it, and the members that this node knows.
type sighted interface {
	name() string
	cluster() string // "" while it is in none
	knows() []api.Member
}

// askEverybody puts a question to every node, with a leader or without. It fails if
// no node answers it. A refusal is then its error rather than the silence of others.
// All nodes of a list are asked at once, so silent ones cost no more than NodeWithin together.
func askEverybody[T sighted](ctx context.Context, sh *shell.Shell,
	question func(ctx context.Context, sh *shell.Shell, url string) (T, error)) (sweep[T], error) {
	ctx, cancel := context.WithTimeout(ctx, sh.Timeout)
	defer cancel()
	// First the endpoints, then the members that they know and that have not answered.
	s := newSweep[T]()
	s.ask(ctx, sh, sh.Endpoints, question)
	var rest []string
	// A node may have answered at an endpoint that is another name for its member's address.
	for url, id := range s.members {
		asked := slices.ContainsFunc(s.answers, func(a answer[T]) bool {
			return a.url == url || (a.err == nil && a.value.name() == id && clusterOf(a) == s.homes[url])
		})
		if !asked {
			rest = append(rest, url)
		}
	}
	s.ask(ctx, sh, rest, question)
	// The order does not depend on who answered first.
	slices.SortStableFunc(s.answers, func(a, b answer[T]) int {
		return cmp.Or(cmp.Compare(clusterOf(a), clusterOf(b)), cmp.Compare(s.id(a), s.id(b)), cmp.Compare(a.url, b.url))
	})
	// If all fail the error that says most is reported.
	var failed error
	for _, a := range s.answers {
		if a.err == nil {
			return s, nil
		}
		failed = shell.MoreTelling(failed, a.err)
	}
	return s, failed
}

// ask puts the question to the nodes at urls, and adds their answers and the members that they know.
func (s *sweep[T]) ask(ctx context.Context, sh *shell.Shell, urls []string,
	question func(ctx context.Context, sh *shell.Shell, url string) (T, error)) {
	// One limit for all: they are asked at once.
	ctx, cancel := context.WithTimeout(ctx, shell.NodeWithin)
	defer cancel()
	for _, a := range askAll(ctx, sh, urls, question) {
		// A node that is reached by two URLs counts once.
		// Without answers nobody knows whether two URLs are of one node.
		again := slices.ContainsFunc(s.answers, func(b answer[T]) bool {
			sameNode := a.err == nil && b.err == nil && s.id(a) == s.id(b) && clusterOf(a) == clusterOf(b)
			return a.url == b.url || sameNode
		})
		if again {
			continue
		}
		s.answers = append(s.answers, a)
		if a.err != nil {
			continue
		}
		// Whom this node knows may be asked next.
		for _, m := range a.value.knows() {
			// Nodes agree about addresses, except those that lag; the last one to answer counts.
			if m.HTTP != "" {
				url := sh.NodeURL(m.HTTP)
				s.members[url], s.homes[url] = m.ID, clusterOf(a)
			}
		}
	}
}

// clusterOf returns the cluster of the node that answered, "" without an answer.
func clusterOf[T sighted](a answer[T]) string {
	// A node that does not answer is in none, as far as is known.
	if a.err != nil {
		return ""
	}
	return a.value.cluster()
}

// clusters returns the ids of the clusters whose nodes answered, sorted.
func (s *sweep[T]) clusters() (ids []string) {
	// Nodes without a cluster are left out.
	for _, a := range s.answers {
		if id := clusterOf(a); id != "" {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

// mixed says which nodes are in which cluster if they are in more than one, else "".
// Such a list of endpoints is a mistake that makes all figures meaningless, so it is reported before them.
func (s *sweep[T]) mixed() string {
	// Nodes that are in no cluster yet do not count.
	ids := s.clusters()
	if len(ids) < 2 {
		return ""
	}
	// Each cluster with its nodes, so the misplaced ones can be found.
	var parts []string
	for _, id := range ids {
		var nodes []string
		for _, a := range s.answers {
			if clusterOf(a) == id {
				nodes = append(nodes, a.value.name()+" at "+a.url)
			}
		}
		parts = append(parts, id+" ("+strings.Join(nodes, ", ")+")")
	}
	return fmt.Sprintf("the nodes are of %d clusters: %s", len(ids), strings.Join(parts, ", "))
}

// nodes returns the answers, without those of endpoints at which no member is and nobody answers: nodes that have gone,
// and other names of members.
func (s *sweep[T]) nodes() (list []answer[T]) {
	for _, a := range s.answers {
		// Where no member is known, nobody can say which endpoint is none.
		if _, member := s.members[a.url]; a.err == nil || member || len(s.members) == 0 {
			list = append(list, a)
		}
	}
	return list
}

// id returns the id of the node that was asked: its own answer's, else the one under which another node knows
// the URL, else ?.
func (s *sweep[T]) id(a answer[T]) string {
	if a.err == nil {
		return a.value.name()
	}
	return cmp.Or(s.members[a.url], "?")
}

// answer is one node's answer to a question put to all, or the error instead.
type answer[T any] struct {
	// as it was asked
	url   string
	value T
	err   error // if it is set, value is of no use
}

// askAll puts a question to many nodes at once; the answers come in their order.
func askAll[T any](ctx context.Context, sh *shell.Shell, urls []string,
	question func(ctx context.Context, sh *shell.Shell, url string) (T, error)) []answer[T] {
	answers := make([]answer[T], len(urls))
	// Each goroutine writes its own element, so no lock is needed.
	var asking sync.WaitGroup
	for i, url := range urls {
		asking.Go(func() {
			v, err := question(ctx, sh, url)
			answers[i] = answer[T]{url: url, value: v, err: err}
		})
	}
	asking.Wait()
	return answers
}
