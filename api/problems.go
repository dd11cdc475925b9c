package api

import (
	"fmt"
)

// Refuse returns an error about a field of a request: message says what is wrong with it, and remedy what to do.
func Refuse(code Code, field, message, remedy string) *Error {
	return &Error{Code: code, Field: field, Message: message, Remedy: remedy}
}

// BadValue refuses a value that is not what is wanted, such as "a whole number".
func BadValue(name, value, want string) *Error {
	return invalid(name, value, want, "send "+want)
}

// Missing refuses a request that lacks a field.
func Missing(field, want string) *Error {
	return Refuse(InvalidArgument, field, field+" is missing", "send "+want)
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
		Remedy: "send several requests, or raise the setting limits.request_bytes; " +
			"one event is bounded by limits.event_bytes"}
}

// BadPosition refuses what is not a position.
func BadPosition(field, text string) *Error {
	return BadValue(field, text, PositionForms)
}
