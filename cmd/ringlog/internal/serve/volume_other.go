//go:build !linux

package serve

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// volume is the file system of a folder.
type volume struct {
	free, size uint64 // bytes, for this user
	volatile   string // not known here
}

// volumeOf looks at the file system of a folder.
func volumeOf(dir string) (volume, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return volume{}, fmt.Errorf("free bytes of %s: %w", dir, err)
	}
	unit := uint64(st.Bsize)
	return volume{free: uint64(st.Bavail) * unit, size: uint64(st.Blocks) * unit}, nil
}
