package raftstore

import (
	"os"

	"golang.org/x/sys/unix"
)

// datasync makes f's content durable, but not when it was written.
func datasync(f *os.File) error {
	for {
		if err := unix.Fdatasync(int(f.Fd())); err != unix.EINTR {
			return os.NewSyscallError("fdatasync", err)
		}
	}
}
