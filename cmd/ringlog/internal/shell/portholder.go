package shell

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// PortHolder names the process that listens on a TCP port of this machine, as
// far as /proc shows it: " by ringlog (pid 12)", else "". Only the port is compared, not the host.
func PortHolder(addr string) string {
	_, text, err := net.SplitHostPort(addr)
	if err != nil {
		return ""
	}
	port, err := strconv.ParseUint(text, 10, 16)
	if err != nil {
		return ""
	}
	// A socket of IPv6 may hold the port for IPv4 as well.
	for _, table := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		if inode := listeningInode(table, uint16(port)); inode != "" {
			if pid := socketOwner(inode); pid != "" {
				return fmt.Sprintf(" by %s (pid %s)", commandName(pid), pid)
			}
		}
	}
	return ""
}

// listeningInode looks a port up in a table of /proc/net: the second field is the
// local address in hex, the fourth the state, the tenth the socket's inode.
func listeningInode(table string, port uint16) string {
	const listening = "0A"
	f, err := os.Open(table)
	if err != nil {
		return ""
	}
	// The table has a header line, which matches nothing.
	defer f.Close()
	// The kernel prints the port as four hex digits after the address.
	suffix := fmt.Sprintf(":%04X", port)
	for lines := bufio.NewScanner(f); lines.Scan(); {
		fields := strings.Fields(lines.Text())
		if len(fields) > 9 && fields[3] == listening && strings.HasSuffix(fields[1], suffix) {
			return fields[9]
		}
	}
	return ""
}

// socketOwner returns the process that has a socket open.
func socketOwner(inode string) (pid string) {
	// Each open file of each process is a link that names it; a socket by its inode.
	links, err := filepath.Glob("/proc/[0-9]*/fd/*")
	if err != nil {
		return ""
	}
	// Links of other users' processes cannot be read; those are skipped.
	for _, link := range links {
		if target, err := os.Readlink(link); err == nil && target == "socket:["+inode+"]" {
			return strings.Split(link, "/")[2]
		}
	}
	return ""
}

// commandName returns the name that the kernel has for a process.
func commandName(pid string) string {
	// The process may have ended since.
	name, err := os.ReadFile("/proc/" + pid + "/comm")
	if err != nil {
		return "a process"
	}
	return strings.TrimSpace(string(name))
}
