package gameserver

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/api/wellknown"
	"dormouse.dev/dormouse/operator/internal/disks"
	"dormouse.dev/dormouse/operator/internal/disks/copies"
)

// Disks keeps the start of a game and a copy of its disks apart, within the leader.
type Disks interface {
	// Start begins to make a Pod that has a Server's disks. Where somebody else has them it returns
	// who: a phrase such as "Backup survival-1". Else end is called once the API server has the
	// Pod, or has refused it.
	Start(server types.NamespacedName) (end func(), holder string)
}

// Copies knows from the cluster who copies a Server's disks: what an earlier leader began isn't in
// Disks yet.
type Copies interface {
	// Of are phrases such as "Backup survival-1".
	Of(ctx context.Context, server types.NamespacedName) (holders []string, err error)
}

// Filling knows what keeps disks from being filled.
type Filling interface {
	// Why is a sentence on a Server's disk; empty: nothing does, as far as is known.
	Why(server types.NamespacedName) string
}

// Again brings a Server again: its disks are free, or have what they begin with.
func (r *Reconciler) Again(server types.NamespacedName) { r.tell([]types.NamespacedName{server}) }

// takeDisks takes a Server's disks for its Pod until end. busy is why they can't be taken now; the
// Server comes again when that changes.
func (r *Reconciler) takeDisks(ctx context.Context, s *v1alpha1.Server) (end func(), busy, err error) {
	key, end, holder, retry := client.ObjectKeyFromObject(s), func() {}, "", time.Duration(0)
	if r.Disks != nil {
		end, holder = r.Disks.Start(key)
	}
	if holder == "" && r.Copies != nil {
		holders, err := r.Copies.Of(ctx, key)
		if err != nil || len(holders) > 0 {
			end()
		}
		if err != nil {
			return nil, nil, fmt.Errorf("look who copies the disks of Server %s: %w", key, err)
		}
		if len(holders) > 0 {
			holder, retry = holders[0], formerRetry
		}
	}
	if holder != "" {
		return nil, &busyError{"Waits for " + holder + ", which copies its disks.", retry}, nil
	}
	return end, nil, nil
}

// waitForFill is createPod's answer while a disk doesn't have what it begins with.
func (r *Reconciler) waitForFill(s *v1alpha1.Server, unfilled *v1alpha1.StorageSpec, err error) (refused, _ error) {
	if err != nil {
		return forUser(err)
	}
	from := "Backup " + unfilled.From.Backup
	if unfilled.From.Server != "" {
		from = "the disk of Server " + unfilled.From.Server
	}
	sentence := "Waits until disk " + unfilled.Name + " is filled from " + from + "."
	if r.Filling != nil {
		if why := r.Filling.Why(client.ObjectKeyFromObject(s)); why != "" {
			sentence += " " + why
		}
	}
	return &busyError{sentence: sentence}, nil
}

// noteUse notes on the disks of a Server with backups that its Pod may have changed them since it
// was made. The player doesn't wait for that; it is made up for by the next leader.
func (r *Reconciler) noteUse(ctx context.Context, s *v1alpha1.Server, pod *corev1.Pod) error {
	if pod == nil || len(s.Spec.Storage) == 0 {
		return nil
	}
	if noted, ok := r.used.Load(s.UID); ok && noted == pod.UID {
		return nil
	}
	backup := s.Spec.Backup != nil
	if name := s.Labels[wellknown.GameTypeLabel]; name != "" && !backup {
		gt := &v1alpha1.GameType{}
		if err := r.Client.Get(ctx, client.ObjectKey{Namespace: s.Namespace, Name: name}, gt); err != nil {
			return wrapf(client.IgnoreNotFound(err), "read GameType %s/%s", s.Namespace, name)
		}
		backup = gt.Spec.Backup != nil
	}
	if !backup {
		return nil
	}
	if err := disks.MarkUsed(ctx, r.Live, r.Client, s.Namespace, s.Name, s.Spec.Storage, pod.CreationTimestamp.Time); err != nil {
		return err
	}
	r.used.Store(s.UID, pod.UID)
	return nil
}

// byCopy finds the Server whose disks a Backup or a Restore copies.
func byCopy(_ context.Context, o client.Object) []reconcile.Request {
	return []reconcile.Request{{NamespacedName: copies.ServerOf(o)}}
}
