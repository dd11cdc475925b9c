package raftstore

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"maps"

	"go.etcd.io/bbolt"
)

// stableFile is stable.db: one record in a bolt file. Bolt replaces it atomically and
// durably, and the checksum shows damage. The record always exists, so a missing one is
// damage and never "nothing written yet".
//
//	bucket "record", key "stable", value:
//	+----------+--------------+-------------+
//	| format 1 | body         | CRC-32C, LE |   over key, format and body
//	| 1 byte   | n bytes      | 4 bytes     |
//	+----------+--------------+-------------+
//
// The body is a stableState as JSON, or empty when the file is new.
type stableFile struct{ db *bbolt.DB }

const (
	stableBucket = "record"
	stableKey    = "stable"
	stableFormat = 1
)

// stableState is what raft keeps in its stable store:
//
//	{"numbers":{"CurrentTerm":7,"LastVoteTerm":7},"bytes":{"LastVoteCand":"MTI3LjAuMC4x…"}}
type stableState struct {
	Numbers map[string]uint64 `json:"numbers"`
	Bytes   map[string][]byte `json:"bytes"` // base64
}

// clone returns a copy whose maps may be changed; the values are shared.
func (s stableState) clone() stableState {
	return stableState{Numbers: maps.Clone(s.Numbers), Bytes: maps.Clone(s.Bytes)}
}

// openStableFile opens the file at path and reads its state. Unless readOnly it creates
// a missing file.
func openStableFile(path string, readOnly bool) (f *stableFile, state stableState, err error) {
	fail := func(err error) (*stableFile, stableState, error) { return nil, stableState{}, err }
	if !readOnly {
		if err := createFile(path, createStable); err != nil {
			return fail(err)
		}
	}
	// bbolt must not open a file that would make it fail: see checkBoltFile.
	if err := checkBoltFile(path, map[string]visitor{stableBucket: nil}); err != nil {
		return fail(err)
	}
	f = &stableFile{}
	err = protect(func() (err error) {
		f.db, err = bbolt.Open(path, 0o600, boltOptions(readOnly))
		return err
	})
	if err != nil {
		return fail(openError(path, err))
	}

	// A process that was killed may have written the record without syncing it.
	if !readOnly {
		err = f.db.Sync()
	}
	if err == nil {
		state, err = f.load()
	}
	if err != nil {
		return fail(errors.Join(err, f.close()))
	}
	return f, state, nil
}

// createStable creates a file whose record has an empty body.
func createStable(path string) error {
	db, err := bbolt.Open(path, 0o600, boltOptions(false))
	if err != nil {
		return err
	}
	f := stableFile{db}
	return errors.Join(f.put(nil), f.close())
}

// load reads the record and checks it.
func (f *stableFile) load() (state stableState, err error) {
	err = protect(func() error {
		return f.db.View(func(tx *bbolt.Tx) (err error) {
			state, err = decodeStable(tx.Bucket([]byte(stableBucket)).Get([]byte(stableKey)))
			return err
		})
	})
	if err != nil {
		return state, damaged(f.db.Path(), err.Error())
	}
	return state, nil
}

// decodeStable checks the record's value and decodes its body. The maps of the state are never nil.
func decodeStable(value []byte) (stableState, error) {
	s := stableState{Numbers: map[string]uint64{}, Bytes: map[string][]byte{}}
	n := len(value) - 4
	switch {
	case value == nil:
		return s, errors.New("its record is missing")
	case n < 1 || binary.LittleEndian.Uint32(value[n:]) != stableSum(value[:n]):
		return s, errors.New("its checksum differs")
	case value[0] != stableFormat:
		return s, fmt.Errorf("its record is of format %d, this program knows %d", value[0], stableFormat)
	// A new file: nothing was stored yet.
	case n == 1:
		return s, nil
	}
	err := json.Unmarshal(value[1:n], &s)
	return s, err
}

// stableSum is the checksum of a record; value is its format and body.
func stableSum(value []byte) uint32 {
	return crc32.Update(crc32.Checksum([]byte(stableKey), crcTable()), crcTable(), value)
}

// save replaces the state in one durable write.
func (f *stableFile) save(state stableState) error {
	body, err := json.Marshal(state)
	if err != nil {
		return err
	}
	return f.put(body)
}

// put writes the record with this body.
func (f *stableFile) put(body []byte) error {
	value := append([]byte{stableFormat}, body...)
	value = binary.LittleEndian.AppendUint32(value, stableSum(value))
	return f.db.Update(func(tx *bbolt.Tx) error {
		bucket, err := tx.CreateBucketIfNotExists([]byte(stableBucket))
		if err != nil {
			return err
		}
		return bucket.Put([]byte(stableKey), value)
	})
}

func (f *stableFile) close() error { return f.db.Close() }
