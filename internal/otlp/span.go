package otlp

import (
	"encoding/hex"
	"encoding/json"
	"strconv"
	"time"
)

// Kind says which side of a call a span is of. The numbers are OTLP's.
type Kind int

// The kinds of spans that a node has.
const (
	Server   Kind = 2 // it answers a request
	Producer Kind = 4 // it hands events on
)

// Span is one operation of a trace.
type Span struct {
	Trace  [16]byte
	ID     [8]byte // not all zero
	Parent [8]byte // all zero is none
	Name   string
	Kind   Kind
	Start  time.Time
	End    time.Time
	Attrs  []Attr
	Error  string // "" is success
}

// Attr is an attribute: Text, or Number where Text is empty.
type Attr struct {
	Key    string
	Text   string
	Number int64
}

// The JSON form of OTLP's ExportTraceServiceRequest: ids are hex, and 64-bit integers are strings.
type (
	request struct {
		ResourceSpans []resourceSpans `json:"resourceSpans"`
	}
	resourceSpans struct {
		Resource   resource     `json:"resource"`
		ScopeSpans []scopeSpans `json:"scopeSpans"`
	}
	resource struct {
		Attributes []attribute `json:"attributes"`
	}
	scopeSpans struct {
		Scope scope  `json:"scope"`
		Spans []span `json:"spans"`
	}
	scope struct {
		Name    string `json:"name"`
		Version string `json:"version,omitempty"`
	}
	span struct {
		TraceID      string      `json:"traceId"`
		SpanID       string      `json:"spanId"`
		ParentSpanID string      `json:"parentSpanId,omitempty"`
		Name         string      `json:"name"`
		Kind         Kind        `json:"kind"`
		Start        string      `json:"startTimeUnixNano"`
		End          string      `json:"endTimeUnixNano"`
		Attributes   []attribute `json:"attributes,omitempty"`
		Status       *status     `json:"status,omitempty"`
	}
	attribute struct {
		Key   string `json:"key"`
		Value value  `json:"value"`
	}
	value struct {
		Text   *string `json:"stringValue,omitempty"`
		Number *string `json:"intValue,omitempty"`
	}
	status struct {
		Code    int    `json:"code"` // 2 is an error
		Message string `json:"message,omitempty"`
	}
)

// encode returns the request that exports spans.
func encode(of Resource, spans []Span) ([]byte, error) {
	list := make([]span, len(spans))
	for i := range spans {
		list[i] = spans[i].wire()
	}
	return json.Marshal(request{[]resourceSpans{{
		Resource: resource{attributes(of.Attrs)},
		ScopeSpans: []scopeSpans{{
			Scope: scope{Name: of.Scope, Version: of.Version},
			Spans: list,
		}},
	}}})
}

// wire is the span as OTLP has it.
func (s *Span) wire() span {
	out := span{
		TraceID:    hex.EncodeToString(s.Trace[:]),
		SpanID:     hex.EncodeToString(s.ID[:]),
		Name:       s.Name,
		Kind:       s.Kind,
		Start:      strconv.FormatInt(s.Start.UnixNano(), 10),
		End:        strconv.FormatInt(s.End.UnixNano(), 10),
		Attributes: attributes(s.Attrs),
	}
	if s.Parent != [8]byte{} {
		out.ParentSpanID = hex.EncodeToString(s.Parent[:])
	}
	if s.Error != "" {
		out.Status = &status{Code: 2, Message: s.Error}
	}
	return out
}

// attributes are attributes as OTLP has them.
func attributes(list []Attr) []attribute {
	out := make([]attribute, len(list))
	for i, a := range list {
		out[i].Key = a.Key
		if a.Text != "" {
			out[i].Value.Text = &a.Text
			continue
		}
		number := strconv.FormatInt(a.Number, 10)
		out[i].Value.Number = &number
	}
	return out
}
