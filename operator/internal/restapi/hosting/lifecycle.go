package hosting

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/api/wellknown"
	"dormouse.dev/dormouse/internal/maintenance"
)

// Start starts a server, asleep or stopped. One that runs is left as it is.
func (h *Hosting) Start(ctx context.Context, id int64) error {
	return h.set(ctx, id, func(s *v1alpha1.Server) error {
		s.Spec.Running, s.Spec.Replicas = new(true), ptr.To[int32](1)
		keep(s, false)
		return nil
	})
}

// Stop stops a server until somebody starts it: it takes no new players, and ends when those it has
// are gone. With force it ends at once.
func (h *Hosting) Stop(ctx context.Context, id int64, force bool) error {
	return h.set(ctx, id, func(s *v1alpha1.Server) error {
		s.Spec.Running, s.Spec.Replicas = new(false), new(int32)
		keep(s, force)
		return nil
	})
}

// Wake wakes a server that sleeps. One that somebody stopped must be started.
func (h *Hosting) Wake(ctx context.Context, id int64) error {
	return h.set(ctx, id, func(s *v1alpha1.Server) error {
		if !runs(s) {
			return failf(Conflict, "id", "server %d is stopped: start it", id)
		}
		s.Spec.Replicas = ptr.To[int32](1)
		keep(s, false)
		return nil
	})
}

// set changes a server's spec, and then what belongs to it.
func (h *Hosting) set(ctx context.Context, id int64, change func(*v1alpha1.Server) error) error {
	if err := h.write(ctx, id, h.change, change); err != nil {
		return err
	}
	_, err := h.ensure(ctx, id, "")
	return err
}

// write changes a server's spec as it was read; where somebody else changed it meanwhile, anew.
func (h *Hosting) write(ctx context.Context, id int64, read func(context.Context, int64) (*v1alpha1.Server, error), change func(*v1alpha1.Server) error) error {
	for range tries {
		s, err := read(ctx, id)
		if err != nil {
			return err
		}
		before := s.DeepCopy()
		if err := change(s); err != nil {
			return err
		}
		if equality.Semantic.DeepEqual(before.Spec, s.Spec) {
			return nil
		}
		err = h.Client.Patch(ctx, s, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}), client.FieldOwner(fieldOwner+"-state"))
		if apierrors.IsConflict(err) {
			continue
		}
		if err != nil {
			return gone(fmt.Errorf("change Server %s: %w", h.key(id), err), s)
		}
		return nil
	}
	return busy(id)
}

func busy(id int64) error {
	return failf(Busy, "", "server %d is being changed by others: send the same request again", id)
}

// gone is the error for a server that was deleted in the middle of a call.
func gone(err error, s *v1alpha1.Server) error {
	if id, ok := ID(s.Name); ok && apierrors.IsNotFound(err) {
		return absent(id)
	}
	return err
}

// MaxKeepAwake is how long a server may be kept awake at most.
const MaxKeepAwake = 30 * 24 * time.Hour

// KeepAwake keeps a server awake until a time, and wakes it if it sleeps; with a time that is over it
// may sleep again.
func (h *Hosting) KeepAwake(ctx context.Context, id int64, until time.Time) error {
	var s *v1alpha1.Server
	err := h.set(ctx, id, func(read *v1alpha1.Server) error {
		if !runs(read) {
			return failf(Conflict, "id", "server %d is stopped: start it", id)
		}
		s = read
		keep(s, false)
		return nil
	})
	if err != nil {
		return err
	}
	if !until.After(h.Now()) {
		return h.annotate(ctx, s, wellknown.KeepAwakeUntilAnnotation, nil)
	}
	return h.annotate(ctx, s, wellknown.KeepAwakeUntilAnnotation, until.UTC().Format(time.RFC3339))
}

// kept reports whether an ElasticService is kept asleep because its server is stopped.
func kept(es *v1alpha1.ElasticService) bool {
	return es.Annotations[wellknown.KeepAsleepUntilAnnotation] == maintenance.Stopped.Format(time.RFC3339)
}

// keepAsleep has a stopped server's ElasticService keep it asleep, and another one's not.
func (h *Hosting) keepAsleep(ctx context.Context, s *v1alpha1.Server, es *v1alpha1.ElasticService) error {
	switch {
	case !runs(s) && !kept(es):
		return h.annotate(ctx, s, wellknown.KeepAsleepUntilAnnotation, maintenance.Stopped.Format(time.RFC3339))
	case runs(s):
		return h.annotate(ctx, s, wellknown.KeepAsleepUntilAnnotation, nil)
	}
	return nil
}

// annotate changes an annotation of a server's ElasticService; nil takes it off.
func (h *Hosting) annotate(ctx context.Context, s *v1alpha1.Server, name string, value any) error {
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]any{name: value}}})
	if err != nil {
		return fmt.Errorf("write a patch: %w", err)
	}
	es := &v1alpha1.ElasticService{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: s.Name}}
	err = h.Client.Patch(ctx, es, client.RawPatch(types.MergePatchType, body), client.FieldOwner(fieldOwner+"-state"))
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("change ElasticService %s: %w", client.ObjectKeyFromObject(s), err)
	}
	return nil
}

// Resize changes a server's memory and disk, each unless it is 0. More memory counts from the game's
// next start, which comes when nobody plays. A disk only grows.
func (h *Hosting) Resize(ctx context.Context, id, ram, disk int64) error {
	return h.write(ctx, id, h.change, func(s *v1alpha1.Server) error {
		if ram > 0 {
			setRAM(&s.Spec, ram)
		}
		if has := wantOf(s).Disk; disk > 0 && disk < has {
			return failf(Conflict, "disk_gb", "disk_gb is %d and can only grow: ask for %d or more", has, has)
		}
		if disk > 0 && len(s.Spec.Storage) > 0 {
			s.Spec.Storage[0].Size = gibibytes(disk)
		}
		// One that was stopped by force may still be ending.
		keep(s, !runs(s) && s.Spec.Deletion.Force)
		return nil
	})
}
