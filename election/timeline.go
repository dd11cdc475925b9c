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

// Bounds of what a Timeline keeps.
const (
	keptTerms    = 64
	keptOutages  = 64
	keptJournals = 64
	keptAbsences = 128

	keptAbsencesOfOne = 24 // absences of one voter
)

// Timeline is what the log has shown of the time since the cluster began, as far as an outage can still be found in
// it: who led, what kept voters away from a quorum, and the outages that were found.
//
// Terms is sorted by term, and Outages has the newest, as they were reported. Everything in it is bounded: what is
// forgotten moves Settled on, so nothing is reported twice.
type Timeline struct {
	Terms     []Span    `json:"terms,omitempty"`
	Incidents uint64    `json:"incidents,omitempty"` // outages ever reported
	Outages   []Outage  `json:"outages,omitempty"`
	Absences  []View    `json:"absences,omitempty"` // what kept voters away from a quorum, the newest last
	Settled   time.Time `json:"settled,omitzero"`   // no outage before it is reported any more
	Journals  []Taken   `json:"journals,omitempty"` // how far voters' journals were read, the last one read last
}

// clone returns a copy that shares nothing.
func (l *Timeline) clone() Timeline {
	out := *l
	out.Terms, out.Journals = slices.Clone(l.Terms), slices.Clone(l.Journals)
	out.Outages, out.Absences = slices.Clone(l.Outages), slices.Clone(l.Absences)

	// Two of the lists have elements with lists of their own.
	for i := range out.Absences {
		out.Absences[i].Unreachable = slices.Clone(out.Absences[i].Unreachable)
	}
	for i := range out.Outages {
		out.Outages[i].SeenBy = slices.Clone(out.Outages[i].SeenBy)
	}
	return out
}

// gap is a time in which nobody led for long enough to decide anything. At most one outage
// is reported of it, however much of it is proven, and however late.
type gap struct{ from, to time.Time }

// indexOf returns the position of a term's leadership in Terms, or where it belongs if it is not known.
func (l *Timeline) indexOf(term uint64) (i int, known bool) {
	return slices.BinarySearchFunc(l.Terms, term, func(s Span, term uint64) int { return cmp.Compare(s.Term, term) })
}

// endTerm notes a leadership that is over as the log has it. The log knows its end as the last entry,
// which may be long before.
func (l *Timeline) endTerm(s Span) {
	i, known := l.indexOf(s.Term)
	if !known {
		l.Terms = slices.Insert(l.Terms, i, s)
		l.boundTerms()
		return
	}

	// The leader's own record of the end, if there is one, is exact.
	t := &l.Terms[i]
	t.Decided = t.Decided || s.Decided
	if !t.Over {
		t.To = latest(t.To, s.To)
	}
}

// mergeTerms notes leaderships as a leader saw them; the newest is the leader's own. Others that
// are not in the log committed nothing, and are left out.
func (l *Timeline) mergeTerms(led []Span) {
	for n, s := range led {
		i, known := l.indexOf(s.Term)
		switch {
		// Both saw a part of it.
		case known && l.Terms[i].Leader == s.Leader && !l.Terms[i].Over:
			l.Terms[i].From, l.Terms[i].To = earliest(l.Terms[i].From, s.From), latest(l.Terms[i].To, s.To)
		case !known && n == len(led)-1:
			l.Terms = slices.Insert(l.Terms, i, s)
		}
	}
	l.boundTerms()
}

// expireLease notes a leader's own record of when it could no longer lead.
func (l *Timeline) expireLease(v View) {
	if i, known := l.indexOf(v.Term); known && l.Terms[i].Leader == v.Voter && v.Ended.After(l.Terms[i].From) {
		l.Terms[i].To, l.Terms[i].Over = earliest(l.Terms[i].To, v.Ended), true
	}
}

// boundTerms forgets the oldest leaderships beyond keptTerms.
func (l *Timeline) boundTerms() {
	for len(l.Terms) > keptTerms {
		l.settleBefore(l.Terms[0].To)
		l.Terms = l.Terms[1:]
	}
}

// settleBefore keeps everything before a time from being judged again: what that would require
// is forgotten.
func (l *Timeline) settleBefore(at time.Time) { l.Settled = latest(l.Settled, at) }

// addAbsences adds to Absences what kept voters away from a quorum, and returns what is new: of
// the views those that did, of ups the times in which voters did not run.
func (l *Timeline) addAbsences(views []View, ups []Up) (news []View) {
	for _, v := range views {
		if v.Kind == ViewLost || v.Kind == ViewStalled || v.Kind == ViewDown {
			news = append(news, v)
		}
	}

	// The order of ups must not matter, since the result is part of the state.
	ups = slices.SortedFunc(slices.Values(ups), func(a, b Up) int {
		return cmp.Or(cmp.Compare(a.Voter, b.Voter), a.Since.Compare(b.Since), a.Before.Compare(b.Before))
	})
	for _, u := range ups {
		known := func(v View) bool {
			return v.Kind == ViewDown && v.Voter == u.Voter && v.Ended.Sub(u.Since).Abs() < shortest
		}
		if u.Before.IsZero() || !u.Before.Before(u.Since) {
			continue
		}

		// The voter's own journal may have recorded the same restart.
		if slices.ContainsFunc(l.Absences, known) || slices.ContainsFunc(news, known) {
			continue
		}
		news = append(news, View{Voter: u.Voter, Kind: ViewDown, Began: u.Before, Ended: u.Since})
	}
	l.Absences = append(l.Absences, news...)
	l.boundAbsences()
	return news
}

// boundAbsences forgets the oldest absences of a voter that has more than
// keptAbsencesOfOne, and then the oldest of all beyond keptAbsences.
func (l *Timeline) boundAbsences() {
	count := map[string]int{}

	// The newest come first while it is decided what is kept.
	kept := slices.Clone(l.Absences)
	slices.Reverse(kept)
	kept = slices.DeleteFunc(kept, func(v View) bool {
		count[v.Voter]++
		return count[v.Voter] > keptAbsencesOfOne
	})
	kept = kept[:min(len(kept), keptAbsences)]
	slices.Reverse(kept)
	l.Absences = kept
}

// gaps returns the times in which nobody led, the oldest first.
func (l *Timeline) gaps() (list []gap) {
	var spans []Span
	for i, s := range l.Terms {
		// A leader that did not run did not lead, whatever its last entry says.
		for _, v := range l.Absences {
			if v.Kind == ViewDown && v.Voter == s.Leader && v.Began.After(s.From) {
				s.To = earliest(s.To, v.Began)
			}
		}
		// What neither decided nor lasted could end no outage; the newest leadership still lasts.
		if s.Decided || s.To.Sub(s.From) >= shortest || i == len(l.Terms)-1 {
			spans = append(spans, s)
		}
	}

	// A gap lasts from the end of all leaderships before it to the next beginning.
	slices.SortStableFunc(spans, func(a, b Span) int { return a.From.Compare(b.From) })
	from := l.Settled
	for _, s := range spans {
		if s.From.After(from) {
			list = append(list, gap{from, s.From})
		}
		from = latest(from, s.To)
	}
	return list
}

// verdict is what findOutage has found in a gap.
type verdict struct {
	outage Outage
	views  []View   // of the outage, by their beginning
	down   []string // voters that did not run when it began
	proven bool     // a voter saw it
}

// findOutage finds the outage in a gap: the time in which that many voters saw no majority, were
// paused or did not run that the others were too few for a quorum.
func (l *Timeline) findOutage(g gap, voters []Voter) (found verdict) {
	var absences []View
	edges := []time.Time{g.from, g.to}
	for _, v := range l.Absences {
		if shared(v.Began, v.absentUntil(g), g.from, g.to) > 0 {
			absences = append(absences, v)
			edges = append(edges, latest(v.Began, g.from), earliest(v.absentUntil(g), g.to))
		}
	}

	// Between two neighbouring edges the set of absent voters does not change.
	slices.SortFunc(edges, time.Time.Compare)
	o := &found.outage
	for i := 1; i < len(edges); i++ {
		from, to := edges[i-1], edges[i]
		blocked, down := countAbsent(voters, absences, gap{from, to}, g)
		if !from.Before(to) || len(voters)-blocked >= majorityOf(len(voters)) {
			continue
		}
		if o.Ended.IsZero() {
			o.Began, found.down = from, down
		}
		o.Ended = to
	}

	// The outage lasts from the first blocked part to the last one.
	if o.Ended.Sub(o.Began) < shortest {
		return verdict{}
	}
	o.Ended = l.decidableSince(*o, g)
	for _, v := range l.Absences {
		if v.Kind == ViewLost && shared(v.Began, v.Ended, o.Began, o.Ended) > 0 {
			found.views = append(found.views, v)
			o.SeenBy = append(o.SeenBy, v.Voter)
		}
	}

	// Views and voters are in an order that does not depend on that of the journals.
	slices.SortStableFunc(found.views, func(a, b View) int {
		return cmp.Or(a.Began.Compare(b.Began), cmp.Compare(a.Voter, b.Voter))
	})
	slices.Sort(o.SeenBy)
	o.SeenBy = slices.Compact(o.SeenBy)
	found.proven = len(found.views) > 0
	return found
}

// decidableSince is when an outage was over. A cluster can decide again once it has a leader,
// not once its voters see each other: if a voter saw the outage until about the end of the
// gap, the outage lasted to that end. A gap that lasts much longer has a leadership that the log
// does not know.
func (l *Timeline) decidableSince(o Outage, g gap) time.Time {
	for _, v := range l.Absences {
		sawIt := v.Kind == ViewLost && shared(v.Began, v.Ended, o.Began, o.Ended) > 0
		if sawIt && !v.Ended.Add(shortest).Before(g.to) {
			return g.to
		}
	}
	return o.Ended
}

// countAbsent counts the voters that cannot have been part of a quorum in a part of the gap g,
// and names those of them that did not run.
func countAbsent(voters []Voter, absences []View, part, g gap) (n int, down []string) {
	for _, voter := range voters {
		absent, ran := false, false
		for _, v := range absences {
			if v.Voter == voter.ID && !v.Began.After(part.from) && !v.absentUntil(g).Before(part.to) {
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

// isReported reports whether one of the outages that were reported before is the one
// found in the gap g.
func isReported(reported []Outage, found Outage, g gap) bool {
	return slices.ContainsFunc(reported, func(o Outage) bool {
		inGap := 2*shared(o.Began, o.Ended, g.from, g.to) >= max(1, o.Ended.Sub(o.Began))
		return inGap || o.same(found.Began, found.Ended)
	})
}

// shared is how long from..to and since..until overlap.
func shared(from, to, since, until time.Time) time.Duration {
	return max(0, earliest(to, until).Sub(latest(from, since)))
}

// earliest returns the earlier of two times.
func earliest(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// latest returns the later of two times.
func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
