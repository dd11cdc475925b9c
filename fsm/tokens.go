package fsm

import (
	"crypto/subtle"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"iter"
	"strings"
	"time"

	"github.com/RaduBerinde/btreemap"

	"github.com/ringrift/ringlog/internal/frame"
	"github.com/ringrift/ringlog/internal/human"
)

// A token is what a caller shows to be let in. The state has the digest of its secret, and what it is good for in words
// that nothing here looks into: what a role may do is decided where a request comes in.
//
// A token that has expired stays until it is revoked, so that a cluster does not begin to let everybody in because its
// last token has expired.

// Bounds of a token.
const (
	MaxTokenText     = 256 // bytes of its name, its id, a pattern, and who makes it
	MaxTokenPatterns = 64  // of each kind
	maxTokenRoles    = 8
	MaxTokenTTL      = 10 * year
	MaxTokenGrace    = 30 * 24 * time.Hour
)

// SecretDigest is the SHA-256 of a token's secret.
type SecretDigest frame.SecretDigest

// MarshalText implements encoding.TextMarshaler with lower-case hex.
func (s SecretDigest) MarshalText() ([]byte, error) { return hex.AppendEncode(nil, s[:]), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (s *SecretDigest) UnmarshalText(text []byte) error {
	if hex.DecodedLen(len(text)) != len(s) {
		return fmt.Errorf("the digest of a secret in %d characters", len(text))
	}
	_, err := hex.Decode(s[:], text)
	return err
}

// Token is a token as it is stored. A Token is never changed.
type Token struct {
	Name    string       `json:"-"`  // unique
	ID      string       `json:"id"` // the part of the token that is no secret
	Secret  SecretDigest `json:"secret"`
	Roles   []string     `json:"roles"`             // as the node that let it be made knows them
	Types   []string     `json:"types,omitempty"`   // patterns; none is all
	Cursors []string     `json:"cursors,omitempty"` // likewise
	By      string       `json:"by"`                // who has made it

	// Times are in replicated Unix nanoseconds.
	Made    int64 `json:"made_ns"`
	Expires int64 `json:"expires_ns,omitzero"` // 0: it does not
	Rotated int64 `json:"rotated_ns,omitzero"` // when it got its secret, if that is not the first one

	// Before is the secret that it had before, which counts until BeforeUntil.
	Before      SecretDigest `json:"before,omitzero"`
	BeforeUntil int64        `json:"before_until_ns,omitzero"`
}

// Tokens are all tokens, as of one entry. They do not change.
type Tokens struct {
	byName   orderedMap[string, *Token]
	byID     orderedMap[string, *Token] // the same tokens
	replaced chan struct{}              // closed by the next publishTokens
}

// newTokens returns no tokens.
func newTokens() *Tokens {
	return &Tokens{
		byName:   btreemap.New[string, *Token](32, strings.Compare),
		byID:     btreemap.New[string, *Token](32, strings.Compare),
		replaced: make(chan struct{}),
	}
}

// Len returns how many there are.
func (t *Tokens) Len() int { return t.byName.Len() }

// ByName returns the token of that name, and nil if there is none.
func (t *Tokens) ByName(name string) *Token {
	_, one, _ := t.byName.Get(name)
	return one
}

// ByID returns the token with that id, and nil if there is none.
func (t *Tokens) ByID(id string) *Token {
	_, one, _ := t.byID.Get(id)
	return one
}

// All returns them by name.
func (t *Tokens) All() iter.Seq2[string, *Token] {
	return t.byName.Ascend(btreemap.Min[string](), btreemap.Max[string]())
}

// Replaced is closed once there are newer ones.
func (t *Tokens) Replaced() <-chan struct{} { return t.replaced }

// put enters a token in place of the one of its name. Only the state's own are changed; those that readers have are
// clones.
func (t *Tokens) put(one *Token) {
	t.remove(one.Name)
	t.byName.ReplaceOrInsert(one.Name, one)
	t.byID.ReplaceOrInsert(one.ID, one)
}

// remove removes the token of a name, if there is one.
func (t *Tokens) remove(name string) {
	if _, known, some := t.byName.Delete(name); some {
		t.byID.Delete(known.ID)
	}
}

// loadToken reads a stored token. Its name is the key's.
func (s *state) loadToken(name string, value []byte) error {
	one := &Token{}
	if err := json.Unmarshal(value, one); err != nil {
		return err
	}
	one.Name = name
	s.tokens.put(one)
	return nil
}

// Tokens returns all tokens, as of the newest entry that was stored. It does not wait for an entry that is being
// applied.
func (v *views) Tokens() *Tokens { return v.tokens.Load() }

// publishTokens shows the tokens to readers. Most entries change none; what they cost does not grow with how many
// there are, as the trees are copied where they change.
func (v *views) publishTokens(changed bool) {
	if !changed {
		return
	}
	next := &Tokens{cloneMap(v.s.tokens.byName), cloneMap(v.s.tokens.byID), make(chan struct{})}
	if old := v.tokens.Swap(next); old != nil {
		close(old.replaced)
	}
}

// tokenApplier decides which tokens there are.
type tokenApplier struct {
	*applying
	tokensChanged bool // by this entry, so readers get new ones
}

// createToken makes a token.
func (a *tokenApplier) createToken(c frame.TokenCreate) Result {
	if refused := refuseToken(c); refused != nil {
		return *refused
	}
	known := a.s.tokens.ByName(c.Name)
	switch {
	// The same call, whose answer was lost.
	case known != nil && known.ID == c.ID && known.Secret == SecretDigest(c.Secret):
		return Result{Token: known, Replayed: true}
	case known != nil:
		return refuse(Exists, "name", fmt.Sprintf("there is a token %q", c.Name),
			"use another name; or give that one another secret, or revoke it first")
	case a.s.tokens.ByID(c.ID) != nil:
		return refuse(Exists, "id", "another token has that id", "make it again, which takes another one")
	case uint64(a.s.tokens.Len()) >= a.s.settings.TokensMax:
		return refuse(Overloaded, "name", fmt.Sprintf("there are %d tokens, which is the limit", a.s.tokens.Len()),
			"revoke some, or raise tokens.max")
	}
	// Times are the entry's, the same on every node.
	made := &Token{Name: c.Name, ID: c.ID, Secret: SecretDigest(c.Secret), Roles: c.Roles, Types: c.Types,
		Cursors: c.Cursors, By: c.By, Made: a.now}
	if c.TTL != 0 {
		made.Expires = a.now + int64(c.TTL)
	}
	a.keepToken(made)
	return Result{Token: made}
}

// refuseToken returns what is wrong with a token, and nil for a sound one. It looks at the form alone: which roles
// there are is decided where a request comes in.
func refuseToken(c frame.TokenCreate) *Result {
	texts := []claimText{{"name", c.Name}, {"id", c.ID}, {"by", c.By}}
	lists := []struct {
		field string
		most  int
		list  []string
	}{{"roles", maxTokenRoles, c.Roles}, {"types", MaxTokenPatterns, c.Types}, {"cursors", MaxTokenPatterns, c.Cursors}}
	// How many there are, and then each of them as a text.
	for _, l := range lists {
		if len(l.list) > l.most {
			r := refuse(Invalid, l.field, fmt.Sprintf("%d of them", len(l.list)), fmt.Sprintf("send up to %d", l.most))
			return &r
		}
		for i, text := range l.list {
			texts = append(texts, claimText{fmt.Sprintf("%s[%d]", l.field, i), text})
		}
	}
	for _, text := range texts {
		if refused := text.refuse(); refused != nil {
			return refused
		}
	}
	if c.TTL < 0 || c.TTL > MaxTokenTTL {
		r := refuse(Invalid, "expires", fmt.Sprintf("in %s", c.TTL), "send a time up to ten years from now")
		return &r
	}
	return nil
}

// rotateToken gives a token another secret.
func (a *tokenApplier) rotateToken(c frame.TokenRotate) Result {
	known := a.s.tokens.ByName(c.Name)
	switch {
	case known == nil:
		return noToken(c.Name)
	case c.Grace < 0 || c.Grace > MaxTokenGrace:
		return refuse(Invalid, "grace", fmt.Sprintf("a grace of %s", c.Grace),
			fmt.Sprintf("send one up to %s", human.Exact(MaxTokenGrace)))
	// The same call, whose answer was lost.
	case known.Secret == SecretDigest(c.Secret):
		return Result{Token: known, Replayed: true}
	}
	// Readers have the old one.
	next := *known
	next.Secret, next.Rotated = SecretDigest(c.Secret), a.now
	// Without a grace the old secret ends at once.
	next.Before, next.BeforeUntil = SecretDigest{}, 0
	if c.Grace > 0 {
		next.Before, next.BeforeUntil = known.Secret, a.now+int64(c.Grace)
	}
	a.keepToken(&next)
	return Result{Token: &next}
}

// revokeToken removes a token. Its name and its id are free from here on.
func (a *tokenApplier) revokeToken(c frame.TokenRevoke) Result {
	known := a.s.tokens.ByName(c.Name)
	if known == nil {
		return noToken(c.Name)
	}
	a.s.tokens.remove(c.Name)
	a.tx.Delete(key(prefixToken, c.Name))
	a.tokensChanged = true
	return Result{Token: known}
}

// noToken refuses a command about a token that there is not.
func noToken(name string) Result {
	return refuse(NotFound, "name", fmt.Sprintf("there is no token %q", name),
		"list them: GET /v1/tokens, or ringlog token ls")
}

// keepToken stores a token.
func (a *tokenApplier) keepToken(one *Token) {
	a.s.tokens.put(one)
	a.tx.setJSON(key(prefixToken, one.Name), one)
	a.tokensChanged = true
}

// Proves reports whether a digest is that of a secret which the token has at a time, in Unix nanoseconds. How long it
// takes says nothing about the secrets.
func (t *Token) Proves(digest SecretDigest, now int64) bool {
	current := subtle.ConstantTimeCompare(digest[:], t.Secret[:])
	before := subtle.ConstantTimeCompare(digest[:], t.Before[:])
	return current == 1 || (before == 1 && now < t.BeforeUntil)
}

// Expired reports whether a token has expired by a time, in Unix nanoseconds.
func (t *Token) Expired(now int64) bool { return t.Expires != 0 && now >= t.Expires }
