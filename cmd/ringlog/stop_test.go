package main

import (
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/ringrift/ringlog/cmd/ringlog/devcluster"
)

// A cluster that starts and is stopped as a whole has no line at WARN or ERROR, in whichever order its nodes end: all
// at once, as dev ends or a machine is shut down, or one after the other.
func TestAClusterThatIsStoppedLogsNoWarning(t *testing.T) {
	t.Parallel()
	for name, stop := range map[string]func(t *testing.T, c *devcluster.Cluster, leader string){
		"at once": func(t *testing.T, c *devcluster.Cluster, _ string) {
			var ending sync.WaitGroup
			for _, n := range c.Nodes() {
				ending.Go(func() { stopNode(t, c, n.ID) })
			}
			ending.Wait()
		},
		"the leader first, the last one without a quorum": func(t *testing.T, c *devcluster.Cluster, leader string) {
			stopNode(t, c, leader)
			var left []devcluster.Node
			for _, n := range c.Nodes() {
				if n.ID != leader {
					left = append(left, n)
				}
			}
			stopNode(t, c, left[0].ID)
			if err := c.Until(t.Context(), "the last node leads no longer", func() bool {
				s, err := c.Status(t.Context(), left[1])
				return err == nil && s.LeaderID == ""
			}); err != nil {
				t.Error(err)
			}
			stopNode(t, c, left[1].ID)
		},
		"the leader last": func(t *testing.T, c *devcluster.Cluster, _ string) {
			if err := c.Close(t.Context()); err != nil {
				t.Error(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := startCluster(t.Context(), t, t.TempDir(), "--ping-misses", "20") // nobody reports a lost quorum meanwhile
			leader, err := c.WaitLeader(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			stop(t, c, leader.NodeID)
			for _, n := range c.Nodes() {
				log, err := os.ReadFile(n.Log)
				if err != nil {
					t.Fatal(err)
				}
				if !strings.Contains(string(log), "[INFO]  "+n.ID+": stopped") {
					t.Errorf("the log of %s does not end with its stop:\n%s", n.ID, log)
				}
				for line := range strings.Lines(string(log)) {
					if strings.Contains(line, "[WARN]") || strings.Contains(line, "[ERROR]") {
						t.Error(strings.TrimSpace(line))
					}
				}
			}
			if err := c.Close(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

func stopNode(t *testing.T, c *devcluster.Cluster, id string) {
	if err := c.Stop(t.Context(), id); err != nil {
		t.Error(err)
	}
}
