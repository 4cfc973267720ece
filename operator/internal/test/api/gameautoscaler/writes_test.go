package gameautoscaler_test

import (
	"context"
	"errors"
	"testing"
	"time"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"dormouse.dev/dormouse/api/conditions"
	"dormouse.dev/dormouse/api/reasons"
	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/operator/internal/gameautoscaler"
	"dormouse.dev/dormouse/operator/internal/target"
	"dormouse.dev/dormouse/test/api/fixture"
)

// Sentences with numbers that change all the time are written once an interval, and nothing is
// written while nothing changes.
func TestARestingAutoscalerWritesNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.gameType(2)
	w.plays(5, 5)
	w.autoscaler(scaler, byPlayers())
	w.pass()
	w.Writes.Take()
	key := reconcile.Request{NamespacedName: client.ObjectKey{Namespace: w.Namespace, Name: scaler}}
	for i := range 29 {
		w.plays(5, int32(5+i%2))
		w.Clock.Pass(time.Second)
		result, err := w.reconciler.Reconcile(t.Context(), key)
		if err != nil || result.RequeueAfter <= 0 || result.RequeueAfter > 30*time.Second {
			t.Fatalf("it looks again after %s: %v", result.RequeueAfter, err)
		}
	}
	if did := w.Writes.Take(); len(did) > 0 {
		t.Errorf("within an interval it made %v", did)
	}
	w.plays(5, 6)
	w.after(time.Second)
	if message := w.status(scaler).Policies[0].Message; message != "11 of 20 players are on 2 Servers." {
		t.Errorf("after the interval the status says %q", message)
	}
	for range 10 {
		w.Clock.Pass(30 * time.Second)
		if _, err := w.reconciler.Reconcile(t.Context(), key); err != nil {
			t.Fatal(err)
		}
	}
	if did := w.Writes.Take(); len(did) > 0 {
		t.Errorf("at rest it made %v", did)
	}
}

// A change that the API server refuses is said, and tried again after a while only.
func TestAChangeThatIsRefusedIsTriedAgainLater(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.gameType(2)
	w.plays(0, 0)
	refused := &refusing{Scaler: w.reconciler.Scaler, err: apierrors.NewForbidden(schema.GroupResource{Resource: "gametypes"}, game, errors.New("a policy says no"))}
	w.reconciler.Scaler = refused
	w.autoscaler(scaler, buffer(3))
	for range 29 {
		w.pass()
		w.Clock.Pass(time.Second)
	}
	w.want(2, scaler, conditions.AbleToScale, isFalse, reasons.ScaleRefused)
	if refused.tried != 1 || w.Emitted(reasons.ScaleRefused) != 1 {
		t.Errorf("it was tried %d times within half a minute, want once with one event", refused.tried)
	}
	refused.err = nil
	w.after(time.Second)
	w.want(3, scaler, conditions.AbleToScale, isTrue, reasons.ReadyToScale)
	if s := w.status(scaler); s.LastScaleTime == nil {
		t.Error("the status doesn't say when it was scaled")
	}
}

// refusing refuses to write scales while err is set.
type refusing struct {
	gameautoscaler.Scaler
	err   error
	tried int
}

func (r *refusing) Set(ctx context.Context, ref target.Ref, scale *autoscalingv1.Scale, replicas int32) error {
	if r.tried++; r.err != nil {
		return r.err
	}
	return r.Scaler.Set(ctx, ref, scale, replicas)
}

// A change is told of, with its time, though the status could not be written with it.
func TestAChangeIsToldOfThoughTheStatusWasWrittenInBetween(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.gameType(2)
	w.plays(0, 0)
	w.autoscaler(scaler, buffer(2))
	w.pass()
	w.plays(1, 1)
	fixture.Eventually(t, promptly, "the cache shows the players", func(context.Context) error {
		if !w.CacheIsCurrent(kinds...) { //nolint:contextcheck // it has the test's
			return errors.New("not yet")
		}
		return nil
	})
	// Somebody writes the object just before the status is.
	w.reconciler.Scaler = &before{Scaler: w.reconciler.Scaler, do: func() {
		patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":{"a":"b"}}}`))
		gas := &v1alpha1.GameAutoscaler{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: scaler}}
		if err := w.Admin.Patch(t.Context(), gas, patch); err != nil {
			t.Error(err)
		}
	}}
	w.Clock.Pass(30 * time.Second)
	w.pass()
	w.want(4, scaler, conditions.Active, isTrue, reasons.PoliciesEvaluated)
	if s := w.status(scaler); s.LastScaleTime == nil || !s.LastScaleTime.Time.Equal(w.Clock.Now()) {
		t.Errorf("the status says that it was scaled at %v, want %s", s.LastScaleTime, w.Clock.Now())
	}
	if n := w.Emitted("Scaled"); n != 1 {
		t.Errorf("%d events about one change", n)
	}
}

// before does something just before a scale is written.
type before struct {
	gameautoscaler.Scaler
	do func()
}

func (b *before) Set(ctx context.Context, ref target.Ref, scale *autoscalingv1.Scale, replicas int32) error {
	b.do()
	return b.Scaler.Set(ctx, ref, scale, replicas)
}
