package gameserver_test

import (
	"context"
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/v1alpha1"
)

// While there is no operator a Pod is lost whose Server's status calls it Ready, and a Server whose Pod
// stays. This test touches what all share, so that it doesn't run in parallel.
func TestANewLeaderSeesToWhatHappenedWithoutOne(t *testing.T) {
	w := newWorld(t)
	lost, orphan := w.game("lost"), w.game("orphan")
	gone := orphan.server(t.Context())
	for _, o := range cluster.operators {
		if err := o.Stop(); err != nil {
			t.Fatal(err)
		}
	}
	// No game runs here that would be Ready.
	s := lost.server(t.Context())
	before := s.DeepCopy()
	s.Status.State, s.Status.ObservedGeneration = v1alpha1.ServerReady, s.Generation
	if err := w.c.Status().Patch(t.Context(), s, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
	if err := w.c.Delete(t.Context(), lost.pod, client.GracePeriodSeconds(0)); err != nil {
		t.Fatal(err)
	}
	if err := w.c.Delete(t.Context(), gone); err != nil {
		t.Fatal(err)
	}
	if err := w.c.Patch(t.Context(), gone, client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`))); err != nil {
		t.Fatal(err)
	}
	for _, o := range cluster.operators {
		if err := o.Start(cluster.cleanup); err != nil {
			t.Fatal(err)
		}
	}
	for _, o := range cluster.operators {
		if err := o.WaitReady(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	w.within(2*promptly, "the Server whose Pod was lost has another one", func(ctx context.Context) error {
		pod := &corev1.Pod{}
		if err := w.c.Get(ctx, client.ObjectKeyFromObject(lost.pod), pod); err != nil {
			return err
		}
		if pod.UID == lost.pod.UID {
			return errors.New("it is the same")
		}
		return nil
	})
	w.within(2*promptly, "the Pod that no Server has ends", func(ctx context.Context) error {
		pod := &corev1.Pod{}
		err := w.c.Get(ctx, client.ObjectKeyFromObject(orphan.pod), pod)
		if err == nil && pod.DeletionTimestamp == nil {
			return errors.New("it is there")
		}
		return client.IgnoreNotFound(err)
	})
}
