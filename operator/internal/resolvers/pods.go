package resolvers

import (
	"context"
	"fmt"
	"slices"
	"strings"
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

// Views are the pods that can be asked, which are the cache's own and must not be changed, and what they report of
// some ElasticServices, by their UIDs. Other pods are forgotten.
func (p Pods) Views(ctx context.Context, uids ...string) ([]corev1.Pod, []View, error) {
	return p.each(ctx, func(address string) View { return p.Observer.View(ctx, address, uids...) })
}

// ViewsInTurn is Views for one of many ElasticServices that are asked about one after the other, as
// Observer.ViewInTurn is View.
func (p Pods) ViewsInTurn(ctx context.Context, uid string, coming func() []string) ([]corev1.Pod, []View, error) {
	coming = sync.OnceValue(coming)
	return p.each(ctx, func(address string) View { return p.Observer.ViewInTurn(ctx, address, uid, coming) })
}

func (p Pods) each(ctx context.Context, view func(address string) View) ([]corev1.Pod, []View, error) {
	var pods corev1.PodList
	err := p.Client.List(ctx, &pods, client.InNamespace(p.Namespace), client.MatchingLabelsSelector{Selector: p.Selector}, client.UnsafeDisableDeepCopy)
	if err != nil {
		return nil, nil, fmt.Errorf("list resolver pods: %w", err)
	}
	addresses := map[string]bool{}
	running := slices.DeleteFunc(pods.Items, func(pod corev1.Pod) bool {
		return pod.Status.PodIP == "" || pod.Status.Phase != corev1.PodRunning
	})
	// The cache has them in any order, and conditions name those that don't answer.
	slices.SortFunc(running, func(a, b corev1.Pod) int { return strings.Compare(a.Name, b.Name) })
	for i := range running {
		addresses[running[i].Status.PodIP] = true
	}
	p.Observer.Keep(addresses)
	// All are asked at once.
	views := make([]View, len(running))
	var asked sync.WaitGroup
	for i := range running {
		asked.Go(func() { views[i] = view(running[i].Status.PodIP) })
	}
	asked.Wait()
	return running, views, nil
}

// Is reports whether an object is a resolver pod. The cache has other pods, too.
func (p Pods) Is(o client.Object) bool {
	return o.GetNamespace() == p.Namespace && p.Selector.Matches(labels.Set(o.GetLabels()))
}

// StandsIn reports whether a resolver pod may get new clients.
func StandsIn(pod *corev1.Pod) bool {
	return podstatus.Ready(pod) && pod.DeletionTimestamp.IsZero() && pod.Status.PodIP != ""
}

// Changed lets through changes of which pods can stand in, and the end of any pod.
func Changed() predicate.Predicate {
	return predicate.Funcs{
		CreateFunc: func(e event.CreateEvent) bool {
			pod, ok := e.Object.(*corev1.Pod)
			return ok && StandsIn(pod)
		},
		UpdateFunc: func(e event.UpdateEvent) bool {
			before, ok1 := e.ObjectOld.(*corev1.Pod)
			after, ok2 := e.ObjectNew.(*corev1.Pod)
			return ok1 && ok2 && (StandsIn(before) != StandsIn(after) || before.Status.PodIP != after.Status.PodIP && StandsIn(after))
		},
	}
}
