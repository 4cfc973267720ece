package elasticservice

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/api/wellknown"
	"dormouse.dev/dormouse/operator/internal/elasticservice/idleness"
	"dormouse.dev/dormouse/operator/internal/elasticservice/planner"
	"dormouse.dev/dormouse/operator/internal/elasticservice/wakegroup"
	"dormouse.dev/dormouse/operator/internal/endpoints"
	"dormouse.dev/dormouse/operator/internal/front"
	"dormouse.dev/dormouse/operator/internal/index"
	"dormouse.dev/dormouse/operator/internal/playerlist"
	"dormouse.dev/dormouse/operator/internal/report"
	"dormouse.dev/dormouse/operator/internal/resolvers"
	"dormouse.dev/dormouse/operator/internal/spec"
	"dormouse.dev/dormouse/operator/internal/target"
	"dormouse.dev/dormouse/operator/internal/trigger"
	"dormouse.dev/dormouse/operator/internal/udpports"
)

// observe reads all that the planner needs. Only these are read over the network: a target's
// scale that may have changed, the owners of pods from before a sleep, and the resolvers' state.
func (r *Reconciler) observe(ctx context.Context, es *v1alpha1.ElasticService, m *state) (planner.Observed, error) {
	is, now, ref := spec.Of(es), r.Now(), target.Of(es)
	o := planner.Observed{Is: is, PrivateName: endpoints.PrivateServiceName(es.Spec.Service)}
	deleting, hasServers := !es.DeletionTimestamp.IsZero(), ref.HasServers()
	if m.target.Name != "" && !target.Same(m.target.ScaleTargetRef, ref.ScaleTargetRef) {
		es.Status.Replicas, es.Status.ReplicasBeforeSleep = 0, 0 // they were another target's
	}
	if err := r.observeServices(ctx, es, &o); err != nil {
		return o, err
	}
	if err := r.observeOthers(ctx, es, &o); err != nil {
		return o, err
	}
	var err error
	if es.Spec.Wake != nil && es.Spec.Wake.Players != nil {
		if o.Lists, err = playerlist.Observe(ctx, r.Client, now, es); err != nil {
			return o, err
		}
	}
	var servers []v1alpha1.Server
	if hasServers {
		if servers, err = report.ServersOf(ctx, r.Client, es.Namespace, spec.Owner(es)); err != nil {
			return o, err
		}
		observeDraining(servers, &o)
	}
	if err := r.observeSlices(ctx, es, &o); err != nil {
		return o, err
	}
	if o.Service == nil || len(o.Service.Spec.Selector) > 0 {
		m.leftovers = nil
	} else if err := r.observeLeftovers(ctx, now, es, made(&m.leftovers), &o); err != nil {
		return o, err
	}
	asleep := es.Status.Phase == v1alpha1.PhaseAsleep
	o.Scale = r.observeScale(ctx, ref, asleep, &m.scale)
	if o.Scale.Err == nil && o.Scale.Replicas == 0 && asleep {
		r.observeZero(ctx, es, m, &o)
	}
	r.observeUnsettled(ctx, now, es, m, &o)
	o.Pods.Unsettled = o.Unsettled.UIDs
	o.Servers, o.Up = endpoints.ServersOf(o.Sources, o.Pods)
	if err := r.observeResolvers(ctx, es, &o); err != nil {
		return o, err
	}
	if asleep || len(m.strangers) > 0 {
		m.observeStrangers(now, es, ref, &o, func() (int32, error) {
			scale, err := r.Scaler.Get(ctx, ref)
			if err != nil {
				return 0, err
			}
			return scale.Status.Replicas, nil
		})
	}
	m.steppedDown.Follow(now, o.Slices, o.Resolvers)
	if !is.HasPlayers || !is.Awake || deleting {
		m.players = nil
	} else if err := r.observePlayers(ctx, now, servers, made(&m.players), &o); err != nil {
		return o, err
	}
	if hasServers {
		if o.KeptAwake, err = r.keptAwake(ctx, es); err != nil {
			return o, err
		}
		o.Allocated = r.allocated(es)
	}
	if es.Spec.Autoscaler == nil {
		m.autoscaler = nil
	} else {
		r.observeAutoscaler(ctx, now, es, m, &o)
	}
	if key := client.ObjectKeyFromObject(es); is.HasTriggers && is.Awake && !deleting {
		m.untriggered = false
		o.Triggers = r.Triggers.Read(key, triggersOf(es, o)) //nolint:contextcheck // the poller asks in the background, beyond this pass
	} else if !m.untriggered {
		m.untriggered = true
		r.Triggers.Forget(key)
	}
	o.Blocked = planner.Blocked(es, o, is.Handoff)
	m.follow(now, es, &o)
	if found := m.diagnosis.Found; found != nil {
		o.Nobody = found.Nobody
	}
	if deleting {
		if o.NamespaceEnding, err = r.namespaceEnding(ctx, es.Namespace); err != nil {
			return o, err
		}
	}
	return o, nil
}

// observeServices reads the Services: the user's, the private one, and the one that is shared with
// others. It looks for what else has a UDP port of the user's.
func (r *Reconciler) observeServices(ctx context.Context, es *v1alpha1.ElasticService, o *planner.Observed) error {
	for _, read := range []struct {
		name string
		to   **corev1.Service
	}{{es.Spec.Service, &o.Service}, {o.PrivateName, &o.Private}} {
		svc := &corev1.Service{}
		if err := r.Client.Get(ctx, types.NamespacedName{Namespace: es.Namespace, Name: read.name}, svc); err == nil {
			*read.to = svc
		} else if !apierrors.IsNotFound(err) {
			return fmt.Errorf("read Service %s/%s: %w", es.Namespace, read.name, err)
		}
	}
	var err error
	if o.Service != nil && udpports.Has(o.Service) {
		if o.Clash, err = udpports.ClashOf(ctx, r.Client, o.Service); err != nil {
			return fmt.Errorf("look for what else has a UDP port of Service %s: %w", client.ObjectKeyFromObject(o.Service), err)
		}
	}
	if es.Spec.Front != nil {
		if key, _ := index.FrontOf(es); r.Namespaces.Has(key.Namespace) {
			o.Front, err = observeFront(ctx, r.Client, key, es)
		}
	}
	return err
}

// keptAwakeOver is for how long a target is kept awake beyond what its GameAutoscaler says: that may be
// about to say more.
const keptAwakeOver = 5 * time.Second

// keptAwake finds the GameAutoscaler that keeps a target of Servers awake, if one does.
func (r *Reconciler) keptAwake(ctx context.Context, es *v1alpha1.ElasticService) (idleness.KeptAwake, error) {
	gas, err := index.AutoscalerOf(ctx, r.Client, es.Namespace, es.Spec.ScaleTargetRef.Kind, es.Spec.ScaleTargetRef.Name)
	if err != nil || gas == nil || gas.Status.KeepAwakeUntil == nil {
		return idleness.KeptAwake{}, err
	}
	return idleness.KeptAwake{Until: gas.Status.KeepAwakeUntil.Add(keptAwakeOver), By: "GameAutoscaler " + gas.Name}, nil
}

// observeOthers looks for an older ElasticService of the same Service, and one with the same target,
// and finds those that are woken with this one, and those that wake it.
func (r *Reconciler) observeOthers(ctx context.Context, es *v1alpha1.ElasticService, o *planner.Observed) error {
	ofService, ofTarget, err := index.Sharing(ctx, r.Client, es)
	if err != nil {
		return err
	}
	var wakers v1alpha1.ElasticServiceList
	// They are only read, like those that are named.
	err = r.Client.List(ctx, &wakers, client.InNamespace(es.Namespace), client.MatchingFields{index.WakeWith: es.Name}, client.UnsafeDisableDeepCopy)
	if err != nil {
		return fmt.Errorf("list the ElasticServices that are woken with %s/%s: %w", es.Namespace, es.Name, err)
	}
	oldest := es
	for i := range ofService {
		if other := &ofService[i]; other.UID != es.UID && index.OlderThan(other, oldest) {
			oldest, o.Older = other, other.Name
		}
	}
	for i := range ofTarget {
		other := &ofTarget[i]
		if other.UID != es.UID && index.OlderThan(other, es) && target.Same(other.Spec.ScaleTargetRef, es.Spec.ScaleTargetRef) {
			o.TargetTaken = other.Name
		}
	}
	if len(es.Spec.WakeWith)+len(wakers.Items) == 0 {
		return nil // it is alone, as most are
	}
	group, err := wakegroup.See(es, index.Named(ctx, r.Client, es.Namespace), wakers.Items)
	o.Group = &group
	return err
}

// errBehind means that the cache doesn't have what an earlier pass has written and not kept.
var errBehind = errors.New("the cache lags behind the slices that were written")

func (r *Reconciler) observeSlices(ctx context.Context, es *v1alpha1.ElasticService, o *planner.Observed) error {
	var list discoveryv1.EndpointSliceList
	if err := r.Client.List(ctx, &list, client.InNamespace(es.Namespace), client.MatchingFields{index.SliceService: es.Spec.Service}); err != nil {
		return fmt.Errorf("list the EndpointSlices of Service %s/%s: %w", es.Namespace, es.Spec.Service, err)
	}
	for _, s := range list.Items {
		switch s.Labels[discoveryv1.LabelManagedBy] {
		case wellknown.ManagedBy:
			// A slice without a controller was left for the Service by an ElasticService that
			// is gone.
			if metav1.GetControllerOf(&s) == nil || metav1.IsControlledBy(&s, es) {
				if r.echoes.Awaits(time.Now(), &s) {
					return errBehind
				}
				o.Slices = append(o.Slices, s)
			}
		case wellknown.EndpointSliceController: // others that claim to be about a private Service are not trusted
			if s.Labels[discoveryv1.LabelServiceName] == o.PrivateName {
				o.Sources = append(o.Sources, s)
			}
		}
	}
	// The cache has them in any order, and a pod's first address is to be the same one each time.
	slices.SortFunc(o.Sources, func(a, b discoveryv1.EndpointSlice) int {
		return cmp.Or(cmp.Compare(a.AddressType, b.AddressType), cmp.Compare(a.Name, b.Name))
	})
	return nil
}

// observeResolvers asks the resolver pods. In the pass of one of thousands that sleep, which come in turn, they are
// asked about the next ones, too.
func (r *Reconciler) observeResolvers(ctx context.Context, es *v1alpha1.ElasticService, o *planner.Observed) (err error) {
	var pods []corev1.Pod
	var views []resolvers.View
	if turns := r.turnsOf(es, o); turns != nil {
		pods, views, err = r.Resolvers.ViewsInTurn(ctx, string(es.UID), func() []string { return r.coming(ctx, turns) })
	} else {
		pods, views, err = r.Resolvers.Views(ctx, string(es.UID))
	}
	if err != nil {
		return err
	}
	for i := range pods {
		o.Resolvers = append(o.Resolvers, endpoints.ResolverOf(&pods[i], es, views[i]))
	}
	return nil
}

// triggersOf is what the trigger poller asks for a service. A pod that isn't ready may have
// players all the same.
func triggersOf(es *v1alpha1.ElasticService, o planner.Observed) trigger.Service {
	after := o.Is.SleepAfter
	s := trigger.Service{Triggers: es.Spec.Idle.Triggers, SleepAfter: after, Every: after / 5}
	if es.Status.Phase == v1alpha1.PhaseFallingAsleep {
		s.Every = trigger.MinInterval // a fresh answer is being waited for
	}
	for _, server := range o.Servers {
		if !server.Terminating {
			s.Pods = append(s.Pods, server.Addresses)
		}
	}
	return s
}

// observeFront reads the Service that is to be shared, and the ElasticServices that have the
// same hosts there.
func observeFront(ctx context.Context, cached client.Reader, key types.NamespacedName, es *v1alpha1.ElasticService) (o front.Observed, err error) {
	svc := &corev1.Service{}
	if err := cached.Get(ctx, key, svc); err != nil {
		if apierrors.IsNotFound(err) {
			return o, nil
		}
		return o, fmt.Errorf("read Service %s: %w", key, err)
	}
	o.Service = svc
	elastic, err := index.ForService(ctx, cached, key.Namespace, key.Name)
	if err != nil {
		return o, err
	}
	if elastic != nil {
		o.Elastic = elastic.Name
	}
	for _, host := range es.Spec.Front.Hosts {
		var list v1alpha1.ElasticServiceList
		if err := cached.List(ctx, &list, client.MatchingFields{index.Front: index.FrontHost(key, host)}); err != nil {
			return o, fmt.Errorf("list the ElasticServices of host %s at the front %s: %w", host, key, err)
		}
		for i := range list.Items {
			other := &list.Items[i]
			if other.UID == es.UID || !index.OlderThan(other, es) || !front.MayShare(svc, other.Namespace) {
				continue
			}
			if o.Rivals == nil {
				o.Rivals = map[v1alpha1.FrontHost]string{}
			}
			o.Rivals[host] = "ElasticService " + other.Name
			if other.Namespace != es.Namespace {
				o.Rivals[host] = "an ElasticService of another namespace"
			}
		}
	}
	return o, nil
}
