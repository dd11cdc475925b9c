package transfers

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/event"
)

// tight are limits that short histories reach.
var tight = limits{open: 3, ended: 4, copies: 2, hosts: 3, about: 2}

// modelTransfer is a transfer of the model, with the time at which it is due if it is open.
type modelTransfer struct {
	api.Transfer
	deadline time.Duration
}

func (t *modelTransfer) open() bool { return t.State == "requested" || t.State == "running" }

// model follows transfers in a list that it goes through for every event.
type model struct {
	limits limits
	all    []*modelTransfer // in the order in which they began
	last   map[string]*modelTransfer
	copies map[string]*api.Copy
	gone   map[string]uint64
	hosts  []string
	tally  api.TransferTally
}

// said is an event of the model.
type said struct {
	what     string // the type
	kind     string
	id, name string
	hosts    []string
	from     string
	version  string
	bytes    uint64
	size     uint64
	verified bool
	error    string
	deadline time.Duration
	offset   uint64
	at       time.Time
}

// oneOf reports whether a word is among some.
func oneOf(word string, list string) bool { return slices.Contains(strings.Fields(list), word) }

func (s *said) requests() bool {
	return oneOf(s.what, "SYNC_REQUEST SYNC_TRIGGERED MODEL_SYNC_REQUESTED")
}
func (s *said) starts() bool { return oneOf(s.what, "DATA_SYNC_STARTED MODEL_DISTRIBUTION_STARTED") }
func (s *said) completes() bool {
	return oneOf(s.what, "DATA_SYNC_COMPLETED MODEL_DISTRIBUTION_COMPLETE P2P_MODEL_SYNCED GAME_SYNCED")
}
func (s *said) fails() bool {
	return oneOf(s.what, "DATA_SYNC_FAILED MODEL_DISTRIBUTION_FAILED DISTRIBUTION_INCOMPLETE SYNC_FAILURE_CRITICAL "+
		"SYNC_CHECKSUM_FAILED SYNC_NODE_UNREACHABLE")
}

func triple(host, kind, name string) string { return host + " " + kind + " " + name }

// know reports whether a host is known or may become so.
func (m *model) know(host string) bool {
	if host == "" || slices.Contains(m.hosts, host) {
		return true
	}
	if uint64(len(m.hosts)) == m.limits.hosts {
		m.tally.OverLimit++
		return false
	}
	m.hosts = append(m.hosts, host)
	m.tally.Hosts++
	return true
}

func (m *model) apply(s *said) {
	m.tally.Events++
	if s.id == "" && s.name == "" && len(s.hosts) == 0 {
		m.tally.Unnamed++
		return
	}
	all := s.what == "SYNC_NODE_UNREACHABLE" && s.id == "" && s.name == ""
	for i, host := range s.hosts {
		// Some events are only about what a host has.
		if all || oneOf(s.what, "MODEL_CORRUPTED NODE_TERMINATED") {
			if !slices.Contains(m.hosts, host) {
				m.tally.Unmatched++
				continue
			}
		} else if !m.know(host) {
			continue
		}
		switch {
		case s.what == "NODE_TERMINATED":
			m.gone[host] = s.offset
		case s.what == "DATABASE_CREATED":
			m.arrive(s, &api.Copy{Name: s.name, Kind: s.kind, Host: host, Version: s.version,
				Bytes: cmp.Or(s.size, s.bytes), Checked: map[bool]string{true: "verified"}[s.verified]})
		case s.what == "MODEL_CORRUPTED":
			if c := m.copies[triple(host, s.kind, s.name)]; c != nil {
				c.Checked, c.At, c.Offset = "damaged", s.at, s.offset
			} else {
				m.tally.Unmatched++
			}
		case all:
			open := m.openTo(host)
			if len(open) == 0 {
				m.tally.Unmatched++
			}
			for _, t := range open {
				m.follow(t, s)
			}
		default:
			m.about(s, host, i)
		}
	}
	if len(s.hosts) > 0 {
		return
	}
	if oneOf(s.what, "DATABASE_CREATED MODEL_CORRUPTED NODE_TERMINATED") {
		m.tally.Unmatched++
		return
	}
	if them := m.everywhere(s); len(them) > 0 {
		if len(them) > m.limits.about {
			them = them[:m.limits.about]
			m.tally.OverLimit++
		}
		for _, t := range them {
			m.follow(t, s)
		}
		return
	}
	m.about(s, "", 0)
}

// everywhere returns the transfers that an event without a host is about.
func (m *model) everywhere(s *said) (them []*modelTransfer) {
	for _, t := range m.all {
		if s.id != "" && t.ID == s.id {
			them = append(them, t)
		}
	}
	// By host, as one id has one transfer for each.
	slices.SortFunc(them, func(a, b *modelTransfer) int { return cmp.Compare(a.Host, b.Host) })
	if len(them) > 0 || s.name == "" || s.requests() {
		return them
	}
	for _, t := range m.all {
		if t.open() && t.Kind == s.kind && t.Name == s.name && (s.id == "" || t.ID == "") {
			them = append(them, t)
		}
	}
	return them
}

func (m *model) openTo(host string) (open []*modelTransfer) {
	for _, t := range m.all {
		if t.Host == host && t.open() {
			open = append(open, t)
		}
	}
	return open
}

// about applies an event to the transfer to a host that it is about.
func (m *model) about(s *said, host string, i int) {
	for _, t := range m.all {
		if s.id != "" && t.ID == s.id && t.Host == host {
			m.follow(t, s)
			return
		}
	}
	for _, t := range m.all {
		if s.id != "" && t.ID == s.id && t.Host == "" && t.open() {
			m.name(t, s, host)
			m.follow(t, s)
			return
		}
	}
	t := m.last[triple(host, s.kind, s.name)]
	if s.name == "" {
		var ofKind []*modelTransfer
		for _, o := range m.openTo(host) {
			if o.Kind == s.kind {
				ofKind = append(ofKind, o)
			}
		}
		if len(ofKind) == 1 {
			t = ofKind[0]
		}
	} else if t == nil || !t.open() {
		if nameless := m.last[triple(host, s.kind, "")]; nameless != nil && nameless.open() {
			t = nameless
		}
	}
	if t != nil {
		switch {
		case t.open() && (s.id == "" || t.ID == ""):
			m.name(t, s, host)
			m.follow(t, s)
			return
		case t.State == "failed" && s.id == "" && s.what != "SYNC_STALLED",
			t.State == "completed" && s.id == "" && s.what == "SYNC_CHECKSUM_FAILED":
			m.follow(t, s)
			return
		case !t.open() && s.what == "SYNC_STALLED":
			m.tally.Unmatched++
			return
		case t.State == "requested" && s.requests() && t.Name == s.name:
			m.supersede(t, s)
		}
	}
	t = &modelTransfer{Transfer: api.Transfer{Transfer: fmt.Sprintf("%016x.%02x", s.offset, i), ID: s.id, Kind: s.kind,
		Name: s.name, Host: host}}
	t.deadline = map[string]time.Duration{"data": time.Hour, "model": 30 * time.Minute, "games": 15 * time.Minute}[s.kind]
	m.all = append(m.all, t)
	m.last[triple(host, s.kind, s.name)] = t
	m.follow(t, s)
}

// name gives a transfer what an event names and was not known. It is the last one of its new name then.
func (m *model) name(t *modelTransfer, s *said, host string) {
	before := triple(t.Host, t.Kind, t.Name)
	t.Host, t.Name, t.ID = cmp.Or(t.Host, host), cmp.Or(t.Name, s.name), cmp.Or(t.ID, s.id)
	if after := triple(t.Host, t.Kind, t.Name); after != before {
		if m.last[before] == t {
			delete(m.last, before)
		}
		m.last[after] = t
	}
}

func (m *model) supersede(t *modelTransfer, s *said) {
	t.State, t.Ended = "superseded", &api.TransferStep{Offset: s.offset, At: s.at}
	t.Due, t.LastOffset = time.Time{}, s.offset
}

// follow changes a transfer as an event says.
func (m *model) follow(t *modelTransfer, s *said) {
	now := &api.TransferStep{Offset: s.offset, At: s.at}
	if t.open() {
		// Only an event without a host comes here with an id that is news.
		m.name(t, s, t.Host)
	}
	t.LastOffset = s.offset
	repeat := func() { t.Repeats++; m.tally.Repeats++ }
	contradict := func() { t.Contradictions++; m.tally.Contradictions++ }
	again := func() {
		t.Retries++
		t.Started, t.Stalled, t.Ended, t.Bytes, t.Checked = nil, nil, nil, 0, ""
	}
	taken, arrived := true, false
	switch {
	case s.requests():
		switch {
		case t.State == "failed":
			again()
			t.State, t.Requested = "requested", now
		case t.State == "":
			t.State, t.Requested = "requested", now
		case t.Requested == nil:
			t.Requested = now
			taken = t.open()
		default:
			repeat()
			taken = t.open()
		}
	case s.what == "SYNC_RETRY_REQUESTED":
		if t.State == "completed" {
			contradict()
			taken = false
			break
		}
		again()
		t.State, t.Requested = "requested", now
	case s.starts():
		switch {
		case (t.State == "running" || t.State == "completed") && t.Started != nil:
			repeat()
			taken = t.open()
		case t.State == "completed":
			t.Started = now
			taken = false
		case t.State == "failed":
			again()
			fallthrough
		default:
			t.State, t.Started, t.Ended = "running", now, nil
		}
	case s.what == "SYNC_STALLED":
		if t.State != "" && !t.open() {
			contradict()
			taken = false
			break
		}
		t.State, t.Stalled, t.Error = "running", now, s.error
	case s.completes():
		if t.State == "completed" {
			repeat()
			taken = false
			break
		}
		if t.Checked == "damaged" {
			t.Checked = ""
		}
		t.State, t.Ended, arrived = "completed", now, true
	case s.fails():
		bad := s.what == "SYNC_CHECKSUM_FAILED"
		if t.State == "completed" && !bad {
			contradict()
			taken = false
			break
		}
		if t.State == "failed" {
			repeat()
		} else {
			t.State, t.Ended = "failed", now
		}
		t.Error = cmp.Or(s.error, t.Error)
		if bad {
			t.Checked = "damaged"
			if c := m.copies[triple(t.Host, t.Kind, t.Name)]; c != nil && c.Transfer == t.Transfer.Transfer {
				c.Checked, c.At, c.Offset = "damaged", s.at, s.offset
			}
		}
	default:
		panic(s.what)
	}
	if taken {
		t.From, t.Version, t.Bytes = cmp.Or(s.from, t.From), cmp.Or(s.version, t.Version), cmp.Or(s.bytes, t.Bytes)
		t.deadline = cmp.Or(s.deadline, t.deadline)
		if s.verified && t.Checked == "" {
			t.Checked = "verified"
		}
	}
	t.Due = time.Time{}
	if t.open() {
		t.Due = s.at.Add(t.deadline)
	}
	if arrived {
		m.arrive(s, &api.Copy{Name: t.Name, Kind: t.Kind, Host: t.Host, Version: t.Version, From: t.From,
			Bytes: cmp.Or(s.size, t.Bytes), Checked: t.Checked, Transfer: t.Transfer.Transfer})
	}
	m.prune(t.Host, s)
}

// arrive enters a copy.
func (m *model) arrive(s *said, c *api.Copy) {
	if c.Name == "" || c.Host == "" {
		return
	}
	c.At, c.Since, c.Offset = s.at, s.at, s.offset
	at := triple(c.Host, c.Kind, c.Name)
	has := uint64(0)
	for _, other := range m.copies {
		if other.Host == c.Host {
			has++
		}
	}
	switch old := m.copies[at]; {
	case old == nil && has == m.limits.copies:
		m.tally.OverLimit++
		return
	case old != nil && old.Version == c.Version && c.Version != "" && old.Checked != "damaged" &&
		old.Offset > m.gone[c.Host]:
		c.Since = old.Since
	}
	m.copies[at] = c
}

// prune keeps a host within the limits.
func (m *model) prune(host string, s *said) {
	if open := m.openTo(host); uint64(len(open)) > m.limits.open {
		m.tally.OverLimit++
		m.supersede(open[0], s)
	}
	var ended []*modelTransfer
	for _, t := range m.all {
		if t.Host == host && !t.open() {
			ended = append(ended, t)
		}
	}
	if uint64(len(ended)) <= m.limits.ended {
		return
	}
	slices.SortStableFunc(ended, func(a, b *modelTransfer) int { return cmp.Compare(a.Ended.Offset, b.Ended.Offset) })
	m.all = slices.DeleteFunc(m.all, func(t *modelTransfer) bool { return t == ended[0] })
	for at, t := range m.last {
		if t == ended[0] {
			delete(m.last, at)
		}
	}
}

// list returns the transfers that a query chooses.
func (m *model) list(q Query) []api.Transfer {
	them := []api.Transfer{}
	for _, t := range m.all {
		shown := t.Transfer
		shown.Overdue = t.open() && !t.Due.After(q.Now)
		if (q.Host == "" || q.Host == t.Host) && (q.State == "" || q.State == t.State) && (!q.Overdue || shown.Overdue) {
			them = append(them, shown)
		}
	}
	if q.Overdue && q.Host == "" {
		slices.SortStableFunc(them, func(a, b api.Transfer) int { return a.Due.Compare(b.Due) })
	}
	return them
}

// listCopies returns the copies that a condition chooses, in the order of the texts that by returns.
func (m *model) listCopies(want func(*api.Copy) bool, by func(*api.Copy) string) []api.Copy {
	them := []api.Copy{}
	for _, c := range m.copies {
		if want(c) {
			shown := *c
			shown.HostGone = m.gone[c.Host] > c.Offset
			them = append(them, shown)
		}
	}
	slices.SortFunc(them, func(a, b api.Copy) int { return strings.Compare(by(&a), by(&b)) })
	return them
}

// drawSaid draws what happens next.
func drawSaid(t *rapid.T, offset uint64, at time.Time) *said {
	k := rapid.SampledFrom(types).Draw(t, "type")
	hosts := rapid.SampledFrom([]string{"h1", "h2", "h/3", "h4"})
	s := &said{
		what: string(k.name), kind: k.kind, offset: offset, at: at,
		id:       rapid.SampledFrom([]string{"", "", "x", "y/%"}).Draw(t, "id"),
		name:     rapid.SampledFrom([]string{"", "a", "a", "b/c d"}).Draw(t, "name"),
		hosts:    rapid.SliceOfNDistinct(hosts, 0, 3, rapid.ID).Draw(t, "hosts"),
		from:     rapid.SampledFrom([]string{"", "origin"}).Draw(t, "from"),
		version:  rapid.SampledFrom([]string{"", "1", "v2"}).Draw(t, "version"),
		bytes:    rapid.Uint64Range(0, 2).Draw(t, "bytes"),
		size:     rapid.Uint64Range(0, 1).Draw(t, "size") * 900,
		verified: rapid.Bool().Draw(t, "verified"),
		error:    rapid.SampledFrom([]string{"", "cut"}).Draw(t, "error"),
		deadline: rapid.SampledFrom([]time.Duration{0, 0, 5 * time.Minute}).Draw(t, "deadline"),
	}
	if s.kind == "" {
		s.kind = rapid.SampledFrom([]string{"data", "model"}).Draw(t, "kind")
		if s.name == "" {
			s.kind = "data"
		}
	}
	return s
}

// event returns the event of what happened, under one of the names that each field has.
func (s *said) event(t *rapid.T) *event.Event {
	payload := map[string]any{}
	put := func(names []string, v any) { payload[rapid.SampledFrom(names).Draw(t, "field")] = v }
	if s.id != "" {
		put([]string{"transfer_id", "sync_id", "distribution_id", "request_id"}, s.id)
	}
	if s.name != "" && s.kind == "model" {
		put([]string{"model", "model_id", "model_name", "model_path"}, s.name)
	} else if s.name != "" {
		put([]string{"dataset", "dataset_id", "config_key", "db_path"}, s.name)
	}
	if len(s.hosts) == 1 {
		put([]string{"host", "node_id", "target", "target_node"}, s.hosts[0])
	} else if len(s.hosts) > 1 {
		put([]string{"targets", "target_nodes"}, s.hosts)
	}
	if s.from != "" {
		put([]string{"source_node", "source", "from"}, s.from)
	}
	if s.version == "1" {
		put([]string{"version", "model_version"}, 1)
	} else if s.version != "" {
		put([]string{"version", "data_version"}, s.version)
	}
	// Without a number of bytes sent, the size is that number.
	if s.bytes != 0 || s.size == 0 {
		put([]string{"bytes_synced", "bytes"}, s.bytes)
	} else {
		s.bytes = s.size
	}
	if s.size != 0 {
		payload["size_bytes"] = s.size
	}
	if s.verified {
		put([]string{"verified", "checksum_verified"}, true)
	}
	if s.error != "" {
		put([]string{"error", "reason"}, s.error)
	}
	if s.deadline != 0 {
		put([]string{"deadline_seconds", "timeout_seconds"}, s.deadline.Seconds())
	}
	e := event.New(event.Type(s.what), payload)
	e.Offset, e.AppendedAt = s.offset, s.at
	return &e
}

// The rows agree with a model that goes through lists, whatever comes in whatever order, also if they
// are closed and opened in between; and equal events give equal rows.
func TestTransfersAgreeWithAModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		fold, rows, again := View{tight}, newRows(), newRows()
		m := &model{limits: tight, last: map[string]*modelTransfer{}, copies: map[string]*api.Copy{},
			gone: map[string]uint64{}}
		at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
		for offset := range uint64(rapid.IntRange(1, 60).Draw(t, "events")) {
			at = at.Add(rapid.SampledFrom([]time.Duration{0, time.Second, 10 * time.Minute}).Draw(t, "later"))
			s := drawSaid(t, offset+1, at)
			e := s.event(t)
			for _, r := range []*memoryRows{rows, again} {
				if _, err := fold.Apply(r, e); err != nil {
					t.Fatal(err)
				}
			}
			// What was applied already changes nothing.
			if _, err := fold.Apply(again, e); err != nil {
				t.Fatal(err)
			}
			m.apply(s)
			if rapid.IntRange(0, 9).Draw(t, "reopen") == 0 {
				rows = rows.reopened()
			}
			if rapid.IntRange(0, 9).Draw(t, "compare") == 0 {
				compare(t, m, rows, at)
			}
		}
		compare(t, m, rows, at)
		if diff := gocmp.Diff(again.rows, rows.rows); diff != "" {
			t.Fatal(diff)
		}
	})
}

// compare compares everything that can be asked.
func compare(t *rapid.T, m *model, rows *memoryRows, at time.Time) {
	for _, host := range []string{"", "h1", "h/3"} {
		for _, state := range append([]string{""}, States()...) {
			for _, overdue := range []bool{false, true} {
				q := Query{Host: host, State: state, Overdue: overdue, Now: at, Limit: rapid.IntRange(1, 5).Draw(t, "limit")}
				got := []api.Transfer{}
				for {
					page, err := List(rows, q)
					if err != nil {
						t.Fatal(err)
					}
					got = append(got, page.Transfers...)
					if page.Totals != m.tally {
						t.Fatalf("tally: %s", gocmp.Diff(m.tally, page.Totals))
					}
					if page.Next == "" {
						break
					}
					q.After = page.Next
				}
				if diff := gocmp.Diff(m.list(q), got); diff != "" {
					t.Fatalf("host %q, state %q, overdue %t: %s", host, state, overdue, diff)
				}
			}
		}
	}
	copies := func(page func(after string) (api.CopyPage, error), want []api.Copy) {
		got := []api.Copy{}
		for after := ""; ; {
			p, err := page(after)
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, p.Copies...)
			if after = p.Next; after == "" {
				break
			}
		}
		if diff := gocmp.Diff(want, got); diff != "" {
			t.Fatal(diff)
		}
	}
	for _, name := range []string{"a", "b/c d"} {
		copies(func(after string) (api.CopyPage, error) { return Where(rows, name, after, 1) },
			m.listCopies(func(c *api.Copy) bool { return c.Name == name }, func(c *api.Copy) string {
				return key(c.Kind, c.Host)
			}))
	}
	copies(func(after string) (api.CopyPage, error) { return Held(rows, "h1", after, 1) },
		m.listCopies(func(c *api.Copy) bool { return c.Host == "h1" }, func(c *api.Copy) string {
			return key(c.Name, c.Kind)
		}))
	requireIndexes(t, rows)
}

// requireIndexes requires that every row is one that a transfer, a copy or a host has.
func requireIndexes(t *rapid.T, rows *memoryRows) {
	want := map[string]bool{"c": true}
	for _, k := range slices.Sorted(maps.Keys(rows.rows)) {
		switch {
		case strings.HasPrefix(k, "t/"):
			x, err := decodeTransfer(k[2:], []byte(rows.rows[k]))
			if err != nil {
				t.Fatal(err)
			}
			want[k], want[key("n", x.host)] = true, true
			for _, index := range x.listed() {
				want[index] = true
			}
			if x.id != "" {
				want[key("i", x.id, x.host)] = true
			}
		case strings.HasPrefix(k, "w/"):
			c, err := decodeCopy([]byte(rows.rows[k]))
			if err != nil {
				t.Fatal(err)
			}
			want[k], want[key("b", c.host, c.name, c.kind)] = true, true
		case strings.HasPrefix(k, "n/"):
			want[k] = true
		case strings.HasPrefix(k, "l/"):
			// The last transfer of a name may be gone, and then no row has its name.
			x, err := load(rows, rows.rows[k])
			if err != nil || x.lastKey() != k {
				t.Fatalf("row %s has %v, %v", k, x, err)
			}
			want[k] = true
		}
	}
	for k := range want {
		if _, found := rows.rows[k]; !found {
			t.Fatalf("row %s is missing", k)
		}
	}
	for k := range rows.rows {
		if !want[k] {
			t.Fatalf("row %s belongs to nothing", k)
		}
	}
}
