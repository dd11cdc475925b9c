package fsm

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/ringrift/ringlog/internal/kv"
)

// Checkpoint makes a copy of the state in dir, which must not exist and must be on
// the same file system: files are linked, not copied. It returns the position
// read from that copy, which may be newer than the one at the call.
func (m *Machine) Checkpoint(dir string) (Position, error) {
	err := m.log.View(func(db kv.DB) error { return db.Checkpoint(dir) })
	if err != nil {
		return Position{}, fmt.Errorf("checkpoint into %s: %w", dir, err)
	}
	return ReadPosition(dir, m.opts.FS)
}

// Flush writes what the database has in memory alone into files of its own: a checkpoint made next copies little.
func (m *Machine) Flush() error {
	if err := m.log.View(func(db kv.DB) error { return db.Flush() }); err != nil {
		return fmt.Errorf("flush: %w", err)
	}
	return nil
}

// ReadPosition returns the position of the checkpoint in dir.
func ReadPosition(dir string, fs vfs.FS) (Position, error) {
	// Two records say it all; the rest of the state is not loaded.
	o := Options{FS: fs, ReadOnly: true}
	o.defaults()
	db, err := o.store().Open(dir)
	if err != nil {
		return Position{}, err
	}
	s := newState()
	err = errors.Join(readJSON(db, []byte{prefixMeta}, &s.meta), readJSON(db, []byte{prefixMembership}, &s.membership))
	return s.position(), closeWith(err, db)
}

// Swap puts the checkpoint in dir, a folder on the same file system, in the place
// of the whole state. A crash leaves the old state or the new one. Swap waits for the readers of
// the old state; the machine continues with the new one.
func (m *Machine) Swap(dir string) error {
	path, old, err := m.opts.store().Replace(dir)
	if err != nil {
		return err
	}

	// CURRENT names the new database: after an error here a restart opens it.
	if err := m.attach(path); err != nil {
		return err
	}

	// attach has waited for the last reader of the old one and closed it.
	if err := m.opts.FS.RemoveAll(old); err != nil {
		return fmt.Errorf("remove the state before: %w", err)
	}
	return nil
}

// Reassign gives the state of a stopped node another cluster id and membership:
// the restore of a backup as a new cluster. It must not be used on a running node.
func Reassign(dir string, fs vfs.FS, clusterID string, members []ConfigMember, raw []byte) (Position, error) {
	o := Options{FS: fs}
	o.defaults()
	db, err := o.store().Open(dir)
	if err != nil {
		return Position{}, err
	}
	s, err := loadState(db)
	if err != nil {
		return Position{}, closeWith(err, db)
	}

	// The members of the cluster before, and their votes, mean nothing in the new one.
	batch := db.NewBatch()
	defer batch.Close()
	for id := range s.members {
		err = errors.Join(err, batch.Delete(key(prefixMember, id)))
	}
	for id := range s.desiredVotes {
		err = errors.Join(err, batch.Delete(key(prefixDesiredVote, id)))
	}
	// The digest stays: it covers the history up to here, which both clusters share.
	s.meta.ClusterID = clusterID
	s.membership = membership{Index: s.meta.Applied, Raw: raw, Members: members}
	err = errors.Join(err, setRecord(batch, []byte{prefixMeta}, s.meta),
		setRecord(batch, []byte{prefixMembership}, s.membership))
	// Voters of the new cluster begin without a history.
	if s.health.Known {
		s.health.Restart(voterIDs(members))
		err = errors.Join(err, setRecord(batch, []byte{prefixHealth}, s.health))
	}
	if err == nil {
		err = batch.Commit(kv.Sync)
	}
	return s.position(), closeWith(err, db)
}

// setRecord stores a value as JSON, beside the transaction of an entry and its digest.
func setRecord(b kv.Batch, key []byte, v any) error {
	value, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return b.Set(key, value)
}

// closeWith closes db and joins its error with err: an error of closing means that something is not durable.
func closeWith(err error, db kv.DB) error { return errors.Join(err, db.Close()) }
