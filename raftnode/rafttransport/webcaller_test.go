package rafttransport

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"
)

// A client of HTTP that has the raft port for an endpoint gets an answer that says so, and the log says so, too.
func TestAClientOfHTTPLearnsThatItHasTheRaftPort(t *testing.T) {
	tr := newTown().open(t, "n1", nil)
	client := http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	for _, method := range []string{"GET", "POST", "PUT", "DELETE"} {
		// The body is longer than what is read before the answer.
		request, err := http.NewRequest(method, "http://"+string(tr.LocalAddr())+"/v1/events",
			strings.NewReader(strings.Repeat("x", 100<<10)))
		if err != nil {
			t.Fatal(err)
		}
		answer, err := client.Do(request)
		if err != nil {
			t.Fatalf("%s: %v", method, err)
		}
		var body struct {
			Message string
			Error   struct{ Code, Reason, Field, Message, Remedy string }
		}
		if err := json.NewDecoder(answer.Body).Decode(&body); err != nil {
			t.Fatalf("%s: %v", method, err)
		}
		_ = answer.Body.Close()
		if answer.StatusCode != http.StatusMisdirectedRequest || body.Error.Code != "other_cluster" ||
			body.Error.Reason != "raft_port" || body.Error.Field != "endpoints" ||
			!strings.Contains(body.Error.Message, "raft port") || !strings.Contains(body.Error.Remedy, "--http") {
			t.Errorf("%s: %s: %+v", method, answer.Status, body)
		}
	}
	list := tr.Refusals()
	if len(list) != 1 || list[0].Reason != "malformed" || !strings.Contains(list[0].Detail, "HTTP") {
		t.Errorf("recorded %+v", list)
	}
}
