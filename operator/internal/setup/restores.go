package setup

import (
	"context"

	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"

	"dormouse.dev/dormouse/internal/errortracking"
	"dormouse.dev/dormouse/operator/internal/disks/copies"
	"dormouse.dev/dormouse/operator/internal/disks/disklock"
	"dormouse.dev/dormouse/operator/internal/gameserver"
	"dormouse.dev/dormouse/operator/internal/options"
	"dormouse.dev/dormouse/operator/internal/restore"
)

// heldDisks is who has which Server's disks, with those who are told when that changes.
type heldDisks struct {
	table  *disklock.Table
	finder *copies.Finder
	filler *restore.Filler
	// released are told of a Server whose disks are free again, and denied of one whose game waits.
	released, denied []func(server types.NamespacedName)
}

// newDisks makes the one table of this process. Nothing is told before the manager runs, and so not
// before all are set up.
func newDisks() *heldDisks {
	h := &heldDisks{finder: &copies.Finder{}, filler: &restore.Filler{}}
	all := func(told *[]func(types.NamespacedName)) func(types.NamespacedName) {
		return func(server types.NamespacedName) {
			for _, tell := range *told {
				tell(server)
			}
		}
	}
	h.table = disklock.New(all(&h.released), all(&h.denied))
	return h
}

// guard has the controller of Servers wait for whoever has their disks.
func (h *heldDisks) guard(mgr ctrl.Manager, r *gameserver.Reconciler) {
	h.finder.Client, h.finder.Live = mgr.GetClient(), mgr.GetAPIReader()
	r.Disks, r.Copies, r.Filling = h.table, h.finder, h.filler
	h.released = append(h.released, r.Again)
}

// setupRestores sets up the controllers of Restores and of disks that begin with something.
func setupRestores(ctx context.Context, mgr ctrl.Manager, o options.Options, held *heldDisks, reporter *errortracking.Reporter) error {
	if err := restore.SetupIndexes(ctx, mgr.GetFieldIndexer()); err != nil {
		return err //nolint:wrapcheck // it says which
	}
	cluster := restore.Cluster{
		Client: mgr.GetClient(), Live: mgr.GetAPIReader(),
		SidecarTemplate: types.NamespacedName{Namespace: o.Namespace, Name: o.SidecarTemplate},
	}
	recorder := lateRecorder{mgr.GetEventRecorder("dormouse-operator")}
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
