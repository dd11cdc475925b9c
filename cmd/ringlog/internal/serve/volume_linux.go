package serve

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// volume is the file system of a folder.
type volume struct {
	free, size uint64 // bytes, for this user
	volatile   string // what it is if it does not keep what is synced, or leaves that to others
}

// volatiles are file systems whose syncs promise less than a disk's.
var volatiles = map[int64]string{
	unix.TMPFS_MAGIC: "tmpfs", unix.RAMFS_MAGIC: "ramfs", unix.NFS_SUPER_MAGIC: "NFS", unix.SMB_SUPER_MAGIC: "SMB",
	unix.CIFS_SUPER_MAGIC: "CIFS", unix.SMB2_SUPER_MAGIC: "SMB", unix.FUSE_SUPER_MAGIC: "FUSE",
}

// volumeOf looks at the file system of a folder.
func volumeOf(dir string) (volume, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return volume{}, fmt.Errorf("free bytes of %s: %w", dir, err)
	}
	unit := uint64(st.Bsize)
	return volume{free: st.Bavail * unit, size: st.Blocks * unit, volatile: volatiles[int64(st.Type)]}, nil
}
