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
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/v1alpha1"
	fleets "dormouse.dev/dormouse/operator/internal/fleet"
	"dormouse.dev/dormouse/operator/internal/target"
)

// spareTime is for how long nothing is made for a target that could not be scaled, and
// maxSpared bounds how many such targets are remembered.
const spareTime, maxSpared = time.Minute, 1024

// Carrier wakes targets. What sleeps at zero and is a GameType or a Fleet it brings
// to its first Servers in one go: a player waits, and the controllers would decide
// the same, one write after the other. The target's own replicas remain what
// counts: where what was written besides doesn't fit them, the controllers put it
// right.
type Carrier struct {
	// Client reads from the cache, which has the indexes of SetupIndexes here and of
	// the Fleets' package, and writes to the API server.
	Client client.Client
	Scaler *target.Scaler

	mu sync.Mutex
	// spared is when a target could last not be scaled: Servers made for it would
	// only be deleted again.
	spared map[types.UID]time.Time
}

// RaiseTo is target.Scaler's. A Fleet or a GameType that is being deleted has no new Servers,
// so nothing is found of it.
func (c *Carrier) RaiseTo(ctx context.Context, ref target.Ref, want target.Replicas) (target.Raised, error) {
	if err := c.ending(ctx, ref); err != nil {
		return target.Raised{}, err
	}
	meta, carry := c.plan(ctx, ref, want.FromZero)
	if carry == nil || c.spares(meta.UID) {
		return c.Scaler.RaiseTo(ctx, ref, want)
	}
	// The Servers come first, since their Pods are what the player waits for.
	carry.servers(ctx)
	var group sync.WaitGroup
	if carry.fleet != nil {
		group.Go(func() { carry.fleet(ctx) })
	}
	scale := &autoscalingv1.Scale{ObjectMeta: metav1.ObjectMeta{Namespace: ref.Namespace, Name: ref.Name, UID: meta.UID, ResourceVersion: meta.ResourceVersion}}
	err := c.Scaler.Set(ctx, ref, scale, want.FromZero)
	group.Wait()
	if err != nil {
		// Somebody changed it in this moment, or it can't be: see how it is now.
		raised, err := c.Scaler.RaiseTo(ctx, ref, want)
		if err != nil {
			c.spare(meta.UID)
		}
		return raised, err
	}
	return target.Raised{After: want.FromZero, Version: meta.ResourceVersion}, nil
}

// ending is an error for a target that is being deleted.
func (c *Carrier) ending(ctx context.Context, ref target.Ref) error {
	var o client.Object
	switch {
	case !ref.HasServers():
		return nil
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

func (c *Carrier) spares(uid types.UID) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	at, ok := c.spared[uid]
	return ok && time.Since(at) < spareTime
}

func (c *Carrier) spare(uid types.UID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.spared == nil || len(c.spared) >= maxSpared {
		c.spared = map[types.UID]time.Time{}
	}
	c.spared[uid] = time.Now()
}

// carried is what is written beside the replicas of a target: the Servers, and what
// else is between them and it.
type carried struct{ servers, fleet func(context.Context) }

// plan is what is to be written beside the replicas of a target that sleeps at
// zero, and what the cache knows that target as; nil where nothing is.
func (c *Carrier) plan(ctx context.Context, ref target.Ref, replicas int32) (*metav1.ObjectMeta, *carried) {
	if !ref.HasServers() || replicas < 1 {
		return nil, nil
	}
	key := client.ObjectKey{Namespace: ref.Namespace, Name: ref.Name}
	if ref.Kind == "Fleet" {
		f := &v1alpha1.Fleet{}
		if c.Client.Get(ctx, key, f) != nil || !asleep(&f.ObjectMeta, f.Spec.Replicas) || !fleets.Empty(ctx, c.Client, f) {
			return nil, nil
		}
		return &f.ObjectMeta, &carried{servers: func(ctx context.Context) { fleets.Carry(ctx, c.Client, f, replicas) }}
	}
	gt := &v1alpha1.GameType{}
	if c.Client.Get(ctx, key, gt) != nil || !asleep(&gt.ObjectMeta, gt.Spec.Replicas) {
		return nil, nil
	}
	return &gt.ObjectMeta, c.planGameType(ctx, gt, replicas)
}

// asleep reports whether what has these replicas is at zero, and stays.
func asleep(meta *metav1.ObjectMeta, replicas *int32) bool {
	return replicas != nil && *replicas == 0 && meta.DeletionTimestamp.IsZero()
}

// planGameType asks the planner what the GameType's controller will do, and gives
// that if it is simple: the current Fleet, which has no Servers, gets some.
func (c *Carrier) planGameType(ctx context.Context, gt *v1alpha1.GameType, replicas int32) *carried {
	var list v1alpha1.FleetList
	if err := c.Client.List(ctx, &list, client.InNamespace(gt.Namespace), client.MatchingFields{IndexOwner: string(gt.UID)}); err != nil {
		return nil
	}
	gt, _ = undone(gt, list.Items)
	seen := make([]fleet, len(list.Items))
	for i := range list.Items {
		seen[i] = observe(gt, &list.Items[i])
	}
	woken := gt.DeepCopy()
	woken.Spec.Replicas = &replicas
	var known int64
	if u := gt.Status.UpdateRevision; u != nil {
		known = u.Number
	}
	p := makePlan(time.Now(), &woken.Spec, seen, known)
	if p.create || len(p.change) != 1 || p.change[0].fleet != p.current || len(p.force) > 0 {
		return nil
	}
	change := p.change[0]
	for i := range list.Items {
		f := &list.Items[i]
		if f.UID != p.current.uid {
			continue
		}
		if !asleep(&f.ObjectMeta, f.Spec.Replicas) || !fleets.Empty(ctx, c.Client, f) {
			return nil
		}
		return &carried{
			servers: func(ctx context.Context) { fleets.Carry(ctx, c.Client, f, change.replicas) },
			fleet: func(ctx context.Context) {
				// Where it can't be written the controller does it, or says why not.
				_, _ = changeFleet(ctx, c.Client, woken, change, map[string]any{
					v1alpha1.OwnerGenerationAnnotation: strconv.FormatInt(gt.Generation+1, 10),
				})
			},
		}
	}
	return nil
}

// cacheLags reports whether the cache is about to show a later GameType: a Fleet is as
// that one wants it. What never comes isn't waited for.
func (m *state) cacheLags(now time.Time, gt *v1alpha1.GameType, seen []fleet) bool {
	m.lag.See(now, slices.ContainsFunc(seen, func(f fleet) bool { return f.ownerGeneration > gt.Generation }))
	return m.lag.Lasts(now)
}
