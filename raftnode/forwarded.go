package raftnode

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/internal/frame"
)

// ProposeForwarded is the leader's side of Peers.Forward: it decides a request
// that another node has encoded, and never forwards it again. A refusal travels
// inside the encoded result. A sender is a member, and it has asked what its caller may do. For the content it is not
// trusted: its events pass the gate again, and what deduplication compares is computed from them here.
func (n *Node) ProposeForwarded(ctx context.Context, request []byte) ([]byte, error) {
	r, err := n.admitForwarded(request)
	if err != nil {
		return nil, fmt.Errorf("forwarded request: %w", err)
	}
	r, err = n.prepare(r)
	// The sender must not take this for its own state: its client retries with the next leader.
	if errors.Is(err, ErrDiverged) {
		return nil, fmt.Errorf("%w: %s leads, its state differs from the majority's and it hands over", ErrNoLeader, n.cfg.ID)
	}
	if err != nil {
		return nil, err
	}
	// Never passed on again: two nodes that take each other for the leader would do so for ever.
	result, err := n.proposeHere(ctx, r)
	if err != nil {
		return nil, err
	}
	return result.Encode(), nil
}

// admitForwarded decodes a request and checks everything in it that the sender should have checked.
func (n *Node) admitForwarded(request []byte) (frame.Request, error) {
	// As of now: what the sender checked by may have changed meanwhile.
	policy := n.Machine().Policy()
	gate := policy.Gate()
	defer gate.Close()
	r, err := frame.OpenRequest(request, policy.Dedup,
		func(e *event.Event) (event.Hash, error) { return asStored(gate, e) })
	if err != nil {
		return r, err
	}
	if !r.Command.Kind().Forwardable() || (r.Command.Kind().Publishes() && r.Batch == nil) {
		return r, fmt.Errorf("command kind %d: %w", r.Command.Kind(), ErrNotForwarded)
	}
	return r, n.checkCopies(r.Command)
}

// asStored requires that an event is in the form in which it is stored.
func asStored(gate *event.Gate, e *event.Event) (event.Hash, error) {
	sent := *e
	// The gate makes an event canonical: one that it changes was not.
	hash, _, err := gate.Normalize(e)
	if err == nil && !e.SameForm(&sent) {
		err = fmt.Errorf("event %s: %w", sent.Type, ErrNotStoredForm)
	}
	return hash, err
}

// checkCopies checks the copies of events inside commands about dead letters. A dead-lettered event has to be the one
// that the log has at its offset, and an imported one must not pretend to be emitted by this cluster.
func (n *Node) checkCopies(c frame.Command) error {
	switch c := c.(type) {
	// It wraps another command with who has asked for it.
	case frame.Act:
		return n.checkCopies(c.Of)
	case frame.LetterKeep:
		// With an offset the log of this cluster has the event; without one the letter brings the only copy.
		if c.Letter.Offset != 0 {
			return n.checkCopies(c.Letter)
		}
		return checkImported(c.Letter.Event)
	case frame.DeadLetter:
		if len(c.Event) == 0 {
			return nil // the state machine says why there is none
		}
		// An event that is trimmed by now cannot be compared; its form is checked all the same.
		stored, err := n.Machine().Log().Get(c.Offset)
		if err == nil && !bytes.Equal(c.Event, frame.EncodeCopy(&stored)) {
			return fmt.Errorf("dead letter at %d: %w", c.Offset, ErrNotStoredForm)
		}
		_, err = openCopy(c.Event)
		return err
	case frame.LetterImport:
		for i := range c.Letters {
			if err := checkImported(c.Letters[i].Event); err != nil {
				return fmt.Errorf("letter %d: %w", i, err)
			}
		}
	}
	return nil
}

// checkImported checks the copy of an event that the log does not have.
func checkImported(copied []byte) error {
	e, err := openCopy(copied)
	if err == nil && event.IsReserved(e.Type) && !e.Foreign {
		err = fmt.Errorf("event %s is emitted by the cluster alone: %w", e.Type, ErrNotStoredForm)
	}
	return err
}

// openCopy decodes a copy of an event and requires the form in which it is stored. It does not check the event against
// the catalogue, which may have changed since it was stored.
func openCopy(b []byte) (event.Event, error) {
	e, err := frame.DecodeCopy(b)
	if err != nil {
		return e, err
	}
	// The limits were checked when the event was appended, and may have been lowered since.
	unlimited := event.Limits{EventBytes: math.MaxInt, NameBytes: math.MaxInt, Depth: maxStoredDepth}
	canonical, err := event.Canonicalize(e.Payload, unlimited)
	if err == nil && (!bytes.Equal(canonical, e.Payload) || !bytes.Equal(b, frame.EncodeCopy(&e))) {
		err = fmt.Errorf("event %s: %w", e.Type, ErrNotStoredForm)
	}
	return e, err
}

// maxStoredDepth is how deep a stored payload may be under any setting.
const maxStoredDepth = 10_000
