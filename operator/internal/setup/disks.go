package setup

import (
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"

	"dormouse.dev/dormouse/operator/internal/disks/copies"
	"dormouse.dev/dormouse/operator/internal/disks/disklock"
	"dormouse.dev/dormouse/operator/internal/gameserver"
	"dormouse.dev/dormouse/operator/internal/restore"
)

// heldDisks is who has which Server's disks, with those who are told when that changes.
type heldDisks struct {
	table  *disklock.Table
	finder *copies.Finder
	filler *restore.Filler
	// released are told of a Server whose disks are free again, denied of one whose game waits, and
	// used of one whose disks another Pod than the game's has had.
	released, denied, used []func(server types.NamespacedName)
}

// newDisks makes the one table of this process. Nothing is told before the manager runs, and so not
// before all are set up.
func newDisks() *heldDisks {
	h := &heldDisks{finder: &copies.Finder{}, filler: &restore.Filler{}}
	h.table = disklock.New(tellAll(&h.released), tellAll(&h.denied))
	return h
}

// guard has the controller of Servers wait for whoever has their disks.
func (h *heldDisks) guard(mgr ctrl.Manager, r *gameserver.Reconciler) {
	h.finder.Client, h.finder.Live = mgr.GetClient(), mgr.GetAPIReader()
	r.Disks, r.Copies, r.Filling = h.table, h.finder, h.filler
	h.released = append(h.released, r.Again)
}

// tellAll tells all who are in a list by the time that there is something to tell.
func tellAll(list *[]func(types.NamespacedName)) func(types.NamespacedName) {
	return func(server types.NamespacedName) {
		for _, tell := range *list {
			tell(server)
		}
	}
}
