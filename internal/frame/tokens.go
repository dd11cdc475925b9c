package frame

import (
	"encoding/binary"
	"time"

	"github.com/ringrift/ringlog/internal/fields"
)

// SecretDigest is the SHA-256 of a token's secret. No entry has the secret itself.
type SecretDigest [32]byte

// TokenCreate makes a token. The same command again changes nothing.
type TokenCreate struct {
	Name    string // unique among tokens
	ID      string // the part of the token that is no secret, used once
	Secret  SecretDigest
	Roles   []string      // what it may do, as package access names it
	Types   []string      // patterns of the types of events that it is good for; none is all
	Cursors []string      // patterns of the names of cursors and groups; none is all
	TTL     time.Duration // 0: it does not expire
	By      string        // who makes it
}

// TokenRotate gives a token another secret. The one before stays valid for Grace.
type TokenRotate struct {
	Name   string
	Secret SecretDigest  // of the new secret
	Grace  time.Duration // 0 ends the one before at once
}

// TokenRevoke removes a token.
type TokenRevoke struct{ Name string }

// Kind implements Command.
func (TokenCreate) Kind() Kind { return KindTokenCreate }
func (TokenRotate) Kind() Kind { return KindTokenRotate }
func (TokenRevoke) Kind() Kind { return KindTokenRevoke }

// appendTo writes name, id, digest, roles, types, cursors, TTL, who makes it.
func (c TokenCreate) appendTo(b []byte) []byte {
	b = append(fields.Append(fields.Append(b, c.Name), c.ID), c.Secret[:]...)
	b = appendStrings(appendStrings(appendStrings(b, c.Roles), c.Types), c.Cursors)
	return fields.Append(binary.AppendVarint(b, int64(c.TTL)), c.By)
}

// appendTo writes name, digest, grace.
func (c TokenRotate) appendTo(b []byte) []byte {
	return binary.AppendVarint(append(fields.Append(b, c.Name), c.Secret[:]...), int64(c.Grace))
}

// appendTo writes name.
func (c TokenRevoke) appendTo(b []byte) []byte { return fields.Append(b, c.Name) }

// secretDigest reads the 32 bytes.
func (d *decoder) secretDigest() (s SecretDigest) {
	for i := range s {
		s[i] = d.Byte()
	}
	return s
}

// tokenCreate reads what appendTo wrote. What the texts may be is the state machine's to decide.
func (d *decoder) tokenCreate() TokenCreate {
	return TokenCreate{
		Name:    d.string(),
		ID:      d.string(),
		Secret:  d.secretDigest(),
		Roles:   d.strings(),
		Types:   d.strings(),
		Cursors: d.strings(),
		TTL:     time.Duration(d.Varint()),
		By:      d.string(),
	}
}

// tokenRotate reads what appendTo wrote.
func (d *decoder) tokenRotate() TokenRotate {
	return TokenRotate{Name: d.string(), Secret: d.secretDigest(), Grace: time.Duration(d.Varint())}
}
