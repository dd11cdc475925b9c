// Package canon holds the canonical form of JSON payloads and the content hash over it.
//
// The canonical form of an object is what Python's json.dumps(json.loads(payload), sort_keys=True) prints:
//
//	{"a": [1, 2.5, 1e+16], "b": "caf\u00e9 \ud83d\ude00"}
//
// Keys are in code point order and each occurs once; separators are ": " and ", "; everything outside printable ASCII
// is escaped as \n \r \t \b \f or \uxxxx in lower case; integers are as written, of any size; floats are Python's
// repr.
//
// There are three steps, from slow to fast. Scanner reads strict JSON and reports where it is wrong. Rewriter is a
// Scanner that prints what it reads in canonical form. Verifier only decides whether bytes are canonical already,
// which most are; what it rejects goes to the Rewriter.
//
// It promises that Verifier accepts exactly what Rewriter leaves unchanged, that every byte of a canonical object is
// printable ASCII, and that whatever the input is, the answer is an *Error with a reason and a place, never a panic.
//
//	out, err := canon.Rewrite([]byte(`{"b":2,"a":1.50}`), 128, 1<<20) // {"a": 1.5, "b": 2}
package canon
