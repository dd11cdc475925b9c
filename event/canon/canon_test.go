package canon

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"
)

// badPayloads are the corners of what is refused.
func badPayloads() []string {
	return []string{
		"", " \n\t", "hello", "17", "[]", `"x"`, `{'a':1}`, `{"a":1,}`, `{"a":tru`, `{"a":"b`, `{"a":"\`, `{"a":-`, `{} {}`,
		`{"a":1,"b":2,"\u0061":3}`, `{"a":[[[[[[1]]]]]]`, "{\"a\":\"\xff\"}", "{\"a\":\"\xed\xa0\x80\"}",
		"{\"a\":\"\\n\xc0\x80\"}", `{"a":"\ud83d"}`, `{"a":"\ude00\ud83d"}`, `{"a":"\ud83d\ud83d"}`, "{\"a\":\"b\nc\"}",
		`{"a":"\x41"}`, `{"a":"\u12"}`, `{"a":01}`, `{"a":+1}`, `{"a":1.}`, `{"a":NaN}`, `{"a":-Infinity}`, `{"a":-1E400}`,
	}
}

// A string is canonical if all its bytes are, at whatever place the one is that is not.
func TestEveryByteAtEveryPlaceOfAString(t *testing.T) {
	for c := range 256 {
		for size := range 20 {
			for at := range size {
				text := []byte(`{"` + strings.Repeat("~", size) + `": 1}`)
				text[2+at] = byte(c)
				out, err := Rewrite(text, maxDepth, maxBytes)
				if got := isCanonical(text); got != (err == nil && string(out) == string(text)) {
					t.Fatalf("%q: verified %v, canonical %q, %v", text, got, out, err)
				}
			}
		}
	}
}

// FuzzRewrite: an object that the standard library reads is refused only for a rule that the standard library does not
// have. What is accepted is canonical after one step, and the verifier accepts exactly the canonical form.
func FuzzRewrite(f *testing.F) {
	for _, payload := range edgePayloads() {
		f.Add([]byte(payload))
	}
	for _, bad := range badPayloads() {
		f.Add([]byte(bad))
	}
	stricter := []string{
		ReasonDuplicateKey,
		ReasonTooDeep,
		ReasonLoneSurrogate,
		ReasonInvalidUTF8,
		ReasonNotANumber,
		ReasonTooLarge,
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		out, err := Rewrite(data, maxDepth, maxBytes)
		canonical := isCanonical(data)
		if err != nil {
			isObject := bytes.HasPrefix(bytes.TrimLeft(data, " \t\r\n"), []byte("{")) && json.Valid(data)
			if canonical || (isObject && !slices.Contains(stricter, err.Reason)) {
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
		if canonical != bytes.Equal(data, out) {
			t.Fatalf("verifier says %v of %q, canonical is %q", canonical, data, out)
		}
		if !isCanonical(out) {
			t.Fatalf("verifier refuses %q", out)
		}
		if again, err := Rewrite(out, maxDepth, maxBytes); err != nil || !bytes.Equal(again, out) {
			t.Fatalf("%q became %q: %v", out, again, err)
		}
	})
}

const benchPayload = `{"accuracy": 0.8731, "board_type": "hex8", "epochs": 40, "final_loss": 0.02391, ` +
	`"host": "gpu-node-17", "model": "hex8_2p_v41.pth", "ok": true, "t": 1767607200.25}`

func BenchmarkVerifyAndHash(b *testing.B) {
	payload := []byte(benchPayload)
	b.SetBytes(int64(len(payload)))
	b.ReportAllocs()
	for b.Loop() {
		if !isCanonical(payload) {
			b.Fatal("not canonical")
		}
		ContentHash("training_completed", payload)
	}
}

func BenchmarkVerify(b *testing.B) {
	payload := []byte(benchPayload)
	b.SetBytes(int64(len(payload)))
	for b.Loop() {
		if !isCanonical(payload) {
			b.Fatal("not canonical")
		}
	}
}
