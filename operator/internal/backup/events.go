package backup

import (
	"context"

	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/conditions"
	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/operator/internal/disks"
	"dormouse.dev/dormouse/operator/internal/kit"
)

// emit tells of a Backup's end: on the Backup itself and, where the Server still has one, on its owner.
func (r *Reconciler) emit(ctx context.Context, b *v1alpha1.Backup, set *disks.Set) {
	words := ""
	if c := meta.FindStatusCondition(b.Status.Conditions, conditions.Complete); c != nil {
		words = c.Message
	}
	notice := kit.Normal("BackupCanceled", "Backup", "Backup %s of Server %s: %s", b.Name, b.Spec.Server, words)
	switch b.Status.Phase {
	case v1alpha1.CopyComplete:
		notice.Reason = "BackupComplete"
	case v1alpha1.CopyFailed:
		notice = kit.Warning("BackupFailed", "Backup", "%s", notice.Note)
	default:
	}
	kit.Emit(r.Events, b, notice)
	if owner := ownerObject(ctx, r.Client, set); owner != nil {
		kit.Emit(r.Events, owner, notice)
	}
}

// ownerObject is the Server or the GameType that asks for the copies; nil: it is gone.
func ownerObject(ctx context.Context, cached client.Reader, set *disks.Set) client.Object {
	if set == nil {
		return nil
	}
	var owner client.Object = &v1alpha1.GameType{}
	if set.Owner.Kind == "Server" {
		owner = &v1alpha1.Server{}
	}
	if err := cached.Get(ctx, client.ObjectKey{Namespace: set.Namespace, Name: set.Owner.Name}, owner); err != nil {
		return nil
	}
	return owner
}
