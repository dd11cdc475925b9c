package fsm

import (
	"fmt"
	"slices"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/ringrift/ringlog/election"
	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/internal/frame"
	"github.com/ringrift/ringlog/log"
)

// applier decides one entry: what it changes goes into the state in memory and
// into the transaction alike.
type applier struct {
	s     *state
	tx    *tx
	db    *pebble.DB
	log   *log.Log
	frame *frame.Frame
	index uint64
	term  uint64
	began int64 // replicated time of the entry before, Unix nanoseconds
	now   int64 // replicated time

	results map[string][]byte // of producers, written by this entry
	columns *columnsCache

	stored uint64 // the first offset that is not in the database before this entry

	// The block of clients' events: its rows are decided in order.
	row      int        // the next row to decide
	base     uint64     // offset of the block's first live event
	accepted []int      // rows that live, by offset - base
	keyed    int        // how many of them have a dedup key
	dead     log.Bitmap // rows that do not
	receipts receipts

	late  []event.Event // the cluster's own, to be appended behind the clients' block
	trims []trimRequest

	woken []string // cursors that were stalled and have moved
	moved []string // cursors whose commit has moved, or that are gone

	changed  changedLetters
	redrives []redriveRequest

	opened  int // blocks, to say what gaps held
	answers []Result
}

// decideFrame decides what the entry's frame asks for.
func (a *applier) decideFrame() error {
	m := &a.s.meta
	a.now = max(m.Time, a.frame.Time.UnixNano())
	m.Time = a.now
	a.stepWithHello()
	a.tx.number(uint64(a.frame.CRC))
	a.expireWindow()
	a.expireProducers()
	if err := a.ageLetters(); err != nil {
		return err
	}
	a.expireCursors()
	a.expireClients()
	if err := a.observeLeader(); err != nil {
		return err
	}
	if err := a.decideCommands(); err != nil {
		return err
	}
	a.storeBlock()
	if err := a.redriveAll(); err != nil {
		return err
	}
	return a.tellStalls()
}

// complete appends what the entry's decisions have to report, and does what every
// entry ends with. It leaves the state at the entry's index.
func (a *applier) complete() error {
	if err := a.emit(a.late); err != nil {
		return err
	}
	if a.s.meta.Last >= a.stored {
		a.watchStalls()
	}
	if err := a.trim(); err != nil {
		return err
	}
	return a.tx.finish(&a.s.meta)
}

func (a *applier) decideCommands() error {
	a.base = a.s.meta.Last + 1
	if a.frame.Header != nil {
		a.dead = log.NewBitmap(a.frame.Header.Rows)
	}
	for i, c := range a.frame.Commands {
		var r Result
		var err error
		if slices.Contains(a.frame.NotUTF8, i) {
			r = a.refuseText(c)
		} else {
			r, err = a.decide(c)
		}
		if err != nil {
			return err
		}
		if r.Refusal != nil {
			a.s.meta.Counters.Refused++
		}
		r.Index, r.Time = a.index, time.Unix(0, a.now).UTC()
		a.answers = append(a.answers, r)
	}
	return nil
}

// refuseText refuses a command with a string that is not UTF-8. Most values are stored as JSON, which
// would give it back as another: a node that was restarted would have other names than one that runs.
func (a *applier) refuseText(c frame.Command) Result {
	if p, ok := c.(frame.Publish); ok {
		a.bury(a.row, a.row+p.Count)
		a.row += p.Count
	}
	return refuse(Invalid, "command", "a name or a text that is not UTF-8", "send UTF-8")
}

// observeLeader appends the events of a new term before anything else of it.
func (a *applier) observeLeader() error {
	entry := election.Entry{Term: a.term, Proposer: a.frame.Proposer, Time: a.time(), Detailed: a.tellsHealth(),
		Counted: a.s.meta.FeatureLevel >= frame.LevelDelivery}
	for _, c := range a.frame.Commands {
		if hello, ok := c.(frame.Hello); ok {
			entry.Cause, entry.Silence = hello.Cause, hello.Silence
			entry.Seen = append(entry.Seen, hello.Seen...)
		}
	}
	before := a.s.meta.Leadership.Span(entry)
	events := a.s.meta.Leadership.Observe(entry)
	if a.s.meta.Leadership.Term != before.Term {
		events = append(events, a.newTerm(before)...)
	}
	return a.emit(events)
}

// emit appends events of the cluster's own as a block that no dedup key guards.
func (a *applier) emit(events []event.Event) error {
	if len(events) == 0 {
		return nil
	}
	var batch frame.Batch
	for i := range events {
		e := &events[i]
		payload, err := event.Canonicalize(e.Payload, event.DefaultLimits())
		if err != nil {
			return fmt.Errorf("fsm: apply %d: own event %s: %w", a.index, e.Type, err)
		}
		e.Payload, e.Source, e.NoDedup = payload, EmittedBy, true
		batch.Add(e, e.Hash())
	}
	a.appendBlock(frame.EncodeBlock(&batch), nil, len(events), 0)
	a.s.meta.Counters.Emitted += uint64(len(events))
	return nil
}

// EmittedBy is the source of the events that the cluster itself appends.
const EmittedBy = "ringlog"

// storeBlock appends the clients' block, if any of its events lives, and the
// receipts for those that were suppressed.
func (a *applier) storeBlock() {
	if live := len(a.accepted); live > 0 {
		dead := a.dead
		if live == a.frame.Header.Rows {
			dead = nil
		}
		a.appendBlock(a.frame.Block, dead, live, a.keyed)
	}
	a.accepted = nil // the tail counts them as stored from here on
	a.storeReceipts()
}

func (a *applier) appendBlock(events frame.Block, dead log.Bitmap, live, keys int) {
	m := &a.s.meta
	b := &log.Block{Block: events, First: m.Last + 1, Index: a.index, Term: a.term, AppendedAt: time.Unix(0, a.now),
		Dead: dead, Live: live}
	m.Bytes += log.Append(a.tx, b, m.Bytes)
	m.Last = b.Last()
	a.s.window = append(a.s.window, windowBlock{m.Last, keys, a.now})
}
