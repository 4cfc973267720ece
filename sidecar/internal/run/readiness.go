package run

import (
	"context"

	"github.com/go-logr/logr"

	"dormouse.dev/dormouse/sidecar/internal/game"
)

// logReadiness logs why the game gets no players, once a change, until the context ends. A game
// that is full isn't waited for.
func logReadiness(ctx context.Context, g *game.Game, log logr.Logger) {
	const unlogged = "\x00"
	for last := unlogged; ; {
		s, changed := g.Watch()
		switch why := s.NotReady; why {
		case last, game.Full:
		case "":
			log.Info("The game takes players")
			last = why
		default:
			log.Info("The game gets no new players", "reason", why)
			last = why
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}
