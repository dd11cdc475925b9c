package main

import (
	"errors"
	"testing"
	"time"
)

// A node that does not answer may have made a backup that no other node knows of.
func TestABackupOfASilentNodeIsNotDenied(t *testing.T) {
	ago := func(d time.Duration) time.Time { return time.Now().Add(-d) }
	status := func(id string, backup time.Time) answer[timedStatus] {
		var s timedStatus
		s.NodeID, s.ClusterID, s.LastBackup = id, "c", backup
		return answer[timedStatus]{url: "http://" + id, value: s}
	}
	none := time.Time{}
	silent := answer[timedStatus]{url: "http://n3", err: errors.New("refused")}
	for _, c := range []struct {
		third answer[timedStatus]
		last  time.Time // backup of n1
		age   time.Duration
		ok    bool
		found string
	}{
		{status("n3", none), none, time.Minute, true, "none yet, of a cluster that is 1m old"},
		{silent, none, time.Minute, true,
			"no node that answers has made one, of a cluster that is 1m old; silent: n3"},
		{status("n3", none), none, 48 * time.Hour, false, "no node that answers has ever made one"},
		{silent, none, 48 * time.Hour, false, "no node that answers has ever made one; silent: n3"},
		{status("n3", ago(time.Hour)), none, 48 * time.Hour, true, "n3 made one 1h ago"},
		{silent, ago(time.Hour), 48 * time.Hour, true, "n1 made one 1h ago"},
		{silent, ago(48 * time.Hour), 48 * time.Hour, false, "the newest is 2d old (of n1); silent: n3"},
	} {
		found := newSweep[timedStatus]()
		found.answers = []answer[timedStatus]{status("n1", c.last), status("n2", none), c.third,
			{url: "http://gone", err: errors.New("refused")}} // an endpoint at which no member is
		found.members = map[string]string{"http://n1": "n1", "http://n2": "n2", "http://n3": "n3"}
		if f := backupFinding(found, 26*time.Hour, c.age); f.OK != c.ok || f.Found != c.found {
			t.Errorf("%+v, want %q", f, c.found)
		}
	}
}
