package transfers

import (
	"encoding/binary"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/internal/fields"
	"github.com/ringrift/ringlog/internal/view"
)

// Kinds of what is transferred.
const (
	kindData  = "data"
	kindModel = "model"
	kindGames = "games"
)

// state is how far a transfer is.
type state byte

const (
	// A state is stored, so the numbers must stay. 0 is that of a transfer that is new.
	requested  state = iota + 1
	running          // or stalled
	completed        // the host has the copy
	failed           // a retry may follow
	superseded       // another transfer has taken its place, or there were too many open ones
)

// stateNames are the states as the API has them.
var stateNames = [...]string{requested: "requested", running: "running", completed: "completed", failed: "failed",
	superseded: "superseded"}

// open reports whether more is expected.
func (s state) open() bool { return s == requested || s == running }

// check is what is known of the content of a copy.
type check byte

const (
	// Greater is what counts more, see take. The numbers are stored.
	unchecked check = iota
	verified        // an event says so
	damaged         // its checksum was wrong, or it was found corrupted
)

// checkNames are the checks as the API has them.
var checkNames = [...]string{unchecked: "", verified: "verified", damaged: "damaged"}

// step is the event that brought a transfer to a step; offset 0 is none.
type step struct {
	offset uint64    // of the event
	at     time.Time // when it was appended
}

// transfer is the row of a transfer:
//
//	t/NO        form 1 | id | kind | name | host | from | version | state 1 | four steps | due | deadline
//	            | bytes | files | check 1 | retries | repeats | contradictions | error | last offset
//
// A step is an offset and, unless that is 0, a time. Texts are preceded by their length, numbers are varints, times
// are Unix nanoseconds.
type transfer struct {
	no string // the key after t/: the offset of the first event, 16 digits in hex, and the place of the host in it

	id, kind, name, host, from, version string

	// How far it is, and which events brought it to the steps of its latest attempt. ended is an end of any sort.
	state                              state
	requested, started, stalled, ended step
	due                                time.Time // zero once it ended
	deadline                           time.Duration
	// What the latest attempt has brought, and how its content was checked.
	bytes, files uint64
	checked      check
	// How many events of each sort were entered.
	retries, repeats, contradictions uint64
	error                            string // of the latest failure or stall
	last                             uint64 // the offset of the latest event that it was changed by
}

// transferForm is the first byte of a row; another layout would have another.
const transferForm = 1

// encode returns the row, as it is drawn above.
func (t *transfer) encode() []byte {
	b := []byte{transferForm}
	for _, s := range []string{t.id, t.kind, t.name, t.host, t.from, t.version} {
		b = fields.Append(b, s)
	}
	b = append(b, byte(t.state))
	// Most transfers lack some of the steps, so one that was not made takes a byte.
	for _, s := range []step{t.requested, t.started, t.stalled, t.ended} {
		b = binary.AppendUvarint(b, s.offset)
		if s.offset != 0 {
			b = fields.AppendTime(b, s.at)
		}
	}
	b = fields.AppendTime(b, t.due)
	for _, n := range []uint64{uint64(t.deadline), t.bytes, t.files} {
		b = binary.AppendUvarint(b, n)
	}
	b = append(b, byte(t.checked))
	for _, n := range []uint64{t.retries, t.repeats, t.contradictions} {
		b = binary.AppendUvarint(b, n)
	}
	return binary.AppendUvarint(fields.Append(b, t.error), t.last)
}

// decodeTransfer reads what encode wrote. no is the end of the row's key. A row that is cut, or has a state that is not
// known, is an error.
func decodeTransfer(no string, value []byte) (*transfer, error) {
	r := fields.Reader{Rest: value}
	r.Form(transferForm)
	t := &transfer{no: no}
	for _, s := range []*string{&t.id, &t.kind, &t.name, &t.host, &t.from, &t.version} {
		*s = string(r.Bytes())
	}
	t.state = state(r.Byte())
	for _, s := range []*step{&t.requested, &t.started, &t.stalled, &t.ended} {
		if s.offset = r.Uvarint(); s.offset != 0 {
			s.at = r.Time()
		}
	}
	t.due = r.Time()
	t.deadline = time.Duration(r.Uvarint())
	t.bytes, t.files = r.Uvarint(), r.Uvarint()
	t.checked = check(r.Byte())
	t.retries, t.repeats, t.contradictions = r.Uvarint(), r.Uvarint(), r.Uvarint()
	t.error = string(r.Bytes())
	t.last = r.Uvarint()
	// shown has no names for others.
	if t.state < requested || t.state > superseded || t.checked > damaged {
		r.Fail("state %d or check %d is not known", t.state, t.checked)
	}
	if err := r.End(); err != nil {
		return nil, fmt.Errorf("row t/%s: %w", no, err)
	}
	return t, nil
}

// shown is a transfer as the API has it. Overdue is left to the caller.
func (t *transfer) shown() api.Transfer {
	at := func(s step) *api.TransferStep {
		if s.offset == 0 {
			return nil
		}
		return &api.TransferStep{Offset: s.offset, At: s.at}
	}
	return api.Transfer{
		Transfer: t.no, ID: t.id, Kind: t.kind, Name: t.name, Host: t.host, From: t.from, Version: t.version,
		State: stateNames[t.state], Requested: at(t.requested), Started: at(t.started), Stalled: at(t.stalled),
		Ended: at(t.ended), Due: t.due, Bytes: t.bytes, Files: t.files, Checked: checkNames[t.checked],
		Retries: t.retries, Repeats: t.repeats, Contradictions: t.contradictions, Error: t.error, LastOffset: t.last,
	}
}

// copyRow is the row of a copy:
//
//	w/NAME/KIND/HOST   form 1 | name | kind | host | version | from | bytes | files | check 1 | since | at | offset
//	                   | transfer
type copyRow struct {
	name, kind, host, version, from string

	bytes, files uint64    // of the whole copy
	checked      check     // what is known of its content
	since, at    time.Time // when this version came, and the latest event
	offset       uint64    // of the latest event
	transfer     string    // the number of the one that brought it; "" if none did
}

// copyForm is the first byte of a row.
const copyForm = 1

// key is where the row is stored.
func (c *copyRow) key() string { return key("w", c.name, c.kind, c.host) }

// encode returns the row, as it is drawn above.
func (c *copyRow) encode() []byte {
	b := []byte{copyForm}
	for _, s := range []string{c.name, c.kind, c.host, c.version, c.from} {
		b = fields.Append(b, s)
	}
	b = binary.AppendUvarint(binary.AppendUvarint(b, c.bytes), c.files)
	b = fields.AppendTime(fields.AppendTime(append(b, byte(c.checked)), c.since), c.at)
	return fields.Append(binary.AppendUvarint(b, c.offset), c.transfer)
}

// decodeCopy reads what encode wrote.
func decodeCopy(value []byte) (*copyRow, error) {
	r, c := fields.Reader{Rest: value}, &copyRow{}
	r.Form(copyForm)
	for _, s := range []*string{&c.name, &c.kind, &c.host, &c.version, &c.from} {
		*s = string(r.Bytes())
	}
	c.bytes, c.files = r.Uvarint(), r.Uvarint()
	c.checked = check(r.Byte())
	c.since, c.at = r.Time(), r.Time()
	c.offset = r.Uvarint()
	c.transfer = string(r.Bytes())
	if c.checked > damaged {
		r.Fail("check %d is not known", c.checked)
	}
	if err := r.End(); err != nil {
		return nil, fmt.Errorf("row of a copy of %q: %w", c.name, err)
	}
	return c, nil
}

// shown is a copy as the API has it. gone is the offset at which its host was terminated, 0 if it was not.
func (c *copyRow) shown(gone uint64) api.Copy {
	return api.Copy{
		Name: c.name, Kind: c.kind, Host: c.host, Version: c.version, From: c.from, Bytes: c.bytes, Files: c.files,
		Checked: checkNames[c.checked], Since: c.since, At: c.at, Offset: c.offset, Transfer: c.transfer,
		HostGone: gone > c.offset,
	}
}

// hostRow is the row of a host, which bounds what is kept of it:
//
//	n/HOST   form 1 | open | ended | copies | gone
type hostRow struct {
	name                string // "" stands for hosts that are not known yet
	open, ended, copies uint64 // how many of each are stored
	gone                uint64 // the offset of the event that terminated it, 0 if none did
}

// hostForm is the first byte of a row.
const hostForm = 1

// encode returns the row, as it is drawn above.
func (h *hostRow) encode() []byte { return encodeNumbers(hostForm, h.open, h.ended, h.copies, h.gone) }

// decodeHost reads what encode wrote.
func decodeHost(name string, value []byte) (*hostRow, error) {
	h := &hostRow{name: name}
	if err := decodeNumbers(hostForm, value, &h.open, &h.ended, &h.copies, &h.gone); err != nil {
		return nil, fmt.Errorf("row of host %q: %w", name, err)
	}
	return h, nil
}

// totalRow is the row of the whole view:
//
//	c   form 1 | the numbers of the tally | at | unnamed
type totalRow struct {
	api.TransferTally
	at      uint64 // the last event of the view
	unnamed uint64 // the last one that TransferTally.Unnamed counts
}

// totalForm is the first byte of the row.
const totalForm = 1

// numbers lists the numbers in their order in the row. encode and load go through the same list, so they cannot differ.
func (c *totalRow) numbers() []*uint64 {
	return []*uint64{&c.Events, &c.Hosts, &c.Unnamed, &c.Unmatched, &c.WrongType, &c.TooLong, &c.OverLimit, &c.Repeats,
		&c.Contradictions, &c.at, &c.unnamed}
}

// encode returns the row, as it is drawn above.
func (c *totalRow) encode() []byte {
	var numbers []uint64
	for _, n := range c.numbers() {
		numbers = append(numbers, *n)
	}
	return encodeNumbers(totalForm, numbers...)
}

// load reads what encode wrote; the row is zero before the first event.
func (c *totalRow) load(rows view.Rows) error {
	value, found, err := rows.Get("c")
	if err != nil || !found {
		return err
	}
	if err := decodeNumbers(totalForm, value, c.numbers()...); err != nil {
		return fmt.Errorf("row c: %w", err)
	}
	return nil
}

// encodeNumbers returns a row of a form and uvarints.
func encodeNumbers(form byte, numbers ...uint64) []byte {
	b := []byte{form}
	for _, n := range numbers {
		b = binary.AppendUvarint(b, n)
	}
	return b
}

// decodeNumbers reads what encodeNumbers wrote. There must be as many numbers, and nothing after them.
func decodeNumbers(form byte, value []byte, numbers ...*uint64) error {
	r := fields.Reader{Rest: value}
	r.Form(form)
	for _, n := range numbers {
		*n = r.Uvarint()
	}
	return r.End()
}

// key joins the parts of a key. Parts are escaped, so none has a slash, and a key is text that a URL takes.
//
//	c                     the tally
//	d/DUE/NO              open transfers by the time at which they are due, Unix nanoseconds, 16 digits in hex
//	e/HOST/OFFSET/NO      transfers that ended, by host and the offset at which they did, 16 digits in hex
//	h/HOST/NO             transfers by host
//	i/ID/HOST             the transfer of an id to a host
//	b/HOST/NAME/KIND      copies by host
//	l/HOST/KIND/NAME      the last transfer of a name to a host
//	n/HOST                hosts
//	p/KIND/NAME/NO        open transfers by name
//	t/NO                  transfers
//	w/NAME/KIND/HOST      copies
func key(parts ...string) string {
	var b strings.Builder
	for i, p := range parts {
		if i > 0 {
			b.WriteByte('/')
		}
		b.WriteString(url.PathEscape(p))
	}
	return b.String()
}

// under is the prefix of the keys that begin with these parts. The slash keeps out those of a longer last part.
func under(parts ...string) string { return key(parts...) + "/" }

// lastPart returns what follows the last slash of a key.
func lastPart(key string) string { return key[strings.LastIndexByte(key, '/')+1:] }
