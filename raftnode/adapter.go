package raftnode

import (
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"github.com/ringrift/ringlog/fsm"
)

// Clock is the replicated time, which follows what is applied.
type Clock interface {
	Observe(applied time.Time) // the time of an entry
	Reset(replaced time.Time)  // of a state that replaced the one before it
}

// machineAdapter is the state machine as raft sees it. An entry that can not be
// applied is never skipped: Fatal is called, and nothing is applied any more.
type machineAdapter struct {
	machine   *fsm.Machine
	clock     Clock
	snapshots *snapshotStore
	fatal     func(error)
	onApply   func() // after every batch and restore; must not block
	onDiverge func(index uint64)
	released  chan struct{} // closed when the node closes

	mu     sync.Mutex
	failed error // set once; nothing is applied after it
}

var _ raft.BatchingFSM = (*machineAdapter)(nil)

// ApplyBatch implements raft.BatchingFSM.
func (a *machineAdapter) ApplyBatch(entries []*raft.Log) []any {
	answers := make([]any, len(entries))
	for i, l := range entries {
		answers[i] = a.Apply(l)
	}
	a.onApply()
	return answers
}

// Apply implements raft.FSM. It returns a fsm.Outcome or an error.
func (a *machineAdapter) Apply(l *raft.Log) any {
	if err := a.failure(); err != nil {
		return err
	}
	outcome, err := applyEntry(a.machine, l)
	if err != nil {
		return a.fail(fmt.Errorf("raftnode: apply %d: %w", l.Index, err))
	}
	a.clock.Observe(a.machine.Time())
	if outcome.Diverged {
		a.onDiverge(l.Index)
	}
	return outcome
}

// applyEntry hands one entry to the machine as what it is.
func applyEntry(m *fsm.Machine, l *raft.Log) (fsm.Outcome, error) {
	switch l.Type {
	case raft.LogCommand:
		return m.Apply(l.Index, l.Term, l.Data)
	case raft.LogConfiguration:
		members, err := decodeConfiguration(l.Data)
		if err != nil {
			return fsm.Outcome{}, err
		}
		return fsm.Outcome{Index: l.Index}, m.ApplyConfiguration(l.Index, l.Term, l.Data, members)
	default:
		return fsm.Outcome{Index: l.Index}, nil
	}
}

// decodeConfiguration reads a configuration entry; raft's own decoder panics on
// what it can not read.
func decodeConfiguration(raw []byte) (members []fsm.ConfigMember, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("raftnode: configuration entry: %v", r)
		}
	}()
	for _, s := range raft.DecodeConfiguration(raw).Servers {
		members = append(members, fsm.ConfigMember{ID: string(s.ID), Addr: string(s.Address), Voter: s.Suffrage == raft.Voter})
	}
	return members, nil
}

func (a *machineAdapter) failure() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.failed
}

// fail reports err and holds raft back until the node closes: answering would
// let raft count the entry as applied.
func (a *machineAdapter) fail(err error) error {
	a.mu.Lock()
	a.failed = err
	a.mu.Unlock()
	a.fatal(err)
	<-a.released
	return err
}

// Snapshot implements raft.FSM. It costs nothing: the state is its own snapshot.
func (a *machineAdapter) Snapshot() (raft.FSMSnapshot, error) {
	if err := a.failure(); err != nil {
		return nil, err
	}
	return durableState{a}, nil
}

// durableState is what raft compacts its log against.
type durableState struct{ adapter *machineAdapter }

// Persist makes all that is applied durable; raft deletes entries after it.
func (s durableState) Persist(sink raft.SnapshotSink) error {
	if err := s.adapter.snapshots.persist(); err != nil {
		return err
	}
	return sink.Close()
}

// Release implements raft.FSMSnapshot.
func (s durableState) Release() {}

// Restore implements raft.FSM: it swaps in what the snapshot store has received.
func (a *machineAdapter) Restore(source io.ReadCloser) error {
	if err := a.failure(); err != nil {
		return err
	}
	received, ok := unwrap(source).(*receivedSnapshot)
	if !ok {
		return errors.New("raftnode: restore: not a snapshot that this node received")
	}
	err := a.snapshots.swap(received)
	if errors.Is(err, errNotAhead) {
		return fmt.Errorf("raftnode: restore %s: %w", received.id, err)
	}
	if err != nil {
		return a.fail(fmt.Errorf("raftnode: restore %s: %w", received.id, err))
	}
	a.clock.Reset(a.machine.Time())
	a.onApply()
	return nil
}

// unwrap finds the store's reader below raft's own.
func unwrap(source io.ReadCloser) io.ReadCloser {
	for {
		w, ok := source.(raft.ReadCloserWrapper)
		if !ok {
			return source
		}
		source = w.WrappedReadCloser()
	}
}
