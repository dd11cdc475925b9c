package raftnode

import (
	"context"
	"time"

	"github.com/ringrift/ringlog/election"
	"github.com/ringrift/ringlog/internal/frame"
	"github.com/ringrift/ringlog/raftnode/batcher"
)

const (
	pressureLook = 100 * time.Millisecond // how often the queue is sampled
	pressureHold = time.Second            // least between two reports, and how long a full queue has to be low
)

// QueueStatus is how full this node's queue of requests is.
type QueueStatus = batcher.QueueStatus

// reportPressure is a leader's duty to report to the log when its queue is full, and when it no longer is, until ctx
// ends.
func (n *Node) reportPressure(ctx context.Context) {
	tick := time.NewTicker(pressureLook)
	defer tick.Stop()
	// A new leader continues from what the log says, whoever said it.
	bounds := election.QueueBounds{Requests: uint64(n.cfg.Limits.QueueRequests), Bytes: uint64(n.cfg.Limits.QueueBytes)}
	p := election.NewPressure(bounds, pressureHold, n.machine.Pressure().Active)
	_, before := n.proposer.Load() // what an earlier leadership refused was its own to report
	refused := uint64(0)           // since the last report
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		// The peak since the last sample: a short rush is seen as well.
		peak, total := n.proposer.Load()
		now := time.Now()
		peak.Refused, before = total-before, total
		// A report that is not made now has them in the next one.
		refused += peak.Refused
		active, due := p.See(now, peak)
		if !due || !n.proposer.Reached(frame.KindPressure) {
			continue
		}
		// Unqueued: a full queue has no room for the report that it is full.
		report := frame.Pressure{Active: active, Requests: peak.Requests, Bytes: peak.Bytes, Refused: refused}
		if err := n.proposer.ProposeUnqueued(report); err != nil {
			if ctx.Err() == nil {
				n.logger.Warn("reporting how full the queue is", "active", active, "error", err)
			}
			continue
		}
		// Only what was recorded counts: a report that failed is due again.
		p.NoteReport(now, active)
		refused = 0
		n.logger.Info("queue", "full", active, "requests", peak.Requests, "bytes", peak.Bytes)
	}
}
