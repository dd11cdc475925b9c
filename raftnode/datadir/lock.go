package datadir

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// acquire locks DIR/LOCK for this process alone. Closing the file releases the lock,
// and so does the end of the process, however it ends.
func acquire(dir string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, LockFile), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, readOnly("lock "+dir, err)
	}
	if err := flock(f, dir, unix.LOCK_EX); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	// The pid only names the holder in ErrInUse; the flock alone decides.
	if err := writePID(f); err != nil {
		return nil, errors.Join(readOnly("lock "+dir, err), f.Close())
	}
	return f, nil
}

// acquireShared keeps writers out until release. A folder without a LOCK was never
// opened, so nobody can hold it.
func acquireShared(dir string) (release func(), err error) {
	if _, err := os.Stat(dir); err != nil {
		return nil, fmt.Errorf("inspect %s: %w: %w", dir, ErrNoFolder, err)
	}
	f, err := os.Open(filepath.Join(dir, LockFile))
	if errors.Is(err, fs.ErrNotExist) {
		return func() {}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("inspect %s: %w", dir, err)
	}
	// A shared lock needs no write access: the folder may be on a read-only volume.
	if err := flock(f, dir, unix.LOCK_SH); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return func() { f.Close() }, nil
}

// flock takes the lock that how names without waiting, and fails with ErrInUse if another process holds it.
func flock(f *os.File, dir string, how int) error {
	err := unix.Flock(int(f.Fd()), how|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return fmt.Errorf("lock %s: %w%s: stop that process or use another folder", dir, ErrInUse, holder(f))
	}
	if err != nil {
		return fmt.Errorf("lock %s: %w", dir, err)
	}
	return nil
}

// holder names the process whose pid is in the lock file, if there is one.
func holder(f *os.File) string {
	buf := make([]byte, 32)
	// A pid that cannot be read is left out of the message.
	n, _ := f.ReadAt(buf, 0)
	pid, err := strconv.Atoi(strings.TrimSpace(string(buf[:n])))
	if err != nil {
		return ""
	}
	return fmt.Sprintf(" by process %d", pid)
}

// writePID replaces the file's content with this process's pid.
func writePID(f *os.File) error {
	// The pid of the process before may be longer than this one's.
	if err := f.Truncate(0); err != nil {
		return err
	}
	_, err := f.WriteAt(fmt.Appendln(nil, os.Getpid()), 0)
	return err
}

// readOnly wraps err as ErrReadOnly where the folder may not be written.
func readOnly(operation string, err error) error {
	if errors.Is(err, unix.EROFS) || errors.Is(err, fs.ErrPermission) {
		return fmt.Errorf("%s: %w: %w: make it writable for this user", operation, ErrReadOnly, err)
	}
	return fmt.Errorf("%s: %w", operation, err)
}
