// Package refusal tells what the API server won't take, which somebody has to mend, from
// what it couldn't do just now.
package refusal

import (
	"errors"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// Is reports whether the API server won't take an object, however often it is asked. In a
// namespace that is being deleted it takes nothing new, but there whoever wants the object
// is about to be deleted, too.
func Is(err error) bool {
	if apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		return false
	}
	return apierrors.IsForbidden(err) || apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) ||
		apierrors.IsRequestEntityTooLargeError(err) || apierrors.IsMethodNotSupported(err)
}

// Words are what the API server said.
func Words(err error) string {
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		return status.Status().Message
	}
	return err.Error()
}
