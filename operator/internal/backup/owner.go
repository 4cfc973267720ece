package backup

import (
	"context"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/conditions"
	"dormouse.dev/dormouse/api/reasons"
	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/internal/condition"
	"dormouse.dev/dormouse/internal/patch"
	"dormouse.dev/dormouse/operator/internal/text"
)

// needSomebody are the reasons for which a Backup waits until somebody changes something.
var needSomebody = []string{reasons.TargetIsDisk, reasons.NoSnapshots, reasons.NoSidecar}

// backedUp is the condition BackedUp of an owner with some Servers, by their names in order. problem is
// what keeps Backups from being made.
func backedUp(problem error, servers []string, backupsOf func(server string) []*v1alpha1.Backup) metav1.Condition {
	if problem != nil {
		return condition.False(conditions.BackedUp, reasons.ScheduleInvalid, "No copies are made: %s.", problem)
	}
	var oldest time.Time
	copied := 0
	for _, server := range servers {
		var last *v1alpha1.Backup
		var success time.Time
		for _, b := range backupsOf(server) {
			switch c := meta.FindStatusCondition(b.Status.Conditions, conditions.Complete); {
			case !ended(b):
				if c != nil && slices.Contains(needSomebody, c.Reason) {
					return condition.False(conditions.BackedUp, c.Reason, "Backup %s of Server %s waits: %s", b.Name, server, c.Message)
				}
			case b.Status.Phase == v1alpha1.CopyCanceled:
			default:
				if last == nil || endOf(b).After(endOf(last)) {
					last = b
				}
				if b.Status.Phase == v1alpha1.CopyComplete && takenAt(b).After(success) {
					success = takenAt(b)
				}
			}
		}
		switch {
		case last == nil:
		case last.Status.Phase == v1alpha1.CopyFailed:
			words := "it isn't known why."
			if c := meta.FindStatusCondition(last.Status.Conditions, conditions.Complete); c != nil {
				words = text.LowerFirst(c.Message)
			}
			return condition.False(conditions.BackedUp, reasons.CopyFailed, "Backup %s of Server %s failed: %s", last.Name, server, words)
		default:
			copied++
			if oldest.IsZero() || success.Before(oldest) {
				oldest = success
			}
		}
	}
	if copied == 0 {
		return condition.Unknown(conditions.BackedUp, reasons.NoBackup, "Nothing has been copied yet.")
	}
	since := oldest.UTC().Format(time.RFC3339)
	if copied < len(servers) {
		return condition.True(conditions.BackedUp, reasons.BackedUp, "%d of %d Servers have a copy, the oldest of the last ones from %s.", copied, len(servers), since)
	}
	return condition.True(conditions.BackedUp, reasons.BackedUp, "The last copy is from %s.", since)
}

// tellOwner writes the condition BackedUp of an owner, or takes it off where no copies are asked for. The
// other conditions are other controllers': the write fails where they changed one meanwhile.
func (p *Planner) tellOwner(ctx context.Context, owner client.Object, problem error) error {
	original, ok := owner.DeepCopyObject().(client.Object)
	if !ok {
		return nil
	}
	var list *[]metav1.Condition
	switch o := owner.(type) {
	case *v1alpha1.GameType:
		list = &o.Status.Conditions
	case *v1alpha1.Server:
		list = &o.Status.Conditions
	default:
		return nil
	}
	if !asksFor(owner) {
		if !meta.RemoveStatusCondition(list, conditions.BackedUp) {
			return nil
		}
	} else {
		var failed error
		c := backedUp(problem, serverNames(owner), func(server string) []*v1alpha1.Backup {
			all, err := backupsOf(ctx, p.Client, types.NamespacedName{Namespace: owner.GetNamespace(), Name: server}, client.UnsafeDisableDeepCopy)
			if err != nil {
				failed = err
			}
			return all
		})
		if failed != nil {
			return failed
		}
		condition.SetAll(list, owner.GetGeneration(), metav1.NewTime(p.Now()), c)
	}
	if _, err := patch.Status(ctx, p.Client, original, owner); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("tell %s: %w", owner.GetName(), err)
	}
	return nil
}

// asksFor reports whether an owner asks for copies.
func asksFor(o client.Object) bool {
	switch o := o.(type) {
	case *v1alpha1.GameType:
		return o.Spec.Backup != nil
	case *v1alpha1.Server:
		return o.Spec.Backup != nil
	}
	return false
}

// hasCondition reports whether an owner has the condition BackedUp.
func hasCondition(o client.Object) bool {
	switch o := o.(type) {
	case *v1alpha1.GameType:
		return meta.FindStatusCondition(o.Status.Conditions, conditions.BackedUp) != nil
	case *v1alpha1.Server:
		return meta.FindStatusCondition(o.Status.Conditions, conditions.BackedUp) != nil
	}
	return false
}
