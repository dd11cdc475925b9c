package raftstore

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
	"go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"

	"github.com/ringrift/ringlog/raftnode/datadir"
)

// Buckets of raft-boltdb; "conf" stays empty, stable.db has its place.
const (
	logsBucket = "logs"
	confBucket = "conf"
)

// boltOptions never skip a sync of data. The list of free pages is not synced:
// it is rebuilt on start, and each append writes less.
func boltOptions(readOnly bool) *bbolt.Options {
	return &bbolt.Options{
		Timeout:        time.Second, // for the file's lock
		NoFreelistSync: true,
		FreelistType:   bbolt.FreelistMapType,
		ReadOnly:       readOnly,
	}
}

// openBolt opens the log in the bolt file at path, or creates it.
func openBolt(path string, found *sizes) (boltLog, error) {
	if err := createFile(path, createBolt); err != nil {
		return boltLog{}, err
	}
	log, err := openBoltFile(path, false, found)
	if err != nil {
		return boltLog{}, err
	}
	// What it has was perhaps written by a process that was killed before it synced it.
	if err := log.store.Sync(); err != nil {
		return boltLog{}, errors.Join(openError(path, err), log.Close())
	}
	return log, nil
}

func createBolt(path string) error {
	store, err := raftboltdb.New(raftboltdb.Options{Path: path, BoltOptions: boltOptions(false)})
	if err != nil {
		return err
	}
	return store.Close()
}

// openBoltFile opens an existing log after checking its structure and that its
// indexes have no holes, and adds what its entries have to found.
func openBoltFile(path string, readOnly bool, found *sizes) (log boltLog, err error) {
	if err := checkBoltFile(path, []string{logsBucket, confBucket}, denseKeys(found)); err != nil {
		return boltLog{}, err
	}
	err = protect(func() (err error) {
		log.store, err = raftboltdb.New(raftboltdb.Options{Path: path, BoltOptions: boltOptions(readOnly)})
		return err
	})
	return log, openError(path, err)
}

// openError names what bbolt said when it was asked to open path.
func openError(path string, err error) error {
	switch {
	case err == nil || errors.Is(err, ErrDamaged):
		return err
	case errors.Is(err, berrors.ErrTimeout):
		return inUse(path, err)
	case errors.Is(err, errPanicked):
		return damaged(path, err.Error())
	}
	return fmt.Errorf("raftstore: open %s: %w", path, err)
}

// createFile makes the file at path with create, unless it exists. A crash
// leaves no file or a whole one, so that one that is empty or cut is damage.
func createFile(path string, create func(path string) error) error {
	if exists(path) {
		return nil
	}
	tmp := path + ".tmp"
	if err := os.RemoveAll(tmp); err != nil {
		return fmt.Errorf("raftstore: create %s: %w", path, err)
	}
	err := create(tmp)
	if err == nil {
		err = os.Rename(tmp, path)
	}
	if err == nil {
		err = datadir.SyncDir(filepath.Dir(path))
	}
	if err != nil {
		return fmt.Errorf("raftstore: create %s: %w", path, err)
	}
	return nil
}
