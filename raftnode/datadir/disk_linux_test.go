package datadir

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

// TestAReadOnlyDiskIsNamedAndCanBeInspected mounts one, where it may.
func TestAReadOnlyDiskIsNamedAndCanBeInspected(t *testing.T) {
	dir := t.TempDir()
	if err := unix.Mount("none", dir, "tmpfs", 0, "size=1m"); err != nil {
		t.Skipf("cannot mount here: %v", err)
	}
	defer unix.Unmount(dir, unix.MNT_DETACH)
	d := open(t, dir, n1)
	want := d.Marker()
	d.Close()
	if err := unix.Mount("none", dir, "tmpfs", unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
	_, err := Open(dir, n1)
	wantError(t, err, ErrReadOnly, dir)
	_, err = Open(filepath.Join(dir, "below"), n1)
	wantError(t, err, ErrReadOnly, dir)
	got, err := Inspect(dir)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatalf("marker (-want +got):\n%s", diff)
	}
}

// A pipe that nobody reads stands for the disk.
func TestTheMarkerIsReadWhileADiskHangs(t *testing.T) {
	d := open(t, t.TempDir(), n1)
	before := d.Marker()
	pipe := d.Path(MarkerFile + ".tmp")
	if err := unix.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	written := make(chan error, 1)
	go func() { written <- d.SetCluster("c1", nil) }()
	for d.mu.TryLock() {
		d.mu.Unlock()
		time.Sleep(time.Millisecond) // until SetCluster writes
	}
	read := make(chan Marker, 1)
	go func() { read <- d.Marker() }()
	select {
	case m := <-read:
		if diff := cmp.Diff(before, m); diff != "" {
			t.Errorf("before it was written (-want +got):\n%s", diff)
		}
	case <-time.After(10 * time.Second):
		t.Error("Marker waits for the disk")
	}
	r, err := os.Open(pipe)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if err := <-written; err == nil || d.Marker().ClusterID != "" {
		t.Errorf("a pipe cannot be synced, yet: %v, %+v", err, d.Marker())
	}
}
