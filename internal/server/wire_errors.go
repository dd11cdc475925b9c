package server

import (
	"errors"
	"net/http"
	"strconv"

	ringlogv1 "github.com/ringrift/ringlog/api/ringlog/v1"

	"connectrpc.com/connect"

	"github.com/ringrift/ringlog/api"
)

// retryAfter returns after how many seconds a request with this code is worth a retry, 0 if the cause does not
// pass by itself.
func retryAfter(code api.Code) uint32 {
	// Both statuses say that the node cannot now, and not that it cannot.
	switch code.Status() {
	case http.StatusServiceUnavailable, http.StatusTooManyRequests:
		return 1
	}
	return 0
}

// setRetryAfter sets the header that says the same as retryAfter.
func setRetryAfter(h http.Header, code api.Code) {
	if wait := retryAfter(code); wait != 0 {
		h.Set("Retry-After", strconv.Itoa(int(wait)))
	}
}

// errorDetail returns all of an error as a message, for Connect errors and publish streams.
func errorDetail(e *api.Error) *ringlogv1.ErrorDetail {
	return &ringlogv1.ErrorDetail{
		Code:       string(e.Code),
		Message:    e.Message,
		Reason:     e.Reason,
		Field:      e.Field,
		Remedy:     e.Remedy,
		Offset:     e.Offset,
		LeaderHttp: e.LeaderHTTP,
	}
}

// connectError returns an error as Connect sends it, with all of it in a detail.
func connectError(e *api.Error) *connect.Error {
	// Callers of other languages see code and message; the rest is in the detail.
	out := connect.NewError(e.Code.Connect(), errors.New(e.Message))
	if detail, err := connect.NewErrorDetail(errorDetail(e)); err == nil {
		out.AddDetail(detail)
	}
	setRetryAfter(out.Meta(), e.Code)
	return out
}

// apiError returns the error that connectError put into err on the other side; false if there is none.
func apiError(err error) (*api.Error, bool) {
	remote, ok := errors.AsType[*connect.Error](err)
	if !ok {
		return nil, false
	}
	// Another server may add details of its own kinds.
	for _, d := range remote.Details() {
		value, err := d.Value()
		if detail, ok := value.(*ringlogv1.ErrorDetail); ok && err == nil {
			return &api.Error{
				Code:       api.Code(detail.Code),
				Message:    detail.Message,
				Reason:     detail.Reason,
				Field:      detail.Field,
				Remedy:     detail.Remedy,
				Offset:     detail.Offset,
				LeaderHTTP: detail.LeaderHttp,
			}, true
		}
	}
	return nil, false
}
