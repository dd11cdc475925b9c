package raftnode

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ringrift/ringlog/raftnode/clock"
	"github.com/ringrift/ringlog/raftnode/datadir"
)

// answeringPeers are members that answer every ping. Nothing else is asked of them.
type answeringPeers struct{ Peers }

func (answeringPeers) Identify(_ context.Context, url string, _ Question) (Report, error) {
	return Report{ID: url[len("http://"):], Time: time.Now()}, nil
}

// A process that was paused, by a signal or by its machine, asked nobody in that time: the other voters
// were not silent, and none counts as away when it resumes.
func TestAPauseOfTheProcessIsNoSilenceOfTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const ping = 200 * time.Millisecond
		ctx, stop := context.WithCancel(context.Background())
		paused := make(chan time.Duration, 1) // how long the loop that asks is to be paused
		resumed := make(chan struct{})
		w := newWatch(watchOptions{
			self: "a", peers: answeringPeers{}, ping: ping, misses: 5, heartbeat: time.Second,
			clocks:  func() (r clock.Reading) { return r },
			members: func() []datadir.Peer { return []datadir.Peer{{ID: "a"}, {ID: "b", HTTP: "b"}, {ID: "c", HTTP: "c"}} },
			applied: func() uint64 { return 0 },
			urgent:  func() bool { return false },
			differs: func(Report) bool { return false },
			heard:   func(string) time.Time { return time.Time{} },

			onReport: func(Report, time.Time, time.Time) {},
			onRound: func() {
				select {
				case d := <-paused:
					// The loop asks nobody and reads no clock while it sleeps, as in a process that is stopped.
					time.Sleep(d)
					resumed <- struct{}{}
				default:
				}
			},
		})
		done := make(chan struct{})
		go func() { defer close(done); w.run(ctx) }()
		time.Sleep(10 * ping)
		paused <- time.Minute
		<-resumed
		for _, id := range []string{"b", "c"} {
			if reason, silent := w.absence(id); reason != "" {
				t.Errorf("after a pause of this process %s counts as away: %s, silent for %v", id, reason, silent)
			}
			if silent := w.silence(id, time.Now()); silent > 5*ping {
				t.Errorf("after a pause of this process %s counts as silent for %v", id, silent)
			}
		}
		stop()
		<-done
	})
}
