package offline

import (
	"cmp"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/cmd/ringlog/internal/shell"
	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/raftnode"
	"github.com/ringrift/ringlog/raftnode/blackbox"
	"github.com/ringrift/ringlog/raftnode/datadir"
)

// journal is a stopped node's record of outages.
// The records are in their order, the newest last.
type journal struct {
	NodeID  string // "?" where that is damaged
	ID      string // "" if there is none yet
	Records []blackbox.Record
	Open    *api.Outage // that it ends in; nil is none
}

// ReadJournal reads the journal in the folder of a stopped node. Damage of other files is a warning.
func ReadJournal(sh *shell.Shell, dir string) (j journal, err error) {
	// A damaged marker costs the node's id alone: the journal is a file of its own.
	marker, err := datadir.Inspect(dir)
	switch {
	case errors.Is(err, datadir.ErrDamaged):
		sh.Say("warning: %v", err)
	case err != nil:
		return j, err
	}
	j.NodeID = cmp.Or(marker.NodeID, "?")
	// A journal that is missing is an empty one: the node has seen no outage.
	j.ID, j.Records, err = blackbox.Read(filepath.Join(dir, datadir.BlackBoxFile))
	if errors.Is(err, blackbox.ErrDamaged) {
		return j, fmt.Errorf("%w: read it as text; when the node starts, it moves it aside as %s.damaged and "+
			"begins a new one", err, datadir.BlackBoxFile)
	}
	j.Open = OpenOutage(j.Records)
	return j, err
}

// OpenOutage is the outage whose end a journal does not record. The records are in their order. It returns nil if
// the last outage has ended, or there was none.
func OpenOutage(records []blackbox.Record) (open *api.Outage) {
	// The last record about an outage decides whether it is open.
	for _, r := range records {
		switch r.Kind {
		case blackbox.Lost:
			// One that is still open ends here: the node was stopped before it recorded the end.
			open = &api.Outage{Since: r.Since, Cause: r.Cause, Term: r.Term, Leader: r.Leader,
				Refused: r.Refused, Peers: peersOf(r)}
		// Later views of the outage have the last figures.
		case blackbox.View:
			if open != nil {
				// Refused only grows during an outage. The peers are those of the last view.
				open.Refused, open.Peers = max(open.Refused, r.Refused), peersOf(r)
			}
		case blackbox.Restored:
			open = nil
		}
	}
	return open
}

// peersOf returns the other voters as a record of a journal has them.
func peersOf(r blackbox.Record) (list []api.OutagePeer) {
	for _, p := range r.Peers {
		list = append(list, api.OutagePeer(p))
	}
	return list
}

// RecordType is the event type under which a journal's record is shown.
func RecordType(k blackbox.Kind) event.Type { return raftnode.JournalType(k) }
