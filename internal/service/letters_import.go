package service

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/fsm"
	"github.com/ringrift/ringlog/internal/frame"
)

// Import keeps rows of another system as dead letters. A row that cannot be an
// event is reported and left out. source names the system. The rows of a handler that has no cursor are kept one by
// one, all others in entries of frame.MaxLetters.
func (ls *Letters) Import(
	ctx context.Context, source string, rows []api.LetterRow, dryRun bool,
) (answer api.LettersImported, err error) {
	answer = api.LettersImported{Refused: []api.RefusedRow{}, DryRun: dryRun}
	policy := ls.Machine().Policy()
	// Rows that go into the log as one command, and those that need one each.
	var letters []frame.ImportedLetter
	var kept []*api.LetterRow
	for i := range rows {
		if rows[i].Cursor != "" {
			kept = append(kept, &rows[i])
			continue
		}
		// A row that is refused does not stop the others.
		letter, err := importedLetter(&rows[i], source, &policy)
		if err != nil {
			answer.Refused = append(answer.Refused, api.RefusedRow{ID: rows[i].ID, Error: ToAPI(err)})
			continue
		}
		letters = append(letters, letter)
	}
	// One command for each, in the order of the request and before the others.
	for _, r := range kept {
		if err := ls.keepLetter(ctx, r, source, &policy, &answer); err != nil {
			return answer, err
		}
	}
	// A dry run has checked every row as the import would.
	if dryRun {
		answer.Imported += len(letters)
		return answer, nil
	}
	// What was imported before an error stays; a repeated import skips it.
	for len(letters) > 0 {
		n := min(len(letters), frame.MaxLetters)
		result, err := ls.proposeAndApply(ctx, frame.LetterImport{Letters: letters[:n]})
		if err != nil {
			return answer, err
		}
		addImported(&answer, result.Letters)
		letters = letters[n:]
	}
	return answer, nil
}

// keepLetter stores the event of a handler without a cursor as a letter. A row that is refused is added to the answer
// and is no error.
func (ls *Letters) keepLetter(
	ctx context.Context, r *api.LetterRow, source string, policy *event.Policy, answer *api.LettersImported,
) error {
	command, err := ls.keptLetter(ctx, r, source, policy)
	if err != nil {
		answer.Refused = append(answer.Refused, api.RefusedRow{ID: r.ID, Error: ToAPI(err)})
		return nil
	}
	if answer.DryRun {
		answer.Imported++
		return nil
	}
	result, err := ls.proposeAndApply(ctx, command)
	if err != nil {
		return err
	}
	addImported(answer, result.Letters)
	return nil
}

// keptLetter makes the command of such a row. The copy is of the event at its offset, or made of its data.
func (ls *Letters) keptLetter(
	ctx context.Context, r *api.LetterRow, source string, policy *event.Policy,
) (c frame.LetterKeep, err error) {
	if err := ls.checkCursorName("cursor", r.Cursor); err != nil {
		return c, err
	}
	c.From = api.TruncateText(source, maxHandlerText)
	// Texts are cut where letters have bounds: the rows are of another system.
	c.Letter = frame.DeadLetter{Cursor: r.Cursor, Offset: r.Offset, Handler: api.TruncateText(r.Handler, maxHandlerText),
		Error: api.TruncateText(r.Error, MaxErrorText), Attempts: r.RetryCount}
	if c.Letter.FirstFailed, err = rowTime(r.CreatedAt); err != nil {
		return c, err
	}
	var e event.Event
	// A row with an offset is of an event that the log may still have.
	if r.Offset != 0 {
		c.Letter.Event, err = ls.copyFor(ctx, r.Cursor, r.Offset)
		if err == nil && c.Letter.Event == nil {
			err = api.BadValue("offset", fmt.Sprint(r.Offset), "the offset of an event that was read")
		}
	} else if e, err = rowEvent(r, policy); err == nil {
		c.Letter.Event = frame.EncodeCopy(&e)
	}
	// What makes two rows the same: where they come from, their id and what they hold.
	c.Origin = rowOrigin([]byte("kept"), r.ID, []byte(source), []byte(r.Cursor), c.Letter.Event)
	return c, err
}

// rowEvent makes a row the event that it holds.
func rowEvent(r *api.LetterRow, policy *event.Policy) (event.Event, error) {
	payload := []byte(r.Data)
	// The data may be a JSON object, or a string that holds one.
	if text := ""; json.Unmarshal(r.Data, &text) == nil {
		payload = []byte(text)
	}
	// The gate checks the event as it checks any that is published.
	e := event.New(event.Type(r.Type), payload)
	e.Key, e.Source, e.CorrelationID = r.Key, r.EventSource, r.CorrelationID
	_, _, err := policy.Normalize(&e)
	return e, err
}

// rowOrigin identifies a row, so a repeated import skips it. Each part is hashed with its length, which keeps rows
// apart that differ only in where one part ends.
func rowOrigin(parts ...[]byte) (origin [frame.OriginSize]byte) {
	h := sha256.New()
	for _, part := range parts {
		fmt.Fprintf(h, "%d:", len(part))
		h.Write(part)
	}
	copy(origin[:], h.Sum(nil))
	return origin
}

// addImported counts what one command imported.
func addImported(a *api.LettersImported, r *fsm.LettersResult) {
	a.Imported += r.Done
	// A row that was imported before is skipped by its origin.
	a.Known += r.Skipped
	// The first entry has the first new letter.
	if a.First == 0 {
		a.First = r.First
	}
	a.Last = max(a.Last, r.Last)
}

// importedLetter makes a letter of a row. Errors say what is wrong with the row.
func importedLetter(r *api.LetterRow, source string, policy *event.Policy) (l frame.ImportedLetter, err error) {
	e, err := rowEvent(r, policy)
	if err != nil {
		return l, err
	}
	l.Failed, err = rowTime(r.CreatedAt)
	if err != nil {
		return l, err
	}
	// Without the source: a row is the same however its file is called.
	l.Origin = rowOrigin(r.ID, []byte(r.Type), e.Payload, r.CreatedAt)
	// Where the row came from is all that remains of it, beside its event.
	l.From = api.TruncateText(fmt.Sprintf("%s row %s", source, bytes.Trim(r.ID, `"`)), maxHandlerText)
	l.Error, l.Attempts, l.Event = api.TruncateText(r.Error, MaxErrorText), r.RetryCount, frame.EncodeCopy(&e)
	return l, nil
}

// rowTime reads the forms in which SQLite keeps a time; the zero time is none.
func rowTime(raw json.RawMessage) (time.Time, error) {
	// SQLite has no type for times, so rows have them as text or as a number.
	var text string
	if json.Unmarshal(raw, &text) != nil {
		text = string(raw)
	}
	if text == "" || text == "null" {
		return time.Time{}, nil
	}
	// A number counts seconds since 1970, up to the year 2242: beyond that it counts something else.
	if seconds, err := strconv.ParseFloat(text, 64); err == nil && math.Abs(seconds) < 1<<33 {
		// A fraction of a second is kept.
		whole, part := math.Modf(seconds)
		return time.Unix(int64(whole), int64(part*1e9)).UTC(), nil
	}
	for _, form := range []string{time.RFC3339Nano, "2006-01-02 15:04:05.999999999", "2006-01-02T15:04:05.999999999"} {
		if t, err := time.Parse(form, text); err == nil {
			return t.UTC(), nil
		}
	}
	return time.Time{}, api.BadValue("created_at", text, "a time: RFC 3339, or seconds since 1970")
}
