package fsm

import (
	"fmt"
	"strings"
	"time"

	"github.com/ringrift/ringlog/internal/frame"
)

// allocationRequest reads what a story says of resources and their allocations.
func allocationRequest(words []string) request {
	switch words[0] {
	case "resource": // name capacity unit, and preemptible
		return do(frame.ResourceSet{Name: words[1], Capacity: number64(words[2]), Unit: words[3],
			Preemptible: len(words) > 4})
	case "noresource":
		return do(frame.ResourceRemove{Name: words[1]})
	case "prolongshare": // id resource=amount …: what it has made, granted or waiting
		return do(frame.AllocationRenewClaim{ID: words[1], Amounts: amountsOf(words[2:])})
	case "allocate", "queue": // id priority ttl resource=amount …; queue waits
		c := frame.AllocationRequest{ID: words[1], Holder: "h" + words[1], Wait: words[0] == "queue"}
		_ = c.Priority.UnmarshalText([]byte(words[2]))
		c.TTL, _ = time.ParseDuration(words[3])
		c.Amounts = amountsOf(words[4:])
		return do(c)
	case "keepshare": // id fence
		return do(frame.AllocationRenew{Leases: []frame.AllocationLease{{ID: words[1], Fence: number64(words[2])}}})
	default: // free id
		return do(frame.AllocationRelease{ID: words[1]})
	}
}

func amountsOf(words []string) (list []frame.Amount) {
	for _, w := range words {
		name, n, _ := strings.Cut(w, "=")
		list = append(list, frame.Amount{Resource: name, Amount: number64(n)})
	}
	return list
}

// tellShares says what is granted of the resources, and who waits.
func tellShares(m *Machine) string {
	var b strings.Builder
	for _, r := range m.Resources("", 100) {
		fmt.Fprintf(&b, "  %s: %d of %d %s in %d, %d wait", r.Name, r.Granted, r.Capacity, r.Unit, r.Grants, r.Waiting)
		if r.Preemptible {
			b.WriteString(", preemptible")
		}
		b.WriteByte('\n')
	}
	for _, x := range m.Allocations("", 100) {
		fmt.Fprintf(&b, "  %s: %v %s", x.Session, x.Amounts, x.Priority)
		if x.Class != x.Priority {
			fmt.Fprintf(&b, " as %s", x.Class)
		}
		if x.Fence == 0 {
			b.WriteString(" waits")
		} else {
			fmt.Fprintf(&b, " fence %d", x.Fence)
		}
		fmt.Fprintf(&b, " since %s for %s, renewed %s\n", x.Since.Sub(epoch), x.TTL, x.Renewed.Sub(epoch))
	}
	return b.String()
}
