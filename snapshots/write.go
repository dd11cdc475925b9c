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

// Size is the exact number of bytes that Write will write for the same dir and
// meta, as long as nobody changes the checkpoint's files.
func Size(dir string, meta Meta) (int64, error) {
	files, err := list(dir)
	if err != nil {
		return 0, err
	}
	info := summarise(meta, files)
	_, encoded, err := info.encode()
	if err != nil {
		return 0, err
	}
	return info.size(encoded, files), nil
}

// Write streams the checkpoint in dir to w. It holds one buffer, whatever the
// checkpoint's size.
func Write(ctx context.Context, w io.Writer, dir string, meta Meta) error {
	files, err := list(dir)
	if err != nil {
		return err
	}
	head, _, err := summarise(meta, files).encode()
	if err != nil {
		return err
	}
	whole := sha256.New()
	out := io.MultiWriter(whole, w)
	if _, err := out.Write(head); err != nil {
		return fmt.Errorf("snapshots: write header: %w", err)
	}
	for _, f := range files {
		if err := writeFile(ctx, out, dir, f); err != nil {
			return fmt.Errorf("snapshots: write %s: %w", f.name, err)
		}
	}
	if _, err := out.Write([]byte{tagEnd}); err != nil {
		return fmt.Errorf("snapshots: write trailer: %w", err)
	}
	if _, err := w.Write(whole.Sum(nil)); err != nil {
		return fmt.Errorf("snapshots: write trailer: %w", err)
	}
	return nil
}

func writeFile(ctx context.Context, out io.Writer, dir string, f file) error {
	in, err := os.Open(filepath.Join(dir, f.name))
	if err != nil {
		return err
	}
	defer in.Close()
	if _, err := out.Write(f.encode()); err != nil {
		return err
	}
	sum := crc32.New(castagnoli)
	n, err := io.CopyBuffer(io.MultiWriter(sum, out), bounded{ctx, io.LimitReader(in, int64(f.size))}, make([]byte, 256<<10))
	if err != nil {
		return err
	}
	if uint64(n) != f.size {
		return fmt.Errorf("%d bytes where %d were: the checkpoint changed", n, f.size)
	}
	_, err = out.Write(binary.LittleEndian.AppendUint32(nil, sum.Sum32()))
	return err
}

// bounded ends a copy with its context.
type bounded struct {
	ctx context.Context
	r   io.Reader
}

func (b bounded) Read(p []byte) (int, error) {
	if err := b.ctx.Err(); err != nil {
		return 0, err
	}
	return b.r.Read(p)
}
