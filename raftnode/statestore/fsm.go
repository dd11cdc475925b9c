// Package statestore is the state machine as raft sees it: its FSM and its snapshot store.
//
// The state is durable by itself. A snapshot therefore costs nothing: raft compacts its log against
// the state, and a checkpoint is made only when a follower needs one. What a leader sends is verified
// as it arrives and replaces the state in one step, unless the state has passed it meanwhile.
//
// It promises that an entry which cannot be applied is never skipped, and that what raft deletes from
// its log is in the state on disk.
package statestore

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

// FSM is the state machine as raft sees it. An entry that cannot be applied is
// never skipped: fatal is called, and nothing is applied any more.
type FSM struct {
	Hooks
	machine   *fsm.Machine
	snapshots *Snapshots
	released  chan struct{} // closed when the node closes

	mu     sync.Mutex
	failed error // set once; nothing is applied after it
}

// Hooks are whom the state machine's progress concerns.
type Hooks struct {
	Clock     Clock
	Fatal     func(error)
	OnApply   func() // after every batch and restore; must not block
	OnDiverge func(index uint64)
}

func NewFSM(m *fsm.Machine, s *Snapshots, o Hooks) *FSM {
	return &FSM{Hooks: o, machine: m, snapshots: s, released: make(chan struct{})}
}

// Close ends the wait of an entry that could not be applied. It is called once.
func (a *FSM) Close() { close(a.released) }

var _ raft.BatchingFSM = (*FSM)(nil)

// ApplyBatch implements raft.BatchingFSM.
func (a *FSM) ApplyBatch(entries []*raft.Log) []any {
	answers := make([]any, len(entries))
	for i, l := range entries {
		answers[i] = a.Apply(l)
	}
	a.OnApply()
	return answers
}

// Apply implements raft.FSM. It returns a fsm.Outcome or an error.
func (a *FSM) Apply(l *raft.Log) any {
	if err := a.failure(); err != nil {
		return err
	}
	outcome, err := ApplyEntry(a.machine, l)
	if err != nil {
		return a.fail(fmt.Errorf("raftnode: apply %d: %w", l.Index, err))
	}
	a.Clock.Observe(a.machine.Time())
	if outcome.Diverged {
		a.OnDiverge(l.Index)
	}
	return outcome
}

// ApplyEntry hands one entry to the machine as what it is.
func ApplyEntry(m *fsm.Machine, l *raft.Log) (fsm.Outcome, error) {
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
// what it cannot read.
func decodeConfiguration(raw []byte) (members []fsm.ConfigMember, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("raftnode: configuration entry: %v", r)
		}
	}()
	for _, s := range raft.DecodeConfiguration(raw).Servers {
		members = append(members, fsm.ConfigMember{
			ID:    string(s.ID),
			Addr:  string(s.Address),
			Voter: s.Suffrage == raft.Voter,
		})
	}
	return members, nil
}

func (a *FSM) failure() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.failed
}

// fail reports err and holds raft back until the node closes: answering would
// let raft count the entry as applied.
func (a *FSM) fail(err error) error {
	a.mu.Lock()
	a.failed = err
	a.mu.Unlock()
	a.Fatal(err)
	<-a.released
	return err
}

// Snapshot implements raft.FSM. It costs nothing: the state is its own snapshot.
func (a *FSM) Snapshot() (raft.FSMSnapshot, error) {
	if err := a.failure(); err != nil {
		return nil, err
	}
	return durableState{a}, nil
}

// durableState is what raft compacts its log against.
type durableState struct{ adapter *FSM }

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
func (a *FSM) Restore(source io.ReadCloser) error {
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
	a.Clock.Reset(a.machine.Time())
	a.OnApply()
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
