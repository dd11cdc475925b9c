package main

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/ringrift/ringlog/raftnode"
)

// sweepWithin bounds how long one node may take to answer where all are asked.
const sweepWithin = 3 * time.Second

// sweep is what all nodes said to one question: those at the endpoints given, and the
// members that they know of.
type sweep[T sighted] struct {
	answers []answer[T]       // sorted by id; of a node that is reached twice the first
	members map[string]string // URL to id, as anybody knows them
}

// sighted is an answer that says who gave it, and whom that node knows.
type sighted interface {
	name() string
	knows() []raftnode.MemberStatus
}

// askEverybody puts a question to every node, with a leader or without. It fails where
// nobody answers.
func askEverybody[T sighted](ctx context.Context, sh *shell, question func(ctx context.Context, url string) (T, error)) (sweep[T], error) {
	ctx, cancel := context.WithTimeout(ctx, sh.timeout)
	defer cancel()
	s := sweep[T]{members: map[string]string{}}
	s.ask(ctx, sh.endpoints, question)
	var rest []string
	for url, id := range s.members {
		asked := slices.ContainsFunc(s.answers, func(a answer[T]) bool { return a.url == url || a.err == nil && a.value.name() == id })
		if !asked {
			rest = append(rest, url)
		}
	}
	s.ask(ctx, rest, question)
	slices.SortStableFunc(s.answers, func(a, b answer[T]) int { return cmp.Or(cmp.Compare(s.id(a), s.id(b)), cmp.Compare(a.url, b.url)) })
	if i := slices.IndexFunc(s.answers, func(a answer[T]) bool { return a.err == nil }); i < 0 {
		return s, s.answers[0].err
	}
	return s, nil
}

// ask takes in what the nodes at urls say.
func (s *sweep[T]) ask(ctx context.Context, urls []string, question func(ctx context.Context, url string) (T, error)) {
	ctx, cancel := context.WithTimeout(ctx, sweepWithin)
	defer cancel()
	for _, a := range askAll(ctx, urls, question) {
		again := slices.ContainsFunc(s.answers, func(b answer[T]) bool {
			return a.url == b.url || a.err == nil && b.err == nil && s.id(a) == s.id(b)
		})
		if again {
			continue
		}
		s.answers = append(s.answers, a)
		if a.err != nil {
			continue
		}
		for _, m := range a.value.knows() {
			if m.HTTP != "" {
				s.members[raftnode.URL(m.HTTP)] = m.ID
			}
		}
	}
}

// id is whose answer it is, as far as somebody knows.
func (s *sweep[T]) id(a answer[T]) string {
	if a.err == nil {
		return a.value.name()
	}
	return cmp.Or(s.members[a.url], "?")
}
