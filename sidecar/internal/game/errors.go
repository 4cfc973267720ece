package game

import (
	"errors"
	"fmt"
)

// Kind says what is wrong with a call, so that each protocol can say it in its own
// way.
type Kind int

// Kinds of errors.
const (
	// Invalid is a call that can never be right.
	Invalid Kind = iota + 1
	// OutOfRange is a number beyond its bounds, or a value more than fits.
	OutOfRange
	// NotFound is a name or value that isn't there.
	NotFound
	// AlreadyExists is a value that is there already.
	AlreadyExists
	// TooLate is a call that the operator has acted on already.
	TooLate
	// Unavailable is a call that needs to know what was before this sidecar
	// started, which the operator hasn't told yet.
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
