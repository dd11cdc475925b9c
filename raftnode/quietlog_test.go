package raftnode

import (
	"bytes"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
)

func TestWhatRaftLogsOfAPeerIsLoggedOnceAMinute(t *testing.T) {
	began := time.Now()
	q := newQuietLogger(hclog.NewNullLogger())
	for _, step := range []struct {
		after time.Duration
		msg   string
		peer  string
		want  bool
		held  string
	}{
		{0, "failed to heartbeat to", "n2:1", true, ""},
		{time.Second, "failed to heartbeat to", "n2:1", false, ""},
		{time.Second, "failed to heartbeat to", "n3:1", true, ""},
		{time.Second, "entering leader state", "n2:1", true, ""},
		{time.Second, "entering leader state", "n2:1", true, ""},
		{59 * time.Second, "failed to heartbeat to", "n2:1", false, ""},
		{60 * time.Second, "failed to heartbeat to", "n2:1", true, "not-logged-meanwhile 2"},
	} {
		args, due := q.due(step.msg, []any{"peer", step.peer}, began.Add(step.after))
		if text := strings.TrimSpace(fmt.Sprintln(args...)); due != step.want || due && !strings.HasSuffix(text, step.held) {
			t.Errorf("%+v: %v, %s", step, due, text)
		}
	}
}

// A cluster that forms without a fault logs none, and a peer that is away is not
// reported with each attempt to reach it.
func TestTheLogIsQuietWhereThereIsNothingToDo(t *testing.T) {
	var out hclogBuffer
	inBubbleWith(t, func(cfg *Config) {
		cfg.Logger = hclog.New(&hclog.LoggerOptions{Name: cfg.ID, Level: hclog.Info, Output: &out, DisableTime: true})
	}, func(s *simulation) {
		time.Sleep(10 * time.Second)
		if found := out.lines("[ERROR]"); len(found) > 0 {
			t.Errorf("while the cluster formed:\n%s", strings.Join(found, "\n"))
		}
		s.crash(s.follower())
		time.Sleep(30 * time.Second)
		if found := out.lines("[ERROR]"); len(found) == 0 || len(found) > 4 {
			t.Errorf("of a peer that is away: %d errors\n%s", len(found), strings.Join(found, "\n"))
		}
	})
}

// hclogBuffer takes the lines of several loggers.
type hclogBuffer struct {
	mu  sync.Mutex
	out bytes.Buffer
}

func (b *hclogBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.out.Write(p)
}

func (b *hclogBuffer) lines(with string) (found []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for line := range strings.Lines(b.out.String()) {
		if strings.Contains(line, with) {
			found = append(found, strings.TrimSpace(line))
		}
	}
	return found
}
