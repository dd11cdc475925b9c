package frame

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"sync"

	"github.com/klauspost/compress/s2"
	"github.com/klauspost/compress/zstd"
)

// The codecs of a body. Their numbers are stored.
const (
	codecNone byte = 0
	codecZstd byte = 1
	codecS2   byte = 2

	// worthCompressing is the size below which a block is not compressed.
	worthCompressing = 512
	// worthZstd is the size below which s2 is used: filling zstd's tables takes longer
	// than sending a small block.
	worthZstd = 32 << 10
	// maxRatio bounds what a compressed body may claim to decompress to; the rare
	// block that shrinks more is not compressed.
	maxRatio = 1024
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// The coders are made once, on first use. EncodeAll and DecodeAll are safe for concurrent
// use.
var (
	zstdEncoder = sync.OnceValue(func() *zstd.Encoder {
		enc, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(2),
			zstd.WithEncoderCRC(false), zstd.WithWindowSize(1<<20))
		return must(enc, err)
	})
	zstdDecoder = sync.OnceValue(func() *zstd.Decoder {
		dec, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(0), zstd.WithDecoderMaxMemory(MaxBlockBytes),
			zstd.WithDecodeAllCapLimit(true))
		return must(dec, err)
	})
)

// must returns v. The options are constants, so an error is a bug of this package.
func must[T any](v T, err error) T {
	if err != nil {
		panic(fmt.Sprintf("fixed zstd options refused: %v", err))
	}
	return v
}

// appendBody appends a block's body made of raw, compressed where that makes it smaller.
func appendBody(b, raw []byte, compress bool) []byte {
	// Codec and checksum are set once they are known.
	at := len(b)
	b = append(b, codecNone, 0, 0, 0, 0)
	b = binary.AppendUvarint(b, uint64(len(raw)))
	data := len(b)

	switch {
	case !compress || len(raw) < worthCompressing:
	case len(raw) < worthZstd:
		lent := scratch.Get().(*[]byte)
		*lent = s2.Encode((*lent)[:cap(*lent)], raw)
		b = append(b, *lent...)
		scratch.Put(lent)
		b[at] = codecS2
	default:
		b = zstdEncoder().EncodeAll(raw, b)
		b[at] = codecZstd
	}

	// What decompress would refuse, or what did not get smaller, is stored uncompressed.
	size := len(b) - data
	if b[at] == codecNone || size >= len(raw) || len(raw) > maxRatio*size {
		b[at] = codecNone
		b = append(b[:data], raw...)
	}
	binary.LittleEndian.PutUint32(b[at+1:], crc32.Checksum(b[at+5:], castagnoli))
	return b
}

// unzstd decompresses to exactly size bytes, a claim that is checked against the
// length of data and against zstd's own header before anything is allocated.
func unzstd(data []byte, size int) ([]byte, error) {
	var h zstd.Header
	err := h.Decode(data)
	// appendBody makes one zstd frame, whose header has the size of its content.
	sized := err == nil && !h.Skippable && h.HasFCS && h.FrameContentSize == uint64(size)
	if !sized || !plausible(data, size) || frameSize(data, &h) != len(data) {
		return nil, fmt.Errorf("block: %w: %d bytes that claim to be %d", ErrCorrupt, len(data), size)
	}
	// The capacity bounds what DecodeAll may write.
	raw, err := zstdDecoder().DecodeAll(data, make([]byte, 0, size))
	if err != nil || len(raw) != size {
		return nil, fmt.Errorf("block: %w: %d bytes, want %d: %v", ErrCorrupt, len(raw), size, err)
	}
	return raw, nil
}

// plausible reports whether appendBody can have made data: it is smaller than its content,
// by at most maxRatio.
func plausible(data []byte, size int) bool { return len(data) < size && size <= maxRatio*len(data) }

// frameSize is where the first zstd frame ends, or -1. A decoder would silently accept more
// frames and skippable ones after it, in which bytes could hide.
func frameSize(data []byte, h *zstd.Header) int {
	const blockHeader, checksum, repeated = 3, 4, 1
	at := h.HeaderSize
	for last := false; !last; {
		if len(data)-at < blockHeader {
			return -1
		}
		// A block header is a last-block bit, two bits of type, and the block's size.
		b := uint32(data[at]) | uint32(data[at+1])<<8 | uint32(data[at+2])<<16
		last = b&1 != 0
		at += blockHeader
		if b>>1&3 == repeated { // one byte; the size is how often it is repeated
			at++
		} else {
			at += int(b >> 3)
		}
	}
	if h.HasCheckSum {
		at += checksum
	}
	return at
}

// uns2 decompresses to exactly size bytes, which s2's own header has to claim too.
func uns2(data []byte, size int) ([]byte, error) {
	// s2 allocates what its header claims: compare that with ours first.
	n, err := s2.DecodedLen(data)
	if err != nil || n != size || !plausible(data, size) {
		return nil, fmt.Errorf("block: %w: %d bytes that claim to be %d", ErrCorrupt, len(data), size)
	}
	raw, err := s2.Decode(make([]byte, 0, size), data)
	if err != nil || len(raw) != size {
		return nil, fmt.Errorf("block: %w: %d bytes, want %d: %v", ErrCorrupt, len(raw), size, err)
	}
	return raw, nil
}
