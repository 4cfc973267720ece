package resolvers

import (
	"context"
	"fmt"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"dormouse.dev/dormouse/internal/podstatus"
)

// Pods are the resolver pods.
type Pods struct {
	// Client reads from the cache.
	Client client.Reader
	// Observer asks them.
	Observer *Observer
	// Namespace is where they are, and Selector finds them there.
	Namespace string
	Selector  labels.Selector
}

// Running are the pods that can be asked. Others are forgotten.
func (p Pods) Running(ctx context.Context) ([]corev1.Pod, error) {
	var pods corev1.PodList
	if err := p.Client.List(ctx, &pods, client.InNamespace(p.Namespace), client.MatchingLabelsSelector{Selector: p.Selector}); err != nil {
		return nil, fmt.Errorf("list resolver pods: %w", err)
	}
	addresses := map[string]bool{}
	running := slices.DeleteFunc(pods.Items, func(pod corev1.Pod) bool {
		return pod.Status.PodIP == "" || pod.Status.Phase != corev1.PodRunning
	})
	for i := range running {
		addresses[running[i].Status.PodIP] = true
	}
	p.Observer.Keep(addresses)
	return running, nil
}

// AskAll asks all of some pods at once.
func AskAll(pods []corev1.Pod, ask func(address string) View) []View {
	views := make([]View, len(pods))
	var asked sync.WaitGroup
	for i := range pods {
		asked.Go(func() { views[i] = ask(pods[i].Status.PodIP) })
	}
	asked.Wait()
	return views
}

// Is reports whether an object is a resolver pod. The cache has other pods, too.
func (p Pods) Is(o client.Object) bool {
	return o.GetNamespace() == p.Namespace && p.Selector.Matches(labels.Set(o.GetLabels()))
}

// Changed lets through changes of which pods can stand in: a pod that gets an address, becomes
// ready or unready, or is being deleted.
func Changed() predicate.Predicate {
	return predicate.Funcs{
		UpdateFunc: func(e event.UpdateEvent) bool {
			before, ok1 := e.ObjectOld.(*corev1.Pod)
			after, ok2 := e.ObjectNew.(*corev1.Pod)
			return !ok1 || !ok2 || podstatus.Ready(before) != podstatus.Ready(after) || before.Status.PodIP != after.Status.PodIP ||
				before.DeletionTimestamp.IsZero() != after.DeletionTimestamp.IsZero()
		},
	}
}
