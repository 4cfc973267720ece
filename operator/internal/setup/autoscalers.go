package setup

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/event"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/internal/errortracking"
	"dormouse.dev/dormouse/operator/internal/front"
	"dormouse.dev/dormouse/operator/internal/gameautoscaler"
	"dormouse.dev/dormouse/operator/internal/metrics"
	"dormouse.dev/dormouse/operator/internal/outbound"
	"dormouse.dev/dormouse/operator/internal/scalewebhook"
	"dormouse.dev/dormouse/operator/internal/target"
)

// setupAutoscalers adds the GameAutoscaler controller, and the client that asks webhooks for it.
func setupAutoscalers(ctx context.Context, mgr ctrl.Manager, scaler *target.Scaler, players gameautoscaler.Players,
	usualBoot func(kind, namespace, name string) time.Duration, addresses outbound.Addresses, reporter *errortracking.Reporter,
) error {
	if err := gameautoscaler.SetupIndexes(ctx, mgr.GetFieldIndexer()); err != nil {
		return err
	}
	answered := make(chan event.TypedGenericEvent[*v1alpha1.GameAutoscaler], 1024)
	webhooks := scalewebhook.New(scalewebhook.Options{
		Services:  servicesOf(mgr.GetClient()),
		MayUse:    front.MayShare,
		Addresses: addresses,
		Done: func(s scalewebhook.Subject) {
			e := event.TypedGenericEvent[*v1alpha1.GameAutoscaler]{
				Object: &v1alpha1.GameAutoscaler{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: s.Name}},
			}
			select {
			case answered <- e:
			default: // the controller ends, or has a thousand to look at: it looks again after the interval
			}
		},
	})
	if err := mgr.Add(webhooks); err != nil {
		return fmt.Errorf("add the client of webhooks: %w", err)
	}
	r := &gameautoscaler.Reconciler{
		Client:    mgr.GetClient(),
		Scaler:    scaler,
		Players:   players,
		Webhooks:  webhooks,
		UsualBoot: usualBoot,
		Events:    mgr.GetEventRecorder("dormouse-operator"),
		Metrics:   metrics.NewAutoscalers(ctrlmetrics.Registry),
		Reporter:  reporter,
	}
	return r.Setup(mgr, answered)
}
