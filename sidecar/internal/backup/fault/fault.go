// Package fault tells the faults of the programs that copy disks apart: those that another try can't
// mend, and the signal to end.
package fault

import (
	"context"
	"errors"
	"fmt"
	"syscall"
)

// FinalError is a fault that another try can't mend.
type FinalError struct{ error }

// Unwrap gives what it wraps.
func (e FinalError) Unwrap() error { return e.error }

// Final makes a FinalError, as fmt.Errorf does.
func Final(format string, args ...any) error { return FinalError{fmt.Errorf(format, args...)} }

// IsFinal reports whether another try can't mend an error.
func IsFinal(err error) bool {
	var f FinalError
	return errors.As(err, &f)
}

// ErrCanceled is how a program ends that was told to.
var ErrCanceled = errors.New("the program was told to end before it was done")

// Canceled is ErrCanceled once ctx has ended.
func Canceled(ctx context.Context) error {
	if ctx.Err() != nil {
		return ErrCanceled
	}
	return nil
}

// IsFull reports whether an error is that a file system, or a user's share of it, is full.
func IsFull(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}
