package server

import (
	"net"
	"net/netip"
	"sync"

	"golang.org/x/net/netutil"
)

// limitConns lets a listener have up to most connections at a time; further ones wait. One address may have up to
// half of that; any more are closed at once, so it cannot keep others out.
func limitConns(l net.Listener, most int) net.Listener {
	// The outer limit holds for all addresses together.
	return netutil.LimitListener(&fairListener{Listener: l, each: max(most/2, 1), open: map[netip.Addr]int{}}, most)
}

// fairListener closes the connections of an address that exceed each.
type fairListener struct {
	net.Listener
	each int // connections that one address may have

	mu   sync.Mutex
	open map[netip.Addr]int // connections by address; no entry is zero
}

// Accept implements net.Listener.
func (l *fairListener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		at, err := netip.ParseAddrPort(c.RemoteAddr().String())
		if err != nil {
			return c, nil // a connection within this process has no such address
		}
		// IPv4 in IPv6 form is the same address.
		addr := at.Addr().Unmap()
		if l.enter(addr) {
			return &fairConn{Conn: c, leave: sync.OnceFunc(func() { l.leave(addr) })}, nil
		}
		// Closed without an answer: to write one could block.
		_ = c.Close()
	}
}

// enter counts a connection of an address and reports whether it may stay open.
func (l *fairListener) enter(addr netip.Addr) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	// The bound is on connections, idle ones included.
	if l.open[addr] >= l.each {
		return false
	}
	l.open[addr]++
	return true
}

// leave ends the count of one connection that enter admitted.
func (l *fairListener) leave(addr netip.Addr) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open[addr]--
	if l.open[addr] == 0 {
		delete(l.open, addr)
	}
}

// fairConn frees its place when it is closed. leave may be called more than once and counts once.
type fairConn struct {
	net.Conn
	leave func()
}

// Close implements net.Conn.
func (c *fairConn) Close() error {
	c.leave()
	return c.Conn.Close()
}
