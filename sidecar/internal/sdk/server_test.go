package sdk

import (
	"context"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/utils/clock"

	"dormouse.dev/dormouse/sidecar/internal/game"
)

// Whoever doesn't wait for as long as an operator may take has given up, whatever the operator
// does.
func TestWhoGivesUpIsToldSo(t *testing.T) {
	t.Parallel()
	s := New(game.New(game.Config{}, clock.RealClock{}), game.Health{}, nil)
	over, cancel := context.WithDeadline(t.Context(), time.Now().Add(-time.Second))
	defer cancel()
	if _, err := s.restored(over); status.Code(err) != codes.DeadlineExceeded {
		t.Errorf("after its deadline: %v, want DeadlineExceeded", err)
	}
	left, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.restored(left); status.Code(err) != codes.Canceled {
		t.Errorf("after it has left: %v, want Canceled", err)
	}
}
