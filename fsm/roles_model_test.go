package fsm

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"pgregory.net/rapid"

	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/internal/frame"
)

// rolesModel has the claims to each role: the first one is the holder's, the others wait in their order.
type rolesModel struct {
	claims map[string][]modelClaim
	last   time.Time       // of the entry before
	led    time.Duration   // how much time with a leader there was
	events []string        // of roles, without offsets
	given  map[string]bool // roles that the present entry has given away: nobody knows their fence yet
}

type modelClaim struct {
	session string
	ttl     time.Duration
	due     time.Duration // of led
}

// over reports whether a claim has ended.
func (m *rolesModel) over(c modelClaim) bool { return c.due <= m.led }

// pass has the time of the next entry come. A new leader had not heard of the one before for silence, which is 0 if it
// does not know, and -1 if there is no new leader.
func (m *rolesModel) pass(now time.Time, silence time.Duration) {
	gap := now.Sub(m.last)
	m.last = now
	var dues []time.Duration
	for _, list := range m.claims {
		for _, c := range list {
			dues = append(dues, c.due)
		}
	}
	if len(dues) == 0 {
		return
	}
	m.led += ledOf(gap, slices.Min(dues)-m.led, silence)
}

// give makes the first claim that is not over the holder's.
func (m *rolesModel) give(role, cause, previous string) {
	list := m.claims[role]
	if len(list) > 0 {
		m.given[role] = true
		m.events = append(m.events, fmt.Sprint("ROLE_ACQUIRED ", role, " ", list[0].session, " after ", previous, " ", cause))
	}
}

// expire ends the claims that are over.
func (m *rolesModel) expire() {
	for role, list := range m.claims {
		if len(list) == 0 {
			continue
		}
		was := list[0]
		m.claims[role] = slices.DeleteFunc(slices.Clone(list), m.over)
		if m.over(was) {
			m.events = append(m.events, fmt.Sprint("ROLE_LOST ", role, " ", was.session, " expired"))
			m.give(role, "expired", was.session)
		}
	}
}

// place is that of a session among the claims to a role, -1 if it has none.
func (m *rolesModel) place(role, session string) int {
	return slices.IndexFunc(m.claims[role], func(c modelClaim) bool { return c.session == session })
}

// Roles against a model, over random histories of claims, renewals, releases, silence, new leaders, steps of the clock
// and publishes under a fence. A second machine is reopened and replaced by a checkpoint on the way and stays equal.
func TestRolesAgreeWithAModel(t *testing.T) {
	counts := map[string]int{}
	rapid.Check(t, func(t *rapid.T) {
		plainFS, troubledFS := vfs.NewMem(), vfs.NewMem()
		plain, troubled := open(t, plainFS), open(t, troubledFS)
		defer func() { plain.Close(); troubled.Close() }()
		now, term := epoch, uint64(1)
		m := rolesModel{claims: map[string][]modelClaim{}, last: epoch}
		var starts []request // of a term, in the next entry
		apply := func(index uint64, r ...request) Result {
			e := entryOf(index, term, "n1", now, append(starts, r...)...)
			starts = nil
			got := applyTo(t, plain, e)
			troubled = trouble(t, troubled, troubledFS, counts)
			applyTo(t, troubled, e)
			return got[len(got)-1]
		}
		apply(1, do(frame.TermStart{ClusterID: "c", Members: []frame.Member{{ID: "n1", FeatureLevel: FeatureLevel}}}))
		first := ev(-1)
		copied := frame.EncodeCopy(&first)
		apply(2, do(frame.GroupCreate{Name: "g"}), do(frame.CursorCreate{Name: "c"}), publish(first))
		generation := func(name string) uint64 { c, _ := troubled.Cursor(name); return c.Generation }
		fences := map[string][]uint64{} // of each role, that were given out
		for index := range uint64(rapid.IntRange(1, 60).Draw(t, "entries")) {
			now = now.Add(rapid.SampledFrom([]time.Duration{0, time.Second, 4 * time.Second, 20 * time.Second}).
				Draw(t, "wait"))
			if due := troubled.NextDeadline(); due.After(now) && due.Before(now.Add(DefaultRoleTTL)) &&
				rapid.IntRange(0, 4).Draw(t, "until due") == 0 {
				now = due
			}
			silence := time.Duration(-1)
			if rapid.IntRange(0, 9).Draw(t, "new leader") == 0 {
				term++
				silence = rapid.SampledFrom([]time.Duration{0, time.Second, time.Minute}).Draw(t, "silence")
				if silence > 0 || rapid.Bool().Draw(t, "starts") {
					starts = []request{do(frame.TermStart{ClusterID: "c", Cause: "lost", Silence: silence})}
				}
			}
			m.given = map[string]bool{}
			m.pass(now, silence)
			m.expire()
			role := rapid.SampledFrom([]string{"A", "B"}).Draw(t, "role")
			session := rapid.SampledFrom([]string{"x", "y", "z"}).Draw(t, "session")
			place, held := m.place(role, session), len(m.claims[role]) > 0
			old := rapid.SliceOfN(rapid.SampledFrom(append([]uint64{7}, fences[role]...)), 1, 1).Draw(t, "fence")[0]
			current := uint64(0)
			if held && !m.given[role] {
				current = fences[role][len(fences[role])-1]
			}
			switch action := rapid.IntRange(0, 11).Draw(t, "action"); {
			case action < 4:
				wait := rapid.Bool().Draw(t, "wait")
				ttl := rapid.SampledFrom([]time.Duration{2 * time.Second, 5 * time.Second, 0}).Draw(t, "ttl")
				got := apply(index+3, do(frame.RoleAcquire{Role: role, Holder: session, Session: session, TTL: ttl, Wait: wait}))
				claim := modelClaim{session: session, ttl: cmp.Or(ttl, DefaultRoleTTL)}
				claim.due = m.led + claim.ttl
				switch {
				case !held:
					m.claims[role] = []modelClaim{claim}
					m.give(role, "free", "")
				case place >= 0 && (place == 0 || wait):
					m.claims[role][place] = claim
				case place > 0:
					m.claims[role] = slices.Delete(m.claims[role], place, place+1)
				case wait:
					m.claims[role] = append(m.claims[role], claim)
				}
				list := m.claims[role]
				if a := got.Role; a.Held.Session != list[0].session || a.Waiting != len(list)-1 ||
					a.Place != max(0, m.place(role, session)) || a.Fence == 0 {
					t.Fatalf("%+v, want %+v", got.Role, list)
				}
				counts["waits"] += got.Role.Place
			case action < 6:
				got := apply(index+3, do(frame.RoleRenew{Leases: []frame.RoleLease{{Role: role, Fence: old}, {Role: "C"}}}))
				holds := held && old == current
				if holds {
					m.claims[role][0].due = m.led + m.claims[role][0].ttl
					counts["renewed"]++
				}
				if lost := !slices.Contains(got.LostLeases, 0); lost != holds || !slices.Contains(got.LostLeases, 1) {
					t.Fatalf("%v, want the lease %t", got.LostLeases, holds)
				}
			case action < 8:
				revoke := rapid.IntRange(0, 3).Draw(t, "revoke") == 0
				release := frame.RoleRelease{Role: role, Session: session}
				if revoke {
					release = frame.RoleRelease{Role: role, Fence: old}
				}
				got := apply(index+3, do(release))
				holds := held && old == current
				if refused := revoke && !holds; refused != (got.Refusal != nil) {
					t.Fatalf("held %t, revoked %t: %v", held, revoke, got.Refusal)
				}
				if held && ((revoke && holds) || (!revoke && place == 0)) {
					was, cause := m.claims[role][0].session, "released"
					if revoke {
						cause = "revoked"
						m.events = append(m.events, fmt.Sprint("ROLE_LOST ", role, " ", was, " revoked"))
					} else {
						m.events = append(m.events, fmt.Sprint("ROLE_RELEASED ", role, " ", was, " "))
					}
					m.claims[role] = m.claims[role][1:]
					m.give(role, cause, was)
					counts[cause]++
				} else if place > 0 && !revoke {
					m.claims[role] = slices.Delete(m.claims[role], place, place+1)
				}
			case action < 9:
				lease := frame.RoleLease{Role: role, Fence: old}
				one := publish(ev(int(index)))
				one.command = frame.Publish{Count: 1, Lease: lease}
				got := apply(index+3, one)
				if holds := held && old == current; holds != (got.Refusal == nil) {
					t.Fatalf("a publish with fence %d of %v: %v, want %t", old, m.claims[role], got.Refusal, holds)
				} else if !holds && (got.Refusal.Code != Fenced || got.Refusal.Expected != current) {
					t.Fatalf("%+v, the fence is %d", got.Refusal, current)
				} else if holds {
					counts["published"]++
				}
			// What a cursor's reader and a group's member settle under a lease is refused in the same way, and changes nothing.
			case action < 10:
				lease := frame.RoleLease{Role: role, Fence: old}
				_, end := troubled.Log().Bounds()
				offset := rapid.Uint64Range(1, end).Draw(t, "offset")
				letter := frame.DeadLetter{Cursor: "g", Generation: generation("g"), Offset: offset, Event: copied, Lease: lease}
				one := rapid.SampledFrom([]frame.Command{
					frame.GroupSettle{Name: "g", Generation: generation("g"), Term: term, Lease: lease,
						Done: []frame.Range{{From: offset, To: offset}}},
					frame.GroupDead{Term: term, Letter: letter},
					frame.DeadLetter{Cursor: "c", Generation: generation("c"), Offset: offset, Event: copied, Lease: lease},
					frame.CursorCommit{Name: "c", Generation: generation("c"), Offset: offset, Lease: lease},
				}).Draw(t, "settles")
				before, _ := troubled.Group("g")
				cursor, _ := troubled.Cursor("c")
				got := apply(index+3, do(one))
				holds := held && old == current
				if fenced := got.Refusal != nil && got.Refusal.Field == "fence"; fenced == holds {
					t.Fatalf("%T with fence %d of %v: %v, want %t", one, old, m.claims[role], got.Refusal, holds)
				}
				after, _ := troubled.Group("g")
				moved, _ := troubled.Cursor("c")
				if !holds && (!slices.Equal(before.Group.Done, after.Group.Done) || before.Committed != after.Committed ||
					cursor.Committed != moved.Committed || got.Refusal.Expected != current) {
					t.Fatalf("%T was refused as %+v, and has settled", one, got.Refusal)
				}
				if holds && got.Refusal == nil {
					counts["settled"]++
				}
			// A renewal of a claim that has ended makes none.
			case action < 11:
				got := apply(index+3, do(frame.RoleRenewClaim{Role: role, Session: session}))
				if place >= 0 {
					m.claims[role][place].due = m.led + m.claims[role][place].ttl
					counts["claims renewed"]++
				}
				if a := got.Role; a.Waiting != max(0, len(m.claims[role])-1) || a.Place != max(0, place) {
					t.Fatalf("%+v, want %+v", a, m.claims[role])
				}
			default:
				to := now.Add(time.Minute)
				apply(index+3, do(frame.ClockStep{To: to, Agreed: []string{"n1"}}))
				now, m.last = to, to
			}

			// The events are the model's, and fences are their offsets, which rise.
			var events []string
			acquired := map[string]uint64{}
			_, end := troubled.Log().Bounds()
			for offset := uint64(1); offset <= end; offset++ {
				e, err := troubled.Log().Get(offset)
				if err != nil {
					t.Fatal(err)
				}
				var p struct {
					Role, Holder, Previous, Cause string
					Fence                         uint64
				}
				if err := json.Unmarshal(e.Payload, &p); err != nil {
					t.Fatal(err)
				}
				switch e.Type {
				case event.RoleAcquired:
					if p.Fence != offset {
						t.Fatalf("%d has the fence %d", offset, p.Fence)
					}
					if !slices.Contains(fences[p.Role], offset) {
						fences[p.Role] = append(fences[p.Role], offset)
					}
					acquired[p.Role] = offset
					events = append(events, fmt.Sprint(e.Type, " ", p.Role, " ", p.Holder, " after ", p.Previous, " ", p.Cause))
				case event.RoleLost, event.RoleReleased:
					if p.Fence != acquired[p.Role] {
						t.Fatalf("%d has the fence %d, acquired was %d", offset, p.Fence, acquired[p.Role])
					}
					events = append(events, fmt.Sprint(e.Type, " ", p.Role, " ", p.Holder, " ", p.Cause))
				}
			}
			slices.Sort(events)
			want := slices.Clone(m.events)
			slices.Sort(want)
			if !slices.Equal(events, want) {
				t.Fatalf("events\n%q, want\n%q", events, want)
			}
			counts["lost"] += len(want)

			// The state is the model's, and nothing is due later than the next claim ends.
			for _, name := range []string{"A", "B"} {
				r, known := troubled.Role(name, 10)
				list := m.claims[name]
				if known != (len(list) > 0) || (known && r.Waiting != len(list)-1) {
					t.Fatalf("%s: %+v, want %+v", name, r, list)
				}
				if known && (r.Held.Session != list[0].session || r.Fence != fences[name][len(fences[name])-1]) {
					t.Fatalf("%s: %+v, want %+v and the fences %v", name, r, list, fences[name])
				}
				for i, c := range r.Queue {
					if c.Session != list[i+1].session {
						t.Fatalf("%s: %+v, want %+v", name, r, list)
					}
				}
			}
			if next := troubled.NextDeadline(); len(m.claims["A"])+len(m.claims["B"]) > 0 && next.IsZero() {
				t.Fatal("nothing is due although a role is held")
			}
		}
		if a, b := dump(t, plain), dump(t, troubled); !bytes.Equal(a, b) {
			t.Fatalf("dumps differ:\n%s\n%s", a, b)
		}
	})
	for _, kind := range []string{
		"waits", "renewed", "released", "revoked", "published", "settled", "claims renewed", "lost",
	} {
		if counts[kind] == 0 && !testing.Short() { // which goes through few
			t.Errorf("no history has %s", kind)
		}
	}
}
