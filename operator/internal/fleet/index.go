package fleet

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/v1alpha1"
)

// IndexOwner finds Servers by the UID of the Fleet that owns them.
const IndexOwner = "metadata.ownerReferences.fleet"

// SetupIndexes adds the index that the controller uses.
func SetupIndexes(ctx context.Context, indexer client.FieldIndexer) error {
	err := indexer.IndexField(ctx, &v1alpha1.Server{}, IndexOwner, func(o client.Object) []string {
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

// ownerOf is the Fleet that owns an object; nil where none does.
func ownerOf(o client.Object) *metav1.OwnerReference {
	owner := metav1.GetControllerOfNoCopy(o)
	if owner == nil || owner.Kind != "Fleet" {
		return nil
	}
	if gv, err := schema.ParseGroupVersion(owner.APIVersion); err != nil || gv.Group != v1alpha1.GroupVersion.Group {
		return nil
	}
	return owner
}
