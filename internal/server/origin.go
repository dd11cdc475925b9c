package server

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/raftnode"
)

// fromBrowser refuses what a web page may have a browser send: a change asked for by a page
// of another origin, and, where no token is needed, any request for a name that is not this
// node's. A page may have its own name resolve to a node's address (DNS rebinding) and then
// counts as of the same origin. Callers that are no browsers send neither Origin nor
// Sec-Fetch-Site, and a token is nothing that a browser adds by itself.
func (s *Server) fromBrowser(r *http.Request) error {
	if err := s.crossOrigin.Check(r); err != nil {
		return &api.Error{Code: api.Forbidden, Field: "Origin", Message: "a web page of another origin asks for a change",
			Remedy: "use a client that is no browser, or a page of the same origin"}
	}
	// With a token a rebound name is harmless: the page does not have the token.
	if s.cfg.Token == "" && !s.ownHost(r.Host) {
		return &api.Error{Code: api.Forbidden, Field: "Host", Message: fmt.Sprintf("%q is no name of this node", r.Host),
			Remedy: "use the node's address, or start it with --allow-host " + hostName(r.Host)}
	}
	return nil
}

// ownHost reports whether a Host header names this node: by an IP address, as localhost, by the address that a
// member advertises, or by a name of the configuration. An IP address cannot be rebound.
func (s *Server) ownHost(host string) bool {
	name := hostName(host)
	if _, err := netip.ParseAddr(name); err == nil || name == "" || name == "localhost" || slices.Contains(s.hosts, name) {
		return true
	}
	return slices.ContainsFunc(s.cfg.Node.Status().Members, func(m raftnode.MemberStatus) bool { return hostOf(m.HTTP) == name })
}

// hostName returns the host of host:port in lower case, without brackets and a final dot.
func hostName(address string) string {
	if host, _, err := net.SplitHostPort(address); err == nil {
		address = host
	}
	return strings.ToLower(strings.TrimSuffix(strings.Trim(address, "[]"), "."))
}

// hostOf is hostName for an address that may be a URL.
func hostOf(address string) string {
	if u, err := url.Parse(address); err == nil && u.Host != "" {
		address = u.Host
	}
	return hostName(address)
}
