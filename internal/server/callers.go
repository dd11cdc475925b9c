package server

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"crypto/tls"
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/fsm"
	"github.com/ringrift/ringlog/internal/access"
	"github.com/ringrift/ringlog/internal/certs"
)

// headerPrincipal names the token on whose behalf another node calls. It is believed from a node alone.
const headerPrincipal = "Ringlog-Principal"

// cutOffAfter is how long a node that hears no leader honours tokens for more than monitoring: it does not learn that
// one is revoked.
const cutOffAfter = 10 * time.Second

// lookEvery is how often open streams are compared with the tokens, beside each change of them.
const lookEvery = 250 * time.Millisecond

// callers knows who calls, and ends streams whose token is no longer valid. It is safe for concurrent use.
//
//	no token at all, in the configuration or in the state    everybody, who may do everything
//	Authorization: Bearer CLUSTER-TOKEN                       root; or whom a node names that passes a call on
//	Authorization: Bearer rlt_ID_SECRET                       the token with that id
//	a cookie of POST /v1/session                              whoever has the token that it was made of
//	a certificate of ringlog://client/NAME                    the token of that name
//	a certificate of ringlog://node/ID, of a member           that node; or whom it names
//	anything else                                             nobody
type callers struct {
	node  Node
	token string            // of the cluster; "" is none
	proof [sha256.Size]byte // digest of token

	sessions *sessions // cookies of browsers

	principals atomic.Pointer[principals] // of the tokens that there are now; nil before the first is asked for

	mu      sync.Mutex
	lasting map[*lasting]struct{} // what is open; mu guards it
}

// principals are those of the tokens of one state, as they were asked for.
type principals struct {
	tokens *fsm.Tokens // they are replaced as a whole, and these principals with them
	byID   sync.Map    // of *tokenHolder
}

// tokenHolder is whoever has a token, at this node.
type tokenHolder struct {
	*access.Principal
	pace atomic.Pointer[rate.Limiter] // of requests, by limits.requests_per_second; nil while nothing is bounded
}

// caller is who makes a call, and how that is known.
type caller struct {
	*access.Principal
	id     string           // of the token; "" for any other caller
	secret fsm.SecretDigest // that was shown, unless named
	named  bool             // by a certificate, or by another node
}

// lasting is a stream, an exchange or a publish stream.
type lasting struct {
	who   *caller           // whose token has to stay good
	needs access.Permission // what it takes
	end   func(why error)   // ends it; it may be called more than once, and must not wait
}

// payer names the budget that a call at a remote address counts in: that of its token, so that callers of one address
// do not keep each other out, else that of the address. It is "" for a connection within this process.
func payer(who *caller, remote string) string {
	if who != nil && who.id != "" {
		return "token " + who.id
	}
	// IPv4 in IPv6 form is the same caller.
	if at, err := netip.ParseAddrPort(remote); err == nil {
		return at.Addr().Unmap().String()
	}
	return ""
}

// newCallers returns the callers of a server. run has to be started for streams to end with their tokens.
func newCallers(cfg Config) *callers {
	return &callers{node: cfg.Node, token: cfg.Token, proof: sha256.Sum256([]byte(cfg.Token)),
		sessions: newSessions(cfg.Token), lasting: map[*lasting]struct{}{}}
}

// required reports whether callers have to be known: there is a cluster token, or any other.
// The tokens of an incident are those of its cluster: its callers are whoever has the file.
func (c *callers) required() bool {
	_, replayed := c.node.(Replayer)
	return c.token != "" || (!replayed && c.node.Machine().Tokens().Len() > 0)
}

// identify returns who makes a request. The error is for a caller that has to be known. Where
// nobody has to be it never fails.
func (c *callers) identify(r *http.Request) (*caller, error) {
	// Nothing that is shown counts then.
	if !c.required() {
		return &caller{Principal: access.Anybody()}, nil
	}
	known, err := c.identifySelf(r)
	if err != nil {
		return nil, err
	}
	name := r.Header.Get(headerPrincipal)
	if name == "" || !known.IsNode() {
		return known, nil
	}
	// Another node has let this caller in, and its decision counts. The token may have been revoked since.
	token := c.node.Machine().Tokens().ByName(name)
	if token == nil {
		return nil, unauthenticated(api.ReasonRevoked, fmt.Sprintf("there is no token %q any more", name))
	}
	named := c.holder(token)
	named.named = true
	return c.checked(named)
}

// identifySelf returns who has made the request to this node.
func (c *callers) identifySelf(r *http.Request) (*caller, error) {
	// A token that is shown counts before a certificate or a cookie.
	if shown := r.Header.Get("Authorization"); shown != "" {
		scheme, token, _ := strings.Cut(shown, " ")
		if !strings.EqualFold(scheme, "Bearer") {
			return nil, wrongToken()
		}
		return c.bearer(strings.TrimSpace(token))
	}
	// TLS has verified the chain; the name in it says who it is.
	if r.TLS != nil && len(r.TLS.VerifiedChains) > 0 {
		return c.certified(r.TLS)
	}
	// A browser that has signed in.
	if bearer, ok := c.sessions.open(r, time.Now()); ok {
		return c.bearer(bearer)
	}
	return nil, wrongToken()
}

// bearer returns who has a token. How long it takes says nothing about a secret. A token that is unknown and one with a
// wrong secret get the same error.
func (c *callers) bearer(shown string) (*caller, error) {
	// The form says which it is: a token of the state, or the cluster's.
	id, secret, ok := api.ParseToken(shown)
	if !ok {
		// Digests have one length for every token.
		given := sha256.Sum256([]byte(shown))
		if c.token == "" || subtle.ConstantTimeCompare(given[:], c.proof[:]) != 1 {
			return nil, wrongToken()
		}
		return &caller{Principal: access.Root()}, nil
	}
	token := c.node.Machine().Tokens().ByID(id)
	if token == nil {
		return nil, wrongToken()
	}
	// The secret is kept, so that a stream ends when the token is rotated and the grace is over.
	known := c.holder(token)
	known.secret = sha256.Sum256([]byte(secret))
	return c.checked(known)
}

// certified returns who has a certificate, which TLS has verified.
func (c *callers) certified(state *tls.ConnectionState) (*caller, error) {
	who, err := certs.IdentityOf(state.PeerCertificates[0])
	if err != nil {
		return nil, unauthenticated("", err.Error())
	}
	// A certificate stays valid after its node was removed: only a member is let in.
	if who.Kind == certs.Node {
		for _, m := range c.node.Machine().Members() {
			if m.ID == who.Name {
				return &caller{Principal: access.Member(who.Name)}, nil
			}
		}
		return nil, unauthenticated("", fmt.Sprintf("the certificate is of %s, which is no member", who))
	}
	// A client's certificate is as good as the token of its name, which says what it may do.
	token := c.node.Machine().Tokens().ByName(who.Name)
	if token == nil {
		return nil, unauthenticated("", fmt.Sprintf("the certificate is of %s, and there is no token %q", who, who.Name))
	}
	known := c.holder(token)
	known.named = true
	return c.checked(known)
}

// holder returns the caller that has a token. It does not say whether the token is good, see checked.
func (c *callers) holder(token *fsm.Token) *caller {
	return &caller{Principal: c.known(token).Principal, id: token.ID}
}

// known returns what this node has of a token. It is made once for each token and state, and shared by all of its
// calls.
func (c *callers) known(token *fsm.Token) *tokenHolder {
	tokens := c.node.Machine().Tokens()
	known := c.principals.Load()
	// Tokens have changed: their roles and scopes are read again. Two calls may both do it, which only costs time.
	if known == nil || known.tokens != tokens {
		known = &principals{tokens: tokens}
		c.principals.Store(known)
	}
	of, made := known.byID.Load(token.ID)
	if !made {
		of, _ = known.byID.LoadOrStore(token.ID, &tokenHolder{
			Principal: access.Holder(token.Name, token.Roles, token.Types, token.Cursors)})
	}
	return of.(*tokenHolder)
}

// count counts a request of a token, and refuses it where the token has made too many within a second. The cluster
// token is not bounded: whoever has it can raise the bound.
func (c *callers) count(who *caller) error {
	most := c.node.Machine().Settings().RequestsPerSecond
	if most == 0 || who == nil || who.id == "" {
		return nil
	}
	token := c.node.Machine().Tokens().ByID(who.id)
	if token == nil {
		return nil // revoked since, which is for others to refuse
	}
	// The pace of a token is this node's alone.
	of := c.known(token)
	pace := of.pace.Load()
	if pace == nil || pace.Limit() != rate.Limit(most) {
		// A second's requests may come at once. Of two calls that meet here one counts alone.
		pace = rate.NewLimiter(rate.Limit(most), int(most))
		of.pace.Store(pace)
	}
	if pace.Allow() {
		return nil
	}
	return api.Refuse(api.Overloaded, "Authorization",
		fmt.Sprintf("the token %q makes more than %d requests a second at this node", who, most),
		"send several events in a request, or raise the setting limits.requests_per_second")
}

// checked returns a caller whose token is good, as far as this node knows, see cutOff.
func (c *callers) checked(who *caller) (*caller, error) {
	if err := c.valid(who); err != nil {
		return nil, err
	}
	return who, nil
}

// still returns nil while the caller's token is good for what a permission allows. What a token may do never changes.
func (c *callers) still(who *caller, needs access.Permission) error {
	if err := c.valid(who); err != nil {
		return err
	}
	return c.cutOff(who, needs)
}

// valid returns nil while the caller's token is there, with the secret that was shown, and has not expired.
func (c *callers) valid(who *caller) error {
	// Root, a member and anybody have no token that could end.
	if who.id == "" {
		return nil
	}
	token := c.node.Machine().Tokens().ByID(who.id)
	// Whichever clock is ahead: replicated time stands still while nothing is appended.
	now := max(time.Now().UnixNano(), c.node.Machine().StoredTime())
	switch {
	case token == nil || !(who.named || token.Proves(who.secret, now)):
		return wrongToken()
	case token.Expired(now):
		return unauthenticated(api.ReasonExpired, fmt.Sprintf("the token %q has expired", token.Name))
	}
	return nil
}

// cutOff refuses a call with a token at a node that may not know that the token is revoked, unless the call takes no
// more than a monitor may: the outage has to be seen by those who watch for it.
func (c *callers) cutOff(who *caller, needs access.Permission) error {
	if who.id == "" || needs.To(access.Monitor) || time.Since(c.node.HeardLeader()) <= cutOffAfter {
		return nil
	}
	// Another node may know, so a client tries the next one.
	return &api.Error{Code: api.NoLeader, Reason: api.ReasonCutOff,
		Message: fmt.Sprintf("this node has not heard a leader for %v, and does not know which tokens are revoked",
			cutOffAfter),
		Remedy: "ask another node, or use the cluster token"}
}

// unauthenticated refuses a caller that is not known.
func unauthenticated(reason, message string) *api.Error {
	e := wrongToken()
	e.Reason, e.Message = reason, message
	return e
}

// wrongToken refuses a caller without a token, or with one that is not good. It says no more: which of the two halves
// of a token is wrong is nobody's business.
func wrongToken() *api.Error {
	return api.Refuse(api.Unauthenticated, "Authorization",
		"the bearer token is missing or wrong",
		"send Authorization: Bearer TOKEN; "+
			"ringlog takes it from --token-file or RINGRIFT_CLUSTER_AUTH_TOKEN")
}

// enter has end called once a caller's token is not good any more for what a permission allows. leave has to be called.
func (c *callers) enter(who *caller, needs access.Permission, end func(why error)) (leave func()) {
	if who == nil || who.id == "" {
		return func() {}
	}
	one := &lasting{who, needs, end}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lasting[one] = struct{}{}
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.lasting, one)
	}
}

// last returns a context of a call that lasts and needs a permission, which ends with the caller's token. cancel has to
// be called. A caller without a token has no end.
func (c *callers) last(ctx context.Context, needs access.Permission) (_ context.Context, cancel func()) {
	who, _ := callerOf(ctx)
	if who == nil || who.id == "" {
		return ctx, func() {}
	}
	ctx, end := context.WithCancelCause(ctx)
	leave := c.enter(who, needs, end)
	return ctx, func() {
		leave()
		end(nil)
	}
}

// run ends streams whose token is no longer valid, until ctx ends.
func (c *callers) run(ctx context.Context) {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		select {
		case <-c.node.Machine().Tokens().Replaced():
		// A token may expire, or the leader be silent, without any change.
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		c.look()
	}
}

// look ends what lasts whose token is not good any more. The ends are called under mu, so what leaves waits until all
// are told.
func (c *callers) look() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for one := range c.lasting {
		if err := c.still(one.who, one.needs); err != nil {
			// It leaves by itself.
			one.end(unauthenticated(api.ReasonRevoked, "the token is not good any more"))
		}
	}
}

// callKey is the key under which the context of a request has its *call.
type callKey struct{}

// call is who makes a request; nil, with the reason, for a caller that is not known.
type call struct {
	who     *caller
	unknown error
}

// withCaller returns a request with its caller in its context, or with why that is not known.
func withCaller(r *http.Request, who *caller, unknown error) *http.Request {
	ctx := context.WithValue(r.Context(), callKey{}, &call{who, unknown})
	if unknown == nil {
		ctx = access.With(ctx, who.Principal)
	}
	return r.WithContext(ctx)
}

// callerOf returns the caller of a request, or why it is not known.
func callerOf(ctx context.Context) (*caller, error) {
	c, some := ctx.Value(callKey{}).(*call)
	if !some {
		return nil, wrongToken()
	}
	return c.who, c.unknown
}
