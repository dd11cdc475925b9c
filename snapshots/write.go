package snapshots

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
)

// Size returns the exact number of bytes that Write writes for the same dir and
// meta, provided that nobody changes the checkpoint's files in between.
func Size(dir string, meta Meta) (int64, error) {
	files, err := listFiles(dir)
	if err != nil {
		return 0, err
	}
	info := infoOf(meta, files)

	// The meta is JSON: its length is known once it is encoded.
	_, encoded, err := info.encode()
	if err != nil {
		return 0, err
	}
	return info.streamSize(encoded, files), nil
}

// Write streams the checkpoint in dir to w. It holds one buffer, independent of
// the checkpoint's size.
func Write(ctx context.Context, w io.Writer, dir string, meta Meta) error {
	files, err := listFiles(dir)
	if err != nil {
		return err
	}
	head, _, err := infoOf(meta, files).encode()
	if err != nil {
		return err
	}

	// Everything but the trailer's digest goes into the digest.
	whole := sha256.New()
	out := io.MultiWriter(whole, w)
	if _, err := out.Write(head); err != nil {
		return fmt.Errorf("write header: %w", err)
	}
	for _, f := range files {
		if err := writeFile(ctx, out, dir, f); err != nil {
			return fmt.Errorf("write %s: %w", f.name, err)
		}
	}

	// The trailer distinguishes a complete snapshot from one that was cut between two files.
	if _, err := out.Write([]byte{tagEnd}); err != nil {
		return fmt.Errorf("write trailer: %w", err)
	}
	if _, err := w.Write(whole.Sum(nil)); err != nil {
		return fmt.Errorf("write trailer: %w", err)
	}
	return nil
}

// writeFile streams one file: its head, its content, and the content's checksum.
func writeFile(ctx context.Context, out io.Writer, dir string, f file) error {
	in, err := os.Open(filepath.Join(dir, f.name))
	if err != nil {
		return err
	}
	defer in.Close()
	if _, err := out.Write(f.encodeHead()); err != nil {
		return err
	}

	// The head has promised f.size bytes. Fewer are an error, more are left out.
	sum := crc32.New(castagnoli)
	content := ctxReader{ctx, io.LimitReader(in, int64(f.size))}
	n, err := io.CopyBuffer(io.MultiWriter(sum, out), content, make([]byte, 256<<10))
	if err != nil {
		return err
	}
	if uint64(n) != f.size {
		return fmt.Errorf("%d bytes, expected %d: the checkpoint has changed", n, f.size)
	}
	_, err = out.Write(binary.LittleEndian.AppendUint32(nil, sum.Sum32()))
	return err
}

// ctxReader ends a copy when its context ends.
type ctxReader struct {
	ctx context.Context
	r   io.Reader
}

func (b ctxReader) Read(p []byte) (int, error) {
	if err := b.ctx.Err(); err != nil {
		return 0, err
	}
	return b.r.Read(p)
}
