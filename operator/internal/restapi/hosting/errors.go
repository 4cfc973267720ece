package hosting

import (
	"errors"
	"fmt"
)

// Kind is what is wrong with a call.
type Kind int

// Kinds of errors.
const (
	// NotFound: there is no such server.
	NotFound Kind = iota + 1
	// Conflict: what is there contradicts the call.
	Conflict
	// Invalid: the call asks for something that can't be.
	Invalid
	// Busy: what is there is about to change. The same call works later.
	Busy
)

// Error is a caller's mistake. Errors of other types are the cluster's.
type Error struct {
	Kind Kind
	// Field is the name of the field that is wrong; empty where it is none.
	Field string
	// Message is a sentence that says what to change.
	Message string
}

func (e *Error) Error() string { return e.Message }

func failf(kind Kind, field, format string, args ...any) error {
	return &Error{Kind: kind, Field: field, Message: fmt.Sprintf(format, args...)}
}

// Is reports whether an error is one of a kind.
func Is(err error, kind Kind) bool {
	var e *Error
	return errors.As(err, &e) && e.Kind == kind
}
