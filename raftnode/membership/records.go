package membership

import (
	"context"
	"fmt"
	"time"

	"github.com/hashicorp/raft"

	"github.com/ringrift/ringlog/internal/frame"
)

// Tend is a leader's duty to keep replicated time near the wall clock and the records of the members true, until
// ctx ends.
func (c *Changes) Tend(ctx context.Context) {
	// As often as the reports come that show a change.
	tick := time.NewTicker(c.o.Timing.Ping)
	defer tick.Stop()
	for {
		if err := c.tendOnce(ctx); err != nil && ctx.Err() == nil {
			c.o.Logger.Warn("keeping replicated time and the records of the members", "error", err)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// tendOnce makes one round of Tend. It waits for a change of members that is under way.
func (c *Changes) tendOnce(ctx context.Context) error {
	// During a change the records and raft's configuration differ, and the new member would be forgotten.
	release, err := c.o.Life.Exclusively(ctx)
	if err != nil {
		return err
	}
	defer release()
	// Replicated time first: the records are stamped with it.
	if err := c.stepClock(ctx); err != nil {
		return err
	}
	if err := c.recordSelf(ctx); err != nil {
		return err
	}
	if err := c.forgetStrangers(ctx); err != nil {
		return err
	}
	return c.recordVersions(ctx)
}

// stepClock moves replicated time to the wall clock if the two are apart.
func (c *Changes) stepClock(ctx context.Context) error {
	return c.o.StepClock(ctx, func(step frame.ClockStep) error { return c.o.Proposals.Decide(ctx, step) })
}

// recordSelf records this node's own address and version. Other nodes ask the leader to record theirs; nobody does it
// for the leader.
func (c *Changes) recordSelf(ctx context.Context) error {
	if err := c.putRecord(ctx, c.o.Roster.Self()); err != nil {
		return err
	}
	// Raft's configuration has an address too, by which others reach this node.
	s, ok := c.o.Roster.Server(c.o.Roster.ID())
	if !ok || string(s.Address) == c.o.Roster.Address() {
		return nil
	}
	return c.configure(c.o.Roster.ID(), c.o.Roster.Address(), s.Suffrage == raft.Voter)
}

// recordVersions records the version and feature level that each member reports. A restart with a newer program shows
// in the reports alone; the cluster's feature level increases once all are recorded.
func (c *Changes) recordVersions(ctx context.Context) error {
	for _, m := range c.o.Machine.Members() {
		s, healthy := c.o.Watch.Last(m.ID)
		if m.ID == c.o.Roster.ID() || !healthy || s.Report.Incarnation != m.Incarnation {
			continue
		}
		// The addresses stay: those of another member change only by Add.
		m.FeatureLevel, m.Version = s.Report.FeatureLevel, s.Report.Version
		if err := c.putRecord(ctx, m); err != nil {
			return err
		}
	}
	return nil
}

// forgetStrangers drops the records of members that are not in raft's configuration: a change was interrupted,
// or the cluster was recovered without them. While they are recorded they cannot join with an emptied folder.
func (c *Changes) forgetStrangers(ctx context.Context) error {
	for _, m := range c.o.Machine.Members() {
		// This node's own record stays.
		if _, listed := c.o.Roster.Server(m.ID); listed || m.ID == c.o.Roster.ID() {
			continue
		}
		if err := c.o.Proposals.Decide(ctx, frame.MemberRemove{ID: m.ID}); err != nil {
			return fmt.Errorf("forget %s: %w", m.ID, err)
		}
	}
	return nil
}

// putRecord proposes a member's record if it differs from the one in the state.
func (c *Changes) putRecord(ctx context.Context, m frame.Member) error {
	if known, ok := c.o.Machine.Member(m.ID); ok && known == m {
		return nil
	}
	return c.o.Proposals.Decide(ctx, frame.MemberPut{Member: m})
}
