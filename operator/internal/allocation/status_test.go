package allocation

import (
	"errors"
	"fmt"
	"testing"

	"dormouse.dev/dormouse/operator/internal/informer"
	"dormouse.dev/dormouse/operator/internal/target"
)

// What keeps a target asleep is said as it is, and the API server is blamed for the rest alone.
func TestWhyATargetIsNotWoken(t *testing.T) {
	const blamed = "the API server can't be reached or is too slow"
	for _, permanent := range []error{
		informer.ErrNeverWakes, informer.ErrKeptAsleep, informer.ErrUnknownService, informer.ErrTargetTaken,
	} {
		if got := reasonOf(fmt.Errorf("wake ElasticService games/duel: %w", permanent)); got != permanent.Error() {
			t.Errorf("of %q it says %q", permanent, got)
		}
	}
	missing := fmt.Errorf("read Fleet games/duel: %w", target.ErrNotFound)
	if got := reasonOf(missing); got != missing.Error() {
		t.Errorf("of a target that isn't there it says %q", got)
	}
	if got := reasonOf(errors.New("dial tcp: timeout")); got != blamed {
		t.Errorf("of another error it says %q", got)
	}
}
