package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/test/bench/process"
	"dormouse.dev/dormouse/test/bench/scale/cluster"
)

const (
	// triggeredSleep is the sleepAfter of services with triggers.
	triggeredSleep = 30 * time.Second
	// triggeredWakes is how many of those that sleep are woken, one after another.
	triggeredWakes = 50
)

// triggered is what services with triggers cost: half sleep, and half are awake because their
// triggers say so; of each half, half ask a Prometheus, and half their Pods.
type triggered struct {
	Services int `json:"services"`
	Awake    int `json:"awake"`
	// Queries a minute, while nothing changes.
	PrometheusQueries float64 `json:"prometheus_queries_a_minute"`
	HTTPQueries       float64 `json:"http_queries_a_minute"`
	// Watches are those that the operator has open, by resource.
	Watches map[string]int `json:"operator_watches"`
	// ScaleWrite is how long after a wake call a watch shows the target's replicas.
	ScaleWrite quantiles `json:"call_to_scale_write_ms"`
	// Slept is from when all triggers say that nobody is there until all sleep but the one whose
	// Prometheus never answers.
	Slept float64 `json:"all_asleep_seconds"`
	// SleepAfter is how long of that they must be idle.
	SleepAfter float64 `json:"sleep_after_seconds"`
}

// phases are in which phase each ElasticService was last seen, and how many are in each.
type phases struct {
	sync.Mutex
	of    map[client.ObjectKey]v1alpha1.Phase
	count map[v1alpha1.Phase]int
}

func (p *phases) saw(o any) {
	es, ok := o.(*v1alpha1.ElasticService)
	if !ok || es.Labels[triggeredLabel] == "" {
		return
	}
	p.Lock()
	defer p.Unlock()
	key := client.ObjectKeyFromObject(es)
	p.count[p.of[key]]--
	p.of[key] = es.Status.Phase
	p.count[es.Status.Phase]++
}

func (p *phases) in(phase v1alpha1.Phase) int {
	p.Lock()
	defer p.Unlock()
	return p.count[phase]
}

// unanswered is the number of a service that is awake, and whose Prometheus never answers. It is to
// stay awake, and to delay no other.
const unanswered = namespaces

// triggeredLabel is on services with triggers.
const triggeredLabel = "bench.dormouse.dev/triggers"

// triggeredKey is the service with triggers of a number.
func triggeredKey(i int) client.ObjectKey {
	return client.ObjectKey{Namespace: fmt.Sprintf("services-%02d", i%namespaces), Name: fmt.Sprintf("web-%05d", i)}
}

// sleeps reports whether a service sleeps from the first.
func sleeps(i int) bool { return i/namespaces%2 == 0 }

// triggerOf is the trigger of a number's service. No two ask the same.
func triggerOf(i int) v1alpha1.Trigger {
	if i/namespaces/2%2 == 0 {
		return v1alpha1.Trigger{Type: v1alpha1.TriggerPrometheus, Prometheus: &v1alpha1.PrometheusTrigger{
			ServerAddress: fmt.Sprintf("http://%s:%d", answersAddress, answersPort),
			Query:         fmt.Sprintf("sum(requests_in_flight{service=%q}) or vector(0)", triggeredKey(i).Name),
		}}
	}
	return v1alpha1.Trigger{Type: v1alpha1.TriggerHTTP, HTTP: &v1alpha1.HTTPTrigger{Port: answersPort}}
}

// doTriggers measures services with triggers.
func (r *run) doTriggers(ctx context.Context) (err error) {
	a, err := answer(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, a.server.Close()) }()
	a.busy.Store(true)
	all, scaled, err := r.followTriggered(ctx)
	if err != nil {
		return err
	}
	count := r.services.count
	f := &triggered{Services: count, SleepAfter: triggeredSleep.Seconds()}
	r.figures.Triggered = f
	for i := range count {
		if !sleeps(i) {
			f.Awake++
		}
	}
	if count <= unanswered {
		return fmt.Errorf("the phase %s needs more than %d services", phaseTriggers, unanswered)
	}
	if err := r.measure(ctx, "triggers made", func(ctx context.Context) error { return r.makeTriggered(ctx, all, f) }); err != nil {
		return err
	}
	if err := r.measure(ctx, "triggers hold", func(ctx context.Context) error {
		began, before := time.Now(), a.asked()
		if err := wait(ctx, r.hold); err != nil {
			return err
		}
		after, minutes := a.asked(), time.Since(began).Minutes()
		f.PrometheusQueries = rounded(float64(after.prometheus-before.prometheus) / minutes)
		f.HTTPQueries = rounded(float64(after.http-before.http) / minutes)
		return nil
	}); err != nil {
		return err
	}
	f.Watches = r.cluster.Audit.Watches(cluster.OperatorName)
	if err := r.measure(ctx, "triggers wakes", func(ctx context.Context) error { return r.wakeTriggered(ctx, scaled, f) }); err != nil {
		return err
	}
	return r.measure(ctx, "triggers sleep", func(ctx context.Context) error {
		began := time.Now()
		a.busy.Store(false)
		err := process.Until(ctx, phaseTime, "all services sleep whose triggers are answered", func() (bool, error) {
			return all.in(v1alpha1.PhaseAsleep) == count-1, r.cluster.Alive(ctx)
		})
		f.Slept = rounded(time.Since(began).Seconds())
		return err
	})
}

// followTriggered watches the services' phases, and their targets' replicas, until the context ends.
func (r *run) followTriggered(ctx context.Context) (*phases, *scales, error) {
	all := &phases{of: map[client.ObjectKey]v1alpha1.Phase{}, count: map[v1alpha1.Phase]int{}}
	scaled := &scales{at: map[client.ObjectKey]time.Time{}}
	watched, err := cache.New(r.cluster.Config, cache.Options{Scheme: r.cluster.Client.Scheme(), DefaultTransform: cache.TransformStripManagedFields()})
	if err != nil {
		return nil, nil, fmt.Errorf("make a cache: %w", err)
	}
	for object, saw := range map[client.Object]func(any){&v1alpha1.ElasticService{}: all.saw, &appsv1.StatefulSet{}: scaled.saw} {
		informer, err := watched.GetInformer(ctx, object, cache.BlockUntilSynced(false))
		if err == nil {
			_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{AddFunc: saw, UpdateFunc: func(_, o any) { saw(o) }})
		}
		if err != nil {
			return nil, nil, fmt.Errorf("watch %T: %w", object, err)
		}
	}
	go func() { _ = watched.Start(ctx) }()
	if !watched.WaitForCacheSync(ctx) {
		return nil, nil, fmt.Errorf("watch services with triggers: %w", ctx.Err())
	}
	return all, scaled, nil
}

// makeTriggered makes the services, and waits until half sleep and half are awake.
func (r *run) makeTriggered(ctx context.Context, all *phases, f *triggered) error {
	group, bounded := errgroup.WithContext(ctx)
	group.SetLimit(creators)
	for i := range f.Services {
		group.Go(func() error { return r.makeTriggeredOne(bounded, i) })
	}
	if err := group.Wait(); err != nil {
		return err
	}
	said := time.Now()
	return process.Until(ctx, phaseTime, "services with triggers are awake or sleep", func() (bool, error) {
		asleep, awake := all.in(v1alpha1.PhaseAsleep), all.in(v1alpha1.PhaseAwake)
		if time.Since(said) > sayEvery {
			said = time.Now()
			say("of %d services with triggers %d sleep and %d are awake", f.Services, asleep, awake)
		}
		return awake == f.Awake && asleep+awake == f.Services, r.cluster.Alive(ctx)
	})
}

// makeTriggeredOne makes a service whose target is a StatefulSet: Deployments get no Pods here.
func (r *run) makeTriggeredOne(ctx context.Context, i int) error {
	key := triggeredKey(i)
	own := metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name, Labels: map[string]string{triggeredLabel: "yes"}}
	app := map[string]string{"app": key.Name}
	replicas := int32(1)
	if sleeps(i) {
		replicas = 0
	}
	for _, o := range []client.Object{
		&appsv1.StatefulSet{ObjectMeta: own, Spec: appsv1.StatefulSetSpec{
			Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: app}, ServiceName: key.Name,
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: app},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "web", Image: "registry.example/web:1"}}},
			},
		}},
		&corev1.Service{ObjectMeta: own, Spec: corev1.ServiceSpec{
			Selector: app, Ports: []corev1.ServicePort{{Name: "http", Port: 80, TargetPort: intstr.FromInt32(8080), AppProtocol: new("http")}},
		}},
		&v1alpha1.ElasticService{ObjectMeta: own, Spec: v1alpha1.ElasticServiceSpec{
			Service: key.Name, ScaleTargetRef: v1alpha1.ScaleTargetRef{APIVersion: "apps/v1", Kind: "StatefulSet", Name: key.Name},
			SleepAfter: &metav1.Duration{Duration: triggeredSleep}, Idle: &v1alpha1.Idle{Triggers: []v1alpha1.Trigger{triggerOf(i)}},
		}},
	} {
		if err := r.cluster.Client.Create(ctx, o); err != nil {
			return fmt.Errorf("create %T %s: %w", o, key, err)
		}
	}
	return nil
}

// wakeTriggered wakes some of those that sleep, one after another.
func (r *run) wakeTriggered(ctx context.Context, scaled *scales, f *triggered) error {
	scaled.forget()
	w, err := newWaker(r.cluster)
	if err != nil {
		return err
	}
	var times []time.Duration
	for i := 0; i < f.Services && len(times) < triggeredWakes; i++ {
		if !sleeps(i) {
			continue
		}
		key, began := triggeredKey(i), time.Now()
		if err := w.call(ctx, r.cluster.Address, key); err != nil {
			return err
		}
		if err := process.Until(ctx, phaseTime, "the target of "+key.String()+" is scaled", func() (bool, error) {
			return !scaled.of(key).IsZero(), r.cluster.Alive(ctx)
		}); err != nil {
			return err
		}
		times = append(times, scaled.of(key).Sub(began))
	}
	f.ScaleWrite = quantilesOf(times)
	return nil
}
