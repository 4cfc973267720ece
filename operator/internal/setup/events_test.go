package setup

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"dormouse.dev/dormouse/operator/internal/raising"
)

// written has when events were written, and of what.
type written struct {
	at []time.Time
	of []string
}

func (w *written) Eventf(regarding, _ runtime.Object, _, _, _, _ string, _ ...any) {
	w.at = append(w.at, time.Now())
	w.of = append(w.of, regarding.(*corev1.Pod).Name)
}

// Events are written a little later, and after the targets that are being scaled up, but for a storm that
// doesn't end. They tell of the object as it was.
func TestEventsLetRaisesGoFirst(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		raises int
		// from and to are when the event may be written.
		from, to time.Duration
	}{
		"none":                       {0, eventDelay, eventDelay},
		"those of a storm":           {40, time.Second, 2 * time.Second},
		"those of one that goes on":  {400, 2 * time.Second, 3200 * time.Millisecond},
		"one that is over before it": {1, 400 * time.Millisecond, 800 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var w written
				r := lateRecorder{&w, raising.New()}
				for range c.raises {
					go func() {
						if end, err := r.raises.Begin(context.WithoutCancel(t.Context()), "games"); err == nil {
							time.AfterFunc(400*time.Millisecond, end)
						}
					}()
				}
				synctest.Wait()
				pod := &corev1.Pod{}
				pod.Name = "lobby"
				began := time.Now()
				r.Eventf(pod, nil, corev1.EventTypeNormal, "Waking", "Wake", "It wakes.")
				pod.Name = "changed"
				<-time.After(time.Minute)
				synctest.Wait()
				if len(w.at) != 1 || w.of[0] != "lobby" || w.at[0].Sub(began) < c.from || w.at[0].Sub(began) > c.to {
					t.Errorf("events of %q are written, after %s; want one of lobby, after %s to %s", w.of, w.at[0].Sub(began), c.from, c.to)
				}
			})
		})
	}
}
