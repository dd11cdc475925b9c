// Package snapshots is the one file format of a node's whole state: what a
// leader streams to a lagging follower, what a backup holds, and what a restore
// reads.
//
// It packs the files of a state checkpoint and does not look into them. It
// promises that the exact size is known before the first byte is written, that
// every file is verified before it is kept (a flipped bit or a cut is always
// found), that a hostile stream can neither write outside the target folder nor
// make the reader hold more than one buffer, and that an error leaves nothing on
// disk.
//
// # The format
//
// Integers are little endian; CRC is CRC-32C.
//
//	offset  bytes  field
//	0       6      magic "RLSNAP"
//	6       2      version (1)
//	8       4      length of the meta
//	12      4      number of files
//	16      8      bytes of all files together
//	24      4      CRC of bytes 0 to 24 and of the meta
//	28      n      meta, JSON
//
//	each file, in the order of names:
//	0       1      'F'
//	1       1      length of the name
//	2       8      size of the file
//	10      n      name, [A-Za-z0-9._-], not starting with a dot
//	        4      CRC of the above
//	        size   content
//	        4      CRC of the content
//
//	trailer:
//	0       1      'E'
//	1       32     SHA-256 of every byte before it
//
// A snapshot whose meta names a slice holds an incident: a state, and in the file EntriesFile the entries of raft's log
// that follow it. Read refuses it, since it is no state to start from; ReadIncident reads nothing else.
//
//	meta := snapshots.Meta{ClusterID: id, Index: 42, Term: 3, …}
//	size, err := snapshots.Size(checkpoint, meta)
//	err = snapshots.Write(ctx, w, checkpoint, meta)
//	meta, err = snapshots.Read(ctx, r, target)
package snapshots

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"time"
)

// Version is the version of the format that this program reads and writes.
const Version = 1

// SliceVersion is the version of a slice, and of the file of its entries.
const SliceVersion = 1

// EntriesFile is the file of an incident that holds the entries of raft's log. No file of a state has this name.
const EntriesFile = "incident-entries"

const (
	magic = "RLSNAP"

	prefixSize  = 24 // up to the header's CRC
	headerSize  = prefixSize + crcSize
	crcSize     = 4
	entryFixed  = 10 // of a file's head, without name and CRC
	trailerSize = 1 + 32

	tagFile = 'F'
	tagEnd  = 'E'

	// Bounds of what a stream may claim, so a hostile one costs no memory.
	maxMeta  = 1 << 20
	maxFiles = 1 << 20
	maxName  = 255 // its length is one byte
	maxBytes = 1 << 50
)

// Errors of this package; each is wrapped with what was found, and where.
var (
	ErrCorrupt     = errors.New("snapshot is damaged")
	ErrUnsupported = errors.New("snapshot is of a newer format")
	ErrExists      = errors.New("target exists")
	ErrIncident    = errors.New("it holds an incident, not a backup")
	ErrNoIncident  = errors.New("it holds a backup, not an incident")
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Meta says what a snapshot holds.
type Meta struct {
	ClusterID          string    `json:"cluster_id"`
	NodeID             string    `json:"node_id"` // who wrote it
	Index              uint64    `json:"index"`   // last raft index contained
	Term               uint64    `json:"term"`    // its term
	ConfigurationIndex uint64    `json:"configuration_index"`
	Configuration      []byte    `json:"configuration"` // raft's encoding, opaque here
	LastOffset         uint64    `json:"last_offset"`
	Digest             string    `json:"digest"` // hex, of the state at Index
	FeatureLevel       uint32    `json:"feature_level"`
	Created            time.Time `json:"created"` // the writer's clock

	Slice *Slice `json:"slice,omitempty"` // of an incident; nil in a backup
}

// Slice says which entries of raft's log follow the state of an incident: those after Meta.Index, without a hole.
type Slice struct {
	Version     uint32    `json:"version"`
	From        time.Time `json:"from,omitzero"` // what was asked for, in replicated time; zero is all that there is
	To          time.Time `json:"to,omitzero"`   // replicated time of the last entry
	Entries     uint64    `json:"entries"`
	LastIndex   uint64    `json:"last_index"`   // of the last entry, or of the state if there is none
	FirstOffset uint64    `json:"first_offset"` // the first one that a state can be had at: the last of Meta's state
}

// Info is what a snapshot's header says about the rest.
type Info struct {
	Meta  Meta   `json:"meta"`
	Files uint32 `json:"files"`
	Bytes uint64 `json:"bytes"` // of all files together
}

// streamSize is the whole stream's length.
func (i Info) streamSize(meta []byte, files []file) int64 {
	n := int64(headerSize+len(meta)+trailerSize) + int64(i.Bytes)
	for _, f := range files {
		n += int64(entryFixed + len(f.name) + 2*crcSize)
	}
	return n
}

// file is one file of a checkpoint.
type file struct {
	name string
	size uint64
}

// listFiles reads the names and sizes of a checkpoint's files, in the order of names.
func listFiles(dir string) ([]file, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", dir, err)
	}
	if len(entries) > maxFiles {
		return nil, fmt.Errorf("list %s: %d files, at most %d", dir, len(entries), maxFiles)
	}
	files := make([]file, 0, len(entries))
	for _, e := range entries {
		info, err := e.Info()
		if err != nil {
			return nil, fmt.Errorf("list %s: %w", dir, err)
		}
		// A checkpoint holds neither folders nor links, nor a name that Read would refuse.
		if !info.Mode().IsRegular() || !validName(e.Name()) {
			return nil, fmt.Errorf("list %s: %q is not a plain file of a checkpoint", dir, e.Name())
		}
		files = append(files, file{name: e.Name(), size: uint64(info.Size())})
	}
	return files, nil
}

// validName reports whether a name is one that a checkpoint uses. Such a name cannot lead out
// of the folder that it is joined to.
func validName(name string) bool {
	// A leading dot would allow "..", and hidden files.
	if name == "" || len(name) > maxName || name[0] == '.' || filepath.Base(name) != name {
		return false
	}
	for _, c := range []byte(name) {
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9':
		case c == '.', c == '_', c == '-':
		default:
			return false
		}
	}
	return true
}

// infoOf returns the header of a snapshot of these files.
func infoOf(meta Meta, files []file) Info {
	info := Info{Meta: meta, Files: uint32(len(files))}
	for _, f := range files {
		info.Bytes += f.size
	}
	return info
}

// encode returns the header and the meta after it, as one, and the meta alone.
func (i Info) encode() (head, meta []byte, err error) {
	meta, err = json.Marshal(i.Meta)
	if err == nil && len(meta) > maxMeta {
		err = fmt.Errorf("%d bytes, at most %d", len(meta), maxMeta)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("encode meta: %w", err)
	}

	head = make([]byte, 0, headerSize+len(meta))
	head = append(head, magic...)
	head = binary.LittleEndian.AppendUint16(head, Version)
	head = binary.LittleEndian.AppendUint32(head, uint32(len(meta)))
	head = binary.LittleEndian.AppendUint32(head, i.Files)
	head = binary.LittleEndian.AppendUint64(head, i.Bytes)

	// The checksum covers both, and is stored between them.
	sum := crc32.Update(crc32.Checksum(head, castagnoli), castagnoli, meta)
	head = binary.LittleEndian.AppendUint32(head, sum)
	return append(head, meta...), meta, nil
}

// encodeHead returns what precedes a file's content.
func (f file) encodeHead() []byte {
	b := make([]byte, 0, entryFixed+len(f.name)+crcSize)
	b = append(b, tagFile, byte(len(f.name)))
	b = binary.LittleEndian.AppendUint64(b, f.size)
	b = append(b, f.name...)
	return binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
}

// corrupt returns an error that wraps ErrCorrupt and says what is wrong.
func corrupt(format string, args ...any) error {
	return fmt.Errorf("read a snapshot: %w: %s", ErrCorrupt, fmt.Sprintf(format, args...))
}
