package transfers

import (
	"bytes"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/ringrift/ringlog/internal/view"
)

// memoryRows are rows in memory. What Get and Each returned is overwritten by the next Set or Delete, as the interface
// allows.
type memoryRows struct {
	rows map[string]string
	lent [][]byte
}

var _ view.Rows = (*memoryRows)(nil)

func newRows() *memoryRows { return &memoryRows{rows: map[string]string{}} }

// reopened are the same rows as after a restart.
func (r *memoryRows) reopened() *memoryRows { return &memoryRows{rows: maps.Clone(r.rows)} }

func (r *memoryRows) lend(s string) []byte {
	b := []byte(s)
	r.lent = append(r.lent, b)
	return b
}

func (r *memoryRows) takeBack() {
	for _, b := range r.lent {
		copy(b, bytes.Repeat([]byte{0xff}, len(b)))
	}
	r.lent = nil
}

func (r *memoryRows) Get(key string) ([]byte, bool, error) {
	v, found := r.rows[key]
	return r.lend(v), found, nil
}

func (r *memoryRows) Set(key string, value []byte) error {
	v := string(value)
	r.takeBack()
	r.rows[key] = v
	return nil
}

func (r *memoryRows) Delete(key string) error {
	r.takeBack()
	delete(r.rows, key)
	return nil
}

func (r *memoryRows) Each(prefix, after string, yield func(key string, value []byte) bool) error {
	for _, k := range slices.Sorted(maps.Keys(r.rows)) {
		if strings.HasPrefix(k, prefix) && k > after && !yield(k, r.lend(r.rows[k])) {
			return nil
		}
	}
	return nil
}

// must returns a value without an error.
func must[T any](t testing.TB) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}
