package elasticservice

import (
	"context"
	"fmt"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/internal/podstatus"
	"dormouse.dev/dormouse/operator/internal/resolvers"
	"dormouse.dev/dormouse/operator/internal/target"
	"dormouse.dev/dormouse/operator/internal/trigger"
)

// endpointSliceController is how Kubernetes labels the slices that it writes.
// Others that claim to be about a private Service are not believed.
const endpointSliceController = "endpointslice-controller.k8s.io"

// observe reads all that the planner needs. Only a target's scale that may have
// changed, who decides on pods from before a sleep, and what a resolver was not asked
// within maxAge, are read over the network.
func (r *Reconciler) observe(ctx context.Context, es *v1alpha1.ElasticService) (observed, error) {
	var o observed
	now := r.Now()
	m := r.memoryOf(es)

	svc := &corev1.Service{}
	err := r.Client.Get(ctx, types.NamespacedName{Namespace: es.Namespace, Name: es.Spec.Service}, svc)
	switch {
	case err == nil:
		o.service = svc
	case !apierrors.IsNotFound(err):
		return o, fmt.Errorf("read Service %s/%s: %w", es.Namespace, es.Spec.Service, err)
	}
	if oldest, err := ForService(ctx, r.Client, es.Namespace, es.Spec.Service); err != nil {
		return o, err
	} else if oldest != nil && oldest.UID != es.UID && olderThan(oldest, es) {
		o.older = oldest.Name
	}
	private := &corev1.Service{}
	err = r.Client.Get(ctx, types.NamespacedName{Namespace: es.Namespace, Name: privateServiceName(es.Spec.Service)}, private)
	switch {
	case err == nil:
		o.private = private
	case !apierrors.IsNotFound(err):
		return o, fmt.Errorf("read Service %s/%s: %w", es.Namespace, privateServiceName(es.Spec.Service), err)
	}
	if err := r.observeClash(ctx, &o); err != nil {
		return o, err
	}
	if err := r.observeSiblings(ctx, es, &o); err != nil {
		return o, err
	}
	if err := r.observeFront(ctx, es, &o); err != nil {
		return o, err
	}
	if err := r.observeLists(ctx, now, es, &o); err != nil {
		return o, err
	}
	if err := r.observeSlices(ctx, es, &o); err != nil {
		return o, err
	}
	if err := r.observeLeftovers(ctx, now, es, &o); err != nil {
		return o, err
	}
	if m.target.Name != "" && m.target != refOf(es) {
		es.Status.Replicas = 0 // they were another's
	}
	o.scale = r.observeScale(ctx, es, &m.scale)
	r.observeZero(ctx, es, m, &o)
	r.observeUnsettled(ctx, now, es, m, &o)
	o.servers = serversOf(o.sources, &o)
	if err := r.observeResolvers(ctx, es, &o); err != nil {
		return o, err
	}
	m.observeStrangers(now, es, &o, func() (int32, error) {
		scale, err := r.Scaler.Get(ctx, refOf(es))
		if err != nil {
			return 0, err
		}
		return scale.Status.Replicas, nil
	})
	m.stepDown(now, &o)
	if err := r.observePlayers(ctx, now, es, &o); err != nil {
		return o, err
	}
	r.observeTriggers(es, &o) //nolint:contextcheck // the poller asks in the background, beyond this pass

	m.up(now, countUp(o.servers) > 0, o.scale.err != nil || o.scale.replicas > 0)
	o.unblockedAt = m.unblocked(now, es, blocked(es, o))
	o.upSince, o.noneUpSince, o.noneLastingSince, o.sleepBegun = m.upSince, m.noneUpSince, m.noneLastingSince, m.sleepBegun
	if found := m.diagnosis.found; found != nil {
		o.nobody = found.Nobody
	}
	return o, nil
}

// observeSiblings looks for an older ElasticService with the same target.
func (r *Reconciler) observeSiblings(ctx context.Context, es *v1alpha1.ElasticService, o *observed) error {
	ref := es.Spec.ScaleTargetRef
	var list v1alpha1.ElasticServiceList
	err := r.Client.List(ctx, &list, client.InNamespace(es.Namespace), client.MatchingFields{indexTarget: ref.Kind + "/" + ref.Name})
	if err != nil {
		return fmt.Errorf("list ElasticServices of %s %s/%s: %w", ref.Kind, es.Namespace, ref.Name, err)
	}
	for i := range list.Items {
		other := &list.Items[i]
		if other.UID != es.UID && olderThan(other, es) && target.Same(other.Spec.ScaleTargetRef, ref) {
			o.targetTaken = other.Name
		}
	}
	return nil
}

func (r *Reconciler) observeSlices(ctx context.Context, es *v1alpha1.ElasticService, o *observed) error {
	var list discoveryv1.EndpointSliceList
	if err := r.Client.List(ctx, &list, client.InNamespace(es.Namespace), client.MatchingFields{indexSliceService: es.Spec.Service}); err != nil {
		return fmt.Errorf("list the EndpointSlices of Service %s/%s: %w", es.Namespace, es.Spec.Service, err)
	}
	for _, s := range list.Items {
		switch s.Labels[discoveryv1.LabelManagedBy] {
		case v1alpha1.ManagedBy:
			// One without a controller was left for the Service by an
			// ElasticService that is gone.
			if metav1.GetControllerOf(&s) == nil || metav1.IsControlledBy(&s, es) {
				o.slices = append(o.slices, s)
			}
		case endpointSliceController:
			if s.Labels[discoveryv1.LabelServiceName] == privateServiceName(es.Spec.Service) {
				o.sources = append(o.sources, s)
			}
		}
	}
	if err := r.observeDraining(ctx, es, o); err != nil {
		return err
	}
	return nil
}

func (r *Reconciler) observeResolvers(ctx context.Context, es *v1alpha1.ElasticService, o *observed) error {
	pods, err := r.resolverPods(ctx)
	if err != nil {
		return err
	}
	maxAge := maxViewAge(o.slices)
	phase := es.Status.Phase
	views := viewsOf(pods, func(address string) resolvers.View {
		// Just before a sleep is committed only a question asked now will do, and before a
		// server is trusted to listen of which nothing but its clients tells.
		if phase == v1alpha1.PhaseFallingAsleep || !isAwake(phase) && o.unproved(es) && o.scale.replicas > 0 && countUp(o.servers) > 0 {
			return r.Resolvers.ViewOf(ctx, address, string(es.UID))
		}
		return r.Resolvers.View(ctx, address, maxAge)
	})
	for i := range pods {
		o.resolvers = append(o.resolvers, resolverOf(&pods[i], es, views[i]))
	}
	return nil
}

// resolverPods are the resolver pods that can be asked. Others are forgotten.
func (r *Reconciler) resolverPods(ctx context.Context) ([]corev1.Pod, error) {
	var pods corev1.PodList
	if err := r.Client.List(ctx, &pods, client.InNamespace(r.Namespace), client.MatchingLabelsSelector{Selector: r.ResolverSelector}); err != nil {
		return nil, fmt.Errorf("list resolver pods: %w", err)
	}
	addresses := map[string]bool{}
	running := slices.DeleteFunc(pods.Items, func(pod corev1.Pod) bool {
		return pod.Status.PodIP == "" || pod.Status.Phase != corev1.PodRunning
	})
	for i := range running {
		addresses[running[i].Status.PodIP] = true
	}
	r.Resolvers.Keep(addresses)
	return running, nil
}

// viewsOf asks all resolver pods at once.
func viewsOf(pods []corev1.Pod, ask func(address string) resolvers.View) []resolvers.View {
	views := make([]resolvers.View, len(pods))
	var asked sync.WaitGroup
	for i := range pods {
		asked.Go(func() { views[i] = ask(pods[i].Status.PodIP) })
	}
	asked.Wait()
	return views
}

// resolverOf puts together what the API server and the pod itself say of a service.
func resolverOf(pod *corev1.Pod, es *v1alpha1.ElasticService, v resolvers.View) resolver {
	r := newResolver(pod, v)
	if route, ok := v.Routes[string(es.UID)]; ok {
		// One that is far behind may know the same phase of an earlier time.
		if since := route.PhaseSince; since == nil || since.Equal(phaseSince(es)) {
			r.phase = route.Phase
		}
		for _, p := range route.Ports {
			if p.Listening {
				r.listening[p.Port] = true
			} else if p.Error != "" && p.Front == "" {
				r.portErrors = append(r.portErrors, fmt.Sprintf("port %d: %s", p.Port, p.Error))
			}
		}
	}
	if s, ok := v.Sessions[string(es.UID)]; ok {
		r.sessions, r.queued = s.Sessions, s.Queued
		if !s.LastActive.IsZero() {
			r.lastActive = s.LastActive.Add(v.ClockSkew)
		}
	}
	return r
}

// newResolver is a resolver pod of which nothing is known but that it is there.
func newResolver(pod *corev1.Pod, v resolvers.View) resolver {
	r := resolver{
		uid:         string(pod.UID),
		podName:     pod.Name,
		namespace:   pod.Namespace,
		node:        pod.Spec.NodeName,
		ready:       podstatus.Ready(pod) && pod.DeletionTimestamp.IsZero(),
		firstAsked:  v.FirstAsked,
		reachable:   v.Err == nil,
		silentSince: latest(v.Answered, v.FirstAsked, pod.CreationTimestamp.Time),
		err:         v.Err,
		listening:   map[int32]bool{},
		started:     v.Started.Add(v.ClockSkew),
	}
	for _, ip := range pod.Status.PodIPs {
		r.addresses = append(r.addresses, ip.IP)
	}
	return r
}

func (r *Reconciler) observeTriggers(es *v1alpha1.ElasticService, o *observed) {
	key := client.ObjectKeyFromObject(es)
	if !hasTriggers(es) || !isAwake(es.Status.Phase) || !es.DeletionTimestamp.IsZero() {
		r.Triggers.Forget(key)
		return
	}
	o.triggers = r.Triggers.Read(key, triggersOf(es, *o))
}

// triggersOf is what is asked about a service. A pod that isn't ready may have
// players all the same.
func triggersOf(es *v1alpha1.ElasticService, o observed) trigger.Service {
	s := trigger.Service{Triggers: es.Spec.Idle.Triggers, Every: sleepAfter(es) / 5}
	if es.Status.Phase == v1alpha1.PhaseFallingAsleep {
		s.Every = trigger.MinInterval // a fresh answer is waited for
	}
	for _, server := range o.servers {
		if !server.terminating {
			s.Pods = append(s.Pods, server.address)
		}
	}
	return s
}

func uid(s string) types.UID { return types.UID(s) }
