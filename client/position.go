package client

import (
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/ringrift/ringlog/api"
	ringlogv1 "github.com/ringrift/ringlog/api/ringlog/v1"
)

// Position is a place in the log, made by one of the functions below or parsed by api.ParsePosition.
//
// The zero Position is the start of the log for a new cursor or group, whose place the cluster keeps, and for a read
// that stops at the end. It is the end for a reader that follows and keeps no place.
type Position = api.Position

// FromStart is before the first event kept.
func FromStart() Position { return Position{Kind: api.AtStart} }

// FromEnd is after the last event.
func FromEnd() Position { return Position{Kind: api.AtEnd} }

// FromOffset is before the event with that offset.
func FromOffset(offset uint64) Position { return Position{Kind: api.AtOffset, Offset: offset} }

// FromLast is n events before the end, whatever their types.
func FromLast(n uint64) Position { return Position{Kind: api.AtLast, Last: n} }

// FromTime is before the first event appended at t or later.
func FromTime(t time.Time) Position { return Position{Kind: api.AtTime, Time: t} }

// FromAge is before the first event that is at most that old.
func FromAge(d time.Duration) Position { return Position{Kind: api.AtAge, Age: d} }

// orStart returns p, or the start for the zero Position.
func orStart(p Position) Position {
	if p == (Position{}) {
		return FromStart()
	}
	return p
}

// older moves a position by age back, so a later request asks for the same.
func older(p Position, by time.Duration) Position {
	if p.Kind == api.AtAge {
		p.Age += by
	}
	return p
}

// wirePosition returns a position for a request. The zero Position is nil: the node's default for
// that request.
func wirePosition(p Position) *ringlogv1.Position {
	// Each kind is one field of a oneof.
	switch p.Kind {
	case api.AtStart:
		return &ringlogv1.Position{At: &ringlogv1.Position_Start{Start: true}}
	case api.AtEnd:
		return &ringlogv1.Position{At: &ringlogv1.Position_End{End: true}}
	case api.AtOffset:
		return &ringlogv1.Position{At: &ringlogv1.Position_Offset{Offset: p.Offset}}
	case api.AtLast:
		return &ringlogv1.Position{At: &ringlogv1.Position_Last{Last: p.Last}}
	case api.AtTime:
		return &ringlogv1.Position{At: &ringlogv1.Position_Time{Time: timestamppb.New(p.Time)}}
	case api.AtAge:
		return &ringlogv1.Position{At: &ringlogv1.Position_Age{Age: durationpb.New(p.Age)}}
	}
	return nil
}

// Consistency says how fresh what is read must be.
type Consistency byte

// The levels of consistency.
const (
	Local        Consistency = iota // what the node asked has applied
	Linearizable                    // everything that was acknowledged before the read began
)

// wire returns the level for a request.
func (l Consistency) wire() ringlogv1.Consistency {
	if l == Linearizable {
		return ringlogv1.Consistency_CONSISTENCY_LINEARIZABLE
	}
	return ringlogv1.Consistency_CONSISTENCY_LOCAL
}
