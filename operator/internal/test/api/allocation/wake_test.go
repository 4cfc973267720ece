package allocation_test

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/operator/internal/restapi/allocate"
	"dormouse.dev/dormouse/test/api/fixture"
)

// sleeping makes the GameType, at zero, with what it would have beside it.
func (w *world) sleeping() *v1alpha1.GameType {
	w.t.Helper()
	gt := &v1alpha1.GameType{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: game},
		Spec: v1alpha1.GameTypeSpec{
			Replicas: new(int32(3)), Scale: &v1alpha1.GameTypeScale{Replicas: 0, Of: new(int32(3))},
			Template: v1alpha1.ServerTemplate{Spec: v1alpha1.ServerSpec{
				Ports:    []v1alpha1.ServerPort{{Name: "game", ContainerPort: 7777, Protocol: v1alpha1.ServerProtocolUDP}},
				Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "game", Image: "game:1"}}}},
			}},
		},
	}
	if err := w.Admin.Create(w.t.Context(), gt); err != nil {
		w.t.Fatal(err)
	}
	w.phase(v1alpha1.PhaseAsleep)
	return gt
}

// The operator's own waker wakes, with its rights.
func TestAnAllocationWakesASleepingGame(t *testing.T) {
	for name, wait := range map[string]time.Duration{"one that waits": time.Minute, "one that doesn't": 0} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.wakesReally = true
			gt := w.sleeping()
			leader := w.replica(true)
			done := make(chan outcome, 1)
			go func() {
				r, err := leader.Allocate(t.Context(), w.Namespace, allocate.Request{Target: game, Wait: wait})
				done <- outcome{r, err}
			}()
			fixture.Eventually(t, promptly, "the GameType is woken", func(ctx context.Context) error {
				if err := w.Admin.Get(ctx, client.ObjectKeyFromObject(gt), gt); err != nil {
					return err
				}
				return fixture.WantEqual("replicas", gt.Spec.Scale.Replicas, 3)
			})
			if wait > 0 {
				w.server("duel-0", 0)
				w.phase(v1alpha1.PhaseAwake)
			}
			o := <-done
			if given, _, refused := w.count([]outcome{o}); wait > 0 && given != 1 || wait == 0 && refused != 1 {
				t.Errorf("it is answered with %+v", o)
			}
		})
	}
}

func TestAGameThatIsKeptAsleepSaysSo(t *testing.T) {
	w := newWorld(t)
	w.wakesReally = true
	w.sleeping()
	es := &v1alpha1.ElasticService{}
	if err := w.Admin.Get(t.Context(), client.ObjectKey{Namespace: w.Namespace, Name: game}, es); err != nil {
		t.Fatal(err)
	}
	before := es.DeepCopy()
	es.Spec.Wake = &v1alpha1.Wake{When: v1alpha1.WakeOnNever}
	if err := w.Admin.Patch(t.Context(), es, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
	leader := w.replica(true)
	_, err := leader.Allocate(t.Context(), w.Namespace, allocate.Request{Target: game, Wait: 3 * time.Second})
	_, _, refused := w.count([]outcome{{err: err}})
	if want := "GameType duel sleeps, and isn't woken: clients never wake the service. It has waited for 3s."; refused != 1 || err.Error() != want {
		t.Errorf("it is answered with %v, want %s", err, want)
	}
}
