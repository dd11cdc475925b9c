package service

import (
	"errors"
	"testing"
)

// Every reason why members stay as they are has its code, and is known again by its reason alone.
func TestMemberErrorsAreKnownByTheirReasons(t *testing.T) {
	for _, known := range memberErrors {
		e := ToAPI(known.is)
		if e.Reason != known.reason || e.Code != known.code {
			t.Errorf("%v: %+v", known.is, e)
		}
		e.Message = "in other words"
		if known.reason != "" && !errors.Is(NodeError(e), known.is) {
			t.Errorf("%v is not known again by %q", known.is, e.Reason)
		}
	}
}
