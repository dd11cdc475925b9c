package transfers

import (
	"cmp"
	"fmt"

	"github.com/ringrift/ringlog/internal/view"
)

// pointed returns the transfer that an index row has, nil if there is none. Index rows with a value have the number of
// a transfer in it.
func (f *fold) pointed(index string) (*transfer, error) {
	no, found, err := f.rows.Get(index)
	if err != nil || !found {
		return nil, err
	}
	return load(f.rows, string(no))
}

// load returns a transfer.
func load(rows view.Rows, no string) (*transfer, error) {
	value, found, err := rows.Get("t/" + no)
	if err != nil {
		return nil, err
	}
	// Whatever has the number is stored and deleted together with the row.
	if !found {
		return nil, fmt.Errorf("row t/%s is missing", no)
	}
	return decodeTransfer(no, value)
}

// loadAll returns transfers in the order of their numbers. Numbers that are given twice are returned twice.
func loadAll(rows view.Rows, numbers []string) (all []*transfer, err error) {
	for _, no := range numbers {
		t, err := load(rows, no)
		if err != nil {
			return nil, err
		}
		all = append(all, t)
	}
	return all, nil
}

// each returns up to limit transfers whose numbers end the keys under a prefix, in the order of the keys. It stops at
// an error, and returns it.
func (f *fold) each(prefix string, limit int, want func(*transfer) bool) (all []*transfer, err error) {
	failed := f.rows.Each(prefix, "", func(k string, _ []byte) bool {
		// Reading a row leaves the others valid.
		var t *transfer
		if t, err = load(f.rows, lastPart(k)); err == nil && want(t) {
			all = append(all, t)
		}
		return err == nil && len(all) < limit
	})
	return all, cmp.Or(err, failed)
}

// store writes a transfer with its index rows. was is what it was before, nil if it is new.
func (f *fold) store(was, t *transfer) error {
	h, err := f.host(t.host)
	if err != nil {
		return err
	}
	// Index rows that it has in both forms are deleted and set again: they are changed in memory only.
	if was != nil {
		if err := f.unstore(was, t); err != nil {
			return err
		}
	}
	// unstore has taken it out of the counts.
	h.count(t, 1)
	for _, k := range t.listed() {
		if err := f.rows.Set(k, nil); err != nil {
			return err
		}
	}
	// A transfer is the last one of its name when it begins, and when it gets its name.
	if was == nil || was.lastKey() != t.lastKey() {
		if err := f.rows.Set(t.lastKey(), []byte(t.no)); err != nil {
			return err
		}
	}
	// The latest transfer of an id to a host.
	if t.id != "" {
		if err := f.rows.Set(key("i", t.id, t.host), []byte(t.no)); err != nil {
			return err
		}
	}
	return f.rows.Set("t/"+t.no, t.encode())
}

// unstore deletes the index rows of a transfer that it has no more, all of them if next is nil.
func (f *fold) unstore(was, next *transfer) error {
	// It may move to another host, whose counts store changes.
	h, err := f.host(was.host)
	if err != nil {
		return err
	}
	h.count(was, -1)
	for _, k := range was.listed() {
		if err := f.rows.Delete(k); err != nil {
			return err
		}
	}
	// Rows with a value stay while they are right: they may be another transfer's by now, see unpoint.
	if next == nil || next.lastKey() != was.lastKey() {
		if err := f.unpoint(was.lastKey(), was.no); err != nil {
			return err
		}
	}
	if was.id != "" && (next == nil || next.host != was.host) {
		return f.unpoint(key("i", was.id, was.host), was.no)
	}
	return nil
}

// unpoint deletes an index row that has this transfer. A row that has a later transfer stays.
func (f *fold) unpoint(index, no string) error {
	value, found, err := f.rows.Get(index)
	if err != nil || !found || string(value) != no {
		return err
	}
	return f.rows.Delete(index)
}

// lastKey is the index row that has the last transfer of a name.
func (t *transfer) lastKey() string { return key("l", t.host, t.kind, t.name) }

// listed are the index rows whose key ends with the transfer's number. They have no value. All are lists in the order
// of their keys.
func (t *transfer) listed() []string {
	byHost := under("h", t.host) + t.no
	if !t.state.open() {
		return []string{byHost, fmt.Sprintf("%s%016x/%s", under("e", t.host), t.ended.offset, t.no)}
	}
	// Only open ones are due, and are found by their name.
	return []string{byHost, dueKey(t.due) + t.no, under("p", t.kind, t.name) + t.no}
}

// count adds n to the count that a transfer is in. n is 1 or -1, and wraps around as it should.
func (h *hostRow) count(t *transfer, n int) {
	if t.state.open() {
		h.open += uint64(n)
	} else {
		h.ended += uint64(n)
	}
}

// prune removes what a host has beyond the bounds: what began first of those that are open, else what ended first. A
// call of update adds one transfer, or ends one, so one of each is enough. The copies of what is removed stay.
func (f *fold) prune(h *hostRow) error {
	// Superseding it makes it one of those that ended.
	if h.open > f.limits.open {
		oldest, err := f.each(under("h", h.name), 1, func(t *transfer) bool { return t.state.open() })
		if err != nil {
			return err
		}
		f.tally.OverLimit++
		if err := f.supersede(oldest[0]); err != nil {
			return err
		}
	}
	if h.ended <= f.limits.ended {
		return nil
	}
	oldest, err := f.each(under("e", h.name), 1, func(*transfer) bool { return true })
	if err != nil {
		return err
	}
	// First its index rows, so that nothing has its number any more.
	if err := f.unstore(oldest[0], nil); err != nil {
		return err
	}
	return f.rows.Delete("t/" + oldest[0].no)
}

// storeCopy enters what the event says of the copy that a transfer brought. h is the host of the transfer, which has
// been brought to its step.
func (f *fold) storeCopy(h *hostRow, t *transfer) error {
	switch {
	// This event has completed it. One that only repeats it does not count as another copy.
	case t.state == completed && t.ended.offset == f.m.offset:
		return f.putCopy(h, &copyRow{name: t.name, kind: t.kind, version: t.version, from: t.from,
			bytes: cmp.Or(f.m.size, t.bytes), files: t.files, checked: t.checked, transfer: t.no})
	case f.m.class == checksum:
		// A later transfer may have brought another copy, which is not damaged.
		c, err := f.copyOf(t.name, t.kind, h.name)
		if err != nil || c == nil || c.transfer != t.no {
			return err
		}
		return f.damage(c)
	}
	return nil
}

// changeCopy applies an event about a copy alone.
func (f *fold) changeCopy(h *hostRow, _ int) error {
	m := &f.m
	if m.class == created {
		return f.putCopy(h, &copyRow{name: m.name, kind: m.kind, version: m.version, bytes: cmp.Or(m.size, m.bytes),
			files: m.files, checked: m.checked})
	}
	// A copy that is not known cannot be shown as damaged.
	c, err := f.copyOf(m.name, m.kind, h.name)
	if err != nil {
		return err
	}
	if c == nil {
		f.tally.Unmatched++
		return nil
	}
	return f.damage(c)
}

// copyOf returns the copy that a host has, nil if it has none.
func (f *fold) copyOf(name, kind, host string) (*copyRow, error) {
	value, found, err := f.rows.Get(key("w", name, kind, host))
	if err != nil || !found {
		return nil, err
	}
	return decodeCopy(value)
}

// putCopy enters that a host has a copy. Without a name or a host there is nothing to look for.
func (f *fold) putCopy(h *hostRow, c *copyRow) error {
	if c.name == "" || h.name == "" {
		return nil
	}
	c.host, c.at, c.since, c.offset = h.name, f.m.at, f.m.at, f.m.offset
	old, err := f.copyOf(c.name, c.kind, c.host)
	switch {
	case err != nil:
		return err
	case old == nil && h.copies == f.limits.copies:
		f.tally.OverLimit++
		return nil
	// The first copy of the name has the index row by host.
	case old == nil:
		h.copies++
		if err := f.rows.Set(key("b", c.host, c.name, c.kind), nil); err != nil {
			return err
		}
	// The same version again: the host has had it since the older one came, unless that was damaged, or gone with the
	// host.
	case old.version == c.version && c.version != "" && old.checked != damaged && old.offset > h.gone:
		c.since = old.since
	}
	return f.rows.Set(c.key(), c.encode())
}

// damage enters that a copy is not what it should be. The row stays: it says that the copy is no good.
func (f *fold) damage(c *copyRow) error {
	c.checked, c.at, c.offset = damaged, f.m.at, f.m.offset
	return f.rows.Set(c.key(), c.encode())
}
