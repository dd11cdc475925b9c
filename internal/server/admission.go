package server

import (
	"crypto/sha256"
	"crypto/subtle"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/raftnode"
)

// admission decides who may call at all: it knows the token, the routes that need none, and the names of this node.
// It is read-only once made.
type admission struct {
	node        Node
	needsToken  bool              // whether callers must have the token
	token       [sha256.Size]byte // digest of the token
	open        map[string]bool   // paths that need no token
	openBelow   []string          // and paths that begin with one of these
	hosts       []string          // names that browsers may use for this node, in lower case
	crossOrigin *http.CrossOriginProtection
}

// newAdmission returns the admission of a server with these routes. The address that the node advertises is a name
// that browsers may use, too.
func newAdmission(cfg Config, advertised string, routes []route) *admission {
	a := &admission{
		node:        cfg.Node,
		needsToken:  cfg.Token != "",
		token:       tokenDigest(cfg.Token),
		open:        map[string]bool{},
		crossOrigin: http.NewCrossOriginProtection(),
	}
	// The table says which routes need no token.
	for _, r := range routes {
		if r.access != open {
			continue
		}
		a.open[r.path] = true
		// Nothing else is below the fixed part of a path with wildcards, and what is not there is answered as such.
		if fixed, _, wild := strings.Cut(r.path, "{"); wild {
			a.openBelow = append(a.openBelow, fixed)
		}
	}
	// By these names a browser reaches this node itself, and not a page that was rebound to it.
	for _, name := range append(slices.Clone(cfg.Hosts), advertised) {
		a.hosts = append(a.hosts, hostOf(name))
	}
	return a
}

// admit refuses what fromBrowser refuses, and callers without the token.
func (a *admission) admit(r *http.Request) error {
	// The cross-site rule holds for callers that have the token, too.
	if err := a.fromBrowser(r); err != nil {
		return err
	}
	if !a.hasToken(r) {
		return api.Refuse(api.Unauthenticated, "Authorization",
			"the bearer token is missing or wrong",
			"send Authorization: Bearer TOKEN; "+
				"ringlog takes it from --token-file or RINGRIFT_CLUSTER_AUTH_TOKEN")
	}
	return nil
}

// hasToken reports whether a request has the token or needs none. A path is open for all of its methods, so a
// wrong method is answered as such.
func (a *admission) hasToken(r *http.Request) bool {
	// A node without a token lets everybody in, but for web pages.
	path := r.URL.Path
	below := func(fixed string) bool { return strings.HasPrefix(path, fixed) }
	if !a.needsToken || a.open[path] || slices.ContainsFunc(a.openBelow, below) {
		return true
	}
	// Digests have one length, so the time of the comparison reveals nothing of the token.
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	given := tokenDigest(strings.TrimSpace(token))
	return strings.EqualFold(scheme, "Bearer") && subtle.ConstantTimeCompare(given[:], a.token[:]) == 1
}

// warnings says that a token which the caller sends protects nothing.
func (a *admission) warnings(r *http.Request) []event.Warning {
	if a.needsToken || r.Header.Get("Authorization") == "" {
		return nil
	}
	return []event.Warning{{Reason: api.ReasonTokenUnused, Field: "Authorization",
		Message: "a token was sent, but this cluster has none and lets everybody in: start its nodes with --token-file"}}
}

// tokenDigest has one length for every token.
func tokenDigest(token string) [sha256.Size]byte { return sha256.Sum256([]byte(token)) }

// fromBrowser refuses what a web page may have a browser send: a change asked for by a page
// of another origin, and, where no token is needed, any request for a name that is not this
// node's. A page may have its own name resolve to a node's address (DNS rebinding) and then
// counts as one of the same origin. Callers that are not browsers send neither Origin nor
// Sec-Fetch-Site, and a browser never adds a token by itself.
func (a *admission) fromBrowser(r *http.Request) error {
	if err := a.crossOrigin.Check(r); err != nil {
		return api.Refuse(api.Forbidden, "Origin",
			"a web page of another origin asks for a change",
			"use a client that is not a browser, or a page of the same origin")
	}
	// With a token a rebound name is harmless: the page does not have the token.
	if !a.needsToken && !a.ownHost(r.Host) {
		return api.Refuse(api.Forbidden, "Host",
			fmt.Sprintf("%q is not a name of this node", r.Host),
			"use the node's address, or start it with --allow-host "+hostName(r.Host))
	}
	return nil
}

// ownHost reports whether a Host header names this node: by an IP address, as localhost, by the address that a
// member advertises, or by a name of the configuration. An IP address cannot be rebound.
func (a *admission) ownHost(host string) bool {
	name := hostName(host)
	// Addresses and the configured names are known without asking for the members.
	if _, err := netip.ParseAddr(name); err == nil || name == "" || name == "localhost" || slices.Contains(a.hosts, name) {
		return true
	}
	return slices.ContainsFunc(
		a.node.Status().Members,
		func(m raftnode.MemberStatus) bool { return hostOf(m.HTTP) == name },
	)
}

// hostName returns the host of host:port in lower case, without brackets and a final dot.
func hostName(address string) string {
	// An address without a port is a host as it is.
	if host, _, err := net.SplitHostPort(address); err == nil {
		address = host
	}
	return strings.ToLower(strings.TrimSuffix(strings.Trim(address, "[]"), "."))
}

// hostOf is hostName for an address that may be a URL.
func hostOf(address string) string {
	// Members advertise host:port or a URL.
	if u, err := url.Parse(address); err == nil && u.Host != "" {
		address = u.Host
	}
	return hostName(address)
}
