package server

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

func TestATypeRegisteredMeanwhileReachesOpenReaders(t *testing.T) {
	t.Parallel()
	s := newSite(t, nil)
	register := func(name string) {
		s.ok("POST", "/v1/catalogue", fmt.Sprintf(`[{"name":%q,"category":"hardware"}]`, name))
	}
	register("GPU_WARM")
	lines, _ := s.follow(t.Context(), "/v1/events?category=hardware&follow=true&from=start")
	member := s.group("g", `{"from":"start","filter":{"categories":["hardware"]}}`)("w")
	s.publish("GPU_WARM", 1, 1)
	warm := member.say(`"want":1,"wait_ms":20000`).offsets()
	if len(warm) != 1 {
		t.Fatalf("%v", warm)
	}

	register("GPU_MELTED")
	melted := s.publish("GPU_MELTED", 2, 2)[0]
	late := time.After(20 * time.Second)
	for found := false; !found; {
		select {
		case line, open := <-lines:
			if !open {
				t.Fatal("the stream has ended")
			}
			found = strings.Contains(line, "GPU_MELTED")
		case <-late:
			t.Fatal("the stream does not show an event of a type that was registered while it was open")
		}
	}
	got := member.say(acks(warm[0], warm[0]) + `,"want":1,"wait_ms":5000`).offsets()
	if len(got) != 1 || got[0] != melted {
		t.Errorf("the group got %v, want %d", got, melted)
	}
}
