package election

import (
	"cmp"
	"slices"
	"time"
)

// shortest is how long an outage must be proven, and how long somebody must lead to
// end one where the log does not prove that a majority had that leader: less may be a
// difference of clocks.
const shortest = time.Second

// slowElection is how long a majority may wait for a leader before it lacks one.
const slowElection = 5 * time.Second

// Span is a leadership: by the log, in replicated time, and as the leaders after it
// saw it.
type Span struct {
	Term   uint64    `json:"term"`
	Leader string    `json:"leader"`
	From   time.Time `json:"from"`
	To     time.Time `json:"to"`
	Over   bool      `json:"over,omitempty"` // the leader itself told when it ended

	Decided bool `json:"decided,omitempty"` // the log has entries that prove a majority
}

// gap is a time in which nobody led for long enough to decide anything. There is at
// most one outage in it, however much of it is proven, and whenever.
type gap struct{ from, to time.Time }

// record finds the leadership of a term, where there is one.
func (h *Health) record(term uint64) (i int, known bool) {
	return slices.BinarySearchFunc(h.Terms, term, func(s Span, term uint64) int { return cmp.Compare(s.Term, term) })
}

// ended takes in a leadership as the log has it. What the log has of its end is the
// last entry, which may be long before.
func (h *Health) ended(s Span) {
	i, known := h.record(s.Term)
	if !known {
		h.Terms = slices.Insert(h.Terms, i, s)
		h.boundTerms()
		return
	}
	t := &h.Terms[i]
	t.Decided = t.Decided || s.Decided
	if !t.Over {
		t.To = latest(t.To, s.To)
	}
}

// follow takes in leaderships as a leader saw them. Those that committed nothing do not
// stand in the log, and could decide nothing; the newest is the leader's own.
func (h *Health) follow(led []Span) {
	for n, s := range led {
		i, known := h.record(s.Term)
		switch {
		case known && h.Terms[i].Leader == s.Leader && !h.Terms[i].Over:
			h.Terms[i].From, h.Terms[i].To = earliest(h.Terms[i].From, s.From), latest(h.Terms[i].To, s.To)
		case !known && n == len(led)-1:
			h.Terms = slices.Insert(h.Terms, i, s)
		}
	}
	h.boundTerms()
}

// expire takes in a leader's own word on when it could not lead any more.
func (h *Health) expire(v View) {
	if i, known := h.record(v.Term); known && h.Terms[i].Leader == v.Voter && v.Ended.After(h.Terms[i].From) {
		h.Terms[i].To, h.Terms[i].Over = earliest(h.Terms[i].To, v.Ended), true
	}
}

func (h *Health) boundTerms() {
	for len(h.Terms) > keptTerms {
		h.settle(h.Terms[0].To)
		h.Terms = h.Terms[1:]
	}
}

// settle lets nothing before a time be judged any more: what would have to be known for
// it is forgotten.
func (h *Health) settle(at time.Time) { h.Settled = latest(h.Settled, at) }

// remember keeps the newest of what kept voters away from a quorum, and returns what
// is new of it.
func (h *Health) remember(views []View, ups []Up) (news []View) {
	for _, v := range views {
		if v.Kind == ViewLost || v.Kind == ViewStalled || v.Kind == ViewDown {
			news = append(news, v)
		}
	}
	ups = slices.SortedFunc(slices.Values(ups), func(a, b Up) int {
		return cmp.Or(cmp.Compare(a.Voter, b.Voter), a.Since.Compare(b.Since), a.Before.Compare(b.Before))
	})
	for _, u := range ups {
		known := func(v View) bool {
			return v.Kind == ViewDown && v.Voter == u.Voter && v.Ended.Sub(u.Since).Abs() < shortest
		}
		if u.Before.IsZero() || !u.Before.Before(u.Since) || slices.ContainsFunc(h.Absences, known) || slices.ContainsFunc(news, known) {
			continue
		}
		news = append(news, View{Voter: u.Voter, Kind: ViewDown, Began: u.Before, Ended: u.Since})
	}
	h.Absences = append(h.Absences, news...)
	h.boundAbsences()
	return news
}

// boundAbsences forgets the oldest of a voter that tells more than others, and then of
// all.
func (h *Health) boundAbsences() {
	count := map[string]int{}
	kept := slices.Clone(h.Absences)
	slices.Reverse(kept)
	kept = slices.DeleteFunc(kept, func(v View) bool {
		count[v.Voter]++
		return count[v.Voter] > keptAbsencesOfOne
	})
	kept = kept[:min(len(kept), keptAbsences)]
	slices.Reverse(kept)
	h.Absences = kept
}

// gaps are the times in which nobody led, the oldest first.
func (h *Health) gaps() (list []gap) {
	var spans []Span
	for i, s := range h.Terms {
		for _, v := range h.Absences {
			if v.Kind == ViewDown && v.Voter == s.Leader && v.Began.After(s.From) {
				s.To = earliest(s.To, v.Began)
			}
		}
		if s.Decided || s.To.Sub(s.From) >= shortest || i == len(h.Terms)-1 {
			spans = append(spans, s)
		}
	}
	slices.SortStableFunc(spans, func(a, b Span) int { return a.From.Compare(b.From) })
	from := h.Settled
	for _, s := range spans {
		if s.From.After(from) {
			list = append(list, gap{from, s.From})
		}
		from = latest(from, s.To)
	}
	return list
}

// judge finds the outage in a gap: so many voters saw no majority, stood still or did
// not run that the others were too few, and one of them saw it. group are the views of
// it, down is who did not run at first.
func (h *Health) judge(g gap) (o Outage, group []View, down []string, proven bool) {
	var absences []View
	edges := []time.Time{g.from, g.to}
	for _, v := range h.Absences {
		if shared(v.Began, v.absent(g), g.from, g.to) > 0 {
			absences = append(absences, v)
			edges = append(edges, latest(v.Began, g.from), earliest(v.absent(g), g.to))
		}
	}
	slices.SortFunc(edges, time.Time.Compare)
	for i := 1; i < len(edges); i++ {
		from, to := edges[i-1], edges[i]
		blocked, off := h.blocked(absences, gap{from, to}, g)
		if !from.Before(to) || blocked < len(h.Voters)-h.quorum()+1 {
			continue
		}
		if o.Ended.IsZero() {
			o.Began, down = from, off
		}
		o.Ended = to
	}
	if o.Ended.Sub(o.Began) < shortest {
		return o, nil, nil, false
	}
	o.Ended = h.decidable(o, g)
	for _, v := range h.Absences {
		if v.Kind == ViewLost && shared(v.Began, v.Ended, o.Began, o.Ended) > 0 {
			group = append(group, v)
			o.SeenBy = append(o.SeenBy, v.Voter)
		}
	}
	slices.SortStableFunc(group, func(a, b View) int { return cmp.Or(a.Began.Compare(b.Began), cmp.Compare(a.Voter, b.Voter)) })
	slices.Sort(o.SeenBy)
	o.SeenBy = slices.Compact(o.SeenBy)
	return o, group, down, len(group) > 0
}

// decidable is when an outage was over: able to decide again is who has a leader, not
// who sees enough voters. Where nobody led until long after all saw it end, the log does
// not know of somebody.
func (h *Health) decidable(o Outage, g gap) time.Time {
	for _, v := range h.Absences {
		if v.Kind == ViewLost && shared(v.Began, v.Ended, o.Began, o.Ended) > 0 && !v.Ended.Add(shortest).Before(g.to) {
			return g.to
		}
	}
	return o.Ended
}

// blocked counts the voters that can have been part of no quorum in a part of a gap, and
// names those of them that did not run.
func (h *Health) blocked(absences []View, part, g gap) (n int, down []string) {
	for _, voter := range h.Voters {
		absent, ran := false, false
		for _, v := range absences {
			if v.Voter == voter.ID && !v.Began.After(part.from) && !v.absent(g).Before(part.to) {
				absent, ran = true, ran || v.Kind != ViewDown
			}
		}
		if absent {
			n++
		}
		if absent && !ran {
			down = append(down, voter.ID)
		}
	}
	return n, down
}

// tells reports whether one of the outages told is the one found in a gap. There is one
// in a gap; and where what is known by now parts a gap that was one, both parts are told.
func (h *Health) tells(told []Outage, found Outage, g gap) bool {
	return slices.ContainsFunc(told, func(o Outage) bool {
		return 2*shared(o.Began, o.Ended, g.from, g.to) >= max(1, o.Ended.Sub(o.Began)) || o.same(found.Began, found.Ended)
	})
}

// shared is how long two times overlap.
func shared(from, to, since, until time.Time) time.Duration {
	return max(0, earliest(to, until).Sub(latest(from, since)))
}

func earliest(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
