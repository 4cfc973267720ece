package setup

import (
	"context"
	"crypto/tls"

	ctrl "sigs.k8s.io/controller-runtime"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"dormouse.dev/dormouse/internal/errortracking"
	"dormouse.dev/dormouse/internal/httpserver"
	"dormouse.dev/dormouse/operator/internal/eviction"
	"dormouse.dev/dormouse/operator/internal/metrics"
	"dormouse.dev/dormouse/operator/internal/options"
	"dormouse.dev/dormouse/operator/internal/servingcert"
)

// maxReviewBytes bounds an AdmissionReview of an eviction, which has little more than the Pod's
// name and who asks.
const maxReviewBytes = 256 << 10

// setupEvictions adds the webhook that the API server asks about evictions, on every replica;
// nil: there is none.
func setupEvictions(ctx context.Context, mgr ctrl.Manager, o options.Options, looker eviction.Looker, reporter *errortracking.Reporter) (*httpserver.Server, error) {
	if o.WebhookListen == "" {
		return nil, nil //nolint:nilnil // there is none
	}
	keeper := &servingcert.Keeper{Client: mgr.GetClient(), Namespace: o.Namespace, Service: o.WebhookService, Reporter: reporter}
	if err := keeper.Setup(mgr); err != nil {
		return nil, err
	}
	web := httpserver.New(httpserver.Options{
		Address:      o.WebhookListen,
		TLS:          &tls.Config{GetCertificate: keeper.Current, MinVersion: tls.VersionTLS12},
		MaxBodyBytes: maxReviewBytes,
		// The API server has a connection for each eviction, all from one address.
		MaxConnectionsPerCaller: httpserver.DefaultMaxConnections,
		Log:                     mgr.GetLogger().WithName("webhook"),
		OnPanic:                 reporter.Panic,
	})
	handler := &eviction.Handler{Cached: mgr.GetClient(), Looker: looker, Metrics: metrics.NewEvictions(ctrlmetrics.Registry)}
	handler.Register(web)
	return web, web.Listen(ctx)
}
