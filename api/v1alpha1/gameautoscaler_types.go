package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// GameAutoscaler sets how many Servers a GameType or a Fleet has, between a least and a most.
// Each of its policies has a wish, and the highest one wins. It never puts the target to sleep:
// that is for the GameType's sleep, or an ElasticService. While the target sleeps it rests, and
// nothing but a schedule or a forecast that says so wakes it.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=gameautoscalers,shortName=gas,categories=dormouse
// +kubebuilder:printcolumn:name="Target",type=string,JSONPath=`.spec.targetRef.name`
// +kubebuilder:printcolumn:name="Min",type=integer,JSONPath=`.spec.minReplicas`
// +kubebuilder:printcolumn:name="Max",type=integer,JSONPath=`.spec.maxReplicas`
// +kubebuilder:printcolumn:name="Current",type=integer,JSONPath=`.status.currentReplicas`
// +kubebuilder:printcolumn:name="Desired",type=integer,JSONPath=`.status.desiredReplicas`
// +kubebuilder:printcolumn:name="Active",type=string,JSONPath=`.status.conditions[?(@.type=="Active")].status`
// +kubebuilder:printcolumn:name="Last-Scale",type=date,JSONPath=`.status.lastScaleTime`
// +kubebuilder:printcolumn:name="Kind",type=string,priority=1,JSONPath=`.spec.targetRef.kind`
// +kubebuilder:printcolumn:name="Limited",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Limited")].reason`
// +kubebuilder:printcolumn:name="Reason",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Active")].message`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type GameAutoscaler struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is what is scaled, between which bounds, and by what.
	// +required
	Spec GameAutoscalerSpec `json:"spec"`

	// status is what Dormouse observed and decided.
	// +optional
	// +structType=atomic
	Status GameAutoscalerStatus `json:"status,omitempty"`
}

// GameAutoscalerList is a list of GameAutoscalers.
//
// +kubebuilder:object:root=true
type GameAutoscalerList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []GameAutoscaler `json:"items"`
}

// GameAutoscalerSpec says what is scaled, between which bounds, and by what.
//
// +kubebuilder:validation:XValidation:rule="!has(self.minReplicas) || self.minReplicas <= self.maxReplicas",message="minReplicas must not be above maxReplicas; lower it, or raise maxReplicas"
type GameAutoscalerSpec struct {
	// targetRef names the GameType or the Fleet, in the same namespace, whose replicas are set.
	// Of two GameAutoscalers of one target the younger does nothing and says so.
	// +required
	TargetRef AutoscalerTarget `json:"targetRef"`

	// minReplicas is the least number of Servers while the target is awake; from 1, the default,
	// to 10000. A wake that brings fewer is raised to it. It holds at once, whatever behavior
	// says.
	// +optional
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=10000
	MinReplicas *int32 `json:"minReplicas,omitempty"`

	// maxReplicas is the most Servers that there may be; from 1 to 10000. Servers that drain,
	// and those that an update adds for a while, come on top. It holds at once, whatever
	// behavior says.
	// +required
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=10000
	MaxReplicas int32 `json:"maxReplicas"`

	// policies are what decides; from 1 to 16. Each has a wish, and the highest one wins. A
	// policy that can't be evaluated has none, and until it can be no Servers are taken away;
	// the others may still add some. Where no policy has a wish and all can be evaluated, which
	// is so outside the windows of schedules, there are to be minReplicas.
	// +required
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	Policies []AutoscalerPolicy `json:"policies"`

	// sync is how often the policies are evaluated.
	// +optional
	// +kubebuilder:default={}
	Sync AutoscalerSync `json:"sync,omitempty"`

	// behavior is how fast replicas may change.
	// +optional
	// +kubebuilder:default={}
	Behavior AutoscalerBehavior `json:"behavior,omitempty"`
}

// AutoscalerTarget names what a GameAutoscaler scales.
type AutoscalerTarget struct {
	// apiVersion is the target's group and version; by default dormouse.dev/v1alpha1.
	// +optional
	// +kubebuilder:default="dormouse.dev/v1alpha1"
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="self.matches('^dormouse[.]dev/v[0-9]+((alpha|beta)[0-9]+)?$')",message="apiVersion must be dormouse.dev/v1alpha1, because a GameAutoscaler scales GameTypes and Fleets"
	APIVersion string `json:"apiVersion,omitempty"`

	// kind is the target's kind: GameType, the default, or Fleet. A Fleet that belongs to a
	// GameType can't be scaled on its own.
	// +optional
	// +kubebuilder:default=GameType
	Kind AutoscalerTargetKind `json:"kind,omitempty"`

	// name is the target's name.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$')",message="name must be an object's name: lower case letters, digits, '-' and '.'"
	Name string `json:"name"`
}

// AutoscalerTargetKind is the kind of what a GameAutoscaler scales.
// +kubebuilder:validation:Enum=GameType;Fleet
type AutoscalerTargetKind string

const (
	// AutoscalerTargetGameType is a GameType.
	AutoscalerTargetGameType AutoscalerTargetKind = "GameType"
	// AutoscalerTargetFleet is a Fleet that has no GameType.
	AutoscalerTargetFleet AutoscalerTargetKind = "Fleet"
)

// AutoscalerSync is how often policies are evaluated.
type AutoscalerSync struct {
	// interval is how long to wait from one evaluation to the next, and how far apart the
	// questions to a webhook are; from 1s to 1h, by default 30s. A change of the target's
	// Servers or players, and a schedule's window, are acted on without that wait.
	// +optional
	// +kubebuilder:default="30s"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]+(ms|s|m|h))+$') && duration(self) >= duration('1s') && duration(self) <= duration('1h')",message="interval must be a duration from 1s to 1h such as 10s or 5m"
	Interval *metav1.Duration `json:"interval,omitempty"`
}

// AutoscalerBehavior is how fast replicas may change, each way.
type AutoscalerBehavior struct {
	// scaleUp is how fast Servers are added.
	// +optional
	// +kubebuilder:default={}
	ScaleUp AutoscalerScaleUp `json:"scaleUp,omitempty"`

	// scaleDown is how fast Servers are taken away.
	// +optional
	// +kubebuilder:default={}
	ScaleDown AutoscalerScaleDown `json:"scaleDown,omitempty"`
}

// AutoscalerScaleUp is how fast Servers are added.
type AutoscalerScaleUp struct {
	// cooldown is how long after Servers were added none are added again; at most 24h. By
	// default it is 0s: none.
	// +optional
	// +kubebuilder:default="0s"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]+(ms|s|m|h))+$') && duration(self) <= duration('24h')",message="cooldown must be a duration up to 24h such as 30s, or 0s for none"
	Cooldown *metav1.Duration `json:"cooldown,omitempty"`

	// stabilizationWindow is for how long the wish must have been higher: the lowest wish within
	// it counts. It is at most 1h, and by default 0s: a higher wish counts at once.
	// +optional
	// +kubebuilder:default="0s"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]+(ms|s|m|h))+$') && duration(self) <= duration('1h')",message="stabilizationWindow must be a duration up to 1h such as 30s, or 0s for none"
	StabilizationWindow *metav1.Duration `json:"stabilizationWindow,omitempty"`

	// maxStep is how many Servers are added at a time at most; from 1 to 10000. The next ones
	// come after cooldown, and sync.interval at least. By default there is no limit.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=10000
	MaxStep *int32 `json:"maxStep,omitempty"`
}

// AutoscalerScaleDown is how fast Servers are taken away. Which ones go, and that those with
// players drain, is the target's own scaleDown.
type AutoscalerScaleDown struct {
	// cooldown is how long after any change of replicas by this autoscaler no Servers are taken
	// away; at most 24h, by default 60s. 0s means none.
	// +optional
	// +kubebuilder:default="60s"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]+(ms|s|m|h))+$') && duration(self) <= duration('24h')",message="cooldown must be a duration up to 24h such as 5m, or 0s for none"
	Cooldown *metav1.Duration `json:"cooldown,omitempty"`

	// stabilizationWindow is for how long the wish must have been lower: the highest wish within
	// it counts, and what there was when the target woke. It is at most 1h, by default 300s. 0s
	// means that a lower wish counts at once.
	// +optional
	// +kubebuilder:default="300s"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]+(ms|s|m|h))+$') && duration(self) <= duration('1h')",message="stabilizationWindow must be a duration up to 1h such as 5m, or 0s for none"
	StabilizationWindow *metav1.Duration `json:"stabilizationWindow,omitempty"`

	// maxStep is how many Servers are taken away at a time at most; from 1 to 10000. The next
	// ones go after cooldown, and sync.interval at least. By default there is no limit.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=10000
	MaxStep *int32 `json:"maxStep,omitempty"`
}

// GameAutoscalerStatus is what Dormouse observed and decided.
type GameAutoscalerStatus struct {
	// observedGeneration is the generation of the spec that this status is of.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// currentReplicas is the number of the target's Servers that neither drain nor are being
	// deleted, and whose node isn't lost.
	// +optional
	CurrentReplicas int32 `json:"currentReplicas"`

	// desiredReplicas is how many Servers the target is to have, as this autoscaler decided
	// last; 0 while the target sleeps.
	// +optional
	DesiredReplicas int32 `json:"desiredReplicas"`

	// lastScaleTime is when this autoscaler last changed the target's replicas.
	// +optional
	LastScaleTime *metav1.Time `json:"lastScaleTime,omitempty"`

	// keepAwakeUntil is until when a schedule or a forecast with wake wants the target not to sleep.
	// Where it is set the target's ElasticService doesn't put it to sleep before.
	// +optional
	KeepAwakeUntil *metav1.Time `json:"keepAwakeUntil,omitempty"`

	// policies are what the policies wish, in the order of the spec.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=16
	Policies []AutoscalerPolicyStatus `json:"policies,omitempty"`

	// conditions are Active, AbleToScale and Limited.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// AutoscalerPolicyStatus is what a policy wishes, and why.
type AutoscalerPolicyStatus struct {
	// name is the policy's name.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name"`

	// wish is how many Servers it wishes, before the bounds and the behavior of the spec. It is
	// absent where the policy rests or can't be evaluated; reason tells which.
	// +optional
	Wish *int32 `json:"wish,omitempty"`

	// reason is a word for why, such as LoadHigh, WindowOpen, Asleep or ReportsStale.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Reason string `json:"reason,omitempty"`

	// message tells why in a sentence.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Message string `json:"message,omitempty"`

	// memory is what a forecast remembers of earlier weeks, for the operator itself. It is
	// written once an hour.
	// +optional
	// +kubebuilder:validation:MaxLength=4096
	Memory string `json:"memory,omitempty"`
}
