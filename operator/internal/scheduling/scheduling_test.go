package scheduling

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// terms are those by which a Pod prefers nodes with Pods of the Fleet, and those without.
func terms(pod *corev1.PodSpec) (together, apart []corev1.WeightedPodAffinityTerm) {
	if pod.Affinity == nil {
		return nil, nil
	}
	if a := pod.Affinity.PodAffinity; a != nil {
		together = a.PreferredDuringSchedulingIgnoredDuringExecution
	}
	if a := pod.Affinity.PodAntiAffinity; a != nil {
		apart = a.PreferredDuringSchedulingIgnoredDuringExecution
	}
	return together, apart
}

func TestATemplatesOwnPreferenceIsLeftAlone(t *testing.T) {
	t.Parallel()
	want := []corev1.WeightedPodAffinityTerm{{Weight: 100, PodAffinityTerm: corev1.PodAffinityTerm{
		TopologyKey:   "kubernetes.io/hostname",
		LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"dormouse.dev/fleet": "lobbies"}},
	}}}
	nodes := &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{}}
	for name, c := range map[string]struct {
		pod corev1.PodSpec
		own bool
	}{
		"no preference":     {},
		"a choice of nodes": {pod: corev1.PodSpec{Affinity: &corev1.Affinity{NodeAffinity: nodes}}},
		"an affinity":       {corev1.PodSpec{Affinity: &corev1.Affinity{PodAffinity: &corev1.PodAffinity{}}}, true},
		"an anti-affinity":  {corev1.PodSpec{Affinity: &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{}}}, true},
		"a topology spread": {corev1.PodSpec{TopologySpreadConstraints: []corev1.TopologySpreadConstraint{{MaxSkew: 1}}}, true},
	} {
		packed, distributed := c.pod.DeepCopy(), c.pod.DeepCopy()
		Pack(packed, "lobbies")
		Distribute(distributed, "lobbies")
		if c.own {
			if diff := cmp.Diff([2]corev1.PodSpec{c.pod, c.pod}, [2]corev1.PodSpec{*packed, *distributed}); diff != "" {
				t.Errorf("%s: it was changed (-before +after):\n%s", name, diff)
			}
			continue
		}
		together, apart := terms(packed)
		if diff := cmp.Diff(want, together); diff != "" || len(apart) > 0 {
			t.Errorf("%s: packed (-want +got):\n%s%v", name, diff, apart)
		}
		together, apart = terms(distributed)
		if diff := cmp.Diff(want, apart); diff != "" || len(together) > 0 {
			t.Errorf("%s: distributed (-want +got):\n%s%v", name, diff, together)
		}
		if c.pod.Affinity != nil && (packed.Affinity.NodeAffinity == nil || distributed.Affinity.NodeAffinity == nil) {
			t.Errorf("%s: it is gone", name)
		}
	}
}

// Who packs a Pod twice, or one that an earlier version packed, changes nothing; and what was packed for a
// Fleet is known for that.
func TestAPodIsPackedOnce(t *testing.T) {
	t.Parallel()
	for name, pod := range map[string]corev1.PodSpec{
		"no preference":     {},
		"a choice of nodes": {Affinity: &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{}}},
	} {
		once := pod.DeepCopy()
		Pack(once, "lobbies")
		twice := once.DeepCopy()
		Pack(twice, "lobbies")
		if diff := cmp.Diff(once, twice); diff != "" {
			t.Errorf("%s: the second time changed it (-once +twice):\n%s", name, diff)
		}
		if diff := cmp.Diff(pod, Unpacked(*once, "lobbies")); diff != "" {
			t.Errorf("%s: unpacked (-want +got):\n%s", name, diff)
		}
		if diff := cmp.Diff(once, twice); diff != "" {
			t.Errorf("%s: the Pod itself was unpacked (-before +after):\n%s", name, diff)
		}
		if diff := cmp.Diff(*once, Unpacked(*once, "others")); diff != "" {
			t.Errorf("%s: another Fleet's (-want +got):\n%s", name, diff)
		}
	}
	distributed := corev1.PodSpec{}
	Distribute(&distributed, "lobbies")
	if diff := cmp.Diff(distributed, Unpacked(distributed, "lobbies")); diff != "" {
		t.Errorf("distributed (-want +got):\n%s", diff)
	}
}
