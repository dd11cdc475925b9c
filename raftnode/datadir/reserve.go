package datadir

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// Reserve holds that many bytes of the disk in DIR/reserve, as allocated blocks,
// so ReleaseReserve frees room to start and trim on a full disk.
// An existing reserve is resized. On error there is no reserve.
func (d *Dir) Reserve(bytes int64) error {
	if bytes <= 0 {
		return d.ReleaseReserve()
	}
	if err := d.allocate(bytes); err != nil {
		err = fmt.Errorf("reserve %d bytes in %s: %w", bytes, d.path, err)
		return errors.Join(err, d.ReleaseReserve())
	}
	return nil
}

// allocate gives DIR/reserve exactly that many bytes, and makes them and its name durable.
func (d *Dir) allocate(bytes int64) error {
	f, err := os.OpenFile(d.Path(ReserveFile), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	// Truncate frees what is too much, or leaves a hole; fill gives the hole its blocks.
	err = f.Truncate(bytes)
	if err == nil {
		err = fill(f, bytes)
	}
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close(), SyncDir(d.path))
}

// writeZeros allocates the first bytes of f on file systems without a call for it.
func writeZeros(f *os.File, bytes int64) error {
	// What is written takes blocks, where a mere size would not.
	zeros := make([]byte, 1<<20)
	for off := int64(0); off < bytes; off += int64(len(zeros)) {
		if _, err := f.WriteAt(zeros[:min(int64(len(zeros)), bytes-off)], off); err != nil {
			return err
		}
	}
	return nil
}

// ReleaseReserve removes the reserve, which frees its blocks. Without a reserve it does nothing.
func (d *Dir) ReleaseReserve() error {
	// The folder is synced afterwards, so the blocks stay free after a crash.
	err := os.Remove(d.Path(ReserveFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("release reserve of %s: %w", d.path, err)
	}
	return SyncDir(d.path)
}

// Space returns how many bytes this user may still write on the folder's volume, without the reserve,
// and how large the volume is.
func (d *Dir) Space() (free, size uint64, err error) {
	// Bavail leaves out what is kept for the superuser.
	var st unix.Statfs_t
	if err := unix.Statfs(d.path, &st); err != nil {
		return 0, 0, fmt.Errorf("free bytes of %s: %w", d.path, err)
	}
	return uint64(st.Bavail) * uint64(st.Bsize), st.Blocks * uint64(st.Bsize), nil
}
