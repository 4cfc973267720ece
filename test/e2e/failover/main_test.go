// Package failover ends Dormouse's programs under players. Its tests run one
// after the other, and after no other package's: all share one Dormouse.
package failover

import (
	"context"
	"testing"
	"time"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/test/e2e/suite"
	"dormouse.dev/dormouse/test/env"
	"dormouse.dev/dormouse/test/player"
)

// pace is the time between two messages of a player, that of a lively game.
const pace = 20 * time.Millisecond

func TestMain(m *testing.M) { suite.Main(m) }

// session is a player who plays until it is told to leave.
type session struct {
	who    string
	player *player.Player
	stop   context.CancelFunc
	played chan error
}

// play makes a player play.
func play(ctx context.Context, who string, p *player.Player) *session {
	playing, stop := context.WithCancel(ctx)
	s := &session{who: who, player: p, stop: stop, played: make(chan error, 1)}
	go func() { s.played <- p.Play(playing, pace) }()
	return s
}

// exchange waits until one more message is answered.
func (s *session) exchange(ctx context.Context, t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, suite.PlayTimeout)
	defer cancel()
	if _, err := s.player.Exchange(ctx); err != nil {
		t.Fatalf("%s: %v; so far: %v", s.who, err, s.player.Stats().Intact())
	}
}

// leave ends the session, and fails the test unless nothing of it was lost.
func (s *session) leave(ctx context.Context, t *testing.T) {
	t.Helper()
	s.stop()
	if err := <-s.played; err != nil {
		t.Errorf("%s: %v", s.who, err)
	}
	if err := s.player.Drain(ctx); err != nil {
		t.Errorf("%s: %v", s.who, err)
	}
	suite.Intact(t, s.who, s.player)
	if err := s.player.Close(); err != nil {
		t.Errorf("%s: %v", s.who, err)
	}
}

// waitPods waits until a program has exactly so many ready pods.
func waitPods(ctx context.Context, t *testing.T, program string, n int) {
	t.Helper()
	err := env.WaitUntil(ctx, "pods of "+program+" are ready", func(ctx context.Context) (bool, error) {
		pods, err := suite.Cluster.ReadyPods(ctx, program)
		return len(pods) == n, err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// waitListed waits until a game's slices send new clients to exactly so many
// resolvers.
func waitListed(ctx context.Context, t *testing.T, g env.Game, n int) {
	t.Helper()
	err := env.WaitUntil(ctx, "resolvers of "+g.Name+" are listed", func(ctx context.Context) (bool, error) {
		_, ready, err := suite.Cluster.ResolverEndpoints(ctx, g.Key())
		return ready == n, err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func waitPhase(ctx context.Context, t *testing.T, g env.Game, phase v1alpha1.Phase) {
	t.Helper()
	_, err := suite.Cluster.WaitFor(ctx, g.Key(), string(phase), func(es *v1alpha1.ElasticService) bool {
		return es.Status.Phase == phase
	})
	if err != nil {
		t.Fatal(err)
	}
}
