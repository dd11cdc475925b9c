package integration

import (
	"bufio"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ringrift/ringlog/event"
)

const (
	// slowSync is by how much strace holds back the return of a sync. It is below what
	// the timings of syncedCluster take for a lost node.
	slowSync = 300 * time.Millisecond
	// verySlowSync is longer than an answer takes that does not wait for it.
	verySlowSync = time.Second
	// answersSlowed is how many events are published while syncs are slow.
	answersSlowed = 3
	// answersTraced is how many are published while syncs are only watched.
	answersTraced = 40
)

// An answer means that a majority synced the entry: it comes after a sync of the raft
// log on the leader and one on a follower, each begun after the entry was written
// there, and without those it does not come. strace makes the disks slow. All times that
// the test requires are lower bounds, except one: the quickest of a few answers takes less
// than a second.
func TestAcknowledgedOnlyWhenSyncedOnAMajority(t *testing.T) {
	t.Parallel()
	strace, err := exec.LookPath("strace")
	if err != nil {
		t.Skip("strace is not installed")
	}
	// bolt syncs the pages of a large entry, then the meta page that makes them count.
	const syncsOfALargeEntry = 2
	// Answers follow the syncs of a majority, for small entries and for large ones.
	s := newSyncedCluster(t, strace)
	s.everyAnswerFollowsTheSyncsOfAMajority(1)
	s.padding = make([]byte, 48<<10)
	if _, err := rand.Read(s.padding); err != nil {
		t.Fatal(err)
	}
	s.everyAnswerFollowsTheSyncsOfAMajority(syncsOfALargeEntry)
	// They wait for slow syncs, but not for those of one follower, and do not come without any.
	s.padding = nil
	s.answersWaitFor("the leader's disk", s.lead)
	s.answersWaitFor("a follower's disk", s.others...)
	s.answersDoNotWaitForTheSlowest()
	s.noAnswerWithoutSyncs()
}

// A backup that is called saved has its bytes and its name on the disk: the file is synced
// before it is renamed, and its folder after.
func TestASavedBackupIsSyncedWithItsName(t *testing.T) {
	t.Parallel()
	strace, err := exec.LookPath("strace")
	if err != nil {
		t.Skip("strace is not installed")
	}
	c := newCluster(t, t.TempDir(), 1).startAll()
	c.leader() // before, there is nothing to save
	folder, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	// strace prints the files that descriptors stand for, by paths without symbolic links.
	file, calls := filepath.Join(folder, "backup"), filepath.Join(t.TempDir(), "calls")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, strace, "-f", "-y", "-o", calls,
		"-e", "signal=none",
		"-e", "trace=fsync,fdatasync,rename,renameat,renameat2",
		binary, "snapshot", "save", file)
	cmd.Env = append(os.Environ(), "RINGLOG_ENDPOINTS="+strings.Join(c.endpoints(), ","))
	if out, err := cmd.CombinedOutput(); strings.Contains(string(out), "not permitted") {
		t.Skipf("strace may not attach here: %s", out)
	} else if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	text, err := os.ReadFile(calls)
	if err != nil {
		t.Fatal(err)
	}
	// The file has a temporary name until it is renamed.
	quoted := regexp.QuoteMeta
	order := regexp.MustCompile(`(?s)sync\(\d+<` + quoted(file) + `\.part-\d+>.*` +
		`rename[^\n]*"` + quoted(file) + `".*` +
		`fsync\(\d+<` + quoted(folder) + `>`)
	if !order.Match(text) {
		t.Errorf("no sync of the file, rename and sync of the folder in\n%s", text)
	}
}

// syncedCluster is three nodes whose raft logs strace watches. One client publishes one
// event after the other, and no other process publishes.
type syncedCluster struct {
	*cluster
	strace  string
	lead    *process
	others  []*process
	term    uint64
	padding []byte // part of each event's payload, to make it large
	publish func(ctx context.Context) error
}

// newSyncedCluster starts three voters whose system calls strace can delay and record. The
// long heartbeat keeps the leader while its calls are delayed.
func newSyncedCluster(t *testing.T, strace string) *syncedCluster {
	c := newCluster(t, t.TempDir(), 3, "--heartbeat", "3s").startAll()
	s := &syncedCluster{cluster: c, strace: strace, lead: c.leader()}
	for _, p := range c.nodes {
		if p != s.lead {
			s.others = append(s.others, p)
		}
	}
	s.term = c.converged().Term
	cl, n := c.client(s.lead.url()), 0
	s.publish = func(ctx context.Context) error {
		n++
		payload := fmt.Appendf(nil, `{"n": %d, "padding": "%x"}`, n, s.padding)
		_, err := cl.Publish(ctx, event.New(event.TrainingProgress, payload))
		return err
	}
	return s
}

// answer publishes one event and returns when it was sent and when answered.
func (s *syncedCluster) answer() (sent, answered time.Time) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	sent = time.Now()
	if err := s.publish(ctx); err != nil {
		s.t.Fatalf("publish: %v", err)
	}
	return sent, time.Now()
}

// requireSameTerm waits until nothing is under way. It fails if there was an election since
// the cluster was formed: then the syncs of another leader would have been the ones to watch.
func (s *syncedCluster) requireSameTerm() {
	s.t.Helper()
	if now := s.converged(); now.Term != s.term {
		s.t.Fatalf("it is term %d, not %d as when the cluster was formed", now.Term, s.term)
	}
}

// everyAnswerFollowsTheSyncsOfAMajority requires that between a request and its answer the
// leader and a follower each wrote to their raft logs and synced what they had written, as
// often as an entry takes.
func (s *syncedCluster) everyAnswerFollowsTheSyncsOfAMajority(syncsOfAnEntry int) {
	s.t.Helper()
	var traces []*trace
	for _, p := range append([]*process{s.lead}, s.others...) {
		traces = append(traces, s.trace(p))
	}
	type span struct{ sent, answered time.Time }
	var answers []span
	for range answersTraced {
		sent, answered := s.answer()
		answers = append(answers, span{sent, answered})
	}
	s.requireSameTerm()
	// The calls of each node, the leader's first.
	calls := make([][]fileCall, len(traces))
	for i, tr := range traces {
		calls[i] = tr.end()
		s.t.Logf("%s: %d writes and syncs of its raft log for %d answers", tr.p.id, len(calls[i]), len(answers))
	}
	for n, a := range answers {
		var synced []int
		for _, list := range calls {
			synced = append(synced, syncsBetween(list, a.sent, a.answered))
		}
		if synced[0] < syncsOfAnEntry || max(synced[1], synced[2]) < syncsOfAnEntry {
			s.t.Fatalf("answer %d of %d came when the leader and its followers had written and synced %v times, "+
				"not %d times on a majority",
				n+1, len(answers), synced, syncsOfAnEntry)
		}
	}
}

// answersWaitFor requires that no answer comes before slow syncs of these nodes return.
func (s *syncedCluster) answersWaitFor(what string, nodes ...*process) {
	s.t.Helper()
	var traces []*trace
	for _, p := range nodes {
		traces = append(traces, s.trace(p, delay(slowSync)))
	}
	for range answersSlowed {
		if sent, answered := s.answer(); answered.Sub(sent) < slowSync {
			s.t.Fatalf("an answer came after %s and did not wait for %s, which takes %s", answered.Sub(sent), what, slowSync)
		}
	}
	s.requireSameTerm()
	for _, tr := range traces {
		tr.end()
	}
}

// answersDoNotWaitForTheSlowest requires that a majority is enough: so the waits of
// answersWaitFor were for a majority and not for all nodes.
func (s *syncedCluster) answersDoNotWaitForTheSlowest() {
	s.t.Helper()
	slow := s.trace(s.others[0], delay(verySlowSync))
	quickest := time.Hour
	for range answersSlowed {
		sent, answered := s.answer()
		quickest = min(quickest, answered.Sub(sent))
	}
	s.requireSameTerm()
	slow.end()
	if quickest >= verySlowSync {
		s.t.Fatalf("the quickest answer took %s while one follower of two took %s to sync", quickest, verySlowSync)
	}
}

// noAnswerWithoutSyncs makes the syncs of both followers fail: both end, and what the
// leader alone has synced is not acknowledged.
func (s *syncedCluster) noAnswerWithoutSyncs() {
	s.t.Helper()
	for _, p := range s.others {
		s.trace(p, "inject=fdatasync,fsync:error=EIO")
	}
	// No answer comes in time, and both end with the reason.
	for range answersSlowed {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		err := s.publish(ctx)
		cancel()
		if err == nil {
			s.t.Fatal("an event was acknowledged that only the leader has synced")
		}
	}
	for _, p := range s.others {
		p.wait()
		if text := p.tail(); !strings.Contains(text, "DISK_FAILED") {
			s.t.Fatalf("%s did not end with DISK_FAILED when its sync failed:\n%s", p.id, text)
		}
	}
}

// delay returns the option of strace that delays the return of every sync.
func delay(d time.Duration) string {
	return fmt.Sprintf("inject=fdatasync,fsync:delay_exit=%d", d.Microseconds())
}

// trace is strace looking at a running node's calls on the files of its raft log.
type trace struct {
	c      *syncedCluster
	p      *process
	cmd    *exec.Cmd
	done   chan struct{} // closed when strace has ended
	output string
}

// trace attaches strace to a node and returns once it is attached. extra are further
// options, such as delays of these calls.
func (s *syncedCluster) trace(p *process, extra ...string) *trace {
	s.t.Helper()
	tr := &trace{c: s, p: p, done: make(chan struct{}), output: filepath.Join(s.t.TempDir(), "trace")}
	args := []string{
		"-f", "-ttt", "-T", "-s", "0",
		"-o", tr.output,
		"-e", "signal=none",
		"-e", "trace=pwrite64,pwritev,write,fdatasync,fsync",
	}
	// Only calls on the files of the raft log count.
	for _, file := range raftLogFiles(s.t, p) {
		args = append(args, "-P", file)
	}
	for _, e := range extra {
		args = append(args, "-e", e)
	}
	// What strace prints about itself goes to another file than the calls.
	messages, err := os.Create(tr.output + ".messages")
	if err != nil {
		s.t.Fatal(err)
	}
	defer messages.Close()
	tr.cmd = exec.Command(s.strace, append(args, "-p", strconv.Itoa(p.cmd.Process.Pid))...)
	tr.cmd.Stderr = messages
	tr.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := tr.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	go func() { // ends with strace, which stop ends
		defer close(tr.done)
		_ = tr.cmd.Wait()
	}()
	s.t.Cleanup(tr.stop)
	tr.awaitAttached(messages.Name())
	return tr
}

// awaitAttached waits until strace prints that it is attached, and skips the test where it may not attach.
func (tr *trace) awaitAttached(messages string) {
	tr.c.t.Helper()
	tr.c.eventually(10*time.Second, "strace attached to "+tr.p.id, func() error {
		text, err := os.ReadFile(messages)
		switch {
		case err != nil:
			return err
		case strings.Contains(string(text), "not permitted"):
			tr.c.t.Skipf("strace may not attach here: %s", text)
		case !strings.Contains(string(text), " attached"):
			return fmt.Errorf("it printed %q", text)
		}
		return nil
	})
}

// stop detaches strace and waits until it has ended.
func (tr *trace) stop() {
	_ = tr.cmd.Process.Signal(syscall.SIGINT) // fails when it ended with its node
	select {
	case <-tr.done:
	case <-time.After(20 * time.Second):
		_ = tr.cmd.Process.Kill()
		<-tr.done
		tr.c.t.Errorf("strace did not detach from %s", tr.p.id)
	}
}

// end detaches strace and returns what it saw.
func (tr *trace) end() []fileCall {
	tr.c.t.Helper()
	tr.stop()
	f, err := os.Open(tr.output)
	if err != nil {
		tr.c.t.Fatal(err)
	}
	defer f.Close()
	calls, err := parseTrace(f)
	if err != nil {
		tr.c.t.Fatalf("trace of %s: %v", tr.p.id, err)
	}
	return calls
}

// raftLogFiles are the files that hold a node's raft entries.
func raftLogFiles(t testing.TB, p *process) []string {
	t.Helper()
	var files []string
	for _, pattern := range []string{"raft/raft.db", "raft/raft.journal"} {
		found, err := filepath.Glob(filepath.Join(p.dir, pattern))
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, found...)
	}
	if len(files) == 0 {
		t.Fatalf("%s has no raft log below %s", p.id, p.dir)
	}
	return files
}

// fileCall is a write or a sync that succeeded. strace stops the caller where a call
// begins and where it ends, so these times lie between the caller's own.
type fileCall struct {
	sync         bool
	began, ended time.Time
}

// straceLine is a call, or one of the halves that strace makes of it when another
// thread's call comes between:
//
//	PID SECONDS.MICROS fsync(12) = 0 <0.000141>
//	PID SECONDS.MICROS fsync(12 <unfinished ...>
//	PID SECONDS.MICROS <... fsync resumed>) = 0 <0.000141>
var straceLine = regexp.MustCompile(`^(\d+) +(\d+)\.(\d{6}) (<\.\.\. )?(\w+)(?: resumed>|\().*?` +
	`(?:(<unfinished \.\.\.>)|= (-?\d+).*<(\d+\.\d+)>)$`)

// parseTrace reads the calls that strace has recorded. A call may be recorded in two lines,
// when it begins and when it ends.
func parseTrace(f *os.File) (calls []fileCall, err error) {
	begun := map[string]time.Time{} // by thread
	for lines := bufio.NewScanner(f); lines.Scan(); {
		m := straceLine.FindStringSubmatch(lines.Text())
		if m == nil {
			if strings.Contains(lines.Text(), "sync") && !strings.Contains(lines.Text(), "detached") {
				return nil, fmt.Errorf("%q is in no known form", lines.Text())
			}
			continue
		}
		at, took, err := lineTimes(m[2], m[3], m[8])
		thread, resumed, name, unfinished, result := m[1], m[4] != "", m[5], m[6] != "", m[7]
		switch {
		case err != nil:
			return nil, fmt.Errorf("%q: %w", lines.Text(), err)
		case unfinished:
			begun[thread] = at
		case strings.HasPrefix(result, "-"): // it failed
		case resumed:
			calls = append(calls, fileCall{sync: strings.Contains(name, "sync"), began: begun[thread], ended: at})
		default:
			calls = append(calls, fileCall{sync: strings.Contains(name, "sync"), began: at, ended: at.Add(took)})
		}
	}
	return calls, nil
}

// lineTimes returns when a recorded call began, and how long it took.
func lineTimes(seconds, micros, took string) (at time.Time, lasted time.Duration, err error) {
	s, err := strconv.ParseInt(seconds, 10, 64)
	us, errMicros := strconv.ParseInt(micros, 10, 64)
	if took != "" {
		var errTook error
		lasted, errTook = time.ParseDuration(took + "s")
		err = errors.Join(err, errTook)
	}
	return time.Unix(s, us*1000), lasted, errors.Join(err, errMicros)
}

// syncsBetween counts, between two moments, the syncs that ended and had begun after
// something was written that the sync before did not cover.
func syncsBetween(calls []fileCall, from, to time.Time) (n int) {
	var written time.Time
	for _, c := range calls {
		switch {
		case c.began.Before(from.Truncate(time.Microsecond)) || c.ended.After(to):
		case !c.sync:
			written = c.ended
		case !written.IsZero() && !c.began.Before(written):
			written = time.Time{}
			n++
		}
	}
	return n
}
