package main

import (
	"cmp"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/ringrift/ringlog/raftnode"
	"github.com/ringrift/ringlog/raftnode/blackbox"
	"github.com/ringrift/ringlog/raftnode/datadir"
)

// showJournalOf prints the journal in the folder of a stopped node.
func showJournalOf(sh *shell, dir string, newest int) error {
	marker, err := datadir.Inspect(dir)
	switch {
	case errors.Is(err, datadir.ErrDamaged): // of other files
		sh.say("warning: %v", err)
	case err != nil:
		return err
	}
	o := nodeOutage{DataDir: dir, NodeID: cmp.Or(marker.NodeID, "?"), Records: []localRecord{}}
	path := filepath.Join(dir, datadir.BlackBoxFile)
	id, records, err := blackbox.Read(path)
	if errors.Is(err, blackbox.ErrDamaged) {
		return fmt.Errorf("%w: look at it as text; when the node starts it puts it aside as %s.damaged and begins a new one", err, datadir.BlackBoxFile)
	}
	if err != nil {
		return err
	}
	o.Journal, o.Outage = id, openOutage(records)
	for _, r := range last(records, newest) {
		o.Records = append(o.Records, localRecord{Local: true, NodeID: o.NodeID, Seq: r.Seq, Time: r.At, Type: raftnode.JournalType(r.Kind), Payload: r})
	}
	return sh.emit(o, func() error {
		state := "it tells of no outage that lasts"
		if o.Outage != nil {
			state = fmt.Sprintf("it ends in an outage: no quorum from %s on (%s), last leader %s", momentText(o.Outage.Since), o.Outage.Cause, o.Outage.Leader)
		}
		if id == "" {
			state = "there is none yet"
		}
		if _, err := fmt.Fprintf(sh.out, "%s, the journal in %s: %s\n", o.NodeID, dir, state); err != nil {
			return err
		}
		return journalTable(sh, []nodeOutage{o})
	})
}

// openOutage is the outage that a journal tells no end of.
func openOutage(records []blackbox.Record) (open *raftnode.Outage) {
	for _, r := range records {
		switch r.Kind {
		case blackbox.Lost:
			open = &raftnode.Outage{Since: r.Since, Cause: r.Cause, Term: r.Term, Leader: r.Leader, Refused: r.Refused, Peers: r.Peers}
		case blackbox.View:
			if open != nil {
				open.Refused, open.Peers = max(open.Refused, r.Refused), r.Peers
			}
		case blackbox.Restored:
			open = nil
		}
	}
	return open
}
