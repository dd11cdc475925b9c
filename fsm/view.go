package fsm

import (
	"context"
	"encoding/binary"
	"fmt"
	"maps"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/internal/frame"
	"github.com/ringrift/ringlog/internal/kv"
	"github.com/ringrift/ringlog/log"
)

// views answers what others ask of a machine. Its methods read; none of them can apply, write or
// swap, since what that takes is in Machine alone.
//
// What is read of the log and of the database through it does not wait for entries that are being
// applied. What is read of s does, and the entries wait for it.
type views struct {
	reports      // of s, when it was stored last: read without a lock
	letterReader // of log

	log       *log.Log
	catalogue atomic.Pointer[event.Catalogue] // s.catalogue, for readers of the log
	defined   atomic.Pointer[ViewDefinitions] // of s, for what folds them
	tokens    atomic.Pointer[Tokens]          // of s, for what lets callers in

	// mu guards s and stored. It is held to apply and to swap, and shared to read.
	mu     sync.RWMutex
	s      *state
	stored kv.Reader // the database that log reads; nil once the machine is closed
}

// Log returns the reading side of the event log. It stays valid over a Swap.
func (v *views) Log() *log.Log { return v.log }

// read returns what from takes out of the state, which it may read but neither change nor keep: an entry
// that is being applied waits for it.
func read[T any](v *views, from func(*state) T) T {
	v.mu.RLock()
	defer v.mu.RUnlock()
	return from(v.s)
}

// Time returns the replicated time; zero before the first entry. It does not advance while nothing is appended.
func (v *views) Time() time.Time {
	return read(v, func(s *state) time.Time {
		if s.meta.Time == 0 {
			return time.Time{}
		}
		return time.Unix(0, s.meta.Time).UTC()
	})
}

// LastClockStep returns the last time replicated time was moved at once, or nil.
func (v *views) LastClockStep() *ClockStep {
	return read(v, func(s *state) *ClockStep { return s.meta.LastStep })
}

// DigestAt returns the digest at an index, if it is one of the last 1024.
func (v *views) DigestAt(index uint64) (sum Sum, known bool) {
	// Not under mu, which waits for the disk. A closed log knows none.
	_ = v.log.View(func(db kv.DB) error {
		sum, known = digestAt(db, index)
		return nil
	})
	return sum, known
}

// digestAt reads the digest of an entry from the ring, where one of a later entry may have replaced it.
func digestAt(db kv.DB, index uint64) (sum Sum, known bool) {
	value, err := readValue(db, binary.BigEndian.AppendUint16([]byte{prefixDigest}, uint16(index%digestsKept)))
	if err != nil || len(value) != 8+len(sum) || binary.BigEndian.Uint64(value) != index {
		return sum, false
	}
	return Sum(value[8:]), true
}

// Cursor returns a copy of a cursor. What is in the copy may be kept, but not changed: it shares memory with the
// state.
func (v *views) Cursor(name string) (Cursor, bool) {
	v.mu.RLock()
	defer v.mu.RUnlock()
	c := v.s.cursors[name]
	if c == nil {
		return Cursor{}, false
	}
	return *v.s.view(c), true
}

// CursorGeneration returns the generation that holds a cursor.
func (v *views) CursorGeneration(name string) (generation uint64, ok bool) {
	v.mu.RLock()
	defer v.mu.RUnlock()
	c := v.s.cursors[name]
	if c == nil {
		return 0, false
	}
	return c.Generation, true
}

// Cursors returns copies of all cursors, by name.
func (v *views) Cursors() []Cursor {
	return read(v, func(s *state) []Cursor {
		list := make([]Cursor, 0, len(s.cursors))
		for _, name := range slices.Sorted(maps.Keys(s.cursors)) {
			list = append(list, *s.view(s.cursors[name]))
		}
		return list
	})
}

// CursorsAfter returns copies of the first limit cursors that are shown and whose names follow after, by name, the name
// of the last where more follow, and how many are shown in all.
func (v *views) CursorsAfter(after string, limit int, shown func(name string) bool) (page []Cursor, next string, total int) {
	// Names first: sorting them all would hold up an entry.
	names := read(v, func(s *state) []string {
		names := make([]string, 0, len(s.cursors))
		for name := range s.cursors {
			if !shown(name) {
				continue
			}
			total++
			if name > after {
				names = append(names, name)
			}
		}
		return names
	})
	// Sort without the lock. A cursor that is removed meanwhile is left out.
	slices.Sort(names)
	if len(names) > limit {
		names, next = names[:limit], names[limit-1]
	}
	return read(v, func(s *state) []Cursor {
		for _, name := range names {
			if c := s.cursors[name]; c != nil {
				page = append(page, *s.view(c))
			}
		}
		return page
	}), next, total
}

// Group returns a copy of a group with what is settled after its commit and what is redelivered,
// which Cursor and Cursors leave out. It is false for a cursor of one reader.
func (v *views) Group(name string) (Cursor, bool) {
	v.mu.RLock()
	defer v.mu.RUnlock()
	c := v.s.cursors[name]
	if c == nil || c.Group == nil {
		return Cursor{}, false
	}
	out := v.s.view(c)
	out.Group.Done, out.Group.Retries = slices.Clone(c.Group.Done), slices.Clone(v.s.retries(c.Group))
	return *out, true
}

// Settings returns the replicated settings in force.
func (v *views) Settings() Settings {
	return read(v, func(s *state) Settings { return s.settings })
}

// ListSettings returns all settings with their defaults and meanings, by key.
func (v *views) ListSettings() []Setting {
	return read(v, func(s *state) []Setting {
		var list []Setting
		for _, d := range definitions() {
			list = append(list, s.setting(d))
		}
		return list
	})
}

// Catalogue returns the built-in event types and those added at run time. It does not wait for an
// entry that is being applied, and has a type before the log has an event that was appended
// after its registration.
func (v *views) Catalogue() *event.Catalogue {
	return v.catalogue.Load()
}

// Policy returns the gate for incoming events that the settings ask for.
func (v *views) Policy() event.Policy {
	return read(v, func(s *state) event.Policy {
		p := event.Policy{Catalogue: s.catalogue, Strict: s.settings.ValidationStrict, Limits: s.settings.Limits,
			Dedup: s.policies.gate, NoTraces: s.meta.FeatureLevel < frame.LevelTraces}
		if s.settings.ReservedForeign {
			p.Reserved = event.ReservedForeign
		}
		return p
	})
}

// VoteWanted reports whether a member is to have a vote, if anybody ever said so.
func (v *views) VoteWanted(id string) (wanted, known bool) {
	v.mu.RLock()
	defer v.mu.RUnlock()
	w, known := v.s.desiredVotes[id]
	return w.Wanted, known
}

// Configuration returns the newest Raft configuration applied: its index, its
// bytes as Raft encodes them, and its members. The index is 0 when there is none.
// The slices are the caller's.
func (v *views) Configuration() (index uint64, raw []byte, members []ConfigMember) {
	v.mu.RLock()
	defer v.mu.RUnlock()
	c := v.s.membership
	return c.Index, slices.Clone(c.Raw), slices.Clone(c.Members)
}

// Stats are figures about the state.
type Stats struct {
	Counters
	First      uint64 `json:"first_offset"`
	Last       uint64 `json:"last_offset"`
	Bytes      uint64 `json:"log_bytes"`     // of the blocks retained
	Receipts   uint64 `json:"receipt_bytes"` // of what is known of suppressed events
	DedupKeys  int    `json:"dedup_keys"`
	DedupBytes int    `json:"dedup_bytes"` // of memory
	PolicyKeys int    `json:"policy_keys"` // of the dedup policies of types
	Producers  int    `json:"producers"`
	Results    uint64 `json:"result_bytes"` // of their results, but for the small ones
	Cursors    int    `json:"cursors"`

	Letters LetterStats `json:"dead_letters,omitzero"`
}

// Stats returns the figures of this moment.
func (v *views) Stats() Stats {
	return read(v, func(s *state) Stats {
		return Stats{
			Counters:   s.meta.Counters,
			First:      s.meta.First,
			Last:       s.meta.Last,
			Bytes:      s.meta.Bytes - s.meta.TrimmedBytes,
			Receipts:   s.meta.Receipts.Bytes,
			DedupKeys:  s.keys.Len(),
			DedupBytes: s.keys.Bytes(),
			PolicyKeys: s.policies.keys,
			Producers:  s.producers.byUse.Len(),
			Results:    s.producers.bytes,
			Cursors:    len(s.cursors),
			Letters:    v.letterStats(s),
		}
	})
}

// NextDeadline returns the replicated time at which something is due without a
// command: keys, producers, cursors or events that expire. Zero is never.
func (v *views) NextDeadline() time.Time {
	return read(v, func(s *state) time.Time {
		// next is the earliest so far; 0 is none.
		next := int64(0)
		due := func(at int64) {
			if at != math.MaxInt64 && (next == 0 || at < next) {
				next = at
			}
		}
		earlier := func(at int64, after time.Duration) {
			if after > 0 {
				due(at + int64(after))
			}
		}
		// Keys, producers, cursors, letters, clients and claims to roles expire.
		if len(s.window) > 0 {
			earlier(s.window[0].at, s.settings.DedupWindow)
		}
		if oldest, _, some := s.policies.dues.Min(); some {
			due(oldest.rank)
		}
		if p := s.producers.oldest(); p != nil {
			earlier(p.Used, s.settings.ProducerTTL)
		}
		if used, _, some := s.ranks.byUse.Min(); some {
			idle := s.settings.CursorIdle
			// More may be due than one entry removes: then the next one is due at once.
			earlier(max(used.rank+s.meta.Stepped, s.meta.Time-int64(idle)), idle)
		}
		v.lettersDue(s, earlier)
		due(s.clients.due)
		if at, some := s.firstEnd(); some {
			due(s.atLed(at))
		}
		if oldest, _, some := s.schedule.done.Min(); some {
			earlier(oldest.at, s.settings.ProducerTTL)
		}
		s.sharesDue(due)

		// What may have to be reported or removed.
		if s.settings.CursorStall > 0 && s.meta.FeatureLevel >= frame.LevelDelivery && len(s.cursors) > 0 {
			due(max(s.meta.StallDue, 1))
		}
		// Retention is applied at the latest in the next second of replicated time.
		if s.meta.RetentionWaits {
			due((s.meta.Time/retentionGrain + 1) * retentionGrain)
		}
		if at, some := v.retentionDue(s); some {
			earlier(at, s.settings.RetentionAge)
		}
		if next == 0 {
			return time.Time{}
		}
		return time.Unix(0, next).UTC()
	})
}

// retentionDue returns the append time from which the age of the oldest block is
// to be counted. Each entry has tried to trim; what is still there is held by a
// cursor, and is tried again a minute later. The newest block always stays.
func (v *views) retentionDue(s *state) (at int64, some bool) {
	if s.meta.First > s.meta.Last || s.settings.RetentionAge == 0 {
		return 0, false
	}

	// The block is not kept in the state, which readers must not change.
	oldest := s.oldest
	if oldest == nil || oldest.First != s.meta.First {
		var err error
		oldest, err = v.log.Columns(s.meta.First)
		if err != nil {
			return 0, false
		}
	}
	at, some = oldest.AppendedAt.UnixNano(), oldest.Last() < s.meta.Last

	// A block that is overdue is held: the caller adds the age, so this is in a minute.
	if at+int64(s.settings.RetentionAge) <= s.meta.Time {
		at = s.meta.Time + int64(time.Minute-s.settings.RetentionAge)
	}
	return at, some
}

// PlanTrim returns what a trim would do now, and does nothing. An entry that is being applied waits for it, so that
// the plan is of one state.
func (v *views) PlanTrim(t frame.Trim) (TrimResult, error) {
	v.mu.RLock()
	defer v.mu.RUnlock()
	// The planner keeps the oldest block in its state: here in a copy of it.
	s := *v.s
	p := planner{s: &s, log: v.log, now: s.meta.Time, limit: s.meta.Last + 1, notHeld: s.meta.NotHeld}
	plan, err := p.plan(t)
	return plan.TrimResult, err
}

// Position is the entry that a state is at, and what belongs to it: all that Raft, a snapshot and a backup need to
// know of a state.
type Position struct {
	Index              uint64
	Term               uint64
	ConfigurationIndex uint64
	Configuration      []byte // as Raft encodes it
	ClusterID          string
	First, Last        uint64 // offsets
	Time               time.Time
	Digest             Sum
	FeatureLevel       uint32
}

// position is what the meta record and the membership say of the entry.
func (s *state) position() Position {
	return Position{
		Index:              s.meta.Applied,
		Term:               s.meta.Term,
		ConfigurationIndex: s.membership.Index,
		Configuration:      s.membership.Raw,
		ClusterID:          s.meta.ClusterID,
		First:              s.meta.First,
		Last:               s.meta.Last,
		Time:               time.Unix(0, s.meta.Time).UTC(),
		Digest:             s.meta.Digest,
		FeatureLevel:       s.meta.FeatureLevel,
	}
}

// Position returns the newest entry of this machine.
func (v *views) Position() Position { return read(v, (*state).position) }

// VerifyLog reads the key columns of everything retained and requires that they follow each other
// without a hole. Between parts it calls pause, which may wait so that others proceed.
func (v *views) VerifyLog(ctx context.Context, pause func()) error {
	// A state that is replaced waits for its readers: no more blocks than this are read at a time.
	const blocks = 64
	first, last := v.log.Bounds()
	next := first
	var err error
	for more := first <= last; more && err == nil; {
		left := blocks
		more = false
		err = v.log.EachColumns(next, last, func(c *log.Columns) bool {
			next, left = c.Last()+1, left-1
			more = next <= last
			return left > 0
		})
		pause()
		if err == nil {
			err = ctx.Err()
		}
	}
	// Events that were trimmed meanwhile may be missing.
	if now, _ := v.log.Bounds(); err == nil && first <= last && now == first && next != last+1 {
		err = fmt.Errorf("%w: nothing from %d to %d", log.ErrCorrupt, next, last)
	}
	if err != nil {
		return fmt.Errorf("verify: %w", err)
	}
	return nil
}
