package gameserver

import (
	"context"

	"k8s.io/apimachinery/pkg/types"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/internal/reportapi"
)

// Reports are what sidecars have told, and what they are asked.
type Reports interface {
	// Look has the sidecar of a Server's Pod look anew whether the Server may be deleted.
	Look(ctx context.Context, server *v1alpha1.Server, podUID types.UID) reportapi.Looked
	// Turn waits until nobody else at this replica writes a Server's status, and returns what ends
	// the caller's turn.
	Turn(server types.UID) (end func())
	// Latest is a Server as the cache has it, or as a write left it that the cache doesn't have
	// yet.
	Latest(cached *v1alpha1.Server) *v1alpha1.Server
	// WroteAfter reports whether something later than this Server was written at this replica.
	WroteAfter(server *v1alpha1.Server) bool
	// Wrote notes how a write left a Server.
	Wrote(server *v1alpha1.Server)
}
