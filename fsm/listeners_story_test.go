package fsm

import (
	"fmt"
	"strings"
	"time"

	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/internal/frame"
)

// clientWords reads a registration as trainer-3 5m loss=training.* alarm=*_FAILED!detached
// (a critical subscription and its state); with trainer-3@training_coordinator the client is that coordinator, and
// loss=training.*~3/5:boom has the health of a handler: 3 of 5 failed attempts timed out, and the last error.
func clientWords(words []string) frame.ClientPut {
	ttl, _ := time.ParseDuration(words[2])
	id, coordinator, _ := strings.Cut(words[1], "@")
	c := frame.ClientPut{ID: id, Host: "gpu-1", PID: 7, TTL: ttl, Coordinator: coordinator}
	for _, w := range words[3:] {
		name, rest, _ := strings.Cut(w, "=")
		rest, reported, _ := strings.Cut(rest, "~")
		pattern, state, critical := strings.Cut(rest, "!")
		c.Subscriptions = append(c.Subscriptions, frame.ClientSubscription{
			Name:           name,
			Filter:         event.Filter{Types: []string{pattern}},
			Mode:           "durable",
			Critical:       critical,
			State:          state,
			HandlerTimeout: 30 * time.Second,
			Cursor:         name,
			Health:         healthWords(reported),
		})
	}
	return c
}

// healthWords reads the health of a handler as 3/5:boom.
func healthWords(text string) *frame.HandlerHealth {
	if text == "" {
		return nil
	}
	counts, failure, _ := strings.Cut(text, ":")
	late, failed, _ := strings.Cut(counts, "/")
	return &frame.HandlerHealth{
		TimedOut: number64(late), FailedAttempts: number64(failed), Breaker: "open", LastError: failure,
		LastErrorAt: epoch,
	}
}

func tellClients(m *Machine) string {
	var b strings.Builder
	for _, c := range m.Clients("", 100) {
		fmt.Fprintf(&b, "  %s since %s, last heard %s, for %s", c.ID, c.Registered.Sub(epoch), c.Seen.Sub(epoch), c.TTL)
		if c.Coordinator != "" {
			fmt.Fprintf(&b, ", as %s", c.Coordinator)
		}
		b.WriteByte(':')
		for _, s := range c.Subscriptions {
			fmt.Fprintf(&b, " %s %s", s.Name, strings.Join(s.Filter.Types, ","))
			if h := s.Health; h != nil {
				fmt.Fprintf(&b, " (%d timed out, %d failed, %s, %s)", h.TimedOut, h.FailedAttempts, h.Breaker,
					h.LastError)
			}
		}
		b.WriteByte('\n')
	}
	s := m.ClientStats()
	fmt.Fprintf(&b, "  %d clients, %d subscriptions, %d critical ones detached\n", s.Clients, s.Subscriptions,
		s.CriticalDetached)
	if s.Lost > 0 {
		fmt.Fprintf(&b, "  %d lost\n", s.Lost)
	}
	for _, u := range m.Unheard() {
		fmt.Fprintf(&b, "  nobody has %s %s since %s was lost at %s\n", u.Name, strings.Join(u.Filter.Types, ","),
			u.Client, u.Since.Sub(epoch))
	}
	return b.String()
}
