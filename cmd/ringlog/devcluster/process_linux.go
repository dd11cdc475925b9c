package devcluster

import "syscall"

// childAttributes: a group of its own, so Ctrl-C reaches the parent alone,
// which ends them in order; and the end with the parent, however that ends.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
