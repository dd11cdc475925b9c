package api

import (
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"regexp"
	"strings"
	"time"
	"unicode"
)

// Token is a token as GET /v1/tokens shows it. Its secret is in the answer to its creation or rotation alone.
type Token struct {
	Name    string   `json:"name"`
	ID      string   `json:"id"`
	Roles   []string `json:"roles"`
	Types   []string `json:"types,omitempty"`   // patterns; none is all types
	Cursors []string `json:"cursors,omitempty"` // patterns; none is all cursors and groups

	Made    time.Time `json:"made"`
	By      string    `json:"by"`
	Expires time.Time `json:"expires,omitzero"`
	Expired bool      `json:"expired,omitempty"`
	// Rotated is when it got the secret that it has; BeforeUntil is until when the one before counts, too.
	Rotated     time.Time `json:"rotated,omitzero"`
	BeforeUntil time.Time `json:"before_until,omitzero"`
}

// Tokens are all tokens, by name: GET /v1/tokens.
type Tokens struct {
	Tokens []Token `json:"tokens"`
}

// Session is the answer to POST and DELETE /v1/session.
type Session struct {
	SignedIn bool       `json:"signed_in"`
	Until    *time.Time `json:"until,omitempty"` // when the cookie ends
}

// NewToken is the body of PUT /v1/tokens/{name}.
type NewToken struct {
	Roles   []string `json:"roles"`
	Types   []string `json:"types,omitempty"`
	Cursors []string `json:"cursors,omitempty"`
	Expires string   `json:"expires,omitempty"` // an age, such as 90d; "" is never
}

// TokenRotation is the body of POST /v1/tokens/{name}/rotate.
type TokenRotation struct {
	Grace string `json:"grace,omitempty"` // for which the secret before counts; "" is DefaultTokenGrace
}

// DefaultTokenGrace is for how long both secrets of a token count after a rotation, unless the caller says otherwise.
const DefaultTokenGrace = time.Hour

// TokenMade is the answer to what makes a secret, which is shown this once.
type TokenMade struct {
	Token
	Bearer   string   `json:"token"` // for Authorization: Bearer
	Warnings []string `json:"warnings,omitempty"`
}

// tokenPrefix begins every token, so that programs which look for secrets find them.
const tokenPrefix = "rlt_"

// secretSize is the size of a secret, in bytes.
const secretSize = 32

// tokenForm is the form of a token: its id, which is no secret, and its secret.
var tokenForm = regexp.MustCompile(`^rlt_[0-9a-f]{16}_[A-Za-z0-9_-]{43}$`)

// MakeToken returns a new token with an id, or with another secret for the id that is given.
func MakeToken(id string) (bearer, tokenID, secret string) {
	var random [secretSize]byte
	if id == "" {
		_, _ = rand.Read(random[:8]) // never fails
		id = hex.EncodeToString(random[:8])
	}
	_, _ = rand.Read(random[:])
	secret = base64.RawURLEncoding.EncodeToString(random[:])
	return tokenPrefix + id + "_" + secret, id, secret
}

// ParseToken returns the parts of a token, and false for a text that has not the form of one.
func ParseToken(text string) (id, secret string, ok bool) {
	if !tokenForm.MatchString(text) {
		return "", "", false
	}
	id, secret, _ = strings.Cut(strings.TrimPrefix(text, tokenPrefix), "_")
	return id, secret, true
}

// CheckToken refuses a token that no header can carry. The error does not show it.
func CheckToken(token string) error {
	// A node that took such a token would serve nobody.
	at := strings.IndexFunc(token, unicode.IsControl)
	if at < 0 {
		return nil
	}
	return fmt.Errorf("a token is one line without control characters: see line %d", 1+strings.Count(token[:at+1], "\n"))
}
