// Package servingcert keeps the certificate with which all replicas of the operator serve the API
// server's webhook calls: in the operator's own Secret, with its authority in the webhook's
// configuration. Both come with the manifests, empty, so that the operator needs a right to these two
// alone.
package servingcert

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/pem"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/cert"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"dormouse.dev/dormouse/internal/errortracking"
	"dormouse.dev/dormouse/internal/errortracking/reconcilers"
	"dormouse.dev/dormouse/operator/internal/kit"
	"dormouse.dev/dormouse/operator/internal/ownsecret"
)

// WebhookName is the name of the ValidatingWebhookConfiguration.
const WebhookName = "dormouse-eviction-guard"

const (
	// validFor is how long a certificate is valid, and renewBefore how long before the end it
	// is replaced.
	validFor    = 365 * 24 * time.Hour
	renewBefore = 60 * 24 * time.Hour
	// caKey is the authority's certificate in the Secret.
	caKey = "ca.crt"
)

var errNone = errors.New("there is no certificate yet")

// Keeper keeps the certificate. It is a reconciler that runs on each replica: whichever is first
// makes it, and the others read it.
type Keeper struct {
	// Client reads from a cache with CachedObjects.
	Client client.Client
	// Namespace is the operator's, and Service the name of its Service.
	Namespace, Service string
	Reporter           *errortracking.Reporter

	current atomic.Pointer[tls.Certificate]
}

// CachedWebhook is how webhooks' configurations are cached: this one alone.
func CachedWebhook() cache.ByObject {
	return cache.ByObject{Field: fields.OneTermEqualSelector("metadata.name", WebhookName)}
}

// Setup registers the reconciler.
func (k *Keeper) Setup(mgr ctrl.Manager) error {
	err := ctrl.NewControllerManagedBy(mgr).
		Named("serving-certificate").
		For(&corev1.Secret{}).
		WithOptions(controller.Options{NeedLeaderElection: new(false), CacheSyncTimeout: ownsecret.SyncTimeout, RateLimiter: kit.Limiter()}).
		Watches(&admissionv1.ValidatingWebhookConfiguration{}, handler.EnqueueRequestsFromMapFunc(
			func(context.Context, client.Object) []reconcile.Request {
				return []reconcile.Request{{NamespacedName: k.secret()}}
			})).
		Complete(reconcilers.Wrap(k.Reporter, "serving-certificate", "Secret", k))
	if err != nil {
		return fmt.Errorf("set up the keeper of the serving certificate: %w", err)
	}
	return nil
}

// Current is the certificate to serve with; for tls.Config.GetCertificate.
func (k *Keeper) Current(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	if c := k.current.Load(); c != nil {
		return c, nil
	}
	return nil, errNone
}

// Reconcile implements reconcile.Reconciler.
func (k *Keeper) Reconcile(ctx context.Context, request reconcile.Request) (result reconcile.Result, err error) {
	defer func() { result, err = kit.DefaultRetries.Result(result, err) }()
	if request.NamespacedName != k.secret() {
		return reconcile.Result{}, nil
	}
	secret := &corev1.Secret{}
	if err := k.Client.Get(ctx, k.secret(), secret); err != nil {
		// One that is deleted comes back with the manifests; what is in memory serves on.
		return reconcile.Result{}, client.IgnoreNotFound(err) //nolint:wrapcheck // a cache's own error
	}
	pair, err := k.pairOf(secret)
	left := time.Duration(0)
	if err == nil {
		left = time.Until(pair.Leaf.NotAfter) - renewBefore
	}
	if left <= 0 {
		if err := k.renew(ctx, secret); err != nil {
			return reconcile.Result{}, err
		}
		if pair, err = k.pairOf(secret); err != nil {
			return reconcile.Result{}, err
		}
		left = time.Until(pair.Leaf.NotAfter) - renewBefore
	}
	k.current.Store(pair)
	return reconcile.Result{RequeueAfter: left}, k.publish(ctx, secret.Data[caKey])
}

func (k *Keeper) secret() types.NamespacedName { return ownsecret.Key(k.Namespace) }

// host is the name by which the API server calls.
func (k *Keeper) host() string { return k.Service + "." + k.Namespace + ".svc" }

// pairOf is the certificate in the Secret.
func (k *Keeper) pairOf(secret *corev1.Secret) (*tls.Certificate, error) {
	pair, err := tls.X509KeyPair(secret.Data[corev1.TLSCertKey], secret.Data[corev1.TLSPrivateKeyKey])
	if err != nil {
		return nil, fmt.Errorf("read the certificate in Secret %s: %w", k.secret(), err)
	}
	if err := pair.Leaf.VerifyHostname(k.host()); err != nil {
		return nil, fmt.Errorf("check the certificate in Secret %s: %w", k.secret(), err)
	}
	if authority, _ := pem.Decode(secret.Data[caKey]); authority == nil {
		return nil, fmt.Errorf("Secret %s has no %s", k.secret(), caKey) //nolint:staticcheck // a kind's name
	}
	return &pair, nil
}

// renew puts a new certificate into the Secret. Of replicas that do so at once the first wins, and
// the others read what it wrote.
func (k *Keeper) renew(ctx context.Context, secret *corev1.Secret) error {
	chain, key, err := cert.GenerateSelfSignedCertKeyWithOptions(cert.SelfSignedCertKeyOptions{Host: k.host(), MaxAge: validFor})
	if err != nil {
		return fmt.Errorf("make a certificate for %s: %w", k.host(), err)
	}
	// The chain is the certificate, and then its authority.
	_, authority := pem.Decode(chain)
	ownsecret.Set(secret, corev1.TLSCertKey, chain)
	ownsecret.Set(secret, corev1.TLSPrivateKeyKey, key)
	ownsecret.Set(secret, caKey, bytes.TrimSpace(authority))
	if err := k.Client.Update(ctx, secret); err != nil {
		return fmt.Errorf("write the certificate into Secret %s: %w", k.secret(), err)
	}
	return nil
}

// publish puts the authority into the webhook's configuration. Without that configuration the API
// server doesn't ask, and nothing is to be done.
func (k *Keeper) publish(ctx context.Context, authority []byte) error {
	have := &admissionv1.ValidatingWebhookConfiguration{}
	if err := k.Client.Get(ctx, types.NamespacedName{Name: WebhookName}, have); err != nil {
		return client.IgnoreNotFound(err) //nolint:wrapcheck // a cache's own error
	}
	want := have.DeepCopy()
	changed := false
	for i := range want.Webhooks {
		if c := &want.Webhooks[i].ClientConfig; !bytes.Equal(c.CABundle, authority) {
			c.CABundle, changed = authority, true
		}
	}
	if !changed {
		return nil
	}
	if err := k.Client.Patch(ctx, want, client.StrategicMergeFrom(have)); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("write the authority into ValidatingWebhookConfiguration %s: %w", WebhookName, err)
	}
	return nil
}
