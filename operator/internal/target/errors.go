package target

import (
	"errors"

	"dormouse.dev/dormouse/api/reasons"
)

// IsUserError reports whether an error of the scale persists until a user changes something.
func IsUserError(err error) bool {
	return errors.Is(err, ErrNotFound) || errors.Is(err, ErrNotScalable) || errors.Is(err, ErrClusterScoped)
}

// Reason is the reason of the condition TargetFound for an error of the scale.
func Reason(err error) string {
	switch {
	case errors.Is(err, ErrNotFound):
		return reasons.TargetNotFound
	case errors.Is(err, ErrClusterScoped):
		return reasons.TargetClusterScoped
	case errors.Is(err, ErrNotScalable):
		return reasons.TargetNotScalable
	case errors.Is(err, ErrForbidden):
		return reasons.TargetForbidden
	default:
		return reasons.TargetUnreadable
	}
}
