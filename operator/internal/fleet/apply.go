package fleet

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/api/wellknown"
	"dormouse.dev/dormouse/operator/internal/fleet/serverbuilder"
	"dormouse.dev/dormouse/operator/internal/pending"
	"dormouse.dev/dormouse/operator/internal/places"
	"dormouse.dev/dormouse/operator/internal/refusal"
	"dormouse.dev/dormouse/operator/internal/text"
)

// parallel bounds the calls that one pass makes at a time.
const parallel = 16

// outcome is the result of applying a plan.
type outcome struct {
	created   []string
	takenBack []string
	drained   []string
	deleted   []string
	// stale is set where a Server had changed since the plan was made.
	stale bool
	// refused is the API server's message where it refuses the Servers; else empty.
	refused string
	// failed is an error that leads to another try at once.
	failed error
}

// apply applies a plan. Servers are taken back before new ones are created, and deleted last.
func (r *Reconciler) apply(ctx context.Context, f *v1alpha1.Fleet, m *state, p plan, n *namer) outcome {
	var o outcome
	if len(p.takeBack) > 0 {
		o.takenBack = r.each(ctx, &o, p.takeBack, func(ctx context.Context, s *server) error { return r.setDrain(ctx, f, m, s, false) })
	}
	// One, then two, then four at a time, and no more once one was refused, so that a refusal
	// costs few calls.
	for left, batch := p.create, 1; left > 0 && o.refused == "" && o.failed == nil; batch = min(2*batch, parallel) {
		var mu sync.Mutex
		var group sync.WaitGroup
		for range min(batch, left) {
			group.Go(func() {
				name, err := r.create(ctx, f, m, n)
				mu.Lock()
				defer mu.Unlock()
				switch {
				case err == nil:
					o.created = append(o.created, name)
				case errors.Is(err, errMade):
					o.stale = true
				case refusal.Is(err):
					o.refused = refusalWords(f, name, err)
				default:
					o.failed = errors.Join(o.failed, err)
				}
			})
		}
		group.Wait()
		left -= batch
	}
	if len(p.drain) > 0 {
		o.drained = r.each(ctx, &o, p.drain, func(ctx context.Context, s *server) error { return r.setDrain(ctx, f, m, s, true) })
	}
	if len(p.remove) > 0 {
		o.deleted = r.each(ctx, &o, p.remove, func(ctx context.Context, s *server) error { return r.remove(ctx, f, m, s) })
	}
	return o
}

// each calls do for the Servers, and returns the names of those for which it succeeded.
func (r *Reconciler) each(ctx context.Context, o *outcome, servers []*server, do func(context.Context, *server) error) []string {
	var mu sync.Mutex
	var done []string
	var group errgroup.Group
	group.SetLimit(parallel)
	for _, s := range servers {
		group.Go(func() error {
			err := do(ctx, s)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil:
				done = append(done, s.name)
			case apierrors.IsConflict(err), apierrors.IsNotFound(err):
				// The Server has changed since the plan was made.
				o.stale = true
			default:
				o.failed = errors.Join(o.failed, err)
			}
			return nil
		})
	}
	_ = group.Wait() // Errors are in the outcome.
	return done
}

// nameTries is how many names are tried for one Server.
const nameTries = 3

// errMade means that a wake has created a Server, which the cache will show.
var errMade = errors.New("a wake has made it")

// create creates a Server, and returns its name, which it also has in an error.
func (r *Reconciler) create(ctx context.Context, f *v1alpha1.Fleet, m *state, n *namer) (string, error) {
	for try := 1; ; try++ {
		name, place, first := n.one()
		s := serverbuilder.Build(f, m.template, name, place)
		err := r.Client.Create(ctx, s)
		if err == nil {
			m.wrote(r.Now(), pending.Create, observe(s))
			return name, nil
		}
		if apierrors.IsAlreadyExists(err) && first {
			return name, errMade
		}
		if !apierrors.IsAlreadyExists(err) || try == nameTries {
			return name, fmt.Errorf("create Server %s: %w", name, err)
		}
	}
}

// namer gives new Servers their names.
type namer struct {
	fleet *v1alpha1.Fleet
	used  map[string]bool

	mu sync.Mutex
	// first is how many have a first name, and next is the next one of these.
	first, next int32
	// free are the places that get Servers.
	free []int32
}

// one gives a name, with the place that it is of, and reports whether a wake may have given it,
// too.
func (n *namer) one() (name string, place int32, first bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.free) > 0 {
		place, n.free = n.free[0], n.free[1:]
		return places.Name(n.fleet, place), place, true
	}
	for n.next < n.first {
		name := serverbuilder.FirstName(n.fleet, n.next)
		if n.next++; !n.used[name] {
			return name, places.None, true
		}
	}
	return serverbuilder.RandomName(n.fleet), places.None, false
}

// selector selects a Fleet's Pods.
func selector(f *v1alpha1.Fleet) string { return wellknown.FleetLabel + "=" + f.Name }

// setDrain drains a Server or takes it back, if it hasn't changed since it was observed: a game
// that has been Allocated meanwhile isn't drained.
func (r *Reconciler) setDrain(ctx context.Context, f *v1alpha1.Fleet, m *state, s *server, drain bool) error {
	var mark any
	if drain {
		if err := r.withdraw(f, s); err != nil {
			return err
		}
		mark = wellknown.DrainedByFleet
	}
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{
			"resourceVersion": s.resourceVersion,
			"annotations":     map[string]any{wellknown.DrainedByAnnotation: mark},
		},
		"spec": map[string]any{"drain": drain},
	})
	if err != nil {
		return fmt.Errorf("write the patch of Server %s: %w", s.name, err)
	}
	changed := s.object(f)
	if err := r.Client.Patch(ctx, changed, client.RawPatch(types.MergePatchType, patch)); err != nil {
		return fmt.Errorf("set spec.drain of Server %s to %t: %w", s.name, drain, err)
	}
	m.wrote(r.Now(), pending.Change, observe(changed))
	return nil
}

// remove deletes a Server, if it hasn't changed since it was observed: a deletion can't be
// undone.
func (r *Reconciler) remove(ctx context.Context, f *v1alpha1.Fleet, m *state, s *server) error {
	if err := r.withdraw(f, s); err != nil {
		return err
	}
	if err := r.Client.Delete(ctx, s.object(f), client.Preconditions{UID: &s.uid, ResourceVersion: &s.resourceVersion}); err != nil {
		return fmt.Errorf("delete Server %s: %w", s.name, err)
	}
	m.wrote(r.Now(), pending.Delete, *s)
	return nil
}

// object is the part of the Server that a patch or a deletion needs.
func (s *server) object(f *v1alpha1.Fleet) *v1alpha1.Server {
	o := &v1alpha1.Server{}
	o.Namespace, o.Name, o.UID, o.ResourceVersion = f.Namespace, s.name, s.uid, s.resourceVersion
	return o
}

// refusalWords are the API server's message, bounded, and without the name that the Server
// would have had.
func refusalWords(f *v1alpha1.Fleet, name string, err error) string {
	return text.Bounded(strings.ReplaceAll(refusal.Words(err), name, f.Name+"-*"))
}

// observeHolders finds which Servers Allocations have. Their own status says so only later.
func (r *Reconciler) observeHolders(f *v1alpha1.Fleet, servers []server) {
	for i := range servers {
		s := &servers[i]
		s.hold(r.Allocations.HolderOf(f.Namespace, s.name, s.uid).Any())
	}
}

// errAllocated means that an Allocation has got a Server since it was observed.
var errAllocated = errors.New("an Allocation has it now")

// withdraw has no Allocation get a Server any more. It fails as if the Server had changed where one has
// it; not for a game that is broken or asks for its end, which goes all the same.
func (r *Reconciler) withdraw(f *v1alpha1.Fleet, s *server) error {
	if r.Allocations == nil || s.unhealthy || s.shutdown || r.Allocations.Withdraw(f.Namespace, s.name) {
		return nil
	}
	return apierrors.NewConflict(v1alpha1.GroupVersion.WithResource("servers").GroupResource(), s.name, errAllocated)
}
