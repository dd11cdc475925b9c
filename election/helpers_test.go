package election

import (
	"encoding/json"

	"github.com/ringrift/ringlog/event"
)

// fields returns the payload of an event.
func fields(e event.Event) (p map[string]any) {
	if err := json.Unmarshal(e.Payload, &p); err != nil {
		panic(err)
	}
	return p
}
