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
	"dormouse.dev/dormouse/operator/internal/disks/disklock"
	"dormouse.dev/dormouse/operator/internal/metrics"
	"dormouse.dev/dormouse/operator/internal/options"
)

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

// diskUse is who has which disks, and who hears of it.
type diskUse struct {
	table *disklock.Table
	// released are Servers whose disks are free again and whose game was kept from starting, and
	// denied those whose game is kept from that.
	released, denied serverEvents
	// used are Servers whose disks another Pod than the game's has had.
	used serverEvents
}

func newDiskUse() *diskUse {
	u := &diskUse{released: make(serverEvents, 1024), denied: make(serverEvents, 1024), used: make(serverEvents, 1024)}
	u.table = disklock.New(u.released.send, u.denied.send)
	return u
}

// setupBackups adds what copies the Servers' disks.
func setupBackups(ctx context.Context, mgr ctrl.Manager, o options.Options, use *diskUse, reporter *errortracking.Reporter) error {
	if err := backup.SetupIndexes(ctx, mgr.GetFieldIndexer()); err != nil {
		return err
	}
	counted := metrics.NewBackups(ctrlmetrics.Registry)
	recorder := lateRecorder{mgr.GetEventRecorder("dormouse-operator")}
	r := &backup.Reconciler{
		Client:          mgr.GetClient(),
		Live:            mgr.GetAPIReader(),
		Table:           use.table,
		SidecarTemplate: types.NamespacedName{Namespace: o.Namespace, Name: o.SidecarTemplate},
		Events:          recorder,
		Metrics:         counted,
		Reporter:        reporter,
	}
	if err := r.Setup(mgr, use.denied); err != nil {
		return err
	}
	p := &backup.Planner{Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Events: recorder, Metrics: counted, Reporter: reporter}
	return p.Setup(mgr, use.used)
}
