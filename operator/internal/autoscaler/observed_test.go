package autoscaler

import (
	"testing"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/reasons"
	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/api/wellknown"
	"dormouse.dev/dormouse/operator/internal/obstacle"
	"dormouse.dev/dormouse/operator/internal/target"
)

func lobby() *v1alpha1.ElasticService {
	es := &v1alpha1.ElasticService{}
	es.UID = "es"
	es.Spec.ScaleTargetRef = v1alpha1.ScaleTargetRef{APIVersion: "apps/v1", Kind: "Deployment", Name: "lobby"}
	return es
}

func TestAPauseLastsFromTheBeginningOfASleepToTheWake(t *testing.T) {
	t.Parallel()
	keda := Seen{Kind: v1alpha1.AutoscalerKEDA}
	with := func(reason string) Seen {
		return Seen{Kind: v1alpha1.AutoscalerKEDA, Problem: &obstacle.Obstacle{Reason: reason}}
	}
	for name, c := range map[string]struct {
		seen Seen
		at   Situation
		want Wish
	}{
		"at zero":                            {keda, Situation{ReplicasObserved: true}, Pause},
		"falling asleep":                     {keda, Situation{ReplicasObserved: true, Replicas: 2, FallingAsleep: true}, Pause},
		"awake":                              {keda, Situation{ReplicasObserved: true, Replicas: 2}, Unpause},
		"deleted at zero":                    {keda, Situation{ReplicasObserved: true, Deleting: true}, Unpause},
		"deleted, and the target is unknown": {keda, Situation{Deleting: true}, Unpause},
		"the target is unknown":              {keda, Situation{}, Leave},
		"at zero, and it scales by itself":   {with(reasons.AutoscalerScalesToZero), Situation{ReplicasObserved: true}, Leave},
		"at zero, and it is another's":       {with(reasons.AutoscalerOfOther), Situation{ReplicasObserved: true}, Unpause},
		"awake, and it can't be read":        {with(reasons.AutoscalerUnreadable), Situation{ReplicasObserved: true, Replicas: 1}, Unpause},
		"an HPA":                             {Seen{Kind: v1alpha1.AutoscalerHPA}, Situation{ReplicasObserved: true}, Leave},
		"none":                               {Seen{}, Situation{ReplicasObserved: true, Deleting: true}, Leave},
	} {
		if got := c.seen.Want(c.at); got != c.want {
			t.Errorf("%s: wish %d, want %d", name, got, c.want)
		}
	}
}

func TestAWakeAsksWithinBounds(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		seen       Seen
		want, gets target.Replicas
	}{
		"no autoscaler": {Seen{}, target.Replicas{AtLeast: 1, FromZero: 7}, target.Replicas{AtLeast: 1, FromZero: 7}},
		"too few":       {Seen{Min: 3, Max: 5}, target.Replicas{AtLeast: 1, FromZero: 2}, target.Replicas{AtLeast: 3, FromZero: 3}},
		"too many":      {Seen{Min: 3, Max: 5}, target.Replicas{AtLeast: 9, FromZero: 9}, target.Replicas{AtLeast: 5, FromZero: 5}},
		"within":        {Seen{Min: 1, Max: 5}, target.Replicas{AtLeast: 1, FromZero: 4, AsBefore: true}, target.Replicas{AtLeast: 1, FromZero: 4, AsBefore: true}},
	} {
		if got := c.seen.Bound(c.want); got != c.gets {
			t.Errorf("%s: %+v, want %+v", name, got, c.gets)
		}
	}
}

func TestWhatAScaledObjectIsSeenAs(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		spec        map[string]any
		annotations map[string]string
		reason      string
		paused      bool
		ours        bool
	}{
		"at work":               {},
		"paused":                {annotations: map[string]string{pausedAnnotation: "true"}, paused: true},
		"paused by any word":    {annotations: map[string]string{pausedAnnotation: "yes"}, paused: true},
		"held open":             {annotations: map[string]string{pausedAnnotation: "false"}, reason: reasons.AutoscalerUnpausable},
		"held open, and paused": {annotations: map[string]string{pausedAnnotation: "false", pausedReplicasAnnotation: "1"}, paused: true},
		"paused at a number":    {annotations: map[string]string{pausedReplicasAnnotation: "0"}, paused: true},
		"paused by us":          {annotations: map[string]string{pausedAnnotation: "true", wellknown.PausedByAnnotation: "es"}, paused: true, ours: true},
		"paused for one that is gone": {
			annotations: map[string]string{pausedAnnotation: "true", wellknown.PausedByAnnotation: "gone"}, paused: true, ours: true,
		},
		"our pause was taken away": {annotations: map[string]string{wellknown.PausedByAnnotation: "es"}, ours: true},
		"no minReplicaCount":       {spec: map[string]any{"minReplicaCount": nil}, reason: reasons.AutoscalerScalesToZero},
		"idleReplicaCount":         {spec: map[string]any{"idleReplicaCount": int64(0)}, reason: reasons.AutoscalerScalesToZero},
		"another kind":             {spec: map[string]any{"scaleTargetRef": map[string]any{"kind": "StatefulSet", "name": "lobby"}}, reason: reasons.AutoscalerOfOther},
		"another's, paused by us": {
			spec:        map[string]any{"scaleTargetRef": map[string]any{"name": "other"}},
			annotations: map[string]string{pausedAnnotation: "true", wellknown.PausedByAnnotation: "es"},
			reason:      reasons.AutoscalerOfOther, paused: true, ours: true,
		},
		"another's, paused for another": {
			spec:        map[string]any{"scaleTargetRef": map[string]any{"name": "other"}},
			annotations: map[string]string{pausedAnnotation: "true", wellknown.PausedByAnnotation: "other"},
			reason:      reasons.AutoscalerOfOther, paused: true,
		},
		"everything of the wrong type": {spec: map[string]any{"minReplicaCount": "2", "scaleTargetRef": "lobby"}, reason: reasons.AutoscalerOfOther},
	} {
		u := newScaledObject(client.ObjectKey{Namespace: "games", Name: "lobby"})
		spec := map[string]any{"scaleTargetRef": map[string]any{"name": "lobby"}, "minReplicaCount": int64(1), "triggers": []any{}}
		for k, v := range c.spec {
			if spec[k] = v; v == nil {
				delete(spec, k)
			}
		}
		u.Object["spec"] = spec
		u.SetAnnotations(c.annotations)
		kept, err := slim(u)
		if err != nil {
			t.Fatal(err)
		}
		if slimmed := decode(kept.(*unstructured.Unstructured)); slimmed != decode(u) {
			t.Errorf("%s: the cache has %+v, want %+v", name, slimmed, decode(u))
		}
		got := seeScaledObject(lobby(), decode(u))
		reason := ""
		if got.Problem != nil {
			reason = got.Problem.Reason
		}
		if reason != c.reason || got.Paused != c.paused || got.Ours != c.ours {
			t.Errorf("%s: reason %q, paused %t, ours %t; want %q, %t, %t", name, reason, got.Paused, got.Ours, c.reason, c.paused, c.ours)
		}
		if got.Rests() != c.paused {
			t.Errorf("%s: it rests: %t, want %t", name, got.Rests(), c.paused)
		}
	}
}

func TestWhatAnHPAIsSeenAs(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(*autoscalingv2.HorizontalPodAutoscaler)
		reason string
		least  int32
	}{
		"at work":               {func(*autoscalingv2.HorizontalPodAutoscaler) {}, "", 2},
		"no minReplicas":        {func(h *autoscalingv2.HorizontalPodAutoscaler) { h.Spec.MinReplicas = nil }, "", 1},
		"with HPAScaleToZero":   {func(h *autoscalingv2.HorizontalPodAutoscaler) { h.Spec.MinReplicas = new(int32(0)) }, reasons.AutoscalerScalesToZero, 0},
		"another version of it": {func(h *autoscalingv2.HorizontalPodAutoscaler) { h.Spec.ScaleTargetRef.APIVersion = "apps/v1beta1" }, "", 2},
		"another group":         {func(h *autoscalingv2.HorizontalPodAutoscaler) { h.Spec.ScaleTargetRef.APIVersion = "example.com/v1" }, reasons.AutoscalerOfOther, 0},
		"KEDA's": {func(h *autoscalingv2.HorizontalPodAutoscaler) {
			h.OwnerReferences = []metav1.OwnerReference{{Kind: "ScaledObject", Name: "lobby", Controller: new(true)}}
		}, reasons.AutoscalerOwned, 0},
	} {
		h := &autoscalingv2.HorizontalPodAutoscaler{Spec: autoscalingv2.HorizontalPodAutoscalerSpec{
			ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: "lobby"},
			MinReplicas:    new(int32(2)), MaxReplicas: 5,
		}}
		c.change(h)
		got := seeHPA(lobby(), h)
		reason := ""
		if got.Problem != nil {
			reason = got.Problem.Reason
		}
		if reason != c.reason || got.Min != c.least || !got.Rests() {
			t.Errorf("%s: reason %q, min %d, rests %t; want %q, %d, true", name, reason, got.Min, got.Rests(), c.reason, c.least)
		}
	}
}
