package engine

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/fsm"
	"github.com/ringrift/ringlog/internal/frame"
	"github.com/ringrift/ringlog/internal/kv"
	"github.com/ringrift/ringlog/internal/view"
	"github.com/ringrift/ringlog/log"
)

// folded is one generation of a view on this node. The engine's mu guards it, unless said otherwise; only run changes
// at, rows and what follows from them.
//
// storedAt <= at, durable <= at.
type folded struct {
	generation uint64             // of its definition; it never changes
	def        fsm.ViewDefinition // the newest, whose Emitted rises

	fold    view.Fold // nil if this build cannot compile it
	matcher event.Matcher
	version uint64  // of the fold
	rows    written // only run uses them, and most
	most    int     // how many events the next chunk may have

	at       uint64          // the offset up to which all events are folded
	from     uint64          // the first offset that was folded
	count    int64           // of rows of keys
	digest   uint64          // of all rows
	digests  []Digest        // at the offsets that digestEvery divides, the latest last
	storedAt uint64          // what the database has of at
	durable  uint64          // what the disk has of it
	firings  int             // that are stored, and not published yet
	failed   string          // why it is not folded any further
	watches  map[*Watch]bool // the readers of its changes
}

// meta is what is stored of a view. It is written in the batch of the rows that it describes, so it is true for them
// after any crash.
type meta struct {
	Name    string `json:"name"`
	Version uint64 `json:"version"` // of the fold
	From    uint64 `json:"from"`    // as in folded, and so are the others
	At      uint64 `json:"at"`
	Rows    int64  `json:"rows"`
	Digest  uint64 `json:"digest"`
}

// storeMeta writes what is known of a view into a batch. The caller holds mu.
func (f *folded) storeMeta(b kv.Batch) error {
	value, err := json.Marshal(meta{f.def.Name, f.version, f.from, f.at, f.count, f.digest})
	if err != nil {
		return err
	}
	return b.Set(keyOf(prefixMeta, f.generation), value)
}

// load returns a view as it is stored, or one that begins. A view that cannot be compiled is live, but failed: readers
// get the reason and BeforeTrim does not wait for it.
func (e *Engine) load(d fsm.ViewDefinition) (*folded, error) {
	f := &folded{generation: d.Generation, def: d, from: d.Since, at: d.Since - 1, version: e.opts.Version,
		watches: map[*Watch]bool{}}
	f.rows.generation, f.most = d.Generation, chunkEvents
	// A built-in view is compiled already and has a version of its own.
	var err error
	if d.Generation >= firstBuiltIn {
		b := e.opts.BuiltIn[d.Generation-firstBuiltIn]
		f.fold, f.version = b.Fold, b.Version
	} else {
		f.fold, err = e.opts.Compile(d.Declaration)
	}
	if err != nil {
		// Another build has checked it. The others are folded.
		e.opts.Logger.Error("a view cannot be folded", "view", d.Name, "error", err)
		f.fold, f.failed = nil, err.Error()
		return f, nil
	}
	f.rows.isRow = func(key string) bool { _, ok := f.fold.KeyOf(key); return ok }
	// The catalogue is the build's: with the registered types a rebuild would pass other events than the first fold.
	f.matcher = f.fold.Filter().Compile(event.Builtin())
	err = e.view(func(db kv.DB) error {
		known, found, err := readMeta(db, d.Generation)
		if err != nil {
			return err
		}
		// Rows of another version of the fold are not what this one would have made of the events.
		if !found || known.Version != f.version {
			return e.restart(db, f, d.Since)
		}
		// It resumes. durable stays 0 until a sync, though all that was read is in the database: a killed process may
		// have left it unsynced.
		f.from, f.at, f.storedAt, f.count, f.digest = known.From, known.At, known.At, known.Rows, known.Digest
		f.firings, err = countFirings(db, d.Generation)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("view %q: %w", d.Name, err)
	}
	return f, nil
}

// readMeta returns what is stored of a view. found is false if nothing is stored.
func readMeta(r kv.Reader, generation uint64) (m meta, found bool, err error) {
	value, closer, err := r.Get(keyOf(prefixMeta, generation))
	if errors.Is(err, kv.ErrNotFound) {
		return m, false, nil
	}
	if err != nil {
		return m, false, err
	}
	defer closer.Close()
	return m, true, json.Unmarshal(value, &m)
}

// restart removes what is stored of a view, which is folded from an offset on. Nothing that was on the disk of it
// counts any more, so durable falls, too.
func (e *Engine) restart(db kv.DB, f *folded, from uint64) error {
	batch := db.NewBatch()
	defer batch.Close()
	var err error
	for _, prefix := range []byte{prefixRow, prefixFiring} {
		low, high := span(prefix, f.generation)
		err = errors.Join(err, batch.DeleteRange(low, high))
	}
	// Rows in memory would be taken for stored ones.
	f.rows.abandon()
	e.mu.Lock()
	defer e.mu.Unlock()
	f.from, f.at, f.storedAt, f.durable = from, from-1, from-1, from-1
	f.count, f.firings, f.digest, f.digests = 0, 0, 0, nil
	// The offset and the removal are one batch: a crash leaves all rows or none.
	if err = errors.Join(err, f.storeMeta(batch)); err != nil {
		return err
	}
	return batch.Commit(kv.NoSync)
}

// Bounds of what is folded at a time.
const (
	chunkEvents = 1000   // that match, read at once
	mostEvents  = 32_000 // where their rows fit into memory
	manyRows    = 100    // of a chunk that are read from the database; those of the next are read ahead
	// storeEvery is how many events without a match are passed until that is stored.
	storeEvery = 10_000
)

// step folds some events of a view, up to last, and reports whether there may be more. An error is one of the log or
// the database. That of a fold ends the view alone, see fail.
func (e *Engine) step(f *folded, last uint64) (more bool, err error) {
	// run alone changes at and failed, so they are read without mu.
	if f.failed != "" || f.at >= last {
		return false, nil
	}
	chunk, err := e.source.Log().Read(f.at+1, &f.matcher, f.most)
	if err != nil {
		return false, err
	}
	// Events are gone that were not folded: the state is another node's, or the store has lost its end.
	if gap := chunk.Gap; gap != nil {
		return true, e.skip(f, gap)
	}
	return true, e.view(func(db kv.DB) error { return e.apply(db, f, chunk) })
}

// skip folds a view again, from the first offset that there is.
func (e *Engine) skip(f *folded, gap *log.Gap) error {
	e.opts.Logger.Warn("a view is folded again, from a later offset: events before it are gone",
		"view", f.def.Name, "from", gap.To+1)
	return e.view(func(db kv.DB) error { return e.restart(db, f, gap.To+1) })
}

// pass moves a view past events that it does not read, and returns false if that is to be stored. It saves a write for
// each entry that is of no interest to the view. After a crash the view reads these events again.
func (e *Engine) pass(f *folded, at uint64) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if at >= f.storedAt+storeEvery {
		return false
	}
	f.noteDigests(at, f.digest)
	f.at = at
	e.announce()
	return true
}

// Nodes that have folded different rows have different digests of them. Nodes fold in chunks that end at any offsets,
// so each keeps the digests at those that digestEvery divides.
const (
	digestEvery = 1000
	digestsKept = 64
)

// Digest is that of all rows of a view, as of an offset.
type Digest struct {
	Offset uint64
	Sum    uint64
}

// noteDigests notes a digest for the offsets after the last noted one, up to an offset. The caller holds mu. Nothing
// has changed the rows since the last noted one, so all of these offsets have the same sum.
func (f *folded) noteDigests(upTo, sum uint64) {
	// Where it begins: after the last that is noted, or, if none is, after where the view is.
	next := f.at / digestEvery
	if n := len(f.digests); n > 0 {
		next = f.digests[n-1].Offset / digestEvery
	}
	last := upTo / digestEvery
	// A view that has moved far notes only as many as are kept.
	for next = max(next+1, last-min(last, digestsKept)+1); next <= last; next++ {
		f.digests = append(f.digests, Digest{next * digestEvery, sum})
	}
	f.digests = slices.Delete(f.digests, 0, max(0, len(f.digests)-digestsKept))
}

// apply folds a chunk of events and stores the rows, what rules publish, and the offset as one.
func (e *Engine) apply(db kv.DB, f *folded, chunk log.Chunk) (err error) {
	at := chunk.Next - 1
	// Most chunks of most views have no event.
	if len(chunk.Events) == 0 && e.pass(f, at) {
		return nil
	}
	ahead := f.rows.missed >= manyRows
	// The batch has to be closed whatever happens. A committed one is closed as well.
	f.rows.begin(db)
	defer func() { err = errors.Join(err, f.rows.end()) }()
	// The last chunk had many rows read, so this one has as well.
	if ahead {
		keys := make([]string, len(chunk.Events))
		for i := range chunk.Events {
			keys[i] = f.fold.RowOf(&chunk.Events[i])
		}
		if err := f.rows.readAhead(db, keys); err != nil {
			return err
		}
	}
	// Between the end of the last chunk and the first event nothing changes.
	f.rows.offset = f.at
	firings := 0
	var noted []Digest // of what this chunk adds, before events that follow an offset that digestEvery divides
	// Rows stay in memory until flush, but a fold that lists rows has them written into the batch before.
	for i := range chunk.Events {
		ev := &chunk.Events[i]
		// The next such offset may be that of the event before.
		before, next := ev.Offset-1, (f.rows.offset+digestEvery-1)/digestEvery*digestEvery
		if next <= before {
			noted = append(noted, Digest{before, f.rows.digest})
		}
		f.rows.offset = ev.Offset
		fired, err := f.fold.Apply(&f.rows, ev)
		if err != nil {
			return e.fail(f, ev.Offset, err)
		}
		// Rules report nothing of before the view was defined, nor what was published already.
		if ev.Offset <= f.def.Emitted {
			continue
		}
		for n := range fired {
			copied, err := copyOf(fired[n])
			if err != nil {
				return e.fail(f, ev.Offset, fmt.Errorf("rule %q: %w", fired[n].Rule, err))
			}
			// Under the offset and its number, so they are published in the order of the log.
			key := binary.BigEndian.AppendUint32(firingKey(f.generation, ev.Offset), uint32(n))
			if err := f.rows.batch.Set(key, copied); err != nil {
				return err
			}
		}
		firings += len(fired)
	}
	if len(chunk.Events) >= f.most {
		f.most = f.rows.fit(len(chunk.Events))
	}
	if err := f.rows.flush(); err != nil {
		return err
	}
	return e.commit(f, at, firings, noted)
}

// commit stores a chunk. Readers see it as a whole. The caller has flushed the rows. noted has digests of what the
// chunk had added by then, and the last one is that of its end.
func (e *Engine) commit(f *folded, at uint64, firings int, noted []Digest) error {
	// Under mu until the batch is committed: a snapshot taken meanwhile would not be at f.at.
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, d := range noted {
		f.noteDigests(d.Offset, f.digest+d.Sum)
	}
	// The digest is a sum, so what the chunk adds is enough.
	f.digest += f.rows.digest
	f.noteDigests(at, f.digest)
	f.at, f.count, f.firings = at, f.count+f.rows.rows, f.firings+firings
	if err := f.storeMeta(f.rows.batch); err != nil {
		return err
	}
	if err := f.rows.batch.Commit(kv.NoSync); err != nil {
		return err
	}
	// Readers learn of it once it can be read.
	f.storedAt = at
	for w := range f.watches {
		w.add(f.rows.touched)
	}
	e.announce()
	if firings > 0 {
		select {
		case e.fired <- struct{}{}:
		default: // the one before was not received yet
		}
	}
	return nil
}

// fail stops folding a view. What it has folded of the chunk is not stored. It returns nil: the other views continue. A
// restart of the node tries again.
func (e *Engine) fail(f *folded, offset uint64, err error) error {
	f.rows.abandon()
	e.mu.Lock()
	defer e.mu.Unlock()
	f.failed = fmt.Sprintf("fold the event at %d: %v", offset, err)
	e.opts.Logger.Error("a view is not folded any further", "view", f.def.Name, "offset", offset, "error", err)
	e.announce()
	return nil
}

// copyOf returns what is stored of an event that a rule publishes. The payload is made canonical here, so that an event
// that the log would refuse stops the view and not its publisher.
func copyOf(fired view.Firing) ([]byte, error) {
	ev := fired.Event
	var err error
	ev.Payload, err = event.Canonicalize(ev.Payload, event.DefaultLimits())
	return frame.EncodeCopy(&ev), err
}

// countFirings returns how many firings of a view are stored. The number is not stored: it is counted when the view is
// loaded, and kept up to date from there.
func countFirings(r kv.Reader, generation uint64) (n int, err error) {
	low, high := span(prefixFiring, generation)
	it, err := r.Iter(low, high)
	if err != nil {
		return 0, err
	}
	defer it.Close()
	for ok := it.First(); ok; ok = it.Next() {
		n++
	}
	return n, it.Error()
}

// dropEmitted removes the firings of the offsets up to emitted, which are published. run calls it when the definitions
// have changed, as they do when the state records what was published.
func (e *Engine) dropEmitted(f *folded, emitted uint64) error {
	// Most calls are for views that publish nothing.
	if f.firings == 0 {
		return nil
	}
	return e.view(func(db kv.DB) error {
		low, high := keyOf(prefixFiring, f.generation), firingKey(f.generation, emitted+1)
		batch := db.NewBatch()
		defer batch.Close()
		it, err := db.Iter(low, high)
		if err != nil {
			return err
		}
		defer it.Close()
		// One by one, as they have to be counted.
		dropped := 0
		for ok := it.First(); ok; ok = it.Next() {
			if err := batch.Delete(it.Key()); err != nil {
				return err
			}
			dropped++
		}
		if err := it.Error(); err != nil || dropped == 0 {
			return err
		}
		e.mu.Lock()
		defer e.mu.Unlock()
		// Both under mu, so Status never has a number that is not stored.
		f.firings -= dropped
		return batch.Commit(kv.NoSync)
	})
}

// removeOthers removes what is stored of generations that are not live. They were removed or replaced, here or before a
// restart.
func (e *Engine) removeOthers(live []*folded) error {
	return e.view(func(db kv.DB) error {
		known := map[uint64]bool{}
		for _, f := range live {
			known[f.generation] = true
		}
		// Each view that has anything stored has a meta.
		it, err := db.Iter([]byte{prefixMeta}, []byte{prefixMeta + 1})
		if err != nil {
			return err
		}
		defer it.Close()
		batch := db.NewBatch()
		defer batch.Close()
		for ok := it.First(); ok; ok = it.Next() {
			generation := binary.BigEndian.Uint64(it.Key()[1:])
			if known[generation] {
				continue
			}
			for _, prefix := range []byte{prefixRow, prefixFiring, prefixMeta} {
				low, high := span(prefix, generation)
				if err := batch.DeleteRange(low, high); err != nil {
					return err
				}
			}
		}
		if err := it.Error(); err != nil || batch.Empty() {
			return err
		}
		return batch.Commit(kv.NoSync)
	})
}
