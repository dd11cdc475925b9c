package client

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/ringrift/ringlog/api"
	ringlogv1 "github.com/ringrift/ringlog/api/ringlog/v1"
	"github.com/ringrift/ringlog/api/ringlog/v1/ringlogv1connect"
	"github.com/ringrift/ringlog/client/internal/calls"
	"github.com/ringrift/ringlog/event"
)

// Failure says why an event could not be handled.
type Failure struct {
	Handler     string    // a name for people; "" is none
	Error       string    // cut by the node if it is long
	Attempts    uint64    // 0 is 1
	FirstFailed time.Time // zero is now
}

// DeadLetter moves an event to the dead letters, and the cursor past it, durably once it
// returns. Everything before it counts as handled, as with Commit. It is idempotent.
func (cur *Cursor) DeadLetter(ctx context.Context, offset uint64, f Failure) error {
	var err error
	if cur.lease == (Lease{}) {
		err = cur.c.Admin().PutDeadLetter(ctx, cur.info.Name, cur.info.Generation, offset, f)
	} else {
		body := map[string]any{"offset": offset, "generation": cur.info.Generation, "handler": f.Handler, "error": f.Error,
			"attempts": f.Attempts}
		if !f.FirstFailed.IsZero() {
			body["first_failed"] = f.FirstFailed
		}
		op := calls.Op{Name: "dead letter of cursor", Subject: fmt.Sprintf("%s at %d", cur.info.Name, offset)}
		err = cur.settleUnder(ctx, op, "/deadletter", body)
	}
	if err != nil {
		return err
	}

	// The letter has moved the cursor, as a commit does.
	cur.mu.Lock()
	defer cur.mu.Unlock()
	cur.committed = max(cur.committed, offset)
	return nil
}

// PutDeadLetter is Cursor.DeadLetter for a cursor by its name and the generation that holds
// it. The code is trimmed if the event is not kept any more, and conflict if the cursor is past
// it without a letter.
func (a *Admin) PutDeadLetter(ctx context.Context, cursor string, generation, offset uint64, f Failure) error {
	req := &ringlogv1.DeadLetterRequest{Name: cursor, Offset: offset, Generation: generation, Handler: f.Handler,
		Error: f.Error, Attempts: f.Attempts}
	if !f.FirstFailed.IsZero() {
		req.FirstFailedUnixNano = f.FirstFailed.UnixNano()
	}
	op := calls.Op{Name: "dead letter of cursor", Subject: fmt.Sprintf("%s at %d", cursor, offset)}
	_, err := cursorCall(ctx, a.c, op, ringlogv1connect.CursorServiceClient.DeadLetter, req)
	return err
}

// KeptFailure is the failure of a handler without a cursor. ID is unique to it: a repeated call keeps one letter.
type KeptFailure struct {
	Failure
	ID     string
	Source string // who keeps it
	Cursor string // to which the letter is redriven; it need not exist yet
}

// KeepDeadLetter makes an event a dead letter that moves no cursor. The letter has a copy of the event: of the one at
// its offset, or, where that is 0, of the event as it is given. The code is trimmed if the log does not keep it.
func (a *Admin) KeepDeadLetter(ctx context.Context, ev *event.Event, f KeptFailure) error {
	id, err := json.Marshal(f.ID)
	if err != nil {
		return err
	}
	row := api.LetterRow{ID: id, Error: f.Error, RetryCount: f.Attempts, Cursor: f.Cursor, Handler: f.Handler,
		Type: string(ev.Type), Offset: ev.Offset}

	// The log has the event at its offset, and the node copies it from there. Any other is sent whole.
	if ev.Offset == 0 {
		row.Data = ev.Payload
		row.Key, row.EventSource, row.CorrelationID = ev.Key, ev.Source, ev.CorrelationID
	}
	if !f.FirstFailed.IsZero() {
		if row.CreatedAt, err = json.Marshal(f.FirstFailed); err != nil {
			return err
		}
	}
	var answer api.LettersImported
	in := map[string]any{"source": f.Source, "rows": []api.LetterRow{row}}
	if err := a.Do(ctx, http.MethodPost, "/v1/dlq/import", nil, in, &answer); err != nil {
		return err
	}

	// One letter was sent, so the first refusal is that of it.
	if len(answer.Refused) > 0 {
		return answer.Refused[0].Error
	}
	return nil
}

// Letter is an event that could not be handled. It is dead, or redriven: appended again
// at Copy, which its cursor has not committed yet.
type Letter = api.Letter

// LetterFilter chooses dead letters; a zero field chooses all.
type LetterFilter struct {
	Type   string // a name, or a pattern such as training.*
	Cursor string
	Error  string // a part of it
	State  string // dead or redriven

	Consistency Consistency
}

// query returns the filter as the parameters of a request; a zero field has none.
func (f LetterFilter) query() url.Values {
	q := url.Values{}
	for name, value := range map[string]string{"type": f.Type, "cursor": f.Cursor, "error": f.Error, "state": f.State} {
		if value != "" {
			q.Set(name, value)
		}
	}
	if f.Consistency == Linearizable {
		q.Set("consistency", "linearizable")
	}
	return q
}

// DeadLetters goes through the dead letters by id. An error is the last that it yields.
func (a *Admin) DeadLetters(ctx context.Context, f LetterFilter) iter.Seq2[Letter, error] {
	return eachOfPages(ctx, a, "/v1/dlq", f.query(), func(p *api.LetterPage) ([]Letter, string) {
		return p.Letters, strings.TrimPrefix(strconv.FormatUint(p.Next, 10), "0")
	})
}

// DeadLetter returns one letter and its event, or the code not_found.
func (a *Admin) DeadLetter(ctx context.Context, id uint64) (Letter, event.Event, error) {
	var found struct {
		Letter
		Event event.Event `json:"event"`
	}
	err := a.Do(ctx, http.MethodGet, "/v1/dlq/"+strconv.FormatUint(id, 10), nil, nil, &found)
	return found.Letter, found.Event, err
}

// LetterSelector says which letters to redrive or purge: those named, or all that are
// dead and that the other fields choose. One of them must be given.
type LetterSelector struct {
	IDs       []uint64
	All       bool // every dead letter that the other fields pass
	Type      string
	Cursor    string
	Error     string        // a part of it
	OlderThan time.Duration // dead for longer than that; 0 is any age
	After     uint64        // ids above it: LettersResult.Last of a call before
	MaxEvents uint64        // 0 is all of them
	DryRun    bool          // report what would be done
}

// redriveBody is the body of a redrive: which letters, and the cursor that gets them.
type redriveBody struct {
	api.LetterSelection
	To string `json:"to,omitempty"`
}

// selection returns the choice for a request. Its Cursor is a pointer, as the empty name chooses letters without a
// cursor there.
func (l LetterSelector) selection() api.LetterSelection {
	chosen := api.LetterSelection{
		IDs:       l.IDs,
		All:       l.All,
		Type:      l.Type,
		Error:     l.Error,
		After:     l.After,
		MaxEvents: l.MaxEvents,
		DryRun:    l.DryRun,
	}
	if l.Cursor != "" {
		chosen.Cursor = &l.Cursor
	}
	if l.OlderThan != 0 {
		chosen.OlderThan = l.OlderThan.String()
	}
	return chosen
}

// LettersResult is what was done with letters.
type LettersResult = api.LettersResult

// Redrive appends dead letters' events again: each is delivered to the cursor that has
// dead-lettered it, or to the cursor to, and to no other reader. A letter that is in redrive
// already is left alone, so Redrive may be repeated.
func (a *Admin) Redrive(ctx context.Context, which LetterSelector, to string) (LettersResult, error) {
	return a.lettersCall(ctx, "/v1/dlq/redrive", redriveBody{which.selection(), to})
}

// Purge removes dead letters for good. One that is in redrive stays until its cursor has
// handled it.
func (a *Admin) Purge(ctx context.Context, which LetterSelector) (LettersResult, error) {
	return a.lettersCall(ctx, "/v1/dlq/purge", which.selection())
}

// lettersCall is Do for a POST that may be repeated.
func (a *Admin) lettersCall(ctx context.Context, path string, in any) (done LettersResult, err error) {
	op := calls.Op{Name: http.MethodPost, Subject: path}
	err = a.do(ctx, op, http.MethodPost, path, nil, in, &done, func(ctx context.Context, attempt calls.AttemptFunc) error {
		return a.c.cluster.CallWhileAlive(ctx, op, calls.Idempotent, attempt)
	})
	return done, err
}
