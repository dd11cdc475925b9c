//go:build !linux

package raftstore

import "os"

// datasync makes f's content durable.
func datasync(f *os.File) error { return f.Sync() }

// openDirect opens a file to read and write.
func openDirect(path string) (*os.File, error) { return os.OpenFile(path, os.O_RDWR, 0) }
