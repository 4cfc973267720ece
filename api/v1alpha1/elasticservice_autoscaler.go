package v1alpha1

// AutoscalerKind is the kind of an Autoscaler.
// +kubebuilder:validation:Enum=hpa;keda
type AutoscalerKind string

const (
	// AutoscalerHPA is a HorizontalPodAutoscaler of Kubernetes, of autoscaling/v2.
	AutoscalerHPA AutoscalerKind = "hpa"
	// AutoscalerKEDA is a ScaledObject of KEDA, of keda.sh/v1alpha1.
	AutoscalerKEDA AutoscalerKind = "keda"
)

// Autoscaler names what sets the target's replicas while the service is awake.
type Autoscaler struct {
	// kind is hpa for a HorizontalPodAutoscaler, which rests by itself while its target is at
	// zero, or keda for a ScaledObject of KEDA, which is paused while the service sleeps: by the
	// annotation autoscaling.keda.sh/paused, and dormouse.dev/paused-by beside it. A pause that
	// somebody else made is left alone.
	// +required
	Kind AutoscalerKind `json:"kind"`

	// name is its name, in the same namespace. Its target must be that of scaleTargetRef, and it
	// may not go to zero by itself: minReplicas, or minReplicaCount, must be 1 or more. While
	// that isn't so the condition AutoscalerReady is False, and the service isn't put to sleep.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$')",message="name must be an object's name: lower case letters, digits, '-' and '.'"
	Name string `json:"name"`
}
