package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/wellknown"
	"dormouse.dev/dormouse/test/env"
)

const (
	// restartTime bounds the preparation and the measurement.
	restartTime = 15 * time.Minute
	// restarts is how often a resolver pod is replaced.
	restarts = 3
	// creators is how many objects are made at once.
	creators = 16
)

// restartFigures are what restart.json has, in milliseconds.
type restartFigures struct {
	Services int `json:"services"`
	Restarts int `json:"restarts"`
	// Unready is from the deletion of a resolver pod until no service's slice
	// sends new clients there.
	Unready quantiles `json:"deletion_to_not_ready_ms"`
	// Ready is from the moment in which the pod in its place is ready until
	// each service's slice sends new clients there.
	Ready quantiles `json:"replacement_ready_to_listed_ms"`
}

// benchRestart deletes one resolver pod while many services sleep, and measures
// how long it takes until every service's slices have the pod in its place.
func benchRestart(ctx context.Context, e *env.Env, o options) (_ any, err error) {
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "bench-"}}
	if err := e.Client.Create(ctx, ns); err != nil {
		return nil, fmt.Errorf("create a namespace: %w", err)
	}
	defer func() { err = errors.Join(err, e.Client.Delete(context.WithoutCancel(ctx), ns)) }()
	bounded, cancel := context.WithTimeout(ctx, restartTime)
	defer cancel()
	s := newListings()
	if err := s.follow(bounded, e, ns.Name); err != nil {
		return nil, err
	}
	if err := createSleepers(bounded, e, ns.Name, o.services); err != nil {
		return nil, err
	}
	var unready, ready []time.Duration
	for i := range restarts {
		fmt.Fprintf(os.Stderr, "restart %d of %d\n", i+1, restarts)
		u, r, err := s.restart(bounded, e, o.services)
		if err != nil {
			return nil, err
		}
		unready, ready = append(unready, u...), append(ready, r...)
	}
	f := restartFigures{Services: o.services, Restarts: restarts, Unready: quantilesOf(unready), Ready: quantilesOf(ready)}
	fmt.Printf("%d sleeping services, one resolver pod of two replaced, %d times:\n", o.services, restarts)
	fmt.Println("  deletion -> no new clients there   ", f.Unready)
	fmt.Println("  replacement ready -> new clients   ", f.Ready)
	return f, nil
}

// restart deletes one resolver pod once all services sleep behind each, and gives
// how long it took until their slices don't send new clients there any more, and
// until they send them to the pod in its place.
func (l *listings) restart(ctx context.Context, e *env.Env, services int) (unready, ready []time.Duration, err error) {
	old, err := resolverPods(ctx, e)
	if err != nil {
		return nil, nil, err
	}
	if len(old) != 2 {
		return nil, nil, fmt.Errorf("there are %d resolver pods, want 2", len(old))
	}
	for _, pod := range old {
		fmt.Fprintf(os.Stderr, "waiting until %d services sleep behind %s\n", services, pod.Name)
		if _, err := l.wait(ctx, pod.UID, true, services); err != nil {
			return nil, nil, err
		}
	}
	gone := old[0]
	fmt.Fprintf(os.Stderr, "deleting %s\n", gone.Name)
	deleted := time.Now()
	if err := e.Client.Delete(ctx, &gone); err != nil {
		return nil, nil, fmt.Errorf("delete resolver pod %s: %w", gone.Name, err)
	}
	replacement, up, err := waitReplacement(ctx, e, old)
	if err != nil {
		return nil, nil, err
	}
	fmt.Fprintf(os.Stderr, "%s is ready after %s\n", replacement.Name, up.Sub(deleted).Round(time.Millisecond))
	listed, err := l.wait(ctx, replacement.UID, true, services)
	if err != nil {
		return nil, nil, err
	}
	unlisted, err := l.wait(ctx, gone.UID, false, services)
	if err != nil {
		return nil, nil, err
	}
	return since(deleted, unlisted), since(up, listed), nil
}

func since(began time.Time, times []time.Time) []time.Duration {
	list := make([]time.Duration, len(times))
	for i, t := range times {
		list[i] = max(t.Sub(began), 0)
	}
	return list
}

// createSleepers makes services that sleep from the first.
func createSleepers(ctx context.Context, e *env.Env, namespace string, n int) error {
	numbers := make(chan int)
	errs := make(chan error, creators)
	var group sync.WaitGroup
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for range creators {
		group.Go(func() {
			for i := range numbers {
				g := env.Game{Namespace: namespace, Name: fmt.Sprintf("game-%04d", i), TCP: []int32{7000}, Probe: true, SleepAfter: time.Minute}
				if err := e.Create(ctx, g); err != nil {
					errs <- err
					cancel()
					return
				}
			}
		})
	}
	for i := range n {
		if i%500 == 0 {
			fmt.Fprintf(os.Stderr, "made %d of %d services\n", i, n)
		}
		select {
		case numbers <- i:
		case <-ctx.Done():
		}
	}
	close(numbers)
	group.Wait()
	close(errs)
	var all []error
	for err := range errs {
		all = append(all, err)
	}
	return errors.Join(all...)
}

func resolverPods(ctx context.Context, e *env.Env) ([]corev1.Pod, error) {
	var pods corev1.PodList
	err := e.Client.List(ctx, &pods, client.InNamespace(env.SystemNamespace), client.MatchingLabels{"app.kubernetes.io/name": "dormouse-resolver"})
	if err != nil {
		return nil, fmt.Errorf("list resolver pods: %w", err)
	}
	return slices.DeleteFunc(pods.Items, func(p corev1.Pod) bool { return !p.DeletionTimestamp.IsZero() }), nil
}

// waitReplacement gives the first pod that is ready and not among the old ones,
// and when it was seen so.
func waitReplacement(ctx context.Context, e *env.Env, old []corev1.Pod) (corev1.Pod, time.Time, error) {
	w, err := e.Client.Watch(ctx, &corev1.PodList{}, client.InNamespace(env.SystemNamespace), client.MatchingLabels{"app.kubernetes.io/name": "dormouse-resolver"})
	if err != nil {
		return corev1.Pod{}, time.Time{}, fmt.Errorf("watch resolver pods: %w", err)
	}
	defer w.Stop()
	for event := range w.ResultChan() {
		pod, ok := event.Object.(*corev1.Pod)
		if !ok || !pod.DeletionTimestamp.IsZero() || slices.ContainsFunc(old, func(p corev1.Pod) bool { return p.UID == pod.UID }) {
			continue
		}
		for _, c := range pod.Status.Conditions {
			if c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue {
				return *pod, time.Now(), nil
			}
		}
	}
	return corev1.Pod{}, time.Time{}, errors.Join(errors.New("wait for the pod in the place of the deleted one: the watch ended"), ctx.Err())
}

// listings follow which resolver pods the slices of services send new clients
// to, and since when.
type listings struct {
	mu sync.Mutex
	// state is by pod and slice.
	state   map[types.UID]map[string]listing
	changed chan struct{}
}

type listing struct {
	ready bool
	since time.Time
}

func newListings() *listings {
	return &listings{state: map[types.UID]map[string]listing{}, changed: make(chan struct{})}
}

// follow looks at the slices until the context ends. A watch may end sooner, such
// as when the API server finds us slow; then another begins with a list.
func (l *listings) follow(ctx context.Context, e *env.Env, namespace string) error {
	watched, err := cache.New(e.Config, cache.Options{
		Scheme:               e.Client.Scheme(),
		DefaultNamespaces:    map[string]cache.Config{namespace: {}},
		DefaultLabelSelector: labels.SelectorFromSet(labels.Set{discoveryv1.LabelManagedBy: wellknown.ManagedBy}),
	})
	if err != nil {
		return fmt.Errorf("make a cache of EndpointSlices: %w", err)
	}
	informer, err := watched.GetInformer(ctx, &discoveryv1.EndpointSlice{}, cache.BlockUntilSynced(false))
	if err != nil {
		return fmt.Errorf("watch EndpointSlices: %w", err)
	}
	saw := func(o any) {
		if slice, ok := o.(*discoveryv1.EndpointSlice); ok {
			l.saw(slice)
		}
	}
	if _, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc: saw, UpdateFunc: func(_, o any) { saw(o) },
	}); err != nil {
		return fmt.Errorf("watch EndpointSlices: %w", err)
	}
	go func() { _ = watched.Start(ctx) }()
	return nil
}

func (l *listings) saw(slice *discoveryv1.EndpointSlice) {
	now := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	ready := map[types.UID]bool{}
	for _, ep := range slice.Endpoints {
		if ep.TargetRef != nil && ptr.Deref(ep.Conditions.Ready, true) {
			ready[ep.TargetRef.UID] = true
		}
	}
	for uid := range ready {
		if l.state[uid] == nil {
			l.state[uid] = map[string]listing{}
		}
	}
	for uid, byName := range l.state {
		if was, ok := byName[slice.Name]; (ok || ready[uid]) && was.ready != ready[uid] {
			byName[slice.Name] = listing{ready[uid], now}
		}
	}
	close(l.changed)
	l.changed = make(chan struct{})
}

// wait waits until n slices list a pod as ready, or not any more, and gives the
// time of each.
func (l *listings) wait(ctx context.Context, uid types.UID, ready bool, n int) ([]time.Time, error) {
	for {
		var times []time.Time
		l.mu.Lock()
		for _, s := range l.state[uid] {
			if s.ready == ready {
				times = append(times, s.since)
			}
		}
		changed := l.changed
		l.mu.Unlock()
		if len(times) == n {
			return times, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, fmt.Errorf("wait until %d slices list resolver pod %s as ready=%t: %d do: %w", n, uid, ready, len(times), ctx.Err())
		}
	}
}
