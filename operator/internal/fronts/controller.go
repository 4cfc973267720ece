// Package fronts is the controller of Services that several ElasticServices share. It writes
// the EndpointSlices of such a Service, and frees its resolver port once nobody shares it.
//
// It must not touch ElasticServices, whose own controller writes each one's part of the front,
// nor any slice that it hasn't created.
package fronts

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/api/wellknown"
	"dormouse.dev/dormouse/internal/errortracking"
	"dormouse.dev/dormouse/operator/internal/endpoints"
	"dormouse.dev/dormouse/operator/internal/index"
	"dormouse.dev/dormouse/operator/internal/kit"
	"dormouse.dev/dormouse/operator/internal/resolverports"
	"dormouse.dev/dormouse/operator/internal/resolvers"
)

// +kubebuilder:rbac:groups=dormouse.dev,resources=elasticservices,verbs=list;watch
// +kubebuilder:rbac:groups="",resources=services,verbs=list;watch
// +kubebuilder:rbac:groups=discovery.k8s.io,resources=endpointslices,verbs=list;watch;create;update;patch;delete
// +kubebuilder:rbac:groups="",namespace=dormouse-system,resources=pods,verbs=list;watch

// Reconciler is the controller of shared Services. Its pass writes a front's EndpointSlices:
// each resolver is a ready endpoint for as long as it takes clients. Their content comes from
// the statuses of the ElasticServices that share the Service.
type Reconciler struct {
	// Client reads from the cache and writes to the API server.
	Client client.Client
	// Resolvers are the resolver pods.
	Resolvers resolvers.Pods
	// Ports assigns resolver ports, those of ElasticServices included.
	Ports *resolverports.Allocator
	// Reporter takes errors and panics; nil: they aren't reported.
	Reporter *errortracking.Reporter
	// Now is the clock.
	Now func() time.Time

	// states are the fronts' states.
	states kit.States[state]
}

// state is the memory of a front between passes.
type state struct {
	// steppedDown is since when resolvers' endpoints have been terminating.
	steppedDown endpoints.SteppedDown
	// pending are slices that were written and that the cache doesn't show yet.
	pending endpoints.PendingSlices
}

// retries are for a conflict, after which the cache will show what was written, and for a
// namespace that is being deleted.
var retries = kit.Retries{Conflict: 50 * time.Millisecond, NamespaceEnding: 30 * time.Second}

// Reconcile brings the slices of one front to their desired state.
func (f *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	f.Ports.LearnOnce(ctx)
	key := req.NamespacedName
	members, err := f.members(ctx, key)
	if err != nil {
		return reconcile.Result{}, err
	}
	if len(members) == 0 {
		f.Ports.FreeAll(f.Now(), resolverports.OfFront(key, "").UID, func() bool {
			now, err := f.members(ctx, key)
			return err == nil && len(now) == 0
		})
	}
	svc := &corev1.Service{}
	if err := f.Client.Get(ctx, key, svc); err != nil {
		f.states.Forget(key)
		// Its slices are deleted with it.
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	have, err := f.slicesOf(ctx, svc)
	if err != nil {
		return reconcile.Result{}, err
	}
	ports := frontPorts(key, members)
	if len(ports) == 0 && len(have) == 0 {
		f.states.Forget(key)
		return reconcile.Result{}, nil
	}
	resolvers, err := f.observeResolvers(ctx, members)
	if err != nil {
		return reconcile.Result{}, err
	}
	m, now := f.states.Of(key, ""), f.Now()
	m.steppedDown.Follow(now, have, resolvers)
	roles, requeueAfter := endpoints.StandIns(now, ports, resolvers, len(ports) > 0, true)
	err = endpoints.Sync(ctx, f.Client, &m.pending, nil, have, frontSlices(svc, resolvers, ports, roles))
	return retries.Result(reconcile.Result{RequeueAfter: requeueAfter}, err)
}

// members are the ElasticServices that want to share a Service.
func (f *Reconciler) members(ctx context.Context, key types.NamespacedName) ([]v1alpha1.ElasticService, error) {
	var list v1alpha1.ElasticServiceList
	if err := f.Client.List(ctx, &list, client.MatchingFields{index.Front: key.String()}); err != nil {
		return nil, fmt.Errorf("list the ElasticServices of the front %s: %w", key, err)
	}
	return list.Items, nil
}

// frontPorts are the ports of a front that its ElasticServices have.
func frontPorts(key types.NamespacedName, members []v1alpha1.ElasticService) []v1alpha1.PortStatus {
	ports := map[string]v1alpha1.PortStatus{}
	for i := range members {
		if s := members[i].Status.Front; s != nil && s.Namespace == key.Namespace && s.Service == key.Name {
			ports[s.Port] = v1alpha1.PortStatus{Name: s.Port, Protocol: v1alpha1.ProtocolTCP, ResolverPort: s.ResolverPort}
		}
	}
	return slices.SortedFunc(maps.Values(ports), func(a, b v1alpha1.PortStatus) int { return cmp.Compare(a.Name, b.Name) })
}

// slicesOf are the slices that were written for a front.
func (f *Reconciler) slicesOf(ctx context.Context, svc *corev1.Service) (have []discoveryv1.EndpointSlice, err error) {
	var list discoveryv1.EndpointSliceList
	if err := f.Client.List(ctx, &list, client.InNamespace(svc.Namespace), client.MatchingFields{index.SliceService: svc.Name}); err != nil {
		return nil, fmt.Errorf("list the EndpointSlices of the front %s: %w", client.ObjectKeyFromObject(svc), err)
	}
	for _, s := range list.Items {
		if s.Labels[wellknown.FrontLabel] != "" && s.Labels[discoveryv1.LabelManagedBy] == wellknown.ManagedBy && metav1.IsControlledBy(&s, svc) {
			have = append(have, s)
		}
	}
	return have, nil
}

// observeResolvers asks the resolver pods of a front's ElasticServices.
func (f *Reconciler) observeResolvers(ctx context.Context, members []v1alpha1.ElasticService) (all []endpoints.Resolver, err error) {
	uids := make([]string, len(members))
	for i := range members {
		uids[i] = string(members[i].UID)
	}
	pods, views, err := f.Resolvers.Views(ctx, uids...)
	if err != nil {
		return nil, err
	}
	for i := range pods {
		r := endpoints.NewResolver(&pods[i], views[i])
		for m := range members {
			r.AddFront(views[i], string(members[m].UID))
		}
		all = append(all, r)
	}
	return all, nil
}

// frontSlices are the slices of a front, one for each address family.
func frontSlices(svc *corev1.Service, resolvers []endpoints.Resolver, ports []v1alpha1.PortStatus, roles map[string]endpoints.Role) []*discoveryv1.EndpointSlice {
	var wanted []*discoveryv1.EndpointSlice
	if len(ports) == 0 {
		return nil // established connections go on without an endpoint
	}
	for _, family := range svc.Spec.IPFamilies {
		s := &discoveryv1.EndpointSlice{
			ObjectMeta: metav1.ObjectMeta{
				Name: svc.Name + "-front-" + strings.ToLower(string(family)), Namespace: svc.Namespace,
				Labels: map[string]string{
					discoveryv1.LabelServiceName:   svc.Name,
					discoveryv1.LabelManagedBy:     wellknown.ManagedBy,
					wellknown.FrontLabel:           svc.Name,
					wellknown.PrivateServiceLabel:  svc.Name, // by which operator and resolvers watch it
					"app.kubernetes.io/managed-by": "dormouse",
				},
				OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Service", Name: svc.Name, UID: svc.UID, Controller: new(true)}},
			},
			AddressType: discoveryv1.AddressType(family),
			Endpoints:   endpoints.ResolverEndpoints(resolvers, roles, discoveryv1.AddressType(family)),
		}
		s.Ports = endpoints.ResolverPorts(svc, ports)
		if len(s.Endpoints) > 0 {
			wanted = append(wanted, s)
		}
	}
	return wanted
}

// all finds all fronts, because resolver pods stand in for every front.
func (f *Reconciler) all(context.Context, client.Object) []reconcile.Request {
	keys := f.states.Keys()
	requests := make([]reconcile.Request, 0, len(keys))
	for _, key := range keys {
		requests = append(requests, reconcile.Request{NamespacedName: key})
	}
	return requests
}
