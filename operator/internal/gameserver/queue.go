package gameserver

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/operator/internal/hostports"
)

// learnPorts fills the picker from the existing Pods.
func (r *Reconciler) learnPorts(ctx context.Context) {
	// They and their Pods are only read.
	var servers v1alpha1.ServerList
	if err := r.Client.List(ctx, &servers, client.UnsafeDisableDeepCopy); err != nil {
		return // only when the cache has stopped, and so has the operator
	}
	for i := range servers.Items {
		s := &servers.Items[i]
		pod := &corev1.Pod{}
		if hostports.Picks(s) && r.Client.Get(ctx, client.ObjectKeyFromObject(s), pod, client.UnsafeDisableDeepCopy) == nil && metav1.IsControlledBy(pod, s) {
			r.picker.Hold(s.UID, hostports.Of(s, pod))
		}
	}
}

// tell brings Servers again. One that isn't told tries again by itself later.
func (r *Reconciler) tell(keys []types.NamespacedName) {
	for _, key := range keys {
		select {
		case r.again <- key:
		default:
			return
		}
	}
}

// leaderRunnable runs on the leader.
type leaderRunnable func(ctx context.Context) error

func (f leaderRunnable) Start(ctx context.Context) error { return f(ctx) }

// pass passes keys on to the controller's queue, until ctx ends.
func pass(ctx context.Context, from <-chan types.NamespacedName, to chan<- event.TypedGenericEvent[*v1alpha1.Server]) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case key := <-from:
			s := &v1alpha1.Server{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
			select {
			case <-ctx.Done():
				return nil
			case to <- event.TypedGenericEvent[*v1alpha1.Server]{Object: s}:
			}
		}
	}
}
