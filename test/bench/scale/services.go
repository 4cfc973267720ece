package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/api/wellknown"
	"dormouse.dev/dormouse/test/bench/process"
	"dormouse.dev/dormouse/test/bench/scale/audit"
	"dormouse.dev/dormouse/test/bench/scale/cluster"
)

const (
	// namespaces is over how many the services spread.
	namespaces = 20
	// creators is how many objects are made at once.
	creators = 16
)

// services are those that sleep, by what watches show of them.
type services struct {
	cluster *cluster.Cluster
	count   int

	slices *listings
	woken  *scales
}

// keyOf is the service of a number. Its Service, its ElasticService and its Deployment have one name.
func keyOf(i int) client.ObjectKey {
	return client.ObjectKey{Namespace: fmt.Sprintf("services-%02d", i%namespaces), Name: fmt.Sprintf("lobby-%05d", i)}
}

// followServices makes the namespaces, and watches what is written for services until the context
// ends.
func followServices(ctx context.Context, c *cluster.Cluster, count int) (*services, error) {
	s := &services{cluster: c, count: count, slices: newListings(), woken: &scales{at: map[client.ObjectKey]time.Time{}}}
	for i := range min(namespaces, count) {
		if err := c.MakeNamespace(ctx, keyOf(i).Namespace); err != nil {
			return nil, err
		}
	}
	watched, err := cache.New(c.Config, cache.Options{
		Scheme: c.Client.Scheme(), DefaultTransform: cache.TransformStripManagedFields(),
		ByObject: map[client.Object]cache.ByObject{
			&discoveryv1.EndpointSlice{}: {Label: labels.SelectorFromSet(labels.Set{discoveryv1.LabelManagedBy: wellknown.ManagedBy})},
			&appsv1.Deployment{}:         {},
		},
	})
	if err != nil {
		return nil, fmt.Errorf("make a cache: %w", err)
	}
	for object, saw := range map[client.Object]func(any){
		&discoveryv1.EndpointSlice{}: s.slices.saw, &appsv1.Deployment{}: s.woken.saw,
	} {
		informer, err := watched.GetInformer(ctx, object, cache.BlockUntilSynced(false))
		if err == nil {
			_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{AddFunc: saw, UpdateFunc: func(_, o any) { saw(o) }})
		}
		if err != nil {
			return nil, fmt.Errorf("watch %T: %w", object, err)
		}
	}
	go func() { _ = watched.Start(ctx) }()
	if !watched.WaitForCacheSync(ctx) {
		return nil, fmt.Errorf("watch services: %w", ctx.Err())
	}
	return s, nil
}

// create makes services that sleep from the first, and waits until their slices send clients to
// each of the resolvers.
func (s *services) create(ctx context.Context, resolvers []*cluster.Resolver) error {
	var made atomic.Int64
	done := make(chan error, 1)
	go func() {
		group, bounded := errgroup.WithContext(ctx)
		group.SetLimit(creators)
		for i := range s.count {
			group.Go(func() error {
				defer made.Add(1)
				return s.createOne(bounded, keyOf(i))
			})
		}
		done <- group.Wait()
	}()
	said, all := time.Now(), false
	return process.Until(ctx, phaseTime, "all services sleep behind the resolvers", func() (bool, error) {
		select {
		case err := <-done:
			if err != nil {
				return false, err
			}
			all = true
		default:
		}
		least := s.count
		for _, r := range resolvers {
			n, _ := s.slices.listed(r.Pod.UID)
			least = min(least, n)
		}
		if time.Since(said) > sayEvery {
			said = time.Now()
			say("%d of %d services are made, %d sleep", made.Load(), s.count, least)
		}
		return all && least >= s.count, s.cluster.Alive(ctx)
	})
}

// createOne makes a service that is set up as the guide says: none of its conditions is amiss, each of which
// would be a series more.
func (s *services) createOne(ctx context.Context, key client.ObjectKey) error {
	own := metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}
	app := map[string]string{"app": key.Name}
	for _, o := range []client.Object{
		&appsv1.Deployment{ObjectMeta: own, Spec: appsv1.DeploymentSpec{
			Replicas: new(int32(0)), Selector: &metav1.LabelSelector{MatchLabels: app},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: app},
				Spec: corev1.PodSpec{Containers: []corev1.Container{{
					Name: "game", Image: "registry.example/game:1",
					ReadinessProbe: &corev1.Probe{ProbeHandler: corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromInt32(7000)}}},
				}}},
			},
		}},
		&corev1.Service{ObjectMeta: own, Spec: corev1.ServiceSpec{
			Selector: app, Ports: []corev1.ServicePort{{Name: "game", Port: 7000, Protocol: corev1.ProtocolTCP}},
		}},
		&v1alpha1.ElasticService{ObjectMeta: own, Spec: v1alpha1.ElasticServiceSpec{
			Service: key.Name, ScaleTargetRef: v1alpha1.ScaleTargetRef{APIVersion: "apps/v1", Kind: "Deployment", Name: key.Name},
			Idle: &v1alpha1.Idle{Triggers: []v1alpha1.Trigger{{Type: v1alpha1.TriggerHTTP, HTTP: &v1alpha1.HTTPTrigger{Port: 7000}}}},
		}},
	} {
		if err := s.cluster.Client.Create(ctx, o); err != nil {
			return fmt.Errorf("create %T %s: %w", o, key, err)
		}
	}
	return nil
}

// sleepAgain scales what was woken to zero, and waits until it sleeps: a service that waits for a server
// that never comes costs the operator looks.
func (s *services) sleepAgain(ctx context.Context) error {
	woken := s.woken.forget()
	say("putting %d services to sleep again", len(woken))
	group, bounded := errgroup.WithContext(ctx)
	group.SetLimit(creators)
	for _, key := range woken {
		group.Go(func() error { return s.scaleToZero(bounded, key) })
	}
	if err := group.Wait(); err != nil {
		return err
	}
	for _, key := range woken {
		es := &v1alpha1.ElasticService{}
		err := process.Until(ctx, phaseTime, "ElasticService "+key.String()+" sleeps", func() (bool, error) {
			err := s.cluster.Client.Get(ctx, key, es)
			return es.Status.Phase == v1alpha1.PhaseAsleep, errors.Join(err, s.cluster.Alive(ctx))
		})
		if err != nil {
			return err
		}
	}
	_, err := settle(ctx, s.cluster, audit.Requests{})
	return err
}

func (s *services) scaleToZero(ctx context.Context, key client.ObjectKey) error {
	own := metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}
	zero := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"replicas":0}}`))
	if err := s.cluster.Client.Patch(ctx, &appsv1.Deployment{ObjectMeta: own}, zero); err != nil {
		return fmt.Errorf("scale Deployment %s to zero: %w", key, err)
	}
	return nil
}

// listings are which resolver Pods the slices send new clients to.
type listings struct {
	sync.Mutex
	bySlice map[types.UID]map[types.UID]bool
	count   map[types.UID]int
	// last is when a slice was last seen to begin with a Pod.
	last map[types.UID]time.Time
}

func newListings() *listings {
	return &listings{bySlice: map[types.UID]map[types.UID]bool{}, count: map[types.UID]int{}, last: map[types.UID]time.Time{}}
}

func (l *listings) saw(o any) {
	slice, ok := o.(*discoveryv1.EndpointSlice)
	if !ok {
		return
	}
	now, ready := time.Now(), map[types.UID]bool{}
	for _, ep := range slice.Endpoints {
		if ep.TargetRef != nil && ptr.Deref(ep.Conditions.Ready, true) {
			ready[ep.TargetRef.UID] = true
		}
	}
	l.Lock()
	defer l.Unlock()
	for uid := range l.bySlice[slice.UID] {
		if !ready[uid] {
			l.count[uid]--
		}
	}
	for uid := range ready {
		if !l.bySlice[slice.UID][uid] {
			l.count[uid]++
			l.last[uid] = now
		}
	}
	l.bySlice[slice.UID] = ready
}

// listed is how many slices have a Pod, and when the last of them was seen to.
func (l *listings) listed(pod types.UID) (int, time.Time) {
	l.Lock()
	defer l.Unlock()
	return l.count[pod], l.last[pod]
}

// scales are when targets were first seen with replicas.
type scales struct {
	sync.Mutex
	at map[client.ObjectKey]time.Time
}

func (s *scales) saw(o any) {
	var replicas *int32
	target, _ := o.(client.Object)
	switch t := o.(type) {
	case *appsv1.Deployment:
		replicas = t.Spec.Replicas
	case *appsv1.StatefulSet:
		replicas = t.Spec.Replicas
	}
	if ptr.Deref(replicas, 0) == 0 {
		return
	}
	s.Lock()
	defer s.Unlock()
	if key := client.ObjectKeyFromObject(target); s.at[key].IsZero() {
		s.at[key] = time.Now()
	}
}

// forget forgets those that were seen, and gives them.
func (s *scales) forget() []client.ObjectKey {
	s.Lock()
	defer s.Unlock()
	all := slices.Collect(maps.Keys(s.at))
	s.at = map[client.ObjectKey]time.Time{}
	return all
}

// of is when a target was, or zero.
func (s *scales) of(key client.ObjectKey) time.Time {
	s.Lock()
	defer s.Unlock()
	return s.at[key]
}
