package main

import (
	"encoding/json"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/ringrift/ringlog/cmd/ringlog/internal/shell"
	"github.com/ringrift/ringlog/cmd/ringlog/internal/top"
)

var update = flag.Bool("update", false, "write the screens of testdata/top again")

// recorded is what the nodes of a real cluster answered at one moment.
type recorded struct {
	At        time.Time         `json:"at"`
	Delivered map[string]uint64 `json:"delivered"`
	Answers   []struct {
		URL    string     `json:"url"`
		Status nodeStatus `json:"status"`
		Error  string     `json:"error"`
	} `json:"answers"`
	History history `json:"history"`
}

// sampleFrom returns what top makes of recorded answers.
func sampleFrom(t *testing.T, name string) (top.Sample, top.Story) {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join("testdata", "top", name+".json"))
	if err != nil {
		t.Fatal(err)
	}
	var r recorded
	if err := json.Unmarshal(raw, &r); err != nil {
		t.Fatal(err)
	}
	found := newSweep[nodeStatus]()
	for _, a := range r.Answers {
		one := answer[nodeStatus]{url: a.URL, value: a.Status}
		if a.Error != "" {
			one.err = errors.New(a.Error)
		}
		found.answers = append(found.answers, one)
		for _, m := range a.Status.Members {
			found.members["http://"+m.HTTP], found.homes["http://"+m.HTTP] = m.ID, a.Status.ClusterID
		}
	}
	s := sampleOf(found, nil, []string{r.Answers[0].URL, r.Answers[1].URL, r.Answers[2].URL}, r.At)
	s.Delivered = r.Delivered
	events, err := storyEvents(r.History)
	if err != nil {
		t.Fatal(err)
	}
	return s, top.Story{}.With(events, s.View)
}

// The screens of recorded answers, at the size of an old terminal and of a large one. Without its colours a screen says
// as much.
func TestTheScreensOfTop(t *testing.T) {
	before, _ := sampleFrom(t, "before")
	healthy, story := sampleFrom(t, "healthy")
	silent, silentStory := sampleFrom(t, "silent")
	leaderless, leaderlessStory := sampleFrom(t, "leaderless")
	nobody := sampleOf(sweep[nodeStatus]{}, shell.ErrUnreachable, []string{"http://127.0.0.1:8970"},
		leaderless.At.Add(7*time.Second))
	tab := tea.KeyPressMsg{Code: tea.KeyTab}
	for name, msgs := range map[string][]tea.Msg{
		"healthy":    {before, healthy, story},
		"silent":     {healthy, silent, silentStory, tab},
		"leaderless": {silent, silentStory, leaderless, leaderlessStory, tab, tab},
		"nobody":     {leaderless, leaderlessStory, nobody},
		"paused": {before, healthy, story, tea.KeyPressMsg{Code: 's', Text: "s"}, tea.KeyPressMsg{Code: 'p', Text: "p"},
			silent},
		"help": {healthy, tea.KeyPressMsg{Code: '?', Text: "?"}},
	} {
		for size, terminal := range map[string]tea.WindowSizeMsg{"80x24": {Width: 80, Height: 24},
			"200x60": {Width: 200, Height: 60}} {
			plain := topScreen(terminal, func(_ shell.Tone, text string) string { return text }, msgs)
			file := filepath.Join("testdata", "top", name+"-"+size+".txt")
			if *update {
				if err := os.WriteFile(file, []byte(plain+"\n"), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if plain+"\n" != string(want) {
				t.Errorf("%s is\n%s\nnot\n%s", file, plain, want)
			}
			coloured := topScreen(terminal, (&shell.Shell{Colour: true}).Paint, msgs)
			if got := regexp.MustCompile(`\x1b\[\d*m`).ReplaceAllString(coloured, ""); got != plain ||
				!strings.Contains(coloured, "\x1b[") {
				t.Errorf("with colours, %s is\n%s\nnot\n%s", file, got, plain)
			}
		}
	}
}

// topScreen is what a view shows after messages.
func topScreen(size tea.WindowSizeMsg, paint func(shell.Tone, string) string, msgs []tea.Msg) string {
	var m tea.Model = top.New(top.Options{Interval: time.Second, Paint: paint})
	m, _ = m.Update(size)
	for _, msg := range msgs {
		m, _ = m.Update(msg)
	}
	return m.(top.Model).Text()
}

// It is refused where nobody sees it, with what to take instead.
func TestTopNeedsATerminal(t *testing.T) {
	for _, args := range [][]string{{"top"}, {"top", "-o", "json"}} {
		_, err := runApp(args...)
		if shell.ExitCode(err) != shell.ExitUsage || !strings.Contains(err.Error(), "ringlog status -o json") ||
			!strings.Contains(err.Error(), "ringlog check") {
			t.Errorf("%v: %v", args, err)
		}
	}
}
