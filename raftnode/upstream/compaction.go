// Raft bounds its log by entries, of which each may have a hundred bytes or megabytes. There is no
// issue. Delete this file when raft takes a bound in bytes.

package upstream

import (
	"context"
	"math"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/ringrift/ringlog/raftnode/raftstore"
)

// compactAgain is how long one that failed is left alone.
const compactAgain = time.Second

// compaction decides when raft's log loses entries and which. Raft itself only counts
// entries, of which each may have a few bytes or megabytes.
//
// All other members have what is old, as a rule: then little stays, which a start has to
// look through. What a member has not applied stays as far as Timing allows it.
type compaction struct {
	stores *raftstore.Stores
	limits CompactionLimits
	needed func() uint64 // the first entry without which another member would need the state
	logger hclog.Logger

	due  chan struct{}
	left atomic.Int64 // bytes of the log when it was last compacted
}

// CompactionLimits say how much of raft's log stays.
type CompactionLimits struct {
	CompactBytes  int64  // bytes stored since the last compaction that make the next, of which that many stay
	TrailingBytes int64  // bytes that stay for a member that lags, at least CompactBytes
	TrailingLogs  uint64 // entries that stay for a member that lags, at least 1
}

func newCompaction(
	stores *raftstore.Stores, limits CompactionLimits, needed func() uint64, logger hclog.Logger,
) *compaction {
	c := &compaction{stores: stores, limits: limits, needed: needed, logger: logger, due: make(chan struct{}, 1)}
	c.left.Store(min(stores.LogBytes(), limits.CompactBytes))
	return c
}

// stored is called when the log has grown.
func (c *compaction) stored() {
	if !c.isDue() {
		return
	}
	select {
	case c.due <- struct{}{}:
	default:
	}
}

func (c *compaction) isDue() bool {
	bytes, left := c.stores.LogBytes(), c.left.Load()
	if bytes < left { // raft has compacted by itself
		c.left.Store(bytes)
		return false
	}
	return bytes >= left+c.limits.CompactBytes
}

// run compacts whenever enough bytes were stored.
func (c *compaction) run(ctx context.Context, compact func(context.Context) error) {
	for {
		select {
		case <-c.due:
		case <-ctx.Done():
			return
		}
		if !c.isDue() {
			continue
		}
		if err := compact(ctx); err != nil {
			c.logger.Warn("raft's log was not compacted", "bytes", c.stores.LogBytes(), "error", err)
			select {
			case <-time.After(compactAgain):
			case <-ctx.Done():
				return
			}
			c.stored() // the log may not grow any more
			continue
		}
		c.left.Store(c.stores.LogBytes())
	}
}

// from is the first entry that stays of a log that ends with last.
func (c *compaction) from(last uint64) uint64 {
	usual := last + 1 - min(last, c.keeps(c.limits.CompactBytes))
	return min(usual, max(c.needed(), c.furthest(last)))
}

// furthest is the first entry that stays however far a member lags.
func (c *compaction) furthest(last uint64) uint64 {
	return last + 1 - min(last, c.keeps(c.limits.TrailingBytes))
}

// room is by how many entries a member may lag, in a log of that many, until it needs the
// state. While the log is still small, the average size of its entries decides.
func (c *compaction) room(entries uint64) uint64 {
	if fit := c.stores.Newest(c.limits.TrailingBytes); fit != math.MaxUint64 {
		return min(c.limits.TrailingLogs, max(fit, 1))
	}
	fit := float64(entries) * float64(c.limits.TrailingBytes) / float64(max(c.stores.LogBytes(), 1))
	return uint64(min(float64(c.limits.TrailingLogs), max(fit, 1)))
}

// keeps is how many entries stay where so many bytes may.
func (c *compaction) keeps(bytes int64) uint64 {
	return min(c.limits.TrailingLogs, max(c.stores.Newest(bytes), 1))
}
