// Package testaddr picks addresses for the servers of tests that have to know their address before they
// listen, and that listen on it again after a restart.
package testaddr

import (
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
)

// Ports from which Free picks. They are below those that Linux and macOS give to connections that do not
// ask for one: such a port may be another connection's by the time that a server listens on it.
const (
	lowest  = 10_000
	highest = 32_767
)

// given are the addresses that this process has picked.
var given sync.Map

// Free returns a loopback address that nobody listens on, and never the same one twice.
func Free(t testing.TB) string {
	t.Helper()
	var failed error
	for range 100 {
		addr := fmt.Sprintf("127.0.0.1:%d", lowest+rand.IntN(highest-lowest+1))
		if _, taken := given.LoadOrStore(addr, true); taken {
			continue
		}
		l, err := net.Listen("tcp", addr)
		if err == nil {
			_ = l.Close()
			return addr
		}
		failed = err
	}
	t.Fatalf("no free port: %v", failed)
	return ""
}
