package service

import (
	"errors"
	"runtime"
	"sync"
	"unsafe"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/internal/frame"
)

// Rows is how many events the request has.
func (r *PublishRequest) Rows() int {
	if r.Packet != nil {
		return r.Packet.Rows
	}
	return len(r.Events)
}

// rowWeight is what a packet's row takes once it is decoded, with its hashes, beside its text.
const rowWeight = int64(unsafe.Sizeof(frame.Row{})) + 32

// admit brings each event into the form in which it is stored and makes a batch.
func (r *PublishRequest) admit(policy *event.Policy) (Published, *frame.Batch, error) {
	if r.Packet != nil {
		// The body claims a size, which decompressing holds it to.
		if err := r.Reserve(int64(frame.RawSize(r.Packet.Body)) + int64(r.Packet.Rows)*rowWeight); err != nil {
			return Published{}, nil, err
		}
		return r.admitPacket(policy)
	}
	answer, batch, gate := Published{Hashes: make([]event.Hash, len(r.Events))}, &frame.Batch{}, policy.Gate()
	defer gate.Close()
	for i := range r.Events {
		hash, err := r.normalize(gate, i, &r.Events[i], &answer.Warnings)
		if err != nil {
			return Published{}, nil, err
		}
		answer.Hashes[i] = hash
		batch.Add(&r.Events[i], hash)
	}
	return answer, batch, nil
}

// normalize passes one event through the gate, and adds its warnings to found.
func (r *PublishRequest) normalize(gate *event.Gate, row int, e *event.Event, found *[]RowWarnings) (event.Hash, error) {
	hash, warnings, err := gate.Normalize(e)
	if err != nil {
		return hash, r.row(row, err)
	}
	if len(warnings) > 0 {
		*found = append(*found, RowWarnings{row, warnings})
	}
	return hash, nil
}

// errOtherForm ends the first pass over a packet.
var errOtherForm = errors.New("an event is not in the form in which it is stored")

// admitPacket takes the packet's body over where every event in it already has the
// form in which it is stored, and else makes a body of its own.
func (r *PublishRequest) admitPacket(policy *event.Policy) (Published, *frame.Batch, error) {
	opened, err := r.open(policy.Limits)
	if err != nil {
		return Published{}, nil, err
	}
	// First pass: the body can go into the log unchanged if no event of it changes.
	whole := r.admitParts(policy, opened)
	answer, batch, err := Published{Warnings: whole.warnings}, whole.batch, whole.err
	// One does: every event is encoded again.
	if err == errOtherForm {
		answer, batch = Published{}, &frame.Batch{}
		gate := policy.Gate()
		defer gate.Close()
		err = opened.Each(func(row int, e *event.Event) error {
			e.Original, e.Foreign = "", false
			hash, err := r.normalize(gate, row, e, &answer.Warnings)
			batch.Add(e, hash)
			return err
		})
	}
	if err != nil {
		return Published{}, nil, packetError(err)
	}
	return answer, batch, nil
}

// packetPart is the result of admitting some of a packet's rows.
type packetPart struct {
	batch    *frame.Batch
	warnings []RowWarnings
	err      error
	panicked any // what admitPart panicked with in its goroutine
}

const (
	partRows  = 24 // rows that are worth a goroutine of their own
	mostParts = 4  // as each reads through the rows before its own
)

// admitParts looks at the parts of a packet at the same time, and returns the whole up to the first error.
func (r *PublishRequest) admitParts(policy *event.Policy, opened *frame.Opened) packetPart {
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
func (r *PublishRequest) admitPart(policy *event.Policy, opened *frame.Opened, from, to int) packetPart {
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

// open decompresses the packet, which may take as much as a request.
func (r *PublishRequest) open(limits event.Limits) (*frame.Opened, error) {
	limit := limits.RequestBytes
	if r.Packet.Rows == 1 { // its own limit follows, in canonical form
		limit = min(max(limit, 2*limits.EventBytes), frame.MaxBlockBytes)
	}
	opened, err := r.Packet.Open(limit)
	if errors.Is(err, frame.ErrTooLarge) {
		return nil, api.RequestTooLarge(limit)
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
