package main

import (
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// childAttributes: a group of its own, so that Ctrl-C reaches this program alone, which ends
// its servers in order; and the end with this program, however that ends.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

func fdatasync(f *os.File) error { return unix.Fdatasync(int(f.Fd())) }

// flushAll has the kernel write what earlier measurements left to be written.
func flushAll() { unix.Sync() }
