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

// storyTypes are the types in which the cluster tells of itself.
func storyTypes() []string {
	return []string{"LEADER_*", "QUORUM_*", "VOTER_*", "SPLIT_BRAIN_*", string(event.CatchupAtRisk)}
}

// Chapter is one event of the cluster's own story.
type Chapter struct {
	Offset     uint64          `json:"offset"`
	At         time.Time       `json:"at"`          // when it happened
	AppendedAt time.Time       `json:"appended_at"` // later, where it happened during an outage
	Type       event.Type      `json:"type"`
	Term       uint64          `json:"term"`
	Subject    string          `json:"subject,omitempty"`     // the leader or voter it is about
	GapSeconds float64         `json:"gap_seconds,omitempty"` // without a leader, a quorum or a failure to spare before it
	Payload    json.RawMessage `json:"payload"`
}

// storyPayload is what chapters take out of payloads.
type storyPayload struct {
	Leader     string    `json:"leader_id"`
	OldLeader  string    `json:"old_leader"`
	Voter      string    `json:"voter_id"`
	Member     string    `json:"member_id"`
	Term       uint64    `json:"term"`
	Began      time.Time `json:"began_at"`
	Ended      time.Time `json:"ended_at"`
	Started    time.Time `json:"started_at"`
	Expired    time.Time `json:"expired_at"`
	Leaderless int64     `json:"leaderless_ms"`
	Outage     int64     `json:"outage_ms"`
	AtRisk     int64     `json:"at_risk_ms"`
}

func chapterOf(e *event.Event) Chapter {
	c := Chapter{Offset: e.Offset, At: e.AppendedAt, AppendedAt: e.AppendedAt, Type: e.Type, Term: e.Term, Payload: json.RawMessage(e.Payload)}
	var p storyPayload
	if json.Unmarshal(e.Payload, &p) != nil {
		return c // of a newer build: shown as it is
	}
	for _, name := range []string{p.Leader, p.OldLeader, p.Voter, p.Member} {
		if c.Subject == "" {
			c.Subject = name
		}
	}
	if p.Term != 0 {
		c.Term = p.Term
	}
	for _, at := range []time.Time{p.Started, p.Expired, p.Began} {
		if !at.IsZero() {
			c.At = at
		}
	}
	if e.Type == event.QuorumRestored && !p.Ended.IsZero() {
		c.At = p.Ended
	}
	c.GapSeconds = float64(max(p.Leaderless, p.Outage, p.AtRisk)) / 1000
	return c
}

// History returns the newest chapters of the cluster's story from a position on, up to limit.
func (s *Service) History(ctx context.Context, from api.Position, limit int) ([]Chapter, error) {
	t, err := s.OpenTail(ctx, TailRequest{From: from, Filter: event.Filter{Types: storyTypes()}})
	if err != nil {
		return nil, err
	}
	chapters := []Chapter{}
	for {
		found, err := t.Read(ctx)
		if errors.Is(err, io.EOF) {
			return chapters, nil
		}
		if err != nil {
			return nil, err
		}
		for i := range found.Events {
			if e := &found.Events[i]; !e.Foreign {
				chapters = append(chapters, chapterOf(e))
			}
		}
		if extra := len(chapters) - limit; extra > 0 {
			chapters = append([]Chapter{}, chapters[extra:]...)
		}
	}
}
