package api

import (
	"encoding/json"
	"testing"
	"time"
)

// A policy is read as it is written, with its duration as text.
func TestPoliciesInJSON(t *testing.T) {
	cursor := CursorPolicy{HoldEvents: 7, HoldFor: 36 * time.Hour}
	group := GroupPolicy{AckWait: 45 * time.Second, MaxDeliver: 3}
	for _, test := range []struct {
		in, out any
		text    string
	}{
		{&cursor, &CursorPolicy{}, `{"hold_events":7,"hold_for":"36h0m0s"}`},
		{&CursorPolicy{}, &CursorPolicy{}, `{}`},
		{&group, &GroupPolicy{}, `{"max_deliver":3,"ack_wait":"45s"}`},
		{&GroupPolicy{}, &GroupPolicy{}, `{}`},
	} {
		b, err := json.Marshal(test.in)
		if err != nil || string(b) != test.text {
			t.Errorf("%s, %v, want %s", b, err, test.text)
		}
		if err := json.Unmarshal(b, test.out); err != nil {
			t.Error(err)
		}
		if again, _ := json.Marshal(test.out); string(again) != test.text {
			t.Errorf("read as %s, written as %s", again, test.text)
		}
	}
	if err := json.Unmarshal([]byte(`{"hold_for":"soon"}`), &cursor); err == nil {
		t.Error("soon is no duration")
	}
}
