package fsm

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"pgregory.net/rapid"

	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/internal/frame"
)

// modelLetters are the dead letters as a list, searched for everything.
type modelLetters struct {
	list     []*modelLetter
	next     uint64
	origins  map[[frame.OriginSize]byte]bool
	reported time.Time
	stored   int // by this entry, of events that are reported
	maxBytes uint64
	maxAge   time.Duration
	stale    time.Duration
}

type modelLetter struct {
	id, offset         uint64
	cursor, from       string
	event              event.Event
	attempts, redrives uint64
	dead               time.Time
	copy               uint64 // under way; 0 is dead
	bytes              uint64
	keptAs             *[frame.OriginSize]byte // nil: it was not kept
}

func newModelLetters() modelLetters {
	return modelLetters{next: 1, origins: map[[frame.OriginSize]byte]bool{}, maxBytes: 256 << 20, stale: 24 * time.Hour}
}

func (l *modelLetter) text() string {
	return fmt.Sprintf("letter %d of %q at %d, %d attempts, %d redrives, copy %d", l.id, l.cursor, l.offset,
		l.attempts, l.redrives, l.copy)
}

func (l LetterView) text() string {
	m := modelLetter{
		id:       l.ID,
		offset:   l.Offset,
		cursor:   l.Cursor,
		attempts: l.Attempts,
		redrives: l.Redrives,
		copy:     l.Copy,
	}
	return m.text()
}

func (r *LettersResult) text() string {
	return fmt.Sprintf("done %d skipped %d missing %v no cursor %v at %d-%d", r.Done, r.Skipped, r.Missing,
		r.NoCursor, r.First, r.Last)
}

func sizeOf(texts ...string) (n uint64) {
	for _, s := range texts {
		n += uint64(len(s))
	}
	return n + 256
}

func (m *model) letter(id uint64) *modelLetter {
	for _, l := range m.letters.list {
		if l.id == id {
			return l
		}
	}
	return nil
}

func (m *model) dropLetters(which func(*modelLetter) bool) (n int) {
	before := len(m.letters.list)
	m.letters.list = slices.DeleteFunc(m.letters.list, func(l *modelLetter) bool {
		if !which(l) {
			return false
		}
		if l.keptAs != nil {
			m.met["kept letter gone"]++
			delete(m.letters.origins, *l.keptAs)
		}
		return true
	})
	return before - len(m.letters.list)
}

func (m *model) letterBytes() (n uint64) {
	for _, l := range m.letters.list {
		n += l.bytes
	}
	return n
}

// age purges what is too old and reports what is stale, at the beginning of an entry.
func (m *model) age() {
	s := &m.letters
	unreported := false
	for _, l := range s.list {
		unreported = unreported || (l.copy == 0 && l.dead.After(s.reported) && !l.dead.Add(s.stale).After(m.now))
	}
	tooOld := func(l *modelLetter) bool { return l.copy == 0 && !l.dead.Add(s.maxAge).After(m.now) }
	if s.maxAge > 0 && m.dropLetters(tooOld) > 0 {
		m.met["letters too old"]++
		m.late = append(m.late, event.DLQEventsPurged)
	}
	if !unreported {
		return
	}
	count := 0
	for _, l := range s.list {
		if l.copy == 0 && l.dead.After(s.reported) && !l.dead.Add(s.stale).After(m.now) {
			count++
		}
	}
	s.reported = m.now.Add(-s.stale)
	if count > 0 {
		m.met["letters stale"]++
		m.late = append(m.late, event.DLQStaleEvents)
	}
}

func (m *model) deadLetter(cur *modelCursor, c frame.DeadLetter) string {
	commit := frame.CursorCommit{Name: c.Cursor, Offset: c.Offset, Generation: c.Generation}
	if c.Generation != cur.generation || c.Offset > uint64(len(m.events)) {
		return m.commit(cur, commit)
	}
	return m.die(cur, c, c.Offset <= cur.committed, func() string { return m.commit(cur, commit) })
}

// die makes an event a letter, and the cursor pass it; one that is settled already is
// answered as the first time.
func (m *model) die(cur *modelCursor, c frame.DeadLetter, settled bool, pass func() string) string {
	var found *modelLetter
	for _, l := range m.letters.list {
		if l.cursor == c.Cursor && (l.copy == c.Offset || l.offset == c.Offset) && c.Offset > 0 {
			found = l
			if l.copy == c.Offset {
				break
			}
		}
	}
	if settled {
		if found == nil || found.offset != c.Offset {
			return string(Conflict)
		}
		m.met["letter repeated"]++
		return found.text() + " " + m.text(cur)
	}
	l := modelLetter{cursor: c.Cursor}
	if found != nil {
		l = *found
	}
	bytes := sizeOf(string(c.Event), c.Cursor, c.Handler, c.Error, l.from)
	if bytes > l.bytes && m.letterBytes()+bytes-l.bytes > m.letters.maxBytes {
		m.met["letter without room"]++
		return string(Overloaded)
	}
	l.attempts += max(c.Attempts, 1)
	answer := l
	switch {
	case found == nil:
		l.id, l.event, l.offset, l.dead, l.bytes = m.letters.next, mustCopy(c.Event), c.Offset, m.now, bytes
		m.letters.next++
		found = &modelLetter{}
		m.letters.list = append(m.letters.list, found)
		*found, answer = l, l
		m.store(found)
	case l.copy == c.Offset || l.copy == 0:
		m.met["letter dead again"]++
		l.copy, l.offset, l.dead, l.bytes = 0, c.Offset, m.now, bytes
		*found, answer = l, l
		m.store(found)
	}
	return answer.text() + " " + pass()
}

// store counts a letter that the entry reports, unless its event is about letters or handlers.
func (m *model) store(l *modelLetter) {
	if about := string(l.event.Type); strings.HasPrefix(about, "DLQ_") || strings.HasPrefix(about, "HANDLER_") {
		m.met["letter about letters"]++
		return
	}
	m.letters.stored++
}

func mustCopy(b []byte) event.Event {
	e, err := frame.DecodeCopy(b)
	if err != nil {
		panic(err)
	}
	return e
}

// resolve removes the letters whose copies a cursor has settled.
func (m *model) resolve(name string, settled func(offset uint64) bool) {
	cur := m.cursors[name]
	m.dropLetters(func(l *modelLetter) bool {
		if l.cursor != name || l.copy == 0 || !settled(l.copy) {
			return false
		}
		m.met["letter resolved"]++
		if cur.group != nil {
			m.met["letter of a group resolved"]++
		}
		if l.copy > cur.committed {
			m.met["letter resolved out of order"]++
		}
		return true
	})
}

// revive makes those dead again whose copies will not come.
func (m *model) revive(name string, below uint64) {
	for _, l := range m.letters.list {
		if l.cursor == name && l.copy != 0 && l.copy < below {
			l.copy = 0
			m.met["letter revived"]++
		}
	}
}

func (m *model) redrive(c frame.Redrive) string {
	var r LettersResult
	taken := map[string][]*modelLetter{}
	var order []string
	seen := map[uint64]bool{}
	for _, id := range c.Letters {
		l := m.letter(id)
		if l == nil {
			r.Missing = append(r.Missing, id)
			continue
		}
		to := cmp.Or(c.To, l.cursor)
		switch {
		case seen[id] || l.copy != 0:
			r.Skipped++
		case m.cursors[to] == nil:
			r.NoCursor = append(r.NoCursor, id)
		default:
			seen[id] = true
			if taken[to] == nil {
				order = append(order, to)
			}
			taken[to] = append(taken[to], l)
		}
	}
	for _, to := range order {
		from := uint64(len(m.events)) + 1
		r.First = cmp.Or(r.First, from)
		for _, l := range taken[to] {
			if l.cursor != to {
				l.bytes += uint64(len(to)) - uint64(len(l.cursor))
				l.cursor, l.offset = to, 0
			}
			m.events = append(m.events, modelEvent{event: l.event, at: m.now, target: to, letter: l.id})
			l.redrives++
			l.copy = uint64(len(m.events))
			r.Done++
		}
		r.Last = uint64(len(m.events))
		m.blocks = append(m.blocks, modelBlock{from, r.Last})
	}
	if r.Done > 0 {
		m.met["letters redriven"]++
		m.late = append(m.late, event.DLQEventsReplayed)
	}
	return r.text()
}

func (m *model) purge(c frame.Purge) string {
	var r LettersResult
	for _, id := range c.Letters {
		l := m.letter(id)
		switch {
		case l == nil:
			r.Missing = append(r.Missing, id)
		case l.copy != 0 || (c.OlderThan > 0 && m.now.Sub(l.dead) < c.OlderThan):
			r.Skipped++
		default:
			r.Done += m.dropLetters(func(other *modelLetter) bool { return other == l })
		}
	}
	if r.Done > 0 {
		m.late = append(m.late, event.DLQEventsPurged)
	}
	return r.text()
}

func (m *model) importLetters(c frame.LetterImport) string {
	var r LettersResult
	total := uint64(0)
	for _, in := range c.Letters {
		total += sizeOf(string(in.Event), in.From, in.Error)
	}
	if total > 0 && m.letterBytes()+total > m.letters.maxBytes {
		return string(Overloaded)
	}
	for _, in := range c.Letters {
		if m.letters.origins[in.Origin] {
			r.Skipped++
			continue
		}
		m.letters.origins[in.Origin] = true
		m.letters.list = append(m.letters.list, &modelLetter{
			id:       m.letters.next,
			event:    mustCopy(in.Event),
			attempts: in.Attempts,
			dead:     m.now,
			from:     in.From,
			bytes:    sizeOf(string(in.Event), in.From, in.Error),
		})
		m.store(m.letters.list[len(m.letters.list)-1])
		r.First, r.Last = cmp.Or(r.First, m.letters.next), m.letters.next
		m.letters.next++
		r.Done++
	}
	return r.text()
}

func (m *model) keepLetter(c frame.LetterKeep) string {
	r := LettersResult{Skipped: 1}
	bytes := sizeOf(string(c.Letter.Event), c.Letter.Cursor, c.Letter.Handler, c.Letter.Error, c.From)
	switch {
	case m.letters.origins[c.Origin]:
		m.met["letter kept before"]++
		return r.text()
	case m.letterBytes()+bytes > m.letters.maxBytes:
		return string(Overloaded)
	}
	m.letters.origins[c.Origin] = true
	l := &modelLetter{
		id:       m.letters.next,
		cursor:   c.Letter.Cursor,
		event:    mustCopy(c.Letter.Event),
		attempts: max(c.Letter.Attempts, 1),
		dead:     m.now,
		from:     c.From,
		bytes:    bytes,
		keptAs:   &c.Origin,
	}
	m.letters.list = append(m.letters.list, l)
	m.letters.next++
	m.store(l)
	r = LettersResult{Done: 1, First: l.id, Last: l.id}
	return r.text()
}

// letterRequest draws a command about dead letters.
func letterRequest(t *rapid.T, m *model, name string, offset uint64) request {
	var ids []uint64
	for range rapid.IntRange(1, 4).Draw(t, "ids") {
		ids = append(ids, rapid.Uint64Range(1, m.letters.next+1).Draw(t, "id"))
	}
	switch rapid.IntRange(0, 12).Draw(t, "letter command") {
	case 0:
		return do(frame.Purge{
			Letters:   ids,
			OlderThan: rapid.SampledFrom([]time.Duration{0, 0, 30 * time.Second}).Draw(t, "older"),
		})
	case 1, 2, 3:
		return do(frame.Redrive{Letters: ids, To: rapid.SampledFrom([]string{"", "", "", "", "x", "z"}).Draw(t, "to")})
	case 4:
		in := frame.ImportedLetter{
			Origin:   [frame.OriginSize]byte{byte(rapid.IntRange(0, 5).Draw(t, "origin"))},
			From:     "old.db",
			Error:    "e",
			Attempts: 2,
		}
		imported := ev(7)
		in.Event = frame.EncodeCopy(&imported)
		return do(frame.LetterImport{Letters: []frame.ImportedLetter{in, in}})
	case 12:
		imported := ev(8)
		return do(frame.LetterKeep{
			Origin: [frame.OriginSize]byte{1, byte(rapid.IntRange(0, 9).Draw(t, "origin"))},
			From:   "p1",
			Letter: frame.DeadLetter{Cursor: name, Offset: offset, Handler: "h", Error: "e", Attempts: 2,
				Event: frame.EncodeCopy(&imported)},
		})
	case 5:
		key, value := "dlq.max_age", rapid.SampledFrom([]string{"0s", "1m0s", "10m0s"}).Draw(t, "age")
		switch rapid.IntRange(0, 2).Draw(t, "which setting") {
		case 0:
			key, value = "dlq.max_bytes", rapid.SampledFrom([]string{"1024", "1048576"}).Draw(t, "bytes")
		case 1:
			key, value = "dlq.stale_after", rapid.SampledFrom([]string{"10s", "5m0s", "24h0m0s"}).Draw(t, "stale")
		}
		return do(frame.SettingSet{Key: key, Value: value})
	default:
		offset, generation := likely(t, m, name, offset)
		return do(aDeadLetter(t, m, name, offset, generation))
	}
}

// likely draws an offset and a generation that most often mean something to a cursor:
// what comes next, or a copy that is under way to it.
func likely(t *rapid.T, m *model, name string, offset uint64) (uint64, uint64) {
	cur := m.cursors[name]
	if cur == nil || rapid.IntRange(0, 9).Draw(t, "likely") == 0 {
		return offset, rapid.Uint64Range(0, 3).Draw(t, "generation")
	}
	choices := []uint64{cur.committed + 1, cur.committed + 2}
	if cur.group != nil {
		choices = append(choices, cur.committed+4, cur.group.reserved, cur.group.reserved+1)
		choices = append(choices, slices.Sorted(maps.Keys(cur.group.retries))...)
	}
	for _, l := range m.letters.list {
		if l.cursor == name && l.copy != 0 {
			choices = append(choices, l.copy, l.copy+1)
		}
		if l.cursor == name && l.offset != 0 {
			choices = append(choices, l.offset)
		}
	}
	return rapid.SampledFrom(choices).Draw(t, "choice"), cur.generation
}

// copyOf is what a server attaches.
func copyOf(m *model, offset uint64) []byte {
	e := ev(0)
	if offset > 0 && offset <= uint64(len(m.events)) {
		e = m.events[offset-1].event
	}
	return frame.EncodeCopy(&e)
}

// checkLetters compares the letters, and what each cursor would be given again.
func checkLetters(t tb, m *Machine, want *model) {
	var got, expected []string
	dead, bytes := 0, uint64(0)
	if err := m.EachLetter(context.Background(), 0, func(l LetterView) bool {
		got = append(got, l.text())
		return true
	}); err != nil {
		t.Fatalf("letters: %v", err)
	}
	for _, l := range want.letters.list {
		expected = append(expected, l.text())
		bytes += l.bytes
		if l.copy == 0 {
			dead++
		}
		_, e, err := m.Letter(l.id)
		if err != nil || e.Type != l.event.Type || string(e.Payload) != string(l.event.Payload) {
			t.Fatalf("letter %d: %v %v, want %v", l.id, e, err, l.event)
		}
	}
	slices.Sort(got)
	slices.Sort(expected)
	if !slices.Equal(got, expected) {
		t.Fatalf("letters\n%q\nwant\n%q", got, expected)
	}
	stats := m.Stats().Letters
	if stats.Count-stats.Redriven != uint64(dead) || stats.Bytes != bytes || stats.Count != uint64(len(got)) {
		t.Fatalf("%d dead of %d, %d bytes: %+v", dead, len(got), bytes, stats)
	}
	for _, name := range []string{"", "x", "g"} {
		checkReader(t, m, want, name)
	}
}

// checkReader requires that a reader gets everybody's events and its own.
func checkReader(t tb, m *Machine, want *model, name string) {
	all := event.Filter{}.Compile(event.Builtin())
	next, last := m.Log().Bounds()
	for next <= last {
		chunk, err := m.Log().ReadFor(name, next, &all, 5)
		if err != nil || chunk.Gap != nil {
			t.Fatalf("read for %q from %d: %v %v", name, next, chunk.Gap, err)
		}
		for _, e := range chunk.Events {
			for ; next < e.Offset; next++ {
				if other := want.events[next-1].target; other == "" || other == name {
					t.Fatalf("%q is not given %d, which is for %q", name, next, other)
				}
			}
			if w := want.events[next-1]; e.Target != w.target || e.Redrive != w.letter || (w.target != "" && w.target != name) {
				t.Fatalf("%q is given %d for %q of letter %d, want %q %d", name, next, e.Target, e.Redrive, w.target, w.letter)
			}
			next++
		}
		next = chunk.Next
	}
}
