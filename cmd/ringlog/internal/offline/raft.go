package offline

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/cmd/ringlog/internal/shell"
	"github.com/ringrift/ringlog/internal/frame"
	"github.com/ringrift/ringlog/raftnode/raftstore"
)

// raftEntry is one entry of the consensus log.
// It is a row of the table and a line with -o json.
type raftEntry struct {
	Index uint64 `json:"index"`
	Term  uint64 `json:"term"`
	// of raft's own: command, configuration, noop, …
	Kind string `json:"kind"`
	// Bytes is the size of the entry's data; Proposer and Holds are known of commands alone.
	Bytes    int    `json:"bytes"`
	Proposer string `json:"proposer,omitempty"`
	// the commands of the frame, counted by kind
	Holds string `json:"holds,omitempty"`
	Error string `json:"error,omitempty"` // why it cannot be read; then the fields after Index may be zero
}

// PrintRaft prints what the raft folder holds, entry by entry; entries that are
// damaged or gone are named and fail the command.
func PrintRaft(_ context.Context, sh *shell.Shell, o Options) (err error) {
	f, err := openFolder(o.DataDir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.close()) }()
	// The state is open as well, for what it has applied.
	r, err := f.raft()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	// The summary goes to stderr: stdout has one line per entry.
	s := r.Summary()
	candidate := s.VoteCandidate
	// Raft votes for an address. The members of the state have the id.
	for _, m := range f.machine.Members() {
		if m.RaftAddr == candidate {
			candidate = fmt.Sprintf("%s at %s", m.ID, candidate)
			break
		}
	}
	sh.Say("log %d to %d, term %d, voted for %s in term %d; the state has applied %d", s.First, s.Last,
		s.CurrentTerm, cmp.Or(candidate, "nobody"), s.VoteTerm, f.machine.Applied())
	// Damaged entries are listed and then fail the command, as does a log that has lost its end.
	// They are kept in memory: compaction bounds how many a log has.
	entries, damaged := readEntries(r, s, o)
	err = shell.EmitEach(sh, "entry", entries, table.Row{"index", "term", "kind", "bytes", "proposer", "holds"},
		func(e raftEntry) table.Row {
			if e.Error != "" {
				return table.Row{e.Index, "?", "damaged", "", "", e.Error}
			}
			return table.Row{e.Index, e.Term, e.Kind, e.Bytes, e.Proposer, e.Holds}
		})
	// Lost reports that the newest entries are gone, which no line of the list would show.
	return errors.Join(err, damaged, r.Lost())
}

// readEntries lists the entries of a range; those that cannot be read are in the list and in damaged.
func readEntries(r *raftstore.Reader, s raftstore.Summary, o Options) (list []raftEntry, damaged error) {
	// Positions count entries here, not events.
	from, limit := s.First, o.Count
	switch o.From.Kind {
	// Any other position begins with the first entry.
	case api.AtOffset:
		from = o.From.Offset
	case api.AtLast:
		// All of them, if there are fewer.
		from = s.Last + 1 - min(o.From.Last, s.Last)
	case api.AtEnd:
		return nil, nil
	}
	// A count of 0 is no limit.
	if limit == 0 {
		limit = math.MaxUint64
	}
	// After an entry that is damaged, Entries continues with the next.
	for l, err := range r.Entries(from, s.Last) {
		if uint64(len(list)) == limit {
			break
		}
		// LogCommand is "command".
		entry := raftEntry{Index: l.Index, Term: l.Term,
			Kind: strings.ToLower(strings.TrimPrefix(l.Type.String(), "Log")), Bytes: len(l.Data)}
		// A damaged entry is listed, and the next ones are read.
		if err != nil {
			entry = raftEntry{Index: l.Index, Error: err.Error()}
			damaged = errors.Join(damaged, err)
		} else if entry.Kind == "command" {
			if err := entry.describe(l.Data); err != nil {
				entry.Error = err.Error()
				damaged = errors.Join(damaged, fmt.Errorf("entry %d: %w", l.Index, err))
			}
		}
		list = append(list, entry)
	}
	return list, damaged
}

// describe fills in what a command's frame holds. It returns an error if the data is no frame that this build
// knows, and changes nothing then.
func (e *raftEntry) describe(data []byte) error {
	f, err := frame.Decode(data)
	if err != nil {
		return err
	}
	e.Proposer, e.Holds = f.Proposer, holdsText(f)
	return nil
}

// holdsText counts a frame's commands by their kind, and its events.
func holdsText(f *frame.Frame) string {
	counts, events := map[string]int{}, 0
	for _, c := range f.Commands {
		// What an operator does is a command like another's.
		if act, is := c.(frame.Act); is && act.Of != nil {
			c = act.Of
		}
		// The type's name is the command's: frame.Publish is a publish.
		counts[strings.ToLower(strings.TrimPrefix(fmt.Sprintf("%T", c), "frame."))]++
		if p, ok := c.(frame.Publish); ok {
			events += p.Count
		}
	}
	// Sorted, so the same frame prints alike each time.
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		text := name
		if counts[name] > 1 {
			text = fmt.Sprintf("%d %s", counts[name], name)
		}
		if name == "publish" {
			text += " (" + shell.Count(events, "event") + ")"
		}
		parts = append(parts, text)
	}
	return strings.Join(parts, ", ")
}
