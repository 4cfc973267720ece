package gametype

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/v1alpha1"
)

// IndexOwner finds Fleets by the UID of the GameType that owns them.
const IndexOwner = "metadata.ownerReferences.gametype"

// SetupIndexes adds the index that the controller uses beside the Fleets' own.
func SetupIndexes(ctx context.Context, indexer client.FieldIndexer) error {
	err := indexer.IndexField(ctx, &v1alpha1.Fleet{}, IndexOwner, func(o client.Object) []string {
		if owner := ownerOf(o); owner != nil {
			return []string{string(owner.UID)}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("add the index %s: %w", IndexOwner, err)
	}
	return nil
}

// ownerOf is the GameType that owns an object; nil where none does.
func ownerOf(o client.Object) *metav1.OwnerReference {
	owner := metav1.GetControllerOfNoCopy(o)
	if owner == nil || owner.Kind != kind.Kind {
		return nil
	}
	if gv, err := schema.ParseGroupVersion(owner.APIVersion); err != nil || gv.Group != kind.Group {
		return nil
	}
	return owner
}
