package event

import (
	"bytes"
	"encoding/json"
	"errors"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

func addSeeds(f *testing.F) {
	for _, payload := range edgePayloads() {
		f.Add([]byte(payload))
	}
	for _, bad := range badInputs() {
		if len(bad.body) < 1<<16 {
			f.Add([]byte(bad.body))
		}
	}
	f.Add([]byte(fullEvent))
}

// FuzzCanonical: an object the standard library reads is refused only for what the standard library lets pass;
// what is accepted is canonical after one step, and only then does the verifier agree with the input.
func FuzzCanonical(f *testing.F) {
	addSeeds(f)
	stricter := []string{ReasonDuplicateKey, ReasonTooDeep, ReasonLoneSurrogate, ReasonInvalidUTF8, ReasonNotANumber, ReasonTooLarge}
	f.Fuzz(func(t *testing.T, data []byte) {
		out, err := canonicalPayload(data, DefaultLimits())
		isCanonical := (&verifier{data: data, maxDepth: 128}).payload()
		if err != nil {
			isObject := bytes.HasPrefix(bytes.TrimLeft(data, " \t\r\n"), []byte("{")) && json.Valid(data)
			if isCanonical || isObject && !slices.Contains(stricter, err.Reason) {
				t.Fatalf("%q refused: %v (%s)", data, err, err.Reason)
			}
			if err.Position > int64(len(data)) {
				t.Fatalf("%q: position %d is outside", data, err.Position)
			}
			return
		}
		if !json.Valid(data) || !json.Valid(out) {
			t.Fatalf("%q is no JSON and became %q", data, out)
		}
		if isCanonical != bytes.Equal(data, out) {
			t.Fatalf("verifier says %v of %q, canonical is %q", isCanonical, data, out)
		}
		if !(&verifier{data: out, maxDepth: 128}).payload() {
			t.Fatalf("verifier refuses %q", out)
		}
		if again, err := canonicalPayload(out, DefaultLimits()); err != nil || !bytes.Equal(again, out) {
			t.Fatalf("%q became %q: %v", out, again, err)
		}
	})
}

// FuzzDecode: no decoder panics, and an event that passed the gate survives being printed, read and sent again.
func FuzzDecode(f *testing.F) {
	addSeeds(f)
	gate := Policy{Reserved: ReservedForeign}
	f.Fuzz(func(t *testing.T, data []byte) {
		_, _ = DecodeArray(data, Limits{})
		_, _ = DecodeNDJSON(data, Limits{})
		_, _ = ParseDefinitions(data)
		e, err := DecodeOne(data, Limits{})
		if err != nil {
			if bad := new(Error); !errors.As(err, &bad) || bad.Reason == "" {
				t.Fatalf("%q: %v is no *Error", data, err)
			}
			return
		}
		hash, _, err := gate.Normalize(&e)
		if err != nil {
			return
		}
		e.Offset, e.Term, e.AppendedAt = 7, 3, e.Time
		line := e.AppendJSON(nil)
		if bytes.ContainsRune(line, '\n') || !json.Valid(line) || !bytes.Contains(line, []byte(hash.String())) {
			t.Fatalf("printed as %q", line)
		}
		var read Event
		if err := read.UnmarshalJSON(line); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		if diff := cmp.Diff(e, read, cmpopts.IgnoreUnexported(Event{})); diff != "" {
			t.Fatalf("%s: %s", line, diff)
		}
		sent, err := DecodeOne(line, Limits{RequestBytes: 16 << 20})
		if err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		if again, _, err := gate.Normalize(&sent); err != nil || again != hash || sent.Offset != 0 {
			t.Fatalf("sent again: %v, hash %s and %s, offset %d", err, hash, again, sent.Offset)
		}
	})
}
