// Package kv declares what the state machine, the log and the views ask of a store of ordered keys. Package fsm/store
// opens such a store, which is a Pebble database, and passes each call to it unchanged.
//
// A package compiles the methods of all generic types that it reaches through fields and method signatures, exported or
// not, of the types it uses. One type of Pebble's leads to hundreds, so no interface here mentions any.
package kv

import (
	"io"

	"github.com/cockroachdb/pebble/v2"
)

// Errors of a store, to be compared with errors.Is.
var (
	ErrNotFound = pebble.ErrNotFound
	ErrClosed   = pebble.ErrClosed
)

// What Commit waits for: nothing, or until the batch and all that was committed before it are durable.
const (
	NoSync = false
	Sync   = true
)

// Reader reads keys.
type Reader interface {
	// Get returns the value of a key, which is valid until closer is closed. The error is ErrNotFound if there is none.
	Get(key []byte) (value []byte, closer io.Closer, err error)
	// Iter returns an iterator over the keys in [low, high) as they are at this moment. A nil bound is none.
	Iter(low, high []byte) (Iterator, error)
}

// Iterator moves over pairs. It begins at none. A key and a value are valid until the next move.
type Iterator interface {
	First() bool
	Next() bool
	SeekLT(key []byte) bool
	SeekGE(key []byte) bool
	Key() []byte
	ValueAndErr() ([]byte, error)
	Error() error
	Close() error
}

// Snapshot reads the keys as they were when it was made.
type Snapshot interface {
	Reader
	Close() error
}

// Batch collects changes, which Commit stores all together or not at all.
type Batch interface {
	Set(key, value []byte) error
	Delete(key []byte) error
	DeleteRange(low, high []byte) error // of [low, high)
	Empty() bool
	Commit(sync bool) error
	Close() error
}

// IndexedBatch is a Batch that reads the keys of the database as its changes leave them.
type IndexedBatch interface {
	Batch
	Reader
}

// DB is a database. What was made of it is closed before it is.
type DB interface {
	Reader
	NewBatch() Batch
	NewIndexedBatch() IndexedBatch
	NewSnapshot() Snapshot
	Sync() error                 // makes durable what was committed
	Flush() error                // writes what is in memory and in the log alone into tables
	Checkpoint(dir string) error // makes a copy of all that was committed; files are linked
	Close() error
}
