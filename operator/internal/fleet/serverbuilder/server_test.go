package serverbuilder

import (
	"testing"
	"time"

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
	hash := templatehash.Of(f.Spec.Template) + "-" + templatehash.OfAny(f.Spec.Template.Metadata)[:8]
	want := &v1alpha1.Server{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "games", Name: "lobbies-abcde",
			Labels:      map[string]string{"mode": "duel", "dormouse.dev/fleet": "lobbies"},
			Annotations: map[string]string{"map": "atoll", "dormouse.dev/template-hash": hash},
			Finalizers:  []string{"dormouse.dev/deletion-guard"},
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: "dormouse.dev/v1alpha1", Kind: "Fleet", Name: "lobbies", UID: "fleet-1",
				Controller: new(true), BlockOwnerDeletion: new(true),
			}},
		},
		Spec: v1alpha1.ServerSpec{Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "lobby"}},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "game", Image: "game:1"}}},
		}},
	}
	if diff := cmp.Diff(want, Build(f, templatehash.Of(f.Spec.Template), "lobbies-abcde", places.None)); diff != "" {
		t.Errorf("Server (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(before, f); diff != "" {
		t.Errorf("the Fleet was changed (-before +after):\n%s", diff)
	}
}

// Whether Pods keep together isn't in each Server, where it is the default; that they keep apart is.
func TestOnlyDistributedIsInTheServer(t *testing.T) {
	for scheduling, apart := range map[v1alpha1.Scheduling]bool{"": false, v1alpha1.SchedulingPacked: false, v1alpha1.SchedulingDistributed: true} {
		f := lobbies()
		f.Spec.Scheduling = scheduling
		before := f.DeepCopy()
		affinity := Build(f, "hash", "lobbies-abcde", places.None).Spec.Template.Spec.Affinity
		if is := affinity != nil && affinity.PodAntiAffinity != nil; is != apart || affinity != nil && affinity.PodAffinity != nil {
			t.Errorf("%q: the affinity is %+v", scheduling, affinity)
		}
		if diff := cmp.Diff(before, f); diff != "" {
			t.Errorf("%q: the Fleet was changed (-before +after):\n%s", scheduling, diff)
		}
	}
}

// earlier makes a Server as a version made it that wrote into each what its Pod gets because of its Fleet.
func earlier(s *v1alpha1.Server) *v1alpha1.Server {
	metav1.SetMetaDataLabel(&s.Spec.Template.ObjectMeta, "dormouse.dev/fleet", "lobbies")
	pod := &s.Spec.Template.Spec
	if pod.Affinity == nil {
		pod.Affinity = &corev1.Affinity{}
	}
	pod.Affinity.PodAffinity = &corev1.PodAffinity{PreferredDuringSchedulingIgnoredDuringExecution: []corev1.WeightedPodAffinityTerm{{
		Weight: 100, PodAffinityTerm: corev1.PodAffinityTerm{
			TopologyKey:   "kubernetes.io/hostname",
			LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"dormouse.dev/fleet": "lobbies"}},
		},
	}}}
	return s
}

// An upgrade makes no Server outdated; and one that is stays so.
func TestAServerOfAnEarlierVersionIsLikeANewOne(t *testing.T) {
	nodes := &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{}}}
	zone := &corev1.Affinity{PodAffinity: &corev1.PodAffinity{PreferredDuringSchedulingIgnoredDuringExecution: []corev1.WeightedPodAffinityTerm{{
		Weight: 1, PodAffinityTerm: corev1.PodAffinityTerm{TopologyKey: "zone"},
	}}}}
	for name, c := range map[string]struct {
		of, now v1alpha1.Fleet
		want    bool
	}{
		"no affinity":       {with(nil), with(nil), true},
		"an empty one":      {with(nil), with(&corev1.Affinity{}), true},
		"a choice of nodes": {with(nodes), with(nodes), true},
		"another choice":    {with(nodes), with(nil), false},
		"an affinity since": {with(nil), with(zone), false},
		"another image": {with(nil), func() v1alpha1.Fleet {
			f := with(nil)
			f.Spec.Template.Spec.Template.Spec.Containers[0].Image = "game:2"
			return f
		}(), false},
		"its labels are others": {with(nil), func() v1alpha1.Fleet { f := with(nil); f.Spec.Template.Spec.Template.Labels["app"] = "duel"; return f }(), false},
	} {
		is := earlier(Build(&c.of, "hash", "lobbies-abcde", places.None))
		before := is.DeepCopy()
		if got := Like(is, Build(&c.now, "hash", "lobbies-abcde", places.None)); got != c.want {
			t.Errorf("%s: it is like a new one: %t, want %t", name, got, c.want)
		}
		if diff := cmp.Diff(before, is); diff != "" {
			t.Errorf("%s: it was changed (-before +after):\n%s", name, diff)
		}
	}
}

// So it is with the defaults that the API server stored once: whoever replaces a Fleet without them, or
// says them, has no Server replaced.
func TestStoredDefaultsMakeNoServerOutdated(t *testing.T) {
	plain, said := with(nil), with(nil)
	spec := &said.Spec.Template.Spec
	spec.Readiness, spec.Running = v1alpha1.ServerReadinessAuto, new(true)
	spec.Health = v1alpha1.HealthSpec{
		InitialDelay: &metav1.Duration{Duration: 30 * time.Second}, Period: &metav1.Duration{Duration: 5 * time.Second}, FailureThreshold: 3,
	}
	spec.Deletion = v1alpha1.DeletionSpec{Unreported: v1alpha1.DeletionAllowed, Timeout: &metav1.Duration{}}
	other := *said.DeepCopy()
	other.Spec.Template.Spec.Health.FailureThreshold = 4
	for name, c := range map[string]struct {
		of, now v1alpha1.Fleet
		want    bool
	}{
		"they are gone":     {said, plain, true},
		"they are said":     {plain, said, true},
		"another is said":   {plain, other, false},
		"another was said":  {other, plain, false},
		"nothing is stored": {plain, plain, true},
	} {
		is := earlier(Build(&c.of, "hash", "lobbies-abcde", places.None))
		if got := Like(is, Build(&c.now, "hash", "lobbies-abcde", places.None)); got != c.want {
			t.Errorf("%s: it is like a new one: %t, want %t", name, got, c.want)
		}
	}
}

// with is a Fleet whose template has this affinity.
func with(affinity *corev1.Affinity) v1alpha1.Fleet {
	f := lobbies()
	f.Spec.Template.Spec.Template.Spec.Affinity = affinity.DeepCopy()
	return *f
}
