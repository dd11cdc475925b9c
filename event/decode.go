package event

import (
	"bytes"
	"encoding/json"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/ringrift/ringlog/event/canon"
)

// DecodeOne reads one event object. Errors are *Error, with positions in data. The payload is canonical afterwards and
// may share memory with data.
//
// It accepts type (or event_type), payload, source, key, correlation_id, causation_id, dedup_id, dedup (false turns
// it off), traceparent of W3C Trace Context, time in RFC 3339 (or timestamp in epoch seconds) and value. It skips what
// a stored event has in addition: offset, appended_at, term, hash, original_type, foreign, target, redrive. null means absent, except for type and
// payload.
func DecodeOne(data []byte, lim Limits) (Event, error) {
	d, err := newDecoder(data, lim)
	if err != nil {
		return Event{}, err
	}
	var e Event
	bad := d.event(&e)
	// A second value after the event is an error.
	if bad == nil {
		bad = d.End()
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
	// Peek has the first byte that is no white space.
	if d.Peek() != '[' {
		e, err := DecodeOne(data, lim)
		if err != nil {
			return nil, err
		}
		return []Event{e}, nil
	}
	// One event after another; an error in any refuses the whole request.
	var events []Event
	bad := d.Elements(func(i int) *Error {
		var bad *Error
		events, bad = d.appendEvent(events)
		return bad
	})
	if bad == nil {
		bad = d.End()
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
	// The number of lines bounds the events, so the slice never grows.
	events := make([]Event, 0, min(bytes.Count(data, []byte("\n"))+1, d.lim.RequestEvents))
	line := 0
	for start := 0; start < len(data); line++ {
		// The data ends with the line, so no event continues on the next one; positions stay those of the whole.
		end := start + lineLength(data[start:])
		d.Data, d.Pos = data[:end], start
		start = end + 1
		d.Space()
		if d.Pos == end {
			continue
		}
		var bad *Error
		events, bad = d.appendEvent(events)
		if bad == nil {
			bad = d.End()
		}
		if bad != nil {
			bad.Message = "line " + strconv.Itoa(line+1) + ": " + bad.Message
			return nil, bad
		}
	}
	return events, nil
}

// lineLength returns the length of the first line, without its newline.
func lineLength(data []byte) int {
	if i := bytes.IndexByte(data, '\n'); i >= 0 {
		return i
	}
	return len(data)
}

// decoder reads events.
// It stops at the first error. What it reads goes into the event at into, member by member.
type decoder struct {
	canon.Rewriter
	lim    Limits // complete
	stored bool   // read stored events: also the fields that the log adds; unknown keys are of a newer version
	seen   uint32 // the fields of the current event so far, one bit each
	// It points into the caller's slice, and is set for each event.
	into *Event // the current event
}

// newDecoder returns a decoder at the first byte that is not white space. Empty input is an error of its own, since a
// missing body is a common mistake.
func newDecoder(data []byte, lim Limits) (*decoder, error) {
	// A request that is too large is refused before anything of it is read.
	lim = lim.orDefault()
	if len(data) > lim.RequestBytes {
		return nil, fieldError(ReasonTooLarge, "",
			"%d bytes, the limit for a request is %d", len(data), lim.RequestBytes)
	}
	d := &decoder{lim: lim}
	d.Data, d.MaxDepth, d.MaxBytes = data, lim.Depth, lim.EventBytes
	d.Space()
	if d.Pos == len(data) {
		return nil, &Error{
			Reason:  ReasonEmpty,
			Message: "no event was sent",
			Remedy:  "send an event object, an array of them, or NDJSON",
		}
	}
	return d, nil
}

// appendEvent reads one event and appends it, within the limit of a request.
func (d *decoder) appendEvent(events []Event) ([]Event, *Error) {
	i := len(events)
	// Before the event is read: one too many costs nothing.
	if i == d.lim.RequestEvents {
		return nil, fieldError(ReasonTooLarge, "", "more events than the limit of %d for a request", i)
	}
	// A partly read event is dropped with the request.
	events = append(events, Event{})
	if err := d.event(&events[i]); err != nil {
		return nil, err.Under("events[" + strconv.Itoa(i) + "]")
	}
	return events, nil
}

// event reads one event object.
func (d *decoder) event(e *Event) *Error {
	if d.Peek() != '{' {
		// What is not JSON at all has an error that says so.
		if d.Kind() == "no JSON value" {
			return d.Unexpected("an event object")
		}
		return d.Fail(d.Pos, ReasonInvalidJSON, "an event is a JSON object, not %s", d.Kind())
	}
	// Members fill e in any order; what is missing shows only at the end.
	d.seen, d.into = 0, e
	if err := d.Members(d.member); err != nil {
		return err
	}
	if e.Type == "" {
		return missingType(d.seen&(1<<fieldTypeName) != 0)
	}
	// An event without a payload has the empty one, as New makes it.
	if e.Payload == nil {
		e.Payload = json.RawMessage("{}")
	}
	return nil
}

// eventField is a field of an event, whatever key names it.
type eventField uint8

// There is a bit in decoder.seen for each, so a key given twice is found whatever its spelling.
const (
	// What a producer sends, and then what the log adds: decoder.field keeps the two apart.
	fieldNone     eventField = iota
	fieldTypeName            // type or event_type
	fieldValue
	fieldPayload
	fieldSource
	fieldKey
	fieldCorrelationID
	fieldCausationID
	fieldDedupID
	fieldDedup // false sets Event.NoDedup
	fieldTime  // time or timestamp
	fieldTraceparent
	fieldOffset
	fieldAppendedAt
	fieldTerm
	fieldHash
	fieldOriginal // original_type
	fieldForeign
	fieldTarget
	fieldRedrive
)

// eventFieldOf returns the field that a key names, fieldNone for an unknown key.
func eventFieldOf(key []byte) eventField {
	// The conversion in a switch does not allocate.
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
	case "traceparent":
		return fieldTraceparent
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

// member reads one member of an event object.
func (d *decoder) member(key []byte) *Error {
	f := eventFieldOf(key)
	// A stored event of a later version may have keys that this one does not know.
	if f == fieldNone && !d.stored {
		err := d.Fail(d.Key, ReasonUnknownKey, "an event has no such key").Under(canon.PathStep(key))
		err.Remedy = unknownKeyRemedy(string(key))
		return err
	}
	if f != fieldNone && d.seen&(1<<f) != 0 {
		err := d.Fail(d.Key, ReasonDuplicateKey, "given twice").Under(canon.PathStep(key))
		err.Remedy = "type and event_type are one, and so are time and timestamp"
		return err
	}
	// Unknown keys share bit 0, which is never tested.
	d.seen |= 1 << f
	// Reading the value overwrites the key and its position.
	at := d.Key
	if err := d.field(f, f == fieldTime && string(key) == "timestamp"); err != nil {
		return err.Under(d.keyAt(at))
	}
	return nil
}

// unknownKeyRemedy says what to do about a key that an event does not have.
func unknownKeyRemedy(key string) string {
	fields := []string{
		"type", "payload", "source", "key", "correlation_id", "causation_id", "dedup_id", "dedup", "time",
		"traceparent",
	}
	all := "an event has " + strings.Join(fields[:len(fields)-1], ", ") + " and " + fields[len(fields)-1]
	// A key is taken for a misspelt field if at most a third of the field's letters differ; upper and lower case are
	// the same. A key that is much longer is not compared.
	nearest, least := "", len(key)
	for _, field := range fields {
		if len(key) > 2*len(field) {
			continue
		}
		d := editDistance(foldName(key), foldName(field), make([]int, len(key)+1))
		if d <= len(field)/3 && d < least {
			nearest, least = field, d
		}
	}
	if nearest != "" {
		return "did you mean " + nearest + "? " + all
	}
	return "put it into payload; " + all
}

// keyAt reads a key again, for the path of an error.
func (d *decoder) keyAt(pos int) string {
	s := canon.Scanner{Data: d.Data, Pos: pos}
	key, _ := s.Text()
	return canon.PathStep(key)
}

// field reads one member's value into the event.
func (d *decoder) field(f eventField, timestamp bool) *Error {
	e := d.into
	// What a producer sends.
	switch f {
	case fieldTypeName:
		return d.typeName(&e.Type)
	case fieldPayload:
		return d.payload(&e.Payload)
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
		// null leaves the default, which is on.
		e.NoDedup = !dedup
		return err
	case fieldTime:
		if timestamp {
			return d.epochSeconds(&e.Time)
		}
		return d.time(&e.Time)
	case fieldTraceparent:
		return d.traceparent(&e.Trace)
	}
	// What the log adds is not taken from a producer, who may send a stored event again.
	// It is checked to be JSON, and dropped.
	if !d.stored {
		return d.Skip()
	}
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
	return d.Skip() // the hash, which follows from the event, and unknown keys
}

// want returns an error about the value at Pos, which is of the wrong kind.
func (d *decoder) want(what string) *Error {
	if d.Kind() == "no JSON value" {
		// NaN and Infinity look like no JSON, and have an error of their own.
		if err := d.Skip(); err != nil { // names NaN and the like
			return err
		}
	}
	return d.Fail(d.Pos, ReasonInvalidField, "%s is expected, not %s", what, d.Kind())
}

// typeName reads a type. Its errors have a reason of their own.
func (d *decoder) typeName(to *Type) *Error {
	if d.Peek() != '"' {
		err := d.want("a string")
		if err.Reason == ReasonInvalidField {
			err.Reason = ReasonInvalidType
		}
		return err
	}
	text, err := d.Text()
	if err != nil {
		return err
	}
	// Most types are known, and the name is one string for all events.
	if def, ok := Builtin().types[Type(text)]; ok {
		*to = def.Name // in the catalogue's memory: no allocation
		return nil
	}
	*to = Type(text)
	return nil
}

// string reads a string; null means absent.
func (d *decoder) string(to *string) *Error {
	// A word other than null is an error of Word.
	switch d.Peek() {
	case '"':
		text, err := d.Text()
		*to = string(text)
		return err
	case 'n':
		_, err := d.Word()
		return err
	}
	return d.want("a string")
}

// traceparent reads a trace context; null means absent. One of a stored event that a later version has written in
// another form is passed over.
func (d *decoder) traceparent(to *Trace) *Error {
	var text string
	start := d.Pos
	if err := d.string(&text); err != nil || text == "" {
		return err
	}
	t, bad := parseTrace(text)
	if bad != nil && !d.stored {
		err := d.Fail(start, bad.Reason, "%s", bad.Message)
		err.Remedy = bad.Remedy
		return err
	}
	*to = t
	return nil
}

// boolean reads true or false; null means absent.
func (d *decoder) boolean(to *bool) *Error {
	// null leaves the value as it is.
	switch d.Peek() {
	case 't', 'f', 'n':
		word, err := d.Word()
		if err == nil && word[0] != 'n' {
			*to = word[0] == 't'
		}
		return err
	}
	return d.want("true or false")
}

// uint reads a whole number without a sign.
func (d *decoder) uint(to *uint64) *Error {
	if !isDigit(d.Peek()) {
		return d.want("a whole number")
	}
	// Number accepts fractions and exponents, which ParseUint then refuses.
	start := d.Pos
	literal, _, err := d.Number()
	if err != nil {
		return err
	}
	n, bad := strconv.ParseUint(string(literal), 10, 64)
	if bad != nil {
		return d.Fail(start, ReasonInvalidField, "%s is not a whole number below 2^64", canon.Clip(literal))
	}
	*to = n
	return nil
}

// time reads an RFC 3339 time; null means absent.
func (d *decoder) time(to *time.Time) *Error {
	if d.Peek() == 'n' {
		_, err := d.Word()
		return err
	}
	if d.Peek() != '"' {
		return d.want("an RFC 3339 time in a string (or timestamp, in epoch seconds)")
	}
	// The position is that of the text, for errors about its meaning.
	start := d.Pos
	text, err := d.Text()
	if err != nil {
		return err
	}
	// The format allows any fraction of a second, and none.
	t, bad := time.Parse(time.RFC3339Nano, string(text))
	if bad != nil {
		err := d.Fail(start, ReasonInvalidField, "%q is not an RFC 3339 time", canon.Clip(text))
		err.Remedy = "write it as 2026-01-05T10:00:00.000000001Z"
		return err
	}
	if t.IsZero() { // means in an Event that there is no time
		return d.Fail(start, ReasonInvalidField, "%s is outside the years 1678 to 2261", text)
	}
	*to = t.UTC()
	return nil
}

// epochSeconds reads seconds since 1970 with their fraction, to the nanosecond.
func (d *decoder) epochSeconds(to *time.Time) *Error {
	if d.Peek() == 'n' { // null means absent
		_, err := d.Word()
		return err
	}
	if c := d.Peek(); c != '-' && !isDigit(c) {
		return d.want("a number of seconds since 1970")
	}
	start := d.Pos
	// Number has checked the literal: parseEpoch meets digits, one point and an exponent alone.
	literal, float, err := d.Number()
	if err != nil {
		return err
	}
	t, ok := parseEpoch(literal, float)
	if !ok {
		return d.Fail(start, ReasonInvalidField,
			"%s is not a time in seconds since 1970 between the years 1678 and 2261", canon.Clip(literal))
	}
	*to = t
	return nil
}

// maxEpochSeconds keeps a time within what int64 nanoseconds hold.
const maxEpochSeconds = math.MaxInt64/1_000_000_000 - 1

// parseEpoch converts a number's literal. inRange reports whether an event can have that time.
func parseEpoch(literal []byte, float bool) (t time.Time, inRange bool) {
	// A literal with an exponent goes through a double.
	if float && bytes.ContainsAny(literal, "eE") {
		f, err := strconv.ParseFloat(string(literal), 64)
		whole, fraction := math.Modf(f)
		ok := err == nil && math.Abs(whole) <= maxEpochSeconds
		return time.Unix(int64(whole), int64(math.Round(fraction*1e9))).UTC(), ok
	}
	// Any other is read digit by digit, since a double has not enough digits for nanoseconds.
	whole, fraction, _ := bytes.Cut(literal, []byte("."))
	seconds, err := strconv.ParseInt(string(whole), 10, 64)
	ok := err == nil && -maxEpochSeconds <= seconds && seconds <= maxEpochSeconds
	var nanos int64
	// Nine digits at most; further ones are below a nanosecond.
	for i := range 9 {
		nanos *= 10
		if i < len(fraction) {
			nanos += int64(fraction[i] - '0')
		}
	}
	// "-0.5" has whole 0, so the sign is taken from the literal.
	if literal[0] == '-' {
		nanos = -nanos
	}
	return time.Unix(seconds, nanos).UTC(), ok
}

// payload takes a payload that is canonical as a part of the input, and rewrites any other.
func (d *decoder) payload(to *json.RawMessage) *Error {
	// Most payloads are canonical already: nothing is copied, and the third index keeps an append from writing into data.
	// It runs on a copy of the position, so a payload that is not canonical is read again from its start.
	v := canon.Verifier{Data: d.Data, Pos: d.Pos, MaxDepth: d.MaxDepth}
	if v.Object() && v.Pos-d.Pos <= d.MaxBytes {
		*to = d.Data[d.Pos:v.Pos:v.Pos]
		d.Pos = v.Pos
		return nil
	}
	out, err := d.Payload()
	*to = out
	return err
}
