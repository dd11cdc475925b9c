package server

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"net/http"
	"strings"
	"time"

	"github.com/ringrift/ringlog/api"
)

// sessionLasts is how long a browser is signed in, if its token is good for that long.
const sessionLasts = 12 * time.Hour

// sessions make the cookie by which a signed-in browser calls, and read it. A cookie holds the browser's token and the
// end of the session, sealed with a key that is made of the cluster token: each node of the cluster can read it, and
// nobody else. Browsers send a cookie to every port of a host, so another service there sees it, but not the token.
type sessions struct {
	aead cipher.AEAD // nil without a cluster token: there is no token to sign in with either
}

// newSessions returns the sessions of nodes with this cluster token.
func newSessions(clusterToken string) *sessions {
	if clusterToken == "" {
		return &sessions{}
	}
	// None of the three fails: key and block have sizes that are always good.
	key, _ := hkdf.Key(sha256.New, []byte(clusterToken), nil, "ringlog: session cookie, version 1", 32)
	block, _ := aes.NewCipher(key)
	aead, _ := cipher.NewGCMWithRandomNonce(block)
	return &sessions{aead}
}

// seal returns the value of the cookie of a session with a bearer token.
func (s *sessions) seal(bearer string, end time.Time) string {
	// The end is sealed along: the browser may not extend its session.
	text := binary.BigEndian.AppendUint64(nil, uint64(end.Unix()))
	return base64.RawURLEncoding.EncodeToString(s.aead.Seal(nil, nil, append(text, bearer...), nil))
}

// open returns the bearer token of a request's session. ok is false where there is none, or none any more.
func (s *sessions) open(r *http.Request, now time.Time) (bearer string, ok bool) {
	// Whatever is wrong with a cookie, it is as if there were none: the caller has to sign in.
	cookie, err := r.Cookie(sessionCookie(r))
	if err != nil || s.aead == nil {
		return "", false
	}
	sealed, err := base64.RawURLEncoding.DecodeString(cookie.Value)
	if err != nil {
		return "", false
	}
	// A cookie of another cluster token, or one that was changed, cannot be opened.
	text, err := s.aead.Open(nil, nil, sealed, nil)
	if err != nil || len(text) < 8 || now.Unix() >= int64(binary.BigEndian.Uint64(text)) {
		return "", false
	}
	return string(text[8:]), true
}

// sessionCookie is the name of the cookie. The prefix keeps a browser from taking one that another host of the same
// domain, or a plain connection, has set.
func sessionCookie(r *http.Request) string {
	if r.TLS != nil {
		return "__Host-ringlog-session"
	}
	return "ringlog-session"
}

// write sets the cookie of a browser to a value, or removes it. No page can read it, and only pages of this node's own
// site have a browser send it; what changes something is refused to other origins of that site by admission.
func (s *sessions) write(w http.ResponseWriter, r *http.Request, value string, maxAge int) {
	http.SetCookie(w, &http.Cookie{Name: sessionCookie(r), Value: value, Path: "/", MaxAge: maxAge,
		HttpOnly: true, SameSite: http.SameSiteStrictMode, Secure: r.TLS != nil})
}

// postSession answers POST /v1/session, by which a browser changes its bearer token into a cookie.
func (s *sessions) postSession(w http.ResponseWriter, r *http.Request) error {
	if err := newParams(r).done(); err != nil {
		return err
	}
	// Whoever calls is known: the route needs that. A cookie, or a certificate, is changed into nothing.
	scheme, bearer, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if s.aead == nil || !strings.EqualFold(scheme, "Bearer") {
		return api.Refuse(api.Conflict, "Authorization", "there is no bearer token to make a session of",
			"send Authorization: Bearer TOKEN; a cluster without tokens needs no session")
	}
	w.Header().Set("Cache-Control", "no-store")
	end := time.Now().Add(sessionLasts).UTC().Truncate(time.Second)
	// Without an age the browser forgets the cookie when it ends.
	s.write(w, r, s.seal(strings.TrimSpace(bearer), end), 0)
	return writeJSON(w, http.StatusOK, api.Session{SignedIn: true, Until: &end})
}

// deleteSession answers DELETE /v1/session: the browser forgets its cookie. It needs no session that is still good.
func (s *sessions) deleteSession(w http.ResponseWriter, r *http.Request) error {
	if err := newParams(r).done(); err != nil {
		return err
	}
	s.write(w, r, "", -1)
	return writeJSON(w, http.StatusOK, api.Session{})
}
