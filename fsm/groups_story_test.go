package fsm

import (
	"fmt"
	"strings"
	"time"

	"github.com/ringrift/ringlog/internal/frame"
)

// groupRequest reads
//
//	group g [pending]                         makes a group
//	settle g generation term 3-4,7 5:2:boom   done ranges; retries as offset:deliveries:error; reserved as ^9
//	deadof g generation term offset error
func (s *teller) groupRequest(words []string) request {
	switch words[0] {
	case "group":
		c := frame.GroupCreate{Name: words[1]}
		if len(words) > 2 {
			c.Group.MaxPending = number64(words[2])
		}
		return do(c)
	case "settle":
		c := frame.GroupSettle{Name: words[1], Generation: number64(words[2]), Term: number64(words[3])}
		for _, w := range words[4:] {
			switch {
			case strings.HasPrefix(w, "^"):
				c.Reserved = number64(w[1:])
			case strings.Contains(w, ":"):
				f := strings.Split(w, ":")
				c.Retries = append(c.Retries, frame.GroupRetry{
					Offset:     number64(f[0]),
					Deliveries: number64(f[1]),
					After:      s.at.Add(time.Second),
					Error:      f[2],
				})
			default:
				for one := range strings.SplitSeq(w, ",") {
					from, to, ranged := strings.Cut(one, "-")
					if !ranged {
						to = from
					}
					c.Done = append(c.Done, frame.Range{From: number64(from), To: number64(to)})
				}
			}
		}
		return do(c)
	default:
		return do(frame.GroupDead{
			Term:   number64(words[3]),
			Letter: s.deadLetter(words[1], number64(words[4]), number64(words[2]), words[5]),
		})
	}
}

func tellGroup(m *Machine, name string) string {
	g, is := m.Group(name)
	if !is {
		return fmt.Sprintf("  there is no group %q\n", name)
	}
	text := fmt.Sprintf("  settled up to %d and %v, handed out up to %d\n", g.Committed, g.Group.Done, g.Group.Reserved)
	for _, r := range g.Group.Retries {
		text += fmt.Sprintf("  %d comes again not before %s, deliveries %d: %s\n", r.Offset, r.After.Sub(epoch),
			r.Deliveries, r.Error)
	}
	return text
}
