//go:build !linux

package datadir

import "os"

// fill allocates the blocks of the first bytes of f.
func fill(f *os.File, bytes int64) error { return writeZeros(f, bytes) }
