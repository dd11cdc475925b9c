package upstream

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"
)

// reply fills in a follower's response, or fails as a connection does.
type reply = func(*raft.AppendEntriesResponse) error

// askedWire is a transport that records what is sent and answers on command.
type askedWire struct {
	requests chan *raft.AppendEntriesRequest
	answers  chan reply
}

func (w *askedWire) send(
	_ raft.ServerID,
	_ raft.ServerAddress,
	args *raft.AppendEntriesRequest,
	resp *raft.AppendEntriesResponse,
) error {
	w.requests <- args
	return (<-w.answers)(resp)
}

func yes(resp *raft.AppendEntriesResponse) error {
	resp.Term, resp.Success = 3, true
	return nil
}

func no(resp *raft.AppendEntriesResponse) error { resp.Term = 3; return nil }

func lost(*raft.AppendEntriesResponse) error { return errors.New("connection lost") }

func logsOf(first uint64, n int) (logs []*raft.Log) {
	for i := range uint64(n) {
		logs = append(logs, &raft.Log{Index: first + i, Term: 3})
	}
	return logs
}

// raftSends is a request as raft makes it, for entries after prev.
func raftSends(term, prev uint64, n int) *raft.AppendEntriesRequest {
	return &raft.AppendEntriesRequest{
		Term:              term,
		PrevLogEntry:      prev,
		PrevLogTerm:       3,
		Entries:           logsOf(prev+1, n),
		LeaderCommitIndex: prev,
	}
}

// eagerRun is a leader's eager with one follower that has the log up to 10.
type eagerRun struct {
	t *testing.T
	*eager
	askedWire
}

func newEagerRun(t *testing.T) *eagerRun {
	r := &eagerRun{t: t, askedWire: askedWire{
		make(chan *raft.AppendEntriesRequest, 8),
		make(chan reply, 8),
	}}
	r.eager = newEager(r.askedWire.send, time.Second)
	r.answers <- yes
	r.raft(raftSends(3, 9, 1))
	<-r.requests
	return r
}

// raft makes raft's own call and returns whether success was reported to it, and when
// the request that proves it was sent.
func (r *eagerRun) raft(args *raft.AppendEntriesRequest) (success bool, sent time.Time) {
	var resp raft.AppendEntriesResponse
	sent, err := r.appendEntries("n2", "addr", args, &resp)
	return err == nil && resp.Success, sent
}

// sent is how many requests went out since it was asked last.
func (r *eagerRun) sent() (n int) {
	synctest.Wait()
	for len(r.requests) > 0 {
		<-r.requests
		n++
	}
	return n
}

func TestEntriesGoOutOnceAheadOfRaft(t *testing.T) {
	cases := map[string]struct {
		answers []reply
		term    uint64 // of the entries that are stored
		first   uint64
		wait    time.Duration
		args    *raft.AppendEntriesRequest // raft's, afterwards
		ahead   int
		own     int
		success bool
	}{
		"raft gets the early answer":            {[]reply{yes}, 3, 11, 0, raftSends(3, 10, 2), 1, 0, true},
		"a refusal is asked for again":          {[]reply{no, yes}, 3, 11, 0, raftSends(3, 10, 2), 1, 1, true},
		"a lost request is raft's to repeat":    {[]reply{lost}, 3, 11, 0, raftSends(3, 10, 2), 1, 0, false},
		"an old answer proves no contact":       {[]reply{yes, yes}, 3, 11, time.Second, raftSends(3, 10, 2), 1, 1, true},
		"other entries go their own way":        {[]reply{yes, yes}, 3, 11, 0, raftSends(3, 10, 3), 1, 1, true},
		"another term too":                      {[]reply{yes, no}, 3, 11, 0, raftSends(4, 10, 2), 1, 1, false},
		"a follower that lags gets none":        {[]reply{yes}, 3, 12, 0, raftSends(3, 11, 2), 0, 1, true},
		"a term that raft did not speak of yet": {[]reply{yes}, 4, 11, 0, raftSends(3, 10, 2), 0, 1, true},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newEagerRun(t)
				for _, answer := range c.answers {
					r.answers <- answer
				}
				logs := logsOf(c.first, 2)
				for _, l := range logs {
					l.Term = c.term
				}
				began := time.Now()
				r.ship(logs, 3, 10)
				if n := r.sent(); n != c.ahead {
					t.Fatalf("%d requests ahead of raft, want %d", n, c.ahead)
				}
				time.Sleep(c.wait)
				success, sent := r.raft(c.args)
				if n := r.sent(); n != c.own || success != c.success {
					t.Errorf("raft's call sent %d, success %v; want %d, %v", n, success, c.own, c.success)
				}
				if early := c.own == 0; early && !sent.Equal(began) {
					t.Errorf("the answer counts as asked for at %v, it was at %v", sent, began)
				}
				r.close()
			})
		})
	}
}

// A large request goes out as several. What the follower has confirmed of it stands,
// so raft sends the rest and not all of it again.
func TestALargeRequestGoesOutInParts(t *testing.T) {
	type answers = []func(*raft.AppendEntriesResponse) error
	cases := map[string]struct {
		sizes     []int // of the entries, in MiB
		answers   answers
		parts     []int // entries in each
		confirmed int
		success   bool
	}{
		"small":                 {[]int{1, 1, 1, 1}, answers{yes}, []int{4}, 4, true},
		"large":                 {[]int{1, 1, 1, 1, 1, 3, 2, 2}, answers{yes, yes, yes}, []int{4, 2, 2}, 8, true},
		"larger than a request": {[]int{9, 1, 9}, answers{yes, yes, yes}, []int{1, 1, 1}, 3, true},
		"lost on the way":       {[]int{2, 2, 2, 2}, answers{yes, lost}, []int{2, 2}, 2, true},
		"refused on the way":    {[]int{2, 2, 2, 2}, answers{yes, no}, []int{2, 2}, 2, true},
		"lost at once":          {[]int{2, 2, 2, 2}, answers{lost}, []int{2}, 0, false},
		"refused at once":       {[]int{2, 2, 2, 2}, answers{no}, []int{2}, 0, false},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newEagerRun(t)
				for _, answer := range c.answers {
					r.answers <- answer
				}
				args := raftSends(3, 10, len(c.sizes))
				for i, mib := range c.sizes {
					args.Entries[i].Data = make([]byte, mib<<20)
				}
				if success, _ := r.raft(args); success != c.success {
					t.Errorf("success is %v", success)
				}
				if success := c.success; success && len(args.Entries) != c.confirmed {
					t.Errorf("raft takes %d entries for confirmed, want %d", len(args.Entries), c.confirmed)
				}
				prev := uint64(10)
				for i, want := range c.parts {
					part := <-r.requests
					if len(part.Entries) != want || part.PrevLogEntry != prev {
						t.Errorf("part %d holds %d entries after %d, want %d after %d",
							i, len(part.Entries), part.PrevLogEntry, want, prev)
					}
					prev += uint64(want)
				}
				if n := r.sent(); n != 0 {
					t.Errorf("%d more requests", n)
				}
				r.close()
			})
		})
	}
}

// While raft's own request is under way nothing overtakes it, and a heartbeat says
// nothing of what a follower has.
func TestNothingOvertakesRaft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newEagerRun(t)
		done := make(chan struct{})
		go func() {
			defer close(done)
			r.raft(raftSends(3, 10, 1))
		}()
		synctest.Wait()
		r.ship(logsOf(11, 1), 3, 10)
		if n := r.sent(); n != 1 {
			t.Errorf("%d requests are under way, want raft's alone", n)
		}
		r.answers <- lost
		<-done
		r.answers <- yes
		r.raft(&raft.AppendEntriesRequest{Term: 3})
		r.sent()
		r.ship(logsOf(11, 1), 3, 10)
		if n := r.sent(); n != 0 {
			t.Error("a follower whose log is not known is sent entries")
		}
		r.close()
	})
}
