package gameserver_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/conditions"
	"dormouse.dev/dormouse/api/reasons"
	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/api/wellknown"
	"dormouse.dev/dormouse/internal/reportapi"
)

// updated waits until a Server's condition Updated is as it should be.
func (g *game) updated(want metav1.ConditionStatus) {
	g.w.t.Helper()
	g.w.eventually("condition Updated of Server "+g.name, func(ctx context.Context) error {
		c := meta.FindStatusCondition(g.server(ctx).Status.Conditions, conditions.Updated)
		if c == nil || c.Status != want {
			return fmt.Errorf("it is %+v, want %s", c, want)
		}
		return nil
	})
}

// A Server whose spec changes gets another Pod once nobody plays, and the game is told before.
func TestAChangedServerRestartsWhenItsPlayersHaveLeft(t *testing.T) {
	w := newWorld(t)
	g := w.game("lobby")
	players := func(n int32) func(*reportapi.Report) {
		return func(r *reportapi.Report) {
			r.Game.Reported, r.Game.Players, r.DeletionAllowed = true, &v1alpha1.PlayersStatus{Current: n, Capacity: 8}, n == 0
		}
	}
	g.say(0, g.report(1, players(2)))
	g.updated(metav1.ConditionTrue)
	g.edit(func(s *v1alpha1.Server) { s.Spec.Template.Spec.Containers[0].Image = "another" })
	g.updated(metav1.ConditionFalse)
	pod := func(ctx context.Context) (*corev1.Pod, error) {
		pod := &corev1.Pod{}
		return pod, w.c.Get(ctx, client.ObjectKeyFromObject(g.pod), pod)
	}
	if p, err := pod(t.Context()); err != nil || p.UID != g.pod.UID || p.DeletionTimestamp != nil || p.Annotations[wellknown.RestartAnnotation] != "" {
		t.Fatalf("under its players the Pod is %+v, %v", p, err)
	}
	g.say(0, g.report(2, players(0)))
	//nolint:contextcheck // say has the test's
	w.eventually("the game is told", func(context.Context) error {
		if a, _ := g.say(0, g.report(2, players(0))); !a.Shutdown {
			return errors.New("it isn't")
		}
		return nil
	})
	if p, err := pod(t.Context()); err != nil || p.DeletionTimestamp != nil {
		t.Fatalf("before the sidecar has answered the Pod is %+v, %v", p, err)
	}
	// The sidecar has seen that its game is to end, and replies when it is asked for a last time.
	look := ""
	//nolint:contextcheck // say has the test's
	w.eventually("another Pod of the spec", func(ctx context.Context) error {
		p, err := pod(ctx)
		switch {
		case apierrors.IsNotFound(err):
			return err
		case err != nil:
			return err
		case p.UID == g.pod.UID && p.DeletionTimestamp != nil:
			// There is no kubelet that ends it.
			_ = w.c.Delete(ctx, p, client.GracePeriodSeconds(0), client.Preconditions{UID: &p.UID})
			return errors.New("it ends")
		case p.UID == g.pod.UID:
			a, _ := g.say(0, g.report(3, players(0), func(r *reportapi.Report) { r.ShutdownSeen, r.Looked = true, look }))
			look = a.Look
			return errors.New("it is the first one still")
		case p.Spec.Containers[0].Image != "another":
			return fmt.Errorf("its image is %s", p.Spec.Containers[0].Image)
		}
		return nil
	})
	g.updated(metav1.ConditionTrue)
}

// A Server that is scaled to zero has no Pod, and keeps its name and its disk, which grows where it
// can.
func TestAServerIsScaledAndItsDiskGrows(t *testing.T) {
	w := newWorld(t)
	class := &storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{Name: w.ns}, Provisioner: "example.com/none", AllowVolumeExpansion: new(true),
	}
	if err := w.c.Create(t.Context(), class); err != nil {
		t.Fatal(err)
	}
	g := w.game("lobby", func(s *v1alpha1.Server) {
		s.Spec.Storage = []v1alpha1.StorageSpec{{Name: "world", MountPath: "/world", Size: resource.MustParse("1Gi"), StorageClassName: &class.Name}}
	})
	claim := &corev1.PersistentVolumeClaim{}
	key := client.ObjectKey{Namespace: w.ns, Name: "lobby-world"}
	if err := w.c.Get(t.Context(), key, claim); err != nil {
		t.Fatal(err)
	}
	before := claim.DeepCopy()
	claim.Status.Phase = corev1.ClaimBound
	if err := w.c.Status().Patch(t.Context(), claim, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
	g.edit(func(s *v1alpha1.Server) { s.Spec.Storage[0].Size = resource.MustParse("2Gi") })
	w.eventually("a larger disk", func(ctx context.Context) error {
		if err := w.c.Get(ctx, key, claim); err != nil {
			return err
		}
		if size := claim.Spec.Resources.Requests.Storage().String(); size != "2Gi" {
			return fmt.Errorf("it has %s", size)
		}
		return nil
	})

	scale := func(replicas string) {
		t.Helper()
		s := g.server(t.Context())
		body := `{"spec":{"replicas":` + replicas + `}}`
		if err := w.c.SubResource("scale").Patch(t.Context(), s, client.RawPatch("application/merge-patch+json", []byte(body))); err != nil {
			t.Fatal(err)
		}
	}
	w.eventually("its scale", func(ctx context.Context) error {
		if s := g.server(ctx); s.Status.Replicas != 1 || s.Status.Selector != wellknown.ServerLabel+"=lobby" {
			return fmt.Errorf("it is %d, %q", s.Status.Replicas, s.Status.Selector)
		}
		return nil
	})
	scale("0")
	g.say(0, g.report(1, func(r *reportapi.Report) { r.ShutdownSeen = true }))
	w.eventually("no Pod", func(ctx context.Context) error {
		p := &corev1.Pod{}
		err := w.c.Get(ctx, client.ObjectKeyFromObject(g.pod), p)
		if err == nil && p.DeletionTimestamp != nil {
			_ = w.c.Delete(ctx, p, client.GracePeriodSeconds(0), client.Preconditions{UID: &p.UID})
		}
		if !apierrors.IsNotFound(err) {
			return fmt.Errorf("it is there: %w", err)
		}
		return nil
	})
	w.eventually("a Server that is stopped", func(ctx context.Context) error {
		s := g.server(ctx)
		c := meta.FindStatusCondition(s.Status.Conditions, conditions.Ready)
		if s.Status.State != v1alpha1.ServerStopped || c.Reason != reasons.Stopped || s.Status.Replicas != 0 {
			return fmt.Errorf("it is %s, because %+v", s.Status.State, c)
		}
		return nil
	})
	scale("1")
	w.eventually("another Pod", func(ctx context.Context) error { return w.c.Get(ctx, client.ObjectKeyFromObject(g.pod), &corev1.Pod{}) })
}
