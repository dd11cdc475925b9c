package event

import (
	"bytes"
	"encoding/json"
	"math"
	"strconv"
	"time"
)

// MarshalJSON prints the event in the form AppendJSON has, and fails where New could not marshal the payload.
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
//	 "time":"2026-01-05T10:00:00.000000001Z","appended_at":"…","term":3,"hash":"…",
//	 "original_type":"PROMOTION_COMPLETE","foreign":true,"target":"trainer","redrive":12}
//
// Only type, value and payload are always there. The hash is computed for an event that has an offset.
func (e *Event) AppendJSON(dst []byte) []byte {
	dst = append(dst, '{')
	if e.Offset != 0 {
		dst = strconv.AppendUint(append(dst, `"offset":`...), e.Offset, 10)
		dst = append(dst, ',')
	}
	value := e.EffectiveValue()
	dst = appendQuoted(append(dst, `"type":`...), string(e.Type))
	dst = appendQuoted(append(dst, `,"value":`...), value)
	dst = appendPayload(append(dst, `,"payload":`...), e.Payload)
	dst = appendString(dst, `,"source":`, e.Source)
	dst = appendString(dst, `,"key":`, e.Key)
	dst = appendString(dst, `,"correlation_id":`, e.CorrelationID)
	dst = appendString(dst, `,"causation_id":`, e.CausationID)
	dst = appendString(dst, `,"dedup_id":`, e.DedupID)
	if e.NoDedup {
		dst = append(dst, `,"dedup":false`...)
	}
	dst = appendTime(dst, `,"time":"`, e.Time)
	dst = e.appendPlace(dst, value)
	dst = appendString(dst, `,"original_type":`, e.Original)
	if e.Foreign {
		dst = append(dst, `,"foreign":true`...)
	}
	dst = appendString(dst, `,"target":`, e.Target)
	if e.Redrive != 0 {
		dst = strconv.AppendUint(append(dst, `,"redrive":`...), e.Redrive, 10)
	}
	return append(dst, '}')
}

// appendPlace prints what the log gave.
func (e *Event) appendPlace(dst []byte, value string) []byte {
	dst = appendTime(dst, `,"appended_at":"`, e.AppendedAt)
	if e.Term != 0 {
		dst = strconv.AppendUint(append(dst, `,"term":`...), e.Term, 10)
	}
	if e.Offset == 0 {
		return dst
	}
	hash := contentHash(value, e.Payload)
	dst = append(dst, `,"hash":"`...)
	for _, b := range hash {
		const digits = "0123456789abcdef"
		dst = append(dst, digits[b>>4], digits[b&15])
	}
	return append(dst, '"')
}

func appendString(dst []byte, label, s string) []byte {
	if s == "" {
		return dst
	}
	return appendQuoted(append(dst, label...), s)
}

func appendTime(dst []byte, label string, t time.Time) []byte {
	if t.IsZero() {
		return dst
	}
	return append(t.UTC().AppendFormat(append(dst, label...), time.RFC3339Nano), '"')
}

// appendPayload keeps a payload on one line, which a canonical one always is.
func appendPayload(dst, payload []byte) []byte {
	if len(payload) == 0 {
		return append(dst, "{}"...)
	}
	if bytes.IndexByte(payload, '\n') >= 0 {
		var b bytes.Buffer
		if json.Compact(&b, payload) == nil {
			payload = b.Bytes()
		}
	}
	return append(dst, payload...)
}

// UnmarshalJSON reads the form AppendJSON prints, whatever its size: limits are the log's to set. Keys it does not
// know are skipped, and the payload becomes canonical. It keeps nothing of data.
func (e *Event) UnmarshalJSON(data []byte) error {
	lim := Limits{EventBytes: math.MaxInt, NameBytes: math.MaxInt, Depth: 10_000, RequestEvents: 1, RequestBytes: math.MaxInt}
	d, err := newDecoder(data, lim)
	if err != nil {
		return err
	}
	d.stored = true
	var read Event
	bad := d.event(&read)
	if bad == nil {
		bad = d.end()
	}
	if bad != nil {
		return bad
	}
	read.Payload = bytes.Clone(read.Payload)
	if read.Value == defaultValue(read.Type) {
		read.Value = ""
	}
	*e = read
	return nil
}
