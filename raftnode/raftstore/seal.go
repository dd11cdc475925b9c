package raftstore

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"

	"github.com/hashicorp/raft"
)

// An entry is stored with a seal after its Extensions. Data stays as it is,
// so a frame of 1 MiB is not copied to be sealed:
//
//	stored Extensions:
//	+------------------------+----------+-------------+
//	| the entry's Extensions | format 1 | CRC-32C, LE |
//	| n bytes                | 1 byte   | 4 bytes     |
//	+------------------------+----------+-------------+
//
// The checksum covers, in this order, little-endian:
//
//	+-------+------+------+--------------+--------------+-----+------------+--------+------+
//	| Index | Term | Type | AppendedAt s | AppendedAt ns| n   | Extensions | format | Data |
//	| 8     | 8    | 1    | 8            | 4            | 4   | n          | 1      | rest |
//	+-------+------+------+--------------+--------------+-----+------------+--------+------+
const (
	sealFormat = 1
	sealSize   = 1 + 4
	fixedSize  = 8 + 8 + 1 + 8 + 4 + 4
)

var (
	errNoSeal     = errors.New("it has no checksum")
	errWrongSum   = errors.New("its checksum differs")
	errWrongIndex = errors.New("it holds another entry")
)

func crcTable() *crc32.Table { return crc32.MakeTable(crc32.Castagnoli) }

// seal returns the entry as it is stored. It shares Data with l.
func seal(l *raft.Log) raft.Log {
	sealed := *l
	ext := make([]byte, 0, len(l.Extensions)+sealSize)
	ext = append(append(ext, l.Extensions...), sealFormat)
	sealed.Extensions = binary.LittleEndian.AppendUint32(ext, sum(l, ext))
	return sealed
}

// unseal checks a stored entry, which must be the one at index, and removes its seal.
func unseal(l *raft.Log, index uint64) error {
	n := len(l.Extensions) - sealSize
	if n < 0 {
		return errNoSeal
	}
	ext, stored := l.Extensions[:n+1], binary.LittleEndian.Uint32(l.Extensions[n+1:])
	if sum(l, ext) != stored {
		return errWrongSum
	}
	// The sum covers the format: an unknown one was written by a later version.
	if ext[n] != sealFormat {
		return fmt.Errorf("its checksum is of format %d, this program knows %d", ext[n], sealFormat)
	}
	if l.Index != index {
		return fmt.Errorf("%w: index %d", errWrongIndex, l.Index)
	}
	l.Extensions = nilIfEmpty(l.Extensions[:n:n])
	l.Data = nilIfEmpty(l.Data)
	l.AppendedAt = l.AppendedAt.UTC() // bolt's codec stores the zone too, which the sum does not cover
	return nil
}

// sum is the checksum of l; ext is its Extensions with the format after them.
func sum(l *raft.Log, ext []byte) uint32 {
	crc := crc32.Update(0, crcTable(), appendFixed(make([]byte, 0, fixedSize), l, len(ext)-1))
	crc = crc32.Update(crc, crcTable(), ext)
	return crc32.Update(crc, crcTable(), l.Data)
}

// appendFixed appends the fields of fixed size to b, and then n, the size of the Extensions.
func appendFixed(b []byte, l *raft.Log, n int) []byte {
	b = binary.LittleEndian.AppendUint64(b, l.Index)
	b = binary.LittleEndian.AppendUint64(b, l.Term)
	b = append(b, byte(l.Type))
	b = binary.LittleEndian.AppendUint64(b, uint64(l.AppendedAt.Unix()))
	b = binary.LittleEndian.AppendUint32(b, uint32(l.AppendedAt.Nanosecond()))
	return binary.LittleEndian.AppendUint32(b, uint32(n))
}

// nilIfEmpty makes entries that were read from the journal and from bolt equal.
func nilIfEmpty(b []byte) []byte {
	if len(b) == 0 {
		return nil
	}
	return b
}
