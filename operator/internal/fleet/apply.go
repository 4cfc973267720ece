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
	"dormouse.dev/dormouse/operator/internal/pending"
	"dormouse.dev/dormouse/operator/internal/refusal"
	"dormouse.dev/dormouse/operator/internal/text"
)

// parallel bounds the calls that one pass makes at a time.
const parallel = 16

// outcome is what a pass has done.
type outcome struct {
	created   []string
	takenBack []string
	drained   []string
	deleted   []string
	// stale says that a Server wasn't any more what the plan was made for.
	stale bool
	// refused is what the API server said that won't take the Servers; empty where
	// it does.
	refused string
	// failed is what will be tried again at once.
	failed error
}

// wrote reports whether a Server was made or changed.
func (o outcome) wrote() bool {
	return len(o.created)+len(o.takenBack)+len(o.drained)+len(o.deleted) > 0
}

// apply does what a plan says. Servers are taken back before new ones are made,
// and none goes before those.
func (r *Reconciler) apply(ctx context.Context, f *v1alpha1.Fleet, m *state, p plan, n *namer) outcome {
	var o outcome
	o.takenBack = r.each(ctx, &o, p.takeBack, func(ctx context.Context, s *server) error { return r.setDrain(ctx, f, m, s, false) })
	r.create(ctx, f, m, n, p.create, &o)
	o.drained = r.each(ctx, &o, p.drain, func(ctx context.Context, s *server) error { return r.setDrain(ctx, f, m, s, true) })
	o.deleted = r.each(ctx, &o, p.remove, func(ctx context.Context, s *server) error { return r.remove(ctx, f, m, s) })
	return o
}

// each calls do for the Servers, and returns the names of those for which it
// worked.
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
				// It isn't any more what the plan was made for.
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

// create makes Servers: one, then two, then four at a time, and no more once one
// was refused, so that a refusal costs few calls.
func (r *Reconciler) create(ctx context.Context, f *v1alpha1.Fleet, m *state, naming *namer, count int, o *outcome) {
	for batch := 1; count > 0 && o.refused == "" && o.failed == nil; batch = min(2*batch, parallel) {
		n := min(batch, count)
		count -= n
		var mu sync.Mutex
		var group sync.WaitGroup
		for range n {
			group.Go(func() {
				name, err := r.createOne(ctx, f, m, naming)
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
	}
}

// nameTries is how many names are tried for one Server.
const nameTries = 3

// errMade says that a wake has made a Server, which the cache will show.
var errMade = errors.New("a wake has made it")

func (r *Reconciler) createOne(ctx context.Context, f *v1alpha1.Fleet, m *state, n *namer) (string, error) {
	for try := 1; ; try++ {
		name, first := n.one()
		s := desiredServer(f, name)
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

// setDrain drains a Server or takes it back, if it is still as it was seen: a game
// that has been Allocated meanwhile isn't drained.
func (r *Reconciler) setDrain(ctx context.Context, f *v1alpha1.Fleet, m *state, s *server, drain bool) error {
	var mark any
	if drain {
		mark = v1alpha1.DrainedByFleet
	}
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{
			"resourceVersion": s.resourceVersion,
			"annotations":     map[string]any{v1alpha1.DrainedByAnnotation: mark},
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

// remove deletes a Server, if it is still as it was seen: a deletion can't be
// taken back.
func (r *Reconciler) remove(ctx context.Context, f *v1alpha1.Fleet, m *state, s *server) error {
	if err := r.Client.Delete(ctx, s.object(f), client.Preconditions{UID: &s.uid, ResourceVersion: &s.resourceVersion}); err != nil {
		return fmt.Errorf("delete Server %s: %w", s.name, err)
	}
	m.wrote(r.Now(), pending.Delete, *s)
	return nil
}

// object is as much of the Server as a patch or a deletion needs.
func (s *server) object(f *v1alpha1.Fleet) *v1alpha1.Server {
	o := &v1alpha1.Server{}
	o.Namespace, o.Name, o.UID, o.ResourceVersion = f.Namespace, s.name, s.uid, s.resourceVersion
	return o
}

// refusalWords are what the API server said, bounded, and without the name that
// the Server would have had.
func refusalWords(f *v1alpha1.Fleet, name string, err error) string {
	return text.Bounded(strings.ReplaceAll(refusal.Words(err), name, f.Name+"-*"))
}
