package idleness

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/operator/internal/spec"
	"dormouse.dev/dormouse/operator/internal/test/fixture"
)

// A service that may be idle for a week sleeps although its operator is restarted in it.
func TestHowLongAServiceHasBeenIdleIsKeptAtFewWrites(t *testing.T) {
	es := fixture.Lobby(v1alpha1.PhaseAwake, fixture.At(-3600))
	es.Spec.SleepAfter.Duration = 168 * time.Hour
	since := func(seconds float64) *metav1.Time { return &metav1.Time{Time: fixture.At(seconds)} }
	for _, c := range []struct {
		name string
		now  float64
		v    Verdict
		want *metav1.Time
	}{
		{"somebody uses it", 0, Verdict{Used: true}, nil},
		{"idle for half a minute", 40, Verdict{idleSince: fixture.At(10)}, nil},
		{"idle for almost a minute", 61, Verdict{idleSince: fixture.At(10)}, since(60)},
		{"idle on", 3600, Verdict{idleSince: fixture.At(10)}, since(60)},
		{"nobody knows", 3700, Verdict{}, since(60)},
		{"another process has just begun to watch", 3800, Verdict{idleSince: fixture.At(60)}, since(60)},
		{"used again", 4000, Verdict{Used: true}, nil},
		{"idle again", 4300, Verdict{idleSince: fixture.At(4010)}, since(4020)},
		{"a client came and went unseen", 5000, Verdict{idleSince: fixture.At(4900)}, since(4920)},
	} {
		es.Status.IdleSince = Kept(fixture.At(c.now), es, c.v, v1alpha1.PhaseAwake)
		if got := es.Status.IdleSince; !got.Equal(c.want) {
			t.Errorf("%s: idle since %v, want %v", c.name, got, c.want)
		}
	}
	if kept := Kept(fixture.At(6000), es, Verdict{idleSince: fixture.At(10)}, v1alpha1.PhaseAsleep); kept != nil {
		t.Errorf("one that sleeps is idle since %v", kept)
	}
	// What another process knew of its use counts, though this one has seen none.
	in := Signals{SleepAfter: 10 * time.Minute, Watched: fixture.At(-7200), IdleSince: fixture.At(-60)}
	if _, left := in.left(fixture.T0); left != 9*time.Minute {
		t.Errorf("%s are left, want the 9m after its last use", left)
	}
	// It is looked at in time.
	if wait := UntilKept(fixture.At(10), spec.Of(es).SleepAfter, Verdict{idleSince: fixture.At(10)}); wait != 50*time.Second {
		t.Errorf("it is looked at in %s, want 50s", wait)
	}
	es.Spec.SleepAfter.Duration = watchTime
	if kept := Kept(fixture.At(6000), es, Verdict{idleSince: fixture.At(10)}, v1alpha1.PhaseAwake); kept != nil || UntilKept(fixture.At(10), spec.Of(es).SleepAfter, Verdict{idleSince: fixture.At(10)}) != 0 {
		t.Errorf("a short time is kept: %v", kept)
	}
}
