package blackbox

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	iofs "io/fs"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/google/uuid"
)

// Journal is an open journal. Its methods may be called from several goroutines.
type Journal struct {
	fs      vfs.FS
	path    string
	room    int // bytes that the lines of records may take
	id      string
	dropped string

	// state is what the file holds for certain; replaced under mu.
	state atomic.Pointer[state]

	mu     sync.Mutex // one writer at a time
	file   vfs.File   // nil where its end is not known to be good: the next write begins a new file
	closed bool
}

// Open opens the journal at path and creates it if it is missing; the folder must
// exist. An end that cannot be read is dropped. Where not even the first line can
// be read, the file is moved to path + ".damaged" and a new journal with a new ID
// begins; see Dropped. It fails with ErrNewerFormat.
func Open(path string, o Options) (*Journal, error) {
	maxBytes := cmp.Or(o.MaxBytes, defaultMaxBytes)
	if maxBytes < leastMaxBytes {
		return nil, fmt.Errorf("blackbox: open %s: at most %d bytes are too few, give it %d or more",
			path, maxBytes, leastMaxBytes)
	}
	j := &Journal{fs: o.FS, path: path, room: maxBytes - headerMax}
	if j.fs == nil {
		j.fs = vfs.Default
	}
	if err := j.open(); err != nil {
		return nil, fmt.Errorf("blackbox: open %s: %w", path, err)
	}
	return j, nil
}

func (j *Journal) open() error {
	raw, err := readFile(j.fs, j.path)
	if errors.Is(err, iofs.ErrNotExist) {
		return j.create()
	}
	if err != nil {
		return err
	}
	id, s, left, err := decode(raw)
	if errors.Is(err, ErrDamaged) {
		return j.startOver(len(raw))
	}
	if err != nil {
		return err
	}
	if left > 0 {
		j.dropped = fmt.Sprintf("blackbox: open %s: the last %d of %d bytes were cut or damaged and are dropped, "+
			"%d records are kept",
			j.path, left, len(raw), len(s.entries))
	}
	j.id = id
	j.state.Store(&s)
	// A crash of the process alone leaves what was not yet synced. It counts from now
	// on, so it has to stay.
	return syncFile(j.fs, j.path)
}

// startOver moves a file aside that is no journal any more.
func (j *Journal) startOver(size int) error {
	aside := j.path + ".damaged"
	if err := j.fs.Rename(j.path, aside); err != nil {
		return err
	}
	j.dropped = fmt.Sprintf("blackbox: open %s: the first line of its %d bytes is cut or damaged: "+
		"it was moved to %s and a new journal begins",
		j.path, size, aside)
	return j.create()
}

func (j *Journal) create() error {
	id, err := uuid.NewRandom()
	if err != nil {
		return err
	}
	j.id = id.String()
	return j.rewrite(state{next: 1})
}

// ID is random and made with the file: records of equal Seq are the same one where
// the ID is equal too.
func (j *Journal) ID() string { return j.id }

// Dropped says for the diagnostics log what Open could not read; empty if nothing.
func (j *Journal) Dropped() string { return j.dropped }

// Records are the acknowledged records that are still kept, oldest first. The
// caller owns them. It does not wait for an Append.
func (j *Journal) Records() []Record { return j.state.Load().records() }

// Settled is the Seq up to which everything is stored in the replicated log.
func (j *Journal) Settled() uint64 { return j.state.Load().settled }

// Append writes a record and returns it, with its Seq, once it is durable. Where
// there is no room older records go. After an error the journal is as before, and
// the next Append tries again. It fails with ErrTooLarge and ErrClosed.
func (j *Journal) Append(r Record) (Record, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	stored, err := j.append(r)
	if err != nil {
		return Record{}, fmt.Errorf("blackbox: append to %s: %w", j.path, err)
	}
	return stored.clone(), nil
}

func (j *Journal) append(r Record) (Record, error) {
	if j.closed {
		return Record{}, ErrClosed
	}
	s := *j.state.Load()
	e, err := newEntry(stamp(r, s.next))
	if err != nil {
		return Record{}, err
	}
	if len(e.line) > j.room {
		return Record{}, fmt.Errorf("%w: %d bytes, there is room for %d", ErrTooLarge, len(e.line), j.room)
	}
	return e.record, j.write(s.with(e), e.line)
}

func stamp(r Record, seq uint64) Record {
	if r.At.IsZero() {
		r.At = time.Now()
	}
	r.Seq, r.At = seq, r.At.UTC()
	if !r.Since.IsZero() {
		r.Since = r.Since.UTC()
	}
	return r
}

// Settle notes durably that everything up to seq is stored in the replicated log. A
// lower one than before changes nothing. A higher one than was ever given out means
// that the file is an older copy of itself: later records get a Seq after it.
// Settled records are kept until their room is needed. It fails with ErrClosed.
func (j *Journal) Settle(seq uint64) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if err := j.settle(seq); err != nil {
		return fmt.Errorf("blackbox: settle %s: %w", j.path, err)
	}
	return nil
}

func (j *Journal) settle(seq uint64) error {
	s := *j.state.Load()
	switch {
	case j.closed:
		return ErrClosed
	case seq <= s.settled:
		return nil
	case seq >= maxSeq:
		return fmt.Errorf("%d is past any record", seq)
	}
	s.settled, s.next = seq, max(s.next, seq+1)
	return j.write(s, nil)
}

// write makes s durable, which is the published state and the added lines, or the
// published state with another header if there are none.
func (j *Journal) write(s state, added []byte) error {
	if s.next > maxSeq {
		return fmt.Errorf("no seq is left after %d", s.next-1)
	}
	if j.file == nil || added == nil || s.size > j.room {
		return j.rewrite(s)
	}
	return j.extend(s, added)
}

// extend adds lines to the file and publishes s.
func (j *Journal) extend(s state, added []byte) error {
	if err := writeSynced(j.file, bytes.Clone(added)); err != nil {
		return errors.Join(err, j.letGo())
	}
	j.state.Store(&s)
	return nil
}

// rewrite writes s to a new file and publishes s. What has no room is dropped, and
// some more with it, so that the next records need no rewrite.
func (j *Journal) rewrite(s state) error {
	if s.size > j.room {
		s = s.fit(j.room / 4 * 3)
	}
	content, err := encode(j.id, s)
	if err != nil {
		return err
	}
	f, err := replaceFile(j.fs, j.path, content)
	_ = j.letGo() // the old file, or one whose place is not certain
	if err != nil {
		return err
	}
	j.file = f
	j.state.Store(&s)
	return nil
}

// letGo closes the file, of which nothing unsynced counts.
func (j *Journal) letGo() error {
	f := j.file
	j.file = nil
	if f == nil {
		return nil
	}
	return f.Close()
}

// Close waits for an Append that is under way and closes the file. What was read by
// now stays readable. Calling it again does nothing.
func (j *Journal) Close() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.closed = true
	if err := j.letGo(); err != nil {
		return fmt.Errorf("blackbox: close %s: %w", j.path, err)
	}
	return nil
}

// Read reads the journal of a stopped or running node and changes nothing. A
// missing file has no ID and no records. An unreadable end is left out. It fails
// with ErrDamaged where not even the first line can be read, and with
// ErrNewerFormat.
func Read(path string) (id string, records []Record, err error) { return read(vfs.Default, path) }

func read(fs vfs.FS, path string) (string, []Record, error) {
	raw, err := readFile(fs, path)
	if errors.Is(err, iofs.ErrNotExist) {
		return "", nil, nil
	}
	if err != nil {
		return "", nil, fmt.Errorf("blackbox: read %s: %w", path, err)
	}
	id, s, _, err := decode(raw)
	if err != nil {
		return "", nil, fmt.Errorf("blackbox: read %s: %w", path, err)
	}
	return id, s.records(), nil
}
