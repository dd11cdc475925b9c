package incident

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/hashicorp/raft"

	"github.com/ringrift/ringlog/snapshots"
)

// entryHead is the bytes of an entry before its data.
const entryHead = 21

// appendEntry appends an entry as the file has it. The layout is drawn in doc.go.
func appendEntry(b []byte, l *raft.Log) []byte {
	b = binary.LittleEndian.AppendUint64(b, l.Index)
	b = binary.LittleEndian.AppendUint64(b, l.Term)
	b = append(b, byte(l.Type))
	b = binary.LittleEndian.AppendUint32(b, uint32(len(l.Data)))
	return append(b, l.Data...)
}

// entryReader reads the entries that follow an index. It reads them in order and believes nothing that the file claims:
// a slice may have been sent by anybody.
type entryReader struct {
	r    *bufio.Reader
	left int64  // bytes of the file that are not read
	last uint64 // index of the entry that was read last
}

// next returns the next entry, or io.EOF after the last one. The entry has memory of its own. An error other than
// io.EOF says that the file is damaged or cannot be read.
func (e *entryReader) next() (*raft.Log, error) {
	var head [entryHead]byte
	if e.left == 0 {
		return nil, io.EOF
	}
	if e.left < entryHead {
		return nil, e.damaged("it is cut in the head of an entry")
	}
	// The size was known before, so a short read is an error of the disk.
	if _, err := io.ReadFull(e.r, head[:]); err != nil {
		return nil, fmt.Errorf("read %s: %w", snapshots.EntriesFile, err)
	}
	l := &raft.Log{
		Index: binary.LittleEndian.Uint64(head[:]),
		Term:  binary.LittleEndian.Uint64(head[8:]),
		Type:  raft.LogType(head[16]),
	}
	size := int64(binary.LittleEndian.Uint32(head[17:]))
	e.left -= entryHead
	// What is not there is not made room for.
	if l.Index != e.last+1 || size > e.left {
		return nil, e.damaged(fmt.Sprintf("entry %d of %d bytes, with %d bytes left", l.Index, size, e.left))
	}
	l.Data = make([]byte, size)
	if _, err := io.ReadFull(e.r, l.Data); err != nil {
		return nil, fmt.Errorf("read %s: %w", snapshots.EntriesFile, err)
	}
	e.left, e.last = e.left-size, l.Index
	return l, nil
}

// damaged is the error of a file that is not what Gather writes.
func (e *entryReader) damaged(what string) error {
	return fmt.Errorf("read %s after entry %d: %w: %s", snapshots.EntriesFile, e.last, snapshots.ErrCorrupt, what)
}

// count reads all that is left, and returns how many entries that is. The caller rewinds.
func (e *entryReader) count() (n uint64, err error) {
	for {
		_, err := e.next()
		if errors.Is(err, io.EOF) {
			return n, nil
		}
		if err != nil {
			return n, err
		}
		n++
	}
}
