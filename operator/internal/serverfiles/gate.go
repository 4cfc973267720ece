package serverfiles

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/conditions"
	"dormouse.dev/dormouse/api/reasons"
	"dormouse.dev/dormouse/api/wellknown"
	"dormouse.dev/dormouse/internal/condition"
	"dormouse.dev/dormouse/operator/internal/disks"
)

// Disks keeps copies of a Server's disks, and the Pods that serve its files, apart within the leader.
type Disks interface {
	// StartFiles begins to let such a Pod have the disks; holder is the copy that it has to wait for,
	// a phrase such as "Backup survival-1". Else end must be called once the Pod was let go on.
	StartFiles(server types.NamespacedName, now time.Time) (end func(), holder string)
}

// Copies knows from the cluster who copies a Server's disks: what an earlier leader began isn't in Disks
// yet.
type Copies interface {
	// Of are phrases such as "Backup survival-1"; none: nobody does.
	Of(ctx context.Context, server types.NamespacedName) (holders []string, err error)
}

// openGates lets the Pods go on that wait at their gate, unless somebody copies the disks, holder is who
// then, or one of them doesn't have yet what it begins with or is another Server's.
func (p *pass) openGates(ctx context.Context, set *disks.Set, pods []corev1.Pod) (holder string, err error) {
	gated := slices.DeleteFunc(slices.Clone(pods), func(pod corev1.Pod) bool { return !pod.DeletionTimestamp.IsZero() || !disks.Gated(&pod) })
	if len(gated) == 0 {
		return "", nil
	}
	now := p.Now()
	end, holder := p.Disks.StartFiles(set.Key(), now)
	if holder != "" {
		return holder, nil
	}
	defer end()
	if p.Copies != nil {
		others, err := p.Copies.Of(ctx, set.Key())
		if err != nil {
			return "", fmt.Errorf("look who copies the disks of Server %s: %w", set.Key(), err)
		}
		if len(others) > 0 {
			return others[0], nil
		}
	}
	// From here on nobody begins to fill them.
	if waits, err := p.unfilled(ctx, set); err != nil || waits != "" {
		p.again.AtMost(fillLook)
		return "", err
	}
	for i := range set.Spec.Storage {
		claim, err := p.claim(ctx, set, set.Spec.Storage[i].Name)
		if err != nil || claim != nil && disks.IsOthers(claim, set.Name) {
			p.again.AtMost(refusedRetry)
			return "", err // the condition says whose it is
		}
	}
	// They may write from now on: when they were made a copy may have been under way.
	if err := disks.MarkUsed(ctx, p.Live, p.Client, set.Namespace, set.Name, set.Spec.Storage, now); err != nil {
		return "", err //nolint:wrapcheck // it says of which disk
	}
	for i := range gated {
		if err := p.open(ctx, &gated[i]); client.IgnoreNotFound(err) != nil {
			return "", fmt.Errorf("let Pod %s have its disks: %w", client.ObjectKeyFromObject(&gated[i]), err)
		}
	}
	return "", nil
}

// open takes the gate off a Pod. Others' stay.
func (p *pass) open(ctx context.Context, pod *corev1.Pod) error {
	before := pod.DeepCopy()
	pod.Spec.SchedulingGates = slices.DeleteFunc(pod.Spec.SchedulingGates, func(g corev1.PodSchedulingGate) bool { return g.Name == wellknown.FilesGate })
	return p.Client.Patch(ctx, pod, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})) //nolint:wrapcheck // the caller says which
}

// copied is the condition of files that wait for a copy.
func copied(holder, server string) metav1.Condition {
	return condition.Unknown(conditions.FilesServed, reasons.DisksBusy, "%s goes first: the files of Server %s are served when it is done.", holder, server)
}
