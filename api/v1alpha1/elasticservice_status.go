package v1alpha1

import (
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Mode is who gets a Service's new connections.
type Mode string

const (
	// ModeServe means that new connections go to the pods.
	ModeServe Mode = "Serve"
	// ModeProxy means that new connections go to the resolver.
	ModeProxy Mode = "Proxy"
)

// Phase is where a service is between asleep and awake.
type Phase string

const (
	// PhaseAsleep means that the target has, or is about to have, no replicas.
	PhaseAsleep Phase = "Asleep"
	// PhaseWaking means that the target has replicas and none is up yet.
	PhaseWaking Phase = "Waking"
	// PhaseAwake means that at least one pod is up.
	PhaseAwake Phase = "Awake"
	// PhaseFallingAsleep means that new connections already go to the resolver and the target
	// is scaled to zero unless one arrives.
	PhaseFallingAsleep Phase = "FallingAsleep"
)

// AsleepTarget is a target that was scaled to zero.
type AsleepTarget struct {
	ScaleTargetRef `json:",inline"`

	// replicas is how many there were.
	// +optional
	Replicas int32 `json:"replicas,omitempty"`

	// resourceVersion is the target's before it was scaled to zero, which is done to that
	// version alone.
	// +optional
	ResourceVersion string `json:"resourceVersion,omitempty"`
}

// ElasticServiceStatus is what Dormouse observed and did.
type ElasticServiceStatus struct {
	// observedGeneration is the generation of the spec that this status is of.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// mode is who gets new connections: Serve, the pods; Proxy, the resolver.
	// +optional
	Mode Mode `json:"mode,omitempty"`

	// phase is Asleep, Waking, Awake or FallingAsleep.
	// +optional
	Phase Phase `json:"phase,omitempty"`

	// phaseSince is when the phase began.
	// +optional
	PhaseSince *metav1.MicroTime `json:"phaseSince,omitempty"`

	// ports are the ports on which the resolver listens for the Service's ports.
	// +optional
	// +listType=map
	// +listMapKey=name
	Ports []PortStatus `json:"ports,omitempty"`

	// privateService is the name of the headless Service that Dormouse made to learn the
	// addresses of the target's pods.
	// +optional
	PrivateService string `json:"privateService,omitempty"`

	// readiness is how the resolver knows that a pod is up: Probe when the target's pods have a
	// readiness probe, else Connect.
	// +optional
	Readiness PodReadiness `json:"readiness,omitempty"`

	// replicas is the number of replicas that the target was last seen to want.
	// +optional
	Replicas int32 `json:"replicas,omitempty"`

	// replicasBeforeSleep is how many replicas there were when the service last fell asleep, by
	// Dormouse or because somebody scaled the target to zero.
	// +optional
	ReplicasBeforeSleep int32 `json:"replicasBeforeSleep,omitempty"`

	// asleepTarget is the target that Dormouse scaled to zero, while it sleeps. Where
	// spec.scaleTargetRef names another since, this one gets its replicas back.
	// +optional
	AsleepTarget *AsleepTarget `json:"asleepTarget,omitempty"`

	// pausedScaledObject is the ScaledObject of KEDA that Dormouse has paused, or is about to
	// pause, because the service sleeps.
	// +optional
	PausedScaledObject string `json:"pausedScaledObject,omitempty"`

	// podsBeforeSleep are the UIDs of the pods that were there when the target last went to
	// zero, or appeared while it was, the first 1024 of them. Where the target is scaled up
	// again before they are gone they get no new clients until the controllers that run them
	// have told that they stay. Those that are gone are named until the next sleep.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=1024
	PodsBeforeSleep []types.UID `json:"podsBeforeSleep,omitempty"`

	// idleSince is since when an awake service has been idle, at least, to a minute. A program
	// that has just started takes it for what it can't know itself. Not set where sleepAfter is
	// 5m or less, or nobody can tell whether the service is idle.
	// +optional
	IdleSince *metav1.Time `json:"idleSince,omitempty"`

	// lastWakeTime is when a client last asked for the service while the resolver stood in for
	// it, to a second.
	// +optional
	LastWakeTime *metav1.MicroTime `json:"lastWakeTime,omitempty"`

	// lastWake says where the time of the last wake from zero went, of those that a client, a
	// window, the annotation or another ElasticService caused and one leader of the operator saw
	// from their beginning to their end.
	// +optional
	LastWake *LastWake `json:"lastWake,omitempty"`

	// keptAwake is what keeps the service awake, used or not: a window of spec.awake, from
	// when a service that sleeps is woken for it, the annotation dormouse.dev/keep-awake-until,
	// or another ElasticService that names this one in its wakeWith.
	// +optional
	KeptAwake *KeptAwake `json:"keptAwake,omitempty"`

	// waitsFor are the names in spec.wakeWith that aren't up. While there are any, a service that
	// sleeps or wakes isn't up either, and resolvers hold its clients though its own pods are
	// ready.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=16
	WaitsFor []string `json:"waitsFor,omitempty"`

	// lastSleepTime is when the service last fell asleep.
	// +optional
	LastSleepTime *metav1.MicroTime `json:"lastSleepTime,omitempty"`

	// sleptUntil is when the service was last asleep: when the phase Asleep ended, whatever ended
	// it.
	// +optional
	SleptUntil *metav1.MicroTime `json:"sleptUntil,omitempty"`

	// asleepSeconds is how long the service was asleep in all, in seconds: from when the phase became
	// Asleep to when it was another one. It is added up at the end of each sleep. A service that
	// sleeps has been asleep since phaseSince besides.
	// +optional
	AsleepSeconds int64 `json:"asleepSeconds,omitempty"`

	// asleepRequests is what the pods requested that went with the last sleep. Not set where
	// nobody knows: where somebody else scaled the target to zero, or there were no pods.
	// +optional
	AsleepRequests *AsleepRequests `json:"asleepRequests,omitempty"`

	// saved is what all sleeps have saved, added up at the end of each like asleepSeconds. Sleeps
	// whose asleepRequests weren't known don't count.
	// +optional
	Saved *Saved `json:"saved,omitempty"`

	// sessions is the number of clients that the resolvers relay to the pods, but for those who
	// only ask for the status.
	// +optional
	Sessions int32 `json:"sessions,omitempty"`

	// queued is the number of clients that the resolvers hold.
	// +optional
	Queued int32 `json:"queued,omitempty"`

	// front is the address that the service shares with others, where the spec asks for one
	// that can be had.
	// +optional
	Front *FrontStatus `json:"front,omitempty"`

	// wakePlayers are the players on the lists that spec.wake.players names.
	// +optional
	WakePlayers *WakePlayersStatus `json:"wakePlayers,omitempty"`

	// conditions are Ready, TargetFound, EndpointsInSync, ServerUp, TriggersHealthy,
	// PlayersKnown, IdleSignal, DirectGated, DrainSafe, UDPSessionsKept, SourceIPPreserved,
	// TrafficPolicyUnsupported, FrontReady, WakePlayersKnown, AutoscalerReady,
	// AwakeWindowsValid and WakeGroupValid.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// LastWake is where the time of a wake went: its stages follow each other, and their sum is took.
// Kubernetes tells when pods were scheduled and started to a second only.
type LastWake struct {
	// asked is when the first client asked, or Dormouse woke the service by itself.
	Asked metav1.MicroTime `json:"asked"`
	// took is how long it was from then until new clients went to a server; with handoff Never
	// until a server was up.
	Took metav1.Duration `json:"took"`
	// message is a sentence about the stages.
	Message string `json:"message"`
	// scheduled is how long it took until the first pod had a node. It isn't set where the pods
	// were gone when the operator looked.
	// +optional
	Scheduled *metav1.Duration `json:"scheduled,omitempty"`
	// started is how long it took from there until a pod's containers were started: that their
	// images were pulled and their disks mounted.
	// +optional
	Started *metav1.Duration `json:"started,omitempty"`
	// up is how long it took from there until a server was up: that the game booted. Where it
	// isn't known when the pods started it is from asked.
	Up metav1.Duration `json:"up"`
	// handedOver is how long it took from there until the Service's endpoints were written; not
	// set with handoff Never.
	// +optional
	HandedOver *metav1.Duration `json:"handedOver,omitempty"`
}

// PodReadiness is whether the target's pods have a readiness probe.
type PodReadiness string

const (
	// PodReadinessProbe means that the pods have a readiness probe.
	PodReadinessProbe PodReadiness = "Probe"
	// PodReadinessConnect means that they have none.
	PodReadinessConnect PodReadiness = "Connect"
)

// PortStatus is one port of the Service as the resolver serves it.
type PortStatus struct {
	// name is the port's name in the Service.
	Name string `json:"name"`
	// protocol is what is spoken on the port.
	Protocol Protocol `json:"protocol"`
	// readiness is how the resolver knows that a pod is up on this port.
	// +optional
	Readiness Readiness `json:"readiness,omitempty"`
	// resolverPort is the port on which each resolver pod listens for it.
	ResolverPort int32 `json:"resolverPort"`
}

// AsleepRequests is what the pods of a target requested that Dormouse put to sleep, all together.
type AsleepRequests struct {
	// replicas is how many there were.
	// +optional
	Replicas int32 `json:"replicas,omitempty"`

	// cpu is the sum of their requests of CPU, in cores.
	// +optional
	CPU resource.Quantity `json:"cpu,omitempty"`

	// memory is the sum of their requests of memory, in bytes.
	// +optional
	Memory resource.Quantity `json:"memory,omitempty"`
}

// Saved is what a service's sleeps have saved: the requests of the pods that there would have been,
// times how long they weren't there. Nodes cost less only where a cluster autoscaler removes those
// that become empty.
type Saved struct {
	// milliCPUSeconds is how much CPU, in thousandths of a core times seconds.
	// +optional
	MilliCPUSeconds int64 `json:"milliCPUSeconds,omitempty"`

	// mebibyteSeconds is how much memory, in MiB times seconds.
	// +optional
	MebibyteSeconds int64 `json:"mebibyteSeconds,omitempty"`

	// amount is what all of that costs at the prices that the administrator had set when the
	// service last woke, such as "12.34 EUR"; not set without prices.
	// +optional
	Amount string `json:"amount,omitempty"`
}
