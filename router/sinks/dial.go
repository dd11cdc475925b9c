package sinks

import (
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"strings"
	"syscall"
)

// LocalError is the error for a receiver that is this host or one of its link. Events are not posted there, unless that
// is allowed: whoever chooses what a name resolves to would reach services that trust this host, such as those that
// give a cloud's machines their credentials.
type LocalError struct {
	Host string // an address, or a name such as localhost
}

func (e *LocalError) Error() string {
	return fmt.Sprintf("%s is this host or one of its link, to which nothing is posted unless that is allowed: "+
		"WebhookOptions.AllowLocal, or ringlog react --allow-local", e.Host)
}

// refuseLocal refuses to connect to a local address. A dialer asks it about each address after names were resolved, so
// that a name cannot mean one address when it is judged and another one when it is dialled.
func refuseLocal(_, address string, _ syscall.RawConn) error {
	at, err := netip.ParseAddrPort(address)
	if err != nil {
		return &net.AddrError{Err: "no address", Addr: address}
	}
	if isLocal(at.Addr()) {
		return &LocalError{at.Addr().String()}
	}
	return nil
}

// translated has the prefixes of IPv6 addresses that lead to an IPv4 address, and where that is in them: its bytes.
var translated = [...]struct {
	prefix netip.Prefix
	at     [4]int
}{
	{netip.MustParsePrefix("::/96"), [4]int{12, 13, 14, 15}},        // IPv4-compatible, RFC 4291
	{netip.MustParsePrefix("64:ff9b::/96"), [4]int{12, 13, 14, 15}}, // NAT64, RFC 6052
	{netip.MustParsePrefix("2002::/16"), [4]int{2, 3, 4, 5}},        // 6to4, RFC 3056
	{siteNAT64, [4]int{6, 7, 9, 10}},
	{siteNAT64, [4]int{7, 9, 10, 11}},
	{siteNAT64, [4]int{9, 10, 11, 12}},
	{siteNAT64, [4]int{12, 13, 14, 15}},
}

// siteNAT64 is NAT64 of a site, RFC 8215: where the address is depends on the length of the site's prefix.
var siteNAT64 = netip.MustParsePrefix("64:ff9b:1::/48")

// teredo has the client's IPv4 address in its last bytes, each bit of it inverted, RFC 4380.
var teredo = netip.MustParsePrefix("2001::/32")

// thisNetwork are addresses that mean the host itself, RFC 1122.
var thisNetwork = netip.MustParsePrefix("0.0.0.0/8")

// isLocal reports whether an address is one of this host or of its link, in whatever form.
func isLocal(a netip.Addr) bool {
	a = a.Unmap().WithZone("")
	if a.IsLoopback() || a.IsUnspecified() || a.IsLinkLocalUnicast() || a.IsLinkLocalMulticast() ||
		a.IsInterfaceLocalMulticast() || thisNetwork.Contains(a) {
		return true
	}
	for _, form := range translated {
		if form.prefix.Contains(a) {
			bytes, at := a.As16(), form.at
			v4 := netip.AddrFrom4([4]byte{bytes[at[0]], bytes[at[1]], bytes[at[2]], bytes[at[3]]})
			// Zeros are no address where another place may have it.
			if isLocal(v4) && !(form.prefix == siteNAT64 && thisNetwork.Contains(v4)) {
				return true
			}
		}
	}
	if teredo.Contains(a) {
		bytes := a.As16()
		return isLocal(netip.AddrFrom4([4]byte{^bytes[12], ^bytes[13], ^bytes[14], ^bytes[15]}))
	}
	return false
}

// namesLocal reports whether a URL says by itself that its host is this one. What other names mean is known when they
// are dialled.
func namesLocal(u *url.URL) bool {
	host := strings.ToLower(strings.TrimSuffix(u.Hostname(), "."))
	if a, err := netip.ParseAddr(host); err == nil {
		return isLocal(a)
	}
	return host == "localhost" || strings.HasSuffix(host, ".localhost")
}
