// Package reportkeys keeps the keys with which sidecars sign their reports. All follow from the
// cluster's keys, which are in the operator's own Secret: each namespace has a key of its own, in a
// Secret that the operator creates there and doesn't read again.
//
// A key is given to new Pods for 90 days, and then another one is. A Pod keeps the one that it
// began with, and its annotation names it: whoever steals one can report for the Pods of one
// namespace that began with it.
package reportkeys

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"dormouse.dev/dormouse/api/wellknown"
	"dormouse.dev/dormouse/internal/errortracking"
	"dormouse.dev/dormouse/internal/errortracking/reconcilers"
	"dormouse.dev/dormouse/operator/internal/kit"
	"dormouse.dev/dormouse/operator/internal/ownsecret"
)

// dataKey is where the cluster's keys are in the operator's Secret.
const dataKey = "report-keys"

// ErrUnknown means that there is no key of that ID, or not any more.
var ErrUnknown = errors.New("the report's token is signed with a key that isn't accepted: replace the Server")

// Keeper keeps the cluster's keys. It is a reconciler that runs on each replica: whichever is first
// makes them, and the others read them.
type Keeper struct {
	// Client reads from a cache with the operator's Secret.
	Client client.Client
	// Namespace is the operator's.
	Namespace string
	Reporter  *errortracking.Reporter
	// Now is the clock; nil: Setup makes it time.Now.
	Now func() time.Time

	current atomic.Pointer[keys]
	made    made
}

// Setup registers the reconciler.
func (k *Keeper) Setup(mgr ctrl.Manager) error {
	if k.Now == nil {
		k.Now = time.Now
	}
	err := ctrl.NewControllerManagedBy(mgr).
		Named("report-keys").
		For(&corev1.Secret{}).
		WithOptions(controller.Options{NeedLeaderElection: new(false), CacheSyncTimeout: ownsecret.SyncTimeout, RateLimiter: kit.Limiter()}).
		Complete(reconcilers.Wrap(k.Reporter, "report-keys", "Secret", k))
	if err != nil {
		return fmt.Errorf("set up the keeper of the keys for reports: %w", err)
	}
	return nil
}

// Reconcile implements reconcile.Reconciler.
func (k *Keeper) Reconcile(ctx context.Context, request reconcile.Request) (result reconcile.Result, err error) {
	defer func() { result, err = kit.DefaultRetries.Result(result, err) }()
	if request.NamespacedName != ownsecret.Key(k.Namespace) {
		return reconcile.Result{}, nil
	}
	secret := &corev1.Secret{}
	if err := k.Client.Get(ctx, request.NamespacedName, secret); err != nil {
		// One that is deleted comes back with the manifests; what is in memory serves on.
		return reconcile.Result{}, client.IgnoreNotFound(err) //nolint:wrapcheck // a cache's own error
	}
	now := k.Now()
	read, err := parse(secret.Data[dataKey])
	if err != nil {
		// Nobody's keys are thrown away: an owner may mend what is there.
		return reconcile.Result{}, fmt.Errorf("%w: put back what was under %s in Secret %s, or remove it", err, dataKey, request)
	}
	asked, revoked := requests(ctx, secret)
	// Somebody may have emptied the Secret, or put an older one in its place: games that run sign
	// with the keys that are in memory.
	ring := read.with(k.keys().ring)
	left := ring.rotates(now, asked, revoked)
	if left <= 0 {
		ring = ring.rotated(now)
		left = ring.rotates(now, asked, revoked)
	}
	if !slices.EqualFunc(ring, read, func(a, b key) bool { return a.ID == b.ID }) {
		if err := k.write(ctx, secret, ring); err != nil {
			return reconcile.Result{}, err
		}
	}
	k.current.Store(&keys{ring, revoked})
	return reconcile.Result{RequeueAfter: left}, nil
}

// requests are what annotations of the Secret ask for: a key that is younger than a time, and keys
// that aren't accepted any more.
func requests(ctx context.Context, secret *corev1.Secret) (asked time.Time, revoked []string) {
	if value := secret.Annotations[wellknown.RotateReportKeysAnnotation]; value != "" {
		var err error
		if asked, err = time.Parse(time.RFC3339, value); err != nil {
			ctrl.LoggerFrom(ctx).Error(err, "The annotation must be a time such as 2030-01-02T15:04:05Z, and nothing is done about it", "annotation", wellknown.RotateReportKeysAnnotation)
		}
	}
	for id := range strings.SplitSeq(secret.Annotations[wellknown.RevokedReportKeysAnnotation], ",") {
		if id = strings.TrimSpace(id); id != "" {
			revoked = append(revoked, id)
		}
	}
	return asked, revoked
}

// write puts the keys into the Secret. Of replicas that do so at once the first wins, and the
// others read what it wrote.
func (k *Keeper) write(ctx context.Context, secret *corev1.Secret, ring ring) error {
	raw, err := json.Marshal(ring) //nolint:gosec // into the Secret
	if err != nil {
		return fmt.Errorf("write the keys for reports: %w", err)
	}
	ownsecret.Set(secret, dataKey, raw)
	if err := k.Client.Update(ctx, secret); err != nil {
		return fmt.Errorf("write the keys for reports into Secret %s: %w", client.ObjectKeyFromObject(secret), err)
	}
	return nil
}

// keys are the cluster's; none before they are read.
func (k *Keeper) keys() *keys {
	if c := k.current.Load(); c != nil {
		return c
	}
	return &keys{}
}
