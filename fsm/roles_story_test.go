package fsm

import (
	"fmt"
	"strings"
)

// tellRoles says who holds the roles and who waits for them.
func tellRoles(m *Machine) string {
	var b strings.Builder
	for _, r := range m.Roles("", 100) {
		fmt.Fprintf(&b, "  %s: %s since %s with fence %d for %s, renewed %s", r.Name, r.Held.Holder, r.Held.Since.Sub(epoch),
			r.Fence, r.Held.TTL, r.Held.Renewed.Sub(epoch))
		full, _ := m.Role(r.Name, r.Waiting)
		for _, c := range full.Queue {
			fmt.Fprintf(&b, "; %s waits since %s", c.Holder, c.Since.Sub(epoch))
		}
		b.WriteByte('\n')
	}
	return b.String()
}
