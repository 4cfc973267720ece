package resolverports

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/operator/internal/index"
)

// LearnOnce takes in all assigned ports, oldest objects first, so that of two with the same
// port the older one keeps it. Calls after the first do nothing.
func (a *Allocator) LearnOnce(ctx context.Context) { a.learnt.Do(func() { a.learnAll(ctx) }) }

func (a *Allocator) learnAll(ctx context.Context) {
	var list v1alpha1.ElasticServiceList
	// They are only read.
	if err := a.cached.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return // the cache has stopped, and so has the operator
	}
	for _, es := range index.ByAge(list.Items) {
		for _, p := range es.Status.Ports {
			a.Learn(p.ResolverPort, Owner{es.Namespace, es.UID, p.Name, p.Protocol.Transport()})
		}
		if f := es.Status.Front; f != nil {
			a.Learn(f.ResolverPort, OfFront(types.NamespacedName{Namespace: f.Namespace, Name: f.Service}, f.Port))
		}
	}
}

// InSlice reports whether a port is in one of the slices of Dormouse, though it has no known owner.
func (a *Allocator) InSlice(ctx context.Context, port int32) bool {
	in, err := index.PortInSlice(ctx, a.cached, port)
	return err != nil || in
}

// OfFront is the owner of a front's resolver port, which many ElasticServices share.
func OfFront(front types.NamespacedName, port string) Owner {
	return Owner{front.Namespace, types.UID("front/" + front.String()), port, corev1.ProtocolTCP}
}
