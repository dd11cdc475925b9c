package raftnode

import (
	"sync"
	"testing"
	"time"

	"github.com/ringrift/ringlog/raftnode/clock"
)

var noon = time.Date(2026, 1, 5, 12, 0, 0, 0, time.UTC)

// simClocks are the wall clocks of simulated nodes beside the bubble's.
type simClocks struct {
	mu     sync.Mutex
	offset map[string]time.Duration
}

func (c *simClocks) of(id string) func() clock.Reading {
	system := clock.System()
	return func() clock.Reading {
		c.mu.Lock()
		defer c.mu.Unlock()
		r := system()
		r.Wall = r.Wall.Add(c.offset[id])
		return r
	}
}

func (c *simClocks) step(by time.Duration, ids ...string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, id := range ids {
		c.offset[id] += by
	}
}

// A leader's clock that steps alone moves nothing, whatever the others reported before.
func TestAClockThatStepsAloneIsNotFollowed(t *testing.T) {
	clocks := &simClocks{offset: map[string]time.Duration{}}
	inBubbleWith(t, func(cfg *Config) { cfg.clocks = clocks.of(cfg.ID) }, func(s *simulation) {
		leader := s.leads()
		for range 20 {
			clocks.step(time.Hour, leader.cfg.ID)
			time.Sleep(3 * time.Second)
			clocks.step(-time.Hour, leader.cfg.ID)
			time.Sleep(2*time.Second + 137*time.Millisecond) // at another moment between two pings
		}
		if step := leader.machine.LastClockStep(); step != nil {
			t.Errorf("replicated time was moved from %v to %v by %v", step.From, step.To, step.Agreed)
		}
		clocks.step(time.Hour, leader.cfg.ID, s.follower())
		time.Sleep(5 * time.Second)
		step := leader.machine.LastClockStep()
		if step == nil || len(step.Agreed) != 2 || step.To.Sub(step.From) < 59*time.Minute {
			t.Errorf("two of three clocks have stepped: %+v", step)
		}
	})
}
