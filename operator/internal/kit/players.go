package kit

import (
	"context"
	"math"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/internal/patch"
)

// playersPause is the least time between two writes of a status in which only the players
// changed. They change all the time.
const playersPause = time.Second

// StartPause is how long a status waits in which nothing is new but that a service's first pods
// start. Meanwhile the API server and the node have them to start, and a player may wait for that.
const StartPause = 500 * time.Millisecond

// Start is since when a status waits for a start.
type Start struct{ since time.Time }

// Wait is for how long a status may wait, where it only shows a start; 0: it is to be written.
func (s *Start) Wait(now time.Time, onlyStarts bool) time.Duration {
	if !onlyStarts {
		s.since = time.Time{}
		return 0
	}
	if s.since.IsZero() {
		s.since = now
	}
	return max(0, s.since.Add(StartPause).Sub(now))
}

// PlayersStatus writes a status that counts players, so that one write covers many changes of
// them.
type PlayersStatus struct {
	written time.Time
	start   Start
}

// Write writes what changed. Where onlyPlayers reports that nothing else differs it may leave
// that to a later pass, and returns how much later; and so where it shows only a start.
func (p *PlayersStatus) Write(ctx context.Context, c client.Client, now time.Time, original, changed client.Object, onlyStarts bool, onlyPlayers func() bool) (written bool, requeueAfter time.Duration, err error) {
	if wait := p.start.Wait(now, onlyStarts); wait > 0 {
		return false, wait, nil
	}
	if wait := p.written.Add(playersPause).Sub(now); wait > 0 && onlyPlayers() {
		return false, wait, nil
	}
	written, err = patch.Status(ctx, c, original, changed)
	if err != nil {
		return false, 0, client.IgnoreNotFound(err)
	}
	if written {
		p.written = now
	}
	return written, 0, nil
}

// OnlyPlayersDiffer reports whether two statuses differ only in how many play. counts returns
// where a status has the players and the capacity.
func OnlyPlayersDiffer[S any](a, b *S, counts func(*S) (players, capacity *int32)) bool {
	players, capacity := counts(b)
	if had, could := counts(a); *had == *players && *could == *capacity {
		return false
	}
	same := *a
	had, could := counts(&same)
	*had, *could = *players, *capacity
	return equality.Semantic.DeepEqual(&same, b)
}

// AddCounts adds two of a status's counts, up to the largest that a status can hold.
func AddCounts(a, b int32) int32 {
	if a > math.MaxInt32-b {
		return math.MaxInt32
	}
	return a + b
}
