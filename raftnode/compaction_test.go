package raftnode

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"testing"

	"github.com/ringrift/ringlog/raftnode/statestore"
)

// A log of megabytes stays small while all follow, and as large as it may while one is
// away. Who was away for little is sent entries, for much the state.
func TestRaftsLogIsBoundedInBytes(t *testing.T) {
	t.Parallel()
	const mb = 1 << 20
	const compact, trailing = 2 * mb, 12 * mb
	const slack = 3 * mb // a mark's, an entry's, and what comes while the log is compacted
	c := voters(t, 3, func(cfg *Config) {
		cfg.Timing.CompactBytes, cfg.Timing.TrailingBytes = compact, trailing
	})
	published := 0
	write := func(megabytes int) {
		t.Helper()
		random := make([]byte, mb/4)
		for range 2 * megabytes {
			if _, err := rand.Read(random); err != nil {
				t.Fatal(err)
			}
			published++
			publishPayload(t, c.leader(), fmt.Sprintf(`{"n": %d, "text": "%s"}`, published, hex.EncodeToString(random)))
		}
	}
	between := func(low, high int64) {
		t.Helper()
		for _, n := range c.all() {
			eventually(t, "raft's log has become small", func() bool { return n.stores.LogBytes() <= high })
			if is := n.stores.LogBytes(); is < low {
				t.Errorf("%s: %d bytes are left of its log, want %d to %d", n.cfg.ID, is, low, high)
			}
		}
	}
	installed := func(n *Node) uint64 {
		index, _ := n.stores.Stable().GetUint64([]byte(statestore.KeyInstalled)) // an error while there was none
		return index
	}

	write(8)
	c.settle()
	between(compact/2, 2*compact+slack)

	late := c.followers()[0].cfg.ID
	c.crash(late)
	write(8)
	between(7*mb, 2*compact+8*mb+slack) // all that it missed is there
	n := c.start(late)
	c.settle()
	if index := installed(n); index != 0 {
		t.Errorf("%s was away for 8 MB of %d and was sent the state, at %d", late, trailing, index)
	}

	c.crash(late)
	write(20)
	between(trailing/2, trailing+compact+slack)
	n = c.start(late)
	c.settle()
	if installed(n) == 0 {
		t.Errorf("%s was away for 20 MB of %d and was not sent the state", late, trailing)
	}
	write(6)
	c.settle()
	between(compact/2, 2*compact+slack)
}
