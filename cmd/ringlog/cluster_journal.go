package main

import (
	"fmt"

	"github.com/ringrift/ringlog/cmd/ringlog/internal/offline"
	"github.com/ringrift/ringlog/cmd/ringlog/internal/shell"
)

// showJournalOf prints the journal in the folder of a stopped node.
func showJournalOf(sh *shell.Shell, dir string, newest int) error {
	// The journal is a file of its own, so other damage in the folder does not matter.
	found, err := offline.ReadJournal(sh, dir)
	if err != nil {
		return err
	}
	// The form is that of a running node's answer, so both print alike.
	o := nodeOutage{DataDir: dir, NodeID: found.NodeID, Journal: found.ID, Outage: found.Open, Records: []localRecord{}}
	for _, r := range last(found.Records, newest) {
		o.Records = append(o.Records,
			localRecord{Local: true, NodeID: o.NodeID, Seq: r.Seq, Time: r.At, Type: offline.RecordType(r.Kind),
				Payload: r})
	}
	return sh.Emit(o, func() error {
		// The journal's own words, as no other node was asked.
		state := "no ongoing outage recorded"
		if o.Outage != nil {
			state = fmt.Sprintf("ongoing outage: no quorum since %s (%s), last leader %s",
				shell.Moment(o.Outage.Since), o.Outage.Cause, o.Outage.Leader)
		}
		// A folder without a journal is not the same as a journal without an outage.
		if o.Journal == "" {
			state = "there is no journal yet"
		}
		if _, err := fmt.Fprintf(sh.Out, "%s, the journal in %s: %s\n", o.NodeID, dir, state); err != nil {
			return err
		}
		return journalTable(sh, []nodeOutage{o})
	})
}
