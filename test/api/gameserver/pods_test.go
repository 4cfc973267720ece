package gameserver_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/conditions"
	"dormouse.dev/dormouse/api/reasons"
	"dormouse.dev/dormouse/api/v1alpha1"
)

// A Pod of somebody else has the Server's name. The operator watches the Pods of
// Servers only, and finds it by being refused.
func TestAServerSaysWhoseItsNameIs(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	stranger := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: "lobby"}, Spec: podSpec()}
	if err := w.c.Create(t.Context(), stranger); err != nil {
		t.Fatal(err)
	}
	w.create("lobby")
	w.eventually("the Server says that there is such a Pod", func(ctx context.Context) error {
		s := &v1alpha1.Server{}
		if err := w.c.Get(ctx, client.ObjectKeyFromObject(stranger), s); err != nil {
			return err
		}
		c := meta.FindStatusCondition(s.Status.Conditions, conditions.Ready)
		if c == nil || c.Status != metav1.ConditionFalse || c.Reason != reasons.PodExists {
			return fmt.Errorf("condition Ready is %+v, want False by %s", c, reasons.PodExists)
		}
		return nil
	})
	left := &corev1.Pod{}
	if err := w.c.Get(t.Context(), client.ObjectKeyFromObject(stranger), left); err != nil || left.UID != stranger.UID || left.DeletionTimestamp != nil {
		t.Errorf("somebody else's Pod was touched: %v, %+v", err, left.ObjectMeta)
	}
	if err := w.c.Delete(t.Context(), stranger, client.GracePeriodSeconds(0)); err != nil {
		t.Fatal(err)
	}
	// Nothing tells the operator, which looks again every 15 s.
	w.within(2*promptly, "the Server has a Pod of its own", func(ctx context.Context) error {
		pod := &corev1.Pod{}
		if err := w.c.Get(ctx, client.ObjectKeyFromObject(stranger), pod); err != nil {
			return err
		}
		if owner := metav1.GetControllerOf(pod); owner == nil || owner.Kind != "Server" {
			return fmt.Errorf("its owner is %+v", owner)
		}
		return nil
	})
}

// Somebody takes the guard of a deleted Server away by force and makes another
// one of the name before its Pod is gone. No garbage collector runs here.
func TestAServerReplacesThePodOfAnEarlierOneOfItsName(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	g := w.game("lobby")
	old := g.server(t.Context())
	if err := w.c.Delete(t.Context(), old); err != nil {
		t.Fatal(err)
	}
	w.eventually("the guard is off", func(ctx context.Context) error {
		err := w.c.Patch(ctx, old, client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`)))
		return client.IgnoreNotFound(err)
	})
	s := w.create("lobby")
	w.eventually("the new Server has a Pod of its own", func(ctx context.Context) error {
		pod := &corev1.Pod{}
		if err := w.c.Get(ctx, client.ObjectKeyFromObject(s), pod); err != nil {
			return err
		}
		if pod.UID == g.pod.UID {
			if pod.DeletionTimestamp == nil {
				return errors.New("the earlier Server's Pod is there")
			}
			// As kubelet does when the game has ended.
			return errors.Join(errors.New("the earlier Server's Pod ends"), w.c.Delete(ctx, pod, client.GracePeriodSeconds(0)))
		}
		if !metav1.IsControlledBy(pod, s) {
			return fmt.Errorf("its owner is %+v", metav1.GetControllerOf(pod))
		}
		return nil
	})
}
