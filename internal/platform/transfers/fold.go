package transfers

import (
	"cmp"
	"fmt"
	"time"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/internal/view"
)

// class is what an event means for a transfer. doc.go has which event is of which, and what follows from it.
type class int

const (
	request     class = iota // a copy is wanted
	retry                    // again, after a failure
	start                    // it runs
	stall                    // it runs, without progress
	complete                 // the host has the copy
	fail                     // it has ended without one
	checksum                 // the content that arrived is not what was sent
	unreachable              // the host
	created                  // a copy, without a transfer
	corrupted                // a copy
	terminated               // the host
)

// known is what the type of an event means. Kind "" is that of the fields.
type known struct {
	class class
	kind  string
}

// types are the events of the view, in the order of its filter.
var types = []struct {
	name event.Type
	known
}{
	{"SYNC_REQUEST", known{request, ""}},
	{"SYNC_TRIGGERED", known{request, ""}},
	{"MODEL_SYNC_REQUESTED", known{request, kindModel}},
	{"SYNC_RETRY_REQUESTED", known{retry, ""}},
	{"DATA_SYNC_STARTED", known{start, kindData}},
	{"MODEL_DISTRIBUTION_STARTED", known{start, kindModel}},
	{"SYNC_STALLED", known{stall, ""}},
	{"DATA_SYNC_COMPLETED", known{complete, kindData}},
	{"MODEL_DISTRIBUTION_COMPLETE", known{complete, kindModel}},
	{"P2P_MODEL_SYNCED", known{complete, kindModel}},
	{"GAME_SYNCED", known{complete, kindGames}},
	{"DATA_SYNC_FAILED", known{fail, kindData}},
	{"MODEL_DISTRIBUTION_FAILED", known{fail, kindModel}},
	{"DISTRIBUTION_INCOMPLETE", known{fail, kindModel}},
	{"SYNC_FAILURE_CRITICAL", known{fail, ""}},
	{"SYNC_CHECKSUM_FAILED", known{checksum, ""}},
	{"SYNC_NODE_UNREACHABLE", known{unreachable, ""}},
	{"DATABASE_CREATED", known{created, kindData}},
	{"MODEL_CORRUPTED", known{corrupted, kindModel}},
	{"NODE_TERMINATED", known{terminated, ""}},
}

// meanings are the types by their name.
var meanings = func() map[event.Type]known {
	m := map[event.Type]known{}
	for _, t := range types {
		m[t.name] = t.known
	}
	return m
}()

// limits bound what is kept.
type limits struct {
	open   uint64 // transfers of a host
	ended  uint64 // transfers of a host
	copies uint64 // of a host
	hosts  uint64
	about  int // transfers that one event without a host is about
}

// kept are the limits of every node; tests have lower ones. A change is another fold, see Version.
var kept = limits{open: 256, ended: 200, copies: 10_000, hosts: 20_000, about: 64}

// deadlines are how long after its last step an open transfer is overdue, unless an event names a deadline.
var deadlines = map[string]time.Duration{kindData: time.Hour, kindModel: 30 * time.Minute, kindGames: 15 * time.Minute}

// Name is the view's, and Version that of its fold: a change by which the same events give other rows raises it.
const (
	Name    = "\x00transfers"
	Version = 1
)

// View is the view of transfers. It has no state beside its rows.
type View struct{ limits limits }

var _ view.Fold = View{}

// New returns the view of transfers.
func New() View { return View{kept} }

// Filter implements view.Fold.
func (View) Filter() event.Filter {
	var f event.Filter
	for _, t := range types {
		f.Types = append(f.Types, string(t.name))
	}
	return f
}

// Emits implements view.Fold.
func (View) Emits() []event.Type { return nil }

// Apply implements view.Fold. It publishes nothing. An error is one of the rows: whatever a payload has, the event is
// folded or counted.
func (v View) Apply(rows view.Rows, e *event.Event) ([]view.Firing, error) {
	k, ok := meanings[e.Type]
	if !ok {
		return nil, nil
	}
	f := &fold{rows: rows, limits: v.limits, hosts: map[string]*hostRow{}}
	// An event that was folded before changes nothing.
	if err := f.total.load(rows); err != nil || e.Offset <= f.total.at {
		return nil, err
	}
	f.tally, f.total.at = &f.total.TransferTally, e.Offset
	f.tally.Events++
	// What is wrong with fields is counted on the way.
	f.m = read(e, k, f.tally)
	if err := f.apply(); err != nil {
		return nil, fmt.Errorf("transfers: %w", err)
	}
	return nil, f.finish()
}

// fold applies one event. The total and the rows of hosts are read once, changed in memory, and written by finish. All
// other rows are written at once.
type fold struct {
	rows    view.Rows
	limits  limits
	m       message // the event
	total   totalRow
	tally   *api.TransferTally  // of total
	hosts   map[string]*hostRow // those that the event is about
	touched []*hostRow          // the same, in the order in which they were read
}

// finish writes what is written once for an event.
func (f *fold) finish() error {
	// In the order in which they were read. That of the map is another each time.
	for _, h := range f.touched {
		if err := f.rows.Set(key("n", h.name), h.encode()); err != nil {
			return err
		}
	}
	return f.rows.Set("c", f.total.encode())
}

// apply finds what the event is about, and changes it.
func (f *fold) apply() error {
	m := &f.m
	// It says nothing of what it is about.
	if len(m.hosts) == 0 && m.name == "" && m.id == "" {
		f.tally.Unnamed++
		f.total.unnamed = m.offset
		return nil
	}
	// Most events say enough to find one transfer of each host. The others come first.
	switch {
	// What is only about a host or its copies needs the host.
	case len(m.hosts) == 0 && (m.class == created || m.needsHost()):
		f.tally.Unmatched++
		return nil
	case m.class == created || m.class == corrupted:
		return f.eachHost(f.changeCopy)
	case m.class == terminated:
		return f.eachHost(f.terminate)
	case m.ofWholeHost():
		return f.eachHost(func(h *hostRow, _ int) error { return f.failOpen(h.name) })
	case len(m.hosts) > 0:
		return f.eachHost(f.applyTo)
	}
	// Without a host, it is about all of them that are known, or a transfer to a host that is not known yet.
	all, err := f.withoutHost()
	if err != nil || len(all) > 0 {
		return f.changeAll(all, err)
	}
	// The transfer gets its host with an event that names it.
	h, err := f.host("")
	if err != nil {
		return err
	}
	return f.applyTo(h, 0)
}

// eachHost calls do with the hosts of the event, but for those beyond the limit of hosts. i is the place of the host in
// the event, by which transfers of one event differ.
func (f *fold) eachHost(do func(h *hostRow, i int) error) error {
	for i, name := range f.m.hosts {
		h, err := f.host(name)
		if err != nil {
			return err
		}
		if h == nil {
			continue
		}
		if err := do(h, i); err != nil {
			return err
		}
	}
	return nil
}

// host returns the row of a host. If there is none yet it is a new one, or nil, which is counted: beyond the limit, and
// if the event is only about what a host has already. finish writes the row, so callers change it and do not store it.
func (f *fold) host(name string) (*hostRow, error) {
	if h := f.hosts[name]; h != nil {
		return h, nil
	}
	value, found, err := f.rows.Get(key("n", name))
	if err != nil {
		return nil, err
	}
	h := &hostRow{name: name}
	switch {
	case found:
		if h, err = decodeHost(name, value); err != nil {
			return nil, err
		}
	// A host of which nothing is known gets no row for it.
	case f.m.needsHost():
		f.tally.Unmatched++
		return nil, nil
	case name == "":
		// It stands for all hosts that are not known, and is none itself.
	case f.tally.Hosts == f.limits.hosts:
		f.tally.OverLimit++
		return nil, nil
	default:
		f.tally.Hosts++
	}
	f.hosts[name] = h
	f.touched = append(f.touched, h)
	return h, nil
}

// terminate enters that a host is gone. What it has is shown as gone from then on, at no cost here. Copies that come
// later have a higher offset, and are there.
func (f *fold) terminate(h *hostRow, _ int) error {
	h.gone = f.m.offset
	return nil
}

// failOpen fails all that is open to a host.
func (f *fold) failOpen(host string) error {
	all, err := f.openTo(host)
	if err == nil && len(all) == 0 {
		f.tally.Unmatched++
	}
	return f.changeAll(all, err)
}

// changeAll applies the event to transfers that it was found to be about. It takes the error of finding them, and
// returns the first.
func (f *fold) changeAll(all []*transfer, err error) error {
	for _, t := range all {
		if err == nil {
			err = f.change(t, t.host)
		}
	}
	return err
}

// applyTo applies the event to its transfer to one host, the i-th of the event.
func (f *fold) applyTo(h *hostRow, i int) error {
	t, byID, err := f.find(h.name)
	if err != nil {
		return err
	}
	switch {
	// It is about the transfer that was found.
	case t != nil && (byID || f.follows(t)):
		return f.change(t, h.name)
	case f.m.class == stall && t != nil && !t.state.open():
		// It stalled before it ended.
		f.tally.Unmatched++
		return nil
	// This case does not return: after it the new transfer begins.
	case f.m.class == request && t != nil && t.state == requested && t.name == f.m.name:
		// Under an id of its own, the second request takes the place of the first, which does not run.
		if err := f.supersede(t); err != nil {
			return err
		}
	}
	return f.begin(h, i)
}

// follows reports whether an event belongs to the last transfer of its name, and not to a new one. t was found by its
// name and not by its id.
func (f *fold) follows(t *transfer) bool {
	switch {
	// With an id each, and not the same, they are two.
	case t.state.open():
		return f.m.id == "" || t.id == ""
	// The id belongs to no transfer yet, so the event begins one.
	case f.m.id != "":
		return false
	// It is tried again, has failed once more, or has arrived after all.
	case t.state == failed:
		return f.m.class != stall
	}
	// A copy may be found damaged after it was completed. All else is a new transfer.
	return t.state == completed && f.m.class == checksum
}

// find returns the transfer to a host that the event may be about, and whether its id says so; nil if there is none.
func (f *fold) find(host string) (t *transfer, byID bool, err error) {
	m := &f.m
	// The id first: no name can contradict it.
	if m.id != "" {
		if t, err = f.pointed(key("i", m.id, host)); t != nil || err != nil {
			return t, true, err
		}
		// A transfer whose host was not known yet.
		if t, err = f.pointed(key("i", m.id, "")); err != nil || (t != nil && t.state.open()) {
			return t, true, err
		}
	}
	// Without a name only a single candidate is taken.
	if m.name == "" {
		t, err = f.onlyOpen(host)
		return t, false, err
	}
	// The last of the name, if more is expected of it.
	last, err := f.pointed(key("l", host, m.kind, m.name))
	if err != nil || (last != nil && last.state.open()) {
		return last, false, err
	}
	// One whose name was not known yet.
	if t, err = f.pointed(key("l", host, m.kind, "")); err != nil || (t != nil && t.state.open()) {
		return t, false, err
	}
	// It has ended, or there is none: follows decides.
	return last, false, nil
}

// onlyOpen returns the open transfer of the event's kind to a host if there is exactly one; else the last one without
// a name.
func (f *fold) onlyOpen(host string) (*transfer, error) {
	all, err := f.openTo(host)
	if err != nil {
		return nil, err
	}
	var ofKind []*transfer
	for _, t := range all {
		if t.kind == f.m.kind {
			ofKind = append(ofKind, t)
		}
	}
	// Of several none is more likely than the others.
	if len(ofKind) == 1 {
		return ofKind[0], nil
	}
	return f.pointed(key("l", host, f.m.kind, ""))
}

// openTo returns the open transfers to a host, the oldest first. There are at most as many as the limit, since prune
// ends those beyond.
func (f *fold) openTo(host string) ([]*transfer, error) {
	return f.each(under("h", host), int(f.limits.open), func(t *transfer) bool { return t.state.open() })
}

// withoutHost returns the transfers that an event without a host is about. There are none if the event is about a
// transfer to a host that is not known.
func (f *fold) withoutHost() ([]*transfer, error) {
	m := &f.m
	// All hosts of the id, and one more than the limit shows that there are more.
	if m.id != "" {
		var numbers []string
		err := f.rows.Each(under("i", m.id), "", func(_ string, value []byte) bool {
			numbers = append(numbers, string(value))
			return len(numbers) <= f.limits.about
		})
		if err != nil {
			return nil, err
		}
		if len(numbers) > 0 {
			all, err := loadAll(f.rows, numbers)
			return f.limited(all), err
		}
	}
	// A request without a host is one of its own.
	if m.name == "" || m.class == request {
		return nil, nil
	}
	// All open ones of the name. One with an id of its own is not meant by an event with another.
	all, err := f.each(under("p", m.kind, m.name), f.limits.about+1, func(t *transfer) bool {
		return m.id == "" || t.id == ""
	})
	return f.limited(all), err
}

// limited returns the first transfers that an event without a host may be about. That there were more is counted.
func (f *fold) limited(all []*transfer) []*transfer {
	if len(all) <= f.limits.about {
		return all
	}
	f.tally.OverLimit++
	return all[:f.limits.about]
}

// begin begins a transfer with its first event.
func (f *fold) begin(h *hostRow, i int) error {
	m := &f.m
	// The number is unique and sorts by when the transfer began: an offset, and the place of the host in the event.
	t := &transfer{no: fmt.Sprintf("%016x.%02x", m.offset, i), id: m.id, kind: m.kind, name: m.name, host: h.name,
		deadline: deadlines[m.kind]}
	return f.update(nil, t)
}

// change applies the event to a transfer. While that is open, the event may name what was not known of it.
func (f *fold) change(t *transfer, host string) error {
	// A copy of what is stored, whose index rows have to go.
	was := *t
	if t.state.open() {
		t.host, t.name, t.id = cmp.Or(t.host, host), cmp.Or(t.name, f.m.name), cmp.Or(t.id, f.m.id)
	}
	return f.update(&was, t)
}

// update brings a transfer to the step of the event, and stores it. was is what it was before, nil if it is new.
func (f *fold) update(was, t *transfer) error {
	f.step(t)
	// The transfer, then the copy that it has brought, and last what is beyond the bounds.
	if err := f.store(was, t); err != nil {
		return err
	}
	// The event may have named the host only now.
	h, err := f.host(t.host)
	if err != nil {
		return err
	}
	if err := f.storeCopy(h, t); err != nil {
		return err
	}
	return f.prune(h)
}

// supersede ends an open transfer that has no outcome. Its end is at the event that is applied.
func (f *fold) supersede(t *transfer) error {
	was := *t
	t.state, t.ended, t.last, t.due = superseded, f.now(), f.m.offset, time.Time{}
	return f.store(&was, t)
}
