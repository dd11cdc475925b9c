package router_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/ringrift/ringlog/client"
	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/router"
)

// story collects what a subscription is given, in order.
type story struct {
	mu    sync.Mutex
	lines []string
}

func (s *story) say(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lines = append(s.lines, fmt.Sprintf(format, args...))
}

func (s *story) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Join(s.lines, ", ")
}

// A durable subscription that retention has passed, while its process was away or while
// its handler was slow, hears what it lost, once, before what follows; the cursor's own
// record of it is gone then.
func TestRetentionThatPassesASubscriptionIsTold(t *testing.T) {
	n := node(t)
	c := n.Client()
	var handled story
	stuck, release := make(chan struct{}, 1), make(chan struct{})
	trainer := router.Subscription{Name: "trainer", Types: []string{"TRAINING_PROGRESS"}, Durable: true, Queue: 1,
		Handler: func(_ context.Context, ev event.Event) error {
			if ev.Key == "stuck" {
				stuck <- struct{}{}
				<-release
			}
			handled.say("%s%d", ev.Key, number(ev))
			return nil
		},
		OnGap: func(_ context.Context, gap client.Gap) {
			handled.say("gap of %d, %v of them mine, %s", gap.To+1-gap.From, gap.Types, gap.Reason)
		}}
	log := router.OnClient(c)
	first := open(t, log, router.Options{})
	subscribe(t, first, trainer)
	publish(t, first, progress("k", 0))
	eventually(t, "it is handled", func() bool { return handled.String() == "k0" })
	shut(t, first)

	second := open(t, log, router.Options{})
	for i := range 3 {
		publish(t, second, progress("lost", i))
		publish(t, second, event.New(event.TrainingStarted, nil))
	}
	compact(t, c, publish(t, second, progress("k", 1)).Offset)
	if info := cursorOf(t, c, "trainer"); info.Gap == nil {
		t.Fatalf("%+v", info)
	}
	sub := subscribe(t, second, trainer)
	const away = "k0, gap of 6, map[TRAINING_PROGRESS:3] of them mine, forced, k1"
	eventually(
		t,
		"the gap is reported",
		func() bool { return handled.String() == away && cursorOf(t, c, "trainer").Gap == nil },
	)
	if st := second.Subscribers()[0]; st.Gaps != 1 || st.LastGap == nil || st.LastGap.To != st.LastOffset-1 ||
		st.Received != 1 {
		t.Errorf("%+v", st)
	}

	publish(t, second, progress("stuck", 2))
	<-stuck
	const beyond = 2000 // more than is read ahead, which is handled, gap or not
	var last uint64
	for i := range beyond {
		last = publish(t, second, progress("far", i)).Offset
	}
	compact(t, c, last)
	close(release)
	eventually(
		t,
		"the last is handled",
		func() bool { return strings.HasSuffix(handled.String(), fmt.Sprintf("far%d", beyond-1)) },
	)
	eventually(t, "all is committed", func() bool { return cursorOf(t, c, "trainer").Committed >= last })
	st := sub.Status()
	if strings.Count(handled.String(), "gap of") != 2 || st.Gaps != 2 || st.LastGap.To != last-1 ||
		st.LastGap.Reason != "forced" {
		t.Errorf("%s: %+v", handled.String(), st)
	}
	far := st.Received - 2 // the last of them from after the gap
	if far >= beyond || strings.Count(handled.String(), "far") != int(far) ||
		!strings.Contains(handled.String(), fmt.Sprintf("far%d,", far-2)) {
		t.Errorf("%d were read: %s", far, handled.String())
	}
}
