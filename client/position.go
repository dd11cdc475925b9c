package client

import (
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	ringlogv1 "github.com/ringrift/ringlog/api/ringlog/v1"
)

// Position is a place in the log. The zero Position depends on its use: it is the end for a
// tail, the start for a new cursor.
type Position struct {
	// says which of the other fields counts
	kind positionKind
	n    uint64
	at   time.Time
	age  time.Duration
}

// positionKind is what a position is given by.
type positionKind byte

const (
	unset positionKind = iota
	atStart
	atEnd
	atOffset
	atLast
	atTime
	atAge
)

// FromStart is before the first event kept.
func FromStart() Position { return Position{kind: atStart} }

// FromEnd is after the last event.
func FromEnd() Position { return Position{kind: atEnd} }

// FromOffset is before the event with that offset.
func FromOffset(offset uint64) Position { return Position{kind: atOffset, n: offset} }

// FromLast is n events before the end, whatever their types.
func FromLast(n uint64) Position { return Position{kind: atLast, n: n} }

// FromTime is before the first event appended at t or later.
func FromTime(t time.Time) Position { return Position{kind: atTime, at: t} }

// FromAge is before the first event that is at most that old.
func FromAge(d time.Duration) Position { return Position{kind: atAge, age: d} }

// or returns p, or the fallback for the zero Position.
func (p Position) or(fallback Position) Position {
	if p.kind == unset {
		return fallback
	}
	return p
}

// older moves a position by age back, so that a later request asks for the same.
func (p Position) older(by time.Duration) Position {
	if p.kind == atAge {
		p.age += by
	}
	return p
}

// wire returns the position for a request. The zero Position is nil: the node's default for
// that request.
func (p Position) wire() *ringlogv1.Position {
	// Each kind is one field of a oneof.
	switch p.kind {
	case atStart:
		return &ringlogv1.Position{At: &ringlogv1.Position_Start{Start: true}}
	case atEnd:
		return &ringlogv1.Position{At: &ringlogv1.Position_End{End: true}}
	case atOffset:
		return &ringlogv1.Position{At: &ringlogv1.Position_Offset{Offset: p.n}}
	case atLast:
		return &ringlogv1.Position{At: &ringlogv1.Position_Last{Last: p.n}}
	case atTime:
		return &ringlogv1.Position{At: &ringlogv1.Position_Time{Time: timestamppb.New(p.at)}}
	case atAge:
		return &ringlogv1.Position{At: &ringlogv1.Position_Age{Age: durationpb.New(p.age)}}
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
