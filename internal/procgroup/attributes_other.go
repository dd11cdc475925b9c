//go:build !linux

package procgroup

import "syscall"

// attributes are those of a process that leads a group. Only Linux can bind it to the process that has started it.
func attributes(bool) *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
