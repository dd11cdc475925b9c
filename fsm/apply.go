package fsm

import (
	"fmt"
	"slices"
	"time"

	"github.com/ringrift/ringlog/election"
	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/internal/frame"
	"github.com/ringrift/ringlog/internal/kv"
	"github.com/ringrift/ringlog/log"
)

// applying is the entry that is being decided, and what every part of its decision may read, change and
// append. What it changes goes into the state in memory and into the transaction alike.
type applying struct {
	s       *state
	tx      *tx           // what is written becomes part of the digest
	db      kv.DB         // as it was before this entry, to be read
	log     *log.Log      // the same, by offset
	columns *columnsCache // of log

	frame *frame.Frame // nil for a configuration
	index uint64
	term  uint64
	began int64 // replicated time of the entry before, Unix nanoseconds
	now   int64 // replicated time

	beforeTrim func(first uint64) error // see Options
	firstNew   uint64                   // the first offset that is not in the database before this entry
	accepted   []int                    // rows of the records of the clients' block that are appended, by offset - base
	late       []event.Event            // the cluster's own, to be appended after the clients' block
	fenceds    []fencedEvent            // of late, in their order
	answers    []Result                 // one for each command that was decided
}

// applier decides one entry. Each part has what it alone changes while it decides; a part that
// needs another one names it.
type applier struct {
	applying
	publishApplier
	producerApplier
	cursorApplier
	stallApplier
	groupApplier
	letterApplier
	trimApplier
	lossApplier
	memberApplier
	clientApplier
	roleApplier
	scheduleApplier
	viewApplier
	tokenApplier
	allocationApplier
}

// newApplier returns an applier whose parts know the entry and each other.
func newApplier(e applying) *applier {
	a := &applier{applying: e}
	// One applying for all, so that each part sees what the others have changed.
	shared := &a.applying
	a.publishApplier = publishApplier{applying: shared, producers: &a.producerApplier, schedule: &a.scheduleApplier,
		views: &a.viewApplier}
	a.scheduleApplier = scheduleApplier{shared}
	a.viewApplier = viewApplier{applying: shared}
	a.tokenApplier = tokenApplier{applying: shared}
	a.roleApplier = roleApplier{applying: shared}
	a.allocationApplier = allocationApplier{applying: shared, steps: claimsAtOnce}
	a.producerApplier = producerApplier{applying: shared, results: map[string][]byte{}}
	a.cursorApplier = cursorApplier{
		applying: shared,
		stalls:   &a.stallApplier,
		groups:   &a.groupApplier,
		letters:  &a.letterApplier,
	}
	a.stallApplier = stallApplier{applying: shared, cursors: &a.cursorApplier}
	a.groupApplier = groupApplier{applying: shared, cursors: &a.cursorApplier, letters: &a.letterApplier}
	a.letterApplier = letterApplier{applying: shared, cursors: &a.cursorApplier}
	a.trimApplier = trimApplier{applying: shared, letters: &a.letterApplier, losses: &a.lossApplier}
	a.lossApplier = lossApplier{applying: shared}
	a.memberApplier = memberApplier{shared}
	a.clientApplier = clientApplier{shared}
	return a
}

// decideFrame decides what the entry's frame asks for. Every build has to keep
// this order: the time, what expires by it, the term, the commands.
func (a *applier) decideFrame() error {
	m := &a.s.meta
	// Time never falls, whichever leader's clock the frame has.
	a.now = max(m.Time, a.frame.Time.UnixNano())
	m.Time = a.now
	a.countLed()
	a.stepBeforeTermStart()
	a.tx.digestNumber(uint64(a.frame.CRC))

	// What is due by the new time is done before any command sees the state.
	a.expireWindow()
	a.expirePolicyKeys()
	a.expireProducers()
	if err := a.ageLetters(); err != nil {
		return err
	}
	a.expireCursors()
	a.expireClients()
	a.expireClaims()
	a.forgetPublished()
	a.expireAllocations()
	if err := a.observeLeader(); err != nil {
		return err
	}
	if err := a.decideCommands(); err != nil {
		return err
	}

	// Store the clients' block first: its offsets were given out by the commands. Redrives append blocks of
	// their own after it.
	a.storeBlock()
	a.reportStored()
	if err := a.redriveAll(); err != nil {
		return err
	}
	return a.reportStalls()
}

// complete appends the events that the entry's decisions emit, and does what every
// entry ends with. It leaves the state at the entry's index.
func (a *applier) complete() error {
	// The events in late get their offsets next, so the fences in them are known.
	a.writeFences()
	a.storeRoles()
	a.storeAllocations()
	if err := a.appendEvents(a.late); err != nil {
		return err
	}

	// The entry has appended events: a cursor that does not move from now on may stall.
	if a.s.meta.Last >= a.firstNew {
		a.watchStalls()
	}
	if err := a.applyTrims(); err != nil {
		return err
	}
	// After the trims: a view that is defined here begins with the first event that is left.
	a.storeViews()
	a.s.compile()
	return a.tx.finish(&a.s.meta)
}

// decideCommands decides the commands in order, each on what the ones before have left.
func (a *applier) decideCommands() error {
	a.base = a.s.meta.Last + 1

	// The records of the block are decided by the publish commands, in order.
	if a.frame.Header != nil {
		a.suppressed = log.NewBitmap(a.frame.Header.Rows)
	}
	for i, c := range a.frame.Commands {
		// Names and texts are checked for all kinds at one place.
		var r Result
		var err error
		if slices.Contains(a.frame.NotUTF8, i) {
			r = a.refuseText(c)
		} else {
			r, err = a.decideActed(c)
		}
		if err != nil {
			return err
		}
		if r.Refusal != nil {
			a.s.meta.Counters.Refused++
		}
		// The time is read after the decision: a ClockStep moves it.
		r.Index, r.Time = a.index, time.Unix(0, a.now).UTC()
		a.answers = append(a.answers, r)
	}
	return nil
}

// refuseText refuses a command with a string that is not UTF-8. Most values are stored as JSON, which
// would give it back as another: a node that was restarted would have other names than one that runs.
func (a *applier) refuseText(c frame.Command) Result {
	// Its records are decided like those of any refused request: the next command begins after them.
	if p, ok := c.(frame.Publish); ok {
		a.suppressRows(a.row, a.row+p.Count)
		a.row += p.Count
	}
	return refuse(Invalid, "command", "a name or a text that is not UTF-8", "send UTF-8")
}

// observeLeader appends the events of a new term before anything else of it.
func (a *memberApplier) observeLeader() error {
	entry := election.Entry{
		Term:     a.term,
		Proposer: a.frame.Proposer,
		Time:     a.time(),
		Detailed: a.knowsHealth(),
		Counted:  a.knowsDelivery(),
	}

	// A term start in this entry says what its sender saw.
	for _, c := range a.frame.Commands {
		if start, ok := c.(frame.TermStart); ok {
			entry.Cause, entry.Silence = start.Cause, start.Silence
			entry.Seen = append(entry.Seen, start.Seen...)
		}
	}

	// The state follows the term; the events report the change.
	before := a.s.meta.Leadership.Span(entry)
	events := a.s.meta.Leadership.Observe(entry)
	if a.s.meta.Leadership.Term != before.Term {
		events = append(events, a.newTerm(before)...)
	}
	return a.appendEvents(events)
}

// appendEvents appends events of the cluster's own as a block without dedup keys.
func (a *applying) appendEvents(events []event.Event) error {
	if len(events) == 0 {
		return nil
	}
	// The block is equal on every node: it is neither compressed nor does it depend on the build.
	var batch frame.Batch
	for i := range events {
		e := &events[i]
		// As those of clients, payloads are stored in canonical form.
		payload, err := event.Canonicalize(e.Payload, event.DefaultLimits())
		if err != nil {
			return fmt.Errorf("apply %d: own event %s: %w", a.index, e.Type, err)
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

// storeBlock appends the clients' block, if any of its events was accepted, and the
// receipts for those that were suppressed.
func (a *publishApplier) storeBlock() {
	if live := len(a.accepted); live > 0 {
		// Most blocks have no suppressed record, and are stored without a bitmap.
		suppressed := a.suppressed
		if live == a.frame.Header.Rows {
			suppressed = nil
		}
		a.appendBlock(a.frame.Block, suppressed, live, a.keyed)
	}
	a.storePolicyKeys()
	// They are stored: tail counts them by meta.Last from here on.
	a.accepted = nil
	a.storeReceipts()
}

// appendBlock stores a block at the end of the log and enters it into the dedup window. live of its
// records get offsets; keys is how many of these the dedup index has.
func (a *applying) appendBlock(events frame.Block, suppressed log.Bitmap, live, keys int) {
	m := &a.s.meta
	b := &log.Block{
		Block:      events,
		First:      m.Last + 1,
		Index:      a.index,
		Term:       a.term,
		AppendedAt: time.Unix(0, a.now),
		Suppressed: suppressed,
		Live:       live,
	}
	// m.Last and the window follow the log: whoever looks at offsets in this entry sees the block.
	m.Bytes += log.Append(a.tx, b, m.Bytes)
	m.Last = b.Last()
	a.s.window = append(a.s.window, windowBlock{m.Last, keys, a.now})
}
