package target

import (
	"errors"

	"dormouse.dev/dormouse/api/v1alpha1"
)

// IsUserError reports whether an error of the scale stays until a user changes
// something.
func IsUserError(err error) bool {
	return errors.Is(err, ErrNotFound) || errors.Is(err, ErrNotScalable) || errors.Is(err, ErrClusterScoped)
}

// Reason is the reason of the condition TargetFound for an error of the scale.
func Reason(err error) string {
	switch {
	case errors.Is(err, ErrNotFound):
		return v1alpha1.ReasonTargetNotFound
	case errors.Is(err, ErrClusterScoped):
		return v1alpha1.ReasonTargetClusterScoped
	case errors.Is(err, ErrNotScalable):
		return v1alpha1.ReasonTargetNotScalable
	case errors.Is(err, ErrForbidden):
		return v1alpha1.ReasonTargetForbidden
	default:
		return v1alpha1.ReasonTargetUnreadable
	}
}
