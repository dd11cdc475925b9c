package raftstore

import (
	"errors"
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

// openDirect opens a file to read and write blocks past the page cache, or through it
// where the file system has no other way or wants larger blocks.
func openDirect(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|unix.O_DIRECT, 0)
	if err == nil {
		_, err = f.ReadAt(blocks(journalBlock), 0)
		if !errors.Is(err, unix.EINVAL) {
			return f, nil // any other error is met again by the read of the header
		}
		if err := f.Close(); err != nil {
			return nil, err
		}
	}
	if errors.Is(err, unix.EINVAL) {
		return os.OpenFile(path, os.O_RDWR, 0)
	}
	return nil, err
}
