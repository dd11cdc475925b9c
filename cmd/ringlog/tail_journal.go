package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strconv"
	"time"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/cmd/ringlog/internal/shell"
	"github.com/ringrift/ringlog/event"
)

// journalTail prints what one node notes in its journal of outages beside what it reads
// of the log, which can record an outage only afterwards.
type journalTail struct {
	sh   *shell.Shell
	base string // the node
	// the filter of the flags, applied to the types of records
	matcher event.Matcher
	p       *shell.Printer // shared with the reader of the log
	journal string         // whose records these are
	seq     uint64         // the newest one printed; 0: none yet
}

// newJournalTail reads the journal of the first endpoint.
func newJournalTail(sh *shell.Shell, o tailOptions, p *shell.Printer) *journalTail {
	return &journalTail{sh: sh, base: sh.Endpoints[0], matcher: o.filter.Compile(event.Builtin()), p: p}
}

// journalAgain is how long after a failure the node is asked again.
const journalAgain = time.Second

// follow prints records as they come, first those that the log has not recorded yet,
// until ctx ends or the output fails. It outlives failures of the node.
func (j *journalTail) follow(ctx context.Context) error {
	again := time.NewTimer(journalAgain)
	defer again.Stop()
	for {
		// A stream lasts until the node ends or the connection breaks.
		err := j.stream(ctx)
		var failed outputError
		var answer *api.Error
		switch {
		case ctx.Err() != nil:
			return nil
		// Nobody reads the output any more: asking again would not help.
		case errors.As(err, &failed):
			return err
		case errors.As(err, &answer) && answer.Code == api.NotFound:
			return nil // an older node, which has no journal
		}
		again.Reset(journalAgain)
		select {
		case <-again.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// outputError is a failure to print, which ends the tail; failures of the node do not.
type outputError struct{ error }

func (e outputError) Unwrap() error { return e.error }

// stream prints records until the node ends the stream, or until an error; it never returns nil.
func (j *journalTail) stream(ctx context.Context) error {
	// The numbers of records count only within one journal.
	if err := j.begin(ctx); err != nil {
		return err
	}
	query := url.Values{"follow": {"true"}}
	// After a failure the stream resumes after the newest record printed.
	if j.seq > 0 {
		query.Set("after", strconv.FormatUint(j.seq, 10))
	}
	// The node sends what it has after that record, then each new one.
	// It stays open as long as the node lives.
	body, err := j.sh.Open(ctx, j.base, outagePath+"?"+query.Encode())
	if err != nil {
		return err
	}
	defer body.Close()
	for lines := json.NewDecoder(body); ; {
		var line json.RawMessage
		if err := lines.Decode(&line); err != nil {
			return err
		}
		if err := j.record(line); err != nil {
			return err
		}
	}
}

// begin finds out whether the journal is still the one read so far.
func (j *journalTail) begin(ctx context.Context) error {
	// One node is asked, which may hang.
	ctx, cancel := context.WithTimeout(ctx, shell.NodeWithin)
	defer cancel()
	now, err := fetchOutage(ctx, j.sh, j.base)
	if err != nil {
		return err
	}
	// Another journal, of a node whose folder was replaced, say, numbers its records from the start.
	if now.Journal != j.journal {
		j.journal, j.seq = now.Journal, 0
	}
	return nil
}

// printUnrecorded prints the records that the log does not have yet.
func (j *journalTail) printUnrecorded(ctx context.Context) error {
	// One answer, not a stream: the tail is at its end.
	ctx, cancel := context.WithTimeout(ctx, min(j.sh.Timeout, shell.NodeWithin))
	defer cancel()
	var now struct {
		Records []json.RawMessage `json:"records"`
	}
	err := j.sh.Ask(ctx, j.base, outagePath, &now)
	var answer *api.Error
	// An older node has no journal.
	if errors.As(err, &answer) && answer.Code == api.NotFound {
		return nil
	}
	// A record that the log has recorded is left to the log.
	for i := 0; i < len(now.Records) && err == nil; i++ {
		var r localRecord
		err = json.Unmarshal(now.Records[i], &r)
		if err == nil && (r.Settled == nil || !*r.Settled) {
			err = j.record(now.Records[i])
		}
	}
	return err
}

// record prints one record, unless it was printed before.
func (j *journalTail) record(line json.RawMessage) error {
	var r struct {
		localRecord
		Payload json.RawMessage `json:"payload"`
		End     json.RawMessage `json:"end"` // set in the last line of a stream
	}
	if err := json.Unmarshal(line, &r); err != nil {
		return fmt.Errorf("%s%s: %w", j.base, outagePath, err)
	}
	if r.End != nil {
		return io.EOF
	}
	// A record that the filter leaves out counts as read, too.
	j.seq = max(j.seq, r.Seq)
	// Records have a type alone: any other condition of the filter leaves them out.
	if !j.matcher.Match(&event.Event{Type: r.Type}) {
		return nil
	}
	if err := j.p.Local(line, r.Time, r.Type, r.NodeID, r.Payload); err != nil {
		return outputError{err}
	}
	return nil
}
