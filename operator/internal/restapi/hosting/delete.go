package hosting

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/v1alpha1"
)

// A deletion is two writes, and goes on when its caller is gone in between: deleteTime bounds both,
// and undoTime how long it takes to undo the first one.
const (
	deleteTime = 20 * time.Second
	undoTime   = 10 * time.Second
)

// keep has whoever deletes a server by other means than Delete keep its disks. Only Delete says that
// they go, and one that broke off may have said so.
func keep(s *v1alpha1.Server, force bool) {
	s.Spec.Deletion.Force = force
	for i := range s.Spec.Storage {
		s.Spec.Storage[i].OnDelete = v1alpha1.StorageRetain
	}
}

// Delete deletes a server, once its players are gone, or at once with force. Its disk goes with it
// unless that is kept, for a later server of the same number. Where it fails, that is taken back.
func (h *Hosting) Delete(ctx context.Context, id int64, keepDisk, force bool) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("delete Server %s: %w", h.key(id), err)
	}
	whole, cancel := context.WithTimeout(context.WithoutCancel(ctx), deleteTime)
	defer cancel()
	var before *v1alpha1.Server
	var err error
	said := false
	for range tries {
		var s *v1alpha1.Server
		err = h.write(whole, id, h.read, func(read *v1alpha1.Server) error {
			if before == nil {
				before = read.DeepCopy()
			}
			if read.UID != before.UID {
				return absent(id)
			}
			s = read
			keep(s, force)
			for i := range s.Spec.Storage {
				if !keepDisk {
					s.Spec.Storage[i].OnDelete = v1alpha1.StorageDelete
				}
			}
			return nil
		})
		if said = err == nil; said {
			// As it was written: another call may have said since that its disk stays.
			err = h.Client.Delete(whole, s, client.Preconditions{UID: &s.UID, ResourceVersion: &s.ResourceVersion})
			if err == nil || apierrors.IsNotFound(err) {
				return nil
			}
			err = fmt.Errorf("delete Server %s: %w", h.key(id), err)
		}
		if !apierrors.IsConflict(err) {
			break
		}
	}
	// One that is being deleted already is deleted as an earlier call said.
	if before != nil && h.undo(ctx, before) && said {
		return nil
	}
	if apierrors.IsConflict(err) {
		return busy(id)
	}
	return err
}

// undo takes back what was said of the deletion of a server, as it was before, which failed, and reports whether
// the server is being deleted all the same. Where it can't, the next call that changes the server does.
func (h *Hosting) undo(ctx context.Context, of *v1alpha1.Server) bool {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTime)
	defer cancel()
	id, _ := ID(of.Name)
	deleted := false
	err := h.write(ctx, id, h.read, func(s *v1alpha1.Server) error {
		deleted = s.UID != of.UID || !s.DeletionTimestamp.IsZero()
		if !deleted {
			// That of one that runs can only be of a deletion that broke off earlier.
			keep(s, of.Spec.Deletion.Force && !runs(s))
		}
		return nil
	})
	return err == nil && deleted || Is(err, NotFound)
}
