package hosting

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/api/wellknown"
	"dormouse.dev/dormouse/internal/maintenance"
)

// merge changes fields of an object, and returns it as it is then.
func (h *Hosting) merge(ctx context.Context, o client.Object, fields map[string]any) error {
	body, err := json.Marshal(fields)
	if err != nil {
		return fmt.Errorf("write a patch: %w", err)
	}
	err = h.Client.Patch(ctx, o, client.RawPatch(types.MergePatchType, body), client.FieldOwner(fieldOwner+"-state"))
	if err != nil {
		return fmt.Errorf("change %T %s: %w", o, client.ObjectKeyFromObject(o), err)
	}
	return nil
}

// Start starts a server, asleep or stopped. One that runs is left as it is.
func (h *Hosting) Start(ctx context.Context, id int64) error {
	s, err := h.change(ctx, id)
	if err != nil {
		return err
	}
	return h.set(ctx, s, map[string]any{"running": true, "replicas": 1, "deletion": map[string]any{"force": false}})
}

// Stop stops a server until somebody starts it: it takes no new players, and ends when those it has
// are gone. With force it ends at once.
func (h *Hosting) Stop(ctx context.Context, id int64, force bool) error {
	s, err := h.change(ctx, id)
	if err != nil {
		return err
	}
	return h.set(ctx, s, map[string]any{"running": false, "replicas": 0, "deletion": map[string]any{"force": force}})
}

func (h *Hosting) set(ctx context.Context, s *v1alpha1.Server, spec map[string]any) error {
	if err := h.merge(ctx, s, map[string]any{"spec": spec}); err != nil {
		return gone(err, s)
	}
	_, err := h.ensure(ctx, s, "")
	return err
}

// gone is the error for a server that was deleted in the middle of a call.
func gone(err error, s *v1alpha1.Server) error {
	if id, ok := ID(s.Name); ok && apierrors.IsNotFound(err) {
		return absent(id)
	}
	return err
}

// Wake wakes a server that sleeps. One that somebody stopped must be started.
func (h *Hosting) Wake(ctx context.Context, id int64) error {
	s, err := h.change(ctx, id)
	if err != nil {
		return err
	}
	if !runs(s) {
		return failf(Conflict, "id", "server %d is stopped: start it", id)
	}
	return h.set(ctx, s, map[string]any{"replicas": 1})
}

// MaxKeepAwake is how long a server may be kept awake at most.
const MaxKeepAwake = 30 * 24 * time.Hour

// KeepAwake keeps a server awake until a time, and wakes it if it sleeps; with a time that is over it
// may sleep again.
func (h *Hosting) KeepAwake(ctx context.Context, id int64, until time.Time) error {
	s, err := h.change(ctx, id)
	if err != nil {
		return err
	}
	if !runs(s) {
		return failf(Conflict, "id", "server %d is stopped: start it", id)
	}
	if _, err := h.ensure(ctx, s, ""); err != nil {
		return err
	}
	es := &v1alpha1.ElasticService{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: s.Name}}
	return h.merge(ctx, es, map[string]any{"metadata": map[string]any{"annotations": map[string]any{
		wellknown.KeepAwakeUntilAnnotation: until.UTC().Format(time.RFC3339),
	}}})
}

// keepAsleep has a stopped server's ElasticService keep it asleep, and another one's not.
func (h *Hosting) keepAsleep(ctx context.Context, s *v1alpha1.Server) error {
	var until any
	if !runs(s) {
		until = maintenance.Stopped.Format(time.RFC3339)
	}
	es := &v1alpha1.ElasticService{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: s.Name}}
	return h.merge(ctx, es, map[string]any{"metadata": map[string]any{"annotations": map[string]any{wellknown.KeepAsleepUntilAnnotation: until}}})
}

// Resize changes a server's memory and disk, each unless it is 0. More memory counts from the game's
// next start, which comes when nobody plays. A disk only grows.
func (h *Hosting) Resize(ctx context.Context, id, ram, disk int64) error {
	s, err := h.change(ctx, id)
	if err != nil {
		return err
	}
	before := s.DeepCopy()
	if ram > 0 {
		setRAM(&s.Spec, ram)
	}
	if has := wantOf(s).Disk; disk > 0 && disk < has {
		return failf(Conflict, "disk_gb", "disk_gb is %d and can only grow: ask for %d or more", has, has)
	}
	if disk > 0 && len(s.Spec.Storage) > 0 {
		s.Spec.Storage[0].Size = gibibytes(disk)
	}
	if err := h.Client.Patch(ctx, s, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
		return gone(fmt.Errorf("change Server %s: %w", h.key(id), err), s)
	}
	return nil
}

// Delete deletes a server, once its players are gone, or at once with force. Its disk goes with it
// unless that is kept, for a later server of the same number.
func (h *Hosting) Delete(ctx context.Context, id int64, keepDisk, force bool) error {
	s, err := h.read(ctx, id)
	if err != nil {
		return err
	}
	before := s.DeepCopy()
	s.Spec.Deletion.Force = force
	for i := range s.Spec.Storage {
		s.Spec.Storage[i].OnDelete = v1alpha1.StorageDelete
		if keepDisk {
			s.Spec.Storage[i].OnDelete = v1alpha1.StorageRetain
		}
	}
	if err := h.Client.Patch(ctx, s, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
		return gone(fmt.Errorf("change Server %s: %w", h.key(id), err), s)
	}
	err = h.Client.Delete(ctx, s, client.Preconditions{UID: &s.UID})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete Server %s: %w", h.key(id), err)
	}
	return nil
}
