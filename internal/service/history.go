package service

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"time"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/event"
)

// storyTypes are the types of the events that the cluster emits about itself.
func storyTypes() []string {
	// Patterns cover types that later builds add.
	return []string{"LEADER_*", "QUORUM_*", "VOTER_*", "SPLIT_BRAIN_*", string(event.CatchupAtRisk)}
}

// storyPayload is what chapters take out of payloads.
type storyPayload struct {
	// Whom the event is about; each type has one or two of these.
	Leader    string `json:"leader_id"`
	OldLeader string `json:"old_leader"`
	Voter     string `json:"voter_id"`
	Member    string `json:"member_id"`
	// The term that the event is about, which may be an earlier one than its own.
	Term uint64 `json:"term"`
	// When what the event reports happened, by the clock of the leader that reports it.
	Began   time.Time `json:"began_at"`
	Ended   time.Time `json:"ended_at"`
	Started time.Time `json:"started_at"`
	Expired time.Time `json:"expired_at"`
	// How long it lasted, in milliseconds.
	Leaderless int64 `json:"leaderless_ms"`
	Outage     int64 `json:"outage_ms"`
	AtRisk     int64 `json:"at_risk_ms"`
}

// chapterOf makes a chapter of an event: when it happened, rather than when it was recorded, whom it is about, and
// how long the outage lasted.
func chapterOf(e *event.Event) api.Chapter {
	c := api.Chapter{
		Offset:     e.Offset,
		At:         e.AppendedAt,
		AppendedAt: e.AppendedAt,
		Type:       e.Type,
		Term:       e.Term,
		Payload:    json.RawMessage(e.Payload),
	}
	// All types of the story share one struct: fields that a payload lacks stay zero.
	var p storyPayload
	if json.Unmarshal(e.Payload, &p) != nil {
		return c // of a newer build: shown as it is
	}
	// The payloads name their subject differently.
	// A leader that was lost is named where there is no new one.
	// The first one that is set counts.
	for _, name := range []string{p.Leader, p.OldLeader, p.Voter, p.Member} {
		if c.Subject == "" {
			c.Subject = name
		}
	}
	// An event about an earlier term is appended in a later one.
	if p.Term != 0 {
		c.Term = p.Term
	}
	// If the payload has several of these times, the last in this list counts.
	for _, at := range []time.Time{p.Started, p.Expired, p.Began} {
		if !at.IsZero() {
			c.At = at
		}
	}
	// A quorum was restored when the outage ended.
	if e.Type == event.QuorumRestored && !p.Ended.IsZero() {
		c.At = p.Ended
	}
	// Each type has some of the three; the longest counts.
	c.GapSeconds = float64(max(p.Leaderless, p.Outage, p.AtRisk)) / 1000
	return c
}

// History returns the newest chapters of the cluster's story from a position on, up to limit.
func (rs *Reports) History(ctx context.Context, from api.Position, limit int) ([]api.Chapter, error) {
	// The filter is by type, so the log is read by its headers where nothing matches.
	// The read does not follow, so it ends with the log.
	t, err := rs.log.OpenTail(ctx, TailRequest{From: from, Filter: event.Filter{Types: storyTypes()}})
	if err != nil {
		return nil, err
	}
	// JSON shows an empty history as [].
	chapters := []api.Chapter{}
	for {
		found, err := t.Read(ctx)
		if errors.Is(err, io.EOF) {
			return chapters, nil
		}
		if err != nil {
			return nil, err
		}
		for i := range found.Events {
			// A client may have stored an event of one of these types, too.
			if e := &found.Events[i]; !e.Foreign {
				chapters = append(chapters, chapterOf(e))
			}
		}
		// A copy does not keep the memory of what is left out.
		// Beside one chunk, no more than limit chapters are in memory.
		if extra := len(chapters) - limit; extra > 0 {
			chapters = append([]api.Chapter{}, chapters[extra:]...)
		}
	}
}
