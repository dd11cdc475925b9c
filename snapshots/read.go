package snapshots

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
)

// Read takes a snapshot apart into dir, which must not exist. Every file is
// verified as it lands; files, dir and its parent are synced before it returns.
// On error dir does not exist.
func Read(ctx context.Context, r io.Reader, dir string) (meta Meta, err error) {
	if err := os.Mkdir(dir, 0o700); err != nil {
		if errors.Is(err, os.ErrExist) {
			err = ErrExists
		}
		return Meta{}, fmt.Errorf("snapshots: read into %s: %w", dir, err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.RemoveAll(dir))
		}
	}()
	info, err := scan(ctx, r, folder(dir))
	if err != nil {
		return Meta{}, err
	}
	if err := errors.Join(syncDir(dir), syncDir(filepath.Dir(dir))); err != nil {
		return Meta{}, fmt.Errorf("snapshots: read into %s: %w", dir, err)
	}
	return info.Meta, nil
}

// Verify reads a whole snapshot and keeps nothing.
func Verify(r io.Reader) (Meta, error) {
	info, err := scan(context.Background(), r, discard{})
	return info.Meta, err
}

// Inspect reads the header alone, which it verifies; the files stay unread.
func Inspect(r io.Reader) (Info, error) {
	s := scanner{r: r, whole: sha256.New()}
	return s.header()
}

// target takes verified files.
type target interface {
	create(name string) (landing, error)
}

// landing is one file being written; land makes it durable, drop gives it up.
type landing interface {
	io.Writer
	land() error
	drop()
}

type folder string

type landingFile struct{ *os.File }

func (d folder) create(name string) (landing, error) {
	f, err := os.OpenFile(filepath.Join(string(d), name), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, err
	}
	return landingFile{f}, nil
}

func (f landingFile) land() error { return errors.Join(f.Sync(), f.Close()) }
func (f landingFile) drop()       { f.Close() }

type discard struct{}

func (discard) create(string) (landing, error) { return discard{}, nil }
func (discard) Write(p []byte) (int, error)    { return len(p), nil }
func (discard) land() error                    { return nil }
func (discard) drop()                          {}

// scanner reads a stream and hashes what it reads.
type scanner struct {
	r     io.Reader
	whole hash.Hash
}

func scan(ctx context.Context, r io.Reader, to target) (Info, error) {
	s := scanner{r: bounded{ctx, r}, whole: sha256.New()}
	info, err := s.header()
	if err != nil {
		return Info{}, err
	}
	left, last := info.Bytes, ""
	for range info.Files {
		f, err := s.entry(left, last)
		if err != nil {
			return Info{}, err
		}
		if err := s.content(f, to); err != nil {
			return Info{}, err
		}
		left, last = left-f.size, f.name
	}
	if left > 0 {
		return Info{}, corrupt("%d bytes of files are missing", left)
	}
	return info, s.trailer()
}

// take reads exactly n bytes of structure; n is bounded by the caller.
func (s *scanner) take(n int, what string) ([]byte, error) {
	b := make([]byte, n)
	if _, err := io.ReadFull(s.r, b); err != nil {
		return nil, cut(err, what)
	}
	s.whole.Write(b)
	return b, nil
}

// cut names the end of a stream as damage; a failing reader stays itself.
func cut(err error, what string) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return corrupt("cut in %s", what)
	}
	return fmt.Errorf("snapshots: read %s: %w", what, err)
}

func (s *scanner) header() (Info, error) {
	head, err := s.take(headerSize, "header")
	if err != nil {
		return Info{}, err
	}
	if string(head[:len(magic)]) != magic {
		return Info{}, corrupt("it opens with %q, not with %q", head[:len(magic)], magic)
	}
	size := binary.LittleEndian.Uint32(head[8:])
	if size > maxMeta {
		return Info{}, corrupt("meta of %d bytes, at most %d", size, maxMeta)
	}
	meta, err := s.take(int(size), "meta")
	if err != nil {
		return Info{}, err
	}
	sum := crc32.Update(crc32.Checksum(head[:prefixSize], castagnoli), castagnoli, meta)
	if sum != binary.LittleEndian.Uint32(head[prefixSize:]) {
		return Info{}, corrupt("checksum of the header differs")
	}
	if v := binary.LittleEndian.Uint16(head[6:]); v != version {
		return Info{}, fmt.Errorf("snapshots: read: %w: version %d, this program reads %d", ErrUnsupported, v, version)
	}
	info := Info{Files: binary.LittleEndian.Uint32(head[12:]), Bytes: binary.LittleEndian.Uint64(head[16:])}
	if info.Files > maxFiles || info.Bytes > maxBytes {
		return Info{}, corrupt("%d files of %d bytes", info.Files, info.Bytes)
	}
	d := json.NewDecoder(bytes.NewReader(meta))
	if err := d.Decode(&info.Meta); err != nil {
		return Info{}, corrupt("meta: %v", err)
	}
	return info, nil
}

// entry reads a file's head. Names rise, so none comes twice.
func (s *scanner) entry(left uint64, last string) (file, error) {
	head, err := s.take(entryFixed, "file head")
	if err != nil {
		return file{}, err
	}
	rest, err := s.take(int(head[1])+crcSize, "file head")
	if err != nil {
		return file{}, err
	}
	name, sum := rest[:head[1]], rest[head[1]:]
	if crc32.Update(crc32.Checksum(head, castagnoli), castagnoli, name) != binary.LittleEndian.Uint32(sum) {
		return file{}, corrupt("checksum of a file's head differs")
	}
	f := file{name: string(name), size: binary.LittleEndian.Uint64(head[2:])}
	if head[0] != tagFile || !validName(f.name) || f.name <= last || f.size > left {
		return file{}, corrupt("file %q of %d bytes behind %q with %d bytes left", f.name, f.size, last, left)
	}
	return f, nil
}

func (s *scanner) content(f file, to target) error {
	out, err := to.create(f.name)
	if err != nil {
		return fmt.Errorf("snapshots: create %s: %w", f.name, err)
	}
	sum := crc32.New(castagnoli)
	_, err = io.CopyN(io.MultiWriter(sum, s.whole, out), s.r, int64(f.size))
	if err != nil {
		out.drop()
		return cut(err, f.name)
	}
	want, err := s.take(crcSize, f.name)
	if err == nil && binary.LittleEndian.Uint32(want) != sum.Sum32() {
		err = corrupt("checksum of %s differs", f.name)
	}
	if err != nil {
		out.drop()
		return err
	}
	if err := out.land(); err != nil {
		return fmt.Errorf("snapshots: sync %s: %w", f.name, err)
	}
	return nil
}

func (s *scanner) trailer() error {
	if tag, err := s.take(1, "trailer"); err != nil || tag[0] != tagEnd {
		return errors.Join(err, corrupt("no trailer"))
	}
	want := s.whole.Sum(nil)
	var got [trailerSize - 1]byte
	if _, err := io.ReadFull(s.r, got[:]); err != nil {
		return cut(err, "trailer")
	}
	if !bytes.Equal(got[:], want) {
		return corrupt("SHA-256 of the whole differs")
	}
	var more [1]byte
	if n, err := io.ReadFull(s.r, more[:]); n > 0 {
		return corrupt("bytes behind the trailer")
	} else if !errors.Is(err, io.EOF) {
		return fmt.Errorf("snapshots: read end: %w", err)
	}
	return nil
}

func syncDir(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
