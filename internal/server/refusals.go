package server

import (
	"context"
	"errors"
	"net/netip"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/ringrift/ringlog/api"
)

const (
	// refusedFreely is how many refusals of a minute an address gets at once; each further one is answered after
	// refusedAfter. Callers of that address who are known are answered at once.
	refusedFreely = 10
	refusedAfter  = time.Second
	refusedWithin = time.Minute
	// refusedAddresses bounds the memory of refusals. Whoever has more addresses is not slowed by this.
	refusedAddresses = 4096
)

// refusals counts calls without a good token, by address, and delays the answers to repeated ones. It is safe for
// concurrent use.
type refusals struct {
	logger hclog.Logger
	freely int // refusedFreely, or more in tests

	mu   sync.Mutex
	from map[netip.Prefix]*refused // at most refusedAddresses
}

// refused are those of one address, in the minute that began with the first.
type refused struct {
	began time.Time // of the first
	count int       // of all since, this minute
}

// newRefusals returns refusals that have counted none.
func newRefusals(logger hclog.Logger) *refusals {
	return &refusals{logger: logger, freely: refusedFreely, from: map[netip.Prefix]*refused{}}
}

// slow counts err, if it refuses a caller that is not known, and then waits where that address has had enough of them.
// The caller answers after it returns. It returns early if ctx ends.
func (f *refusals) slow(ctx context.Context, remote string, err error) {
	refusal, ok := errors.AsType[*api.Error](err)
	// Whoever is known but may not do something is not guessing tokens.
	if !ok || refusal.Code != api.Unauthenticated || !f.note(addressOf(remote), time.Now()) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, refusedAfter)
	defer cancel()
	<-ctx.Done()
}

// note counts a refusal, and reports whether there were more than enough of them in this minute.
func (f *refusals) note(from netip.Prefix, now time.Time) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	of := f.from[from]
	if of == nil || now.Sub(of.began) >= refusedWithin {
		// All are forgotten at once: memory is bounded, and whoever continues to guess is counted again.
		if len(f.from) >= refusedAddresses {
			clear(f.from)
		}
		of = &refused{began: now}
		f.from[from] = of
	}
	of.count++
	// Two lines a minute for an address, however often it calls.
	switch of.count {
	case 1:
		f.logger.Info("a call is refused: its token is missing or wrong", "from", from)
	case f.freely + 1:
		f.logger.Warn("calls are refused and slowed: their token is missing or wrong", "from", from,
			"in_a_minute", of.count)
	}
	return of.count > f.freely
}

// addressOf returns the address of a caller, and of IPv6 the network of 64 bits, which one machine may use as a whole.
func addressOf(remote string) netip.Prefix {
	at, err := netip.ParseAddrPort(remote)
	if err != nil {
		return netip.Prefix{} // a connection within this process
	}
	addr := at.Addr().Unmap()
	network, _ := addr.Prefix(min(addr.BitLen(), 64))
	return network
}
