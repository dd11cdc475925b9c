// Package statestore is the state machine as raft sees it: its FSM and its snapshot store.
//
// The state is durable by itself. A snapshot therefore copies nothing: raft compacts its log against
// the state, and a checkpoint is made only when a follower needs one. What a leader sends is verified
// as it arrives and replaces the state in one step, unless the state has reached it meanwhile.
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

// Clock is the replicated time, which follows the applied entries.
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
	released  chan struct{} // closed by Close; ends the wait in fail

	mu     sync.Mutex // guards failed
	failed error      // set once; nothing is applied after it
}

// Hooks are called as entries are applied and as the state is replaced.
type Hooks struct {
	Clock     Clock
	Fatal     func(error)        // an entry or a snapshot could not be applied; called before the FSM waits for Close
	OnApply   func()             // after every batch and restore; must not block
	OnDiverge func(index uint64) // the entry at index carries another digest than this node's own
}

// NewFSM returns the FSM of m, which restores from s. The owner calls Close.
func NewFSM(m *fsm.Machine, s *Snapshots, o Hooks) *FSM {
	return &FSM{Hooks: o, machine: m, snapshots: s, released: make(chan struct{})}
}

// Close releases raft from an entry that could not be applied. It must be called once only.
func (a *FSM) Close() { close(a.released) }

var _ raft.BatchingFSM = (*FSM)(nil)

// ApplyBatch implements raft.BatchingFSM.
func (a *FSM) ApplyBatch(entries []*raft.Log) []any {
	answers := make([]any, len(entries))
	for i, l := range entries {
		answers[i] = a.Apply(l)
	}
	// Once for all of them: whoever waits for an index looks once.
	a.OnApply()
	return answers
}

// Apply implements raft.FSM. It returns a fsm.Outcome, or an error once an entry could not be applied:
// then it does not return before Close.
func (a *FSM) Apply(l *raft.Log) any {
	// Raft may still deliver entries after the one that failed: they must not be applied over the gap.
	if err := a.failure(); err != nil {
		return err
	}
	outcome, err := ApplyEntry(a.machine, l)
	// The node is closing, and this entry would have waited for what is closed already. The next start applies it.
	if errors.Is(err, fsm.ErrClosed) {
		a.mu.Lock()
		a.failed = err
		a.mu.Unlock()
		return err
	}
	if err != nil {
		return a.fail(fmt.Errorf("apply %d: %w", l.Index, err))
	}
	// Replicated time is that of the entry applied last.
	a.Clock.Observe(a.machine.Time())
	if outcome.Diverged {
		a.OnDiverge(l.Index)
	}
	return outcome
}

// ApplyEntry applies one entry by its type. Entries of raft's own, such as no-ops, leave the state as it is.
func ApplyEntry(m *fsm.Machine, l *raft.Log) (fsm.Outcome, error) {
	switch l.Type {
	case raft.LogCommand:
		return m.Apply(l.Index, l.Term, l.Data)
	case raft.LogConfiguration:
		// The machine keeps the raw configuration beside the members: List returns it to raft.
		members, err := decodeConfiguration(l.Data)
		if err != nil {
			return fsm.Outcome{}, err
		}
		return fsm.Outcome{Index: l.Index}, m.ApplyConfiguration(l.Index, l.Term, l.Data, members)
	default:
		return fsm.Outcome{Index: l.Index}, nil
	}
}

// decodeConfiguration decodes a configuration entry. Raft's own decoder panics on what it cannot read:
// the panic becomes an error.
func decodeConfiguration(raw []byte) (members []fsm.ConfigMember, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("configuration entry: %v", r)
		}
	}()
	// What is no voter gets no vote, whichever of raft's other suffrages it has.
	for _, s := range raft.DecodeConfiguration(raw).Servers {
		members = append(members, fsm.ConfigMember{
			ID:    string(s.ID),
			Addr:  string(s.Address),
			Voter: s.Suffrage == raft.Voter,
		})
	}
	return members, nil
}

// failure returns why nothing is applied any more, nil while entries are applied.
func (a *FSM) failure() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.failed
}

// fail records err, reports it to Fatal and blocks raft until Close: returning would let raft count the
// entry as applied.
func (a *FSM) fail(err error) error {
	a.mu.Lock()
	a.failed = err
	a.mu.Unlock()
	a.Fatal(err)
	<-a.released
	return err
}

// Snapshot implements raft.FSM. It copies nothing: the state is its own snapshot.
func (a *FSM) Snapshot() (raft.FSMSnapshot, error) {
	if err := a.failure(); err != nil {
		return nil, err
	}
	return durableState{a}, nil
}

// durableState is the snapshot that raft compacts its log against: the state itself.
type durableState struct{ adapter *FSM }

// Persist makes all that is applied durable. Raft deletes log entries once it has returned.
func (s durableState) Persist(sink raft.SnapshotSink) error {
	if err := s.adapter.snapshots.persist(); err != nil {
		return err
	}
	s.adapter.snapshots.logger.Info("snapshot written", "index", s.adapter.snapshots.Durable())
	return sink.Close()
}

// Release implements raft.FSMSnapshot.
func (s durableState) Release() {}

// Restore implements raft.FSM: it replaces the state by what the snapshot store has received. A snapshot
// that the state has reached is refused and leaves the state as it is; any other error is fatal.
func (a *FSM) Restore(source io.ReadCloser) error {
	if err := a.failure(); err != nil {
		return err
	}
	// The source carries no bytes: it names the folder in which the sink has verified them.
	received, ok := unwrap(source).(*receivedSnapshot)
	if !ok {
		return errors.New("restore: not a snapshot that this node received")
	}
	err := a.snapshots.swap(received)
	// Nothing was changed: raft may continue with the state it has.
	if errors.Is(err, errNotAhead) {
		return fmt.Errorf("restore %s: %w", received.id, err)
	}
	if err != nil {
		return a.fail(fmt.Errorf("restore %s: %w", received.id, err))
	}
	// The time of the new state may be before that of the old one.
	a.Clock.Reset(a.machine.Time())
	a.OnApply()
	return nil
}

// unwrap returns the reader that Open returned, below those that raft has wrapped around it.
func unwrap(source io.ReadCloser) io.ReadCloser {
	for {
		w, ok := source.(raft.ReadCloserWrapper)
		if !ok {
			return source
		}
		source = w.WrappedReadCloser()
	}
}
