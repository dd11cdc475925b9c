package raftnode

import (
	"encoding/base64"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/ringrift/ringlog/raftnode/upstream"
)

// heldFSM applies nothing while it is locked.
type heldFSM struct {
	raft.BatchingFSM
	sync.Mutex
}

func (f *heldFSM) ApplyBatch(logs []*raft.Log) []any {
	f.Lock()
	defer f.Unlock()
	return f.BatchingFSM.ApplyBatch(logs)
}

// A follower whose state machine stands still is sent no more than it has room for, however much
// is appended meanwhile, and applies all of it once its state machine continues.
func TestAStateMachineThatStandsStillIsSentABoundedBacklog(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("bytes that wait are counted")
	}
	const frame, frames = 4 << 20, 24 // half as much again as the bound
	dir := memoryDir(t)
	gates := map[string]*heldFSM{}
	c := voters(t, 3, func(cfg *Config) {
		cfg.Dir, cfg.Timing = filepath.Join(dir, cfg.ID), Timing{Heartbeat: 2 * time.Second * raceFactor}
		gate := &heldFSM{}
		gates[cfg.ID] = gate
		cfg.wrapFSM = func(f raft.BatchingFSM) raft.BatchingFSM { gate.BatchingFSM = f; return gate }
	})
	c.leader()
	held := c.followers()[0]
	c.settle()
	gate := gates[held.cfg.ID]
	release := sync.OnceFunc(gate.Unlock)
	gate.Lock()
	defer release()
	from := held.machine.Applied()

	raw := make([]byte, frame*3/4)
	random := rand.NewChaCha8([32]byte{1})
	last, stored := from, int64(0)
	waiting := func() int64 { // bytes that it has and has not applied
		for ; last < held.raft.Load().LastIndex(); last++ {
			l := entryOf(t, held, last+1)
			stored += int64(len(l.Data) + len(l.Extensions))
		}
		return stored
	}
	for i := range frames {
		if _, err := random.Read(raw); err != nil {
			t.Fatal(err)
		}
		publishPayload(t, c.leaderBut(held), fmt.Sprintf(`{"n": %d, "x": "%s"}`, i, base64.StdEncoding.EncodeToString(raw)))
	}
	// It has what it takes, and is in touch for as long as it would need for the rest.
	leader := c.leaderBut(held)
	eventually(t, "the held node has all that it may have", func() bool { return waiting() > upstream.MaxBacklog })
	full := leader.contacts.Newest(raft.ServerID(held.cfg.ID))
	eventually(t, "it stays in touch", func() bool {
		return leader.contacts.Newest(raft.ServerID(held.cfg.ID)).Sub(full) > 2*time.Second
	})
	// What was on its way when the bound was reached comes beside it.
	if got := waiting(); got > upstream.MaxBacklog+3*frame || held.machine.Applied() != from {
		t.Errorf("%d MB wait for the state machine, which has applied %d entries", got>>20, held.machine.Applied()-from)
	}
	release()
	goal := leader.machine.Applied()
	eventually(t, "it has applied all", func() bool { return held.machine.Applied() >= goal })
	c.settle()
}
