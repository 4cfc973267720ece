package serverbuilder

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/operator/internal/places"
	"dormouse.dev/dormouse/operator/internal/templatehash"
)

// lobbies is a Fleet with something of its own everywhere.
func lobbies() *v1alpha1.Fleet {
	return &v1alpha1.Fleet{
		ObjectMeta: metav1.ObjectMeta{Namespace: "games", Name: "lobbies", UID: "fleet-1", Generation: 3},
		Spec: v1alpha1.FleetSpec{
			Replicas:   new(int32(2)),
			Scheduling: v1alpha1.SchedulingPacked,
			Template: v1alpha1.ServerTemplate{
				Metadata: v1alpha1.TemplateMetadata{Labels: map[string]string{"mode": "duel"}, Annotations: map[string]string{"map": "atoll"}},
				Spec: v1alpha1.ServerSpec{
					Drain: true,
					Template: corev1.PodTemplateSpec{
						ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "lobby"}},
						Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "game", Image: "game:1"}}},
					},
				},
			},
		},
	}
}

func TestDesiredServer(t *testing.T) {
	f := lobbies()
	before := f.DeepCopy()
	near := corev1.WeightedPodAffinityTerm{Weight: 100, PodAffinityTerm: corev1.PodAffinityTerm{
		TopologyKey:   "kubernetes.io/hostname",
		LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"dormouse.dev/fleet": "lobbies"}},
	}}
	want := &v1alpha1.Server{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "games", Name: "lobbies-abcde",
			Labels:      map[string]string{"mode": "duel", "dormouse.dev/fleet": "lobbies"},
			Annotations: map[string]string{"map": "atoll", "dormouse.dev/template-hash": templatehash.Of(f.Spec.Template)},
			Finalizers:  []string{"dormouse.dev/deletion-guard"},
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: "dormouse.dev/v1alpha1", Kind: "Fleet", Name: "lobbies", UID: "fleet-1",
				Controller: new(true), BlockOwnerDeletion: new(true),
			}},
		},
		Spec: v1alpha1.ServerSpec{Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "lobby", "dormouse.dev/fleet": "lobbies"}},
			Spec: corev1.PodSpec{
				Containers: []corev1.Container{{Name: "game", Image: "game:1"}},
				Affinity: &corev1.Affinity{PodAffinity: &corev1.PodAffinity{
					PreferredDuringSchedulingIgnoredDuringExecution: []corev1.WeightedPodAffinityTerm{near},
				}},
			},
		}},
	}
	if diff := cmp.Diff(want, Build(f, templatehash.Of(f.Spec.Template), "lobbies-abcde", places.None)); diff != "" {
		t.Errorf("Server (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(before, f); diff != "" {
		t.Errorf("the Fleet was changed (-before +after):\n%s", diff)
	}
}

func TestSchedulingLeavesATemplatesOwnAlone(t *testing.T) {
	preferred := func(pod *corev1.PodSpec) (together, apart int) {
		if pod.Affinity == nil {
			return 0, 0
		}
		if a := pod.Affinity.PodAffinity; a != nil {
			together = len(a.PreferredDuringSchedulingIgnoredDuringExecution)
		}
		if a := pod.Affinity.PodAntiAffinity; a != nil {
			apart = len(a.PreferredDuringSchedulingIgnoredDuringExecution)
		}
		return together, apart
	}
	nodes := &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{}}
	tests := map[string]struct {
		scheduling      v1alpha1.Scheduling
		pod             corev1.PodSpec
		together, apart int
	}{
		"Packed keeps together":       {scheduling: v1alpha1.SchedulingPacked, together: 1},
		"Distributed keeps apart":     {scheduling: v1alpha1.SchedulingDistributed, apart: 1},
		"beside a choice of nodes":    {scheduling: v1alpha1.SchedulingPacked, pod: corev1.PodSpec{Affinity: &corev1.Affinity{NodeAffinity: nodes}}, together: 1},
		"not beside its own affinity": {scheduling: v1alpha1.SchedulingDistributed, pod: corev1.PodSpec{Affinity: &corev1.Affinity{PodAffinity: &corev1.PodAffinity{}}}},
		"nor beside an anti-affinity": {scheduling: v1alpha1.SchedulingPacked, pod: corev1.PodSpec{Affinity: &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{}}}},
		"nor beside a topology spread": {
			scheduling: v1alpha1.SchedulingPacked, pod: corev1.PodSpec{TopologySpreadConstraints: []corev1.TopologySpreadConstraint{{MaxSkew: 1}}},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			f := lobbies()
			f.Spec.Scheduling, f.Spec.Template.Spec.Template.Spec = test.scheduling, test.pod
			before := f.DeepCopy()
			s := Build(f, templatehash.Of(f.Spec.Template), "lobbies-abcde", places.None)
			if together, apart := preferred(&s.Spec.Template.Spec); together != test.together || apart != test.apart {
				t.Errorf("%d terms to be together and %d to be apart, want %d and %d", together, apart, test.together, test.apart)
			}
			if a := test.pod.Affinity; a != nil && a.NodeAffinity != nil && s.Spec.Template.Spec.Affinity.NodeAffinity == nil {
				t.Error("the template's choice of nodes is gone")
			}
			if diff := cmp.Diff(before, f); diff != "" {
				t.Errorf("the Fleet was changed (-before +after):\n%s", diff)
			}
		})
	}
}
