package server

import (
	"encoding/json"
	"strconv"
	"time"

	"github.com/ringrift/ringlog/api"
)

// parsePosition reads a position of a query. Times without a zone are UTC; an empty text is the zero Position, the
// default of the operation.
func parsePosition(field, text string) (api.Position, error) {
	return api.ParsePosition(field, text, time.UTC)
}

// parseJSONPosition reads a position of a body: a string as parsePosition takes it, or the offset of the next
// event as a number, where 0 is as good as 1. Missing or null is the zero Position.
func parseJSONPosition(field string, raw json.RawMessage) (api.Position, error) {
	text := string(raw)
	// A string has all forms; a number is an offset.
	switch {
	case text == "" || text == "null":
		return api.Position{}, nil
	case text[0] == '"':
		if err := json.Unmarshal(raw, &text); err != nil {
			return api.Position{}, api.BadPosition(field, text)
		}
		return parsePosition(field, text)
	}
	// Neither fraction nor sign: ParseUint refuses both.
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return api.Position{}, api.BadPosition(field, text)
	}
	return api.Position{Kind: api.AtOffset, Offset: max(n, 1)}, nil
}
