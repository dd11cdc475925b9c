// Package offline reads and makes data folders of nodes that do not run: inspect, backups, recovery after
// most voters are lost. What is only read is not written to. It also names what can be wrong with a folder.
package offline

import (
	"errors"
	"path/filepath"

	"github.com/ringrift/ringlog/fsm"
	"github.com/ringrift/ringlog/raftnode/datadir"
	"github.com/ringrift/ringlog/raftnode/raftstore"
)

// folder is a stopped node's data, opened to be read. It is closed by close; a reader of raft's log is closed by
// itself.
type folder struct {
	marker datadir.Marker // which node and cluster it is of
	dir    string
	// the state, as of the last entry that was applied
	machine *fsm.Machine
}

// openFolder opens the state of a stopped node and writes nothing.
func openFolder(dir string) (*folder, error) {
	// A folder that is none is reported before anything else of it is read.
	marker, err := datadir.Inspect(dir)
	if err != nil {
		return nil, err
	}
	// ReadOnly: a folder in which anything may be wrong stays as it is.
	m, err := fsm.Open(fsm.Options{Dir: filepath.Join(dir, datadir.StateDir), ReadOnly: true})
	if err != nil {
		return nil, err
	}
	return &folder{marker: marker, dir: dir, machine: m}, nil
}

// close releases the state.
func (f *folder) close() error { return f.machine.Close() }

// raft opens the raft log and votes of the folder.
// The caller closes the reader.
func (f *folder) raft() (*raftstore.Reader, error) {
	return raftstore.OpenReadOnly(filepath.Join(f.dir, datadir.RaftDir))
}

// withFolder calls body with a folder that it opens and closes.
func withFolder(dir string, body func(*folder) error) error {
	// The folder is closed also if body fails, and both errors are reported.
	f, err := openFolder(dir)
	if err != nil {
		return err
	}
	return errors.Join(body(f), f.close())
}
