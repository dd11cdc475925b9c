package frame

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"sync"

	"github.com/klauspost/compress/s2"
	"github.com/klauspost/compress/zstd"
)

const (
	codecNone byte = 0
	codecZstd byte = 1
	codecS2   byte = 2

	// worthCompressing is the size below which a block is kept as it is.
	worthCompressing = 512
	// worthZstd is the size below which s2 is used: zstd's tables take longer to fill
	// than a small block does to send.
	worthZstd = 32 << 10
	// maxRatio bounds what a compressed body may claim to unfold to; the rare
	// block that shrinks more is kept as it is.
	maxRatio = 1024
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// The coders are made once, on first use; EncodeAll and DecodeAll may be called
// by many goroutines.
var (
	zstdEncoder = sync.OnceValue(func() *zstd.Encoder {
		enc, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(2),
			zstd.WithEncoderCRC(false), zstd.WithWindowSize(1<<20))
		return must(enc, err)
	})
	zstdDecoder = sync.OnceValue(func() *zstd.Decoder {
		dec, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(0), zstd.WithDecoderMaxMemory(MaxBlockBytes), zstd.WithDecodeAllCapLimit(true))
		return must(dec, err)
	})
)

func must[T any](v T, err error) T {
	if err != nil {
		panic(fmt.Sprintf("frame: fixed zstd options refused: %v", err))
	}
	return v
}

// appendBody appends a block's body made of raw, compressed if that pays.
func appendBody(b, raw []byte, compress bool) []byte {
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
	if err != nil || h.Skippable || !h.HasFCS || h.FrameContentSize != uint64(size) || !plausible(data, size) || frameSize(data, &h) != len(data) {
		return nil, fmt.Errorf("frame: block: %w: %d bytes that claim to be %d", ErrCorrupt, len(data), size)
	}
	raw, err := zstdDecoder().DecodeAll(data, make([]byte, 0, size))
	if err != nil || len(raw) != size {
		return nil, fmt.Errorf("frame: block: %w: %d bytes, want %d: %v", ErrCorrupt, len(raw), size, err)
	}
	return raw, nil
}

// plausible holds data against what appendBody makes: smaller than its content, though
// not beyond measure. What does not unfold to content has no place in the log.
func plausible(data []byte, size int) bool { return len(data) < size && size <= maxRatio*len(data) }

// frameSize is where the first zstd frame ends: a decoder would pass over others, and
// over what frames may be skipped, without a word.
func frameSize(data []byte, h *zstd.Header) int {
	const blockHeader, checksum, repeated = 3, 4, 1
	at := h.HeaderSize
	for last := false; !last; {
		if len(data)-at < blockHeader {
			return -1
		}
		b := uint32(data[at]) | uint32(data[at+1])<<8 | uint32(data[at+2])<<16
		last = b&1 != 0
		at += blockHeader
		if b>>1&3 == repeated {
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

// uns2 decompresses to exactly size bytes, which the data itself has to claim too.
func uns2(data []byte, size int) ([]byte, error) {
	n, err := s2.DecodedLen(data)
	if err != nil || n != size || !plausible(data, size) {
		return nil, fmt.Errorf("frame: block: %w: %d bytes that claim to be %d", ErrCorrupt, len(data), size)
	}
	raw, err := s2.Decode(make([]byte, 0, size), data)
	if err != nil || len(raw) != size {
		return nil, fmt.Errorf("frame: block: %w: %d bytes, want %d: %v", ErrCorrupt, len(raw), size, err)
	}
	return raw, nil
}
