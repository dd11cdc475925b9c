//go:build !linux

package raftstore

import "os"

// datasync makes f's content durable.
func datasync(f *os.File) error { return f.Sync() }
