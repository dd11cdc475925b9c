package integration

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ringrift/ringlog/event"
)

// eventsToRestart is how many events the restart benchmark writes first; the
// variable RINGLOG_BENCH_EVENTS replaces it.
func eventsToRestart() int {
	if n, err := strconv.Atoi(os.Getenv("RINGLOG_BENCH_EVENTS")); err == nil {
		return n
	}
	return 5_000_000
}

// trainingEvent is the n-th of a varying stream of events of about 256 bytes.
func trainingEvent(n int) event.Event {
	e := event.New(event.TrainingCompleted, fmt.Appendf(nil, `{"config_key": "hex8_2p", "epoch": %d, "loss": 0.%d, `+
		`"model_path": "models/hex8_2p/candidate-%d.pt", "policy_accuracy": 0.%d, `+
		`"samples": %d, "trainer": "gpu-node-%d", "val_loss": 0.%d}`,
		n%50, 10000+n*7919%89999, n*31, 10000+n*104729%89999, n*4096, n%12, 10000+n*15485863%89999))
	e.Source = fmt.Sprintf("trainer-%d", n%7)
	return e
}

// fill publishes n events in requests of 1024.
func (c *cluster) fill(n int) {
	c.t.Helper()
	cl, ctx := c.client(), context.Background()
	var senders sync.WaitGroup
	next := make(chan int) // the number of the first event of a request
	for range 6 {
		senders.Go(func() {
			for from := range next {
				events := make([]event.Event, min(1024, n-from))
				for i := range events {
					events[i] = trainingEvent(from + i)
				}
				if _, err := cl.PublishBatch(ctx, events); err != nil {
					c.t.Errorf("publish: %v", err)
				}
			}
		})
	}
	for from := 0; from < n; from += 1024 {
		next <- from
	}
	close(next)
	senders.Wait()
}

// rssAnon returns a process' anonymous memory in MB.
func (p *process) rssAnon() float64 {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	for _, line := range strings.Split(string(text), "\n") {
		if rest, found := strings.CutPrefix(line, "RssAnon:"); found {
			kb, _ := strconv.Atoi(strings.Fields(rest)[0])
			return float64(kb) / 1024
		}
	}
	return 0
}

// BenchmarkRestart writes events, kills a follower and starts it again: how long
// until it has applied what was committed when it started, what memory it takes,
// how many keys its dedup window holds; and for how long a publisher waits at most
// while a backup is made and the state is synced for raft to compact its log.
func BenchmarkRestart(b *testing.B) {
	// Fill the log.
	c := newCluster(b, b.TempDir(), 3).startAll()
	n := eventsToRestart()
	began := time.Now()
	c.fill(n)
	b.ReportMetric(float64(n)/time.Since(began).Seconds(), "fill_events/s")
	c.converged()
	// Kill a follower, and wait until it has what the leader had committed by then.
	p := c.follower()
	for b.Loop() {
		p.kill()
		leader, err := c.leader().status()
		if err != nil {
			b.Fatal(err)
		}
		start := time.Now()
		p.start()
		c.eventually(60*time.Second, "the restarted node", func() error {
			s, err := p.status()
			if err == nil && s.AppliedIndex < leader.CommitIndex {
				err = fmt.Errorf("applied %d of %d", s.AppliedIndex, leader.CommitIndex)
			}
			return err
		})
		b.ReportMetric(time.Since(start).Seconds(), "restart_s")
	}
	b.ReportMetric(p.rssAnon(), "rss_anon_MB")
	b.ReportMetric(float64(keysInWindow(b, p)), "window_keys")
	worst, usual := stallDuringBackup(b, c)
	b.ReportMetric(float64(worst.Milliseconds()), "snapshot_worst_publish_ms")
	b.ReportMetric(float64(usual.Microseconds())/1000, "usual_worst_publish_ms")
}

// keysInWindow returns how many keys a node has in its dedup window.
func keysInWindow(b *testing.B, p *process) int {
	var s struct {
		Dedup struct {
			Keys int `json:"keys"`
		} `json:"dedup"`
	}
	if err := getJSON(context.Background(), p.url()+"/status", &s); err != nil {
		b.Fatal(err)
	}
	return s.Dedup.Keys
}

// stallDuringBackup publishes one event after the other for a while, then again
// while the leader makes a backup, and returns the longest wait of each.
func stallDuringBackup(b *testing.B, c *cluster) (worst, usual time.Duration) {
	leader := c.leader()
	cl := c.client(leader.url())
	publishUntil := func(done func() bool) (longest time.Duration) {
		for n := 0; !done(); n++ {
			sent := time.Now()
			e := event.New(event.TrainingProgress, json.RawMessage(fmt.Sprintf(`{"n": %d}`, n)))
			e.NoDedup = true
			if _, err := cl.Publish(context.Background(), e); err != nil {
				b.Fatal(err)
			}
			longest = max(longest, time.Since(sent))
		}
		return longest
	}
	// First for three seconds without a backup, for comparison.
	end := time.Now().Add(3 * time.Second)
	usual = publishUntil(func() bool { return time.Now().After(end) })
	ready := make(chan struct{})
	go func() {
		defer close(ready)
		resp, err := http.Get(leader.url() + "/v1/snapshot")
		if err != nil {
			b.Error(err)
			return
		}
		defer resp.Body.Close()
		first := make([]byte, 1<<20)
		_, _ = io.ReadFull(resp.Body, first) // the checkpoint is made before the first byte
	}()
	worst = publishUntil(func() bool {
		select {
		case <-ready:
			return true
		default:
			return false
		}
	})
	return worst, usual
}
