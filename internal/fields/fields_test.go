package fields

import (
	"encoding/binary"
	"testing"
)

// Whatever is cut off, reading reports it, and what was read after it is zero.
func TestReaderFindsEveryCut(t *testing.T) {
	b := binary.AppendVarint(AppendBool(Append(nil, "name"), true), -300)
	read := func(b []byte) (name string, flag bool, n int64, err error) {
		r := Reader{Rest: b}
		name, flag, n = string(r.Bytes()), r.Bool(), r.Varint()
		return name, flag, n, r.End()
	}
	if name, flag, n, err := read(b); name != "name" || !flag || n != -300 || err != nil {
		t.Fatalf("read %q, %v, %d, %v", name, flag, n, err)
	}
	for cut := range b {
		if _, _, n, err := read(b[:cut]); err == nil || n != 0 {
			t.Errorf("the first %d bytes: %d, %v", cut, n, err)
		}
	}
	if _, _, _, err := read(append(b, 0)); err == nil {
		t.Error("a byte after the end is not reported")
	}
}

func TestReaderAllocatesNothingForAClaim(t *testing.T) {
	r := Reader{Rest: binary.AppendUvarint(nil, 1<<60)}
	if n := r.Count(1); n != 0 || r.Err == nil {
		t.Errorf("a count of %d, %v", n, r.Err)
	}
}
