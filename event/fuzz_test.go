package event

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

func addSeeds(f *testing.F) {
	data, err := os.ReadFile("canon/testdata/canonical.json")
	if err != nil {
		f.Fatal(err)
	}
	var vectors []struct{ Input string }
	if err := json.Unmarshal(data, &vectors); err != nil {
		f.Fatal(err)
	}
	for _, v := range vectors {
		f.Add([]byte(v.Input))
	}
	for _, bad := range badInputs() {
		if len(bad.body) < 1<<16 {
			f.Add([]byte(bad.body))
		}
	}
	f.Add([]byte(fullEvent))
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
