package gameserver

import (
	"errors"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"dormouse.dev/dormouse/api/reasons"
	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/operator/internal/gameserver/planner"
	"dormouse.dev/dormouse/operator/internal/text"
)

// busyError means that a Pod waits for its disks.
type busyError struct {
	sentence string
	// retry is when to look again; 0: somebody tells when that changes.
	retry time.Duration
}

func (e *busyError) Error() string { return e.sentence }

// formerRetry is when a game is tried again that waits for what an earlier leader began, which tells once this
// leader has taken it up, or for an earlier disk.
const formerRetry = 2 * time.Second

// retryAfter is when to try again what was refused.
func retryAfter(refused error) time.Duration {
	var busy *busyError
	if errors.As(refused, &busy) && busy.retry > 0 {
		return busy.retry
	}
	return refusedRetry
}

// errStranger means that a Pod that isn't the Server's has its name.
var errStranger = errors.New("a Pod of somebody else has the name")

// forUser separates errors that a user must fix from errors that time will resolve.
func forUser(err error) (refused, _ error) {
	var busy *busyError
	if errors.As(err, &busy) {
		return err, nil
	}
	if apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		return nil, err
	}
	if apierrors.IsForbidden(err) || apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) {
		return err, nil
	}
	return nil, err
}

// whyRefused is the reason, and the message, for which a Server's Pod can't be made.
func whyRefused(s *v1alpha1.Server, refused error) (reason, message string) {
	var busy *busyError
	switch {
	case errors.As(refused, &busy):
		return reasons.DisksBusy, text.Excerpt(busy.sentence)
	case errors.Is(refused, errStranger):
		return reasons.PodExists, planner.PodExists(s)
	}
	reason, message = reasons.PodRefused, "The API server refuses the Pod: "+text.Excerpt(refused.Error())
	if strings.Contains(refused.Error(), "exceeded quota") {
		reason = reasons.QuotaExceeded
	}
	return reason, message
}
