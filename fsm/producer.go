package fsm

import (
	"cmp"
	"container/list"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"slices"

	"github.com/ringrift/ringlog/internal/frame"
)

// resultsKept is how many of a producer's results a retry can still ask for.
const resultsKept = 64

// producer is a sender whose retries are answered from its last results.
type producer struct {
	ID    string `json:"id"`
	Last  uint64 `json:"last"`            // newest sequence decided
	Used  int64  `json:"used"`            // replicated time of the newest request
	Touch uint64 `json:"touch"`           // orders producers by use, across restarts
	Large uint64 `json:"large,omitempty"` // bit by slot: the result is larger than smallResult
	Bytes uint64 `json:"bytes,omitempty"` // of the large results

	large *list.Element // in producers.large, nil while Large is 0
}

// smallResult is the size up to which a result does not count for producer.max_bytes: producer.max
// bounds those.
const smallResult = 64

// producers are kept in the order of their use, so that the next ones to forget come first.
type producers struct {
	byID  map[string]*list.Element
	byUse *list.List // of *producer, longest unused first
	large *list.List // those of them that have large results, in the same order
	bytes uint64     // of all large results
}

// newProducers returns the list of no producers.
func newProducers() *producers {
	return &producers{byID: map[string]*list.Element{}, byUse: list.New(), large: list.New()}
}

// load takes the id from the key, since JSON cannot represent every id.
func (p *producers) load(id string, value []byte) error {
	one := &producer{}
	if err := json.Unmarshal(value, one); err != nil {
		return err
	}
	one.ID = id
	p.byID[id] = p.byUse.PushBack(one)
	return nil
}

// order puts loaded producers into the order of their use.
func (p *producers) order() {
	// They were loaded by id; Touch has the order of their use.
	all := make([]*producer, 0, p.byUse.Len())
	for e := p.byUse.Front(); e != nil; e = e.Next() {
		all = append(all, e.Value.(*producer))
	}
	slices.SortFunc(all, func(a, b *producer) int { return cmp.Compare(a.Touch, b.Touch) })

	// Fill both lists again in that order.
	p.byUse.Init()
	for _, one := range all {
		p.byID[one.ID] = p.byUse.PushBack(one)
		p.bytes += one.Bytes
		p.place(one)
	}
}

// place keeps a producer that was just used in its lists.
func (p *producers) place(one *producer) {
	p.byUse.MoveToBack(p.byID[one.ID])
	// The list of those with large results is in the same order.
	switch {
	case one.Large == 0 && one.large != nil:
		p.large.Remove(one.large)
		one.large = nil
	case one.Large != 0 && one.large == nil:
		one.large = p.large.PushBack(one)
	case one.large != nil:
		p.large.MoveToBack(one.large)
	}
}

// get returns a producer, nil for an unknown id.
func (p *producers) get(id string) *producer {
	if e := p.byID[id]; e != nil {
		return e.Value.(*producer)
	}
	return nil
}

// use returns a producer, and adds one for an unknown id. The caller calls place afterwards.
func (p *producers) use(id string) *producer {
	e := p.byID[id]
	if e == nil {
		e = p.byUse.PushBack(&producer{ID: id})
		p.byID[id] = e
	}
	return e.Value.(*producer)
}

// firstProducer returns the first producer of a list, nil if it is empty.
func firstProducer(l *list.List) *producer {
	if e := l.Front(); e != nil {
		return e.Value.(*producer)
	}
	return nil
}

// oldest returns the producer that was used longest ago, nil if there is none.
func (p *producers) oldest() *producer { return firstProducer(p.byUse) }

// forget removes a producer from the lists. The caller deletes what is stored of it.
func (p *producers) forget(one *producer) {
	p.byUse.Remove(p.byID[one.ID])
	delete(p.byID, one.ID)
	p.bytes -= one.Bytes
	if one.large != nil {
		p.large.Remove(one.large)
	}
}

// resultKey is the key of the slot that a sequence has; the one resultsKept later takes the same.
func resultKey(id string, sequence uint64) []byte {
	return append(key(prefixResult, id), 0, byte(sequence%resultsKept))
}

// producerApplier answers retries from the results of their producers, and forgets producers.
type producerApplier struct {
	*applying
	results map[string][]byte // that this entry has written, by key
}

// maxExpiredProducers bounds how many producers one entry forgets; one that remains is forgotten by
// a later entry, or when it sends a request.
const maxExpiredProducers = 1024

// expireProducers forgets producers that have expired, or that exceed a bound: producer.max by their
// number, producer.max_bytes by their large results.
func (a *producerApplier) expireProducers() {
	all := a.s.producers
	// The one used longest ago comes first: where it stays, only the bytes can ask for more.
	for range maxExpiredProducers {
		p := all.oldest()
		switch {
		case p == nil:
			return
		// It has expired, or is one too many.
		case a.isExpired(p) || uint64(all.byUse.Len()) > a.s.settings.ProducerMax:
		// Only a producer with large results can free some of these bytes.
		case all.bytes > a.s.settings.ProducerBytes:
			p = firstProducer(all.large)
		default:
			return
		}
		a.forgetProducer(p)
	}
}

// isExpired reports whether a producer's results have expired.
func (a *producerApplier) isExpired(p *producer) bool {
	return p.Used+int64(a.s.settings.ProducerTTL) <= a.now
}

// forgetProducer deletes a producer and its results, one by one: range deletions would slow every
// read down until they are flushed.
func (a *producerApplier) forgetProducer(p *producer) {
	a.s.producers.forget(p)
	a.tx.Delete(key(prefixProducer, p.ID))
	for sequence := p.Last; sequence > 0 && p.Last-sequence < resultsKept; sequence-- {
		a.tx.Delete(resultKey(p.ID, sequence))
	}
}

// checkSequence decides whether a producer's request is the next one. It returns the answer for a
// request that is not.
func (a *producerApplier) checkSequence(c frame.Publish, print uint32) (answer *Result) {
	// An expired producer counts as unknown, even before its turn to be removed.
	p := a.s.producers.get(c.Producer)
	if p != nil && a.isExpired(p) {
		a.forgetProducer(p)
		p = nil
	}
	switch {
	case c.Sequence == 0:
		r := refuse(Invalid, "sequence", fmt.Sprintf("producer %q sent sequence 0", c.Producer), "sequences begin at 1")
		return &r
	// The next request: it is decided.
	case p == nil && c.Sequence == 1, p != nil && c.Sequence == p.Last+1:
		return nil
	// Whether the request was decided before cannot be known any more.
	case p == nil:
		r := refuse(UnknownProducer, "sequence",
			fmt.Sprintf("nothing is known of producer %q, whose sequence is %d", c.Producer, c.Sequence),
			"a producer begins with sequence 1; if this one was used before, its results have expired: start over with a "+
				"new producer id, after reading the log for what the last request did")
		return &r
	// A retry, whose result is kept.
	case c.Sequence <= p.Last && p.Last-c.Sequence < resultsKept:
		return a.replayResult(c, print)
	// A request is missing before it, or it is too old.
	default:
		r := refuse(OutOfSequence, "sequence",
			fmt.Sprintf("producer %q sent sequence %d, expected is %d", c.Producer, c.Sequence, p.Last+1),
			"send requests of one producer one after the other, each with the next number")
		r.Refusal.Expected = p.Last + 1
		return &r
	}
}

// replayResult answers a retry with the result of the first time.
func (a *producerApplier) replayResult(c frame.Publish, print uint32) *Result {
	// An error stops the entry: the answer does not matter then.
	value, err := a.storedResult(c)
	if err != nil {
		a.tx.keepError(err)
		return &Result{}
	}

	// The fingerprint precedes the result.
	r, err := decodeStored(value[4:])
	a.tx.keepError(err)
	if binary.BigEndian.Uint32(value) != print {
		r = refuse(Conflict, "sequence",
			fmt.Sprintf("producer %q already used sequence %d for other events", c.Producer, c.Sequence),
			"a retry sends the same events in the same order; a new request takes the next sequence")
	} else {
		r.Replayed = true
		a.s.meta.Counters.Replayed++
	}
	return &r
}

// storedResult returns a result as keepResult stored it, in this entry or in one before.
func (a *producerApplier) storedResult(c frame.Publish) ([]byte, error) {
	k := resultKey(c.Producer, c.Sequence)
	// The database has the results of this entry only after it.
	if value, ok := a.results[string(k)]; ok {
		return value, nil
	}
	value, err := readValue(a.db, k)
	if err == nil && len(value) < 4 {
		err = fmt.Errorf("result %d of producer %q is missing from the state", c.Sequence, c.Producer)
	}
	return value, err
}

// keepResult keeps the answer to a producer's request for its retries.
func (a *producerApplier) keepResult(c frame.Publish, print uint32, r Result) {
	a.s.meta.Touch++
	p := a.s.producers.use(c.Producer)
	p.Last, p.Used, p.Touch = c.Sequence, a.now, a.s.meta.Touch

	// The result takes the slot of the one 64 sequences ago.
	value := appendStored(binary.BigEndian.AppendUint32(nil, print), &r)
	a.countResult(c, p, len(value))
	a.s.producers.place(p)
	a.tx.setEncoded(key(prefixProducer, p.ID), p.encode)
	k := resultKey(c.Producer, c.Sequence)
	a.results[string(k)] = value
	a.tx.Set(k, value)
}

// countResult counts a result of size bytes that takes the slot of an older one.
func (a *producerApplier) countResult(c frame.Publish, p *producer, size int) {
	slot := uint64(1) << (c.Sequence % resultsKept)
	// The older result no longer counts, if it did.
	if p.Large&slot != 0 {
		older, err := a.storedResult(c)
		a.tx.keepError(err)
		p.Large &^= slot
		p.Bytes -= uint64(len(older))
		a.s.producers.bytes -= uint64(len(older))
	}
	// The new one counts if it is large.
	if size > smallResult {
		p.Large |= slot
		p.Bytes += uint64(size)
		a.s.producers.bytes += uint64(size)
	}
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// fingerprint distinguishes a retry from another request under the same sequence: it is the CRC of
// each row's kind, key and content. A kind that a policy gave counts as DedupContent: a retry is one under any policy.
func fingerprint(c *frame.Columns, from, to int) uint32 {
	var sum uint32
	var some [2048]byte
	for row := from; row < to; {
		b := some[:0]
		// As many rows as fit into some; 64 is room for one more.
		for ; row < to && len(b) < len(some)-64; row++ {
			k, content := c.KeyAt(row), c.ContentAt(row)
			kind := c.KindAt(row)
			if kind > frame.DedupID {
				kind = frame.DedupContent
			}
			b = append(append(append(b, byte(kind)), k[:]...), content[:]...)
		}
		sum = crc32.Update(sum, castagnoli, b)
	}
	return sum
}
