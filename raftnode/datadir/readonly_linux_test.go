package datadir

import (
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

// TestAReadOnlyDiskIsNamedAndCanBeInspected mounts one, where it may.
func TestAReadOnlyDiskIsNamedAndCanBeInspected(t *testing.T) {
	dir := t.TempDir()
	if err := unix.Mount("none", dir, "tmpfs", 0, "size=1m"); err != nil {
		t.Skipf("can not mount here: %v", err)
	}
	defer unix.Unmount(dir, unix.MNT_DETACH)
	d := open(t, dir, bolt)
	want := d.Marker()
	d.Close()
	if err := unix.Mount("none", dir, "tmpfs", unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
	_, err := Open(dir, bolt)
	wantError(t, err, ErrReadOnly, dir)
	_, err = Open(filepath.Join(dir, "below"), bolt)
	wantError(t, err, ErrReadOnly, dir)
	got, err := Inspect(dir)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatalf("marker (-want +got):\n%s", diff)
	}
}
