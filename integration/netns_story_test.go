package integration

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/ringrift/ringlog/client"
	"github.com/ringrift/ringlog/event"
)

// storyEvent is one event of what the cluster reports about itself.
type storyEvent struct {
	offset  uint64
	at      time.Time // when it was appended
	kind    string
	text    string            // the payload as it is stored
	payload map[string]string // its fields: a string, strings with commas between, or what JSON writes
}

// String prints the event in one line.
func (e storyEvent) String() string { return fmt.Sprintf("%d %s %s", e.offset, e.kind, e.text) }

var storyFilter = event.Filter{Types: []string{"LEADER_*", "QUORUM_*", "VOTER_*", "SPLIT_BRAIN_*"}}

// readStory reads the story from a node's own log, whatever the others have.
func (c *netCluster) readStory(p *process, minOffset uint64) (story []storyEvent, err error) {
	ctx, cancel := context.WithTimeout(c.t.Context(), 20*time.Second)
	defer cancel()
	o := client.TailOptions{From: client.FromStart(), NoFollow: true, Filter: storyFilter, MinOffset: minOffset}
	for e, err := range c.reader(p).Tail(ctx, o) {
		if err != nil {
			return nil, fmt.Errorf("story of %s: %w", p.id, err)
		}
		fields, err := fieldsOf(e.Payload)
		if err != nil {
			return nil, fmt.Errorf("story of %s: event %d: %w", p.id, e.Offset, err)
		}
		story = append(story, storyEvent{
			offset:  e.Offset,
			at:      e.AppendedAt,
			kind:    string(e.Type),
			text:    string(e.Payload),
			payload: fields,
		})
	}
	return story, nil
}

// fieldsOf returns the fields of a payload as text. A list of strings is joined by commas.
func fieldsOf(payload []byte) (map[string]string, error) {
	var raw map[string]json.RawMessage
	if err := json.Unmarshal(payload, &raw); err != nil {
		return nil, err
	}
	fields := map[string]string{}
	for key, value := range raw {
		// A string counts as a list of one; what is neither stays as JSON writes it.
		fields[key] = string(value)
		var list []string
		if bytes.HasPrefix(value, []byte(`"`)) {
			value = slices.Concat([]byte("["), value, []byte("]"))
		}
		if json.Unmarshal(value, &list) == nil {
			fields[key] = strings.Join(list, ",")
		}
	}
	return fields, nil
}

// stories reads every node's story, once its log reaches an offset.
func (c *netCluster) stories(minOffset uint64) (map[string][]storyEvent, error) {
	all := map[string][]storyEvent{}
	for _, p := range c.nodes {
		story, err := c.readStory(p, minOffset)
		if err != nil {
			return nil, err
		}
		all[p.id] = story
	}
	return all, nil
}

// sameStory returns the story that all nodes have, in the same words at the same offsets.
func sameStory(of map[string][]storyEvent) (first []storyEvent, err error) {
	// All nodes are compared with the first one, event by event.
	ids := slices.Sorted(maps.Keys(of))
	first = of[ids[0]]
	for _, id := range ids[1:] {
		for i := range max(len(first), len(of[id])) {
			switch {
			case i >= len(first):
				return nil, fmt.Errorf("%s has %q, %s does not", id, of[id][i], ids[0])
			case i >= len(of[id]):
				return nil, fmt.Errorf("%s has %q, %s does not", ids[0], first[i], id)
			case first[i].String() != of[id][i].String():
				return nil, fmt.Errorf("%s has %q, %s has %q", ids[0], first[i], id, of[id][i])
			}
		}
	}
	return first, nil
}

// checkSound requires what every story has that ended well, whatever happened: terms rise and each has one
// leader, who is the one that is lost or steps down next; a voter is reported offline and online in turn, and
// so is the quorum as lost or at risk and as restored; there was no split brain.
func checkSound(story []storyEvent) error {
	// The state of the cluster as the events so far have it.
	leader, term, offline, lost, atRisk := "", uint64(0), map[string]bool{}, false, false
	for _, e := range story {
		bad := fmt.Errorf("%s does not follow from the events before it", e)
		switch e.kind {
		case "LEADER_ELECTED":
			next, err := strconv.ParseUint(e.payload["term"], 10, 64)
			if err != nil || next <= term || leader != "" {
				return bad
			}
			leader, term = e.payload["leader_id"], next
		case "LEADER_LOST", "LEADER_STEPDOWN":
			if leader == "" || cmp.Or(e.payload["old_leader"], e.payload["leader_id"]) != leader {
				return bad
			}
			leader = ""
		case "VOTER_OFFLINE", "VOTER_ONLINE":
			voter, goes := e.payload["voter_id"], e.kind == "VOTER_OFFLINE"
			if offline[voter] == goes {
				return bad
			}
			offline[voter] = goes
		case "QUORUM_LOST", "QUORUM_AT_RISK":
			state := map[string]*bool{"QUORUM_LOST": &lost, "QUORUM_AT_RISK": &atRisk}[e.kind]
			if *state {
				return bad
			}
			*state = true
		case "QUORUM_RESTORED":
			state := map[string]*bool{"lost": &lost, "at_risk": &atRisk}[e.payload["after"]]
			if state == nil || !*state {
				return bad
			}
			*state = false
		case "SPLIT_BRAIN_DETECTED", "SPLIT_BRAIN_RESOLVED":
			return bad
		}
	}
	// It has to end with a leader, a quorum, and all voters online.
	for voter, still := range offline {
		if still {
			return fmt.Errorf("%s is offline at the end", voter)
		}
	}
	if leader == "" || lost || atRisk {
		return fmt.Errorf("it ends with leader %q, quorum lost: %t, at risk: %t", leader, lost, atRisk)
	}
	return nil
}

// A wanted story has a line an event:
//
//	LEADER_LOST old_leader=$a cause=heartbeat_timeout|lease_expired
//	?QUORUM_AT_RISK healthy>=2 limiting=$a,$b
//
// $a is the id of the node named a; a name that no node has yet is given to the node that is first found there. $a,$b
// are both, in any order. | separates alternatives, also of types, * is anything. Fields that are not listed may be
// anything. A line that begins with ? may be missing, one with ^ may be anywhere from there on, one with ^? both.
type line struct {
	maybe, floats bool
	kinds         []string
	fields        []field
}

type field struct {
	key, value string
	atLeast    bool
}

// parseStory reads a wanted story.
func parseStory(text string) (lines []line, err error) {
	for row := range strings.Lines(text) {
		words := strings.Fields(row)
		if len(words) == 0 {
			continue
		}
		// The marks and the types, then the fields.
		var l line
		words[0], l.floats = strings.CutPrefix(words[0], "^")
		words[0], l.maybe = strings.CutPrefix(words[0], "?")
		l.kinds = strings.Split(words[0], "|")
		for _, word := range words[1:] {
			key, value, found := strings.Cut(word, "=")
			if !found {
				return nil, fmt.Errorf("%q is not like key=value", word)
			}
			f := field{key: key, value: value}
			f.key, f.atLeast = strings.CutSuffix(key, ">")
			l.fields = append(l.fields, f)
		}
		lines = append(lines, l)
	}
	return lines, nil
}

// names maps a name to the id of the node that has it.
type names map[string]string

// matches reports whether an event is what the line describes, and returns the names with those that the event adds.
func (l line) matches(e storyEvent, known names) (names, bool) {
	if !slices.Contains(l.kinds, e.kind) {
		return nil, false
	}
	// A copy, since names are added while the fields are compared.
	known = maps.Clone(known)
	for _, f := range l.fields {
		got, there := e.payload[f.key]
		if !there || !f.matchesValue(got, known) {
			return nil, false
		}
	}
	return known, true
}

// matchesValue reports whether a value is what the field wants, and adds the name that it defines to known.
func (f field) matchesValue(got string, known names) bool {
	if f.atLeast {
		bound, err := strconv.ParseFloat(f.value, 64)
		number, none := strconv.ParseFloat(got, 64)
		return err == nil && none == nil && number >= bound
	}
	// Any of the alternatives will do.
	for want := range strings.SplitSeq(f.value, "|") {
		if strings.Contains(want, ",") && sameSet(got, want, known) {
			return true
		}
		name, isName := strings.CutPrefix(want, "$")
		id, isKnown := known[name]
		switch {
		case isName && !isKnown:
			known[name] = got
			return true
		case want == "*" || (isName && id == got) || (!isName && want == got):
			return true
		}
	}
	return false
}

// sameSet reports whether a list has exactly the wanted members, in any order.
func sameSet(got, want string, known names) bool {
	wanted := strings.Split(want, ",")
	for i, w := range wanted {
		if name, isName := strings.CutPrefix(w, "$"); isName {
			wanted[i] = known[name]
		}
	}
	slices.Sort(wanted)
	return slices.Equal(slices.Sorted(strings.SplitSeq(got, ",")), wanted)
}

// matching is the search for a way to read a story as the lines say.
type matching struct{ furthest int } // events that some reading accounts for

// matchFrom reports whether the events from at on are what the lines describe, with the floating lines anywhere between
// them. It tries every way.
func (m *matching) matchFrom(lines, floating []line, story []storyEvent, at int, known names) bool {
	m.furthest = max(m.furthest, at)
	if len(lines) > 0 && lines[0].floats {
		return m.matchFrom(lines[1:], append(slices.Clone(floating), lines[0]), story, at, known)
	}
	// At the end no line may be left that is needed.
	if at == len(story) {
		needed := func(l line) bool { return !l.maybe }
		return !slices.ContainsFunc(lines, needed) && !slices.ContainsFunc(floating, needed)
	}
	// The next event is the next line, or that line is missing, or the event is a floating line.
	if len(lines) > 0 {
		if more, ok := lines[0].matches(story[at], known); ok && m.matchFrom(lines[1:], floating, story, at+1, more) {
			return true
		}
		if lines[0].maybe && m.matchFrom(lines[1:], floating, story, at, known) {
			return true
		}
	}
	for i, l := range floating {
		rest := slices.Delete(slices.Clone(floating), i, i+1)
		if more, ok := l.matches(story[at], known); ok && m.matchFrom(lines, rest, story, at+1, more) {
			return true
		}
	}
	return false
}

// compareStory reports where a story is not the wanted one.
func compareStory(want string, story []storyEvent, known names) error {
	lines, err := parseStory(want)
	if err != nil {
		return err
	}
	var m matching
	if m.matchFrom(lines, nil, story, 0, known) {
		return nil
	}
	// Mark the event that no way of reading could explain.
	var b strings.Builder
	for i, e := range story {
		fmt.Fprintf(&b, "\n  %s", e)
		if i == m.furthest {
			b.WriteString("   <- not this")
		}
	}
	if m.furthest == len(story) {
		b.WriteString("\n  <- here something is missing")
	}
	return fmt.Errorf("with %v, wanted\n%s\nthe log has%s", known, strings.TrimRight(want, "\t\n"), b.String())
}

// storyOf makes events of lines such as LEADER_LOST old_leader=n1.
func storyOf(t *testing.T, text string) (story []storyEvent) {
	lines, err := parseStory(text)
	if err != nil {
		t.Fatal(err)
	}
	for i, l := range lines {
		e := storyEvent{offset: uint64(i + 1), kind: l.kinds[0], payload: map[string]string{}}
		for _, f := range l.fields {
			e.payload[f.key] = f.value
			e.text += f.key + "=" + f.value + " "
		}
		story = append(story, e)
	}
	return story
}

// What the stories are compared with finds each kind of mistake that it is for.
func TestStoryNotation(t *testing.T) {
	const got = "LEADER_ELECTED leader_id=n2 term=2\n" +
		"LEADER_LOST old_leader=n2 cause=x ms=40\n" +
		"LEADER_ELECTED leader_id=n3 term=4"
	for _, c := range []struct {
		want string
		ok   bool
	}{
		{"LEADER_ELECTED leader_id=$a\nLEADER_LOST cause=y|x\nLEADER_ELECTED leader_id=$b|$c", true},
		{"LEADER_ELECTED leader_id=$new\nLEADER_LOST old_leader=$new\nLEADER_ELECTED", true},
		{"LEADER_ELECTED leader_id=$new\nLEADER_LOST\nLEADER_ELECTED leader_id=$new", false},
		{"LEADER_ELECTED\nLEADER_STEPDOWN|LEADER_LOST ms>=40\n?QUORUM_LOST\nLEADER_ELECTED", true},
		{"LEADER_ELECTED\nLEADER_LOST ms>=41\nLEADER_ELECTED", false},
		{"LEADER_ELECTED\nLEADER_LOST nothing=*\nLEADER_ELECTED", false},
		{"LEADER_ELECTED\nLEADER_LOST cause=*\nLEADER_ELECTED leader_id=$b", false},
		{"LEADER_ELECTED\nLEADER_LOST\nLEADER_ELECTED\nQUORUM_LOST", false},
		{"LEADER_ELECTED\nLEADER_LOST", false},
		{"LEADER_LOST\nLEADER_ELECTED\nLEADER_ELECTED", false},
		{"^LEADER_LOST\nLEADER_ELECTED\nLEADER_ELECTED", true},
		{"^LEADER_LOST\n^?QUORUM_LOST\n^LEADER_ELECTED\nLEADER_ELECTED leader_id=$c", true},
		{"LEADER_ELECTED\n^QUORUM_LOST\nLEADER_LOST\nLEADER_ELECTED", false},
	} {
		err := compareStory(c.want, storyOf(t, got), names{"a": "n2", "b": "n1", "c": "n3"})
		if (err == nil) != c.ok {
			t.Errorf("%q: %v", c.want, err)
		}
	}
}

// Stories of two nodes are equal only if every event is, at the same offset.
func TestStoriesOfNodesAreCompared(t *testing.T) {
	const text = "LEADER_ELECTED leader_id=n1 term=2\nVOTER_OFFLINE voter_id=n2"
	at := func(change func([]storyEvent) []storyEvent) map[string][]storyEvent {
		return map[string][]storyEvent{"n1": storyOf(t, text), "n2": storyOf(t, text), "n3": change(storyOf(t, text))}
	}
	for name, change := range map[string]func([]storyEvent) []storyEvent{
		"an offset": func(s []storyEvent) []storyEvent { s[1].offset++; return s },
		"a type":    func(s []storyEvent) []storyEvent { s[1].kind = "VOTER_ONLINE"; return s },
		"a payload": func(s []storyEvent) []storyEvent { s[0].text += " "; return s },
		"the last":  func(s []storyEvent) []storyEvent { return s[:1] },
		"one more":  func(s []storyEvent) []storyEvent { return append(s, s[1]) },
	} {
		if _, err := sameStory(at(change)); err == nil {
			t.Errorf("it was not noticed that %s differs", name)
		}
	}
	if story, err := sameStory(at(func(s []storyEvent) []storyEvent { return s })); err != nil || len(story) != 2 {
		t.Errorf("equal stories: %v, %v", story, err)
	}
}

// A story that cannot have happened is rejected, whatever was wanted.
func TestUnsoundStories(t *testing.T) {
	const begin = "LEADER_ELECTED leader_id=n1 term=2\n"
	for text, ok := range map[string]bool{
		begin: true,
		begin + "LEADER_LOST old_leader=n1\nLEADER_ELECTED leader_id=n1 term=3":                  true,
		begin + "LEADER_ELECTED leader_id=n2 term=3":                                             false,
		begin + "LEADER_LOST old_leader=n1\nLEADER_ELECTED leader_id=n2 term=2":                  false,
		begin + "LEADER_LOST old_leader=n2\nLEADER_ELECTED leader_id=n2 term=3":                  false,
		begin + "LEADER_LOST old_leader=n1\nLEADER_LOST old_leader=n1":                           false,
		begin + "LEADER_STEPDOWN leader_id=n1":                                                   false,
		begin + "VOTER_OFFLINE voter_id=n2\nVOTER_ONLINE voter_id=n2":                            true,
		begin + "VOTER_OFFLINE voter_id=n2\nVOTER_ONLINE voter_id=n3":                            false,
		begin + "VOTER_OFFLINE voter_id=n2\nVOTER_OFFLINE voter_id=n2\nVOTER_ONLINE voter_id=n2": false,
		begin + "VOTER_OFFLINE voter_id=n2":                                                      false,
		begin + "QUORUM_LOST\nQUORUM_RESTORED after=lost":                                        true,
		begin + "QUORUM_LOST\nQUORUM_LOST\nQUORUM_RESTORED after=lost":                           false,
		begin + "QUORUM_LOST\nQUORUM_RESTORED after=at_risk":                                     false,
		begin + "QUORUM_LOST":                   false,
		begin + "QUORUM_AT_RISK":                false,
		begin + "QUORUM_RESTORED after=lost":    false,
		begin + "SPLIT_BRAIN_DETECTED":          false,
		"LEADER_LOST old_leader=n1\n" + begin:   false,
		begin + "QUORUM_RESTORED after=nothing": false,
	} {
		if err := checkSound(storyOf(t, text)); (err == nil) != ok {
			t.Errorf("%q: %v", text, err)
		}
	}
}
