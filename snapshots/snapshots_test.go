package snapshots

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/google/go-cmp/cmp"
)

func someMeta() Meta {
	return Meta{
		ClusterID: "c", NodeID: "n1", Index: 42, Term: 3, ConfigurationIndex: 7, Configuration: []byte{1, 2},
		LastOffset: 99, Digest: "ab", FeatureLevel: 1, Created: time.Unix(1700000000, 5).UTC(),
	}
}

// checkpoint makes a folder such as a state checkpoint is, including an empty file.
func checkpoint(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	rng := rand.NewChaCha8([32]byte{1})
	for name, size := range map[string]int{"000012.sst": 700, "CURRENT": 0, "MANIFEST-000001": 90, "OPTIONS-000003": 1} {
		content := make([]byte, size)
		rng.Read(content)
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func written(t testing.TB, dir string) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := Write(context.Background(), &b, dir, someMeta()); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func contents(t *testing.T, dir string) map[string]string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, e := range entries {
		b, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		got[e.Name()] = string(b)
	}
	return got
}

func TestWhatIsWrittenIsReadAndSizeIsExact(t *testing.T) {
	dir := checkpoint(t)
	stream := written(t, dir)
	size, err := Size(dir, someMeta())
	if err != nil || size != int64(len(stream)) {
		t.Fatalf("Size = %d, %v; the stream has %d bytes", size, err, len(stream))
	}
	to := filepath.Join(t.TempDir(), "in")
	meta, err := Read(t.Context(), bytes.NewReader(stream), to)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(someMeta(), meta); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff(contents(t, dir), contents(t, to)); d != "" {
		t.Error(d)
	}
	if meta, err := Verify(bytes.NewReader(stream)); err != nil || meta.Index != 42 {
		t.Errorf("Verify: %+v, %v", meta, err)
	}
	info, err := Inspect(bytes.NewReader(stream[:500]))
	if err != nil || info.Files != 4 || info.Bytes != 791 {
		t.Errorf("Inspect of the beginning: %+v, %v", info, err)
	}
	if _, err := Read(t.Context(), bytes.NewReader(stream), to); !errors.Is(err, ErrExists) {
		t.Errorf("reading over an existing folder: %v", err)
	}
}

// requireFound reads a damaged stream: the error names the damage, and no folder is left.
func requireFound(t *testing.T, parent string, damaged []byte, what string, at int) {
	t.Helper()
	to := filepath.Join(parent, "in")
	_, err := Read(t.Context(), bytes.NewReader(damaged), to)
	if !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrUnsupported) {
		t.Fatalf("%s at %d: %v", what, at, err)
	}
	if _, err := os.Stat(to); !errors.Is(err, os.ErrNotExist) {
		t.Fatalf("%s at %d left %s: %v", what, at, to, err)
	}
}

func TestEveryFlippedBitIsFound(t *testing.T) {
	stream, parent := written(t, checkpoint(t)), t.TempDir()
	rng := rand.New(rand.NewPCG(7, 7))
	for at := range stream {
		damaged := bytes.Clone(stream)
		damaged[at] ^= 1 << rng.IntN(8)
		requireFound(t, parent, damaged, "flip", at)
	}
}

func TestEveryCutAndEveryAppendedByteIsFound(t *testing.T) {
	stream, parent := written(t, checkpoint(t)), t.TempDir()
	for at := range stream {
		requireFound(t, parent, stream[:at], "cut", at)
	}
	requireFound(t, parent, append(bytes.Clone(stream), 0), "byte after the end", len(stream))
}

// forged is a stream whose checksums are right and whose claims are wrong.
func forged(t *testing.T, claimed Info, files ...file) []byte {
	t.Helper()
	head, _, err := claimed.encode()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		head = append(head, f.encodeHead()...)
		head = append(head, make([]byte, crcSize)...)
	}
	return head
}

func TestForgedClaimsAreRefused(t *testing.T) {
	parent := t.TempDir()
	for name, stream := range map[string][]byte{
		"name with a separator":       forged(t, Info{Files: 1}, file{name: "../x"}),
		"absolute name":               forged(t, Info{Files: 1}, file{name: "/etc/x"}),
		"parent":                      forged(t, Info{Files: 1}, file{name: ".."}),
		"hidden":                      forged(t, Info{Files: 1}, file{name: ".x"}),
		"empty name":                  forged(t, Info{Files: 1}, file{}),
		"a name twice":                forged(t, Info{Files: 2}, file{name: "a"}, file{name: "a"}),
		"more bytes than the header":  forged(t, Info{Files: 1, Bytes: 9}, file{name: "a", size: 10}),
		"fewer bytes than the header": forged(t, Info{Files: 1, Bytes: 9}, file{name: "a"}),
		"too many files":              forged(t, Info{Files: maxFiles + 1}),
		"too many bytes":              forged(t, Info{Bytes: maxBytes + 1}),
	} {
		t.Run(name, func(t *testing.T) { requireFound(t, parent, stream, name, 0) })
	}
	if left, _ := os.ReadDir(parent); len(left) > 0 {
		t.Errorf("files are left: %v", left)
	}
}

func TestAFolderThatIsNoCheckpointIsNotWritten(t *testing.T) {
	dir := checkpoint(t)
	if err := os.Symlink("/etc/passwd", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	err := Write(t.Context(), &bytes.Buffer{}, dir, someMeta())
	if err == nil || !strings.Contains(err.Error(), "link") {
		t.Errorf("a symbolic link was written: %v", err)
	}
}

func TestACancelledReadLeavesNothing(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	to := filepath.Join(t.TempDir(), "in")
	if _, err := Read(ctx, bytes.NewReader(written(t, checkpoint(t))), to); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	if _, err := os.Stat(to); !errors.Is(err, os.ErrNotExist) {
		t.Error("the folder is left")
	}
}

// Only the snapshot itself can be corrupt: an error of the reader is not damage, wherever it happens.
func TestAnErrorOfTheReaderIsNotDamage(t *testing.T) {
	stream, broken := written(t, checkpoint(t)), errors.New("connection reset")
	for at := range stream {
		_, err := Verify(io.MultiReader(bytes.NewReader(stream[:at]), iotest.ErrReader(broken)))
		if !errors.Is(err, broken) || errors.Is(err, ErrCorrupt) {
			t.Fatalf("after %d of %d bytes: %v", at, len(stream), err)
		}
	}
}

func FuzzRead(f *testing.F) {
	stream := written(f, checkpoint(f))
	f.Add(stream)
	f.Add(stream[:100])
	f.Fuzz(func(t *testing.T, data []byte) {
		kept := memory{}
		info, err := readAll(t.Context(), bytes.NewReader(data), kept, func(Meta) error { return nil })
		total := 0
		for name, b := range kept {
			total += b.Len()
			if !validName(name) {
				t.Fatalf("a file %q would have been made", name)
			}
		}
		if total > len(data) || (err == nil && uint64(total) != info.Bytes) {
			t.Fatalf("%d bytes of files out of %d, the header has %d", total, len(data), info.Bytes)
		}
	})
}

// memory is a target without a disk, so fuzzing does not wait for syncs.
type memory map[string]*memoryFile

type memoryFile struct{ bytes.Buffer }

func (m memory) create(name string) (pending, error) {
	f := &memoryFile{}
	m[name] = f
	return f, nil
}

func (*memoryFile) commit() error { return nil }
func (*memoryFile) abort()        {}
