package fsm

import (
	"maps"
	"slices"
	"strings"
	"time"

	"pgregory.net/rapid"

	"github.com/ringrift/ringlog/internal/frame"
)

// modelGroup is what a group knows, offset by offset.
type modelGroup struct {
	policy   frame.GroupPolicy
	reserved uint64
	open     uint64
	done     map[uint64]bool
	retries  map[uint64]frame.GroupRetry
}

// renew makes a group one of which nothing is known after its commit.
func (m *model) renew(cur *modelCursor) {
	m.generations++
	cur.generation = m.generations
	*cur.group = modelGroup{
		policy:   cur.group.policy,
		reserved: cur.committed,
		done:     map[uint64]bool{},
		retries:  map[uint64]frame.GroupRetry{},
	}
}

func (c *modelCursor) settled(offset uint64) bool {
	return offset <= c.committed || c.group.done[offset]
}

// passed takes away what a trim lets nobody have again.
func (c *modelCursor) passed(m *model, first uint64) {
	if c.group == nil {
		return
	}
	m.met["group passed by a trim"]++
	maps.DeleteFunc(c.group.retries, func(offset uint64, _ frame.GroupRetry) bool { return offset < first })
}

func (m *model) settle(cur *modelCursor, c frame.GroupSettle) string {
	if code := m.fenced(cur, c.Term, c.Generation); code != "" {
		return code
	}
	last, high := uint64(0), c.Reserved
	for _, r := range c.Done {
		if r.From <= last || r.To < r.From {
			m.met["settlement out of order"]++
			return string(Invalid)
		}
		last, high = r.To, max(high, r.To)
	}
	last = 0
	for i, r := range c.Retries {
		if i > 0 && r.Offset <= last {
			m.met["settlement out of order"]++
			return string(Invalid)
		}
		last, high = r.Offset, max(high, r.Offset)
	}
	if high > uint64(len(m.events)) {
		m.met["settlement past the tail"]++
		return string(PastTail)
	}
	return m.takeIn(c.Name, cur, c)
}

func (m *model) fenced(cur *modelCursor, term, generation uint64) string {
	switch {
	case cur.group == nil:
		return string(Invalid)
	case term != m.term:
		m.met["settlement of another term"]++
		return string(Fenced)
	case generation != cur.generation:
		m.met["settlement of another generation"]++
		return string(Fenced)
	}
	return ""
}

func (m *model) takeIn(name string, cur *modelCursor, c frame.GroupSettle) string {
	g := cur.group
	if c.Reserved >= g.reserved {
		g.open = c.Open
	}
	g.reserved = max(g.reserved, c.Reserved)
	for _, r := range c.Done {
		for offset := r.From; offset <= r.To; offset++ {
			if !cur.settled(offset) {
				g.done[offset] = true
				g.reserved = max(g.reserved, offset)
				if cur.committed+1 < offset {
					m.met["settled out of order"]++
				}
			}
		}
	}
	for g.done[cur.committed+1] {
		cur.committed++
		delete(g.done, cur.committed)
	}
	left := uint64(0)
	for offset := cur.committed + 1; offset <= g.reserved; offset++ {
		if !g.done[offset] {
			left++
		}
	}
	if g.open > left {
		m.met["group with fewer events open than reported"]++
	}
	g.open = min(g.open, left)
	m.resolve(name, cur.settled)
	for _, r := range c.Retries {
		if old, again := g.retries[r.Offset]; again {
			r.Deliveries = max(r.Deliveries, old.Deliveries)
			m.met["retry again"]++
		}
		r.Error = strings.ToValidUTF8(r.Error[:min(len(r.Error), 1024)], "")
		if r.Offset <= g.reserved && r.Offset >= m.first {
			g.retries[r.Offset] = r
			m.met["retry kept"]++
		}
	}
	maps.DeleteFunc(g.retries, func(offset uint64, _ frame.GroupRetry) bool { return cur.settled(offset) })
	return m.text(cur)
}

func (m *model) deadInGroup(cur *modelCursor, c frame.GroupDead) string {
	if code := m.fenced(cur, c.Term, c.Letter.Generation); code != "" {
		return code
	}
	if c.Letter.Offset > uint64(len(m.events)) {
		return string(PastTail)
	}
	return m.die(cur, c.Letter, cur.settled(c.Letter.Offset), func() string {
		m.met["dead in a group"]++
		return m.takeIn(c.Letter.Cursor, cur, frame.GroupSettle{
			Reserved: cur.group.reserved,
			Open:     max(cur.group.open, 1) - 1,
			Done:     []frame.Range{{From: c.Letter.Offset, To: c.Letter.Offset}},
		})
	})
}

// groupRequest draws what the leader of a term, or one that is over, says of a group.
func groupRequest(t *rapid.T, m *model, name string, offset, term uint64) request {
	offset, generation := likely(t, m, name, offset)
	if rapid.IntRange(0, 9).Draw(t, "old leader") == 9 {
		term -= rapid.Uint64Range(0, 1).Draw(t, "term")
	}
	if rapid.IntRange(0, 4).Draw(t, "dead") == 4 {
		return do(frame.GroupDead{Term: term, Letter: aDeadLetter(t, m, name, offset, generation)})
	}
	c := frame.GroupSettle{Name: name, Generation: generation, Term: term}
	next, what := offset, rapid.SampledFrom([]string{"acks", "failures", "both"}).Draw(t, "what")
	for range rapid.IntRange(0, 3).Draw(t, "ranges") {
		if what == "failures" {
			next++
			continue
		}
		r := frame.Range{From: next, To: next + rapid.Uint64Range(0, 3).Draw(t, "length")}
		c.Done = append(c.Done, r)
		next = r.To + 1 + rapid.Uint64Range(0, 3).Draw(t, "hole")
	}
	if tail := uint64(len(m.events)); rapid.IntRange(0, 9).Draw(t, "beyond") < 9 {
		c.Done = withinTail(c.Done, tail)
		next = min(next, tail)
	}
	c.Reserved, c.Open = next, rapid.Uint64Range(0, 4).Draw(t, "open")
	if what != "acks" {
		c.Retries = retriesFrom(t, m, offset, next)
	}
	if rapid.IntRange(0, 19).Draw(t, "disorder") == 19 {
		slices.Reverse(c.Done)
		slices.Reverse(c.Retries)
	}
	return do(c)
}

func withinTail(list []frame.Range, tail uint64) []frame.Range {
	for i := range list {
		list[i].To = min(list[i].To, tail)
	}
	return slices.DeleteFunc(list, func(r frame.Range) bool { return r.From > tail })
}

var failures = []string{"boom", "", strings.Repeat("x", 1023) + "üü", strings.Repeat("ü", 600)}

func retriesFrom(t *rapid.T, m *model, from, to uint64) (list []frame.GroupRetry) {
	for offset := from; offset <= min(to, from+4); offset++ {
		if rapid.Bool().Draw(t, "retry") {
			list = append(list, frame.GroupRetry{
				Offset:     offset,
				Deliveries: rapid.Uint64Range(0, 6).Draw(t, "deliveries"),
				After:      m.now.Add(time.Duration(rapid.IntRange(0, 1).Draw(t, "delay")) * time.Second),
				Error:      rapid.SampledFrom(failures).Draw(t, "error"),
			})
		}
	}
	return list
}

// checkGroups compares what each group knows, and what that says of each offset.
func checkGroups(t tb, m *Machine, want *model) {
	for name, cur := range want.cursors {
		got, is := m.Group(name)
		if is != (cur.group != nil) {
			t.Fatalf("group %q: %v", name, is)
		}
		if !is {
			continue
		}
		g := cur.group
		if got.Committed != cur.committed || got.Group.Reserved != g.reserved || got.Group.Open != g.open ||
			!ranges(got.Group.Done).ascending() || !canonical(&got) {
			t.Fatalf("group %q: %+v %+v, want committed %d reserved %d open %d", name, got, got.Group, cur.committed,
				g.reserved, g.open)
		}
		var retries []frame.GroupRetry
		for _, offset := range slices.Sorted(maps.Keys(g.retries)) {
			retries = append(retries, g.retries[offset])
		}
		if !slices.Equal(got.Group.Retries, retries) {
			t.Fatalf("group %q: retries %v, want %v", name, got.Group.Retries, retries)
		}
		open := uint64(0)
		for offset := uint64(1); offset <= uint64(len(want.events))+1; offset++ {
			deliveries := uint64(0)
			switch r, failed := g.retries[offset]; {
			case failed:
				deliveries = r.Deliveries
			case !cur.settled(offset) && offset <= g.reserved:
				deliveries = 1
			}
			if got.Settled(offset) != cur.settled(offset) || got.Deliveries(offset) != deliveries ||
				got.OpenBefore(offset) != open {
				t.Fatalf("group %q at %d: settled %v, %d deliveries, %d open before; want %v %d %d", name, offset,
					got.Settled(offset), got.Deliveries(offset), got.OpenBefore(offset), cur.settled(offset), deliveries, open)
			}
			if !cur.settled(offset) {
				open++
			}
		}
	}
	if n := len(m.Cursors()); n != len(want.cursors) {
		t.Fatalf("%d cursors, want %d", n, len(want.cursors))
	}
}

// canonical reports whether the ranges do not touch each other or the commit.
func canonical(c *Cursor) bool {
	after := c.Committed
	for _, r := range c.Group.Done {
		if r.From <= after+1 {
			return false
		}
		after = r.To
	}
	return true
}

func aDeadLetter(t *rapid.T, m *model, name string, offset, generation uint64) frame.DeadLetter {
	return frame.DeadLetter{
		Cursor:     name,
		Generation: generation,
		Offset:     offset,
		Handler:    "h",
		Attempts:   rapid.Uint64Range(0, 3).Draw(t, "attempts"),
		Error:      rapid.SampledFrom([]string{"boom", "a longer word on what went wrong"}).Draw(t, "error"),
		Event:      copyOf(m, offset),
	}
}
