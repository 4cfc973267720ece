package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/api/wellknown"
	"dormouse.dev/dormouse/test/bench/process"
	"dormouse.dev/dormouse/test/bench/scale/cluster"
	"dormouse.dev/dormouse/test/bench/sidecars"
)

const (
	gamesNamespace = "games"
	fleetName      = "arena"
	// kubelets is how many of the benchmark's own writes for kubelet are under way at once.
	kubelets = 8
)

// games are the Servers, by what a watch shows of them, and their played sidecars.
type games struct {
	cluster *cluster.Cluster
	played  *sidecars.Processes
	// unready are Servers whose sidecars' probes begin to fail.
	unready chan string

	mu sync.Mutex
	// appeared and ready are when a Server was first seen, and first seen Ready.
	appeared, ready map[string]time.Time
	// there are the Servers, pods those Pods that run.
	there, pods map[string]bool
	keys        map[string]string
	failed      error
}

// follow watches Servers and their Pods until the context ends, and plays the sidecars of the
// Pods that run.
func follow(ctx context.Context, c *cluster.Cluster, processes int) (*games, error) {
	g := &games{
		cluster: c, unready: make(chan string, maxFleet), keys: map[string]string{},
		appeared: map[string]time.Time{}, ready: map[string]time.Time{}, there: map[string]bool{}, pods: map[string]bool{},
	}
	var err error
	if g.played, err = sidecars.Start(ctx, cluster.OperatorAddress+","+cluster.NextAddress, processes, func(server string) { g.unready <- server }); err != nil {
		return nil, err
	}
	for range kubelets {
		go g.playKubelet(ctx)
	}
	watched, err := cache.New(c.Config, cache.Options{
		Scheme:            c.Client.Scheme(),
		DefaultNamespaces: map[string]cache.Config{gamesNamespace: {}},
		DefaultTransform:  cache.TransformStripManagedFields(),
		ByObject: map[client.Object]cache.ByObject{
			&corev1.Pod{}: {Transform: func(o any) (any, error) {
				if pod, ok := o.(*corev1.Pod); ok {
					pod.ManagedFields, pod.Spec = nil, corev1.PodSpec{}
				}
				return o, nil
			}},
		},
	})
	if err != nil {
		return g, fmt.Errorf("make a cache: %w", err)
	}
	for object, handler := range map[client.Object]toolscache.ResourceEventHandler{
		&v1alpha1.Server{}: toolscache.ResourceEventHandlerFuncs{
			AddFunc: g.sawServer, UpdateFunc: func(_, o any) { g.sawServer(o) }, DeleteFunc: g.serverGone,
		},
		&corev1.Pod{}: toolscache.ResourceEventHandlerFuncs{
			AddFunc: func(o any) { g.sawPod(ctx, o) }, UpdateFunc: func(_, o any) { g.sawPod(ctx, o) }, DeleteFunc: g.podGone,
		},
	} {
		informer, err := watched.GetInformer(ctx, object, cache.BlockUntilSynced(false))
		if err == nil {
			_, err = informer.AddEventHandler(handler)
		}
		if err != nil {
			return g, fmt.Errorf("watch %T: %w", object, err)
		}
	}
	go func() { _ = watched.Start(ctx) }()
	if !watched.WaitForCacheSync(ctx) {
		return g, fmt.Errorf("watch Servers: %w", ctx.Err())
	}
	return g, nil
}

func (g *games) sawServer(o any) {
	s, ok := o.(*v1alpha1.Server)
	if !ok {
		return
	}
	now := time.Now()
	g.mu.Lock()
	defer g.mu.Unlock()
	g.there[s.Name] = true
	if g.appeared[s.Name].IsZero() {
		g.appeared[s.Name] = now
	}
	if s.Status.State == v1alpha1.ServerReady && g.ready[s.Name].IsZero() {
		g.ready[s.Name] = now
	}
}

func (g *games) serverGone(o any) {
	if name, ok := nameOf(o); ok {
		g.mu.Lock()
		defer g.mu.Unlock()
		delete(g.there, name)
	}
}

func (g *games) sawPod(ctx context.Context, o any) {
	pod, ok := o.(*corev1.Pod)
	if !ok || pod.Status.Phase != corev1.PodRunning || !pod.DeletionTimestamp.IsZero() {
		return
	}
	g.mu.Lock()
	running := g.pods[pod.Name]
	g.pods[pod.Name] = true
	g.mu.Unlock()
	if running {
		return
	}
	if err := g.play(ctx, pod); err != nil {
		g.fail(err)
	}
}

// play plays the sidecar of a Pod that runs, with what it has to show: its namespace's key, or a
// token.
func (g *games) play(ctx context.Context, pod *corev1.Pod) error {
	id := pod.Annotations[wellknown.ReportKeyAnnotation]
	if id == "" {
		token, err := g.cluster.Token(ctx, pod.Namespace, "default", wellknown.TokenAudience, pod)
		if err != nil {
			return err
		}
		return g.played.Play(sidecars.Sidecar{Server: pod.Name, Token: token})
	}
	text := g.keys[id] // only the watch's own goroutine uses it
	if text == "" {
		secret := &corev1.Secret{}
		key := client.ObjectKey{Namespace: pod.Namespace, Name: "dormouse-report-key-" + id}
		if err := g.cluster.Client.Get(ctx, key, secret); err != nil {
			return fmt.Errorf("read the key with which sidecars report: %w", err)
		}
		text = string(secret.Data["key"])
		g.keys[id] = text
	}
	return g.played.Play(sidecars.Sidecar{Server: pod.Name, Key: &sidecars.Key{
		ID: id, Text: text, Namespace: pod.Namespace, UID: string(pod.UID),
	}})
}

func (g *games) podGone(o any) {
	name, ok := nameOf(o)
	if !ok {
		return
	}
	g.mu.Lock()
	delete(g.pods, name)
	g.mu.Unlock()
	if err := g.played.End(name); err != nil {
		g.fail(err)
	}
}

// playKubelet writes what KWOK doesn't: that a Pod isn't ready once its sidecar's probe fails.
func (g *games) playKubelet(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case name := <-g.unready:
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: gamesNamespace, Name: name}}
			now := time.Now().UTC().Format(time.RFC3339)
			body := fmt.Sprintf(`{"status":{"conditions":[{"type":"Ready","status":"False","reason":"ContainersNotReady","lastTransitionTime":%q},{"type":"ContainersReady","status":"False","reason":"ContainersNotReady","lastTransitionTime":%q}]}}`, now, now)
			err := g.cluster.Kubelet.Status().Patch(ctx, pod, client.RawPatch(types.StrategicMergePatchType, []byte(body)))
			if client.IgnoreNotFound(err) != nil && ctx.Err() == nil {
				g.fail(fmt.Errorf("write that Pod %s isn't ready: %w", name, err))
			}
		}
	}
}

// fail ends the phase with an error.
func (g *games) fail(err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.failed = err
}

func nameOf(o any) (string, bool) {
	if gone, ok := o.(toolscache.DeletedFinalStateUnknown); ok {
		o = gone.Obj
	}
	object, ok := o.(client.Object)
	if !ok {
		return "", false
	}
	return object.GetName(), true
}

// counts are how many Servers were ever Ready, are there, and have a Pod that runs.
func (g *games) counts() (ready, there, pods int, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.ready), len(g.there), len(g.pods), g.failed
}

// times are how long each Server took from when it was seen until it was seen Ready.
func (g *games) times() []time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	var took []time.Duration
	for name, at := range g.ready {
		took = append(took, at.Sub(g.appeared[name]))
	}
	return took
}

// fleet is of games that say that they are ready, and who plays.
func fleet(replicas int) *v1alpha1.Fleet {
	return &v1alpha1.Fleet{
		ObjectMeta: metav1.ObjectMeta{Namespace: gamesNamespace, Name: fleetName},
		Spec: v1alpha1.FleetSpec{
			Replicas: new(int32(replicas)),
			Template: v1alpha1.ServerTemplate{
				Metadata: v1alpha1.TemplateMetadata{Labels: map[string]string{"mode": "duel"}},
				Spec: v1alpha1.ServerSpec{
					Ports:   []v1alpha1.ServerPort{{Name: "game", ContainerPort: 7000, Protocol: v1alpha1.ServerProtocolUDP}},
					Players: &v1alpha1.PlayersSpec{Capacity: 16},
					Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{
						Name: "game", Image: "registry.example/game:1", Args: []string{"--udp=7000"},
					}}}},
				},
			},
		},
	}
}

// up makes the Fleet, and waits until each of its Servers is Ready.
func (g *games) up(ctx context.Context, count int) error {
	c := g.cluster.Client
	if err := c.Create(ctx, fleet(count)); err != nil {
		return fmt.Errorf("create the Fleet: %w", err)
	}
	return g.until(ctx, "all Servers are Ready", func(ready, there, pods int) bool {
		return ready >= count && there == count && pods == count
	})
}

// down scales the Fleet to zero, and waits until nothing of it is there.
func (g *games) down(ctx context.Context) error {
	zero := client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"replicas":0}}`))
	if err := g.cluster.Client.Patch(ctx, fleet(0), zero); err != nil {
		return fmt.Errorf("scale the Fleet to zero: %w", err)
	}
	// What the watches show may be late, where the API server was started again.
	said := time.Now()
	return process.Until(ctx, phaseTime, "all Servers are gone", func() (bool, error) {
		left, err := g.left(ctx)
		if err := errors.Join(err, g.failure(), g.cluster.Alive(ctx)); err != nil {
			return false, err
		}
		if time.Since(said) > sayEvery {
			said = time.Now()
			say("%d Servers are left", left)
		}
		return left == 0, nil
	})
}

// left is how many Servers there are, by the API server.
func (g *games) left(ctx context.Context) (int, error) {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("ServerList"))
	if err := g.cluster.Client.List(ctx, list, client.InNamespace(gamesNamespace), client.Limit(1)); err != nil {
		return 0, fmt.Errorf("count Servers: %w", err)
	}
	return len(list.Items) + int(ptr.Deref(list.RemainingItemCount, 0)), nil
}

func (g *games) failure() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.failed
}

func (g *games) until(ctx context.Context, what string, is func(ready, there, pods int) bool) error {
	said := time.Now()
	return process.Until(ctx, phaseTime, what, func() (bool, error) {
		ready, there, pods, err := g.counts()
		if err != nil {
			return false, err
		}
		if err := g.cluster.Alive(ctx); err != nil {
			return false, err
		}
		if time.Since(said) > sayEvery {
			said = time.Now()
			failed, why := g.played.Failures()
			say("%d Servers, %d Pods run, %d were Ready, %d calls of sidecars failed %s", there, pods, ready, failed, why)
		}
		return is(ready, there, pods), nil
	})
}
