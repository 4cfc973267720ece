package setup

import (
	"context"

	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"

	"dormouse.dev/dormouse/internal/errortracking"
	"dormouse.dev/dormouse/operator/internal/options"
	"dormouse.dev/dormouse/operator/internal/restore"
)

// setupRestores sets up the controllers of Restores and of disks that begin with something.
func setupRestores(ctx context.Context, mgr ctrl.Manager, o options.Options, held *heldDisks, reporter *errortracking.Reporter) error {
	if err := restore.SetupIndexes(ctx, mgr.GetFieldIndexer()); err != nil {
		return err //nolint:wrapcheck // it says which
	}
	cluster := restore.Cluster{
		Client: mgr.GetClient(), Live: mgr.GetAPIReader(),
		SidecarTemplate: types.NamespacedName{Namespace: o.Namespace, Name: o.SidecarTemplate},
	}
	recorder := mgr.GetEventRecorder("dormouse-operator")
	r := &restore.Reconciler{Cluster: cluster, Events: recorder, Reporter: reporter, Disks: held.table, Copies: held.finder}
	held.denied = append(held.denied, r.Denied)
	f := held.filler
	f.Cluster, f.Events, f.Reporter, f.Disks, f.Copies = cluster, recorder, reporter, held.table, held.finder
	f.Changed = func(server types.NamespacedName) {
		for _, tell := range held.released {
			tell(server)
		}
	}
	if err := r.Setup(mgr); err != nil {
		return err //nolint:wrapcheck // it says which
	}
	return f.Setup(mgr) //nolint:wrapcheck // it says which
}
