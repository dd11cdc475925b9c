package raftnode

import (
	"testing"
	"time"

	"github.com/ringrift/ringlog/fsm"
)

// A cluster is at the level of its members as soon as it is formed: the leader's pings do not have to come round first.
func TestAClusterIsFormedAtTheLevelOfItsMembers(t *testing.T) {
	t.Parallel()
	c := voters(t, 3, func(cfg *Config) { cfg.Timing.Ping = time.Minute })
	if level := c.leader().machine.FeatureLevel(); level != fsm.FeatureLevel {
		t.Errorf("formed at level %d of %d", level, fsm.FeatureLevel)
	}
}
