package server

import (
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	ringlogv1 "github.com/ringrift/ringlog/api/ringlog/v1"
	"github.com/ringrift/ringlog/api/ringlog/v1/ringlogv1connect"
)

// A repeated request is answered as it was the first time, including the time at which its event was appended.
func TestAReplayedAnswerHasTheStoredTime(t *testing.T) {
	t.Parallel()
	s := newSite(t, nil)
	type published struct {
		Results []struct {
			Offset     uint64
			AppendedAt time.Time `json:"appended_at"`
		}
		Replayed bool
	}
	var first, again published
	body := []string{"POST", "/v1/events", `{"type":"A","dedup":false}`}
	headers := []string{headerProducer, "p", headerSequence, "1"}
	s.ok(body[0], body[1], body[2], headers...).decode(t, &first)
	at := first.Results[0].AppendedAt
	eventually(t, "replicated time moved on", func() bool {
		s.publish("B", 1, 1)
		return s.node.Machine().Time().After(at.Add(20 * time.Millisecond))
	})
	s.ok(body[0], body[1], body[2], headers...).decode(t, &again)
	if !again.Replayed || again.Results[0] != first.Results[0] {
		t.Errorf("first %+v, then %+v", first, again)
	}
	var stored struct {
		AppendedAt time.Time `json:"appended_at"`
	}
	s.ok("GET", "/v1/events/"+uintText(first.Results[0].Offset), "").decode(t, &stored)
	if !stored.AppendedAt.Equal(at) {
		t.Errorf("stored at %s, answered %s", stored.AppendedAt, at)
	}
	log := ringlogv1connect.NewLogServiceClient(s.http, strings.TrimSuffix(s.url, "/"))
	answer, err := log.Publish(t.Context(), connect.NewRequest(&ringlogv1.PublishRequest{ProducerId: "p", Sequence: 1,
		Events: []*ringlogv1.Event{{Type: "A", NoDedup: true}}}))
	if err != nil || !answer.Msg.Replayed || answer.Msg.AppendedAtUnixNano != at.UnixNano() {
		t.Errorf("over Connect: %v, %v", answer, err)
	}
}
