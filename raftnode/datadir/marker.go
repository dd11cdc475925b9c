package datadir

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// Marker is the content of node.json: which node the folder belongs to, and what must be in it.
type Marker struct {
	Format        int       `json:"format"`
	NodeID        string    `json:"node_id"`
	ClusterID     string    `json:"cluster_id"`          // empty until the cluster is known
	Incarnation   string    `json:"incarnation"`         // random UUID, made with the folder
	LogStore      string    `json:"log_store,omitempty"` // of earlier builds: see logStoreKnown
	StoresCreated bool      `json:"stores_created"`      // the raft files must exist and not be empty
	Created       time.Time `json:"created"`
	Peers         []Peer    `json:"peers,omitempty"` // agreed at bootstrap
}

// Peer is a member as agreed at bootstrap.
type Peer struct {
	ID          string `json:"id"`
	Raft        string `json:"raft"` // host:port
	HTTP        string `json:"http"` // host:port
	Incarnation string `json:"incarnation"`
}

// clone returns a marker that shares no memory with m.
func (m Marker) clone() Marker {
	m.Peers = slices.Clone(m.Peers)
	return m
}

// equal compares the contents: times as moments, peers in their order.
func (m Marker) equal(o Marker) bool {
	return m.Format == o.Format && m.NodeID == o.NodeID && m.ClusterID == o.ClusterID &&
		m.Incarnation == o.Incarnation && m.LogStore == o.LogStore && m.StoresCreated == o.StoresCreated &&
		m.Created.Equal(o.Created) && slices.Equal(m.Peers, o.Peers)
}

// admits returns why the node of opts must not use the folder that m marks, nil if it may.
func (m Marker) admits(dir string, opts Options) error {
	if m.NodeID != opts.NodeID {
		return fmt.Errorf("datadir: open %s: %w: it is of node %s, not of %s: start it with --id %s or use another folder",
			dir, ErrOtherNode, m.NodeID, opts.NodeID, m.NodeID)
	}
	if err := m.logStoreKnown(dir); err != nil {
		return err
	}
	return m.storesPresent(dir)
}

// logStoreKnown returns ErrLogStoreGone for a folder whose raft log is in a store that only earlier
// builds had.
func (m Marker) logStoreKnown(dir string) error {
	if m.LogStore == "" || m.LogStore == "boltdb" {
		return nil
	}
	return fmt.Errorf("datadir: open %s: %w: %s: start it with the build that made it, "+
		"save a backup (ringlog snapshot save), and restore that into an empty folder (ringlog snapshot restore)",
		dir, ErrLogStoreGone, m.LogStore)
}

// storesPresent returns ErrDamaged if a raft file that must exist is missing or empty. An emptied
// store would open as new, with its term and vote gone.
func (m Marker) storesPresent(dir string) error {
	if !m.StoresCreated {
		return nil
	}
	for _, file := range storeFiles(dir) {
		// Only its presence is checked here; what is in a file is checked by the store that opens it.
		info, err := os.Stat(file)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return damaged(file, "it is missing")
		case err != nil:
			return fmt.Errorf("datadir: open %s: %w", dir, err)
		case info.Size() == 0:
			return damaged(file, "it is empty")
		}
	}
	return nil
}

// storeFiles lists the files without which the raft stores must not open.
func storeFiles(dir string) []string {
	// Raft's journal is among them: the newest entries may be in it alone.
	dir = filepath.Join(dir, RaftDir)
	return []string{filepath.Join(dir, BoltFile), filepath.Join(dir, JournalFile), filepath.Join(dir, StableFile)}
}

// The marker on disk is one line of JSON. Every byte of it is fixed or covered
// by the checksum, so no flipped bit passes:
//
//	{"crc32c":"89abcdef","marker":{"format":1,"node_id":"n1",…}}\n
//	           --------            ------------------------
//	           CRC-32C, hex   of   exactly these bytes
const (
	markerHead = `{"crc32c":"`
	markerMid  = `","marker":`
	markerTail = "}\n"
)

// encodeMarker returns the bytes of a marker file.
func encodeMarker(m Marker) ([]byte, error) {
	body, err := json.Marshal(m)
	if err != nil {
		return nil, err
	}
	return fmt.Appendf(nil, "%s%s%s%s%s", markerHead, checksum(body), markerMid, body, markerTail), nil
}

// checksum returns the CRC-32C of a marker's JSON, as eight hex digits.
func checksum(body []byte) string {
	return fmt.Sprintf("%08x", crc32.Checksum(body, crc32.MakeTable(crc32.Castagnoli)))
}

// decodeMarker returns in words what is wrong with a marker, empty if nothing is; the caller names the
// file. The marker of a newer format is returned as it is: the caller refuses it.
func decodeMarker(raw []byte) (m Marker, wrong string) {
	if len(raw) == 0 {
		return m, "it is empty"
	}
	// The fixed parts must be there byte for byte: the checksum does not cover them.
	rest, headed := bytes.CutPrefix(raw, []byte(markerHead))
	sum, rest, split := bytes.Cut(rest, []byte(markerMid))
	body, tailed := bytes.CutSuffix(rest, []byte(markerTail))
	if !headed || !split || !tailed {
		return m, "it is cut or not a marker"
	}
	if string(sum) != checksum(body) {
		return m, "its checksum differs"
	}
	if err := json.Unmarshal(body, &m); err != nil {
		return m, err.Error()
	}
	// What a newer format requires is not known here.
	if m.Format <= Format && (m.Format < 1 || m.NodeID == "" || m.Incarnation == "") {
		return m, "it names no format, node or incarnation"
	}
	return m, ""
}

// readMarker reads DIR/node.json. A missing one is fs.ErrNotExist.
func readMarker(dir string) (Marker, error) {
	file := filepath.Join(dir, MarkerFile)
	raw, err := os.ReadFile(file)
	if err != nil {
		return Marker{}, fmt.Errorf("datadir: read %s: %w", file, err)
	}
	m, wrong := decodeMarker(raw)
	if wrong != "" {
		return Marker{}, damaged(file, wrong)
	}
	// The remedy is the newer program, so this is not reported as damage.
	if m.Format > Format {
		return Marker{}, fmt.Errorf("datadir: read %s: %w: format %d, this program knows up to %d: use the newer program",
			file, ErrNewerFormat, m.Format, Format)
	}
	return m, nil
}

// writeMarker replaces DIR/node.json atomically and durably.
func writeMarker(dir string, m Marker) error {
	// Whatever fails, the marker that is there remains.
	raw, err := encodeMarker(m)
	if err == nil {
		err = replaceFile(filepath.Join(dir, MarkerFile), raw)
	}
	if err != nil {
		return readOnly("write "+filepath.Join(dir, MarkerFile), err)
	}
	return nil
}

// replaceFile leaves either the old content or the new one, whatever happens.
func replaceFile(file string, content []byte) error {
	tmp := file + ".tmp"
	f, err := os.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	// The content must be on disk before the name points to it.
	_, err = f.Write(content)
	if err == nil {
		err = f.Sync()
	}
	err = errors.Join(err, f.Close())
	if err != nil {
		return err
	}
	if err := os.Rename(tmp, file); err != nil {
		return err
	}
	// The new name, too, must survive a crash.
	return SyncDir(filepath.Dir(file))
}

// SyncDir makes the names in a folder durable.
func SyncDir(dir string) error {
	// A folder is synced through a descriptor that only reads it.
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
