package rafttransport

import (
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"
)

// Nobody takes an RPC of n1's here.
func TestAHeartbeatIsAnsweredWhileRaftIsHeldUp(t *testing.T) {
	w := newTown()
	const hungAfter = 2 * time.Second
	opened := time.Now()
	var state sync.Mutex // what Self may wait for
	n1 := w.open(t, "n1", func(o *Options) {
		self := o.Self
		o.Self = func() Identity {
			state.Lock()
			defer state.Unlock()
			return self()
		}
		o.HungAfter, o.Follows = hungAfter, func(leader string, term uint64) bool { return leader == "n2" && term == 3 }
	})
	n2 := w.open(t, "n2", func(o *Options) { o.Timeout = 300 * time.Millisecond })
	beat := func(id string, term uint64) (raft.AppendEntriesResponse, error) {
		var resp raft.AppendEntriesResponse
		header := raft.RPCHeader{ProtocolVersion: 3, ID: []byte(id), Addr: []byte(n2.LocalAddr())}
		err := n2.AppendEntries("n1", n1.LocalAddr(), &raft.AppendEntriesRequest{RPCHeader: header, Term: term}, &resp)
		return resp, err
	}
	if resp, err := beat("n2", 3); err != nil || !resp.Success || resp.Term != 3 || string(resp.ID) != "n1" {
		t.Errorf("of the leader that is followed: %+v, %v", resp, err)
	}
	state.Lock()
	if resp, err := beat("n2", 3); err != nil || string(resp.ID) != "n1" {
		t.Errorf("while the state machine is held up too: %+v, %v", resp, err)
	}
	state.Unlock()
	if resp, err := beat("n2", 2); err == nil {
		t.Errorf("of a term that is over: %+v", resp)
	}
	if resp, err := beat("n3", 3); err == nil {
		t.Errorf("of another: %+v", resp)
	}
	for {
		began := time.Now()
		_, err := beat("n2", 3)
		if err != nil {
			break
		}
		if began.Sub(opened) > hungAfter {
			t.Fatalf("raft took nothing for %s, and a heartbeat is still answered", time.Since(opened))
		}
	}
	if held := time.Since(opened); held < hungAfter {
		t.Errorf("given up after %s, hungAfter is %s", held, hungAfter)
	}

	came := answer(t, n1)
	if _, err := beat("n2", 3); err != nil {
		t.Errorf("raft continues: %v", err)
	}
	<-came
}

// While the state machine lags by too much raft gets no entries, and all else.
func TestEntriesWaitForAStateMachineThatLags(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, wire := newTown(), newPipes()
		var overloaded atomic.Bool
		overloaded.Store(true)
		const timeout = time.Second
		n1 := w.open(t, "n1", func(o *Options) { wire.use(o); o.Timeout, o.Overloaded = timeout, overloaded.Load })
		n2 := w.open(t, "n2", func(o *Options) { wire.use(o); o.Timeout = 2 * timeout })
		came := answer(t, n1)
		send := func(entries int) chan error {
			done := make(chan error, 1)
			go func() {
				args := &raft.AppendEntriesRequest{Term: 3, PrevLogEntry: 9, Entries: make([]*raft.Log, entries)}
				for i := range args.Entries {
					args.Entries[i] = &raft.Log{Index: uint64(10 + i), Term: 3}
				}
				var resp raft.AppendEntriesResponse
				done <- n2.AppendEntries("n1", n1.LocalAddr(), args, &resp)
			}()
			return done
		}
		held := send(2)
		time.Sleep(timeout / 2)
		if err := <-send(0); err != nil || len(came) != 1 || len(held) != 0 {
			t.Fatalf("one without entries: %v; raft got %d, the one before ended %v", err, len(came), len(held) != 0)
		}
		overloaded.Store(false)
		if err := <-held; err != nil || len(came) != 2 {
			t.Errorf("once the state machine has caught up: %v, raft got %d", err, len(came))
		}
		overloaded.Store(true)
		began := time.Now()
		if err := <-send(2); err == nil || len(came) != 2 || time.Since(began) > 2*timeout {
			t.Errorf("after %v: %v, raft got %d", time.Since(began), err, len(came))
		}
	})
}
