package tail

import (
	"sync/atomic"

	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/fsm"
	"github.com/ringrift/ringlog/log"
)

// LiveFilter is a filter of a reader that outlives changes of the catalogue: a type that is
// registered while the reader is open matches its categories from there on. It is safe for
// concurrent use.
type LiveFilter struct {
	machine  *fsm.Machine
	filter   event.Filter
	types    []string // patterns of the types that the reader may have; none is all
	compiled atomic.Pointer[compiledFilter]
}

// compiledFilter is a filter as it was compiled for one catalogue. It does not change.
type compiledFilter struct {
	catalogue *event.Catalogue // that the matcher was compiled against
	matcher   event.Matcher
}

// NewLiveFilter returns a filter that is compiled when it is first used. It passes only types that one of the patterns
// allows, and all if there is none.
func NewLiveFilter(m *fsm.Machine, f event.Filter, types []string) *LiveFilter {
	return &LiveFilter{machine: m, filter: f, types: types}
}

// current returns the filter compiled against the newest catalogue. Callers that meet a new catalogue at the same
// time may each compile it; all of the results are equal.
func (f *LiveFilter) current() *compiledFilter {
	now := f.machine.Catalogue()
	if c := f.compiled.Load(); c != nil && c.catalogue == now {
		return c
	}
	c := &compiledFilter{now, f.filter.Compile(now)}
	if len(f.types) > 0 {
		c.matcher = c.matcher.Within(event.Filter{Types: f.types}.Compile(now))
	}
	f.compiled.Store(c)
	return c
}

// Matcher is the filter, compiled against the newest catalogue.
func (f *LiveFilter) Matcher() *event.Matcher { return &f.current().matcher }

// Read is log.Log.ReadFor. A registration is applied before the events of its type, so a read that
// leaves the catalogue as it was has seen no event with an older one.
func (f *LiveFilter) Read(cursor string, from uint64, limit int) (log.Chunk, error) {
	for {
		c := f.current()
		chunk, err := f.machine.Log().ReadFor(cursor, from, &c.matcher, limit)
		if err != nil || c.catalogue == f.machine.Catalogue() {
			return chunk, err
		}
	}
}

// FilterGap keeps the counts of types that the reader would have got.
func FilterGap(g *log.Gap, m *event.Matcher) *log.Gap {
	out := *g
	out.Types = map[string]uint64{}
	for t, n := range g.Types {
		if m.MatchType(t) {
			out.Types[t] = n
		}
	}
	return &out
}
