package health

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ringrift/ringlog/raftnode/clock"
	"github.com/ringrift/ringlog/raftnode/datadir"
)

// answeringPeers are members that answer every ping.
type answeringPeers struct{}

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
		members := []datadir.Peer{{ID: "a"}, {ID: "b", HTTP: "b"}, {ID: "c", HTTP: "c"}}
		w := NewWatch(WatchOptions{
			Self:      "a",
			Peers:     answeringPeers{},
			Timing:    Timing{Ping: ping, Misses: 5, Heartbeat: time.Second},
			Clocks:    func() (r clock.Reading) { return r },
			Members:   func() []datadir.Peer { return members },
			Applied:   func() uint64 { return 0 },
			ClusterID: func() string { return "" },
			Urgent:    func() bool { return false },
			Differs:   func(Report) bool { return false },
			Contacts:  new(Contacts),

			OnReport: func(Report, time.Time, time.Time) {},
			OnRound: func() {
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
		go func() {
			defer close(done)
			w.Run(ctx)
		}()
		time.Sleep(10 * ping)
		paused <- time.Minute
		<-resumed
		for _, id := range []string{"b", "c"} {
			if reason, silent := w.Absence(id); reason != "" {
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

// strangers answer in the place of members.
type strangers map[string]func() (Report, error)

func (s strangers) Identify(_ context.Context, url string, _ Question) (Report, error) {
	return s[url[len("http://"):]]()
}

func TestWhatAnswersInAMembersPlaceIsKnown(t *testing.T) {
	answers := func(r Report, err error) func() (Report, error) { return func() (Report, error) { return r, err } }
	w := NewWatch(WatchOptions{
		Self:      "a",
		Timing:    Timing{Ping: time.Second, Misses: 5},
		Clocks:    func() (r clock.Reading) { return r },
		Applied:   func() uint64 { return 0 },
		ClusterID: func() string { return "own" },
		Differs:   func(Report) bool { return false },
		OnReport:  func(Report, time.Time, time.Time) {},
		Peers: strangers{
			"itself":  answers(Report{ID: "itself", ClusterID: "own", Incarnation: "1"}, nil),
			"token":   answers(Report{}, fmt.Errorf("no leader: %w", ErrOtherToken)),
			"empty":   answers(Report{ID: "empty", Incarnation: "2"}, nil),
			"second":  answers(Report{ID: "second", ClusterID: "own", Incarnation: "2"}, nil),
			"foreign": answers(Report{ID: "foreign", ClusterID: "other", Incarnation: "2"}, nil),
			"silent":  answers(Report{}, errors.New("connection refused")),
		},
	})
	for id, want := range map[string]Mismatch{
		"itself": {}, "token": {Token: true}, "empty": {Folder: true}, "second": {Folder: true},
		"foreign": {Cluster: true}, "silent": {},
	} {
		_, err := w.Ask(t.Context(), datadir.Peer{ID: id, HTTP: id, Incarnation: "1"})
		if got := w.Mismatch(id); got != want || (err == nil) != (id == "itself") {
			t.Errorf("%s: %+v, %v", id, got, err)
		}
	}
	// What answers is forgotten with the member.
	w.Forget(nil)
	if got := w.Mismatch("token"); got != (Mismatch{}) {
		t.Errorf("%+v", got)
	}
}
