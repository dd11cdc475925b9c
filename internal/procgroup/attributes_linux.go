package procgroup

import "syscall"

// attributes are those of a process that leads a group; a bound one ends with the thread that has started it.
func attributes(bound bool) *syscall.SysProcAttr {
	a := &syscall.SysProcAttr{Setpgid: true}
	if bound {
		a.Pdeathsig = syscall.SIGKILL
	}
	return a
}
