package store

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// Pebble takes the first record of its manifest that it cannot read for the end of the manifest,
// opens what the records before describe, and deletes all other files. That is right for a record
// that a crash has torn, and silently loses data for a flipped bit with records after it. So the
// manifest is read here first. It is a file in LevelDB's log format: blocks of 32 KiB, each with
// chunks of
//
//	4  masked CRC-32C of type and data, little endian
//	2  length of the data, little endian
//	1  type: 1 full, 2 first, 3 middle, 4 last
//	   data
//
// and zeros where no header fits any more.
const (
	manifestBlock  = 32 << 10
	manifestHeader = 7
)

// checkManifest refuses a database whose manifest has something readable after something
// unreadable, or which has no manifest.
func checkManifest(fs vfs.FS, dir string) error {
	desc, err := pebble.Peek(dir, fs)
	if err != nil {
		return err
	}
	// Pebble would create a database here.
	if !desc.Exists {
		return errors.New("it holds no database")
	}

	// Pebble has to find the whole manifest readable, or cut at its end.
	f, err := fs.Open(desc.ManifestFilename)
	if err != nil {
		return err
	}
	defer f.Close()
	data, err := io.ReadAll(f)
	if err != nil {
		return err
	}
	if at, broken := manifestDamage(data); broken {
		return fmt.Errorf("%s is unreadable at byte %d, and continues after it", fs.PathBase(desc.ManifestFilename), at)
	}
	return nil
}

// manifestDamage returns where a manifest cannot be read although it continues. A manifest
// without a first record is damaged too.
func manifestDamage(data []byte) (at int, broken bool) {
	pos := 0
	for pos < len(data) {
		// Zeros at the end of a block, where no header fits.
		if left := manifestBlock - pos%manifestBlock; left < manifestHeader {
			pos += left
			continue
		}
		size, valid := manifestChunk(data, pos)
		if !valid {
			// What cannot be read is torn by a crash if nothing readable follows it.
			return pos, pos == 0 || anyChunk(data[pos+1:], pos+1)
		}
		pos += size
	}
	return 0, len(data) == 0
}

// anyChunk reports whether a whole chunk is anywhere in tail, which begins at pos of the file.
func anyChunk(tail []byte, pos int) bool {
	whole := append(make([]byte, pos%manifestBlock), tail...)
	for i := pos % manifestBlock; i < len(whole); i++ {
		if _, valid := manifestChunk(whole, i); valid {
			return true
		}
	}
	return false
}

// manifestChunk returns the size of the chunk at pos, and whether it is whole and its checksum is
// right.
func manifestChunk(data []byte, pos int) (size int, valid bool) {
	// A chunk does not cross the end of its block.
	end := min(len(data), pos-pos%manifestBlock+manifestBlock)
	if pos+manifestHeader > end {
		return 0, false
	}
	header := data[pos : pos+manifestHeader]
	size = manifestHeader + int(binary.LittleEndian.Uint16(header[4:]))
	if kind := header[6]; kind < 1 || kind > 4 || pos+size > end {
		return 0, false
	}

	// LevelDB stores checksums masked: rotated by 15 bits, plus a constant.
	crc := crc32.Checksum(data[pos+manifestHeader-1:pos+size], crc32.MakeTable(crc32.Castagnoli))
	masked := (crc>>15 | crc<<17) + 0xa282ead8
	return size, masked == binary.LittleEndian.Uint32(header)
}
