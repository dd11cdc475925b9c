// Package datadir owns a node's data folder: which process may use it, which node
// it belongs to, and whether the files that must be in it still are.
//
//	DIR/node.json      the marker: this node exists, under this id and incarnation
//	DIR/LOCK           flock held while a process uses the folder, with its pid
//	DIR/reserve        allocated blocks, released to start and trim on a full disk
//	DIR/raft/          raft.db, raft.journal, stable.db
//	DIR/state/         the replicated state
//	DIR/views/         what this node has folded of the log
//	DIR/snapshots-in/  snapshots being received
//	DIR/history/       the replicated state as it was
//	DIR/blackbox.jsonl what this voter saw of outages
//
// It promises that two processes never use one folder, that no node opens the
// folder of another, and that a folder whose raft files were removed or emptied
// is refused instead of opened as new: it would have forgotten its vote.
//
//	d, err := datadir.Open(dir, datadir.Options{NodeID: "n1"})
//	…open the stores below d.Path(datadir.RaftDir)…
//	err = d.MarkStoresCreated()
package datadir

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
)

// Names below a data folder.
const (
	MarkerFile   = "node.json"
	LockFile     = "LOCK"
	ReserveFile  = "reserve"
	RaftDir      = "raft"
	StateDir     = "state"
	ViewsDir     = "views"
	SnapshotsDir = "snapshots-in"
	HistoryDir   = "history"
	BlackBoxFile = "blackbox.jsonl"
	BackupFile   = "backup-at"

	BoltFile    = "raft.db"      // in RaftDir: the log
	JournalFile = "raft.journal" // in RaftDir: the log's newest entries
	StableFile  = "stable.db"    // in RaftDir: term and vote
)

// Format is the version of the folder's layout that this program writes.
const Format = 1

// Errors of this package. Each is wrapped with the path and what to do.
var (
	ErrInUse        = errors.New("data folder is in use")
	ErrReadOnly     = errors.New("data folder is read-only")
	ErrOtherNode    = errors.New("data folder belongs to another node")
	ErrOtherCluster = errors.New("data folder belongs to another cluster")
	ErrLogStoreGone = errors.New("data folder keeps its raft log in a store that this program does not have")
	ErrNewerFormat  = errors.New("data folder is of a newer format")
	ErrDamaged      = errors.New("data folder is damaged")
	ErrNoFolder     = errors.New("not a data folder")
	ErrClosed       = errors.New("data folder is closed")
)

// Rejoin is the remedy for damage that no program can undo.
const Rejoin = "remove this node from the cluster, empty its data folder and let it join again, or restore a backup"

// Options say who opens the folder.
type Options struct {
	NodeID string // required; must equal the marker's
}

func (o Options) validate() error {
	if o.NodeID == "" {
		return errors.New("open a data folder: a node id is required")
	}
	return nil
}

// Dir is an open data folder. It is safe for concurrent use.
type Dir struct {
	path string
	lock *os.File // LockFile, locked until it is closed

	mu     sync.Mutex             // held while the marker is written; guards closed
	marker atomic.Pointer[Marker] // equals node.json
	closed bool
}

// Open creates a fresh data folder with a random incarnation, or opens an
// existing one, and holds it until Close.
func Open(dir string, opts Options) (_ *Dir, err error) {
	if err := opts.validate(); err != nil {
		return nil, err
	}
	if err := makeFolder(dir); err != nil {
		return nil, err
	}
	// From here on no other process can change what is read or written.
	lock, err := acquire(dir)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			lock.Close()
		}
	}()
	m, err := readMarker(dir)
	if errors.Is(err, fs.ErrNotExist) {
		m, err = createMarker(dir, opts)
	}
	if err != nil {
		return nil, err
	}
	// A marker made just now is admitted, too: it names this node and no store files yet.
	if err := m.admits(dir, opts); err != nil {
		return nil, err
	}
	d := &Dir{path: dir, lock: lock}
	d.marker.Store(&m)
	return d, nil
}

// Inspect reads a folder's marker and writes nothing, so it works on a
// read-only copy. It refuses while a process uses the folder.
func Inspect(dir string) (Marker, error) {
	// The shared lock admits other readers and no node: nothing changes during the checks.
	release, err := acquireShared(dir)
	if err != nil {
		return Marker{}, err
	}
	defer release()
	m, err := readMarker(dir)
	if errors.Is(err, fs.ErrNotExist) {
		// A folder with a node's data is damaged without its marker; one without data is not a data folder.
		if err := refuseOrphans(dir); err != nil {
			return Marker{}, err
		}
		return Marker{}, fmt.Errorf("inspect %s: %w: it has no %s", dir, ErrNoFolder, MarkerFile)
	}
	if err != nil {
		return Marker{}, err
	}
	if err := m.logStoreKnown(dir); err != nil {
		return Marker{}, err
	}
	return m, m.storesPresent(dir)
}

// makeFolder creates dir and makes its name durable.
func makeFolder(dir string) error {
	info, err := os.Stat(dir)
	if err == nil && !info.IsDir() {
		return fmt.Errorf("open %s: %w: it is a file", dir, ErrNoFolder)
	}
	if err == nil {
		return nil
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return readOnly("open "+dir, err)
	}
	// Only the parent of dir is synced: it holds the name of dir.
	return SyncDir(filepath.Dir(filepath.Clean(dir)))
}

// createMarker writes the first marker of dir, with a new incarnation. A folder that already holds a
// node's data is refused: that node must not get another incarnation.
func createMarker(dir string, opts Options) (Marker, error) {
	if err := refuseOrphans(dir); err != nil {
		return Marker{}, err
	}
	// A folder that was emptied and used again differs in it, so the cluster sees that the node has forgotten its vote.
	incarnation, err := uuid.NewRandom()
	if err != nil {
		return Marker{}, fmt.Errorf("create %s: %w", dir, err)
	}
	m := Marker{
		Format:      Format,
		NodeID:      opts.NodeID,
		Incarnation: incarnation.String(),
		Created:     time.Now().UTC(),
	}
	return m, writeMarker(dir, m)
}

// refuseOrphans returns ErrDamaged for a folder without a marker that holds a node's data.
func refuseOrphans(dir string) error {
	// Snapshots that were being received are not a node's data: they are received again.
	for _, name := range []string{RaftDir, StateDir} {
		entries, err := os.ReadDir(filepath.Join(dir, name))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("open %s: %w", dir, err)
		}
		if len(entries) > 0 {
			return damaged(filepath.Join(dir, MarkerFile), fmt.Sprintf("it is missing, yet %s/ has files", name))
		}
	}
	return nil
}

// Path joins elem to the folder's path.
func (d *Dir) Path(elem ...string) string {
	return filepath.Join(append([]string{d.path}, elem...)...)
}

// Marker returns a copy of the folder's marker. It never waits for the disk: connections between
// nodes, heartbeats among them, ask for it while a change is being written.
func (d *Dir) Marker() Marker { return d.marker.Load().clone() }

// SetCluster records the cluster and the members it was bootstrapped with. The
// id may be empty while it is not known yet; once set it only changes by LeaveCluster.
func (d *Dir) SetCluster(clusterID string, peers []Peer) error {
	return d.update(func(m *Marker) error {
		if m.ClusterID != "" && clusterID != "" && m.ClusterID != clusterID {
			return fmt.Errorf("set cluster of %s: %w: it is of %s, not of %s: "+
				"start it with its own peers or use an empty folder",
				d.path, ErrOtherCluster, m.ClusterID, clusterID)
		}
		if clusterID != "" {
			m.ClusterID = clusterID
		}
		m.Peers = slices.Clone(peers)
		return nil
	})
}

// LeaveCluster forgets the cluster and its members. The folder then belongs to another cluster, whose
// id its state holds.
func (d *Dir) LeaveCluster() error {
	return d.update(func(m *Marker) error {
		m.ClusterID, m.Peers = "", nil
		return nil
	})
}

// MarkStoresCreated records that the raft files exist. From then on a missing
// or empty one is ErrDamaged. Call it after the stores were created and before
// the node votes.
func (d *Dir) MarkStoresCreated() error {
	return d.update(func(m *Marker) error {
		m.StoresCreated = true
		return m.storesPresent(d.path)
	})
}

// update changes the marker on disk first, then in memory: readers never see a change that a crash could
// take back. An error of change leaves both as they were.
func (d *Dir) update(change func(*Marker) error) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return fmt.Errorf("update %s: %w", d.path, ErrClosed)
	}
	next := d.Marker()
	if err := change(&next); err != nil {
		return err
	}
	// What changes nothing costs no sync.
	if next.equal(*d.marker.Load()) {
		return nil
	}
	if err := writeMarker(d.path, next); err != nil {
		return err
	}
	d.marker.Store(&next)
	return nil
}

// Close releases the folder to other processes. It is idempotent.
func (d *Dir) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil
	}
	d.closed = true
	return d.lock.Close()
}

// damaged returns ErrDamaged with the file, what is wrong with it and the remedy.
func damaged(file, what string) error {
	return fmt.Errorf("%s: %w: %s: %s", file, ErrDamaged, what, Rejoin)
}
