package api

import (
	"fmt"
)

// BadValue refuses a value that is not what is wanted, such as "a whole number".
func BadValue(name, value, want string) *Error {
	return invalid(name, value, want, "send "+want)
}

// Missing refuses a request that lacks a field.
func Missing(field, want string) *Error {
	return &Error{Code: InvalidArgument, Field: field, Message: field + " is missing", Remedy: "send " + want}
}

// BeyondTail refuses an offset that the log has not reached.
func BeyondTail(field string, offset, tail uint64, remedy string) *Error {
	return &Error{Code: PastTail, Field: field, Offset: tail,
		Message: fmt.Sprintf("offset %d is past the tail, which is %d", offset, tail),
		Remedy:  remedy}
}

// RequestTooLarge refuses a request of more than limit bytes.
func RequestTooLarge(limit int) *Error {
	return &Error{Code: TooLarge, Field: "body", Message: fmt.Sprintf("the limit for a request is %d bytes", limit),
		Remedy: "send several requests, or raise limits.request_bytes"}
}

// BadPosition refuses what is no position.
func BadPosition(field, text string) *Error {
	return BadValue(field, text, PositionForms)
}
