package endpoints

import (
	"context"
	"fmt"
	"maps"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/internal/patch"
)

// sliceOwner is the owner of the fields that are written.
const sliceOwner = "dormouse-operator"

// Sync brings slices to the wanted state, and deletes those that aren't wanted. written are those that
// earlier calls changed. Of changes that it makes the watch needn't tell where echoes isn't nil.
func Sync(ctx context.Context, c client.Client, written *PendingSlices, echoes *Echoes, are []discoveryv1.EndpointSlice, wanted []*discoveryv1.EndpointSlice) error {
	have := map[string]*discoveryv1.EndpointSlice{}
	for i := range are {
		have[are[i].Name] = &are[i]
	}
	written.seen(have)
	for _, want := range wanted {
		old := have[want.Name]
		delete(have, want.Name)
		current := written.current(old)
		if current != nil && sameSlice(current, want) {
			continue
		}
		// A change is an update: when a resolver is replaced all sleeping services' slices change, and for that the
		// API server takes three quarters of the time of a merge patch, which takes half of a server-side apply's.
		if current != nil {
			is := current.DeepCopy()
			is.Endpoints, is.Ports, is.OwnerReferences = want.Endpoints, want.Ports, want.OwnerReferences
			maps.Copy(is.Labels, want.Labels)
			err := c.Update(ctx, is, client.FieldOwner(sliceOwner))
			if apierrors.IsForbidden(err) { // by the rights of an earlier version, which are applied first or stay
				err = c.Patch(ctx, is, client.MergeFromWithOptions(current, client.MergeFromWithOptimisticLock{}), client.FieldOwner(sliceOwner))
			}
			switch {
			case err == nil && echoes != nil:
				echoes.Expect(time.Now(), is)
				delete(*written, is.Name) // nor is it kept: there may be no further pass for long
				continue
			case err == nil:
				written.add(old, is)
				continue
			}
			if !apierrors.IsNotFound(err) {
				return fmt.Errorf("change EndpointSlice %s: %w", client.ObjectKeyFromObject(current), err)
			}
		}
		if err := patch.Apply(ctx, c, sliceOwner, want); err != nil {
			return err
		}
	}
	for _, old := range have {
		if err := c.Delete(ctx, old); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("delete EndpointSlice %s: %w", client.ObjectKeyFromObject(old), err)
		}
	}
	return nil
}

// PendingSlices are one object's slices, by name, that were changed and that the cache still
// shows as they were. Passes that come before the cache is current build on these.
type PendingSlices map[string]pendingSlice

type pendingSlice struct {
	// over is the version in the cache, and is what the API server has.
	over string
	is   *discoveryv1.EndpointSlice
}

// current is the latest known version of a slice; nil when there is none.
func (w PendingSlices) current(cached *discoveryv1.EndpointSlice) *discoveryv1.EndpointSlice {
	if cached == nil {
		return nil
	}
	if last, ok := w[cached.Name]; ok && last.over == cached.ResourceVersion {
		return last.is
	}
	return cached
}

// seen forgets the slices that the cache shows by now. Of thousands of objects most have none.
func (w *PendingSlices) seen(have map[string]*discoveryv1.EndpointSlice) {
	maps.DeleteFunc(*w, func(name string, last pendingSlice) bool {
		return have[name] == nil || have[name].ResourceVersion != last.over
	})
	if len(*w) == 0 {
		*w = nil // an empty map has room for eight
	}
}

// add notes the result of changing a slice that the cache has.
func (w *PendingSlices) add(cached, is *discoveryv1.EndpointSlice) {
	if *w == nil {
		*w = PendingSlices{}
	}
	(*w)[cached.Name] = pendingSlice{over: cached.ResourceVersion, is: is}
}
