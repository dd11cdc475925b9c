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
	room    int    // bytes that the lines of records may take
	id      string // see ID
	dropped string // see Dropped

	// state is what the file holds for certain. It is replaced under mu, and read without.
	state atomic.Pointer[state]

	mu     sync.Mutex // held by the one writer, also while it syncs; guards file and closed
	file   vfs.File   // nil while its end is not known to be whole: the next write begins a new file
	closed bool
}

// Open opens the journal at path and creates it if it is missing; the folder must
// exist. An end that cannot be read is dropped. Where not even the first line can
// be read, the file is moved to path + ".damaged" and a new journal with a new ID
// begins; see Dropped. It fails with ErrNewerFormat.
func Open(path string, o Options) (*Journal, error) {
	maxBytes := cmp.Or(o.MaxBytes, defaultMaxBytes)
	if maxBytes < leastMaxBytes {
		return nil, fmt.Errorf("open %s: at most %d bytes are too few, give it %d or more",
			path, maxBytes, leastMaxBytes)
	}
	// A later header may have larger numbers; it must fit as well.
	j := &Journal{fs: o.FS, path: path, room: maxBytes - headerMax}
	if j.fs == nil {
		j.fs = vfs.Default
	}
	if err := j.open(); err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	return j, nil
}

// open reads the file at path, or creates it, and publishes what it holds. The first
// write after that begins a new file, unless open has created it.
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
		j.dropped = fmt.Sprintf("open %s: the last %d of %d bytes were cut or damaged and are dropped, "+
			"%d records are kept",
			j.path, left, len(raw), len(s.entries))
	}
	j.id = id
	j.state.Store(&s)
	// A crash of the process alone may leave records that were never synced. They are published
	// now, so they have to survive a crash of the machine.
	return syncFile(j.fs, j.path)
}

// startOver renames a file of size bytes that is no longer a journal, and creates a new journal.
func (j *Journal) startOver(size int) error {
	aside := j.path + ".damaged"
	if err := j.fs.Rename(j.path, aside); err != nil {
		return err
	}
	j.dropped = fmt.Sprintf("open %s: the first line of its %d bytes is cut or damaged: "+
		"it was moved to %s and a new journal begins",
		j.path, size, aside)
	return j.create()
}

// create writes an empty journal with a new ID.
func (j *Journal) create() error {
	id, err := uuid.NewRandom()
	if err != nil {
		return err
	}
	j.id = id.String()
	return j.rewrite(state{next: 1})
}

// ID is random and made with the journal: two records are the same one if both ID and
// Seq are equal.
func (j *Journal) ID() string { return j.id }

// Dropped says for the diagnostics log what Open could not read; empty if nothing.
func (j *Journal) Dropped() string { return j.dropped }

// Records are the acknowledged records that are still kept, oldest first. The
// caller owns them. It does not wait for an Append.
func (j *Journal) Records() []Record { return j.state.Load().records() }

// Settled is the Seq up to which everything is stored in the replicated log.
func (j *Journal) Settled() uint64 { return j.state.Load().settled }

// Append writes a record and returns it, with its Seq, once it is durable. Older
// records are dropped if there is no room. After an error the journal is as before, and
// the next Append tries again. It fails with ErrTooLarge and ErrClosed.
func (j *Journal) Append(r Record) (Record, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	stored, err := j.append(r)
	if err != nil {
		return Record{}, fmt.Errorf("append to %s: %w", j.path, err)
	}
	return stored.clone(), nil
}

// append is Append without the lock, which the caller holds. The caller must not change the record's peers.
func (j *Journal) append(r Record) (Record, error) {
	if j.closed {
		return Record{}, ErrClosed
	}
	s := *j.state.Load()
	e, err := newEntry(stamp(r, s.next))
	if err != nil {
		return Record{}, err
	}
	// No number of dropped records would make room for this one.
	if len(e.line) > j.room {
		return Record{}, fmt.Errorf("%w: %d bytes, there is room for %d", ErrTooLarge, len(e.line), j.room)
	}
	return e.record, j.write(s.with(e), e.line)
}

// stamp gives a record its seq and puts its times into UTC; one without a time is of now.
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
		return fmt.Errorf("settle %s: %w", j.path, err)
	}
	return nil
}

// settle is Settle without the lock, which the caller holds.
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
	// A seq above any given out here was given out by a newer copy of this file.
	s.settled, s.next = seq, max(s.next, seq+1)
	return j.write(s, nil)
}

// write makes s durable and publishes it. s is the published state with the added
// lines, or with another header if added is nil. The caller holds mu.
func (j *Journal) write(s state, added []byte) error {
	if s.next > maxSeq {
		return fmt.Errorf("no seq is left after %d", s.next-1)
	}
	// Only lines can be appended to a file: a header is at its start, and dropped lines leave it.
	if j.file == nil || added == nil || s.size > j.room {
		return j.rewrite(s)
	}
	return j.extend(s, added)
}

// extend appends lines to the file and publishes s. After an error the file's end is not
// known, so it is closed.
func (j *Journal) extend(s state, added []byte) error {
	if err := writeSynced(j.file, bytes.Clone(added)); err != nil {
		return errors.Join(err, j.letGo())
	}
	j.state.Store(&s)
	return nil
}

// rewrite writes s to a new file and publishes s. If s has no room, it drops more than
// it has to, so the next records need no rewrite.
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

// letGo closes the file, if it is open. What it has not synced is not published.
func (j *Journal) letGo() error {
	f := j.file
	j.file = nil
	if f == nil {
		return nil
	}
	return f.Close()
}

// Close waits for an Append that is under way and closes the file. Records and Settled
// still return what was durable by then. It is idempotent.
func (j *Journal) Close() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.closed = true
	if err := j.letGo(); err != nil {
		return fmt.Errorf("close %s: %w", j.path, err)
	}
	return nil
}

// Read reads the journal of a stopped or running node and changes nothing. A
// missing file has no ID and no records. An unreadable end is left out. It fails
// with ErrDamaged where not even the first line can be read, and with
// ErrNewerFormat.
func Read(path string) (id string, records []Record, err error) { return read(vfs.Default, path) }

// read is Read on any file system.
func read(fs vfs.FS, path string) (string, []Record, error) {
	raw, err := readFile(fs, path)
	if errors.Is(err, iofs.ErrNotExist) {
		return "", nil, nil
	}
	if err != nil {
		return "", nil, fmt.Errorf("read %s: %w", path, err)
	}
	id, s, _, err := decode(raw)
	if err != nil {
		return "", nil, fmt.Errorf("read %s: %w", path, err)
	}
	return id, s.records(), nil
}
