package incident

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/ringrift/ringlog/fsm"
	"github.com/ringrift/ringlog/raftnode/statestore"
	"github.com/ringrift/ringlog/snapshots"
)

// Errors of a replay.
var (
	// ErrOutside refuses what is not in the slice, or has been passed.
	ErrOutside = errors.New("outside of what can be shown")
	// ErrDiverged means that the replay leads elsewhere than the cluster was.
	ErrDiverged = errors.New("the replay leads to another state than the cluster had")
)

// Options say how an incident is opened. The zero value will do.
type Options struct {
	// BeforeTrim is the one of fsm.Options.
	BeforeTrim func(first uint64) error
	Logger     hclog.Logger // nil is silence
}

// Replay is the state as it was, entry by entry. It is safe for concurrent use: what reads the machine reads one moment
// of it. The state is in a folder of its own, and only goes forward.
type Replay struct {
	meta    snapshots.Meta        // does not change
	machine *fsm.Machine          // nil until Open has read the entries
	file    *os.File              // the entries
	failed  atomic.Pointer[error] // what would have ended a node

	mu      sync.Mutex  // held while entries are applied; guards the fields below
	entries entryReader // its last is the index that the state is at
}

// Open reads a whole incident into a folder, which it makes, and is at the state before the slice. The caller removes
// the folder after Close; after an error there is none.
func Open(ctx context.Context, r io.Reader, dir string, o Options) (_ *Replay, err error) {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, fmt.Errorf("open an incident: %w", err)
	}
	// Whatever was opened by then is closed, and the folder goes.
	p := &Replay{}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("open an incident: %w", err), p.Close(), os.RemoveAll(dir))
		}
	}()
	// ReadIncident verifies the checksum of all files, so what follows only has to look at what they mean.
	received := filepath.Join(dir, "received")
	p.meta, err = snapshots.ReadIncident(ctx, r, received)
	if err != nil {
		return nil, err
	}
	// The entries first, so that the rest of the folder is a state.
	entries := filepath.Join(dir, snapshots.EntriesFile)
	if err := os.Rename(filepath.Join(received, snapshots.EntriesFile), entries); err != nil {
		return nil, fmt.Errorf("%w: it has no entries: %w", snapshots.ErrCorrupt, err)
	}
	p.file, err = os.Open(entries)
	if err != nil {
		return nil, err
	}
	// A slice that lacks an entry is refused now, and not when the replay gets there.
	if err := p.check(); err != nil {
		return nil, err
	}
	// An empty state machine, whose state begin replaces. A failing write ends the replay with the entry that met it.
	p.machine, err = fsm.Open(fsm.Options{Dir: filepath.Join(dir, "state"), Logger: o.Logger, BeforeTrim: o.BeforeTrim,
		Fatal: func(err error) { p.failed.CompareAndSwap(nil, &err) }})
	if err != nil {
		return nil, err
	}
	return p, p.begin(received)
}

// check reads all entries once, and returns to the first.
func (p *Replay) check() error {
	if err := p.rewind(); err != nil {
		return err
	}
	n, err := p.entries.count()
	if err != nil {
		return err
	}
	// The number and the last index are announced with the snapshot, so a cut file is found.
	if s := p.meta.Slice; n != s.Entries || p.entries.last != s.LastIndex {
		return fmt.Errorf("%w: %d entries up to %d, it should have %d up to %d", snapshots.ErrCorrupt, n, p.entries.last,
			s.Entries, s.LastIndex)
	}
	return p.rewind()
}

// rewind makes the next entry the first one.
func (p *Replay) rewind() error {
	info, err := p.file.Stat()
	if err == nil {
		_, err = p.file.Seek(0, io.SeekStart)
	}
	if err != nil {
		return err
	}
	p.entries = entryReader{r: bufio.NewReaderSize(p.file, 256<<10), left: info.Size(), last: p.meta.Index}
	return nil
}

// begin puts the received state in place. There is none before the first entry.
func (p *Replay) begin(received string) error {
	if p.meta.Index == 0 {
		return nil
	}
	if err := p.machine.Swap(received); err != nil {
		return err
	}
	// The entries only fit the state that they were gathered with.
	at := p.machine.Position()
	if at.Index != p.meta.Index || at.Term != p.meta.Term || at.ClusterID != p.meta.ClusterID ||
		at.Digest.String() != p.meta.Digest {
		return fmt.Errorf("%w: it is announced as %d of term %d, and holds %d of term %d", snapshots.ErrCorrupt,
			p.meta.Index, p.meta.Term, at.Index, at.Term)
	}
	return nil
}

// Meta says what the incident holds.
func (p *Replay) Meta() snapshots.Meta { return p.meta }

// Machine is the state as it was, for reading.
func (p *Replay) Machine() *fsm.Machine { return p.machine }

// Left is how many entries follow. It is 0 after the last one.
func (p *Replay) Left() uint64 {
	return p.meta.Slice.LastIndex - min(p.meta.Slice.LastIndex, p.Index())
}

// Index is the entry that was applied last. Those of raft's own leave the state as it was.
func (p *Replay) Index() uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.entries.last
}

// Step applies the next entry and returns it; nil after the last one.
func (p *Replay) Step() (*raft.Log, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.step()
}

// step is Step. The caller holds mu.
func (p *Replay) step() (*raft.Log, error) {
	l, err := p.entries.next()
	if errors.Is(err, io.EOF) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	// As the node has applied it.
	outcome, err := statestore.ApplyEntry(p.machine, l)
	// A write of the state has failed, perhaps of an earlier entry.
	if failed := p.failed.Load(); failed != nil {
		err = errors.Join(err, *failed)
	}
	if err != nil {
		return nil, fmt.Errorf("apply %d: %w", l.Index, err)
	}
	// The entry has the digest that its leader had, and this state has another.
	if outcome.Diverged {
		return nil, fmt.Errorf("apply %d: %w: use the version of ringlog that the cluster had", l.Index, ErrDiverged)
	}
	return l, nil
}

// To applies entries up to the one that holds the event at an offset. The state before the slice is that of its last
// offset. An error leaves the replay where it has come to.
func (p *Replay) To(ctx context.Context, offset uint64) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	from := p.machine.Position().Last
	if offset < from {
		return fmt.Errorf("offset %d: %w: the state is after offset %d", offset, ErrOutside, from)
	}
	// An entry may hold several events: the state is then past the offset.
	for p.machine.Position().Last < offset {
		l, err := p.step()
		if err == nil && l == nil {
			err = fmt.Errorf("offset %d: %w: the slice has %d to %d", offset, ErrOutside, p.meta.Slice.FirstOffset,
				p.machine.Position().Last)
		}
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// ToIndex applies entries up to one of an index. It only goes forward.
func (p *Replay) ToIndex(ctx context.Context, index uint64) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if index < p.entries.last || index > p.meta.Slice.LastIndex {
		return fmt.Errorf("index %d: %w: what is left of the slice is %d to %d", index, ErrOutside, p.entries.last,
			p.meta.Slice.LastIndex)
	}
	for p.entries.last < index {
		if _, err := p.step(); err != nil {
			return err
		}
		if err := ctx.Err(); err != nil {
			return err
		}
	}
	return nil
}

// ToEnd applies all entries.
func (p *Replay) ToEnd(ctx context.Context) error { return p.ToIndex(ctx, p.meta.Slice.LastIndex) }

// Close closes the files. It is for Open as well, which may have opened only some of them.
func (p *Replay) Close() error {
	var errs []error
	if p.machine != nil {
		errs = append(errs, p.machine.Close())
	}
	if p.file != nil {
		errs = append(errs, p.file.Close())
	}
	return errors.Join(errs...)
}
