package targetwatch

import (
	"encoding/json"
	"errors"
	"fmt"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/operator/internal/target"
)

func named(apiVersion, kind string) *v1alpha1.ElasticService {
	return &v1alpha1.ElasticService{
		ObjectMeta: metav1.ObjectMeta{Namespace: "games", Name: "lobby"},
		Spec:       v1alpha1.ElasticServiceSpec{ScaleTargetRef: v1alpha1.ScaleTargetRef{APIVersion: apiVersion, Kind: kind, Name: "lobby"}},
	}
}

// A kind of Dormouse's own needs no second watch, and others may have its name.
func TestWhichKindsAreNamed(t *testing.T) {
	t.Parallel()
	for of, want := range map[[2]string]string{
		{"apps/v1", "Deployment"}:             "apps/v1, Kind=Deployment",
		{"argoproj.io/v1alpha1", "Rollout"}:   "argoproj.io/v1alpha1, Kind=Rollout",
		{"v1", "ReplicationController"}:       "/v1, Kind=ReplicationController",
		{"agones.dev/v1", "Fleet"}:            "agones.dev/v1, Kind=Fleet",
		{"dormouse.dev/v1alpha1", "Fleet"}:    "",
		{"dormouse.dev/v1alpha1", "Server"}:   "",
		{"dormouse.dev/v1", "GameType"}:       "",
		{"dormouse.dev/v1", "GameAutoscaler"}: "dormouse.dev/v1, Kind=GameAutoscaler",
	} {
		kind, ok := kindOf(named(of[0], of[1]))
		if got := kind.String(); ok != (want != "") || ok && got != want {
			t.Errorf("%v: named is %s, %t; want %q", of, got, ok, want)
		}
	}
}

// Of a target no more is kept than what tells its versions apart, and of a Deployment what its spec says.
func TestOnlyVersionsAreKept(t *testing.T) {
	t.Parallel()
	o := &metav1.PartialObjectMetadata{
		TypeMeta: metav1.TypeMeta{Kind: "Rollout"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "games", Name: "lobby", UID: "u", ResourceVersion: "7", Generation: 3,
			Annotations: map[string]string{"a": "b"}, Labels: map[string]string{"c": "d"},
		},
	}
	kept, err := versions(o)
	is, ok := kept.(*metav1.PartialObjectMetadata)
	if err != nil || !ok || is.Annotations != nil || is.Labels != nil || is.Kind != "Rollout" || differ(is, o) || is.ResourceVersion != "7" || is.Name != "lobby" {
		t.Errorf("kept is %+v: %v", kept, err)
	}
	deployment := &workload{TypeMeta: o.TypeMeta, ObjectMeta: o.ObjectMeta, Spec: &workloadSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "lobby"}}}}
	kept, err = versions(deployment)
	d, ok := kept.(*workload)
	says := target.Workload{Replicas: 1, Selector: "app=lobby", Readiness: v1alpha1.PodReadinessConnect}
	if err != nil || !ok || d.Annotations != nil || d.Spec != nil || d.says == nil || *d.says != says || differ(d, o) {
		t.Errorf("kept is %+v: %v", kept, err)
	}
	if again, err := versions(d); err != nil || *again.(*workload).says != says {
		t.Errorf("kept of what is kept is %+v: %v", again, err)
	}
	text, err := json.Marshal(appsv1.StatefulSet{Spec: appsv1.StatefulSetSpec{
		VolumeClaimTemplates:                 make([]corev1.PersistentVolumeClaim, 1),
		PersistentVolumeClaimRetentionPolicy: &appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy{WhenScaled: appsv1.DeletePersistentVolumeClaimRetentionPolicyType},
	}})
	set := &workload{}
	if err := errors.Join(err, json.Unmarshal(text, set)); err != nil || !set.speaks().LosesDisks {
		t.Errorf("of a StatefulSet that loses its disks is kept %+v: %v", set.speaks(), err)
	}
	deployment.Spec.Selector.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: "tier", Operator: "Near"}}
	if kept, err = versions(deployment); err != nil || kept.(*workload).says != nil {
		t.Errorf("of one without a selector that can be read is kept %+v: %v", kept, err)
	}
	const fit = (maxSelector - len("t in ()")) / len("000,")
	for many, kept := range map[int]bool{fit: true, fit + 1: false} {
		deployment.Spec.Selector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "t", Operator: metav1.LabelSelectorOpIn}}}
		for i := range many {
			deployment.Spec.Selector.MatchExpressions[0].Values = append(deployment.Spec.Selector.MatchExpressions[0].Values, fmt.Sprintf("%03d", i))
		}
		if is, err := versions(deployment); err != nil || (is.(*workload).says != nil) != kept {
			t.Errorf("of one whose selector has %d values is kept %+v: %v", many, is, err)
		}
	}
	for what, change := range map[string]func(){
		"another spec":            func() { is.Generation++ },
		"another one of its name": func() { is.Generation, is.UID = 3, "v" },
	} {
		if change(); !differ(is, o) {
			t.Errorf("%s isn't noticed", what)
		}
	}
}

// What isn't watched has no version, by which its scale is read.
func TestOwnKindsHaveTheVersionOfTheCache(t *testing.T) {
	t.Parallel()
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	meta := metav1.ObjectMeta{Namespace: "games", Name: "lobby", UID: "u", Generation: 5}
	w := &Watch{cached: fake.NewClientBuilder().WithScheme(scheme).WithObjects(
		[]client.Object{&v1alpha1.Fleet{ObjectMeta: meta}, &v1alpha1.Server{ObjectMeta: meta}}...).Build()}
	for kind, want := range map[string]int64{"Fleet": 5, "Server": 5, "GameType": 0} {
		if uid, generation, _ := w.Generation(t.Context(), target.Of(named("dormouse.dev/v1alpha1", kind))); generation != want || (uid == "u") != (want > 0) {
			t.Errorf("%s: generation %d of %q, want %d", kind, generation, uid, want)
		}
	}
	if _, generation, _ := w.Generation(t.Context(), target.Of(named("apps/v1", "Deployment"))); generation != 0 {
		t.Errorf("a kind that isn't watched has generation %d", generation)
	}
}
