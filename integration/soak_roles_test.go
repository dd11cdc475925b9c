package integration

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/event"
)

const (
	soakTTL      = 2 * time.Second // of leases
	soakResource = "soak:slots"
	soakCapacity = 100
	// soakLate is how much later than its end a lease may be lost while its cluster is whole.
	soakLate = time.Second
)

// soakScript is the command of a runner. Only SIGKILL ends it.
const soakScript = `trap '' TERM
while :; do
  "$1" publish ` + runStep + ` --no-dedup --key "$RINGLOG_ROLE" --payload "{\"fence\": $RINGLOG_FENCE}" \
    --role "$RINGLOG_ROLE" --fence "$RINGLOG_FENCE" >/dev/null 2>&1
  sleep 0.3
done
`

// soakLease is what an event has of a lease: of a role, or of an allocation.
type soakLease struct {
	name   string // of the role or the allocation
	fence  uint64
	amount uint64 // of the soak's resource
}

// leaseOf returns what an event has of a lease; the zero value for others.
func leaseOf(e *event.Event) (l soakLease) {
	switch e.Type {
	case runStep, event.RoleAcquired, event.RoleReleased, event.RoleLost,
		event.AllocationGranted, event.AllocationReleased, event.AllocationLost, event.JobPreempted:
		var p struct {
			Fence   uint64
			Amounts map[string]uint64
		}
		if json.Unmarshal(e.Payload, &p) == nil {
			l = soakLease{name: e.Key, fence: p.Fence, amount: p.Amounts[soakResource]}
		}
	}
	return l
}

// leaseLedger follows the roles and the allocations through the log.
type leaseLedger struct {
	h       *history
	held    map[string]uint64 // by role: the fence of its holder
	highest map[string]uint64 // by role: the highest fence so far
	granted map[string]uint64 // by allocation: the amount
	sum     uint64            // of granted
}

func newLeaseLedger(h *history) leaseLedger {
	return leaseLedger{h: h, held: map[string]uint64{}, highest: map[string]uint64{}, granted: map[string]uint64{}}
}

// check requires of the next part of the log that a role has one holder at a time, that fences rise, that what was
// published under a fence lies within its lease, and that no more is granted than there is.
func (l *leaseLedger) check(part []soakStored) {
	steps := 0
	for _, e := range part {
		name, fence := e.lease.name, e.lease.fence
		switch e.Type {
		case event.RoleAcquired:
			if l.held[name] != 0 || fence != e.Offset || fence <= l.highest[name] {
				l.h.violation("offset %d has %s acquired with fence %d; its holder has %d, and the highest was %d", e.Offset, name,
					fence, l.held[name], l.highest[name])
			}
			l.held[name], l.highest[name] = fence, fence
		case event.RoleReleased, event.RoleLost:
			if fence != l.held[name] {
				l.h.violation("offset %d ends the lease %d of %s, whose holder has %d", e.Offset, fence, name, l.held[name])
			}
			delete(l.held, name)
		case runStep:
			if fence == 0 || fence != l.held[name] {
				l.h.violation("offset %d was published under fence %d of %s, whose holder has %d", e.Offset, fence, name,
					l.held[name])
			}
			steps++
		case event.AllocationGranted:
			if l.granted[name] != 0 || e.lease.amount == 0 {
				l.h.violation("offset %d grants %d to %s, which has %d", e.Offset, e.lease.amount, name, l.granted[name])
			}
			l.granted[name] = e.lease.amount
			if l.sum += e.lease.amount; l.sum > soakCapacity {
				l.h.violation("at offset %d, %d of %s are granted, of %d", e.Offset, l.sum, soakResource, soakCapacity)
			}
		case event.AllocationReleased, event.AllocationLost, event.JobPreempted:
			if l.granted[name] != e.lease.amount {
				l.h.violation("offset %d frees %d of %s, which has %d", e.Offset, e.lease.amount, name, l.granted[name])
			}
			l.sum -= l.granted[name]
			delete(l.granted, name)
		}
	}
	l.h.mu.Lock()
	defer l.h.mu.Unlock()
	l.h.counts.FencedSteps += steps
}

// ask makes a request with a JSON body at any node.
func (s *soakClients) ask(rng *rand.Rand, method, path string, body any) answer {
	text, err := json.Marshal(body)
	if err != nil {
		panic(err)
	}
	return s.call(method, s.node(rng).url()+path, text, nil)
}

// step publishes under a fence, at any node.
func (s *soakClients) step(rng *rand.Rand, role string, fence uint64) answer {
	body := fmt.Appendf(nil, `{"type":%q,"key":%q,"payload":{"fence":%d},"dedup":false}`, runStep, role, fence)
	header := http.Header{"Ringlog-Role": {role}, "Ringlog-Fence": {fmt.Sprint(fence)}}
	return s.call(http.MethodPost, s.node(rng).url()+"/v1/events", body, header)
}

// holdRole acquires one of two roles, publishes under its fence, and releases it or is silent. Under a lease that was
// answered as over nothing is acknowledged.
func (s *soakClients) holdRole(ctx context.Context, rng *rand.Rand, number int) {
	for ctx.Err() == nil {
		role, session := fmt.Sprint("soak-", rng.IntN(2)), uuid.NewString()
		claim := api.RoleAcquire{Holder: fmt.Sprint("client-", number), Session: session, TTL: soakTTL.String(), Wait: "1s"}
		var got api.RoleAcquired
		for ctx.Err() == nil && !got.Acquired {
			if a := s.ask(rng, http.MethodPut, "/v1/roles/"+role, claim); a.outcome != acknowledged {
				waitOrDone(ctx, 100*time.Millisecond)
			} else if err := json.Unmarshal(a.text, &got); err != nil {
				s.h.violation("acquiring %s was answered by %.200s", role, a.text)
			}
		}
		over := false // as an answer has said
		lease := api.RoleLease{Role: role, Fence: got.Fence}
		for range 1 + rng.IntN(40) {
			if ctx.Err() != nil || !got.Acquired || over {
				break
			}
			over = s.step(rng, role, got.Fence).code == api.Fenced
			waitOrDone(ctx, time.Duration(rng.IntN(150))*time.Millisecond)
			if rng.IntN(4) == 0 {
				a := s.ask(rng, http.MethodPut, "/v1/roles", api.RoleRenewal{Leases: []api.RoleLease{lease}})
				var renewed api.RoleRenewed
				over = over || (a.outcome == acknowledged && json.Unmarshal(a.text, &renewed) == nil && len(renewed.Lost) > 0)
			}
		}
		if rng.IntN(3) > 0 {
			a := s.ask(rng, http.MethodDelete, "/v1/roles/"+role+"?session="+session, nil)
			over = over || a.outcome == acknowledged
		}
		if got.Acquired && over && s.step(rng, role, got.Fence).outcome == acknowledged {
			s.h.violation("an event was acknowledged under fence %d of %s, whose lease was over", got.Fence, role)
		}
	}
}

// holdAllocation requests a part of the soak's resource, and releases it or is silent.
func (s *soakClients) holdAllocation(ctx context.Context, rng *rand.Rand, number int) {
	for ctx.Err() == nil { // until there is the resource
		resource := map[string]any{"capacity": soakCapacity, "preemptible": true}
		a := s.ask(rng, http.MethodPut, "/v1/resources/"+soakResource, resource)
		if a.outcome == acknowledged {
			break
		}
		waitOrDone(ctx, 100*time.Millisecond)
	}
	for ctx.Err() == nil {
		path := "/v1/allocations/" + uuid.NewString()
		request := map[string]any{
			"holder": fmt.Sprint("client-", number), "amounts": map[string]int{soakResource: 10 + rng.IntN(60)},
			"priority": []string{"LOW", "NORMAL", "HIGH", "CRITICAL"}[rng.IntN(4)], "ttl": soakTTL.String(), "wait": "1s",
		}
		for range 3 {
			var got struct{ Granted bool }
			a := s.ask(rng, http.MethodPut, path, request)
			if ctx.Err() != nil || (a.outcome == acknowledged && json.Unmarshal(a.text, &got) == nil && got.Granted) {
				break
			}
			waitOrDone(ctx, 100*time.Millisecond)
		}
		waitOrDone(ctx, time.Duration(rng.IntN(1000))*time.Millisecond)
		if rng.IntN(3) > 0 {
			s.ask(rng, http.MethodDelete, path, nil)
		}
	}
}

// run has a process of ringlog run hold a role, kills it, and pauses it for longer than its lease.
func (s *soakClients) run(ctx context.Context, rng *rand.Rand, number int) {
	for ctx.Err() == nil {
		args := append(slices.Clone(s.c.within), binary, "run", "--role", "soak-run", "--ttl", soakTTL.String(),
			"--stop-timeout", "300ms", "--", "sh", "-c", soakScript, "sh", binary)
		cmd := exec.Command(args[0], args[1:]...)
		cmd.Env = append(os.Environ(), "RINGLOG_ENDPOINTS="+strings.Join(rotate(s.c.endpoints(), number), ","))
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		if err := cmd.Start(); err != nil {
			s.h.violation("ringlog run: %v", err)
			return
		}
		var ended sync.WaitGroup
		ended.Go(func() { _ = cmd.Wait() })
		waitOrDone(ctx, time.Duration(1000+rng.IntN(5000))*time.Millisecond)
		if ctx.Err() == nil && rng.IntN(2) == 0 {
			_ = cmd.Process.Signal(syscall.SIGSTOP)
			waitOrDone(ctx, soakTTL+time.Duration(rng.IntN(2000))*time.Millisecond)
			_ = cmd.Process.Signal(syscall.SIGCONT)
			waitOrDone(ctx, time.Duration(rng.IntN(2000))*time.Millisecond)
		}
		// A process that is asked to stop releases its role, if a node answers.
		if ctx.Err() != nil {
			_ = cmd.Process.Signal(syscall.SIGTERM)
			late := time.AfterFunc(longest, func() { _ = cmd.Process.Kill() })
			ended.Wait()
			late.Stop()
			return
		}
		_ = cmd.Process.Kill()
		ended.Wait()
	}
}

// checkTakeOver requires that the next in the queue gets a role whose holder is silent once its lease is over, and not
// later than soakLate after that. Nothing else may be under way.
func (s *soak) checkTakeOver(rng *rand.Rand) {
	s.t.Helper()
	jumps := s.h.jumpsSoFar()
	var fences []uint64
	for _, session := range []string{uuid.NewString(), uuid.NewString()} {
		claim := api.RoleAcquire{Holder: "take-over", Session: session, TTL: soakTTL.String(), Wait: "1s"}
		s.eventually(longest, "take-over of a role", func() error {
			var got api.RoleAcquired
			a := s.clients.ask(rng, http.MethodPut, "/v1/roles/soak-take-over", claim)
			if a.outcome != acknowledged || json.Unmarshal(a.text, &got) != nil || !got.Acquired {
				return fmt.Errorf("%s", a.text)
			}
			fences = append(fences, got.Fence)
			return nil
		})
	}
	first := s.readFrom(s.nodes[0], fences[0], fences[0])[0]
	second := s.readFrom(s.nodes[0], fences[1], fences[1])[0]
	took := time.Duration(second.appendedAt - first.appendedAt)
	if first.Term != second.Term || !s.h.steadySince(jumps) {
		return // time without a leader, and a jump of replicated time, do not count
	}
	s.h.mu.Lock()
	s.h.counts.TakeOvers++
	s.h.mu.Unlock()
	if took < soakTTL || took > soakTTL+soakLate {
		s.h.violation("a role was taken over %s after its holder acquired it, and its lease is of %s", took, soakTTL)
	}
}

// The ledger finds what is wrong with leases.
func TestTheLeaseLedgerFindsWhatIsWrong(t *testing.T) {
	at := func(offset uint64, kind event.Type, name string, fence, amount uint64) soakStored {
		return soakStored{Offset: offset, Type: kind, lease: soakLease{name, fence, amount}}
	}
	for _, c := range []struct {
		name string
		part []soakStored
		want string // "" is no violation
	}{
		{"all is well", []soakStored{
			at(1, event.RoleAcquired, "r", 1, 0), at(2, runStep, "r", 1, 0), at(3, event.RoleLost, "r", 1, 0),
			at(4, event.RoleAcquired, "r", 4, 0), at(5, event.RoleAcquired, "s", 5, 0), at(6, runStep, "r", 4, 0),
			at(7, event.AllocationGranted, "a", 7, 60), at(8, event.AllocationGranted, "b", 8, 40),
			at(9, event.AllocationReleased, "a", 7, 60), at(10, event.AllocationGranted, "c", 10, 60)}, ""},
		{"two holders", []soakStored{at(1, event.RoleAcquired, "r", 1, 0), at(2, event.RoleAcquired, "r", 2, 0)},
			"its holder has 1"},
		{"a step after the lease", []soakStored{at(1, event.RoleAcquired, "r", 1, 0), at(2, event.RoleReleased, "r", 1, 0),
			at(3, runStep, "r", 1, 0)}, "under fence 1 of r, whose holder has 0"},
		{"a step under the lease before", []soakStored{at(1, event.RoleAcquired, "r", 1, 0), at(2, event.RoleLost, "r", 1, 0),
			at(3, event.RoleAcquired, "r", 3, 0), at(4, runStep, "r", 1, 0)}, "under fence 1 of r, whose holder has 3"},
		{"another end", []soakStored{at(2, event.RoleAcquired, "r", 2, 0), at(3, event.RoleLost, "r", 1, 0)},
			"ends the lease 1"},
		{"too much", []soakStored{at(1, event.AllocationGranted, "a", 1, 60), at(2, event.AllocationGranted, "b", 2, 41)},
			"101 of soak:slots are granted, of 100"},
	} {
		h := newHistory()
		ledger := newLeaseLedger(h)
		ledger.check(c.part)
		found := strings.Join(h.violations, "\n")
		if (c.want == "" && found != "") || !strings.Contains(found, c.want) {
			t.Errorf("%s: found %q, want %q", c.name, found, c.want)
		}
	}
}
