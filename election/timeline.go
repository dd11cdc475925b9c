package election

import (
	"cmp"
	"slices"
	"time"
)

// shortest is the shortest outage that is reported, and the shortest leadership that ends
// an outage although the log does not prove that a majority had that leader. Anything
// shorter may be a difference between clocks.
const shortest = time.Second

// slowElection is how long a majority may wait for a leader without that being an outage.
const slowElection = 5 * time.Second

// Span is a leadership: by the log, in replicated time, and as the leaders after it
// saw it.
type Span struct {
	Term   uint64    `json:"term"`
	Leader string    `json:"leader"`
	From   time.Time `json:"from"`
	To     time.Time `json:"to"`
	Over   bool      `json:"over,omitempty"` // the leader itself recorded when it ended

	Decided bool `json:"decided,omitempty"` // the log has entries that prove a majority
}

// gap is a time in which nobody led for long enough to decide anything. At most one outage
// is reported of it, however much of it is proven, and however late.
type gap struct{ from, to time.Time }

// record returns the position of a term's leadership in Terms, or where it belongs if it is not known.
func (h *Health) record(term uint64) (i int, known bool) {
	return slices.BinarySearchFunc(h.Terms, term, func(s Span, term uint64) int { return cmp.Compare(s.Term, term) })
}

// ended takes a leadership as the log has it. The log knows its end as the last entry,
// which may be long before.
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

// follow takes leaderships as a leader saw them; the newest is the leader's own. Others that
// are not in the log committed nothing, and are left out.
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

// expire takes a leader's own record of when it could no longer lead.
func (h *Health) expire(v View) {
	if i, known := h.record(v.Term); known && h.Terms[i].Leader == v.Voter && v.Ended.After(h.Terms[i].From) {
		h.Terms[i].To, h.Terms[i].Over = earliest(h.Terms[i].To, v.Ended), true
	}
}

// boundTerms forgets the oldest leaderships beyond keptTerms.
func (h *Health) boundTerms() {
	for len(h.Terms) > keptTerms {
		h.settle(h.Terms[0].To)
		h.Terms = h.Terms[1:]
	}
}

// settle keeps everything before a time from being judged again: what that would require
// is forgotten.
func (h *Health) settle(at time.Time) { h.Settled = latest(h.Settled, at) }

// remember adds to Absences what kept voters away from a quorum, and returns what is new: of
// the views those that did, of ups the times in which voters did not run.
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
		// The voter's own journal may have recorded the same restart.
		if u.Before.IsZero() || !u.Before.Before(u.Since) || slices.ContainsFunc(h.Absences, known) || slices.ContainsFunc(news, known) {
			continue
		}
		news = append(news, View{Voter: u.Voter, Kind: ViewDown, Began: u.Before, Ended: u.Since})
	}
	h.Absences = append(h.Absences, news...)
	h.boundAbsences()
	return news
}

// boundAbsences forgets the oldest absences of a voter that has more than
// keptAbsencesOfOne, and then the oldest of all beyond keptAbsences.
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

// gaps returns the times in which nobody led, the oldest first.
func (h *Health) gaps() (list []gap) {
	var spans []Span
	for i, s := range h.Terms {
		// A leader that did not run did not lead, whatever its last entry says.
		for _, v := range h.Absences {
			if v.Kind == ViewDown && v.Voter == s.Leader && v.Began.After(s.From) {
				s.To = earliest(s.To, v.Began)
			}
		}
		// What neither decided nor lasted could end no outage; the newest leadership still lasts.
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

// judge finds the outage in a gap: the time in which so many voters saw no majority, were
// paused or did not run that the others were too few for a quorum. It is proven if a voter
// saw it. group are the views of it, down are the voters that did not run when it began.
func (h *Health) judge(g gap) (o Outage, group []View, down []string, proven bool) {
	var absences []View
	edges := []time.Time{g.from, g.to}
	for _, v := range h.Absences {
		if shared(v.Began, v.absent(g), g.from, g.to) > 0 {
			absences = append(absences, v)
			edges = append(edges, latest(v.Began, g.from), earliest(v.absent(g), g.to))
		}
	}
	// Between two neighbouring edges the set of absent voters does not change.
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
	// The outage lasts from the first blocked part to the last one.
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

// decidable is when an outage was over. A cluster can decide again once it has a leader,
// not once its voters see each other: if a voter saw the outage until about the end of the
// gap, the outage lasted to that end. A gap that lasts much longer has a leadership that the log
// does not know.
func (h *Health) decidable(o Outage, g gap) time.Time {
	for _, v := range h.Absences {
		if v.Kind == ViewLost && shared(v.Began, v.Ended, o.Began, o.Ended) > 0 && !v.Ended.Add(shortest).Before(g.to) {
			return g.to
		}
	}
	return o.Ended
}

// blocked counts the voters that cannot have been part of a quorum in a part of the gap g,
// and names those of them that did not run.
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
		// A voter that was also seen to run during this part did run.
		if absent && !ran {
			down = append(down, voter.ID)
		}
	}
	return n, down
}

// tells reports whether one of the outages in told, which were reported before, is the one
// found in the gap g.
func (h *Health) tells(told []Outage, found Outage, g gap) bool {
	return slices.ContainsFunc(told, func(o Outage) bool {
		return 2*shared(o.Began, o.Ended, g.from, g.to) >= max(1, o.Ended.Sub(o.Began)) || o.same(found.Began, found.Ended)
	})
}

// shared is for how long from..to and since..until overlap.
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
