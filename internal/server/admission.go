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
	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/internal/access"
	"github.com/ringrift/ringlog/raftnode"
)

// admission decides whether a request may be made of this node at all, and what of it its caller may do. It is
// read-only once made.
type admission struct {
	node        Node
	callers     *callers
	hosts       []string // names that browsers may use for this node, in lower case
	crossOrigin *http.CrossOriginProtection
	openBelow   []string // paths that need no token begin with one of these, so that what is not there is answered as such
}

// newAdmission returns the admission of a server. The address that the node advertises is a name that browsers may use,
// too.
func newAdmission(cfg Config, advertised string, callers *callers, routes []route) *admission {
	a := &admission{node: cfg.Node, callers: callers, crossOrigin: http.NewCrossOriginProtection()}
	for _, r := range routes {
		if fixed, _, _ := strings.Cut(r.path, "{"); r.needs == access.Open {
			a.openBelow = append(a.openBelow, fixed)
		}
	}
	// By these names a browser reaches this node itself, and not a page that was rebound to it.
	for _, name := range append(slices.Clone(cfg.Hosts), advertised) {
		a.hosts = append(a.hosts, hostOf(name))
	}
	return a
}

// permit refuses a call whose caller lacks the permission that its route needs. It is the one place that every call
// passes; an operation that does several things asks for the permission of each beside. rt is nil for what no route
// takes.
func (a *admission) permit(r *http.Request, rt *route) error {
	who, unknown := callerOf(r.Context())
	below := func(fixed string) bool { return strings.HasPrefix(r.URL.Path, fixed) }
	switch {
	case rt == nil && slices.ContainsFunc(a.openBelow, below):
		return nil
	case rt != nil && rt.needs == access.Open:
		return nil
	case rt != nil && rt.needs == access.Metrics && a.node.Machine().Settings().AuthOpenMetrics:
		return nil
	case unknown != nil:
		return unknown
	// Whoever is known learns that there is nothing.
	case rt == nil:
		return nil
	case !who.May(rt.needs):
		return noPermission(rt, who)
	case rt.whole && !(who.AllTypes() && who.AllCursors()):
		return &api.Error{Code: api.Forbidden, Reason: api.ReasonScope,
			Message: fmt.Sprintf("the token %q is good for some types or cursors, and this shows all of them", who),
			Remedy:  "use a token without --type and --cursor"}
	}
	return a.callers.cutOff(who, rt.needs)
}

// noPermission refuses a caller whose roles may not do something.
func noPermission(rt *route, who *caller) error {
	e := &api.Error{Code: api.Forbidden, Reason: api.ReasonPermission,
		Message: fmt.Sprintf("%s may not do that: it is for calls between nodes", who),
		Remedy:  "use what /openapi.json lists"}
	if holders := rt.needs.Holders(); len(holders) > 0 {
		e.Message = fmt.Sprintf("%s may not do that: it takes one of the roles %s", who, joined(holders))
		e.Remedy = "use a token that has one; an admin makes it: PUT /v1/tokens/NAME, or ringlog token create"
	}
	return e
}

// joined lists roles.
func joined(roles []access.Role) string {
	var names []string
	for _, r := range roles {
		names = append(names, string(r))
	}
	return strings.Join(names, ", ")
}

// warnings says that a token which the caller sends protects nothing.
func (a *admission) warnings(r *http.Request) []event.Warning {
	if a.callers.required() || r.Header.Get("Authorization") == "" {
		return nil
	}
	return []event.Warning{{Reason: api.ReasonTokenUnused, Field: "Authorization",
		Message: "a token was sent, but this cluster has none and lets everybody in: start its nodes with --token-file"}}
}

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
	if !a.callers.required() && !a.ownHost(r.Host) {
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
