package fleet

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/operator/internal/kit"
)

// IndexOwner finds Servers by the UID of the Fleet that owns them.
const IndexOwner = "metadata.ownerReferences.fleet"

// byOwner is that index.
var byOwner = kit.OwnerIndex{Key: IndexOwner, Owner: v1alpha1.GroupVersion.WithKind("Fleet").GroupKind()}

// SetupIndexes adds the index that the controller uses.
func SetupIndexes(ctx context.Context, indexer client.FieldIndexer) error {
	return byOwner.Setup(ctx, indexer, &v1alpha1.Server{})
}
