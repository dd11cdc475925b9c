package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/ringrift/ringlog/client"
	"github.com/ringrift/ringlog/cmd/ringlog/devcluster"
	"github.com/ringrift/ringlog/event"
)

// ringlogSystem is ringlog as it ships.
// program is the path of the binary.
type ringlogSystem struct{ program string }

func (s *ringlogSystem) name() string { return "ringlog" }

func (s *ringlogSystem) settings() []string {
	return []string{
		"3 voters, as shipped",
		"every acknowledged event is synced on a majority; dedup by content, window 60 s",
	}
}

// sizes are larger than the peers': a measurement of each system takes about as long.
func (s *ringlogSystem) sizes(quick bool) sizes {
	if quick {
		return sizes{read: 200_000, consume: 200_000, group: 100_000, written: 100_000}
	}
	return sizes{read: 1_500_000, consume: 1_500_000, group: 500_000, written: 3_000_000}
}

// buildRinglog builds the program from the module that this one replaces.
// The go command knows where that module is, so the path is not repeated here.
func buildRinglog(ctx context.Context, dir string) (program string, err error) {
	out, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", "github.com/ringrift/ringlog").Output()
	if err != nil {
		return "", fmt.Errorf("find the folder of ringlog: run this in integration/bench: %w", err)
	}
	program = filepath.Join(dir, "ringlog")
	// As make optimized builds it.
	build := exec.CommandContext(ctx, "go", "build",
		"-trimpath", "-pgo=cmd/ringlog/nodes.pgo", "-o", program, "./cmd/ringlog")
	// The output ends with a newline.
	build.Dir = string(out[:len(out)-1])
	if text, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build ringlog: %w\n%s", err, text)
	}
	return program, nil
}

func (s *ringlogSystem) start(ctx context.Context, dir string) (session, error) {
	return s.open(ctx, dir)
}

// open is start with the session's own type, for works that only ringlog offers.
func (s *ringlogSystem) open(ctx context.Context, dir string) (_ *ringlogSession, err error) {
	// Ports and timing are the defaults of devcluster: free ports, and what serve ships.
	cluster, err := devcluster.Start(ctx, devcluster.Options{Program: s.program, Dir: dir})
	if err != nil {
		return nil, err
	}
	r := &ringlogSession{cluster: cluster}
	// From here on an error closes the cluster.
	defer func() {
		if err != nil {
			err = errors.Join(err, r.close(context.WithoutCancel(ctx)))
		}
	}()
	// No measurement begins with an election.
	_, err = cluster.WaitLeader(ctx)
	if err != nil {
		return nil, err
	}
	// The client knows all nodes, and follows the leader.
	r.client, err = client.New(client.Config{Endpoints: cluster.URLs()})
	if err != nil {
		return nil, err
	}
	// The cluster has appended events of its own.
	// What is stored is counted from here.
	status, err := r.client.Admin().Status(ctx)
	r.base = status.LastOffset
	return r, err
}

// ringlogSession is three voters and one client of all of them.
type ringlogSession struct {
	cluster *devcluster.Cluster
	client  *client.Client
	base    uint64 // the last offset before anything was published
	cursors int    // opened so far
}

// publishWays has first the way by which works that read fill the log.
func (r *ringlogSession) publishWays() []string {
	return []string{"batches of 1024, 8 at a time", "batches of 256, 8 at a time", "one by one, PublishAsync"}
}

// publish fails at the first duplicate, as none is expected.
func (r *ringlogSession) publish(ctx context.Context, way string, src *source, q *quota) (tally, error) {
	size := 1024
	switch way {
	case r.publishWays()[1]:
		size = 256
	case r.publishWays()[2]:
		// The client makes the batches.
		return r.publishAsync(ctx, src, q)
	}
	return eachBatch(ctx, 8, size, src, q, func(ctx context.Context, events []event.Event) error {
		results, err := r.client.PublishBatch(ctx, events)
		// There are no results beside an error.
		for i := range results {
			if results[i].Duplicate {
				return errDuplicate
			}
		}
		return err
	})
}

// It fails a work: a duplicate is not written, so the figure would be too good.
var errDuplicate = errors.New("an event was taken for a duplicate, and none is")

// publishAsync publishes events one by one and awaits their answers in order, with at most
// pendingAnswers outstanding.
func (r *ringlogSession) publishAsync(ctx context.Context, src *source, q *quota) (t tally, err error) {
	const pendingAnswers = 16 << 10
	// One goroutine awaits the answers in order; the channel bounds how many are outstanding.
	g := src.generator()
	futures := make(chan *client.Future, pendingAnswers)
	waited := make(chan error, 1)
	go func() {
		// All futures are received, even after an error: else the loop below would wait forever for room.
		var first error
		for f := range futures {
			res, err := f.Wait(ctx)
			if err == nil && res.Duplicate {
				err = errDuplicate
			}
			if first == nil {
				first = err
			}
		}
		waited <- first
	}()
	for ctx.Err() == nil && q.take(1) == 1 {
		ev := g.next()
		t.events, t.bytes = t.events+1, t.bytes+len(ev.Payload)
		// It waits while pendingAnswers are outstanding.
		futures <- r.client.PublishAsync(ctx, ev)
	}
	// The goroutine awaits what is outstanding, and then sends the first error.
	close(futures)
	return t, errors.Join(<-waited, ctx.Err())
}

// publishOne may be called from several goroutines, as the session promises.
func (r *ringlogSession) publishOne(ctx context.Context, ev event.Event) error {
	res, err := r.client.Publish(ctx, ev)
	if err == nil && res.Duplicate {
		err = errDuplicate
	}
	return err
}

// stored counts the few events that the cluster emits as well.
func (r *ringlogSession) stored(ctx context.Context) (int, error) {
	leader, err := r.cluster.WaitLeader(ctx)
	// Offsets are dense, so their difference is a number of events.
	return int(leader.LastOffset - r.base), err
}

func (r *ringlogSession) readWays() []string { return []string{"Tail"} }

func (r *ringlogSession) read(ctx context.Context, _ string, n int) error {
	for ev, err := range r.client.Tail(ctx, client.TailOptions{From: client.FromStart()}) {
		if err != nil {
			return err
		}
		// The cluster's own events are read as well, but not counted.
		if ev.Source == benchSource {
			n--
		}
		if n == 0 {
			return nil
		}
	}
	return errShort
}

func (r *ringlogSession) consumeWays() []string {
	return []string{"cursor, commit every 1000 awaited", "cursor, commit every 1000 while reading on"}
}

// consume reads through a new cursor. Where commits overlap with reading there is one at a
// time, of the latest offset due, and the last is awaited.
func (r *ringlogSession) consume(ctx context.Context, way string, n int) (err error) {
	// A cursor of a new name begins where its options say, here at the start.
	r.cursors++
	name, atStart := fmt.Sprintf("bench-%d", r.cursors), client.CursorOptions{From: client.FromStart()}
	cur, err := r.client.OpenCursor(ctx, name, atStart)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, cur.Close()) }()
	// finish is called on every path, since it ends the goroutine of overlapped.
	commit, finish := cur.Commit, func() error { return nil }
	if way == r.consumeWays()[1] {
		commit, finish = overlapped(ctx, cur.Commit)
	}
	defer func() { err = errors.Join(err, finish()) }()
	// A commit covers all events up to its offset.
	for open := 0; n > 0; { // open events are read and not committed
		ev, err := cur.Next(ctx)
		if err != nil {
			return err
		}
		if ev.Source != benchSource {
			continue
		}
		n--
		open++
		// The last events are committed even if they are fewer.
		if open < ackEvery && n > 0 {
			continue
		}
		open = 0
		if err := commit(ctx, ev.Offset); err != nil {
			return err
		}
	}
	return nil
}

// overlapped returns a commit that does not wait, and a finish that waits for the last.
func overlapped(
	ctx context.Context, commit func(context.Context, uint64) error,
) (later func(context.Context, uint64) error, finish func() error) {
	// due holds the one offset that waits while another is committed.
	due, done := make(chan uint64, 1), make(chan error, 1)
	go func() {
		// The first error counts. Later commits are tried all the same.
		var first error
		for offset := range due {
			if err := commit(ctx, offset); err != nil && first == nil {
				first = err
			}
		}
		done <- first
	}()
	// later is called by one goroutine, so due has room after the select.
	later = func(_ context.Context, offset uint64) error {
		select {
		case <-due: // a later offset replaces one that waits
		default:
		}
		due <- offset
		return nil
	}
	// It closes the channel, so it may be called once.
	return later, func() error {
		close(due)
		return <-done
	}
}

// leaderPID waits for a leader if there is none.
func (r *ringlogSession) leaderPID(ctx context.Context) (int, error) {
	leader, err := r.cluster.WaitLeader(ctx)
	return r.cluster.PID(leader.NodeID), err
}

func (r *ringlogSession) pids() (pids []int) {
	for _, n := range r.cluster.Nodes() {
		// A node that is down has no process.
		if pid := r.cluster.PID(n.ID); pid != 0 {
			pids = append(pids, pid)
		}
	}
	return pids
}

// close works on a session that was not opened to its end.
func (r *ringlogSession) close(ctx context.Context) (err error) {
	if r.client != nil {
		err = r.client.Close(ctx)
	}
	return errors.Join(err, r.cluster.Close(ctx))
}

// leaderURL returns the leader's address for clients.
// It is for scripts, which do not look for the leader themselves.
func (r *ringlogSession) leaderURL(ctx context.Context) (string, error) {
	leader, err := r.cluster.WaitLeader(ctx)
	if err != nil {
		return "", err
	}
	n, err := r.cluster.Node(leader.NodeID)
	return n.URL(), err
}

// tailOfLogs returns the ends of the servers' logs, for the report of a failure.
// Of each it has 500 bytes at most.
func tailOfLogs(dir string) string {
	files, _ := filepath.Glob(filepath.Join(dir, "*.log"))
	text := ""
	// A file that cannot be read is left out: this is for an error that is reported in any case.
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err == nil {
			text += filepath.Base(f) + ": …" + string(b[max(0, len(b)-500):]) + "\n"
		}
	}
	return text
}
