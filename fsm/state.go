package fsm

import (
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/ringrift/ringlog/election"
	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/fsm/dedup"
	"github.com/ringrift/ringlog/fsm/store"
	"github.com/ringrift/ringlog/internal/frame"
	"github.com/ringrift/ringlog/internal/kv"
	"github.com/ringrift/ringlog/log"
)

// The first byte of each key; doc.go has what is stored under it. A byte keeps its meaning, also when
// nothing is stored under it any more.
const (
	prefixMeta           = 'm'
	prefixCursor         = 'c'
	prefixPlace          = 'a'
	prefixLoss           = 'z'
	prefixSetting        = 's'
	prefixProducer       = 'p'
	prefixResult         = 'q'
	prefixMember         = 'n'
	prefixType           = 't'
	prefixDigest         = 'd'
	prefixReceipts       = 'r'
	prefixMembership     = 'v'
	prefixHealth         = 'h'
	prefixDesiredVote    = 'w'
	prefixClient         = 'u'
	prefixPressure       = 'x'
	prefixOverdue        = 'o'
	prefixFlow           = 'F'
	prefixLostClient     = 'L'
	prefixUnheard        = 'U'
	prefixRole           = 'R'
	prefixWaiting        = 'Q'
	prefixScheduled      = 'S'
	prefixScheduledEvent = 'V'
	prefixResource       = 'C'
	prefixAllocation     = 'A'
	prefixView           = 'W'
	prefixEmitted        = 'E'
	prefixToken          = 'T'

	prefixLetter      = 'l'
	prefixCopy        = 'e'
	prefixLetterIndex = 'i'

	prefixGroupDone  = 'g'
	prefixGroupRetry = 'y'

	prefixPolicy    = 'f'
	prefixPolicyKey = 'j'

	stateFormat = 1
	digestsKept = 1024
)

// FeatureLevel is the newest feature level this build takes part in.
const FeatureLevel = frame.LevelNewest

// Sum is a state digest.
type Sum [frame.DigestSize]byte

// MarshalText implements encoding.TextMarshaler with lower-case hex.
func (s Sum) MarshalText() ([]byte, error) { return s.AppendText(nil) }

// AppendText implements encoding.TextAppender.
func (s Sum) AppendText(b []byte) ([]byte, error) { return hex.AppendEncode(b, s[:]), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (s *Sum) UnmarshalText(text []byte) error {
	if hex.DecodedLen(len(text)) != len(s) {
		return fmt.Errorf("a digest of %d characters", len(text))
	}
	_, err := hex.Decode(s[:], text)
	return err
}

// String returns the digest in hex.
func (s Sum) String() string { return hex.EncodeToString(s[:]) }

// meta is the part of the state that every entry rewrites. The order of its fields is that of the stored JSON, and
// part of the digest's history: new ones go to the end and are left out while they are zero.
//
// First <= Last+1, WindowStart and ColumnsFrom <= Last+1, Time never falls.
type meta struct {
	Format       int                 `json:"format"`
	Applied      uint64              `json:"applied"`
	Term         uint64              `json:"term"`
	Time         int64               `json:"time_ns"`
	First        uint64              `json:"first"`
	Last         uint64              `json:"last"`
	Bytes        uint64              `json:"bytes"`         // of all blocks ever stored
	TrimmedBytes uint64              `json:"trimmed_bytes"` // of those that are trimmed
	WindowStart  uint64              `json:"dedup_floor"`   // the first offset whose key still counts
	ColumnsFrom  uint64              `json:"columns_from"`  // the first block whose key columns are kept
	MaxWindow    time.Duration       `json:"max_window_ns"` // the longest dedup.window there ever was
	Touch        uint64              `json:"touch"`         // numbers the uses of producers
	ClusterID    string              `json:"cluster_id"`    // empty before the first term start
	FeatureLevel uint32              `json:"feature_level"`
	Leadership   election.Leadership `json:"leadership"`
	LastStep     *ClockStep          `json:"last_clock_step,omitempty"`
	Counters     Counters            `json:"counters"`
	Digest       Sum                 `json:"digest"`
	Letters      letterTotals        `json:"letters,omitzero"`
	Receipts     receiptTotals       `json:"receipts,omitzero"`

	GroupGenerations uint64 `json:"group_generations,omitzero"` // that were given out
	// StallDue is a lower bound of when the next stalled cursor has to be reported; 0 is at once. It is
	// stored, because a machine that loads the state must check cursors in the same entries.
	StallDue int64 `json:"stall_due_ns,omitzero"`
	// Stepped is how far clock steps have moved replicated time, all together.
	Stepped int64 `json:"stepped_ns,omitzero"`
	// NotHeld is how far cursors were found to keep nothing from a trim.
	NotHeld holdMark `json:"not_held,omitzero"`
	// RetentionWaits is set while retention wants a block removed and no entry has tried.
	RetentionWaits bool `json:"retention_waits,omitzero"`
	// TrimReason is why First was raised last.
	TrimReason string `json:"trim_reason,omitzero"`
	// MaxPolicyWindow is the longest window of a dedup policy that there ever was.
	MaxPolicyWindow time.Duration `json:"max_policy_window_ns,omitzero"`
	// Led is the time with a leader so far in which there was what ends by it: claims to roles and allocations, and
	// clients.
	Led int64 `json:"led_ns,omitzero"`
	// Arrivals numbers the requests for allocations, in the order in which they arrived.
	Arrivals uint64 `json:"allocation_arrivals,omitzero"`
	// ViewRevision is the last generation that a view was given.
	ViewRevision uint64 `json:"view_revision,omitzero"`
}

// ClockStep records that replicated time was moved at once.
type ClockStep struct {
	Index  uint64    `json:"index"` // of the entry
	From   time.Time `json:"from"`
	To     time.Time `json:"to"`
	Agreed []string  `json:"agreed"` // the voters whose clocks agreed
}

// Counters count decisions since the log began; they are part of the state, and equal on every node. Figures of one
// node, such as its requests, are not here.
type Counters struct {
	Accepted   uint64 `json:"accepted"`   // events appended for clients
	Suppressed uint64 `json:"suppressed"` // events answered with an earlier offset
	Refused    uint64 `json:"refused"`    // requests refused
	Replayed   uint64 `json:"replayed"`   // requests answered from a producer's results
	Emitted    uint64 `json:"emitted"`    // events of the cluster's own
}

// ConfigMember is a server of the Raft configuration.
type ConfigMember struct {
	ID    string `json:"id"`
	Addr  string `json:"addr"`
	Voter bool   `json:"voter"`
}

// membership is the newest Raft configuration that was applied. Raw is opaque here: it is kept for a snapshot, which
// has to say the configuration in Raft's own form.
type membership struct {
	Index   uint64         `json:"index"`
	Raw     []byte         `json:"raw"`
	Members []ConfigMember `json:"members"`
	// Predecessors are the clusters that this one was recovered from, the oldest first.
	Predecessors []string `json:"predecessors,omitempty"`
}

// predecessorsKept bounds Predecessors: no data folder of an older cluster should still be in use.
const predecessorsKept = 16

// state is everything the machine knows, mirrored in memory from the database. Decisions change it together
// with the transaction that stores the change; an entry that fails leaves it half changed, and stops the node.
type state struct {
	meta meta

	// Settings: those that differ from their defaults, as text, and all of them, as decisions use them.
	changed  map[string]string
	settings Settings

	// Cursors by name, in the orders in which decisions look them up, and what trims took from them.
	cursors map[string]*Cursor
	ranks   cursorRanks
	losses  losses

	producers *producers

	// Members by id, the registered types and flows, and the built-in ones with these.
	members   map[string]frame.Member
	types     map[event.Type]event.Definition
	flows     map[string]event.Flow
	typed     *event.Catalogue // the built-in catalogue with them
	catalogue *event.Catalogue // that with the flows
	stale     stale

	// The voters. rosterPublished is false once members or health have changed, until they are published.
	membership      membership
	health          election.Health
	rosterPublished bool
	desiredVotes    map[string]desiredVote // by member

	letters  letters
	clients  clients
	lost     lostClients
	roles    roles
	schedule schedule
	shares   allocations
	views    map[string]*ViewDefinition
	tokens   *Tokens
	pressure Pressure
	// overdue has the edges of runs that were reported, until when they are remembered, by overdueKey.
	overdue map[string]int64

	// The dedup window: its keys, and its blocks from meta.WindowStart on, oldest first.
	keys   *dedup.Index
	window []windowBlock

	policies policies // of types

	// oldest has the key columns of the first retained block; nil when not looked up. Only decisions set it.
	oldest *log.Columns
}

// windowBlock is a block whose keys are in the dedup index.
type windowBlock struct {
	last uint64 // offset
	keys int    // events that have a key
	at   int64  // append time, Unix nanoseconds
}

// newState returns the state before the first entry.
func newState() *state {
	return &state{
		// Offsets begin at 1: the empty log has First 1 and Last 0.
		meta:         meta{Format: stateFormat, First: 1, WindowStart: 1, ColumnsFrom: 1},
		changed:      map[string]string{},
		settings:     defaultSettings(),
		cursors:      map[string]*Cursor{},
		ranks:        newCursorRanks(),
		losses:       newLosses(nil),
		producers:    newProducers(),
		members:      map[string]frame.Member{},
		types:        map[event.Type]event.Definition{},
		flows:        map[string]event.Flow{},
		desiredVotes: map[string]desiredVote{},
		typed:        event.Builtin(),
		catalogue:    event.Builtin(),
		keys:         dedup.New(),
		policies:     newPolicies(),
		letters:      letters{underWay: map[string][]underWay{}, copies: newRanking[uint64, struct{}]()},
		clients:      newClients(),
		lost:         newLostClients(),
		roles:        newRoles(),
		schedule:     newSchedule(),
		shares:       newAllocations(),
		views:        map[string]*ViewDefinition{},
		tokens:       newTokens(),
		overdue:      map[string]int64{},
	}
}

// loadState reads everything but the dedup keys, which fillWindow reads from the log.
func loadState(db kv.DB) (*state, error) {
	s := newState()
	if err := readJSON(db, []byte{prefixMeta}, &s.meta); err != nil {
		return nil, err
	}
	if s.meta.Format > stateFormat {
		return nil, fmt.Errorf("open the state: format %d, this build knows %d: %w", s.meta.Format, stateFormat,
			ErrNewerFormat)
	}
	// Entries of a newer level would be read as damage, or decided otherwise than at the other nodes.
	if s.meta.FeatureLevel > FeatureLevel {
		return nil, fmt.Errorf("open the state: feature level %d, this build knows %d: use the newer program: %w",
			s.meta.FeatureLevel, FeatureLevel, ErrNewerFormat)
	}

	// Single records. One that is not stored leaves its zero value.
	if err := readJSON(db, []byte{prefixMembership}, &s.membership); err != nil {
		return nil, err
	}
	if err := readJSON(db, []byte{prefixHealth}, &s.health); err != nil {
		return nil, err
	}
	if err := readJSON(db, []byte{prefixPressure}, &s.pressure); err != nil {
		return nil, err
	}

	// Maps whose values stand by themselves, in a fixed order so that an error is the same each time.
	loaders := map[byte]func(key string, value []byte) error{
		prefixSetting:     s.loadSetting,
		prefixProducer:    s.producers.load,
		prefixMember:      s.loadMember,
		prefixType:        s.loadType,
		prefixFlow:        s.loadFlow,
		prefixDesiredVote: s.loadDesiredVote,
		prefixClient:      s.loadClient,
		prefixLostClient:  s.loadLostClient,
		prefixUnheard:     s.loadUnheard,
		prefixOverdue:     s.loadOverdue,
		prefixPolicy:      s.loadPolicy,
		prefixRole:        s.loadRole,
		prefixScheduled:   s.loadScheduled,
		prefixResource:    s.loadResource,
		prefixView:        s.loadView,
		prefixToken:       s.loadToken,
	}
	for _, prefix := range slices.Sorted(maps.Keys(loaders)) {
		if err := scan(db, prefix, loaders[prefix]); err != nil {
			return nil, err
		}
	}

	// What refers to each other: groups need their cursors.
	if err := errors.Join(s.loadCursors(db), s.loadLosses(db)); err != nil {
		return nil, err
	}
	if err := s.loadGroups(db); err != nil {
		return nil, err
	}
	if err := s.loadUnderWay(db); err != nil {
		return nil, err
	}
	// Keys need the policies that have them, claims the roles that they are to, allocations their resources, and what was
	// published of views the views.
	if err := scan(db, prefixPolicyKey, s.loadPolicyKey); err != nil {
		return nil, err
	}
	if err := scan(db, prefixWaiting, s.loadWaiting); err != nil {
		return nil, err
	}
	if err := scan(db, prefixAllocation, s.loadAllocation); err != nil {
		return nil, err
	}
	if err := scan(db, prefixEmitted, s.loadEmitted); err != nil {
		return nil, err
	}

	// What is computed from what was read.
	s.producers.order()
	s.rankPolicies()
	s.stale = stale{types: true, flows: true, policies: true}
	s.compile()
	return s, nil
}

// loadSetting reads a setting that was changed.
func (s *state) loadSetting(key string, value []byte) error {
	s.changed[key] = string(value)
	return s.settings.set(key, string(value))
}

// loadMember takes the id from the key.
func (s *state) loadMember(id string, value []byte) error {
	var m frame.Member
	if err := json.Unmarshal(value, &m); err != nil {
		return err
	}
	m.ID = id
	s.members[id] = m
	return nil
}

// fillWindow rebuilds the dedup index from the key columns of the window alone.
func (s *state) fillWindow(l *log.Log) error {
	return l.EachColumns(s.meta.WindowStart, s.meta.Last, func(c *log.Columns) bool {
		before, offset := s.keys.Len(), c.First
		for row := range c.Len() {
			// A suppressed record has no offset.
			if c.Suppressed.Has(row) {
				continue
			}
			if c.Keyed(row) {
				s.keys.Insert(c.KeyAt(row), offset)
			}
			offset++
		}
		// Blocks without keys are in the window as well: WindowStart is the end of one.
		s.window = append(s.window, windowBlock{c.Last(), s.keys.Len() - before, c.AppendedAt.UnixNano()})
		return true
	})
}

// checkEnds checks that the log has the blocks at both of its ends: a database that lost files
// has lost the oldest ones or the newest.
func (s *state) checkEnds(l *log.Log) error {
	if s.meta.First > s.meta.Last {
		return nil
	}

	// Events and key columns are stored apart: both have to be there.
	for _, offset := range []uint64{s.meta.First, s.meta.Last} {
		c, err := l.Columns(offset)
		if err == nil {
			_, err = l.Get(offset)
		}

		// Trims remove whole blocks: the first one begins at First, and the last one ends at Last.
		cutBefore := err == nil && offset == s.meta.First && c.First != offset
		cutAfter := err == nil && offset == s.meta.Last && c.Last() != offset
		if cutBefore || cutAfter {
			err = fmt.Errorf("%w: the block of %d holds %d to %d", log.ErrCorrupt, offset, c.First, c.Last())
		}
		if err != nil {
			return fmt.Errorf("open the state: %w: the log from %d to %d is not whole: %w; %s",
				ErrDamaged, s.meta.First, s.meta.Last, err, store.Remedy)
		}
	}
	return nil
}

// key is the key of what has a name.
func key(prefix byte, name string) []byte { return append([]byte{prefix}, name...) }

// indexKey is the key of what has a number, in its order.
func indexKey(prefix byte, index uint64) []byte {
	return binary.BigEndian.AppendUint64([]byte{prefix}, index)
}
