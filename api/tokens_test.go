package api

import (
	"strings"
	"testing"
)

// FuzzParseToken reads any text as a token. What is one has one form alone: its parts give the text again.
func FuzzParseToken(f *testing.F) {
	bearer, _, _ := MakeToken("")
	f.Add(bearer)
	f.Add(strings.ToUpper(bearer))
	f.Add(bearer + "\n")
	f.Add("rlt_0123456789abcdef_" + strings.Repeat("_", 43))
	f.Add("rlt_0123456789abcdef__" + strings.Repeat("-", 42))
	f.Add("rlt__")
	f.Fuzz(func(t *testing.T, text string) {
		id, secret, ok := ParseToken(text)
		if !ok {
			if id != "" || secret != "" {
				t.Fatalf("%q and %q of what is no token", id, secret)
			}
			return
		}
		if text != tokenPrefix+id+"_"+secret || len(id) != 16 || len(secret) != 43 ||
			strings.Trim(id, "0123456789abcdef") != "" {
			t.Fatalf("%q is %q and %q", text, id, secret)
		}
		// Another secret for the id makes a token of the same id.
		again, sameID, other := MakeToken(id)
		if i, s, ok := ParseToken(again); !ok || sameID != id || i != id || s != other || s == secret {
			t.Fatalf("%q became %q", text, again)
		}
	})
}
