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

// Read unpacks a snapshot into dir, which must not exist. Every file is verified
// while it is written; files, dir and its parent are synced before Read returns.
// After an error dir does not exist. A snapshot that holds an incident is refused with ErrIncident.
func Read(ctx context.Context, r io.Reader, dir string) (Meta, error) {
	return read(ctx, r, dir, func(m Meta) error {
		if m.Slice != nil {
			return ErrIncident
		}
		return nil
	})
}

// ReadIncident is Read of an incident, and refuses anything else with ErrNoIncident.
func ReadIncident(ctx context.Context, r io.Reader, dir string) (Meta, error) {
	return read(ctx, r, dir, func(m Meta) error {
		switch {
		case m.Slice == nil:
			return ErrNoIncident
		case m.Slice.Version != SliceVersion:
			return fmt.Errorf("%w: an incident of version %d, this program reads %d", ErrUnsupported, m.Slice.Version,
				SliceVersion)
		}
		return nil
	})
}

// read unpacks a snapshot whose meta is admitted.
func read(ctx context.Context, r io.Reader, dir string, admits func(Meta) error) (meta Meta, err error) {
	if err := os.Mkdir(dir, 0o700); err != nil {
		if errors.Is(err, os.ErrExist) {
			err = ErrExists
		}
		return Meta{}, fmt.Errorf("read into %s: %w", dir, err)
	}
	defer func() {
		if err != nil { // a snapshot that is damaged or incomplete is not kept
			err = errors.Join(err, os.RemoveAll(dir))
		}
	}()
	info, err := readAll(ctx, r, folder(dir), admits)
	if err != nil {
		return Meta{}, err
	}

	// The files are synced. Their names are durable once dir is, and dir once its parent is.
	if err := errors.Join(syncDir(dir), syncDir(filepath.Dir(dir))); err != nil {
		return Meta{}, fmt.Errorf("read into %s: %w", dir, err)
	}
	return info.Meta, nil
}

// Verify reads a whole snapshot and keeps nothing.
func Verify(r io.Reader) (Meta, error) {
	info, err := readAll(context.Background(), r, discard{}, func(Meta) error { return nil })
	return info.Meta, err
}

// Inspect reads and verifies the header alone.
func Inspect(r io.Reader) (Info, error) {
	s := scanner{r: r, whole: sha256.New()}
	return s.header()
}

// target creates the files of a snapshot.
type target interface {
	create(name string) (pending, error)
}

// pending is a file that is being written: commit makes it durable, abort abandons it.
type pending interface {
	io.Writer
	commit() error
	abort()
}

// folder is the target that writes files into a folder, which exists.
type folder string

type pendingFile struct{ *os.File }

func (d folder) create(name string) (pending, error) {
	f, err := os.OpenFile(filepath.Join(string(d), name), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, err
	}
	return pendingFile{f}, nil
}

func (f pendingFile) commit() error { return errors.Join(f.Sync(), f.Close()) }
func (f pendingFile) abort()        { f.Close() } // Read removes the folder

// discard is the target that keeps nothing.
type discard struct{}

func (discard) create(string) (pending, error) { return discard{}, nil }
func (discard) Write(p []byte) (int, error)    { return len(p), nil }
func (discard) commit() error                  { return nil }
func (discard) abort()                         {}

// scanner reads a stream and hashes what it reads.
type scanner struct {
	r     io.Reader
	whole hash.Hash
}

// readAll reads and verifies a whole snapshot whose meta is admitted, and creates its files in to.
func readAll(ctx context.Context, r io.Reader, to target, admits func(Meta) error) (Info, error) {
	s := scanner{r: ctxReader{ctx, r}, whole: sha256.New()}
	info, err := s.header()
	if err != nil {
		return Info{}, err
	}
	if err := admits(info.Meta); err != nil {
		return Info{}, fmt.Errorf("read a snapshot: %w", err)
	}

	// left is what the header has promised and no file has claimed yet.
	left, last := info.Bytes, ""
	for range info.Files {
		f, err := s.readFileHead(left, last)
		if err != nil {
			return Info{}, err
		}
		if err := s.copyContent(f, to); err != nil {
			return Info{}, err
		}
		left, last = left-f.size, f.name
	}
	if left > 0 {
		return Info{}, corrupt("%d bytes of files are missing", left)
	}
	return info, s.trailer()
}

// take reads exactly n bytes that are not content. The caller bounds n.
func (s *scanner) take(n int, what string) ([]byte, error) {
	b := make([]byte, n)
	if _, err := io.ReadFull(s.r, b); err != nil {
		return nil, cutError(err, what)
	}
	s.whole.Write(b)
	return b, nil
}

// cutError returns an ErrCorrupt if a stream ended too early, and the reader's own error
// otherwise.
func cutError(err error, what string) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return corrupt("cut in %s", what)
	}
	return fmt.Errorf("read %s: %w", what, err)
}

// header reads and verifies the header and the meta.
func (s *scanner) header() (Info, error) {
	head, err := s.take(headerSize, "header")
	if err != nil {
		return Info{}, err
	}
	if string(head[:len(magic)]) != magic {
		return Info{}, corrupt("it opens with %q, not with %q", head[:len(magic)], magic)
	}

	// The length has to be believed before the checksum can be computed, so it is bounded.
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

	// The header is intact. It may still be of a newer version, or invalid.
	if v := binary.LittleEndian.Uint16(head[6:]); v != Version {
		return Info{}, fmt.Errorf("read a snapshot: %w: version %d, this program reads %d", ErrUnsupported, v, Version)
	}
	info := Info{Files: binary.LittleEndian.Uint32(head[12:]), Bytes: binary.LittleEndian.Uint64(head[16:])}
	if info.Files > maxFiles || info.Bytes > maxBytes {
		return Info{}, corrupt("%d files of %d bytes", info.Files, info.Bytes)
	}
	if err := json.NewDecoder(bytes.NewReader(meta)).Decode(&info.Meta); err != nil {
		return Info{}, corrupt("meta: %v", err)
	}
	return info, nil
}

// readFileHead reads and verifies a file's head. Names ascend, so none occurs twice.
func (s *scanner) readFileHead(left uint64, last string) (file, error) {
	head, err := s.take(entryFixed, "file head")
	if err != nil {
		return file{}, err
	}
	// head[1] is the length of the name.
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
		return file{}, corrupt("file %q of %d bytes after %q with %d bytes left", f.name, f.size, last, left)
	}
	return f, nil
}

// copyContent copies a file's content to the target and keeps it if its checksum is right.
func (s *scanner) copyContent(f file, to target) error {
	out, err := to.create(f.name)
	if err != nil {
		return fmt.Errorf("create %s: %w", f.name, err)
	}

	// Copy as much as the head has promised; its own checksum and the one of the whole see the same bytes.
	sum := crc32.New(castagnoli)
	_, err = io.CopyN(io.MultiWriter(sum, s.whole, out), s.r, int64(f.size))
	if err != nil {
		out.abort()
		return cutError(err, f.name)
	}

	// Only a file whose checksum is right is committed.
	want, err := s.take(crcSize, f.name)
	if err == nil && binary.LittleEndian.Uint32(want) != sum.Sum32() {
		err = corrupt("checksum of %s differs", f.name)
	}
	if err != nil {
		out.abort()
		return err
	}
	if err := out.commit(); err != nil {
		return fmt.Errorf("sync %s: %w", f.name, err)
	}
	return nil
}

// trailer reads the end of the stream and compares the digest of everything before it.
func (s *scanner) trailer() error {
	tag, err := s.take(1, "trailer")
	if err != nil {
		return err
	}
	if tag[0] != tagEnd {
		return corrupt("no trailer")
	}

	// The digest is read without take, which would add it to the sum.
	want := s.whole.Sum(nil)
	var got [trailerSize - 1]byte
	if _, err := io.ReadFull(s.r, got[:]); err != nil {
		return cutError(err, "trailer")
	}
	if !bytes.Equal(got[:], want) {
		return corrupt("SHA-256 of the whole differs")
	}

	// A snapshot ends with its trailer: what follows would be in no digest.
	var more [1]byte
	n, err := io.ReadFull(s.r, more[:])
	if n > 0 {
		return corrupt("bytes after the trailer")
	}
	if !errors.Is(err, io.EOF) {
		return fmt.Errorf("read end: %w", err)
	}
	return nil
}

// syncDir makes the names in a folder durable.
func syncDir(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
