package fsm

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/ringrift/ringlog/internal/kv"
)

// readValue returns a copy of a stored value, nil if there is none.
func readValue(r kv.Reader, key []byte) ([]byte, error) {
	value, closer, err := r.Get(key)
	if errors.Is(err, kv.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read %q: %w", key, err)
	}
	// The value is Pebble's until closer is closed.
	defer closer.Close()
	return slices.Clone(value), nil
}

// readJSON decodes a stored value, and leaves into as it is where there is none.
func readJSON(r kv.Reader, key []byte, into any) error {
	value, err := readValue(r, key)
	if err != nil || value == nil {
		return err
	}
	if err := json.Unmarshal(value, into); err != nil {
		return fmt.Errorf("read %q: %w", key, err)
	}
	return nil
}

// scan calls each with what is stored under a prefix, in the order of the keys, which come without it. The value
// is valid until each returns.
func scan(r kv.Reader, prefix byte, each func(key string, value []byte) error) error {
	return scanKeys(r, []byte{prefix}, []byte{prefix + 1}, func(key, value []byte) error {
		return each(string(key[1:]), value)
	})
}

// errScanned ends a scan whose caller has seen enough.
var errScanned = errors.New("enough")

// scanKeys calls each with the stored pairs in [low, high) until it returns
// errScanned, which is not passed on, or another error. The slices are valid until it returns.
func scanKeys(r kv.Reader, low, high []byte, each func(key, value []byte) error) error {
	// The iterator sees one moment of the database, whatever is written meanwhile.
	it, err := r.Iter(low, high)
	if err != nil {
		return fmt.Errorf("scan %q: %w", low, err)
	}
	defer it.Close()
	for ok := it.First(); ok; ok = it.Next() {
		value, err := it.ValueAndErr()
		if err == nil {
			err = each(it.Key(), value)
		}
		// each has seen enough.
		if err == errScanned {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read %q: %w", it.Key(), err)
		}
	}
	return it.Error()
}
