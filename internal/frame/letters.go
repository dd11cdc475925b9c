package frame

import (
	"encoding/binary"
	"fmt"
	"time"

	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/internal/fields"
)

// MaxLetters bounds the letters that one command names.
const MaxLetters = 1000

// DeadLetter says that a cursor's handler could not handle an event: the event becomes a
// dead letter, and the cursor moves past it. Event is a copy of the event that EncodeCopy
// made. With a Lease it is refused once that is over.
type DeadLetter struct {
	Cursor      string
	Generation  uint64 // of the reader that could not handle it, or of the group
	Offset      uint64
	Handler     string
	Error       string
	Attempts    uint64    // deliveries that failed
	FirstFailed time.Time // zero: at the replicated time of the command
	Event       []byte
	Lease       RoleLease // Role is empty where the caller named none
}

// Redrive appends letters' events again, each for the cursor that dead-lettered it, or
// for the cursor To.
type Redrive struct {
	Letters []uint64
	To      string
}

// Purge removes letters; with an OlderThan only those that have been dead for that
// duration.
type Purge struct {
	Letters   []uint64
	OlderThan time.Duration
}

// LetterImport adds letters of another system. A letter whose Origin is known already is
// ignored.
type LetterImport struct{ Letters []ImportedLetter }

// ImportedLetter is one imported letter. Origin is a fingerprint of where it comes from, and
// From says the same to people.
type ImportedLetter struct {
	Origin   [OriginSize]byte
	From     string
	Error    string
	Attempts uint64
	Failed   time.Time // zero: not known
	Event    []byte    // as in DeadLetter
}

// LetterKeep stores an event that a handler without a cursor could not handle. Letter.Cursor is the one that the event
// is redriven to: it moves by nothing of this, and need not exist. Letter.Offset is 0 for an event that is not in the
// log; there is no generation. It is ignored while a letter with the same Origin is there.
type LetterKeep struct {
	Origin [OriginSize]byte
	From   string // who keeps it, for people
	Letter DeadLetter
}

// OriginSize is the length of an imported letter's Origin, in bytes.
const OriginSize = 16

// Kind implements Command.
func (c DeadLetter) Kind() Kind {
	if c.Lease.Role != "" {
		return KindDeadLetterFenced
	}
	return KindDeadLetter
}

// Kind implements Command.
func (Redrive) Kind() Kind      { return KindRedrive }
func (Purge) Kind() Kind        { return KindPurge }
func (LetterImport) Kind() Kind { return KindLetterImport }
func (LetterKeep) Kind() Kind   { return KindLetterKeep }

// appendTo writes cursor, generation, offset, handler, error, attempts, first failed, copy, and of one that a role
// fences the lease.
func (c DeadLetter) appendTo(b []byte) []byte {
	b = binary.AppendUvarint(fields.Append(b, c.Cursor), c.Generation)
	b = fields.Append(fields.Append(binary.AppendUvarint(b, c.Offset), c.Handler), c.Error)
	b = fields.AppendTime(binary.AppendUvarint(b, c.Attempts), c.FirstFailed)
	return c.Lease.appendIfNamed(fields.Append(b, c.Event))
}

// appendNumbers appends a list of ids, after its length.
func appendNumbers(b []byte, list []uint64) []byte {
	b = binary.AppendUvarint(b, uint64(len(list)))
	for _, n := range list {
		b = binary.AppendUvarint(b, n)
	}
	return b
}

// appendTo writes ids, cursor.
func (c Redrive) appendTo(b []byte) []byte { return fields.Append(appendNumbers(b, c.Letters), c.To) }

// appendTo writes ids, age.
func (c Purge) appendTo(b []byte) []byte {
	return binary.AppendVarint(appendNumbers(b, c.Letters), int64(c.OlderThan))
}

// appendTo writes the number of letters, then of each: 16 bytes of origin, from, error, attempts,
// failed, copy.
func (c LetterImport) appendTo(b []byte) []byte {
	b = binary.AppendUvarint(b, uint64(len(c.Letters)))
	for _, l := range c.Letters {
		b = fields.Append(append(b, l.Origin[:]...), l.From)
		b = binary.AppendUvarint(fields.Append(b, l.Error), l.Attempts)
		b = fields.Append(fields.AppendTime(b, l.Failed), l.Event)
	}
	return b
}

// appendTo writes 16 bytes of origin, from, then what a DeadLetter has.
func (c LetterKeep) appendTo(b []byte) []byte {
	return c.Letter.appendTo(fields.Append(append(b, c.Origin[:]...), c.From))
}

// letterKeep reads what LetterKeep wrote.
func (d *decoder) letterKeep() (c LetterKeep) {
	copy(c.Origin[:], d.Take(OriginSize))
	c.From = d.string()
	c.Letter = d.deadLetter()
	return c
}

// deadLetter reads a dead letter whose event does not share memory with the input.
func (d *decoder) deadLetter() DeadLetter {
	return DeadLetter{
		Cursor:      d.string(),
		Generation:  d.Uvarint(),
		Offset:      d.Uvarint(),
		Handler:     d.string(),
		Error:       d.string(),
		Attempts:    d.Uvarint(),
		FirstFailed: d.Time(),
		Event:       d.copied(),
	}
}

// deadLetterFenced reads a dead letter and the lease after it.
func (d *decoder) deadLetterFenced() DeadLetter {
	c := d.deadLetter()
	c.Lease = d.namedLease()
	return c
}

// letters reads the ids of a command about letters.
func (d *decoder) letters() []uint64 {
	n := d.Count(1)
	if n > MaxLetters {
		d.Fail("%d letters in one command", n)
		return nil
	}
	// A list without ids is nil, so a command is equal to the one that was encoded.
	var list []uint64
	for range n {
		list = append(list, d.Uvarint())
	}
	return list
}

// letterImport refuses more letters than one entry may store.
func (d *decoder) letterImport() (c LetterImport) {
	// A letter takes its origin and a byte for each other field at least.
	n := d.Count(OriginSize + 5)
	if n > MaxLetters {
		d.Fail("%d letters in one command", n)
		return c
	}
	for range n {
		var l ImportedLetter
		copy(l.Origin[:], d.Take(OriginSize))
		l.From, l.Error, l.Attempts, l.Failed = d.string(), d.string(), d.Uvarint(), d.Time()
		l.Event = d.copied()
		c.Letters = append(c.Letters, l)
	}
	return c
}

// A copy is one event that is kept apart from its block:
//
//	string  type
//	string  source
//	16      the start of its content hash
//	record  as block.go draws it
//	rest    its trace context: ids and flags as trace.go draws them; nothing if it has none
//
// It has the bytes that are stored, so every build makes the same block of it.

// EncodeCopy returns a copy of an event, without its offset, term and append time.
func EncodeCopy(e *event.Event) []byte {
	hash := e.Hash()
	b := fields.Append(fields.Append(nil, string(e.Type)), e.Source)
	b = appendRecord(append(b, hash[:keySize]...), e)
	if e.Trace.Valid() {
		b = appendTrace(b, &e.Trace)
	}
	return b
}

// DecodeCopy reads what EncodeCopy wrote. The payload points into b.
func DecodeCopy(b []byte) (event.Event, error) {
	e, _, _, err := decodeCopy(b)
	return e, err
}

// decodeCopy reads a copy: the event, the start of its content hash, and its encoded record. The record and the
// event's payload point into b.
func decodeCopy(b []byte) (e event.Event, key Key, record []byte, err error) {
	d := &decoder{Reader: fields.Reader{Rest: b}}
	e.Type, e.Source = event.Type(d.string()), d.string()
	copy(key[:], d.Take(keySize))
	record = d.Rest
	d.record(&e)
	record = record[:len(record)-len(d.Rest)]
	if d.Err == nil && len(d.Rest) > 0 {
		e.Trace = d.trace()
	}
	return e, key, record, d.end("copy of an event")
}

// AddCopy appends the event of a copy as a row that is not deduplicated.
func (b *Batch) AddCopy(copied []byte) error {
	e, key, record, err := decodeCopy(copied)
	if err != nil {
		return fmt.Errorf("add: %w", err)
	}
	b.traces.add(len(b.rows), &e.Trace)
	b.rows = append(b.rows, Row{Kind: DedupOff, Key: key, Type: string(e.Type), Source: e.Source})
	b.addHashes(&e)
	b.records = append(b.records, record...)
	return nil
}
