package integration

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// A member is stopped and started again with the data folder of another cluster under its own
// id and addresses: a swapped volume, or a restore that is started where the member was. That
// cluster has one voter, so the node could lead it and acknowledge what the members never get.
func TestANodeWithAnotherClustersFolderEnds(t *testing.T) {
	t.Parallel()
	other := newCluster(t, filepath.Join(t.TempDir(), "other"), 1).startAll()
	other.mustRun("publish", "TRAINING_STARTED", "-p", `{"config_key":"other"}`)
	other.nodes[0].stop()
	c := newCluster(t, t.TempDir(), 3).startAll()
	c.mustRun("publish", "TRAINING_STARTED", "-p", `{"config_key":"own"}`)
	// The member starts with the other cluster's folder, and ends with the reason.
	n1 := c.nodes[0]
	n1.stop()
	own := n1.dir
	n1.dir = other.nodes[0].dir
	n1.start()
	n1.wait()
	if code := n1.cmd.ProcessState.ExitCode(); code != 6 || !strings.Contains(n1.tail(), "ringlog: OTHER_CLUSTER: ") {
		t.Errorf("it ended with %d and logged\n%s", code, n1.tail())
	}
	// The others accept writes; with its own folder the member catches up.
	for i := range 20 {
		c.mustRun("publish", "TRAINING_STARTED", "-p", fmt.Sprintf(`{"config_key":"own-%d"}`, i))
	}
	n1.dir = own
	n1.start()
	c.eventually(30*time.Second, "the member with its own folder", func() error {
		_, err := c.run("verify")
		return err
	})
	if s := c.converged(); s.LastOffset < 21 {
		t.Errorf("the members have %d events", s.LastOffset)
	}
}
