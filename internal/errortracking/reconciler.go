package errortracking

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// Reconciler reports the errors and panics of a controller's reconciler. The
// controller gets both as if it weren't there.
func (r *Reporter) Reconciler(controller, kind string, inner reconcile.Reconciler) reconcile.Reconciler {
	return reconcile.Func(func(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
		about := subject{controller: controller, kind: kind, key: req.NamespacedName}
		defer func() {
			if value := recover(); value != nil {
				r.panicked(value, about)
				panic(reportedPanic{value}) //nolint:forbidigo // it goes on
			}
		}()
		result, err := inner.Reconcile(ctx, req)
		if isNews(err) {
			r.failed(err, about)
		}
		return result, err
	})
}

// isNews says whether an error is something to look into: a conflict is everyday
// life, a terminal error is the user's to mend and in a condition, and what is
// cancelled was told to stop.
func isNews(err error) bool {
	return err != nil && !apierrors.IsConflict(err) && !errors.Is(err, reconcile.TerminalError(nil)) && !errors.Is(err, context.Canceled)
}

// reportedPanic is a panic that has been reported with what it is about, and
// isn't again on its way up.
type reportedPanic struct{ value any }

func (p reportedPanic) Error() string { return fmt.Sprint(p.value) }
