package server

import (
	"container/list"
	"net"
	"net/http"
	"net/netip"
	"sync"
)

// connLimit bounds the connections of a listener, and half of that those of one address. Beyond a bound, a new
// connection takes the place of the one that has been quiet for longest: of those that have not sent a request yet,
// or else of those that wait for their next. So whoever opens many and sends nothing keeps nobody out. A new connection
// is closed at once if every other has a request under way.
type connLimit struct {
	net.Listener
	most, each int // connections, of all addresses and of one

	mu          sync.Mutex
	open        int
	from        map[netip.Addr]int // open connections by address; no entry is zero
	fresh, idle list.List          // of *limitedConn: without a request yet, and between two; the longest quiet first
}

// limitConns returns a listener that takes over l and may have up to most connections at a time. The server of its
// connections reports their states to stateChanged.
func limitConns(l net.Listener, most int) *connLimit {
	return &connLimit{Listener: l, most: most, each: max(most/2, 1), from: map[netip.Addr]int{}}
}

// Accept implements net.Listener.
func (l *connLimit) Accept() (net.Conn, error) {
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
		conn := &limitedConn{Conn: c, limit: l, addr: at.Addr().Unmap()}
		displaced, entered := l.enter(conn)
		if displaced != nil {
			_ = displaced.Conn.Close()
		}
		if entered {
			return conn, nil
		}
		// Closed without an answer: to write one could block.
		_ = c.Close()
	}
}

// enter counts a connection and reports whether it may stay open, and which one has to be closed for it, if any.
func (l *connLimit) enter(c *limitedConn) (displaced *limitedConn, entered bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.from[c.addr] >= l.each:
		displaced = l.quietest(func(other *limitedConn) bool { return other.addr == c.addr })
	case l.open >= l.most:
		displaced = l.quietest(func(*limitedConn) bool { return true })
	default:
		entered = true
	}
	if displaced != nil {
		l.remove(displaced)
		entered = true
	}
	if entered {
		l.open++
		l.from[c.addr]++
		c.wait(&l.fresh)
	}
	return displaced, entered
}

// quietest returns the connection that has been quiet for longest of those that may be displaced; nil if there is none.
func (l *connLimit) quietest(may func(*limitedConn) bool) *limitedConn {
	for _, waiting := range []*list.List{&l.fresh, &l.idle} {
		for e := waiting.Front(); e != nil; e = e.Next() {
			if c := e.Value.(*limitedConn); may(c) {
				return c
			}
		}
	}
	return nil
}

// remove ends the count of a connection. It may be called more than once and counts once.
func (l *connLimit) remove(c *limitedConn) {
	if c.removed {
		return
	}
	c.removed = true
	c.wait(nil)
	l.open--
	l.from[c.addr]--
	if l.from[c.addr] == 0 {
		delete(l.from, c.addr)
	}
}

// stateChanged is the ConnState of the server.
func (l *connLimit) stateChanged(c net.Conn, state http.ConnState) {
	for {
		wrapped, ok := c.(interface{ NetConn() net.Conn })
		if !ok {
			break
		}
		c = wrapped.NetConn()
	}
	conn, ok := c.(*limitedConn)
	if !ok {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case conn.removed:
	case state == http.StateActive:
		conn.wait(nil)
	case state == http.StateIdle:
		conn.wait(&l.idle)
	}
}

// limitedConn is a connection of a connLimit. Its place is free again once it is closed.
type limitedConn struct {
	net.Conn
	limit *connLimit
	addr  netip.Addr

	// Under limit's lock.
	removed bool
	waiting *list.List    // the list that it is in, if any
	element *list.Element // in waiting
}

// wait moves the connection to the end of a list of quiet ones, or with nil to none.
func (c *limitedConn) wait(waiting *list.List) {
	if c.waiting != nil {
		c.waiting.Remove(c.element)
	}
	c.waiting = waiting
	if waiting != nil {
		c.element = waiting.PushBack(c)
	}
}

// Close implements net.Conn.
func (c *limitedConn) Close() error {
	c.limit.mu.Lock()
	c.limit.remove(c)
	c.limit.mu.Unlock()
	return c.Conn.Close()
}
