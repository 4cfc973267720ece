package backup

import (
	"context"
	"errors"
	"fmt"
	"syscall"
)

// Exit codes, beside 0.
const (
	codeFailed = 1
	// codeFinal is of a fault that another try can't mend.
	codeFinal = 2
)

// finalError is a fault that another try can't mend.
type finalError struct{ error }

func (e finalError) Unwrap() error { return e.error }

func final(format string, args ...any) error { return finalError{fmt.Errorf(format, args...)} }

// exitCode is what a program exits with.
func exitCode(err error) int {
	var f finalError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &f):
		return codeFinal
	}
	return codeFailed
}

// errCanceled is how a program ends that was told to.
var errCanceled = errors.New("the program was told to end before it was done")

// canceled is errCanceled once ctx has ended.
func canceled(ctx context.Context) error {
	if ctx.Err() != nil {
		return errCanceled
	}
	return nil
}

func isFull(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}
