// Package reconcilers reports errors of controllers. It is apart from the Reporter because a
// program without controllers needs none of their libraries.
package reconcilers

import (
	"context"
	"errors"
	"runtime"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"dormouse.dev/dormouse/internal/errortracking"
)

// Wrap reports the errors and panics of a controller's reconciler. The controller still gets
// both.
func Wrap(r *errortracking.Reporter, controller, kind string, inner reconcile.Reconciler) reconcile.Reconciler {
	return reconcile.Func(func(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
		about := errortracking.Subject{Controller: controller, Kind: kind, Key: req.NamespacedName}
		defer func() {
			if value := recover(); value != nil {
				r.PanicAbout(value, about)
				panic(errortracking.ReportedPanic{Value: value}) //nolint:forbidigo // it goes on
			}
		}()
		// Passes that wait for nothing, as thousands of a new leader do, leave the processor to wake calls.
		defer runtime.Gosched()
		result, err := inner.Reconcile(ctx, req)
		if isNews(err) {
			r.Error(err, about)
		}
		return result, err
	})
}

// isNews reports whether an error should be reported: a conflict is normal, a terminal error is
// for the user to fix and is in a condition, and a cancelled call was told to stop.
func isNews(err error) bool {
	return err != nil && !apierrors.IsConflict(err) && !errors.Is(err, reconcile.TerminalError(nil)) && !errors.Is(err, context.Canceled)
}
