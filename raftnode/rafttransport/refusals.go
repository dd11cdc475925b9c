package rafttransport

import (
	"cmp"
	"maps"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"golang.org/x/time/rate"
)

const (
	maxRefusals  = 256             // peers remembered
	logEvery     = time.Minute     // a peer's refusals are logged once in this time
	logBurst     = 20              // lines at once, of all peers
	logAllPeriod = 3 * time.Second // one more line of all peers is allowed after each
)

// Refusal is the last refusal between this node and a peer.
type Refusal struct {
	Peer   string    `json:"peer"` // node id as the peer gave it; "" if it gave none
	Addr   string    `json:"addr"`
	ByPeer bool      `json:"by_peer"` // the peer refused this node, not the reverse
	Reason string    `json:"reason"`  // stable name: other_incarnation, bad_proof, …
	Detail string    `json:"detail"`
	Count  uint64    `json:"count"` // of all reasons
	Last   time.Time `json:"last"`
}

// refusals remembers and logs refusals in bounded space. Peers are distinguished by
// the id they claim, or by host if they claim none: a stranger's port changes each time.
type refusals struct {
	logger hclog.Logger
	lines  *rate.Limiter // of all peers: a stranger may claim a new id each time

	mu     sync.Mutex               // guards peers and totals
	peers  map[string]*refusalEntry // by peerKey, at most maxRefusals
	totals map[string]uint64        // by reason
}

// refusalEntry is the last refusal of a peer.
type refusalEntry struct {
	Refusal
	logged time.Time // when it was last due for a line
}

func newRefusals(logger hclog.Logger) *refusals {
	return &refusals{
		logger: logger,
		lines:  rate.NewLimiter(rate.Every(logAllPeriod), logBurst),
		peers:  make(map[string]*refusalEntry),
		totals: make(map[string]uint64),
	}
}

// record counts a refusal and logs it, unless its peer or all peers together have been logged too often.
func (b *refusals) record(e *RefusedError) {
	now := time.Now()
	line, ok := b.note(e, now)
	if ok && b.lines.AllowN(now, 1) {
		b.logger.Warn("raft connection refused", "peer", line.Peer, "addr", line.Addr, "by-peer", line.ByPeer,
			"reason", line.Reason, "detail", line.Detail, "count", line.Count)
	}
}

// note counts e and reports whether its peer is due for a line.
func (b *refusals) note(e *RefusedError, now time.Time) (Refusal, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	key := peerKey(e)
	entry := b.peers[key]
	if entry == nil {
		if len(b.peers) >= maxRefusals {
			b.dropOldest()
		}
		entry = &refusalEntry{}
		b.peers[key] = entry
	}
	reason := nameOf(e.Reason)
	b.totals[reason]++
	entry.Refusal = Refusal{
		Peer: e.Peer, Addr: e.Addr, ByPeer: e.ByPeer,
		Reason: reason, Detail: e.Detail,
		Count: entry.Count + 1, Last: now,
	}
	// Refusals between two lines are counted, too: the next line has them.
	due := entry.logged.IsZero() || now.Sub(entry.logged) >= logEvery
	if due {
		entry.logged = now
	}
	return entry.Refusal, due
}

// dropOldest forgets the peer that was refused the longest time ago. The caller holds mu.
func (b *refusals) dropOldest() {
	oldest := ""
	var last time.Time
	for key, entry := range b.peers {
		if last.IsZero() || entry.Last.Before(last) {
			oldest, last = key, entry.Last
		}
	}
	delete(b.peers, oldest)
}

// list returns the last refusal of each peer, the newest first.
func (b *refusals) list() []Refusal {
	b.mu.Lock()
	defer b.mu.Unlock()
	out := make([]Refusal, 0, len(b.peers))
	for _, entry := range b.peers {
		out = append(out, entry.Refusal)
	}
	slices.SortFunc(out, func(x, y Refusal) int {
		return cmp.Or(y.Last.Compare(x.Last), cmp.Compare(x.Peer, y.Peer), cmp.Compare(x.Addr, y.Addr))
	})
	return out
}

// sums returns the counts of refusals by reason.
func (b *refusals) sums() map[string]uint64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return maps.Clone(b.totals)
}

// peerKey is what refusals are counted under.
func peerKey(e *RefusedError) string {
	if e.Peer != "" {
		return "id " + e.Peer
	}
	host, _, err := net.SplitHostPort(e.Addr)
	if err != nil {
		host = e.Addr
	}
	return "host " + host
}
