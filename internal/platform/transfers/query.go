package transfers

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/internal/view"
)

// Bounds of a page.
const (
	MaxLimit = 1000
	maxScan  = 10_000 // rows that are read for a page
)

// Query chooses transfers. Conditions must all hold; the zero value of one allows all.
type Query struct {
	Host    string    // of the transfers
	State   string    // as in api.Transfer
	Overdue bool      // due at Now or before
	Now     time.Time // of the query; only Overdue depends on it
	After   string    // Next of the page before
	Limit   int       // 1 to MaxLimit
}

// States are the names of the states.
func States() []string { return stateNames[requested:] }

// dueKey is the prefix of transfers that are due at a time. In hex with leading zeros, keys are in the order of time.
func dueKey(t time.Time) string { return fmt.Sprintf("d/%016x/", uint64(t.UnixNano())) }

// List returns a page of transfers, the oldest first; of overdue ones of all hosts, those that were due first. A page
// may be short although it has a next one. Offset and Time of the page are its caller's.
func List(rows view.Rows, q Query) (page api.TransferPage, err error) {
	page.Transfers = []api.Transfer{}
	var c totalRow
	if err = c.load(rows); err != nil {
		return page, err
	}
	page.Totals = c.TransferTally
	// The index that has the fewest rows; each row's key ends with the number of a transfer. By host it is the host's.
	// Overdue ones of all hosts are in an index by time.
	prefix := "t/"
	switch {
	case q.Host != "":
		prefix = under("h", q.Host)
	case q.Overdue:
		prefix = "d/"
	}
	read, last := 0, ""
	failed := rows.Each(prefix, following(prefix, q.After), func(k string, _ []byte) bool {
		// What is due later ends the overdue ones, which are in that order.
		if prefix == "d/" && k >= dueKey(q.Now.Add(1)) {
			return false
		}
		// The page is full, or has read as much as one may: what is rare must not make a page read all rows.
		if len(page.Transfers) == q.Limit || read == maxScan {
			page.Next = last
			return false
		}
		read++
		last = strings.TrimPrefix(k, prefix)
		var t *transfer
		if t, err = load(rows, lastPart(k)); err != nil {
			return false
		}
		shown := t.shown()
		// Only an open one is overdue.
		shown.Overdue = t.state.open() && !t.due.After(q.Now)
		if (q.State == "" || q.State == shown.State) && (!q.Overdue || shown.Overdue) {
			page.Transfers = append(page.Transfers, shown)
		}
		return true
	})
	return page, cmp.Or(err, failed)
}

// following is the key after which a page begins. It is "" for the first page.
func following(prefix, after string) string {
	if after == "" {
		return ""
	}
	return prefix + after
}

// CopyList is what Where and Held are.
type CopyList func(rows view.Rows, of, after string, limit int) (api.CopyPage, error)

// Where returns a page of the copies of a dataset or model, by kind and host.
func Where(rows view.Rows, name, after string, limit int) (api.CopyPage, error) {
	return copies(rows, under("w", name), after, limit, func(_ string, value []byte) (*copyRow, error) {
		return decodeCopy(value)
	})
}

// Held returns a page of the copies that a host has, by name and kind.
func Held(rows view.Rows, host, after string, limit int) (api.CopyPage, error) {
	return copies(rows, under("b", host), after, limit, func(k string, _ []byte) (*copyRow, error) {
		// b/HOST/NAME/KIND is an index of w/NAME/KIND/HOST. Its parts are escaped already.
		part := strings.Split(k, "/")
		value, found, err := rows.Get("w/" + part[2] + "/" + part[3] + "/" + part[1])
		if err == nil && !found {
			err = fmt.Errorf("the copy of row %s is missing", k)
		}
		if err != nil {
			return nil, err
		}
		return decodeCopy(value)
	})
}

// copies returns a page of the copies whose rows are under a prefix. read returns the copy of a row. The page's Next is
// the key of its last row without the prefix.
func copies(rows view.Rows, prefix, after string, limit int,
	read func(key string, value []byte) (*copyRow, error)) (page api.CopyPage, err error) {
	page.Copies = []api.Copy{}
	last := ""
	// Of hosts, the offset at which they were terminated.
	gone := map[string]uint64{}
	failed := rows.Each(prefix, following(prefix, after), func(k string, value []byte) bool {
		if len(page.Copies) == limit {
			page.Next = last
			return false
		}
		last = strings.TrimPrefix(k, prefix)
		var c *copyRow
		if c, err = read(k, value); err != nil {
			return false
		}
		// Each host is read once for a page.
		if _, known := gone[c.host]; !known {
			var h *hostRow
			if h, err = readHost(rows, c.host); err != nil {
				return false
			}
			gone[c.host] = h.gone
		}
		page.Copies = append(page.Copies, c.shown(gone[c.host]))
		return true
	})
	return page, cmp.Or(err, failed)
}

// readHost returns the row of a host that has one. Each host with a copy or a transfer has one, so a missing one is
// damage.
func readHost(rows view.Rows, name string) (*hostRow, error) {
	value, found, err := rows.Get(key("n", name))
	if err == nil && !found {
		err = fmt.Errorf("the row of host %q is missing", name)
	}
	if err != nil {
		return nil, err
	}
	return decodeHost(name, value)
}

// Skipped implements view.Fold: what named neither a host nor a name nor an id.
func (View) Skipped(rows view.Rows) (view.Skipped, error) {
	var c totalRow
	if err := c.load(rows); err != nil || c.Unnamed == 0 {
		return view.Skipped{}, err
	}
	return view.Skipped{Events: c.Unnamed, Last: c.unnamed, Place: "key"}, nil
}

// RowOf implements view.Fold: an event leads to several rows, by way of others.
func (View) RowOf(*event.Event) string { return "" }

// KeyOf implements view.Fold.
func (View) KeyOf(row string) (key string, ok bool) {
	return row, row == "c" || strings.HasPrefix(row, "t/") || strings.HasPrefix(row, "w/")
}

// Keys implements view.Fold: the tally, transfers and copies, not what indexes them.
func (View) Keys(rows view.Rows, after string, limit int) ([]string, error) {
	var keys []string
	for _, prefix := range []string{"c", "t/", "w/"} {
		// Prefixes are in the order of their bytes: those before after are done.
		if after > prefix && !strings.HasPrefix(after, prefix) {
			continue
		}
		err := rows.Each(prefix, after, func(k string, _ []byte) bool {
			if len(keys) < limit {
				keys = append(keys, k)
			}
			return len(keys) < limit
		})
		if err != nil {
			return nil, err
		}
	}
	return keys, nil
}

// Show implements view.Fold. Whether a transfer is overdue depends on the time of a query, and is not in it.
func (View) Show(rows view.Rows, key string) (json.RawMessage, bool, error) {
	value, found, err := rows.Get(key)
	if err != nil || !found {
		return nil, false, err
	}
	var shown any
	switch {
	case key == "c":
		var c totalRow
		err = c.load(rows)
		shown = c.TransferTally
	case strings.HasPrefix(key, "t/"):
		var t *transfer
		if t, err = decodeTransfer(key[2:], value); err == nil {
			shown = t.shown()
		}
	// Whether its host is gone is in the row of the host.
	case strings.HasPrefix(key, "w/"):
		var c *copyRow
		if c, err = decodeCopy(value); err != nil {
			return nil, false, err
		}
		var h *hostRow
		if h, err = readHost(rows, c.host); err == nil {
			shown = c.shown(h.gone)
		}
	default:
		return nil, false, nil
	}
	if err != nil {
		return nil, false, err
	}
	b, err := json.Marshal(shown)
	return b, err == nil, err
}
