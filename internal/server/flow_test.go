package server

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/ringrift/ringlog/api"
	ringlogv1 "github.com/ringrift/ringlog/api/ringlog/v1"
	"github.com/ringrift/ringlog/api/ringlog/v1/ringlogv1connect"
)

// steady replaces what differs from run to run.
func steady(text string) string {
	text = regexp.MustCompile(`"\d{4}-\d\d-\d\dT[^"]*Z"`).ReplaceAllString(text, `"TIME"`)
	return regexp.MustCompile(`"lag_seconds":[0-9.e-]+`).ReplaceAllString(text, `"lag_seconds":LAG`)
}

// TestTranscript holds testdata/http.transcript, what a caller with curl sees, from a publish to a trim.
func TestTranscript(t *testing.T) {
	t.Parallel()
	s := newSite(t, nil)
	transcript, err := os.ReadFile(filepath.Join("testdata", "http.transcript"))
	if err != nil {
		t.Fatal(err)
	}
	// The first paragraph says what the file is.
	steps := strings.Split(strings.TrimSpace(string(transcript)), "\n\n")[1:]
	for _, step := range steps {
		call, lines, _ := strings.Cut(step, "\n")
		method, path, _ := strings.Cut(call, " ")
		var body, want string
		for line := range strings.SplitSeq(lines, "\n") {
			if text, sent := strings.CutPrefix(line, "> "); sent {
				body = text
			} else {
				want = strings.TrimPrefix(line, "< ")
			}
		}
		a := s.ok(method, path, body)
		if a.header.Get("Content-Type") == contentNDJSON {
			a.body, _ = a.stream(t)
		}
		got := steady(strings.TrimSuffix(a.body, "\n"))
		got = regexp.MustCompile(`"hash":"[0-9a-f]{64}"`).ReplaceAllString(got, `"hash":"HASH"`)
		got = strings.ReplaceAll(got, s.node.Status().ClusterID, "CLUSTER")
		got = regexp.MustCompile(`"term":\d+`).ReplaceAllString(got, `"term":TERM`)
		if got != want {
			t.Errorf("%s %s\n got %s\nwant %s", call, body, got, want)
		}
	}
	if len(steps) == 0 {
		t.Error("the transcript has no step")
	}
}

func offsetsIn(lines []map[string]any) (list []uint64) {
	for _, l := range lines {
		if n, ok := l["offset"].(float64); ok {
			list = append(list, uint64(n))
		}
	}
	return list
}

func TestReadsBeginWhereFromSays(t *testing.T) {
	t.Parallel()
	s := newSite(t, nil) // its LEADER_ELECTED is offset 1
	s.publish("A", 2, 3)
	eventually(
		t, "replicated time moved on",
		func() bool { return time.Since(s.node.Machine().Time()) > 20*time.Millisecond },
	)
	between := time.Now()
	s.publish("B", 4, 6)
	for _, one := range []struct {
		query string
		want  []uint64
	}{
		{"", []uint64{1, 2, 3, 4, 5, 6}},
		{"?from=start&limit=2", []uint64{1, 2}},
		{"?from=end", nil},
		{"?from=5", []uint64{5, 6}},
		{"?from=7", nil},
		{"?from=-1", []uint64{6}},
		{"?from=-100", []uint64{1, 2, 3, 4, 5, 6}},
		{"?from=@" + between.UTC().Format(time.RFC3339Nano), []uint64{4, 5, 6}},
		{"?from=@" + between.In(time.FixedZone("", 7200)).Format(time.RFC3339Nano), []uint64{4, 5, 6}},
		{"?from=@0", []uint64{1, 2, 3, 4, 5, 6}},
		{"?from=1h", []uint64{1, 2, 3, 4, 5, 6}},
		{"?from=7d", []uint64{1, 2, 3, 4, 5, 6}},
		{"?type=a&type=leader*", []uint64{1, 2, 3}},
		{"?type=B&key=k1", []uint64{4}},
		{"?source=s1", []uint64{3, 5}},
		{"?consistency=linearizable&min_offset=6&from=6", []uint64{6}},
	} {
		a := s.ok("GET", "/v1/events"+one.query, "")
		if got := offsetsIn(a.lines(t)); !slices.Equal(got, one.want) {
			t.Errorf("%s: %v, want %v", one.query, got, one.want)
		}
		if a.header.Get(headerLastOffset) != "6" {
			t.Errorf("%s: %v", one.query, a.header)
		}
	}
	if a := s.ok("HEAD", "/v1/events?follow=true", ""); a.header.Get(headerLastOffset) != "6" || a.body != "" {
		t.Errorf("HEAD: %v %q", a.header, a.body)
	}
}

func TestFollowDeliversWhatComesAndEndsWithTheServer(t *testing.T) {
	t.Parallel()
	s := newSite(t, nil)
	plain, header := s.follow(t.Context(), "/v1/events?follow=true&type=A")
	events, _ := s.follow(t.Context(), "/v1/events?from=1", "Accept", contentSSE)
	if header.Get("Content-Type") != contentNDJSON {
		t.Errorf("%v", header)
	}
	if got := next(t, events); got != "id: 1" {
		t.Errorf("%q", got)
	}
	next(t, events)
	s.publish("A", 1, 2)
	if got := next(t, plain); !strings.HasPrefix(got, `{"offset":2,"type":"A"`) {
		t.Errorf("%q", got)
	}
	if id, data := next(
		t, events,
	), next(t, events); id != "id: 2" || !strings.HasPrefix(data, `data: {"offset":2,"type":"A"`) {
		t.Errorf("%q %q", id, data)
	}
	next(t, plain)
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := s.server.Close(ctx); err != nil {
		t.Fatal(err)
	}
	if rest := ends(
		t, plain,
	); len(rest) != 1 || endOf(t, rest[0]) != (streamEnd{Reason: endStopping, Scanned: 3, LastOffset: 3}) {
		t.Errorf("%q", rest)
	}
	rest := ends(t, events)
	if len(rest) < 2 || rest[len(rest)-2] != "event: end" ||
		rest[len(rest)-1] != `data: {"reason":"stopping","scanned":3,"last_offset":3}` {
		t.Errorf("%q", rest)
	}
}

func TestAnEventSourceResumesAfterItsLastEvent(t *testing.T) {
	t.Parallel()
	s := newSite(t, nil)
	s.publish("A", 2, 9)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	lines, _ := s.follow(ctx, "/v1/events?from=1", "Accept", contentSSE, "Last-Event-ID", "7")
	for want := 8; want <= 9; want++ {
		if id, data := next(
			t, lines,
		), next(t, lines); id != fmt.Sprintf("id: %d", want) || !strings.Contains(data, fmt.Sprintf(`"n": %d`, want)) {
			t.Errorf("%q %q", id, data)
		}
	}
	if a := s.do("GET", "/v1/events", "", "Accept", contentSSE, "Last-Event-ID", "x"); a.status != 400 {
		t.Errorf("%d %s", a.status, a.body)
	}
}

func TestAQuietStreamShowsThatItIsAliveAndHowFarItHasRead(t *testing.T) {
	t.Parallel()
	for _, form := range []struct {
		name, accept, heartbeat string
		scanned                 []string
	}{
		{"NDJSON", contentNDJSON, "", []string{`{"scanned":2}`}},
		{"SSE", contentSSE, ": still here", []string{"id: 2", "event: scanned", "data: 2"}},
	} {
		t.Run(form.name, func(t *testing.T) {
			s := newSite(t, func(c *Config) { c.Heartbeat = 20 * time.Millisecond })
			lines, _ := s.follow(t.Context(), "/v1/events?follow=true&type=B", "Accept", form.accept)
			line := func() string {
				select {
				case line := <-lines:
					return line
				case <-time.After(10 * time.Second):
					t.Fatal("silence")
					return ""
				}
			}
			for range 3 {
				if got := line(); got != form.heartbeat && got != "" {
					t.Fatalf("%q, want heartbeats", got)
				}
			}
			s.publish("A", 1, 1) // offset 2, which does not match
			for _, want := range form.scanned {
				got := line()
				for got == form.heartbeat || got == "" {
					got = line()
				}
				if got != want {
					t.Fatalf("%q, want %q", got, want)
				}
			}
			for range 3 { // and says so once
				if got := line(); got != form.heartbeat && got != "" {
					t.Fatalf("%q, want heartbeats", got)
				}
			}
		})
	}
}

func TestAFollowedJournalShowsThatTheNodeIsAlive(t *testing.T) {
	t.Parallel()
	s := newSite(t, func(c *Config) { c.Heartbeat = 20 * time.Millisecond })
	lines, _ := s.follow(t.Context(), "/v1/cluster/outage?follow=true")
	for range 3 {
		select {
		case line := <-lines:
			if line != "" {
				t.Fatalf("%q, want heartbeats", line)
			}
		case <-time.After(10 * time.Second):
			t.Fatal("silence")
		}
	}
	timed := s.ok("GET", "/v1/cluster/outage?follow=true&timeout=50ms", "")
	if got := strings.TrimSpace(timed.body); got != `{"end":{"reason":"timeout","seq":0}}` {
		t.Errorf("%q", got)
	}
}

func TestAStreamSaysHowItEnded(t *testing.T) {
	t.Parallel()
	s := newSite(t, nil)
	s.publish("A", 2, 5)
	s.publish("B", 6, 6)
	for _, one := range []struct {
		query string
		want  streamEnd
	}{
		{"", streamEnd{Reason: endOfLog, Scanned: 6, LastOffset: 6}},
		{"?type=A", streamEnd{Reason: endOfLog, Scanned: 6, LastOffset: 6}},
		{"?from=2&limit=2", streamEnd{Reason: endLimit, Scanned: 3, LastOffset: 6}},
		{"?follow=true&from=1&limit=6", streamEnd{Reason: endLimit, Scanned: 6, LastOffset: 6}},
		{"?follow=true&type=B&timeout=50ms", streamEnd{Reason: endTime, Scanned: 6, LastOffset: 6}},
		// One that waits for an offset which has not come resumes at that offset.
		{"?follow=true&from=9&timeout=50ms", streamEnd{Reason: endTime, Scanned: 8, LastOffset: 6}},
	} {
		if _, end := s.ok("GET", "/v1/events"+one.query, "").stream(t); end != one.want {
			t.Errorf("%s: %+v, want %+v", one.query, end, one.want)
		}
	}
}

// A reader that follows from an offset past the tail sees that the stream is alive, and gets no event before that
// offset, over either protocol.
func TestFollowingFromPastTheTailWaitsForIt(t *testing.T) {
	t.Parallel()
	s := newSite(t, func(c *Config) { c.Heartbeat = 20 * time.Millisecond })
	lines, header := s.follow(t.Context(), "/v1/events?follow=true&from=4")
	if tail := header.Get(headerLastOffset); tail != "1" {
		t.Errorf("the log is shown to end at %s", tail)
	}
	c := ringlogv1connect.NewLogServiceClient(h2c(t), s.url)
	from := &ringlogv1.Position{At: &ringlogv1.Position_Offset{Offset: 4}}
	stream, err := c.Tail(t.Context(), connect.NewRequest(&ringlogv1.TailRequest{Follow: true, From: from}))
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	for range 3 {
		if line, open := <-lines; line != "" || !open {
			t.Fatalf("%q, want heartbeats", line)
		}
		if !stream.Receive() || stream.Msg().Next != 4 || stream.Msg().LastOffset != 1 {
			t.Fatalf("%v %v", stream.Msg(), stream.Err())
		}
	}
	s.publish("A", 2, 4)
	if line := next(t, lines); !strings.HasPrefix(line, `{"offset":4,`) {
		t.Errorf("the first event is %s", line)
	}
	for stream.Receive() && len(stream.Msg().Runs) == 0 {
	}
	if stream.Err() != nil || stream.Msg().Runs[0].Events[0].Offset != 4 {
		t.Errorf("%v %v", stream.Msg(), stream.Err())
	}
}

// TestAReaderOfARareTypeCommitsWhatWasScanned is a daemon that knows HTTP and JSON alone.
func TestAReaderOfARareTypeCommitsWhatWasScanned(t *testing.T) {
	t.Parallel()
	s := newSite(t, func(c *Config) { c.Heartbeat = 20 * time.Millisecond })
	s.ok("PUT", "/v1/cursors/c", `{"filter":{"types":["RARE"]}}`)
	s.ok("POST", "/v1/cursors/c/open", "")
	s.publish("RARE", 1, 1)   // offset 2
	s.publish("COMMON", 1, 9) // up to 11
	lines, _ := s.follow(t.Context(), "/v1/cursors/c/events?follow=true&generation=1")
	var line struct {
		Offset, Scanned uint64
	}
	for line.Scanned < 11 {
		if err := json.Unmarshal([]byte(next(t, lines)), &line); err != nil {
			t.Fatal(err)
		}
		s.ok("POST", "/v1/cursors/c/commit", fmt.Sprintf(`{"offset":%d,"generation":1}`, max(line.Offset, line.Scanned)))
	}
	var c api.Cursor
	s.ok("GET", "/v1/cursors/c", "").decode(t, &c)
	if c.Committed != 11 || c.LagEvents != 0 {
		t.Errorf("%+v", c)
	}
}

func TestATrimmedReaderGetsTheGap(t *testing.T) {
	t.Parallel()
	s := newSite(t, nil)
	s.publish("A", 1, 3) // 2 to 4
	s.publish("B", 4, 5) // 5 and 6
	s.ok("POST", "/v1/compact", `{"before":5}`)
	got := s.ok("GET", "/v1/events?from=2", "").lines(t)
	if gap, _ := json.Marshal(
		got[0],
	); string(gap) != `{"gap":{"from":2,"reason":"trimmed","to":4}}` || !slices.Equal(offsetsIn(got), []uint64{5, 6}) {
		t.Errorf("%s then %v", gap, offsetsIn(got))
	}
	lines, _ := s.follow(t.Context(), "/v1/events?from=2&follow=false", "Accept", contentSSE)
	if a, b := next(t, lines), next(t, lines); a != "event: gap" || b != `data: {"from":2,"to":4,"reason":"trimmed"}` {
		t.Errorf("%q %q", a, b)
	}
	ends(t, lines)
	a := s.do("GET", "/v1/events/2", "")
	if e := a.err(t); a.status != http.StatusGone || e.Code != api.Trimmed || e.Offset != 5 {
		t.Errorf("%d %s", a.status, a.body)
	}
}

func TestARetryWithProducerAndSequenceIsAnsweredAsTheFirstTime(t *testing.T) {
	t.Parallel()
	s := newSite(t, nil)
	send := func(sequence, body string) answer {
		return s.do("POST", "/v1/events", body, headerProducer, "p1", headerSequence, sequence)
	}
	body := `{"type":"A","payload":{},"dedup":false}`
	first := send("1", body)
	again := send("1", body)
	var a, b struct {
		Results  []struct{ Offset uint64 }
		Replayed bool
	}
	first.decode(t, &a)
	again.decode(t, &b)
	if a.Results[0].Offset != b.Results[0].Offset || a.Replayed || !b.Replayed {
		t.Errorf("%s then %s", first.body, again.body)
	}
	gap := send("3", body)
	if e := gap.err(t); gap.status != 409 || e.Code != api.OutOfSequence || e.Offset != 2 {
		t.Errorf("%d %s", gap.status, gap.body)
	}
	if _, last := s.node.Machine().Log().Bounds(); last != 2 {
		t.Errorf("the tail is %d", last)
	}
}

func TestABackupCanBeVerified(t *testing.T) {
	t.Parallel()
	s := newSite(t, nil)
	s.publish("A", 1, 100)
	a := s.ok("GET", "/v1/snapshot", "")
	verifySnapshot(t, a.body, 101)
}
