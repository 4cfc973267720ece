package setup

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/event"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/internal/errortracking"
	"dormouse.dev/dormouse/operator/internal/backup"
	"dormouse.dev/dormouse/operator/internal/metrics"
	"dormouse.dev/dormouse/operator/internal/options"
)

// waitingServers bounds how many Servers wait for a controller.
const waitingServers = 1024

// serverEvents bring Servers to a controller.
type serverEvents chan event.TypedGenericEvent[*v1alpha1.Server]

// send never blocks: where a thousand wait, the controller looks again by itself later.
func (e serverEvents) send(server types.NamespacedName) {
	select {
	case e <- event.TypedGenericEvent[*v1alpha1.Server]{Object: &v1alpha1.Server{
		ObjectMeta: metav1.ObjectMeta{Namespace: server.Namespace, Name: server.Name},
	}}:
	default:
	}
}

// setupBackups adds what copies the Servers' disks.
func setupBackups(ctx context.Context, mgr ctrl.Manager, o options.Options, held *heldDisks, reporter *errortracking.Reporter) error {
	if err := backup.SetupIndexes(ctx, mgr.GetFieldIndexer()); err != nil {
		return err
	}
	counted := metrics.NewBackups(ctrlmetrics.Registry)
	recorder := mgr.GetEventRecorder("dormouse-operator")
	r := &backup.Reconciler{
		Client:          mgr.GetClient(),
		Live:            mgr.GetAPIReader(),
		Table:           held.table,
		Copies:          held.finder,
		SidecarTemplate: types.NamespacedName{Namespace: o.Namespace, Name: o.SidecarTemplate},
		Events:          recorder,
		Metrics:         counted,
		Reporter:        reporter,
	}
	denied, used := make(serverEvents, waitingServers), make(serverEvents, waitingServers)
	held.denied = append(held.denied, denied.send)
	held.used = append(held.used, used.send)
	if err := r.Setup(mgr, denied); err != nil {
		return err
	}
	p := &backup.Planner{Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Events: recorder, Metrics: counted, Reporter: reporter}
	return p.Setup(mgr, used)
}
