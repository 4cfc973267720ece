package gametype

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/operator/internal/kit"
)

// IndexOwner finds Fleets by the UID of the GameType that owns them.
const IndexOwner = "metadata.ownerReferences.gametype"

// byOwner is that index.
var byOwner = kit.OwnerIndex{Key: IndexOwner, Owner: kind.GroupKind()}

// SetupIndexes adds the index that the controller uses beside the Fleets' own.
func SetupIndexes(ctx context.Context, indexer client.FieldIndexer) error {
	return byOwner.Setup(ctx, indexer, &v1alpha1.Fleet{})
}
