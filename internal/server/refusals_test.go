package server

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
)

// Ten wrong tokens of a minute are answered at once, and each further one a second later. Whoever is known is answered
// at once all the same.
func TestWrongTokensAreAnsweredMoreSlowly(t *testing.T) {
	t.Parallel()
	s := newSites(t, 1, withToken)[0]
	s.server.refusals.freely = refusedFreely
	call := func(token string) (int, time.Duration) {
		began := time.Now()
		got := s.do("GET", "/v1/cluster", "", "Authorization", "Bearer "+token)
		return got.status, time.Since(began)
	}
	for range refusedFreely {
		if status, _ := call("guessed"); status != http.StatusUnauthorized {
			t.Fatal(status)
		}
	}
	for range 2 {
		if status, took := call("guessed"); status != http.StatusUnauthorized || took < refusedAfter {
			t.Errorf("%d after %s", status, took)
		}
	}
	if status, took := call(s.token); status != http.StatusOK || took > refusedAfter {
		t.Errorf("a good token: %d after %s", status, took)
	}
}

func TestRefusalsAreCountedByAddressAndMinute(t *testing.T) {
	t.Parallel()
	f := newRefusals(hclog.NewNullLogger())
	now := time.Unix(0, 0)
	slowed := func(remote string) bool { return f.note(addressOf(remote), now) }
	for n := range refusedFreely {
		if slowed(fmt.Sprintf("192.0.2.1:%d", n+1)) {
			t.Fatalf("refusal %d is slowed", n+1)
		}
	}
	if !slowed("192.0.2.1:99") || slowed("192.0.2.2:1") {
		t.Error("the eleventh of one address is slowed, and the first of another one is not")
	}
	// One machine has a network of 64 bits, and may use IPv4 in the form of IPv6.
	if !slowed("[::ffff:192.0.2.1]:1") {
		t.Error("the other form of an address has a count of its own")
	}
	for n := range refusedFreely {
		slowed(fmt.Sprintf("[2001:db8::%x]:1", n+1))
	}
	if !slowed("[2001:db8::ffff]:1") || slowed("[2001:db8:0:1::1]:1") {
		t.Error("addresses of a network of 64 bits count together, and others do not")
	}
	now = now.Add(refusedWithin)
	if slowed("192.0.2.1:1") {
		t.Error("a minute later it is slowed")
	}
	// However many addresses there are, they take bounded memory.
	for n := range 10 * refusedAddresses {
		slowed(fmt.Sprintf("10.%d.%d.%d:1", n>>16&255, n>>8&255, n&255))
	}
	if len(f.from) > refusedAddresses {
		t.Errorf("%d addresses are remembered", len(f.from))
	}
}
