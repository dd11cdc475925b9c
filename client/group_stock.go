package client

import (
	"bytes"
	"slices"
	"strings"

	"github.com/ringrift/ringlog/internal/frame"
)

// stock is what a member of a group was given and has not settled. It has no clock and
// no lock.
//
// Of the events of a key only the first is handed out; the others stand in line behind
// it. After a nack the line stands still until the group has said which of the others
// it takes back, so that none is handled in front of the one that comes again.
type stock struct {
	held     map[uint64]*share // by offset, waiting or handed out
	ready    heap              // may be handed out
	lines    map[string]*line
	waiting  int // not handed out
	bytes    int // of those
	ticks    uint32
	progress []uint64 // whose time to settle must begin anew
	nacks    uint64   // so far

	// A settling and a fetching call may be under way at the same time, and which of
	// their answers the group made first is not known. Events come with fetches alone.
	// outdated holds what came again while a settling call was under way: if that call's
	// answer takes it back, the copy before is meant. doomed holds what a settling call's
	// answer took back that was not there yet: the fetch under way brings it.
	settling, fetching bool
	outdated, doomed   map[uint64]struct{}
}

// share is one event that the member was given.
type share struct {
	Delivery
	bytes int
	state shareState
	line  *line // nil without a key
	ticks uint32
}

type shareState byte

const (
	inStock shareState = iota
	handedOut
	gone // settled or taken back; a queue that still has it passes it
)

// line is the events of one key that are held. While nacked is not 0 nobody is in
// front and nobody comes forward.
type line struct {
	key    string
	front  *share // ready or handed out
	behind []*share
	last   uint64 // the highest offset that stood here
	nacked uint64 // the offset
	nack   uint64 // its number
}

func newStock() *stock {
	return &stock{held: map[uint64]*share{}, lines: map[string]*line{}, outdated: map[uint64]struct{}{}, doomed: map[uint64]struct{}{}}
}

// add takes an event in.
func (s *stock) add(sh *share) {
	offset := sh.Offset
	if _, ok := s.doomed[offset]; ok {
		delete(s.doomed, offset)
		return
	}
	sh.ticks = s.ticks
	if sh.Key == "" {
		if old := s.held[offset]; old != nil {
			s.drop(old)
			s.outdate(offset)
		}
		s.keep(sh)
		s.ready.push(sh)
		return
	}
	l := s.lines[sh.Key]
	if l == nil {
		l = &line{key: sh.Key}
		s.lines[sh.Key] = l
	}
	if offset <= l.last {
		s.recall(l, offset)
	}
	sh.line, l.last = l, max(l.last, offset)
	l.behind = append(l.behind, sh)
	s.keep(sh)
	s.advance(l)
}

func (s *stock) keep(sh *share) {
	s.held[sh.Offset] = sh
	s.waiting++
	s.bytes += sh.bytes
}

// drop forgets an event, but not its place in a queue.
func (s *stock) drop(sh *share) {
	delete(s.held, sh.Offset)
	if sh.state == inStock {
		s.waiting--
		s.bytes -= sh.bytes
	}
	sh.state = gone
}

func (s *stock) outdate(offset uint64) {
	if s.settling {
		s.outdated[offset] = struct{}{}
	}
}

// recall takes from a line what stands at an offset or behind it: the group has taken
// it back if it gives that offset out again.
func (s *stock) recall(l *line, from uint64) {
	for _, sh := range l.behind {
		if sh.state != gone && sh.Offset >= from {
			s.drop(sh)
			s.outdate(sh.Offset)
		}
	}
	if l.front != nil && l.front.Offset >= from {
		s.outdate(l.front.Offset)
		s.drop(l.front)
		l.front = nil
	}
	if l.nacked >= from {
		s.outdate(l.nacked)
		l.nacked = 0
	}
}

// advance lets the next of a line come forward, if it may.
func (s *stock) advance(l *line) {
	for l.front == nil && l.nacked == 0 {
		if len(l.behind) == 0 {
			delete(s.lines, l.key)
			return
		}
		next := l.behind[0]
		l.behind[0] = nil
		l.behind = l.behind[1:]
		if next.state != gone {
			l.front = next
			s.ready.push(next)
		}
	}
}

// next hands out the first event that may be handled, nil if there is none.
func (s *stock) next() *share {
	for len(s.ready) > 0 {
		sh := s.ready.pop()
		if sh.state == gone {
			continue
		}
		sh.state = handedOut
		s.waiting--
		s.bytes -= sh.bytes
		if sh.ticks != s.ticks {
			sh.ticks = s.ticks
			s.progress = append(s.progress, sh.Offset)
		}
		return sh
	}
	return nil
}

// settle takes out an event that was handed out, and reports whether it was there.
func (s *stock) settle(offset uint64) bool {
	sh := s.held[offset]
	if sh == nil || sh.state != handedOut {
		return false
	}
	s.drop(sh)
	if l := sh.line; l != nil {
		l.front = nil
		s.advance(l)
	}
	return true
}

// nack takes out an event that was handed out and failed, and stops its line until it is
// released under the number returned.
func (s *stock) nack(offset uint64) (f failure, ok bool) {
	sh := s.held[offset]
	if sh == nil || sh.state != handedOut {
		return f, false
	}
	s.drop(sh)
	s.nacks++
	if l := sh.line; l != nil {
		l.front, l.nacked, l.nack = nil, offset, s.nacks
	}
	return failure{key: sh.Key, number: s.nacks}, true
}

// stopped returns the line that a nack has stopped, nil if it goes on already.
func (s *stock) stopped(f failure) *line {
	if l := s.lines[f.key]; l != nil && l.nacked != 0 && l.nack == f.number {
		return l
	}
	return nil
}

// crowded reports whether events stand behind a nack.
func (s *stock) crowded(f failure) bool {
	l := s.stopped(f)
	return l != nil && slices.ContainsFunc(l.behind, func(sh *share) bool { return sh.state != gone })
}

// forsake takes out what stands behind a nack and returns it, the last offset first.
func (s *stock) forsake(f failure) (offsets []uint64) {
	l := s.stopped(f)
	if l == nil {
		return nil
	}
	for _, sh := range slices.Backward(l.behind) {
		if sh.state != gone {
			s.drop(sh)
			offsets = append(offsets, sh.Offset)
		}
	}
	l.behind = nil
	return offsets
}

// release lets a line go on after a nack: what was to be taken back has been.
func (s *stock) release(f failure) {
	if l := s.stopped(f); l != nil {
		l.nacked = 0
		s.advance(l)
	}
}

// revoke takes out what the group has taken back. settled says whether a settling
// call's answer tells it.
func (s *stock) revoke(offset uint64, settled bool) {
	if settled {
		if _, old := s.outdated[offset]; old {
			return
		}
	}
	sh := s.held[offset]
	if sh == nil {
		if settled && s.fetching {
			s.doomed[offset] = struct{}{}
		}
		return
	}
	s.drop(sh)
	if l := sh.line; l != nil && l.front == sh {
		l.front = nil
		s.advance(l)
	}
}

// tick marks time. What has waited for two ticks is told as in progress, and with all
// what was handed out as well.
func (s *stock) tick(all bool) {
	s.ticks++
	for offset, sh := range s.held {
		if (all || sh.state == inStock) && s.ticks-sh.ticks >= 2 {
			sh.ticks = s.ticks
			s.progress = append(s.progress, offset)
		}
	}
}

// giveBack empties the stock of what waits and returns it, the last offset first: so the
// group need not take back the later ones of a key.
func (s *stock) giveBack() (offsets []uint64) {
	for offset, sh := range s.held {
		if sh.state == inStock {
			offsets = append(offsets, offset)
		}
	}
	slices.Sort(offsets)
	slices.Reverse(offsets)
	for _, offset := range offsets {
		s.revoke(offset, false)
	}
	return offsets
}

// refreshed adds to ranges what is to be told as in progress, as far as one call takes it.
func (s *stock) refreshed(list []frame.Range) []frame.Range {
	list = compact(append(list, rangesOf(slices.DeleteFunc(s.progress, func(offset uint64) bool { return s.held[offset] == nil }))...))
	s.progress = nil
	if len(list) > maxSettleRanges {
		for _, r := range list[maxSettleRanges:] {
			for offset := r.From; offset <= r.To; offset++ {
				s.progress = append(s.progress, offset)
			}
		}
		list = list[:maxSettleRanges]
	}
	return list
}

// keepOnly forgets what is held behind an offset.
func (s *stock) keepOnly(upTo uint64) {
	for _, offset := range s.offsets() {
		if offset > upTo {
			s.revoke(offset, false)
		}
	}
}

func (s *stock) offsets() []uint64 {
	list := make([]uint64, 0, len(s.held))
	for offset := range s.held {
		list = append(list, offset)
	}
	return list
}

// own makes an event independent of the memory of the block that it came in.
func (sh *share) own() {
	for _, s := range []*string{&sh.Value, &sh.Key, &sh.CorrelationID, &sh.CausationID, &sh.DedupID, &sh.Original, &sh.Target} {
		*s = strings.Clone(*s)
	}
	sh.Payload = bytes.Clone(sh.Payload)
}
