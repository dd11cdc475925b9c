package raftstore

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"

	"go.etcd.io/bbolt"
)

// recordBucket is the one bucket of a record's file.
const recordBucket = "record"

// record is one value in a bolt file of its own: bolt makes replacing it
// atomic and durable, the checksum makes damage known. The value always exists,
// so a missing one is damage and never "nothing written yet".
//
//	bucket "record", key is the record's name, value:
//	+----------+--------------+-------------+
//	| format 1 | body         | CRC-32C, LE |   over name, format and body
//	| 1 byte   | n bytes      | 4 bytes     |
//	+----------+--------------+-------------+
type record struct {
	db   *bbolt.DB
	path string
	name string
}

const recordFormat = 1

// openRecord opens the record called name at path and returns its body, which
// is empty for a fresh one. Unless readOnly it creates a missing file.
func openRecord(path, name string, readOnly bool) (r *record, body []byte, err error) {
	r = &record{path: path, name: name}
	if !readOnly {
		if err := createFile(path, r.create); err != nil {
			return nil, nil, err
		}
	}
	if err := checkBoltFile(path, []string{recordBucket}, nil); err != nil {
		return nil, nil, err
	}
	err = protect(func() (err error) {
		r.db, err = bbolt.Open(path, 0o600, boltOptions(readOnly))
		return err
	})
	if err != nil {
		return nil, nil, openError(path, err)
	}
	if !readOnly { // a process that was killed had perhaps not synced it
		err = r.db.Sync()
	}
	if err == nil {
		body, err = r.load()
	}
	if err != nil {
		return nil, nil, errors.Join(err, r.close())
	}
	return r, body, nil
}

func (r *record) create(path string) (err error) {
	db, err := bbolt.Open(path, 0o600, boltOptions(false))
	if err != nil {
		return err
	}
	fresh := record{db: db, name: r.name}
	return errors.Join(fresh.save(nil), db.Close())
}

func (r *record) encode(body []byte) []byte {
	value := append([]byte{recordFormat}, body...)
	return binary.LittleEndian.AppendUint32(value, r.sum(value))
}

func (r *record) sum(value []byte) uint32 {
	return crc32.Update(crc32.Checksum([]byte(r.name), crcTable()), crcTable(), value)
}

// load returns a copy of the body.
func (r *record) load() (body []byte, err error) {
	var wrong string
	err = protect(func() error {
		return r.db.View(func(tx *bbolt.Tx) error {
			body, wrong = r.decode(tx.Bucket([]byte(recordBucket)).Get([]byte(r.name)))
			return nil
		})
	})
	if err != nil {
		wrong = err.Error()
	}
	if wrong != "" {
		return nil, damaged(r.path, wrong)
	}
	return body, nil
}

func (r *record) decode(value []byte) (body []byte, wrong string) {
	n := len(value) - 4
	switch {
	case value == nil:
		return nil, fmt.Sprintf("its record %q is missing", r.name)
	case n < 1 || binary.LittleEndian.Uint32(value[n:]) != r.sum(value[:n]):
		return nil, "its checksum differs"
	case value[0] != recordFormat:
		return nil, fmt.Sprintf("its record is of format %d, this program knows %d", value[0], recordFormat)
	}
	return append([]byte(nil), value[1:n]...), ""
}

// save replaces the body in one durable write.
func (r *record) save(body []byte) error {
	return r.db.Update(func(tx *bbolt.Tx) error {
		bucket, err := tx.CreateBucketIfNotExists([]byte(recordBucket))
		if err != nil {
			return err
		}
		return bucket.Put([]byte(r.name), r.encode(body))
	})
}

func (r *record) close() error { return r.db.Close() }
