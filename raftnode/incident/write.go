package incident

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/hashicorp/raft"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/fsm"
	"github.com/ringrift/ringlog/internal/frame"
	"github.com/ringrift/ringlog/log"
	"github.com/ringrift/ringlog/raftnode/statestore"
	"github.com/ringrift/ringlog/snapshots"
)

// Source is what a node has of its past.
type Source struct {
	NodeID string
	// Machine is the state as it is now. What it has applied is the end of every slice.
	Machine *fsm.Machine
	// Kept are checkpoints of it, the oldest first. The caller sees to it that they stay until Gather has returned.
	Kept []statestore.Kept
	// First is the first entry of raft's log, 0 if it is empty, and Entry reads one.
	First uint64
	Entry func(index uint64, l *raft.Log) error
}

// NotKeptError is returned where the beginning of a slice is not kept. A caller may ask for a later time.
type NotKeptError struct {
	// Oldest and Offset are the oldest state that can be had; the zero time if there is none.
	Oldest time.Time
	Offset uint64
}

// Error implements error.
func (e *NotKeptError) Error() string {
	if e.Oldest.IsZero() {
		return "the node keeps nothing of its past yet"
	}
	return fmt.Sprintf("the state of that time is not kept; the oldest that is kept is of %s, after offset %d",
		timeText(e.Oldest), e.Offset)
}

// TimeAt returns the replicated time of a position: that of the event there. Start and end are the zero time, which
// means as far as there is anything. now is what an age counts back from.
func TimeAt(p api.Position, events *log.Log, now time.Time) (time.Time, error) {
	switch p.Kind {
	case api.AtTime:
		return p.Time, nil
	case api.AtAge:
		return now.Add(-p.Age), nil
	// Positions in the log are those of its events.
	case api.AtOffset, api.AtLast:
		offset, err := p.Resolve(events, now)
		if err != nil {
			return time.Time{}, err
		}
		e, err := events.Get(offset)
		return e.AppendedAt, err
	}
	return time.Time{}, nil
}

// base is a state from which entries can be applied. The zero base is the state before the first entry.
type base struct {
	dir string // of its checkpoint; "" is the zero base
	fsm.Position
}

// bases returns the states that the log of the source reaches, the oldest first.
func (s *Source) bases() (list []base, err error) {
	// The log is whole, so the state can be made from nothing.
	if s.First == 1 {
		list = append(list, base{})
	}
	for _, k := range s.Kept {
		// Entries are missing after it, or it is ahead of the state, as after a restore.
		if !statestore.Reaches(s.First, k.Index) || k.Index > s.Machine.Applied() {
			continue
		}
		p, err := fsm.ReadPosition(k.Dir, nil)
		if err != nil {
			return nil, err
		}
		// A checkpoint of the cluster that this one was made from.
		if p.ClusterID == s.Machine.ClusterID() {
			list = append(list, base{k.Dir, p})
		}
	}
	return list, nil
}

// baseBefore returns the newest base before a time, and the oldest one if the time is zero.
func (s *Source) baseBefore(from time.Time) (base, error) {
	list, err := s.bases()
	switch {
	case err != nil:
		return base{}, err
	case len(list) == 0:
		return base{}, &NotKeptError{}
	case from.IsZero():
		return list[0], nil
	}
	// The newest has the fewest entries to apply. Its own entry may have the time from, so it has to be older.
	for i := len(list) - 1; i >= 0; i-- {
		if list[i].Index == 0 || list[i].Time.Before(from) {
			return list[i], nil
		}
	}
	return base{}, &NotKeptError{Oldest: list[0].Time, Offset: list[0].Last}
}

// Gathered is an incident that was found and is not written yet. Nobody else needs its files to stay.
type Gathered struct {
	dir  string         // the scratch folder: the files of the state and of the entries
	meta snapshots.Meta // complete once Gather returns
}

// Gather finds the entries from one replicated time to another, both included, and the state before them. The zero time
// is as far as there is anything. scratch is a folder for it alone, on the file system of the checkpoints if that can
// be, which it makes and Close removes.
func Gather(ctx context.Context, scratch string, s Source, from, to time.Time) (_ *Gathered, err error) {
	if !to.IsZero() && to.Before(from) {
		return nil, api.Refuse(api.InvalidArgument, "to",
			fmt.Sprintf("the slice ends at %s, before it begins at %s", timeText(to), timeText(from)),
			"exchange from and to")
	}
	// Where the slice begins decides from which state it can be replayed.
	b, err := s.baseBefore(from)
	if err != nil {
		return nil, err
	}
	if err := os.Mkdir(scratch, 0o700); err != nil {
		return nil, fmt.Errorf("gather an incident: %w", err)
	}
	g := &Gathered{dir: scratch, meta: statestore.MetaOf(b.Position, s.NodeID)}
	defer func() {
		if err != nil {
			err = errors.Join(err, g.Close())
		}
	}()
	// Links, so that the checkpoint may be removed while the incident is written.
	if b.dir != "" {
		if err := linkFiles(b.dir, scratch); err != nil {
			return nil, fmt.Errorf("gather an incident: %w", err)
		}
	}
	// The state before the first entry has no cluster yet.
	g.meta.ClusterID = s.Machine.ClusterID()
	// writeEntries adds what it finds.
	g.meta.Slice = &snapshots.Slice{Version: snapshots.SliceVersion, From: from, To: b.Time, FirstOffset: b.Last}
	return g, s.writeEntries(ctx, filepath.Join(scratch, snapshots.EntriesFile), b.Index, to, g.meta.Slice)
}

// Meta says what the incident holds.
func (g *Gathered) Meta() snapshots.Meta { return g.meta }

// Write writes the incident.
func (g *Gathered) Write(ctx context.Context, w io.Writer) error {
	return snapshots.Write(ctx, w, g.dir, g.meta)
}

// Close removes what was gathered.
func (g *Gathered) Close() error { return os.RemoveAll(g.dir) }

// timeText is a time as errors show it.
func timeText(at time.Time) string { return at.UTC().Format(time.RFC3339Nano) }

// writeEntries writes the entries after an index up to a time, and completes the slice. It stops at the first entry
// after the time, or at what the state had applied when it began.
func (s *Source) writeEntries(
	ctx context.Context, file string, after uint64, to time.Time, slice *snapshots.Slice,
) (err error) {
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fmt.Errorf("write entries: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	out := bufio.NewWriterSize(f, 256<<10)
	// A slice without entries ends where it begins.
	slice.LastIndex = after
	var encoded []byte
	for index, end := after+1, s.Machine.Applied(); index <= end; index++ {
		var l raft.Log
		// Raft may compact its log meanwhile: a missing entry is an error.
		err := s.Entry(index, &l)
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return fmt.Errorf("read entry %d: %w", index, err)
		}
		at, err := timeOf(&l)
		if err != nil {
			return fmt.Errorf("read entry %d: %w", index, err)
		}
		if !to.IsZero() && at.After(to) {
			break
		}
		// Entries of raft's own have no time. They belong to the slice, as indexes have no holes.
		if !at.IsZero() {
			slice.To = at
		}
		encoded = appendEntry(encoded[:0], &l)
		if _, err := out.Write(encoded); err != nil {
			return fmt.Errorf("write entries: %w", err)
		}
		slice.Entries, slice.LastIndex = slice.Entries+1, index
	}
	return out.Flush()
}

// timeOf returns the replicated time of an entry, the zero time for one that has none.
func timeOf(l *raft.Log) (time.Time, error) {
	if l.Type != raft.LogCommand {
		return time.Time{}, nil
	}
	f, err := frame.Decode(l.Data)
	if err != nil {
		return time.Time{}, err
	}
	return f.Time, nil
}

// linkFiles gives the files of a folder a name in another one, and copies those that cannot have one there. Files of a
// checkpoint never change, so a second name is as good as a copy.
func linkFiles(from, to string) error {
	entries, err := os.ReadDir(from)
	for _, e := range entries {
		source, target := filepath.Join(from, e.Name()), filepath.Join(to, e.Name())
		if linkErr := os.Link(source, target); linkErr != nil {
			err = errors.Join(err, copyFile(source, target))
		}
	}
	return err
}

// copyFile copies a file to a name that is not taken.
func copyFile(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}
