package fsm

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"sort"
	"time"

	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/internal/frame"
)

const (
	// maxPolicies bounds the dedup policies that can be set.
	maxPolicies = 1000
	// expirePolicyMost is how many keys that are due an entry removes, beside two for each row that it has: a window that
	// is made shorter does not have one entry remove millions.
	expirePolicyMost = 4096
)

// policies are the dedup policies that were set, each with the keys of what it has accepted.
//
// The node that checks an event writes into the event's row what the policy asks for: no comparison, or one by the
// content or by a key of its own. What is decided here is whether the policy has accepted the same within its window.
// The catalogue's own policies are all DedupOff, so nothing here depends on the build.
type policies struct {
	byType map[event.Type]*typePolicy
	dues   ranking[int64, *typePolicy] // those with stored keys, by when their oldest key leaves the window
	keys   int                         // of all of them
	gate   *event.DedupPolicies        // what the gate is given; nil before LevelDedup
}

// typePolicy is the policy of one type. Its keys are of the events that it has accepted. A key does not count after its
// window, and is removed by one of the next entries. Until then the queue may have an equal one that is newer.
//
// A policy that compares by something else than the one before it begins without keys.
type typePolicy struct {
	typ event.Type // canonical
	event.DedupPolicy

	offsets policyOffsets // of the keys in queue, by key; of equal ones the newest
	queue   []policyKey   // the same keys, by offset
	room    int           // the most keys since the queue was copied
	due     int64         // where it is ranked; 0 if it is not
	index   uint64        // the last entry that added keys
}

// policyKey is one key, stored under the type and the offset.
//
//	16  key
//	8   append time, Unix nanoseconds, big endian
type policyKey struct {
	key    frame.Key // of a row, as the node that checked its event has written it
	offset uint64
	at     int64 // when its event was appended; not final before storePolicyKeys
	// before is the offset of an equal key, which no longer counts and is not removed yet. Only a key of this entry has
	// it.
	before uint64
}

// policyOffsets has the offset of each key. A map keeps the memory of the most keys that it ever had. So the keys are
// in parts, and each part is copied by itself when three quarters of its keys are gone.
type policyOffsets [256]policyPart

// policyPart has the keys with one first byte.
type policyPart struct {
	offsets map[frame.Key]uint64
	most    int // keys since it was copied
}

// of returns the offset of a key.
func (o *policyOffsets) of(k frame.Key) (offset uint64, found bool) {
	offset, found = o[k[0]].offsets[k]
	return offset, found
}

// set sets the offset of a key.
func (o *policyOffsets) set(k frame.Key, offset uint64) {
	part := &o[k[0]]
	if part.offsets == nil {
		part.offsets = map[frame.Key]uint64{}
	}
	part.offsets[k] = offset
	part.most = max(part.most, len(part.offsets))
}

// remove removes a key if it has that offset: a newer one may have taken its place.
func (o *policyOffsets) remove(k frame.Key, offset uint64) {
	part := &o[k[0]]
	if part.offsets[k] != offset {
		return
	}
	delete(part.offsets, k)
	// Memory is released part by part, so that no entry copies many keys.
	switch left := len(part.offsets); {
	case left == 0:
		*part = policyPart{}
	case part.most >= copyPartFrom && left <= part.most/4:
		rest := make(map[frame.Key]uint64, left)
		maps.Copy(rest, part.offsets)
		part.offsets, part.most = rest, left
	}
}

// copyPartFrom is how many keys a part must have had to be worth a copy.
const copyPartFrom = 64

// newPolicies returns no policies.
func newPolicies() policies {
	return policies{byType: map[event.Type]*typePolicy{}, dues: newRanking[int64, *typePolicy]()}
}

// encode returns the stored form of a key.
func (k *policyKey) encode() []byte {
	return binary.BigEndian.AppendUint64(slices.Clone(k.key[:]), uint64(k.at))
}

// policyKeyAt is where the key of an offset is stored.
func policyKeyAt(t event.Type, offset uint64) []byte {
	return binary.BigEndian.AppendUint64(append(key(prefixPolicyKey, string(t)), 0), offset)
}

// window is how long a key of the policy counts.
func (p *typePolicy) window(s *Settings) time.Duration { return cmp.Or(p.Window, s.DedupWindow) }

// holds reports whether the key of an offset counts at a time. It searches the queue, which is in the order of the
// offsets.
func (p *typePolicy) holds(offset uint64, now int64, s *Settings) bool {
	i, found := sort.Find(len(p.queue), func(i int) int { return cmp.Compare(offset, p.queue[i].offset) })
	return found && p.queue[i].at+int64(p.window(s)) > now
}

// rank puts a policy where its oldest key is due, among those that have keys.
func (l *policies) rank(p *typePolicy, s *Settings) {
	l.unrank(p)
	if len(p.queue) > 0 {
		p.due = p.queue[0].at + int64(p.window(s))
		l.dues.ReplaceOrInsert(ranked[int64]{p.due, string(p.typ)}, p)
	}
}

// unrank takes a policy out of the order.
func (l *policies) unrank(p *typePolicy) {
	if p.due != 0 {
		l.dues.Delete(ranked[int64]{p.due, string(p.typ)})
		p.due = 0
	}
}

// put adds a policy without keys.
func (l *policies) put(t event.Type, policy event.DedupPolicy) {
	l.byType[t] = &typePolicy{typ: t, DedupPolicy: policy}
}

// drop removes a policy with its keys from memory. What is stored of them the caller deletes.
func (l *policies) drop(p *typePolicy) {
	l.unrank(p)
	l.keys -= len(p.queue)
	delete(l.byType, p.typ)
}

// add adds a key to a policy.
func (l *policies) add(p *typePolicy, k policyKey) {
	p.queue = append(p.queue, k)
	p.offsets.set(k.key, k.offset)
	p.room = max(p.room, len(p.queue))
	l.keys++
}

// compile makes what the gate is given. A member of an older level could not read rows that are decided by policies.
func (s *state) compilePolicies() {
	if s.meta.FeatureLevel < frame.LevelDedup {
		return
	}
	set := make(map[event.Type]event.DedupPolicy, len(s.policies.byType))
	for t, p := range s.policies.byType {
		set[t] = p.DedupPolicy
	}
	s.policies.gate = event.NewDedupPolicies(set)
}

// loadPolicy reads a policy that was set.
func (s *state) loadPolicy(name string, value []byte) error {
	var p event.DedupPolicy
	if err := json.Unmarshal(value, &p); err != nil {
		return err
	}
	s.policies.put(event.Type(name), p)
	return nil
}

// loadPolicyKey reads a key. Those of a type are read by offset.
func (s *state) loadPolicyKey(where string, value []byte) error {
	name, at, found := bytes.Cut([]byte(where), []byte{0})
	p := s.policies.byType[event.Type(name)]
	if !found || p == nil || len(at) != 8 || len(value) != len(frame.Key{})+8 {
		return fmt.Errorf("a key of a dedup policy of %d bytes at %q", len(value), where)
	}
	s.policies.add(p, policyKey{
		key:    frame.Key(value[:len(frame.Key{})]),
		offset: binary.BigEndian.Uint64(at),
		at:     int64(binary.BigEndian.Uint64(value[len(frame.Key{}):])),
	})
	return nil
}

// rankPolicies ranks all of them, after they were loaded or the window of some has changed.
func (s *state) rankPolicies() {
	for _, p := range s.policies.byType {
		s.policies.rank(p, &s.settings)
	}
}

// placeByPolicy accepts the record of a row that is compared with what the policy of its type has accepted, or returns
// the earlier offset that it repeats.
func (a *publishApplier) placeByPolicy(row int) (earlier uint64, refusal *Refusal) {
	cols := a.frame.Columns
	p := a.s.policies.byType[event.Type(a.frame.Header.Types[cols.TypeAt(row)])]
	// The policy was removed or turned off after the event was checked.
	if p == nil || p.Mode == event.DedupOff {
		a.accepted = append(a.accepted, row)
		return 0, nil
	}
	// A record whose key counts repeats the event at that offset, and gets none of its own.
	k := cols.PolicyKeyAt(row)
	offset, found := p.offsets.of(k)
	// The time of a key of this entry is not final.
	if found && (offset >= a.firstNew || p.holds(offset, a.now, &a.s.settings)) {
		a.suppressed.Set(row)
		a.receipts.add(offset, a.frame.Header.Sources[cols.SourceAt(row)])
		return offset, nil
	}
	// Most entries end here: whether keys are overdue matters only where they may be too many.
	if room := a.s.settings.DedupPolicyMaxKeys; uint64(a.s.policies.keys) >= room {
		if holds := uint64(a.s.policies.keys - a.overdueKeys()); holds >= room {
			return 0, fullPolicies(holds, room)
		}
	}

	// storeBlock stores the keys of the policies that have some of this entry.
	if p.index != a.index {
		p.index = a.index
		a.keyedTypes = append(a.keyedTypes, p.typ)
	}
	// before is an equal key that no longer counts: if the request is refused, undoByPolicy restores it.
	a.s.policies.add(p, policyKey{k, a.base + uint64(len(a.accepted)), a.now, offset})
	a.accepted = append(a.accepted, row)
	return 0, nil
}

// overdueKeys returns how many keys have left the windows of their policies and are not removed yet. It visits the
// policies that have some, once unless the entry changes what is overdue.
func (a *publishApplier) overdueKeys() int {
	if a.overdueAt == a.now || a.s.meta.FeatureLevel < frame.LevelPolicySteps {
		return a.overdue
	}
	a.overdue, a.overdueAt = 0, a.now
	for _, p := range a.s.policies.dues.Ascend(atLeast[int64](0), below(a.now+1)) {
		window := int64(p.window(&a.s.settings))
		// The queue is in the order of the times, and keys of this entry are at its end.
		a.overdue += sort.Search(len(p.queue), func(i int) bool {
			return p.queue[i].offset >= a.firstNew || p.queue[i].at+window > a.now
		})
	}
	return a.overdue
}

// fullPolicies is the refusal of a new key while the policies have as many as they may.
func fullPolicies(holds, room uint64) *Refusal {
	return &Refusal{Code: Overloaded, Field: "events",
		Message: fmt.Sprintf("the dedup policies of types hold %d keys, the limit is %d", holds, room),
		Remedy: "retry after some have expired, or raise dedup.policy_max_keys, " +
			"or shorten a window: GET /v1/dedup/policies, or ringlog dedup policy ls"}
}

// undoByPolicy removes the key of a row at offset, which is the last one that the policy has accepted.
func (a *publishApplier) undoByPolicy(row int, offset uint64) {
	p := a.s.policies.byType[event.Type(a.frame.Header.Types[a.frame.Columns.TypeAt(row)])]
	if p == nil || len(p.queue) == 0 || p.queue[len(p.queue)-1].offset != offset {
		return // it was accepted without a key
	}
	last := p.queue[len(p.queue)-1]
	// The key before is still in the queue, so it has to be found again.
	if last.before > 0 {
		p.offsets.set(last.key, last.before)
	} else {
		p.offsets.remove(last.key, last.offset)
	}
	p.queue = p.queue[:len(p.queue)-1]
	a.s.policies.keys--
}

// storePolicyKeys stores the keys that this entry's events have added. A policy that was removed or set meanwhile has
// none of them.
func (a *publishApplier) storePolicyKeys() {
	for _, t := range a.keyedTypes {
		p := a.s.policies.byType[t]
		if p == nil {
			continue
		}
		for i := p.firstNew(a.firstNew); i < len(p.queue); i++ {
			// A clock step of this entry moves the time at which its events are appended.
			k := &p.queue[i]
			k.at, k.before = a.now, 0
			a.tx.Set(policyKeyAt(t, k.offset), k.encode())
		}
		a.s.policies.rank(p, &a.s.settings)
	}
	a.keyedTypes = nil
}

// firstNew returns the index in the queue from which on keys are of offsets at or after one. They are the last ones,
// and few.
func (p *typePolicy) firstNew(offset uint64) int {
	i := len(p.queue)
	for i > 0 && p.queue[i-1].offset >= offset {
		i--
	}
	return i
}

// expirePolicyKeys removes keys that have left the windows of their policies, in the order in which these are due. It
// visits no policy without such keys, and leaves those beyond the entry's bound to the next entries. The bound is more
// than an entry adds, so they do not pile up. Members of an older level remove all of them.
func (a *publishApplier) expirePolicyKeys() {
	a.overdueAt = 0 // the windows may have changed
	all, most := &a.s.policies, math.MaxInt
	if a.s.meta.FeatureLevel >= frame.LevelPolicySteps {
		most = expirePolicyMost - a.removedKeys
		if a.frame.Header != nil {
			most += 2 * a.frame.Header.Rows
		}
	}
	for most > 0 {
		due, p, some := all.dues.Min()
		if !some || due.rank > a.now {
			return
		}
		// Keys of this entry are not stored yet, and are in the window in any case.
		window, n := int64(p.window(&a.s.settings)), 0
		for n < min(most, len(p.queue)) && p.queue[n].offset < a.firstNew && p.queue[n].at+window <= a.now {
			p.offsets.remove(p.queue[n].key, p.queue[n].offset)
			n++
		}
		if n == 0 {
			all.unrank(p) // only keys of this entry are left, and storePolicyKeys ranks it
			continue
		}
		// The keys that go are those of the lowest offsets, so one range has them.
		a.tx.DeleteRange(policyKeyAt(p.typ, p.queue[0].offset), policyKeyAt(p.typ, p.queue[n-1].offset+1))
		p.queue = p.queue[n:]
		all.keys -= n
		most -= n
		a.removedKeys += n
		if len(p.queue) <= p.room/4 { // a slice keeps the memory of what it has passed
			p.queue, p.room = slices.Clone(p.queue), len(p.queue)
		}
		all.rank(p, &a.s.settings)
	}
}

// setDedupPolicy sets the policy of a type, or removes it.
func (a *publishApplier) setDedupPolicy(c frame.DedupPolicySet) Result {
	all, t := &a.s.policies, event.Type(c.Type)
	old := all.byType[t]
	// Without a mode the policy is removed, and with it the keys.
	if c.Policy.Mode == "" {
		if old == nil {
			return refuse(NotFound, "type", fmt.Sprintf("no dedup policy is set for %s", t),
				"list them: GET /v1/dedup/policies, or ringlog dedup policy ls")
		}
		a.forgetPolicy(old)
		a.tx.Delete(key(prefixPolicy, c.Type))
		a.s.stale.policies = true
		return Result{}
	}
	if refusal := a.refusePolicy(c, old); refusal != nil {
		return *refusal
	}

	// Where only the window changes, what was accepted still counts.
	switch {
	case old == nil:
		all.put(t, c.Policy)
	case old.SameKeys(&c.Policy):
		old.Window = c.Policy.Window
		all.rank(old, &a.s.settings)
		a.expirePolicyKeys()
	default:
		a.forgetPolicy(old)
		all.put(t, c.Policy)
	}
	a.tx.setJSON(key(prefixPolicy, c.Type), &c.Policy)
	a.s.meta.MaxPolicyWindow = max(a.s.meta.MaxPolicyWindow, c.Policy.Window)
	a.s.stale.policies = true
	return Result{}
}

// refusePolicy returns why a policy cannot be set, nil if it can.
func (a *publishApplier) refusePolicy(c frame.DedupPolicySet, old *typePolicy) *Result {
	var r Result
	switch err := c.Policy.Validate(); {
	case c.Type == "" || len(c.Type) > maxPolicyType || bytes.IndexByte([]byte(c.Type), 0) >= 0:
		r = refuse(Invalid, "type", fmt.Sprintf("%q is no event type", c.Type), "name an event type")
	case err != nil:
		r = refuse(Invalid, "policy", err.Error(), "")
	case old == nil && len(a.s.policies.byType) >= maxPolicies:
		r = refuse(Overloaded, "type", fmt.Sprintf("there are %d dedup policies, which is the limit", maxPolicies),
			"remove one: DELETE /v1/dedup/policies/TYPE, or ringlog dedup policy rm TYPE")
	default:
		return nil
	}
	return &r
}

// maxPolicyType bounds the name of a type that has a policy, in bytes.
const maxPolicyType = 4096

// forgetPolicy removes a policy and its keys, but not what is stored of the policy itself.
func (a *publishApplier) forgetPolicy(p *typePolicy) {
	a.overdueAt = 0
	a.s.policies.drop(p)
	// Those of this entry are not stored yet.
	if len(p.queue) > 0 && p.queue[0].offset < a.firstNew {
		a.tx.DeleteRange(policyKeyAt(p.typ, p.queue[0].offset), policyKeyAt(p.typ, a.firstNew))
	}
}

// SetDedupPolicy is a dedup policy that was set for a type.
type SetDedupPolicy struct {
	Type   event.Type
	Policy event.DedupPolicy
	Keys   int // of the events that it has accepted within its window, and of some before that are not removed yet
}

// DedupPolicies returns the policies that were set, by type.
func (v *views) DedupPolicies() []SetDedupPolicy {
	list := read(v, func(s *state) (list []SetDedupPolicy) {
		for t, p := range s.policies.byType {
			list = append(list, SetDedupPolicy{t, p.DedupPolicy, len(p.queue)})
		}
		return list
	})
	slices.SortFunc(list, func(a, b SetDedupPolicy) int { return cmp.Compare(a.Type, b.Type) })
	return list
}

// DedupPolicy returns the policy that was set for a type, if one was.
func (v *views) DedupPolicy(t event.Type) (SetDedupPolicy, bool) {
	v.mu.RLock()
	defer v.mu.RUnlock()
	p := v.s.policies.byType[t]
	if p == nil {
		return SetDedupPolicy{}, false
	}
	return SetDedupPolicy{t, p.DedupPolicy, len(p.queue)}, true
}
