//go:build !linux

package devcluster

import "syscall"

// childAttributes: a group of its own, so Ctrl-C reaches the parent alone,
// which ends them in order.
func childAttributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
