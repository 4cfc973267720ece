package autoscaler

import (
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"dormouse.dev/dormouse/api/reasons"
	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/operator/internal/obstacle"
	"dormouse.dev/dormouse/operator/internal/target"
)

// Seen is what is known of the autoscaler that an ElasticService names; the zero Seen is that of
// one that names none.
type Seen struct {
	Kind v1alpha1.AutoscalerKind
	Name string
	// Problem is why the service can't sleep beside it; nil: it can.
	Problem *obstacle.Obstacle
	// Untold is set where a change of it wouldn't be told: it must be looked at again.
	Untold bool
	// Min and Max bound its replicas; 0: it isn't known.
	Min, Max int32
	// Paused reports whether a ScaledObject is paused, whoever did it, and Ours whether Dormouse
	// did.
	Paused, Ours bool

	// of is what was read of a ScaledObject.
	of scaledObject
}

// Bound has a wake ask for replicas with which the autoscaler is content.
func (s Seen) Bound(want target.Replicas) target.Replicas {
	if s.Max > 0 {
		want.AtLeast, want.FromZero = min(want.AtLeast, s.Max), min(want.FromZero, s.Max)
	}
	want.AtLeast, want.FromZero = max(want.AtLeast, s.Min), max(want.FromZero, s.Min)
	return want
}

// Rests reports whether it leaves a target at zero alone.
func (s Seen) Rests() bool { return s.Kind != v1alpha1.AutoscalerKEDA || s.Paused }

// Wish is what is to become of a ScaledObject's pause.
type Wish int

const (
	// Leave has it as it is.
	Leave Wish = iota
	// Pause has the ScaledObject paused, by whomever.
	Pause
	// Unpause has it without a pause of Dormouse's own.
	Unpause
)

// Situation is what a wish depends on besides the autoscaler.
type Situation struct {
	// ReplicasObserved is set where the target's replicas were observed.
	ReplicasObserved bool
	Replicas         int32
	// FallingAsleep is set while a sleep is about to be committed.
	FallingAsleep bool
	// Deleting is set where the ElasticService is being deleted.
	Deleting bool
}

// Want decides about the pause.
func (s Seen) Want(at Situation) Wish {
	switch {
	case s.Kind != v1alpha1.AutoscalerKEDA:
		return Leave
	case at.Deleting:
		return Unpause
	case !at.ReplicasObserved:
		return Leave
	case at.Replicas > 0 && !at.FallingAsleep:
		return Unpause
	case s.Problem != nil && s.Problem.Reason == reasons.AutoscalerOfOther:
		return Unpause // it was this target's before
	case s.Problem != nil:
		return Leave
	}
	return Pause
}

// seeHPA judges a HorizontalPodAutoscaler.
func seeHPA(es *v1alpha1.ElasticService, hpa *autoscalingv2.HorizontalPodAutoscaler) Seen {
	s := Seen{Kind: v1alpha1.AutoscalerHPA, Name: hpa.Name}
	of := v1alpha1.ScaleTargetRef{APIVersion: hpa.Spec.ScaleTargetRef.APIVersion, Kind: hpa.Spec.ScaleTargetRef.Kind, Name: hpa.Spec.ScaleTargetRef.Name}
	what := "HorizontalPodAutoscaler " + hpa.Name
	if owner := metav1.GetControllerOf(hpa); owner != nil && owner.Kind == scaledObjectKind.Kind {
		s.Problem = obstacle.New(reasons.AutoscalerOwned,
			"%s belongs to ScaledObject %s, which would have it scale a sleeping target up: name that in spec.autoscaler, with kind: keda.", what, owner.Name)
		return s
	}
	if !target.Same(of, es.Spec.ScaleTargetRef) {
		s.Problem = ofOther(what, of, es)
		return s
	}
	s.Min, s.Max = ptr.Deref(hpa.Spec.MinReplicas, 1), hpa.Spec.MaxReplicas
	if s.Min == 0 {
		s.Problem = obstacle.New(reasons.AutoscalerScalesToZero,
			"%s has minReplicas: 0, so that it scales to zero and up again by itself, asleep and awake: set it to 1 or more, and leave zero to Dormouse.", what)
	}
	return s
}

// seeScaledObject judges a ScaledObject.
func seeScaledObject(es *v1alpha1.ElasticService, so scaledObject) Seen {
	s := Seen{Kind: v1alpha1.AutoscalerKEDA, Name: so.name, of: so}
	what := "ScaledObject " + so.name
	s.Paused = so.paused
	s.Ours = so.pausedBy == string(es.UID)
	if !target.Same(so.target, es.Spec.ScaleTargetRef) {
		s.Problem = ofOther(what, so.target, es)
		return s
	}
	// One of the target that an ElasticService paused which is gone has no other owner.
	s.Ours = so.pausedBy != ""
	s.Min, s.Max = so.min, so.max
	switch {
	case so.min == 0 || so.idle:
		s.Problem = obstacle.New(reasons.AutoscalerScalesToZero,
			"%s scales to zero by itself, also while clients are there that its triggers don't see: set its minReplicaCount to 1 or more, remove idleReplicaCount, and leave zero to Dormouse.", what)
	case so.heldOpen && !so.paused:
		s.Problem = obstacle.New(reasons.AutoscalerUnpausable,
			"%s has the annotation %s: %q, so that it can't be paused while the service sleeps: remove it.", what, pausedAnnotation, "false")
	}
	return s
}

func ofOther(what string, of v1alpha1.ScaleTargetRef, es *v1alpha1.ElasticService) *obstacle.Obstacle {
	return obstacle.New(reasons.AutoscalerOfOther, "%s scales %s %s and not %s %s: name the autoscaler of the target in spec.autoscaler.",
		what, of.Kind, of.Name, es.Spec.ScaleTargetRef.Kind, es.Spec.ScaleTargetRef.Name)
}
