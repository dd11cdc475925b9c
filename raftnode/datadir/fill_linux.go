package datadir

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// fill allocates the blocks of the first bytes of f.
func fill(f *os.File, bytes int64) error {
	err := unix.Fallocate(int(f.Fd()), 0, 0, bytes)
	if errors.Is(err, unix.EOPNOTSUPP) {
		return writeZeros(f, bytes)
	}
	return err
}
