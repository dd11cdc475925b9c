package event

import (
	"bytes"
	"encoding/json"
	"math"
	"strconv"
	"time"

	"github.com/ringrift/ringlog/event/canon"
)

// MarshalJSON prints the event as AppendJSON does, and fails if New could not marshal the payload.
func (e Event) MarshalJSON() ([]byte, error) {
	if e.err != nil {
		return nil, e.err
	}
	return e.AppendJSON(nil), nil
}

// AppendJSON appends the event as one line of JSON, without a newline:
//
//	{"offset":7,"type":"TRAINING_COMPLETED","value":"training_completed","payload":{…},"source":"trainer-3",
//	 "key":"hex8_2p","correlation_id":"…","causation_id":"…","dedup_id":"…","dedup":false,
//	 "traceparent":"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
//	 "time":"2026-01-05T10:00:00.000000001Z","appended_at":"…","term":3,"hash":"…",
//	 "original_type":"PROMOTION_COMPLETE","foreign":true,"target":"trainer","redrive":12}
//
// Only type, value and payload are always present. The hash is computed for an event that has an offset.
func (e *Event) AppendJSON(dst []byte) []byte {
	dst = append(dst, '{')
	// An event that is not in the log begins with its type.
	if e.Offset != 0 {
		dst = strconv.AppendUint(append(dst, `"offset":`...), e.Offset, 10)
		dst = append(dst, ',')
	}
	// The members that are always present.
	value := e.EffectiveValue()
	dst = canon.AppendQuoted(append(dst, `"type":`...), string(e.Type))
	dst = canon.AppendQuoted(append(dst, `,"value":`...), value)
	dst = appendPayload(append(dst, `,"payload":`...), e.Payload)
	// What the producer may have set.
	dst = appendString(dst, `,"source":`, e.Source)
	dst = appendString(dst, `,"key":`, e.Key)
	dst = appendString(dst, `,"correlation_id":`, e.CorrelationID)
	dst = appendString(dst, `,"causation_id":`, e.CausationID)
	dst = appendString(dst, `,"dedup_id":`, e.DedupID)
	if e.NoDedup {
		dst = append(dst, `,"dedup":false`...)
	}
	if e.Trace.Valid() {
		dst = append(e.Trace.append(append(dst, `,"traceparent":"`...)), '"')
	}
	dst = appendTime(dst, `,"time":"`, e.Time)
	// What the gate and the log have added.
	dst = e.appendPlace(dst, value)
	dst = appendString(dst, `,"original_type":`, e.Original)
	if e.Foreign {
		dst = append(dst, `,"foreign":true`...)
	}
	// Letters that were redriven are for one cursor.
	dst = appendString(dst, `,"target":`, e.Target)
	if e.Redrive != 0 {
		dst = strconv.AppendUint(append(dst, `,"redrive":`...), e.Redrive, 10)
	}
	return append(dst, '}')
}

// appendPlace appends what the log added to the event.
func (e *Event) appendPlace(dst []byte, value string) []byte {
	dst = appendTime(dst, `,"appended_at":"`, e.AppendedAt)
	if e.Term != 0 {
		dst = strconv.AppendUint(append(dst, `,"term":`...), e.Term, 10)
	}
	if e.Offset == 0 {
		return dst
	}
	// In hex, without the allocation of Hash.String.
	hash := canon.ContentHash(value, e.Payload)
	dst = append(dst, `,"hash":"`...)
	for _, b := range hash {
		const digits = "0123456789abcdef"
		dst = append(dst, digits[b>>4], digits[b&15])
	}
	return append(dst, '"')
}

// appendString appends a member, or nothing for an empty string.
func appendString(dst []byte, label, s string) []byte {
	if s == "" {
		return dst
	}
	return canon.AppendQuoted(append(dst, label...), s)
}

// appendTime appends a member, or nothing for the zero time.
func appendTime(dst []byte, label string, t time.Time) []byte {
	if t.IsZero() {
		return dst
	}
	return append(t.UTC().AppendFormat(append(dst, label...), time.RFC3339Nano), '"')
}

// appendPayload appends a payload on one line. A canonical payload always is on one.
func appendPayload(dst, payload []byte) []byte {
	// An event that nobody normalized may have no payload.
	if len(payload) == 0 {
		return append(dst, "{}"...)
	}
	// Only a payload that never was canonical has line breaks between its tokens.
	// A line break in a string is escaped, so one that is found is white space.
	if bytes.IndexByte(payload, '\n') >= 0 {
		var b bytes.Buffer
		if json.Compact(&b, payload) == nil {
			payload = b.Bytes()
		}
	}
	return append(dst, payload...)
}

// UnmarshalJSON reads what AppendJSON prints, whatever its size: the log sets the limits, not its readers. It skips
// keys that it does not know, which are of a newer version, makes the payload canonical, and keeps no reference to
// data.
func (e *Event) UnmarshalJSON(data []byte) error {
	// The depth alone is bounded, so the stack is.
	const unlimited = math.MaxInt
	lim := Limits{EventBytes: unlimited, NameBytes: unlimited, Depth: 10_000, RequestEvents: 1, RequestBytes: unlimited}
	d, err := newDecoder(data, lim)
	if err != nil {
		return err
	}
	// Unknown keys are skipped and the log's own fields are read.
	d.stored = true
	var read Event
	bad := d.event(&read)
	if bad == nil {
		bad = d.End()
	}
	if bad != nil {
		return bad
	}
	read.Payload = bytes.Clone(read.Payload) // a canonical payload is a part of data
	// The default is stored as "", as Normalize has it.
	if read.Value == defaultValue(read.Type) {
		read.Value = ""
	}
	*e = read
	return nil
}
