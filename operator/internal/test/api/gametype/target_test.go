package gametype_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/conditions"
	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/operator/internal/elasticservice/targetwatch"
	"dormouse.dev/dormouse/operator/internal/kit"
	"dormouse.dev/dormouse/operator/internal/target"
	"dormouse.dev/dormouse/test/api/fixture"
)

// Why no server comes up is looked for in the target's conditions, with the rights
// that the operator has.
func TestTheOperatorMayReadTheConditionsOfItsOwnKinds(t *testing.T) {
	w := newWorld(t, true)
	w.create(asleep)
	w.settled()
	gt, fleet := w.gameType(), w.of("game:1")
	scaler := target.NewScaler(w.Manager.GetClient(), w.Manager.GetAPIReader())
	for name, o := range map[string]metav1.Object{"GameType": gt, "Fleet": fleet} {
		ref := target.Ref{Namespace: w.Namespace, ScaleTargetRef: v1alpha1.ScaleTargetRef{APIVersion: v1alpha1.GroupVersion.String(), Kind: name, Name: o.GetName()}}
		uid, _, err := scaler.Status(t.Context(), ref)
		if err != nil || uid != o.GetUID() {
			t.Errorf("%s: %s, %v; want %s", name, uid, err, o.GetUID())
		}
	}
	ref := target.Ref{Namespace: w.Namespace, ScaleTargetRef: v1alpha1.ScaleTargetRef{APIVersion: v1alpha1.GroupVersion.String(), Kind: "GameType", Name: game}}
	if _, list, err := scaler.Status(t.Context(), ref); err != nil || meta.FindStatusCondition(list, conditions.Progressing) == nil {
		t.Errorf("the GameType's conditions are %v, %v", list, err)
	}
}

// A GameType that was at zero for a moment may have Servers still that are about to end.
func TestAServersPodStaysOnceItsGameTypeAndFleetKnowTheScale(t *testing.T) {
	w := newWorld(t, true)
	w.create(func(gt *v1alpha1.GameType) { gt.Spec.Replicas = new(int32(1)) })
	w.settled()
	server := w.servers()[0]
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: w.Namespace, Name: server.Name,
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(&server, v1alpha1.GroupVersion.WithKind("Server"))},
		},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "game", Image: "none"}}},
	}
	if err := w.Admin.Create(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	scaler := target.NewScaler(w.Manager.GetClient(), w.Manager.GetAPIReader())
	ref := target.Ref{Namespace: w.Namespace, ScaleTargetRef: v1alpha1.ScaleTargetRef{APIVersion: v1alpha1.GroupVersion.String(), Kind: "GameType", Name: game}}
	want := func(stays bool, waits string) {
		t.Helper()
		got := scaler.Settled(t.Context(), ref, []target.PodKey{{Name: pod.Name, UID: pod.UID}})
		stay, err := got.Stay, got.Waits
		if slices.Contains(stay, pod.UID) != stays || (err == nil) != (waits == "") || err != nil && !strings.Contains(err.Error(), waits) {
			t.Errorf("%v stay, %v; want %t, %q", stay, err, stays, waits)
		}
	}
	want(true, "")
	// No controller looks meanwhile.
	scale := func(replicas int32) {
		gt := w.gameType()
		before := gt.DeepCopy()
		gt.Spec.Scale.Replicas = replicas
		if err := w.Admin.Patch(t.Context(), gt, client.MergeFrom(before)); err != nil {
			t.Fatal(err)
		}
	}
	scale(0)
	want(false, "GameType "+w.Namespace+"/"+game+" wants no pods yet")
	scale(1)
	want(false, "GameType "+w.Namespace+"/"+game+" has a controller that hasn't taken in that it wants 1 replicas")
	w.settled()
	w.Clock.Pass(kit.StartPause) // a wake's first status waits
	w.settled()
	want(true, "")

	before := server.DeepCopy()
	server.Spec.Drain = true
	if err := w.Admin.Patch(t.Context(), &server, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
	want(false, "Server "+w.Namespace+"/"+server.Name+" drains")
}

// What is read of a Deployment or a StatefulSet in one call is what its scale says, and so is what the watch
// of an ElasticService's target shows, before and after a change.
func TestAWorkloadIsSeenAsItsScaleHasIt(t *testing.T) {
	w := newWorld(t, false)
	watch, err := targetwatch.New(w.Manager, nil)
	if err != nil {
		t.Fatal(err)
	}
	scaler := target.NewScaler(w.Manager.GetClient(), w.Manager.GetAPIReader())
	selector := &metav1.LabelSelector{
		MatchLabels:      map[string]string{"app": "lobby", "a": "b"},
		MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "tier", Operator: metav1.LabelSelectorOpIn, Values: []string{"game", "beta"}}},
	}
	template := corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "lobby", "a": "b", "tier": "game"}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "game", Image: "none"}}},
	}
	at := metav1.ObjectMeta{Namespace: w.Namespace, Name: "lobby"}
	for kind, o := range map[string]client.Object{
		"Deployment":  &appsv1.Deployment{ObjectMeta: at, Spec: appsv1.DeploymentSpec{Replicas: new(int32(0)), Selector: selector, Template: template}},
		"StatefulSet": &appsv1.StatefulSet{ObjectMeta: at, Spec: appsv1.StatefulSetSpec{Selector: selector, Template: template}}, // one replica
	} {
		if err := w.Admin.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
		ref := target.Ref{Namespace: w.Namespace, ScaleTargetRef: v1alpha1.ScaleTargetRef{APIVersion: "apps/v1", Kind: kind, Name: "lobby"}}
		scale, err := scaler.See(t.Context(), ref, true)
		if err != nil || scale.Readiness != "" || scale.Selector == "" {
			t.Fatalf("the scale of the %s is %+v, %v", kind, scale, err)
		}
		scale.Readiness = v1alpha1.PodReadinessConnect
		got, err := scaler.See(t.Context(), ref, false)
		if err != nil {
			t.Fatalf("see the %s: %v", kind, err)
		}
		if diff := cmp.Diff(scale, got); diff != "" {
			t.Errorf("the %s (-want +got):\n%s", kind, diff)
		}
		es := &v1alpha1.ElasticService{
			ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: strings.ToLower(kind)},
			Spec:       v1alpha1.ElasticServiceSpec{Service: strings.ToLower(kind), ScaleTargetRef: ref.ScaleTargetRef},
		}
		if err := w.Admin.Create(t.Context(), es); err != nil {
			t.Fatal(err)
		}
		shown := func(want *target.Workload) {
			t.Helper()
			fixture.Eventually(t, promptly, "the watch shows the "+kind, func(ctx context.Context) error {
				uid, generation, says := watch.Generation(ctx, ref)
				if want == nil {
					return fixture.WantEqual("generation", generation, 0)
				}
				if diff := cmp.Diff(want, says); diff != "" || uid != o.GetUID() || generation != o.GetGeneration() {
					return fmt.Errorf("generation %d of %s (-want +got):\n%s", generation, uid, diff)
				}
				return nil
			})
		}
		shown(&scale)
		patch := `{"spec":{"replicas":3,"template":{"spec":{"containers":[{"name":"game","readinessProbe":{"tcpSocket":{"port":7000}}}]}}}}`
		if err := w.Admin.Patch(t.Context(), o, client.RawPatch(types.StrategicMergePatchType, []byte(patch))); err != nil {
			t.Fatal(err)
		}
		scale.Replicas, scale.Readiness = 3, v1alpha1.PodReadinessProbe
		shown(&scale)
		if err := w.Admin.Delete(t.Context(), o); err != nil {
			t.Fatal(err)
		}
		shown(nil)
	}
}
