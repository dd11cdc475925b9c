package server

import (
	"context"
	"errors"
	"runtime"
	"sync"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/internal/frame"
)

func (r *publishRequest) rows() int {
	if r.packet != nil {
		return r.packet.Rows
	}
	return len(r.events)
}

// admit brings each event into the form in which it is stored and makes a batch.
func (r *publishRequest) admit(ctx context.Context, policy *event.Policy) (published, *frame.Batch, error) {
	if r.packet != nil {
		if err := holdOf(ctx).take(int64(frame.RawSize(r.packet.Body)) + int64(r.packet.Rows)*rowWeight); err != nil {
			return published{}, nil, err
		}
		return r.admitPacket(policy)
	}
	answer, batch, gate := published{hashes: make([]event.Hash, len(r.events))}, &frame.Batch{}, policy.Gate()
	defer gate.Close()
	for i := range r.events {
		hash, err := r.normalize(gate, i, &r.events[i], &answer.warnings)
		if err != nil {
			return published{}, nil, err
		}
		answer.hashes[i] = hash
		batch.Add(&r.events[i], hash)
	}
	return answer, batch, nil
}

// normalize is the gate for one event.
func (r *publishRequest) normalize(gate *event.Gate, row int, e *event.Event, told *[]rowWarnings) (event.Hash, error) {
	hash, warnings, err := gate.Normalize(e)
	if err != nil {
		return hash, r.row(row, err)
	}
	if len(warnings) > 0 {
		*told = append(*told, rowWarnings{row, warnings})
	}
	return hash, nil
}

// errOtherForm ends the first look at a packet.
var errOtherForm = errors.New("an event is not in the form in which it is stored")

// admitPacket takes the packet's body over where every event in it already has the
// form in which it is stored, and else makes a body of its own.
func (r *publishRequest) admitPacket(policy *event.Policy) (published, *frame.Batch, error) {
	opened, err := r.open(policy.Limits)
	if err != nil {
		return published{}, nil, err
	}
	whole := r.admitParts(policy, opened)
	answer, batch, err := published{warnings: whole.warnings}, whole.batch, whole.err
	if err == errOtherForm {
		answer, batch = published{}, &frame.Batch{}
		gate := policy.Gate()
		defer gate.Close()
		err = opened.Each(func(row int, e *event.Event) error {
			e.Original, e.Foreign = "", false
			hash, err := r.normalize(gate, row, e, &answer.warnings)
			batch.Add(e, hash)
			return err
		})
	}
	if err != nil {
		return published{}, nil, packetError(err)
	}
	return answer, batch, nil
}

// packetPart is what becomes of some of a packet's rows.
type packetPart struct {
	batch    *frame.Batch
	warnings []rowWarnings
	err      error
	panicked any
}

const (
	partRows  = 24 // rows that are worth a goroutine of their own
	mostParts = 4  // as each reads through the rows before its own
)

// admitParts looks at the parts of a packet at the same time, and returns the whole up to the first error.
func (r *publishRequest) admitParts(policy *event.Policy, opened *frame.Opened) packetPart {
	n := 1
	if opened.Rows() >= 2*partRows {
		n = min(opened.Rows()/partRows, mostParts, runtime.GOMAXPROCS(0))
	}
	parts := make([]packetPart, n)
	begins := func(i int) int { return opened.Rows() * i / n }
	var others sync.WaitGroup
	defer others.Wait() // also after a panic: they read the request
	for i := range parts[1:] {
		others.Go(func() {
			defer func() { parts[i+1].panicked = recover() }()
			parts[i+1] = r.admitPart(policy, opened, begins(i+1), begins(i+2))
		})
	}
	parts[0] = r.admitPart(policy, opened, 0, begins(1))
	others.Wait()
	whole := parts[0]
	for _, part := range parts[1:] {
		if part.panicked != nil {
			panic(part.panicked) // to whoever answers the request
		}
		if whole.err == nil {
			whole.batch.Join(part.batch)
			whole.warnings = append(whole.warnings, part.warnings...)
			whole.err = part.err
		}
	}
	return whole
}

// admitPart is the gate for the rows [from, to).
func (r *publishRequest) admitPart(policy *event.Policy, opened *frame.Opened, from, to int) packetPart {
	room := to - from
	if from == 0 {
		room = opened.Rows() // the others join
	}
	part, gate := packetPart{batch: opened.Batch(room)}, policy.Gate()
	defer gate.Close()
	part.err = opened.Range(from, to, func(row int, e *event.Event) error {
		sent := *e
		e.Original, e.Foreign = "", false // the cluster's to say
		hash, err := r.normalize(gate, row, e, &part.warnings)
		if err == nil && !e.SameForm(&sent) {
			err = errOtherForm
		}
		part.batch.Keep(e, hash)
		return err
	})
	return part
}

func (r *publishRequest) open(limits event.Limits) (*frame.Opened, error) {
	limit := limits.RequestBytes
	if r.packet.Rows == 1 { // its own limit follows, in canonical form
		limit = min(max(limit, 2*limits.EventBytes), frame.MaxBlockBytes)
	}
	opened, err := r.packet.Open(limit)
	if errors.Is(err, frame.ErrTooLarge) {
		return nil, tooLarge(limit)
	}
	return opened, packetError(err)
}

// packetError names what is wrong with a packet's bytes; other errors stay.
func packetError(err error) error {
	if errors.Is(err, frame.ErrCorrupt) || errors.Is(err, frame.ErrUnsupported) {
		return &api.Error{Code: api.InvalidArgument, Field: "packet", Message: err.Error(), Remedy: "send what frame.Pack makes, or send events"}
	}
	return err
}
