// Package refusal distinguishes errors with which the API server refuses an object, which
// somebody has to fix, from errors that time resolves.
package refusal

import (
	"errors"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// Is reports whether the API server refuses an object, however often it is asked. A namespace
// that is being deleted doesn't count: the object's owner is about to be deleted, too.
func Is(err error) bool {
	if apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		return false
	}
	return apierrors.IsForbidden(err) || apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) ||
		apierrors.IsRequestEntityTooLargeError(err) || apierrors.IsMethodNotSupported(err)
}

// Words are the API server's message.
func Words(err error) string {
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		return status.Status().Message
	}
	return err.Error()
}
