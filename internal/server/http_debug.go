package server

import (
	"bytes"
	"net/http"
	"runtime/pprof"
)

// maxStacks bounds, in bytes, the goroutines that are shown.
const maxStacks = 4 << 20

// getStacks answers GET /v1/debug/stacks with what the goroutines of the node do, those that do the same as one. It
// shows places in the program and no values.
func (h *statusHandlers) getStacks(w http.ResponseWriter, r *http.Request) error {
	if err := newParams(r).done(); err != nil {
		return err
	}
	var text bytes.Buffer
	if err := pprof.Lookup("goroutine").WriteTo(&text, 1); err != nil {
		return err
	}
	return writeBytes(w, http.StatusOK, "text/plain; charset=utf-8", text.Bytes()[:min(text.Len(), maxStacks)])
}
