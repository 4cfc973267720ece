package backup

import (
	"context"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"dormouse.dev/dormouse/api/conditions"
	"dormouse.dev/dormouse/api/reasons"
	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/internal/condition"
	"dormouse.dev/dormouse/operator/internal/disks/copies"
)

// indexFrom finds Servers and GameTypes by the Backups that their new disks begin with.
const indexFrom = "dormouse.fromBackup"

func setupNamed(ctx context.Context, indexer client.FieldIndexer) error {
	for _, kind := range []client.Object{&v1alpha1.Server{}, &v1alpha1.GameType{}} {
		if err := indexer.IndexField(ctx, kind, indexFrom, fromBackups); err != nil {
			return fmt.Errorf("add the index %s: %w", indexFrom, err)
		}
	}
	return nil
}

// fromBackups are the names of the Backups that a Server's or a GameType's new disks begin with.
func fromBackups(o client.Object) []string {
	var storage []v1alpha1.StorageSpec
	switch o := o.(type) {
	case *v1alpha1.Server:
		storage = o.Spec.Storage
	case *v1alpha1.GameType:
		storage = o.Spec.Template.Spec.Storage
	}
	var all []string
	for i := range storage {
		if from := storage[i].From; from != nil && from.Backup != "" && !slices.Contains(all, from.Backup) {
			all = append(all, from.Backup)
		}
	}
	return all
}

// namedBackups are the names of those among a namespace's Backups that are still to be read: by a Restore
// that isn't over, or by a Server or a GameType whose new disks begin with them.
func namedBackups(ctx context.Context, cached client.Reader, namespace string, backups []*v1alpha1.Backup) (map[string]bool, error) {
	if len(backups) == 0 {
		return nil, nil
	}
	named := map[string]bool{}
	var restores v1alpha1.RestoreList
	if err := cached.List(ctx, &restores, client.InNamespace(namespace), client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list the Restores of namespace %s: %w", namespace, err)
	}
	for i := range restores.Items {
		if !restoreOver(&restores.Items[i]) {
			named[restores.Items[i].Spec.Backup] = true
		}
	}
	for _, b := range backups {
		by := []client.ListOption{client.InNamespace(namespace), client.MatchingFields{indexFrom: b.Name}, client.UnsafeDisableDeepCopy}
		var servers v1alpha1.ServerList
		var gameTypes v1alpha1.GameTypeList
		for _, list := range []client.ObjectList{&servers, &gameTypes} {
			if err := cached.List(ctx, list, by...); err != nil {
				return nil, fmt.Errorf("list whose disks begin with Backup %s/%s: %w", namespace, b.Name, err)
			}
		}
		if len(servers.Items)+len(gameTypes.Items) > 0 {
			named[b.Name] = true
		}
	}
	return named, nil
}

// restoring reports whether a Restore of a Server goes before the copy of its game that sleeps.
func restoring(ctx context.Context, cached client.Reader, server types.NamespacedName) (bool, error) {
	var list v1alpha1.RestoreList
	err := cached.List(ctx, &list, client.InNamespace(server.Namespace), client.MatchingFields{copies.IndexServer: server.Name}, client.UnsafeDisableDeepCopy)
	if err != nil {
		return false, fmt.Errorf("list the Restores of Server %s: %w", server, err)
	}
	for i := range list.Items {
		if goesFirst(&list.Items[i]) {
			return true, nil
		}
	}
	return false, nil
}

// goesFirst reports whether a Restore runs, or waits for nothing but the disks. One that waits until
// somebody names another Backup, or mends what it lacks, may do so for ever, and the copies don't wait with it.
func goesFirst(rst *v1alpha1.Restore) bool {
	if rst.Status.Phase == v1alpha1.CopyRunning {
		return true
	}
	if restoreOver(rst) || !rst.DeletionTimestamp.IsZero() {
		return false
	}
	switch condition.ReasonOf(rst.Status.Conditions, conditions.Complete) {
	case reasons.BackupNotComplete, reasons.ServerUnknown, reasons.Pending:
		return false
	default:
		return true
	}
}

// restoreOver reports whether a Restore has come to its end, good or bad.
func restoreOver(rst *v1alpha1.Restore) bool {
	switch rst.Status.Phase {
	case v1alpha1.CopyComplete, v1alpha1.CopyFailed, v1alpha1.CopyCanceled:
		return true
	default:
		return false
	}
}

// goesFirstNoMore lets the changes through with which a Restore lets the copies of its Server be made.
func goesFirstNoMore() predicate.Predicate {
	first := func(o client.Object) bool {
		rst, ok := o.(*v1alpha1.Restore)
		return ok && goesFirst(rst)
	}
	return predicate.Funcs{
		CreateFunc:  func(event.CreateEvent) bool { return false },
		GenericFunc: func(event.GenericEvent) bool { return false },
		UpdateFunc:  func(e event.UpdateEvent) bool { return first(e.ObjectOld) && !first(e.ObjectNew) },
		DeleteFunc:  func(e event.DeleteEvent) bool { return first(e.Object) },
	}
}

// ofRestore is a Restore's Server.
func ofRestore(_ context.Context, o client.Object) []reconcile.Request {
	return []reconcile.Request{{NamespacedName: copies.ServerOf(o)}}
}
