// Raft bounds its log by the number of entries, and each may have a hundred bytes or megabytes. There is
// no issue. Delete this file when raft takes a bound in bytes.

package upstream

import (
	"context"
	"math"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/ringrift/ringlog/raftnode/raftstore"
)

// compactAgain is how long after a failed compaction the next one is tried.
const compactAgain = time.Second

// compaction decides when raft's log loses entries and which. Raft itself only counts
// entries, and each may have a few bytes or megabytes.
//
// As a rule all other members have the old entries. Then little stays, as a start reads
// all of the log. What a member has not applied stays within the limits.
type compaction struct {
	stores *raftstore.Stores
	limits CompactionLimits
	needed func() uint64 // the last entry that all other members have applied: raft sends what follows it
	logger hclog.Logger

	due  chan struct{} // holds one: a compaction may be due
	left atomic.Int64  // bytes of the log when it was last compacted
}

// CompactionLimits say how much of raft's log stays.
type CompactionLimits struct {
	CompactBytes  int64  // bytes stored since the last compaction that cause the next; as many stay
	TrailingBytes int64  // bytes that stay for a member that lags, at least CompactBytes
	TrailingLogs  uint64 // entries that stay for a member that lags, at least 1
}

// newCompaction returns the compaction of a log that may be too large already: the first one is then due
// as soon as entries are stored.
func newCompaction(
	stores *raftstore.Stores, limits CompactionLimits, needed func() uint64, logger hclog.Logger,
) *compaction {
	c := &compaction{stores: stores, limits: limits, needed: needed, logger: logger, due: make(chan struct{}, 1)}
	c.left.Store(min(stores.LogBytes(), limits.CompactBytes))
	return c
}

// stored is called when the log has grown. It does not block: raft's own goroutine calls it.
func (c *compaction) stored() {
	if !c.isDue() {
		return
	}
	select {
	case c.due <- struct{}{}:
	default:
	}
}

// isDue reports whether CompactBytes were stored since the last compaction.
func (c *compaction) isDue() bool {
	bytes, left := c.stores.LogBytes(), c.left.Load()
	if bytes < left { // raft has compacted by itself
		c.left.Store(bytes)
		return false
	}
	return bytes >= left+c.limits.CompactBytes
}

// run calls compact whenever enough bytes were stored, until ctx ends.
func (c *compaction) run(ctx context.Context, compact func(context.Context) error) {
	for {
		select {
		case <-c.due:
		case <-ctx.Done():
			return
		}
		// Raft may have compacted since the signal.
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

// from is the index of the first entry that stays in a log that ends with last.
func (c *compaction) from(last uint64) uint64 {
	usual := last + 1 - min(last, c.keeps(c.limits.CompactBytes))
	return min(usual, max(c.needed(), c.furthest(last)))
}

// furthest is the index of the first entry that stays for a member, however far it lags.
func (c *compaction) furthest(last uint64) uint64 {
	return last + 1 - min(last, c.keeps(c.limits.TrailingBytes))
}

// room is by how many entries a member may lag until it needs the state; the log holds that many
// entries now. While the log is still small, the average size of its entries decides.
func (c *compaction) room(entries uint64) uint64 {
	if fit := c.stores.Newest(c.limits.TrailingBytes); fit != math.MaxUint64 {
		return min(c.limits.TrailingLogs, max(fit, 1))
	}
	fit := float64(entries) * float64(c.limits.TrailingBytes) / float64(max(c.stores.LogBytes(), 1))
	return uint64(min(float64(c.limits.TrailingLogs), max(fit, 1)))
}

// keeps is how many of the newest entries stay if that many bytes may.
func (c *compaction) keeps(bytes int64) uint64 {
	return min(c.limits.TrailingLogs, max(c.stores.Newest(bytes), 1))
}
