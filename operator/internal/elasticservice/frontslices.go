package elasticservice

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/operator/internal/resolvers"
)

// fronts keeps the EndpointSlices of shared Services: each resolver is a ready
// endpoint for as long as it takes clients. What they say comes from the statuses of
// the ElasticServices that share the Service, which each write their own.
type fronts struct {
	r *Reconciler

	mu sync.Mutex
	// known are the fronts that there are.
	known map[types.NamespacedName]*memory
}

// Reconcile brings the slices of one front to where they should be.
func (f *fronts) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	f.r.learn.Do(func() { f.r.learnPorts(ctx) })
	key := req.NamespacedName
	members, err := f.members(ctx, key)
	if err != nil {
		return reconcile.Result{}, err
	}
	if len(members) == 0 {
		f.r.ports.freeAll(f.r.Now(), frontOwner(key, "").uid, func() bool {
			now, err := f.members(ctx, key)
			return err == nil && len(now) == 0
		})
	}
	svc := &corev1.Service{}
	if err := f.r.Client.Get(ctx, key, svc); err != nil {
		f.forget(key)
		// Its slices go with it.
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	o := observed{service: svc}
	if err := f.observeSlices(ctx, &o); err != nil {
		return reconcile.Result{}, err
	}
	ports := frontPorts(key, members)
	if len(ports) == 0 && len(o.slices) == 0 {
		f.forget(key)
		return reconcile.Result{}, nil
	}
	if err := f.observeResolvers(ctx, members, &o); err != nil {
		return reconcile.Result{}, err
	}
	m, now := f.remember(key), f.r.Now()
	m.stepDown(now, &o)
	p := plan{}
	p.planStandIns(now, ports, o, len(ports) > 0)
	m.slices.seen(o.slices)
	err = f.r.syncSlices(ctx, &m.slices, o.slices, frontSlices(o, ports, p.roles))
	if apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		return reconcile.Result{RequeueAfter: missingRetry}, nil
	}
	if apierrors.IsConflict(err) {
		return reconcile.Result{RequeueAfter: breath}, nil // the cache will tell what was written
	}
	return reconcile.Result{RequeueAfter: p.requeue}, err
}

// members are the ElasticServices that want to share a Service.
func (f *fronts) members(ctx context.Context, key types.NamespacedName) ([]v1alpha1.ElasticService, error) {
	var list v1alpha1.ElasticServiceList
	if err := f.r.Client.List(ctx, &list, client.MatchingFields{indexFront: key.String()}); err != nil {
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

func (f *fronts) observeSlices(ctx context.Context, o *observed) error {
	svc := o.service
	var list discoveryv1.EndpointSliceList
	if err := f.r.Client.List(ctx, &list, client.InNamespace(svc.Namespace), client.MatchingFields{indexSliceService: svc.Name}); err != nil {
		return fmt.Errorf("list the EndpointSlices of the front %s: %w", client.ObjectKeyFromObject(svc), err)
	}
	for _, s := range list.Items {
		if s.Labels[v1alpha1.FrontLabel] != "" && s.Labels[discoveryv1.LabelManagedBy] == v1alpha1.ManagedBy && metav1.IsControlledBy(&s, svc) {
			o.slices = append(o.slices, s)
		}
	}
	return nil
}

func (f *fronts) observeResolvers(ctx context.Context, members []v1alpha1.ElasticService, o *observed) error {
	pods, err := f.r.resolverPods(ctx)
	if err != nil {
		return err
	}
	maxAge := maxViewAge(o.slices)
	views := viewsOf(pods, func(address string) resolvers.View { return f.r.Resolvers.View(ctx, address, maxAge) })
	for i := range pods {
		r := newResolver(&pods[i], views[i])
		for m := range members {
			r.addFront(views[i], string(members[m].UID))
		}
		o.resolvers = append(o.resolvers, r)
	}
	return nil
}

// addFront takes in what a resolver said of one of a front's ElasticServices.
func (r *resolver) addFront(v resolvers.View, uid string) {
	for _, p := range v.Routes[uid].Ports {
		switch {
		case p.Front == "":
		case p.Listening:
			r.listening[p.Port] = true
		case p.Error != "" && len(r.portErrors) == 0: // each says the same
			r.portErrors = []string{fmt.Sprintf("port %d: %s", p.Port, p.Error)}
		}
	}
	if s, ok := v.Sessions[uid]; ok {
		r.sessions, r.queued = r.sessions+s.Sessions, r.queued+s.Queued
		if !s.LastActive.IsZero() {
			r.lastActive = latest(r.lastActive, s.LastActive.Add(v.ClockSkew))
		}
	}
}

// frontSlices are the slices of a front, one for each address family.
func frontSlices(o observed, ports []v1alpha1.PortStatus, roles map[string]role) []*discoveryv1.EndpointSlice {
	svc := o.service
	var wanted []*discoveryv1.EndpointSlice
	if len(ports) == 0 {
		return nil // connections that there are go on without
	}
	for _, family := range svc.Spec.IPFamilies {
		s := &discoveryv1.EndpointSlice{
			ObjectMeta: metav1.ObjectMeta{
				Name: svc.Name + "-front-" + strings.ToLower(string(family)), Namespace: svc.Namespace,
				Labels: map[string]string{
					discoveryv1.LabelServiceName:   svc.Name,
					discoveryv1.LabelManagedBy:     v1alpha1.ManagedBy,
					v1alpha1.FrontLabel:            svc.Name,
					v1alpha1.PrivateServiceLabel:   svc.Name, // by which operator and resolvers watch it
					"app.kubernetes.io/managed-by": "dormouse",
				},
				OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Service", Name: svc.Name, UID: svc.UID, Controller: new(true)}},
			},
			AddressType: discoveryv1.AddressType(family),
			Endpoints:   resolverEndpoints(o.resolvers, roles, discoveryv1.AddressType(family)),
		}
		s.Ports = resolverPorts(svc, ports)
		if len(s.Endpoints) > 0 {
			wanted = append(wanted, s)
		}
	}
	return wanted
}

// remember is what is known of a front from now on.
func (f *fronts) remember(key types.NamespacedName) *memory {
	f.mu.Lock()
	defer f.mu.Unlock()
	m := f.known[key]
	if m == nil {
		m = &memory{}
		f.known[key] = m
	}
	return m
}

func (f *fronts) forget(key types.NamespacedName) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.known, key)
}

// all is for resolver pods, which stand in for every front.
func (f *fronts) all(context.Context, client.Object) []reconcile.Request {
	f.mu.Lock()
	defer f.mu.Unlock()
	requests := make([]reconcile.Request, 0, len(f.known))
	for key := range f.known {
		requests = append(requests, reconcile.Request{NamespacedName: key})
	}
	return requests
}

// maxViewAge is how old what a resolver said may be: who has no slices yet waits for
// it.
func maxViewAge(have []discoveryv1.EndpointSlice) time.Duration {
	if len(have) == 0 {
		return 100 * time.Millisecond
	}
	return time.Second
}
