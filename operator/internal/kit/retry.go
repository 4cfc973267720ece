package kit

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// Retries are when a controller looks again after errors that time resolves. They are nobody's
// mistake, and neither logged nor counted.
type Retries struct {
	// Conflict follows a write that somebody else's write came before. The cache will show
	// that.
	Conflict time.Duration
	// NamespaceEnding is for a namespace that is being deleted and refuses new objects. The
	// object is about to be deleted, too.
	NamespaceEnding time.Duration
}

// StaleRetry is when to look again where the cache lags.
const StaleRetry = 20 * time.Millisecond

// DefaultRetries are the Retries of most controllers.
var DefaultRetries = Retries{Conflict: StaleRetry, NamespaceEnding: 30 * time.Second}

// A pass that failed comes again after firstRetry, and after twice as long each time up to lastRetry: players may
// wait for it.
const (
	firstRetry = 5 * time.Millisecond
	lastRetry  = 30 * time.Second
)

// Limiter is the rate limiter of a controller. Each object waits for itself: one by how many passes failed in all
// would have a tenant's object wait behind all of another one's.
func Limiter() workqueue.TypedRateLimiter[reconcile.Request] {
	return workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](firstRetry, lastRetry)
}

// Read reads the object of a request from the cache, reports whether it is there, and forgets
// one that is gone.
func Read(ctx context.Context, cached client.Reader, req reconcile.Request, o client.Object, forget func(types.NamespacedName)) (found bool, err error) {
	err = cached.Get(ctx, req.NamespacedName, o)
	if apierrors.IsNotFound(err) {
		forget(req.NamespacedName)
	}
	return err == nil, client.IgnoreNotFound(err)
}

// Result is what a reconciler returns for a pass's result and error.
func (r Retries) Result(result reconcile.Result, err error) (reconcile.Result, error) {
	switch {
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return reconcile.Result{RequeueAfter: r.NamespaceEnding}, nil
	case apierrors.IsConflict(err):
		return reconcile.Result{RequeueAfter: r.Conflict}, nil
	}
	return result, err
}
