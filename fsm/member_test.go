package fsm

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/internal/frame"
)

func TestAClusterStartsAtTheLevelOfItsOldestMember(t *testing.T) {
	m := open(t, vfs.NewMem())
	defer m.Close()
	members := []frame.Member{
		{ID: "n1", FeatureLevel: frame.LevelDelivery},
		{ID: "n2", FeatureLevel: frame.LevelBase},
		{ID: "n3", FeatureLevel: frame.LevelLetters},
	}
	applyTo(t, m, entryOf(1, 1, "n1", epoch, do(frame.TermStart{ClusterID: "c", Members: members})))
	if level := m.FeatureLevel(); level != frame.LevelBase {
		t.Errorf("level %d", level)
	}
}

func TestTypesAreRedefinedWhereThereIsNoRoomForMore(t *testing.T) {
	if testing.Short() {
		t.Skip("one goroutine fills the registry")
	}
	m := open(t, vfs.NewMem())
	defer m.Close()
	index := uint64(0)
	register := func(from, to int, category string) Result {
		var defs []event.Definition
		for i := from; i < to; i++ {
			defs = append(defs, event.Definition{Name: event.Type(fmt.Sprintf("TYPE_%d", i)), Category: category})
		}
		text, err := json.Marshal(defs)
		if err != nil {
			t.Fatal(err)
		}
		index++
		return applyTo(t, m, entryOf(index, 1, "n1", epoch, do(frame.Register{Definitions: text})))[0]
	}
	if r := register(0, maxTypes, "first"); r.Refusal != nil {
		t.Fatalf("%+v", r.Refusal)
	}
	if r := register(maxTypes-10, maxTypes, "second"); r.Refusal != nil {
		t.Errorf("known types: %+v", r.Refusal)
	}
	if r := register(maxTypes-10, maxTypes+1, "third"); r.Refusal == nil || r.Refusal.Code != Overloaded {
		t.Errorf("one more: %+v", r.Refusal)
	}
}

// JSON gives back a string that is not UTF-8 as another, so such a name is refused: a node that was
// restarted would know another one than a node that runs.
func TestNamesThatAreNotUTF8AreRefused(t *testing.T) {
	const name = "a\xff"
	m := open(t, vfs.NewMem())
	defer m.Close()
	applyTo(t, m, entryOf(1, 1, "n1", epoch, do(frame.CursorCreate{Name: "g"}),
		do(frame.MemberPut{Member: frame.Member{ID: "n1", FeatureLevel: FeatureLevel}})))
	results := applyTo(t, m, entryOf(2, 1, "n1", epoch, do(frame.CursorCreate{Name: name}),
		produce(name, 1, ev(1), ev(2)), publish(ev(3)),
		do(frame.MemberPut{Member: frame.Member{ID: name, FeatureLevel: FeatureLevel}}),
		do(frame.ClientPut{ID: name, Subscriptions: []frame.ClientSubscription{{Name: "s"}}}),
		do(frame.SettingSet{Key: "chain.deadlines", Value: name}), do(frame.GroupCreate{Name: "b\x00c"})))
	for i, r := range results {
		if accepted := r.Refusal == nil; accepted != (i == 2) {
			t.Errorf("command %d: %+v", i, r.Refusal)
		}
	}
	var types []event.Type
	for _, e := range all(t, m) {
		types = append(types, e.Type)
	}
	if s := m.Stats(); s.Accepted != 1 || s.Producers != 0 || s.Cursors != 1 || len(m.Members()) != 1 {
		t.Errorf("%+v, events %v", s, types)
	}
	before, _ := json.Marshal(m.Cursors())
	reload(t, m)
	if after, _ := json.Marshal(m.Cursors()); string(after) != string(before) {
		t.Errorf("%s, was %s", after, before)
	}
}

// A cluster that was recovered keeps the ids of those that it descends from, where all its members
// know how, over changes of its configuration.
func TestARecoveredClusterKnowsItsPredecessors(t *testing.T) {
	for _, level := range []uint32{frame.LevelLetters, frame.LevelDelivery} {
		m := open(t, vfs.NewMem())
		defer m.Close()
		applyTo(t, m, entryOf(1, 1, "n1", epoch, do(frame.TermStart{
			ClusterID: "c0",
			Members:   []frame.Member{{ID: "n1", FeatureLevel: level}},
		})))
		members := []ConfigMember{{ID: "n1", Addr: "a:1", Voter: true}}
		var want []string
		for i := range predecessorsKept + 3 {
			index := uint64(2*i + 2)
			next := fmt.Sprintf("c%d", i+1)
			want = append(want, m.ClusterID())
			if err := m.Refound(index, index, []byte("raw"), members, next); err != nil {
				t.Fatal(err)
			}
			if err := m.ApplyConfiguration(index+1, index, []byte("raw"), members); err != nil {
				t.Fatal(err)
			}
		}
		want = want[len(want)-predecessorsKept:]
		if level < frame.LevelDelivery {
			want = nil
		}
		if got := m.Predecessors(); !slices.Equal(got, want) {
			t.Errorf("level %d: %v, want %v", level, got, want)
		}
	}
}
