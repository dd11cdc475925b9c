package event

import (
	"encoding/json"
	"strings"

	"github.com/ringrift/ringlog/event/canon"
)

// FieldReader reads the texts of some outermost fields of payloads, all of them in one pass. It is safe for concurrent
// use.
type FieldReader struct {
	names map[string]string // by the keys as canonical payloads spell them
}

// NewFieldReader returns a reader of the fields that flows name in RunBy.
func NewFieldReader(flows ...Flow) *FieldReader {
	r := &FieldReader{names: map[string]string{}}
	for i := range flows {
		for _, name := range flows[i].RunBy {
			// Compared as bytes of the payload, so a key need not be decoded. The quotes are no part of it.
			quoted := canon.AppendQuoted(nil, name)
			r.names[string(quoted[1:len(quoted)-1])] = name
		}
	}
	return r
}

// FieldTexts has the texts of payload fields: a text itself, a number and a boolean as JSON spells them. A field that
// is missing, empty, null, an object or an array is not in it, nor is one that is longer than a name may be.
type FieldTexts map[string]string

// Read returns the texts of the fields. Of a payload that is no JSON object it has none.
func (r *FieldReader) Read(payload []byte) FieldTexts {
	if len(r.names) == 0 {
		return nil
	}
	texts, whole := r.read(payload)
	if whole {
		return texts
	}
	// An event of the log has a canonical payload. One that a caller has made may not.
	canonical, err := Canonicalize(payload, DefaultLimits())
	if err != nil {
		return nil
	}
	texts, _ = r.read(canonical)
	return texts
}

// read is Read of a canonical payload. whole is false if the payload turns out not to be canonical before all fields
// are found.
func (r *FieldReader) read(payload []byte) (texts FieldTexts, whole bool) {
	// No payload is nested deeper than it is long, so the depth bounds nothing here.
	v := canon.Verifier{Data: payload, MaxDepth: len(payload) + 1}
	for found := 0; found < len(r.names); {
		// There are no more members, or the payload is not canonical: Payload distinguishes the two.
		if !v.Next() {
			return texts, v.Payload()
		}
		name, wanted := r.names[string(v.Key)]
		if !wanted {
			continue
		}
		found++
		if text := fieldText(v.Value); text != "" {
			if texts == nil {
				texts = FieldTexts{}
			}
			texts[name] = text
		}
	}
	return texts, true
}

// maxFieldText is how long a value can be, as JSON spells it, whose text is no longer than a name may be.
var maxFieldText = len(`""`) + len(`\u0000`)*DefaultLimits().NameBytes

// fieldText returns the text of a value, "" if it has none.
func fieldText(value []byte) (text string) {
	switch {
	case len(value) > maxFieldText, value[0] == '{', value[0] == '[', string(value) == "null": // Python's None
		return ""
	case value[0] != '"':
		return string(value)
	}
	// The text stays empty where it cannot be read.
	_ = json.Unmarshal(value, &text)
	return text
}

// RunOf returns the id of the run that the fields of RunBy name in a payload: config_key=hex8_2p,iteration=7. It is ""
// if the flow has no RunBy, or the payload lacks one of the fields, or has neither a text, a number nor a boolean in
// it. A text and a number that are spelled alike name the same run.
//
// A stage that names no run so belongs to the run of its correlation id: to the one that the newest stage before it
// names that has the same correlation id, else the first one after it. If there is none either, the stages with that
// correlation id are a run by themselves, and so are those of a flow without RunBy.
func (f *Flow) RunOf(payload []byte) string { return f.RunIn(NewFieldReader(*f).Read(payload)) }

// RunIn is RunOf for the fields of a payload that were read, those of RunBy or more.
func (f *Flow) RunIn(fields FieldTexts) string {
	var id strings.Builder
	for i, name := range f.RunBy {
		text := fields[name]
		if text == "" {
			return ""
		}
		if i > 0 {
			id.WriteByte(',')
		}
		id.WriteString(name + "=" + escapeRunText.Replace(text))
	}
	// It has to be what a correlation id may be, since the cluster reports the run under it.
	if checkName("", id.String(), DefaultLimits()) != nil {
		return ""
	}
	return id.String()
}

// In the id of a run a text has its separators escaped, so that no two runs have one id.
var (
	escapeRunText   = strings.NewReplacer("%", "%25", ",", "%2C", "=", "%3D")
	unescapeRunText = strings.NewReplacer("%25", "%", "%2C", ",", "%3D", "=")
)

// MayName reports whether an id has the form of those that RunOf makes. A correlation id may have it, too: that is
// another run.
func (f *Flow) MayName(id string) bool {
	// Texts have their commas escaped, so the parts are those that RunIn has joined.
	parts := strings.Split(id, ",")
	if len(f.RunBy) == 0 || len(parts) != len(f.RunBy) {
		return false
	}
	for i, part := range parts {
		// A text that is not spelled as RunIn escapes it was not made by RunIn.
		name, text, found := strings.Cut(part, "=")
		if !found || name != f.RunBy[i] || text == "" || escapeRunText.Replace(unescapeRunText.Replace(text)) != text {
			return false
		}
	}
	return true
}
