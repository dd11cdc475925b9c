package main

import (
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// childAttributes puts a server into a process group of its own, so Ctrl-C reaches this
// program alone, which then stops its servers in order. If this program is killed, the kernel
// kills the servers.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// fdatasync syncs the data of a file, and of its metadata what is needed to read it.
func fdatasync(f *os.File) error { return unix.Fdatasync(int(f.Fd())) }

// flushAll has the kernel write what earlier measurements left to be written.
func flushAll() { unix.Sync() }
