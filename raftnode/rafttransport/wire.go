package rafttransport

import (
	"encoding/binary"
	"fmt"
	"io"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Every frame of the handshake, integers big-endian:
//
//	0        4     5      6        8
//	+--------+-----+------+--------+------------------+
//	| "RLRH" | ver | kind | length | body, <= 1057    |
//	+--------+-----+------+--------+------------------+
//
// The header, the hello and the refusal stay as they are in every version and have
// version 1, so peers of different versions understand them. The frames between
// are of the newest version that both sides speak. A str is one length byte and that
// many bytes.
//
//	hello    kind 1  | flags 1 | oldest 1 | newest 1 | nonce 32 | str cluster | str node |
//	                 | str incarnation | str target |
//	                 flags bit 0: the sender has a cluster token; other bits are 0
//	                 oldest, newest: the versions that the sender speaks
//	                 target: the node id the sender wants to talk to, "" = whoever answers
//	proof    kind 2  | HMAC-SHA256 32 | where both have a token, else empty
//	ready    kind 3  | empty |
//	refusal  kind 4  | code 1 | str message |
//
//	dialer                     acceptor
//	  hello   ------------------>        checks what the hello says
//	          <------------------  hello
//	  proof   ------------------>        checks it, asks membership
//	          <------------------  proof
//	  ready   ------------------>        the first RPC may follow
//
// A refusal may replace any frame and ends the connection. The dialer proves first,
// so a stranger who dials gets nothing that was derived from the token.
//
// With TLS all of this is inside a connection of TLS 1.3, in which both sides have shown a certificate. It is verified
// before the first frame is sent or believed, and the hello's node has to be the certificate's. Proofs then cover the
// exporter of the connection as well (RFC 8446, section 7.5; label exporterLabel, no context, 32 bytes).
const (
	magic        = "RLRH"
	helloVersion = 1 // of hellos and refusals, for good
	headerLen    = 8
	nonceLen     = 32
	proofLen     = 32
	maxStr       = 255
	maxBody      = helloFixed + 4*(1+maxStr)

	helloFixed = 1 + 2 + nonceLen

	flagProves = 1

	kindHello   = 1
	kindProof   = 2
	kindReady   = 3
	kindRefusal = 4

	recordHandshake = 0x16 // with which TLS begins
)

// versions is the range of versions that a side speaks, both ends included.
type versions struct{ oldest, newest byte }

// spoken is the range of this build.
var spoken = versions{1, 1}

// common is the newest version that both sides speak, 0 if there is none.
func (v versions) common(other versions) byte {
	if newest := min(v.newest, other.newest); newest >= max(v.oldest, other.oldest) {
		return newest
	}
	return 0
}

// frame is a whole frame as it was on the wire.
type frame []byte

func (f frame) kind() byte   { return f[5] }
func (f frame) body() []byte { return f[headerLen:] }

// newFrame builds a frame; body must not exceed maxBody.
func newFrame(version, kind byte, body []byte) frame {
	f := make(frame, 0, headerLen+len(body))
	f = append(f, magic...)
	f = append(f, version, kind)
	f = binary.BigEndian.AppendUint16(f, uint16(len(body)))
	return append(f, body...)
}

// readFrame reads exactly one frame and allocates at most headerLen+maxBody
// bytes, whatever the peer claims. It returns a *RefusedError if the bytes are
// wrong, with ErrVersion for a frame of another version that is not a refusal, and
// the reader's own error otherwise.
func readFrame(r io.Reader, version byte) (frame, error) {
	var head [headerLen]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return nil, err
	}
	// A node without TLS is dialled by one that has it.
	if head[0] == recordHandshake {
		return nil, refusef(ErrNoTLS, "the peer dials with TLS, which this node does not have")
	}
	if string(head[:4]) != magic {
		if isWebRequest(head[:]) {
			e := refusef(ErrMalformed, "a request of HTTP: a client has this port for that of --http")
			e.web = true
			return nil, e
		}
		return nil, refusef(ErrMalformed, "opens with %q", head[:4])
	}
	// A refusal is understood in any version, so a peer learns why.
	if v, kind := head[4], head[5]; v != version && kind != kindRefusal {
		return nil, refusef(ErrVersion, "a frame of version %d where one of %d belongs", v, version)
	}
	// The length is checked before memory is allocated for it.
	n := int(binary.BigEndian.Uint16(head[6:]))
	if n > maxBody {
		return nil, refusef(ErrMalformed, "claims a frame of %d bytes, at most %d are", n, maxBody)
	}
	f := make(frame, headerLen+n)
	copy(f, head[:])
	if _, err := io.ReadFull(r, f.body()); err != nil {
		return nil, err
	}
	return f, nil
}

// hello is the body of the first frame of each side.
type hello struct {
	Identity
	speaks versions
	proves bool // the sender has a cluster token
	nonce  [nonceLen]byte
	target string // the node id that the sender wants to talk to; "": any
}

// encode fails if a field cannot be sent: what this node states is checked as strictly as what it reads.
func (h hello) encode() (frame, error) {
	if h.NodeID == "" || h.Incarnation == "" {
		return nil, fmt.Errorf("node id %q or incarnation %q is empty", h.NodeID, h.Incarnation)
	}
	body := make([]byte, 1, maxBody)
	if h.proves {
		body[0] |= flagProves
	}
	body = append(body, h.speaks.oldest, h.speaks.newest)
	body = append(body, h.nonce[:]...)
	// What a peer would refuse is found here, with a better error.
	for _, s := range []string{h.ClusterID, h.NodeID, h.Incarnation, h.target} {
		if len(s) > maxStr || printable(s) != s {
			return nil, fmt.Errorf("%q is not printable or longer than %d bytes", s, maxStr)
		}
		body = appendStr(body, s)
	}
	return newFrame(helloVersion, kindHello, body), nil
}

// decodeHello decodes and checks a hello; its errors are refusals with ErrMalformed.
func decodeHello(body []byte) (hello, error) {
	var h hello
	if len(body) < helloFixed {
		return h, refusef(ErrMalformed, "hello of %d bytes", len(body))
	}
	// The hello is the same in every version: there are no other flags.
	if body[0]&^flagProves != 0 {
		return h, refusef(ErrMalformed, "unknown flags %#x", body[0])
	}
	h.proves = body[0]&flagProves != 0
	h.speaks = versions{body[1], body[2]}
	rest := body[3+copy(h.nonce[:], body[3:]):]
	for _, field := range []*string{&h.ClusterID, &h.NodeID, &h.Incarnation, &h.target} {
		var ok bool
		*field, rest, ok = cutStr(rest)
		if !ok || printable(*field) != *field {
			return hello{}, refusef(ErrMalformed, "hello with a cut or unprintable field")
		}
	}
	if len(rest) > 0 || h.NodeID == "" || h.Incarnation == "" {
		return hello{}, refusef(ErrMalformed, "hello with an empty id or trailing bytes")
	}
	return h, nil
}

// encodeRefusal truncates the detail to what a str can hold.
func encodeRefusal(e *RefusedError) frame {
	words := e.Detail[:min(len(e.Detail), maxStr)]
	return newFrame(helloVersion, kindRefusal, appendStr([]byte{codeOf(e.Reason)}, words))
}

// decodeRefusal decodes the peer's refusal; the text is made printable.
func decodeRefusal(body []byte) (*RefusedError, error) {
	if len(body) == 0 {
		return nil, refusef(ErrMalformed, "empty refusal")
	}
	words, rest, ok := cutStr(body[1:])
	if !ok || len(rest) > 0 {
		return nil, refusef(ErrMalformed, "refusal of wrong length")
	}
	return &RefusedError{ByPeer: true, Reason: sentinelFor(body[0]), Detail: clean([]byte(words))}, nil
}

// appendStr appends a str, which must not exceed maxStr bytes.
func appendStr(b []byte, s string) []byte {
	return append(append(b, byte(len(s))), s...)
}

// cutStr returns the str that b begins with and the bytes after it; ok is false if it is cut.
func cutStr(b []byte) (s string, rest []byte, ok bool) {
	if len(b) == 0 || len(b) < 1+int(b[0]) {
		return "", nil, false
	}
	n := 1 + int(b[0])
	return string(b[1:n]), b[n:], true
}

// clean is the part of a peer's bytes that may go into a record or a log line: printable, at most maxStr.
func clean(b []byte) string { return printable(string(b[:min(len(b), maxStr)])) }

// printable is s without characters that could forge a log line.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r == utf8.RuneError || !unicode.IsPrint(r) {
			return -1
		}
		return r
	}, s)
}
