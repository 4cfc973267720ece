package game

import (
	"context"
	"time"
)

// restoreWait is how long a call waits that needs the state from before this sidecar started. Clients don't
// retry by themselves.
const restoreWait = 5 * time.Second

// AwaitRestored waits for the state from before this sidecar started and returns the current one. It is
// Unavailable after five seconds, or when the context ends.
func (g *Game) AwaitRestored(ctx context.Context) (Snapshot, error) {
	ctx, cancel := context.WithTimeout(ctx, restoreWait)
	defer cancel()
	for {
		snapshot, changed := g.Watch()
		if snapshot.Restored {
			return snapshot, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return snapshot, unavailable()
		}
	}
}
