package client

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"google.golang.org/protobuf/proto"

	"github.com/ringrift/ringlog/api"
	ringlogv1 "github.com/ringrift/ringlog/api/ringlog/v1"
	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/internal/frame"
)

// lane sends one request after the other, as a producer of its own.
//
// next is the sequence of the next request; all before it are decided. Whether next
// itself is decided is in doubt when an attempt under it was lost and its repetition
// refused unseen by the state machine, say because of a bad event: another request
// under next then tells. Where there is none the producer is given up.
type lane struct {
	c *Client
	q *queue

	producer string
	next     uint64
	used     time.Time
	doubt    bool
	suspects []suspect // of the request in doubt: refused, unless it happened

	line     *publishLine  // nil before it is worth one, and where there is none
	gathered []event.Event // room for those of a request
}

type suspect struct {
	p   *pending
	err *callError
}

// maxIdle stays far below the time for which nodes keep a producer's results.
const maxIdle = 5 * time.Minute

// manyRefusals is how many events of one batch may be refused one by one before
// the rest goes in halves, so that a batch of bad events is not sent whole for each.
const manyRefusals = 4

// deliver sends a batch and answers each of its callers. A refusal of one caller's
// events lets the others be sent again, in their order.
func (l *lane) deliver(b *batch) {
	refusals := 0
	for groups := [][]*pending{b.all}; len(groups) > 0; {
		group := l.q.staying(groups[0])
		groups = groups[1:]
		if len(group) == 0 {
			continue
		}
		resp, failed := l.send(b.ctx, group)
		if failed == nil {
			l.answer(group, resp)
			continue
		}
		refusals++
		groups = append(l.divide(group, failed, refusals > manyRefusals), groups...)
	}
	if l.doubt {
		l.giveUp()
	}
}

// send has one request decided.
func (l *lane) send(ctx context.Context, group []*pending) (*ringlogv1.PublishResponse, *callError) {
	const attempts = 3
	for n := 1; ; n++ {
		resp, failed := l.sendSequence(ctx, group)
		switch l.verdict(group, failed) {
		case decided:
			l.next++
			l.settle(false)
			return resp, failed
		case undecided:
			return nil, failed
		case doubtful:
			l.doubt = true
			return nil, failed
		case misplaced:
			if l.doubt || failed.unknown {
				failed.unknown = true
				l.giveUp()
				return nil, failed
			}
			l.giveUp() // nothing happened, and will under another producer
			if n == attempts {
				return nil, failed
			}
		case lost:
			l.giveUp()
			return nil, failed
		}
	}
}

// verdict says what became of the lane's sequence.
type verdict int

const (
	decided   verdict = iota // it is used, by this request
	undecided                // it is free: refused before it came to that
	doubtful                 // refused so, but an attempt before was lost
	misplaced                // it is not what the state machine expects
	lost                     // nobody knows
)

func (l *lane) verdict(group []*pending, failed *callError) verdict {
	if failed == nil {
		return decided
	}
	refusal := failed.refused()
	switch {
	case refusal == nil && failed.unknown:
		return lost
	case refusal == nil:
		return undecided
	case refusal.Code == api.OutOfSequence, refusal.Code == api.UnknownProducer, refusal.Code == api.Conflict && refusal.Field == "sequence":
		return misplaced
	case refusal.Code == api.Conflict: // under this sequence, now or in an attempt before
		failed.unknown = false
		return decided
	case aboutEvents(refusal.Code) && l.c.refuses(group): // as the attempt before was
		failed.unknown = false
		return undecided
	case !failed.unknown:
		return undecided
	case aboutEvents(refusal.Code):
		return doubtful
	}
	return lost
}

// settle ends a doubt: the request in doubt has happened, or may have, or has not.
func (l *lane) settle(happened bool) {
	l.doubt = false
	for _, s := range l.suspects {
		s.err.unknown = happened
		l.fail([]*pending{s.p}, s.err)
	}
	l.suspects = nil
}

func (l *lane) giveUp() {
	l.producer = ""
	l.settle(true)
}

func (l *lane) sendSequence(ctx context.Context, group []*pending) (*ringlogv1.PublishResponse, *callError) {
	if l.producer == "" || elapsed(l.used) > maxIdle {
		l.producer, l.next = uuid.Must(uuid.NewV7()).String(), 1
	}
	if time.Since(l.used) > lineIdle {
		l.hangUp()
	}
	l.used = time.Now()
	req := &ringlogv1.PublishRequest{ProducerId: l.producer, Sequence: l.next, Packet: l.pack(group)}
	var out *ringlogv1.PublishResponse
	err := l.c.call(ctx, group[0].op, sequenced, func(ctx context.Context, e *endpoint) (http.Header, error) {
		if proto.Size(req) <= api.MaxLineMessage && l.dial(ctx, e) {
			var usable bool
			var err error
			if out, usable, err = l.line.publish(ctx, req); !usable {
				l.hangUp()
			}
			l.c.endpoints.named(e, out.GetLeaderHttp())
			return nil, err
		}
		resp, err := e.log.Publish(ctx, request(l.c, req))
		if err != nil {
			return nil, err
		}
		out = resp.Msg
		l.c.endpoints.named(e, out.LeaderHttp)
		return resp.Header(), nil
	})
	if err == nil {
		return out, nil
	}
	var failed *callError
	if !errors.As(err, &failed) {
		failed = &callError{op: group[0].op, err: err}
	}
	return nil, failed
}

// dial reports whether the lane has a line to e, and opens one where it is worth it.
func (l *lane) dial(ctx context.Context, e *endpoint) bool {
	if l.line != nil && l.line.to != e {
		l.hangUp()
	}
	if l.line == nil && l.next > warmUp && time.Now().UnixNano() > e.lineless.Load() {
		l.line = l.c.openLine(ctx, e)
	}
	return l.line != nil
}

func (l *lane) hangUp() {
	if l.line != nil {
		l.line.close()
		l.line = nil
	}
}

// pack lays the group's events out as the log keeps them.
func (l *lane) pack(group []*pending) *ringlogv1.Packet {
	events := group[0].events
	if len(group) > 1 {
		for _, p := range group {
			l.gathered = append(l.gathered, p.events...)
		}
		events = l.gathered
		defer func() {
			clear(l.gathered)
			l.gathered = l.gathered[:0]
		}()
	}
	p := frame.Pack(events)
	return &ringlogv1.Packet{Rows: uint32(p.Rows), Types: p.Types, Sources: p.Sources, NoDedup: p.NoDedup, Body: p.Body}
}

// warmUp is how many requests a lane sends before it is worth a line.
const warmUp = 8

// divide answers those whom a failure is about, and returns the others in groups to
// send again.
func (l *lane) divide(group []*pending, failed *callError, halve bool) [][]*pending {
	refusal := failed.refused()
	if refusal == nil || !aboutEvents(refusal.Code) || failed.unknown && !l.doubt {
		l.fail(group, failed)
		return nil
	}
	l.c.payloads.suspect()
	at, ok := ownerOf(group, refusal.Field)
	if len(group) == 1 {
		at, ok = 0, true
	}
	if ok {
		l.refuse(group[at], failed)
		group = append(group[:at:at], group[at+1:]...)
		if !halve || len(group) < 2 {
			return [][]*pending{group}
		}
	}
	half := len(group) / 2
	return [][]*pending{group[:half], group[half:]}
}

// refuse answers one caller, or waits with that until it is certain.
func (l *lane) refuse(p *pending, failed *callError) {
	if failed.unknown || l.doubt {
		own := *failed
		l.suspects = append(l.suspects, suspect{p, &own})
		return
	}
	l.fail([]*pending{p}, failed)
}

// aboutEvents reports whether a refusal may be the fault of some events alone.
func aboutEvents(code api.Code) bool {
	switch code {
	case api.InvalidArgument, api.InvalidJSON, api.UnknownType, api.Reserved, api.Conflict, api.TooLarge:
		return true
	}
	return false
}

// ownerOf finds whose event a field like events[3].payload is in.
func ownerOf(group []*pending, field string) (int, bool) {
	row, _, ok := cutRow(field)
	if !ok {
		return 0, false
	}
	for i, p := range group {
		if row < len(p.events) {
			return i, true
		}
		row -= len(p.events)
	}
	return 0, false
}

// cutRow takes events[3].payload apart.
func cutRow(field string) (row int, rest string, ok bool) {
	number, ok := strings.CutPrefix(field, "events[")
	if !ok {
		return 0, field, false
	}
	number, rest, ok = strings.Cut(number, "]")
	row, err := strconv.Atoi(number)
	if !ok || err != nil || row < 0 {
		return 0, field, false
	}
	return row, strings.TrimPrefix(rest, "."), true
}

// fail answers callers with an error of their own.
func (l *lane) fail(group []*pending, failed *callError) {
	for _, p := range group {
		p.err = personal(p, failed)
	}
	l.q.finish(group)
}

// personal is a failure as p's caller has to see it: a single event has no row.
func personal(p *pending, failed *callError) error {
	own := *failed
	own.op = p.op
	if refusal := failed.refused(); refusal != nil && !p.alone {
		told := *refusal
		_, told.Field, _ = cutRow(refusal.Field)
		own.err = &told
	}
	return &own
}

// answer hands each caller the results of its own events.
func (l *lane) answer(group []*pending, resp *ringlogv1.PublishResponse) {
	at := time.Unix(0, resp.GetAppendedAtUnixNano()).UTC()
	next, duplicates, row := resp.GetFirst(), resp.GetDuplicates(), 0
	rows := 0
	for _, p := range group {
		rows += len(p.results)
	}
	warnings := warningsByRow(resp.GetWarnings(), rows)
	for _, p := range group {
		for i := range p.results {
			r := &p.results[i]
			r.AppendedAt = at
			if len(duplicates) > 0 && int(duplicates[0].GetRow()) == row {
				r.Offset, r.Duplicate = duplicates[0].GetOffset(), true
				duplicates = duplicates[1:]
			} else {
				r.Offset = next
				next++
			}
			if warnings != nil {
				r.Warnings = warnings[row]
			}
			row++
		}
	}
	l.check(group, resp, next, duplicates)
	l.q.finish(group)
}

// check makes an answer that does not fit its request an error of all callers: a
// wrong offset would be worse.
func (l *lane) check(group []*pending, resp *ringlogv1.PublishResponse, next uint64, unused []*ringlogv1.Duplicate) {
	if resp.GetFirst() != 0 {
		l.c.sawOffset(next - 1)
	}
	if len(unused) == 0 && (resp.GetFirst() != 0 || next == 0) {
		return
	}
	for _, p := range group {
		p.err = &callError{op: p.op, unknown: true, err: fmt.Errorf("the answer does not fit the request: first offset %d, %d duplicates",
			resp.GetFirst(), len(resp.GetDuplicates()))}
	}
}

// warningsByRow returns what each row is told. Rows that are told one thing alone share it.
func warningsByRow(list []*ringlogv1.Warning, rows int) [][]event.Warning {
	if len(list) == 0 {
		return nil
	}
	told := make([][]event.Warning, rows)
	for _, w := range list {
		_, field, _ := cutRow(w.GetField())
		one := []event.Warning{{Reason: w.GetReason(), Field: field, Message: w.GetMessage()}}
		tell := func(row uint32) {
			switch {
			case uint64(row) >= uint64(rows):
			case told[row] == nil:
				told[row] = one
			default:
				told[row] = append(told[row][:len(told[row]):len(told[row])], one[0])
			}
		}
		tell(w.GetRow())
		for _, row := range w.GetMoreRows() {
			tell(row)
		}
	}
	return told
}
