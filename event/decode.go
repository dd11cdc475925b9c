package event

import (
	"bytes"
	"encoding/json"
	"math"
	"strconv"
	"time"
)

// DecodeOne reads one event object. Errors are *Error, with positions in data. The payload comes back canonical and
// may share memory with data.
//
// It accepts type (or event_type), payload, source, key, correlation_id, causation_id, dedup_id, dedup (false turns
// it off), time in RFC 3339 (or timestamp in epoch seconds) and value, and skips what a stored event carries on top:
// offset, appended_at, term, hash, original_type, foreign, target, redrive. null is as good as absent, but for type and payload.
func DecodeOne(data []byte, lim Limits) (Event, error) {
	d, err := newDecoder(data, lim)
	if err != nil {
		return Event{}, err
	}
	var e Event
	bad := d.event(&e)
	if bad == nil {
		bad = d.end()
	}
	if bad != nil {
		return Event{}, bad
	}
	return e, nil
}

// DecodeArray reads an array of events, or one event object. Errors name the element, as in events[3].payload.
func DecodeArray(data []byte, lim Limits) ([]Event, error) {
	d, err := newDecoder(data, lim)
	if err != nil {
		return nil, err
	}
	if d.peek() != '[' {
		e, err := DecodeOne(data, lim)
		if err != nil {
			return nil, err
		}
		return []Event{e}, nil
	}
	var events []Event
	bad := d.elements(func(i int) *Error {
		var bad *Error
		events, bad = d.appendEvent(events)
		return bad
	})
	if bad == nil {
		bad = d.end()
	}
	if bad != nil {
		return nil, bad
	}
	if len(events) == 0 {
		return nil, fieldError(ReasonEmpty, "", "the array holds no event")
	}
	return events, nil
}

// DecodeNDJSON reads events, one a line; blank lines are skipped. Errors name the event by its number from 0 and its
// line from 1.
func DecodeNDJSON(data []byte, lim Limits) ([]Event, error) {
	d, err := newDecoder(data, lim)
	if err != nil {
		return nil, err
	}
	events := make([]Event, 0, min(bytes.Count(data, []byte("\n"))+1, d.lim.RequestEvents))
	line := 0
	for start := 0; start < len(data); line++ {
		end := start + lineLength(data[start:])
		d.data, d.pos = data[:end], start
		start = end + 1
		if d.space(); d.pos == end {
			continue
		}
		var bad *Error
		if events, bad = d.appendEvent(events); bad == nil {
			bad = d.end()
		}
		if bad != nil {
			bad.Message = "line " + strconv.Itoa(line+1) + ": " + bad.Message
			return nil, bad
		}
	}
	return events, nil
}

func lineLength(data []byte) int {
	if i := bytes.IndexByte(data, '\n'); i >= 0 {
		return i
	}
	return len(data)
}

// decoder reads events. Payloads go through the canonicalizer it is.
type decoder struct {
	canonicalizer
	lim    Limits
	stored bool   // the form the log hands out: its own fields are read, unknown keys are of a newer version
	seen   uint32 // keys of the current event, by field
	into   *Event
}

func newDecoder(data []byte, lim Limits) (*decoder, error) {
	lim = lim.orDefault()
	if len(data) > lim.RequestBytes {
		return nil, fieldError(ReasonTooLarge, "", "%d bytes, the limit for a request is %d", len(data), lim.RequestBytes)
	}
	d := &decoder{lim: lim}
	d.data, d.maxDepth, d.maxBytes = data, lim.Depth, lim.EventBytes
	if d.space(); d.pos == len(data) {
		return nil, &Error{Reason: ReasonEmpty, Message: "no event was sent", Remedy: "send an event object, an array of them, or NDJSON", Position: 0}
	}
	return d, nil
}

func (d *decoder) appendEvent(events []Event) ([]Event, *Error) {
	i := len(events)
	if i == d.lim.RequestEvents {
		return nil, fieldError(ReasonTooLarge, "", "more events than the limit of %d for a request", i)
	}
	events = append(events, Event{})
	if err := d.event(&events[i]); err != nil {
		return nil, err.under("events[" + strconv.Itoa(i) + "]")
	}
	return events, nil
}

// event reads one event object.
func (d *decoder) event(e *Event) *Error {
	if d.peek() != '{' {
		if d.kind() == "no JSON value" {
			return d.unexpected("an event object")
		}
		return d.fail(d.pos, ReasonInvalidJSON, "an event is a JSON object, not %s", d.kind())
	}
	start := d.pos
	d.seen, d.into = 0, e
	if err := d.members(d.member); err != nil {
		return err
	}
	if e.Type == "" {
		return d.fail(start, ReasonInvalidType, "missing").under("type")
	}
	if e.Payload == nil {
		e.Payload = json.RawMessage("{}")
	}
	return nil
}

// eventField names what a key stands for.
type eventField uint8

const (
	fieldNone eventField = iota
	fieldTypeName
	fieldValue
	fieldPayload
	fieldSource
	fieldKey
	fieldCorrelationID
	fieldCausationID
	fieldDedupID
	fieldDedup
	fieldTime
	fieldOffset
	fieldAppendedAt
	fieldTerm
	fieldHash
	fieldOriginal
	fieldForeign
	fieldTarget
	fieldRedrive
)

func eventFieldOf(key []byte) eventField {
	switch string(key) {
	case "type", "event_type":
		return fieldTypeName
	case "value":
		return fieldValue
	case "payload":
		return fieldPayload
	case "source":
		return fieldSource
	case "key":
		return fieldKey
	case "correlation_id":
		return fieldCorrelationID
	case "causation_id":
		return fieldCausationID
	case "dedup_id":
		return fieldDedupID
	case "dedup":
		return fieldDedup
	case "time", "timestamp":
		return fieldTime
	case "offset":
		return fieldOffset
	case "appended_at":
		return fieldAppendedAt
	case "term":
		return fieldTerm
	case "hash":
		return fieldHash
	case "original_type":
		return fieldOriginal
	case "foreign":
		return fieldForeign
	case "target":
		return fieldTarget
	case "redrive":
		return fieldRedrive
	}
	return fieldNone
}

func (d *decoder) member(key []byte) *Error {
	f := eventFieldOf(key)
	if f == fieldNone && !d.stored {
		err := d.fail(d.key, ReasonUnknownKey, "an event has no such key").under(pathStep(key))
		err.Remedy = "put it into payload; an event has type, payload, source, key, correlation_id, causation_id, dedup_id, dedup and time"
		return err
	}
	if f != fieldNone && d.seen&(1<<f) != 0 {
		err := d.fail(d.key, ReasonDuplicateKey, "given twice").under(pathStep(key))
		err.Remedy = "type and event_type are one, and so are time and timestamp"
		return err
	}
	d.seen |= 1 << f
	at := d.key
	if err := d.field(f, f == fieldTime && string(key) == "timestamp"); err != nil {
		return err.under(d.keyAt(at))
	}
	return nil
}

// keyAt reads a key again, for an error's path.
func (d *decoder) keyAt(pos int) string {
	s := scanner{data: d.data, pos: pos}
	key, _ := s.text()
	return pathStep(key)
}

// field reads one member's value into the event.
func (d *decoder) field(f eventField, timestamp bool) *Error {
	e := d.into
	switch f {
	case fieldTypeName:
		return d.typeName(&e.Type)
	case fieldPayload:
		return d.readPayload(&e.Payload)
	case fieldValue:
		return d.string(&e.Value)
	case fieldSource:
		return d.string(&e.Source)
	case fieldKey:
		return d.string(&e.Key)
	case fieldCorrelationID:
		return d.string(&e.CorrelationID)
	case fieldCausationID:
		return d.string(&e.CausationID)
	case fieldDedupID:
		return d.string(&e.DedupID)
	case fieldDedup:
		dedup := true
		err := d.boolean(&dedup)
		e.NoDedup = !dedup
		return err
	case fieldTime:
		if timestamp {
			return d.epochSeconds(&e.Time)
		}
		return d.time(&e.Time)
	}
	if !d.stored {
		return d.discard()
	}
	return d.storedField(f, e)
}

// storedField reads what only the log gives.
func (d *decoder) storedField(f eventField, e *Event) *Error {
	switch f {
	case fieldOffset:
		return d.uint(&e.Offset)
	case fieldAppendedAt:
		return d.time(&e.AppendedAt)
	case fieldTerm:
		return d.uint(&e.Term)
	case fieldOriginal:
		return d.string(&e.Original)
	case fieldForeign:
		return d.boolean(&e.Foreign)
	case fieldTarget:
		return d.string(&e.Target)
	case fieldRedrive:
		return d.uint(&e.Redrive)
	}
	return d.discard()
}

// discard reads a value for its syntax alone.
func (d *decoder) discard() *Error {
	d.out = d.out[:0]
	return d.value()
}

// want complains of a value of the wrong kind.
func (d *decoder) want(what string) *Error {
	if d.kind() == "no JSON value" {
		if err := d.discard(); err != nil { // names NaN and the like
			return err
		}
	}
	return d.fail(d.pos, ReasonInvalidField, "%s is expected, not %s", what, d.kind())
}

func (d *decoder) typeName(to *Type) *Error {
	if d.peek() != '"' {
		err := d.want("a string")
		if err.Reason == ReasonInvalidField {
			err.Reason = ReasonInvalidType
		}
		return err
	}
	text, err := d.text()
	if err != nil {
		return err
	}
	if def, ok := Builtin().types[Type(text)]; ok {
		*to = def.Name // shares the catalogue's memory
		return nil
	}
	*to = Type(text)
	return nil
}

func (d *decoder) string(to *string) *Error {
	switch d.peek() {
	case '"':
		text, err := d.text()
		*to = string(text)
		return err
	case 'n':
		_, err := d.word()
		return err
	}
	return d.want("a string")
}

func (d *decoder) boolean(to *bool) *Error {
	switch d.peek() {
	case 't', 'f', 'n':
		word, err := d.word()
		if err == nil && word[0] != 'n' {
			*to = word[0] == 't'
		}
		return err
	}
	return d.want("true or false")
}

func (d *decoder) uint(to *uint64) *Error {
	if !isDigit(d.peek()) {
		return d.want("a whole number")
	}
	start := d.pos
	literal, _, err := d.number()
	if err != nil {
		return err
	}
	n, bad := strconv.ParseUint(string(literal), 10, 64)
	if bad != nil {
		return d.fail(start, ReasonInvalidField, "%s is not a whole number below 2^64", clip(literal))
	}
	*to = n
	return nil
}

func (d *decoder) time(to *time.Time) *Error {
	if d.peek() == 'n' {
		_, err := d.word()
		return err
	}
	if d.peek() != '"' {
		return d.want("an RFC 3339 time in a string (or timestamp, in epoch seconds)")
	}
	start := d.pos
	text, err := d.text()
	if err != nil {
		return err
	}
	t, bad := time.Parse(time.RFC3339Nano, string(text))
	if bad != nil {
		err := d.fail(start, ReasonInvalidField, "%q is not an RFC 3339 time", clip(text))
		err.Remedy = "write it as 2026-01-05T10:00:00.000000001Z"
		return err
	}
	if t.IsZero() { // which says in an Event that there is none
		return d.fail(start, ReasonInvalidField, "%s is outside the years 1678 to 2261", text)
	}
	*to = t.UTC()
	return nil
}

// epochSeconds reads seconds since 1970 with what fraction they have, to the nanosecond.
func (d *decoder) epochSeconds(to *time.Time) *Error {
	if d.peek() == 'n' {
		_, err := d.word()
		return err
	}
	if c := d.peek(); c != '-' && !isDigit(c) {
		return d.want("a number of seconds since 1970")
	}
	start := d.pos
	literal, float, err := d.number()
	if err != nil {
		return err
	}
	t, ok := parseEpoch(literal, float)
	if !ok {
		return d.fail(start, ReasonInvalidField, "%s is not a time in seconds since 1970 between the years 1678 and 2261", clip(literal))
	}
	*to = t
	return nil
}

// maxEpochSeconds keeps a time within what int64 nanoseconds hold.
const maxEpochSeconds = math.MaxInt64/1_000_000_000 - 1

func parseEpoch(literal []byte, float bool) (time.Time, bool) {
	if float && bytes.ContainsAny(literal, "eE") {
		f, err := strconv.ParseFloat(string(literal), 64)
		whole, fraction := math.Modf(f)
		ok := err == nil && math.Abs(whole) <= maxEpochSeconds
		return time.Unix(int64(whole), int64(math.Round(fraction*1e9))).UTC(), ok
	}
	whole, fraction, _ := bytes.Cut(literal, []byte("."))
	seconds, err := strconv.ParseInt(string(whole), 10, 64)
	ok := err == nil && -maxEpochSeconds <= seconds && seconds <= maxEpochSeconds
	var nanos int64
	for i := range 9 {
		nanos *= 10
		if i < len(fraction) {
			nanos += int64(fraction[i] - '0')
		}
	}
	if literal[0] == '-' {
		nanos = -nanos
	}
	return time.Unix(seconds, nanos).UTC(), ok
}

// readPayload takes a payload that is canonical as it stands in the input, and rewrites one that is not.
func (d *decoder) readPayload(to *json.RawMessage) *Error {
	v := verifier{data: d.data, pos: d.pos, maxDepth: d.maxDepth}
	if d.peek() == '{' && v.object(1) && v.pos-d.pos <= d.maxBytes {
		*to = d.data[d.pos:v.pos:v.pos]
		d.pos = v.pos
		return nil
	}
	out, err := d.payload()
	*to = out
	return err
}
