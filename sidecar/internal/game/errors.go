package game

import (
	"errors"
	"fmt"
)

// Kind is the kind of error of a call, for each protocol to express in its own way.
type Kind int

// Kinds of errors.
const (
	// Invalid is a call that can never be valid.
	Invalid Kind = iota + 1
	// OutOfRange is a number beyond its bounds, or one value more than there is room for.
	OutOfRange
	// NotFound is a name or value that doesn't exist.
	NotFound
	// AlreadyExists is a value that exists already.
	AlreadyExists
	// TooLate is a call that the operator has acted on already.
	TooLate
	// Unavailable is a call that needs the state from before this sidecar started, which the
	// operator hasn't sent yet.
	Unavailable
)

// Error is a call that was refused; nothing changed. Its text is a sentence for
// the game's author.
type Error struct {
	Kind     Kind
	sentence string
}

// Error implements error.
func (e *Error) Error() string { return e.sentence }

// KindOf is an error's kind; 0 if it isn't one of this package's.
func KindOf(err error) Kind {
	var e *Error
	if errors.As(err, &e) {
		return e.Kind
	}
	return 0
}

func refuse(kind Kind, format string, args ...any) error {
	return &Error{Kind: kind, sentence: fmt.Sprintf(format, args...)}
}
