package gametype

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/api/wellknown"
	fleets "dormouse.dev/dormouse/operator/internal/fleet"
	"dormouse.dev/dormouse/operator/internal/gametype/firstpods"
	"dormouse.dev/dormouse/operator/internal/index"
	"dormouse.dev/dormouse/operator/internal/target"
)

// spareTime is how long nothing is created for a target that could not be scaled, and maxSpared
// bounds how many such targets are remembered.
const spareTime, maxSpared = time.Minute, 1024

// Scaler wakes targets. It brings a GameType or a Fleet that sleeps at zero to its first
// Servers at once: a player waits, and the controllers would decide the same, one write after
// the other. The target's own replicas remain what counts: if the other writes don't fit them,
// the controllers correct that.
type Scaler struct {
	// Client reads from the cache, which has the indexes of SetupIndexes here and of package
	// fleet, and writes to the API server.
	Client client.Client
	Scaler *target.Scaler
	// Pods knows when the Pods of the first Servers are there; nil: nothing waits for them.
	Pods *firstpods.Pods

	mu sync.Mutex
	// spared is when a target could last not be scaled: Servers created for it would only be
	// deleted again.
	spared map[types.UID]time.Time
}

// RaiseTo is target.Scaler's. A Fleet or a GameType that is being deleted counts as not found,
// because it has no new Servers.
func (c *Scaler) RaiseTo(ctx context.Context, ref target.Ref, want target.Replicas) (target.Raised, error) {
	if err := c.ending(ctx, ref); err != nil {
		return target.Raised{}, err
	}
	want = c.asked(ctx, ref, want)
	meta, first := c.plan(ctx, ref, want.FromZero)
	if first == nil || c.spares(meta.UID) {
		return c.Scaler.RaiseTo(ctx, ref, want)
	}
	// The Servers and their Pods come first, because the player waits for them. The others follow
	// one after the other: side by side they would take the API server's time from the Pods.
	c.makeServers(ctx, first.servers)
	if first.fleet != nil {
		first.fleet(ctx)
	}
	scale := &autoscalingv1.Scale{ObjectMeta: metav1.ObjectMeta{Namespace: ref.Namespace, Name: ref.Name, UID: meta.UID, ResourceVersion: meta.ResourceVersion}}
	err := c.Scaler.Set(ctx, ref, scale, want.FromZero)
	if err != nil {
		// Somebody else has just changed it, or it can't be changed: read it again.
		raised, err := c.Scaler.RaiseTo(ctx, ref, want)
		if err != nil {
			c.spare(meta.UID)
		}
		return raised, err
	}
	return target.Raised{After: want.FromZero, Version: meta.ResourceVersion}, nil
}

// makeServers makes the first Servers, and waits for their Pods.
func (c *Scaler) makeServers(ctx context.Context, servers []*v1alpha1.Server) {
	keys := make([]client.ObjectKey, len(servers))
	for i, s := range servers {
		keys[i] = client.ObjectKeyFromObject(s)
	}
	wait := c.Pods.Expect(keys)
	wait(ctx, fleets.CreateFirst(ctx, c.Client, servers))
}

// asked is how many Servers a wake brings. Where the ElasticService doesn't say it is as many as a
// GameType says now, which may have changed in its sleep. A GameAutoscaler has them between its
// bounds.
func (c *Scaler) asked(ctx context.Context, ref target.Ref, want target.Replicas) target.Replicas {
	if !ref.HasServers() {
		return want
	}
	gt := &v1alpha1.GameType{}
	if want.AsBefore && ref.Kind == kind.Kind && c.Client.Get(ctx, client.ObjectKey{Namespace: ref.Namespace, Name: ref.Name}, gt) == nil {
		if awake := ptr.Deref(gt.Spec.Replicas, 1); awake > 0 {
			want.FromZero = awake
		}
	}
	if gas, err := index.AutoscalerOf(ctx, c.Client, ref.Namespace, ref.Kind, ref.Name); err == nil && gas != nil {
		want.FromZero = max(ptr.Deref(gas.Spec.MinReplicas, 1), min(want.FromZero, gas.Spec.MaxReplicas))
		want.AtLeast = min(want.AtLeast, gas.Spec.MaxReplicas)
	}
	return want
}

// ending is an error if the target is being deleted.
func (c *Scaler) ending(ctx context.Context, ref target.Ref) error {
	var o client.Object
	switch {
	case !ref.HasServers():
		return nil
	case ref.Kind == "Server":
		o = &v1alpha1.Server{}
	case ref.Kind == "Fleet":
		o = &v1alpha1.Fleet{}
	default:
		o = &v1alpha1.GameType{}
	}
	if err := c.Client.Get(ctx, client.ObjectKey{Namespace: ref.Namespace, Name: ref.Name}, o); err != nil {
		return nil //nolint:nilerr // the API server knows better than the cache
	}
	if o.GetDeletionTimestamp().IsZero() {
		return nil
	}
	return fmt.Errorf("%s is being deleted and has no new Servers: %w", ref, target.ErrNotFound)
}

func (c *Scaler) spares(uid types.UID) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	at, ok := c.spared[uid]
	return ok && time.Since(at) < spareTime
}

func (c *Scaler) spare(uid types.UID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.spared == nil || len(c.spared) >= maxSpared {
		c.spared = map[types.UID]time.Time{}
	}
	c.spared[uid] = time.Now()
}

// creation is what is written beside a target's replicas: the Servers, and the objects between
// them and the target.
type creation struct {
	servers []*v1alpha1.Server
	fleet   func(context.Context)
}

// plan is what is to be written beside the replicas of a target that sleeps at zero, with the
// target's metadata in the cache; nil where nothing is. For a GameType it asks the planner what
// the controller will do, and returns that if it is simple: the current Fleet, which has no
// Servers, gets some.
func (c *Scaler) plan(ctx context.Context, ref target.Ref, replicas int32) (*metav1.ObjectMeta, *creation) {
	if !ref.HasServers() || ref.Kind == "Server" || replicas < 1 {
		return nil, nil
	}
	key := client.ObjectKey{Namespace: ref.Namespace, Name: ref.Name}
	if ref.Kind == "Fleet" {
		f := &v1alpha1.Fleet{}
		if c.Client.Get(ctx, key, f) != nil || !asleep(&f.ObjectMeta, ptr.Deref(f.Spec.Replicas, 1)) || !fleets.Empty(ctx, c.Client, f) {
			return nil, nil
		}
		return &f.ObjectMeta, &creation{servers: fleets.First(f, replicas)}
	}

	// Observe the GameType and its Fleets.
	gt := &v1alpha1.GameType{}
	if c.Client.Get(ctx, key, gt) != nil || !asleep(&gt.ObjectMeta, Replicas(&gt.Spec)) {
		return nil, nil
	}
	var list v1alpha1.FleetList
	if c.Client.List(ctx, &list, client.InNamespace(gt.Namespace), client.MatchingFields{IndexOwner: string(gt.UID)}) != nil {
		return nil, nil
	}
	gt, _ = undone(gt, list.Items)
	seen, template := make([]fleet, len(list.Items)), desiredTemplate(gt)
	for i := range list.Items {
		seen[i] = observe(gt, &template, &list.Items[i])
	}

	// What will the controller do once it has these replicas?
	woken := gt.DeepCopy()
	scale := scaleOf(&gt.Spec)
	scale.Replicas = replicas
	woken.Spec.Scale = &scale
	var lastNumber int64
	if u := gt.Status.UpdateRevision; u != nil {
		lastNumber = u.Number
	}
	var at occupants
	if len(gt.Spec.Template.Spec.Storage) > 0 {
		var err error
		if at, err = observeOccupants(ctx, c.Client, gt, seen); err != nil {
			return nil, nil // the controller reports it
		}
	}
	p := makePlan(time.Now(), &woken.Spec, seen, at, lastNumber)
	if p.create || len(p.change) != 1 || p.change[0].fleet != p.current || len(p.force) > 0 {
		return nil, nil
	}

	// The current Fleet alone gets Servers.
	change := p.change[0]
	current := slices.IndexFunc(list.Items, func(f v1alpha1.Fleet) bool { return f.UID == p.current.uid })
	if current < 0 {
		return nil, nil
	}
	f := &list.Items[current]
	if !asleep(&f.ObjectMeta, ptr.Deref(f.Spec.Replicas, 1)) || !fleets.Empty(ctx, c.Client, f) {
		return nil, nil
	}
	f.Spec.Places = change.places
	return &gt.ObjectMeta, &creation{
		servers: fleets.First(f, change.replicas),
		fleet: func(ctx context.Context) {
			// If it can't be written the controller does it, or reports why not.
			_, _ = changeFleet(ctx, c.Client, woken, change, map[string]any{
				wellknown.OwnerGenerationAnnotation: strconv.FormatInt(gt.Generation+1, 10),
			})
		},
	}
}

// asleep reports whether an object with these replicas is at zero, and isn't being deleted.
func asleep(meta *metav1.ObjectMeta, replicas int32) bool {
	return replicas == 0 && meta.DeletionTimestamp.IsZero()
}
