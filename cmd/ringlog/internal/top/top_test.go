package top

import (
	"fmt"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/cmd/ringlog/internal/shell"
)

// began is when the samples of these tests begin.
var began = time.Date(2026, 1, 5, 10, 0, 0, 0, time.UTC)

// sampleAfter is what a cluster of three answers some seconds later, with as many cursors.
func sampleAfter(seconds, cursors int) Sample {
	s := Sample{At: began.Add(time.Duration(seconds) * time.Second), Verdict: "OK", Tone: shell.Good}
	s.View.ClusterID, s.View.LeaderID, s.View.Term = "c", "n2", 7
	s.View.Quorum = api.Quorum{Voters: 3, Needed: 2, Healthy: 3, Margin: 1}
	s.View.LastOffset, s.View.Log.Emitted = uint64(100+50*seconds), 3
	for _, id := range []string{"n1", "n2", "n3"} {
		s.Nodes = append(s.Nodes, Node{ID: id, Role: api.RoleFollower, Answers: true, Member: &api.Member{Healthy: true}})
	}
	for i := range cursors {
		c := Cursor{Kind: "cursor", Lag: fmt.Sprint(i), Waits: fmt.Sprintf("%ds", cursors-i)}
		c.Name, c.LagEvents, c.LagSeconds = fmt.Sprintf("c%03d", i), uint64(i), float64(cursors-i)
		s.Cursors = append(s.Cursors, c)
	}
	return s
}

// screen is a Model with what it was sent.
type screen struct {
	m    Model
	cmds []tea.Cmd
}

func newScreen(width, height int) *screen {
	s := &screen{m: New(Options{Interval: time.Second, Paint: func(_ shell.Tone, text string) string { return text },
		Ask:  func() Sample { return sampleAfter(60, 3) },
		Read: func(s Story, of Sample) Story { return s.With(nil, of.View) }})}
	return s.send(tea.WindowSizeMsg{Width: width, Height: height})
}

func (s *screen) send(msgs ...tea.Msg) *screen {
	for _, msg := range msgs {
		next, cmd := s.m.Update(msg)
		s.m = next.(Model)
		s.cmds = append(s.cmds, cmd)
	}
	return s
}

// keys are names of single letters, or Tab and the like in brackets.
func (s *screen) press(keys ...string) *screen {
	named := map[string]tea.KeyPressMsg{"tab": {Code: tea.KeyTab}, "down": {Code: tea.KeyDown},
		"pgdown": {Code: tea.KeyPgDown}, "ctrl+c": {Code: 'c', Mod: tea.ModCtrl}, "end": {Code: tea.KeyEnd},
		"shift+tab": {Code: tea.KeyTab, Mod: tea.ModShift}}
	for _, k := range keys {
		msg, known := named[k]
		if !known {
			msg = tea.KeyPressMsg{Code: []rune(k)[0], Text: k}
		}
		s.send(msg)
	}
	return s
}

func (s *screen) has(t *testing.T, pattern string) {
	t.Helper()
	if !regexp.MustCompile("(?m)" + pattern).MatchString(s.m.Text()) {
		t.Errorf("%q is not on the screen:\n%s", pattern, s.m.Text())
	}
}

// No line is longer than the terminal is wide, and there are no more of them than it has, whatever is shown.
func TestTheScreenFitsEveryTerminal(t *testing.T) {
	failed := Sample{At: began.Add(time.Minute), Failed: true, Verdict: "CRITICAL", Tone: shell.Bad,
		Findings: []Finding{{"no node answers at " + strings.Repeat("http://a-host-of-the-cluster:8770,", 9), "start one"}}}
	empty := Sample{At: began, Verdict: "CRITICAL", Tone: shell.Bad}
	wide := sampleAfter(3, 30)
	wide.Cursors[3].Name = strings.Repeat("検証", 60)
	wide.View.LeaderID = strings.Repeat("n", 300)
	for height := range 64 {
		for _, width := range []int{1, 2, 3, 7, 20, 40, 79, 80, 81, 132, 200} {
			s := newScreen(width, height)
			for _, step := range []tea.Msg{tea.ResumeMsg{}, failed, empty, sampleAfter(1, 0), wide,
				tea.KeyPressMsg{Code: tea.KeyTab}, tea.KeyPressMsg{Code: 'G', Text: "G"},
				Story{Events: []Event{{Type: "QUORUM_LOST", Details: strings.Repeat("why ", 99)}}, Failed: "no"}, failed,
				tea.KeyPressMsg{Code: '?', Text: "?"}} {
				text := s.send(step).m.Text()
				lines := strings.Split(text, "\n")
				if len(lines) > max(1, height) {
					t.Fatalf("%dx%d has %d lines after %T:\n%s", width, height, len(lines), step, text)
				}
				for _, line := range lines {
					if columns(line) > width {
						t.Fatalf("%dx%d has a line of %d columns after %T: %q", width, height, columns(line), step, line)
					}
				}
			}
		}
	}
}

// columns is how wide a line is.
func columns(line string) int { return width(line) }

func TestKeysChooseScrollAndSort(t *testing.T) {
	s := newScreen(80, 24).send(sampleAfter(0, 50))
	s.has(t, `^> CURSOR .* 1-11 of 50$`)
	s.has(t, `sort \(lag\)`)
	s.has(t, `^  c049 `)
	s.press("j", "down").has(t, `^> CURSOR .* 3-13 of 50$`)
	s.press("k").has(t, `^> CURSOR .* 2-12 of 50$`)
	s.press("pgdown").has(t, ` 12-22 of 50$`)
	s.press("G").has(t, ` 40-50 of 50$`)
	s.press("j", "end").has(t, ` 40-50 of 50$`)
	s.press("k").has(t, ` 39-49 of 50$`)
	s.press("g").has(t, ` 1-11 of 50$`)
	// Who waits longest lags least here.
	s.press("j", "s").has(t, `^  c000 `)
	s.has(t, `sort \(time waited\)`)
	s.has(t, ` 1-11 of 50$`)
	// Through all tables, and back.
	s.press("tab").has(t, `^> TIME `)
	s.press("tab").has(t, `^> WRONG NOW`)
	s.press("tab").has(t, `^> NODE `)
	s.press("tab", "shift+tab").has(t, `^> NODE `)
	// The help takes the place of the tables until a key.
	s.press("?").has(t, `^j k, arrows`)
	s.press("x").has(t, `^> NODE `)
}

// quits reports a command that ends the program.
func quits(cmd tea.Cmd) bool {
	if cmd == nil {
		return false
	}
	_, quit := cmd().(tea.QuitMsg)
	return quit
}

func TestQAndControlCEndIt(t *testing.T) {
	for _, key := range []string{"q", "ctrl+c"} {
		for _, before := range [][]string{nil, {"?"}, {"p"}} {
			s := newScreen(80, 24).send(sampleAfter(0, 1)).press(before...).press(key)
			if !quits(s.cmds[len(s.cmds)-1]) {
				t.Errorf("%s after %v does not end it", key, before)
			}
		}
	}
}

// A view that is paused asks nobody and shows what it showed; then it asks at once.
func TestAPausedViewStaysAsItIs(t *testing.T) {
	s := newScreen(80, 24).send(sampleAfter(0, 3)).press("p")
	s.has(t, `PAUSED$`)
	before := s.m.Text()
	// A question was under way.
	s.send(sampleAfter(9, 30), tick{})
	if got := s.m.Text(); got != before {
		t.Errorf("a paused view changes:\n%s", got)
	}
	if s.cmds[len(s.cmds)-1] != nil {
		t.Error("a paused view asks")
	}
	s.press("p")
	ask := s.cmds[len(s.cmds)-1]
	if ask == nil {
		t.Fatal("it does not ask once it is not paused")
	}
	s.send(ask())
	s.has(t, `last offset 3100 `)
	// Whoever pauses it only for a moment does not have it ask twice.
	s.press("p", "p")
	if s.cmds[len(s.cmds)-1] != nil {
		t.Error("it asks beside the tick that is still to come")
	}
}

// A rate is the mean of at least five seconds where there are so many; a node that restarts counts from 0.
func TestRates(t *testing.T) {
	s := newScreen(80, 24)
	at := func(seconds int, delivered map[string]uint64) Sample {
		sample := sampleAfter(seconds, 0)
		sample.Delivered = delivered
		return sample
	}
	s.send(at(0, map[string]uint64{"n1": 1000, "n2": 7})).has(t, `^published -  read - `)
	s.send(at(1, map[string]uint64{"n1": 1100, "n2": 8})).has(t, `^published 50/s  read 101/s `)
	for i := 2; i < 9; i++ {
		s.send(at(i, map[string]uint64{"n1": 1100, "n2": 8}))
	}
	s.has(t, `^published 50/s  read 0.0/s `)
	s.send(at(9, map[string]uint64{"n1": 1100, "n2": 2, "n3": 500})).has(t, `^published 50/s  read 0.0/s `)
	// Another cluster has other offsets.
	other := at(10, nil)
	other.View.ClusterID = "d"
	s.send(other).has(t, `^published -  read - `)
}

// The log is read for the story once at first, and then only if the cluster has emitted something.
func TestTheStoryIsReadWhenItHasGrown(t *testing.T) {
	s := newScreen(80, 24).send(sampleAfter(0, 0))
	if !s.m.reading {
		t.Fatal("the story is not read at first")
	}
	elected := Event{Offset: 5, Type: "LEADER_ELECTED", Subject: "n2", Term: 7, At: began.Add(-time.Minute)}
	first := Story{}.With([]Event{elected}, sampleAfter(0, 0).View)
	s.send(sampleAfter(1, 0), first).has(t, `^n2 leads since 09:59:00Z \(1m1s\), term 7; 3 of 3 voters healthy`)
	if s.send(sampleAfter(2, 0)); s.m.reading {
		t.Error("the story is read although nothing was emitted")
	}
	grown := sampleAfter(3, 0)
	grown.View.Log.Emitted++
	if s.send(grown); !s.m.reading {
		t.Error("the story is not read although it has grown")
	}
	// What follows is added; of another cluster nothing stays.
	next := s.m.story.With([]Event{{Offset: 9}}, grown.View)
	if want := (Story{"c", 4, 251, append(first.Events, Event{Offset: 9}), ""}); !reflect.DeepEqual(next, want) {
		t.Errorf("%+v, not %+v", next, want)
	}
	grown.View.ClusterID = "d"
	if other := next.With(nil, grown.View); len(other.Events) != 0 || other.Cluster != "d" {
		t.Errorf("%+v", other)
	}
}

// A cluster that does not answer is shown with what it said last, and then as it is again.
func TestAnOutageIsShownAndItsEnd(t *testing.T) {
	down := Sample{At: began.Add(9 * time.Second), Failed: true, Verdict: "CRITICAL", Tone: shell.Bad,
		Findings: []Finding{{Found: "no node answers at http://n1"}}}
	s := newScreen(80, 24).send(down)
	s.has(t, `^RINGLOG CRITICAL +10:00:09Z every 1s$`)
	s.has(t, `^no node has shown its status yet$`)
	s.send(sampleAfter(5, 2), down)
	s.has(t, `^no node shows its status; below is what they said at 10:00:05Z, 4s ago$`)
	s.has(t, `✗ no node answers at http://n1`)
	s.has(t, `^  c001 `)
	s.send(sampleAfter(11, 2)).has(t, `^RINGLOG OK +cluster c`)
}

// What names have beside letters reaches no terminal.
func TestNamesDoNotControlTheTerminal(t *testing.T) {
	sample := sampleAfter(0, 1)
	evil := "\x1b]0;x\a\x1b[2J\u202e\n\u009b31m"
	sample.Cursors[0].Name, sample.Nodes[0].ID, sample.View.LeaderID = evil, evil, evil
	sample.View.ClusterID, sample.Nodes[1].Version = evil, evil
	sample.Findings = []Finding{{evil, evil}}
	s := newScreen(200, 60).send(sample, Story{Failed: evil, Events: []Event{{Type: evil, Subject: evil, Details: evil}}})
	if found := regexp.MustCompile(`[\x00-\x09\x0b-\x1f\x7f-\x{9f}\x{202e}]`).FindString(s.m.Text()); found != "" {
		t.Errorf("%q is on the screen", found)
	}
	if lines := strings.Count(s.m.Text(), "\n"); lines != 59 {
		t.Errorf("%d lines", lines+1)
	}
}
