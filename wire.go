package ringlog

import (
	"context"
	"net"
	"sync"
)

// wire is a network inside the process: a listener and the only way to reach it.
type wire struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func newWire() *wire { return &wire{conns: make(chan net.Conn), closed: make(chan struct{})} }

// dial connects to the listener, whatever the address.
func (w *wire) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	near, far := net.Pipe()
	select {
	case w.conns <- far:
		return near, nil
	case <-w.closed:
		return nil, &net.OpError{Op: "dial", Net: "memory", Err: net.ErrClosed}
	case <-ctx.Done():
		return nil, &net.OpError{Op: "dial", Net: "memory", Err: context.Cause(ctx)}
	}
}

// Accept implements net.Listener.
func (w *wire) Accept() (net.Conn, error) {
	select {
	case c := <-w.conns:
		return c, nil
	case <-w.closed:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener. It may be called again.
func (w *wire) Close() error {
	w.once.Do(func() { close(w.closed) })
	return nil
}

// Addr implements net.Listener.
func (w *wire) Addr() net.Addr { return memory{} }

type memory struct{}

func (memory) Network() string { return "memory" }
func (memory) String() string  { return nodeID }
