package engine

import "encoding/binary"

// The first byte of each key; doc.go has what is stored under it.
const (
	prefixMeta   = 'm' // meta, as JSON
	prefixRow    = 'r' // rows
	prefixFiring = 'o' // firings
)

// keyOf is the key under a prefix of a view, before what follows in it.
func keyOf(prefix byte, generation uint64) []byte {
	return binary.BigEndian.AppendUint64([]byte{prefix}, generation)
}

// rowKey is the key of a row.
func rowKey(generation uint64, key string) []byte {
	return append(keyOf(prefixRow, generation), key...)
}

// rowPrefix is how long a row's key is before the key of the row.
const rowPrefix = 1 + 8

// firingKey is the key of the first firing for the event at an offset.
func firingKey(generation, offset uint64) []byte {
	return binary.BigEndian.AppendUint64(keyOf(prefixFiring, generation), offset)
}

// offsetOf returns the offset in the key of a firing.
func offsetOf(key []byte) uint64 { return binary.BigEndian.Uint64(key[1+8:]) }

// after returns the first key that does not begin with prefix, nil if there is none.
func after(prefix []byte) []byte {
	end := append([]byte(nil), prefix...)
	// The last byte that is not 255 is raised, and those after it are cut off.
	for i := len(end) - 1; i >= 0; i-- {
		if end[i]++; end[i] != 0 {
			return end[:i+1]
		}
	}
	return nil
}

// span are the bounds of all keys under a prefix of a view.
func span(prefix byte, generation uint64) (low, high []byte) {
	low = keyOf(prefix, generation)
	return low, after(low)
}
