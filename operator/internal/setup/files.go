package setup

import (
	"context"

	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"

	"dormouse.dev/dormouse/internal/errortracking"
	"dormouse.dev/dormouse/operator/internal/options"
	"dormouse.dev/dormouse/operator/internal/serverfiles"
)

// setupFiles adds what serves the files of Servers.
func setupFiles(ctx context.Context, mgr ctrl.Manager, o options.Options, held *heldDisks, reporter *errortracking.Reporter) error {
	if err := serverfiles.SetupIndexes(ctx, mgr.GetFieldIndexer()); err != nil {
		return err
	}
	r := &serverfiles.Reconciler{
		Client:          mgr.GetClient(),
		Live:            mgr.GetAPIReader(),
		Events:          mgr.GetEventRecorder("dormouse-operator"),
		Reporter:        reporter,
		Disks:           held.table,
		Copies:          held.finder,
		Used:            tellAll(&held.used),
		SidecarTemplate: types.NamespacedName{Namespace: o.Namespace, Name: o.SidecarTemplate},
	}
	return r.Setup(mgr)
}
