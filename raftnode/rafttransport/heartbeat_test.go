package rafttransport

import (
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/raft"
)

// Nobody takes an RPC of n1's here.
func TestAHeartbeatIsAnsweredWhileRaftIsHeldUp(t *testing.T) {
	w := newTown()
	const patience = 2 * time.Second
	opened := time.Now()
	var state sync.Mutex // what Self may wait for
	n1 := w.open(t, "n1", func(o *Options) {
		self := o.Self
		o.Self = func() Identity {
			state.Lock()
			defer state.Unlock()
			return self()
		}
		o.Patience, o.Follows = patience, func(leader string, term uint64) bool { return leader == "n2" && term == 3 }
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
		if began.Sub(opened) > patience {
			t.Fatalf("raft took nothing for %s, and a heartbeat is still answered", time.Since(opened))
		}
	}
	if held := time.Since(opened); held < patience {
		t.Errorf("given up after %s, patience is %s", held, patience)
	}

	came := answer(t, n1)
	if _, err := beat("n2", 3); err != nil {
		t.Errorf("raft goes on: %v", err)
	}
	<-came
}
