package reasons

// Reasons of an ElasticService's conditions.
const (
	// OK means that there is nothing to mend.
	OK = "OK"
	// NotNeeded means that the spec asks for nothing that the condition is about.
	NotNeeded = "NotNeeded"
	// NotObserved means that an earlier obstacle hid the answer.
	NotObserved = "NotObserved"
	// ServiceNotFound means that spec.service, or spec.front.service where the
	// condition is FrontReady, names no Service.
	ServiceNotFound = "ServiceNotFound"
	// ServiceTaken means that an older ElasticService has the same Service, or
	// that the front's is the own Service of one.
	ServiceTaken = "ServiceTaken"
	// TargetTaken means that an older object of the kind has the same target.
	TargetTaken = "TargetTaken"
	// ServiceUnsupported means that the Service is of a kind that can't
	// sleep: of type ExternalName, headless, or without ports.
	ServiceUnsupported = "ServiceUnsupported"
	// PortUnknown means that spec.ports or spec.front names a port that the
	// Service has not, or with another transport protocol, or that spec.front must
	// name one and doesn't.
	PortUnknown = "PortUnknown"
	// PortsExhausted means that no resolver port is free, or that the namespace has as
	// many as it may have.
	PortsExhausted = "PortsExhausted"
	// TooManyPorts means that the Service has more ports than can be held.
	TooManyPorts = "TooManyPorts"
	// Refused means that the API server refuses an object that Dormouse needs, by a
	// quota or a policy for instance.
	Refused = "Refused"
	// NameTaken means that an object which Dormouse didn't make has a name
	// that it needs.
	NameTaken = "NameTaken"
	// TargetNotFound means that scaleTargetRef names nothing.
	TargetNotFound = "TargetNotFound"
	// TargetNotScalable means that the target has no scale subresource.
	TargetNotScalable = "TargetNotScalable"
	// TargetClusterScoped means that the target belongs to no namespace, such as a
	// node pool: an ElasticService scales what is in its own.
	TargetClusterScoped = "TargetClusterScoped"
	// TargetForbidden means that Dormouse may not scale the target.
	TargetForbidden = "TargetForbidden"
	// FormerTargetAsleep means that a target that was put to sleep isn't the target any
	// more and can't be scaled up again.
	FormerTargetAsleep = "FormerTargetAsleep"
	// TargetUnreadable means that the target's scale could not be read just now.
	TargetUnreadable = "TargetUnreadable"
	// TargetLosesDisks means that the target would lose its disks at zero: it is a StatefulSet
	// whose persistentVolumeClaimRetentionPolicy deletes them when it is scaled.
	TargetLosesDisks = "TargetLosesDisks"
	// NoTargetSelector means that the Service has no selector and the
	// target's scale has none either, so that its pods can't be found.
	NoTargetSelector = "NoTargetSelector"
	// SelectorBypassesResolver means that handoff is Never and the Service
	// has a selector, by which connections go past the resolver.
	SelectorBypassesResolver = "SelectorBypassesResolver"
	// EndpointsBypassResolver means that there is an Endpoints object of the Service's
	// name, by which connections go past the resolver.
	EndpointsBypassResolver = "EndpointsBypassResolver"
	// NoResolver means that no resolver pod is ready to stand in.
	NoResolver = "NoResolver"
	// ResolverNotListening means that a resolver pod does not listen on a
	// port yet, or could not open it.
	ResolverNotListening = "ResolverNotListening"
	// ServerStarting means that no server is up yet and nothing is wrong so far.
	ServerStarting = "ServerStarting"
	// PodsUnsettled means that the only servers are from before the last sleep, and
	// that it isn't known yet whether they stay.
	PodsUnsettled = "PodsUnsettled"
	// ImageUnavailable means that a container's image is missing or can't
	// be pulled.
	ImageUnavailable = "ImageUnavailable"
	// ServerCrashing means that a container ends by itself before it takes
	// clients.
	ServerCrashing = "ServerCrashing"
	// PodUnschedulable means that no node can take a pod.
	PodUnschedulable = "PodUnschedulable"
	// ContainerNotCreated means that a container can't be made or started:
	// a ConfigMap or Secret is missing, or its command is.
	ContainerNotCreated = "ContainerNotCreated"
	// VolumeNotMounted means that a pod waits for a volume.
	VolumeNotMounted = "VolumeNotMounted"
	// SandboxNotCreated means that a node can't make a pod's sandbox: its
	// network for example.
	SandboxNotCreated = "SandboxNotCreated"
	// QuotaExceeded means that a ResourceQuota refuses the target's pods.
	QuotaExceeded = "QuotaExceeded"
	// PodRefused means that the API server refuses the target's pods for
	// another reason, such as admission.
	PodRefused = "PodRefused"
	// NoPod means that the target has made no pod and doesn't say why.
	NoPod = "NoPod"
	// ServerNotReady means that a container runs and its probe doesn't succeed.
	ServerNotReady = "ServerNotReady"
	// ServerNotListening means that a server counts as up, since its pod has
	// no readiness probe, and doesn't take the clients that are held.
	ServerNotListening = "ServerNotListening"
	// SelectorFitsNoPod means that the target has pods and the Service's selector fits
	// none of them.
	SelectorFitsNoPod = "SelectorFitsNoPod"
	// ServersFull means that with handoff Never clients wait because each Server
	// that is up has as many players as it may have.
	ServersFull = "ServersFull"
	// NoIdleSignal means that nothing tells whether the service is idle.
	NoIdleSignal = "NoIdleSignal"
	// TriggerUnreadable means that a trigger could not be read.
	TriggerUnreadable = "TriggerUnreadable"
	// ServersSilent means that Servers in which a game runs have said nothing
	// for some time.
	ServersSilent = "ServersSilent"
	// ReplicaSilent means that a replica of the operator, which may know who
	// plays, doesn't answer.
	ReplicaSilent = "ReplicaSilent"
	// NoReadinessProbe means that the target's pods have no readiness probe.
	NoReadinessProbe = "NoReadinessProbe"
	// SelectorCutsPlayers means that the Service has a selector, by which
	// Kubernetes lets go of Servers that drain.
	SelectorCutsPlayers = "SelectorCutsPlayers"
	// HostPortClash means that a UDP port of the Service is also a UDP host port
	// of a Server.
	HostPortClash = "HostPortClash"
	// NodePortClash means that a UDP port of the Service is also another
	// Service's UDP node port.
	NodePortClash = "NodePortClash"
	// SourceIPMasqueraded means that clients may reach the resolver from a
	// node's address instead of their own.
	SourceIPMasqueraded = "SourceIPMasqueraded"
	// LocalTrafficPolicy means that the Service has a traffic policy Local.
	LocalTrafficPolicy = "LocalTrafficPolicy"
	// SelectorMatchesOthers means that the selector of the Service, or of the
	// target where the Service has none, matches pods that aren't the target's.
	SelectorMatchesOthers = "SelectorMatchesOthers"
	// HasSelector means that the front's Service has a selector, by which
	// clients go past the resolver.
	HasSelector = "HasSelector"
	// NamespaceNotAllowed means that the front's Service is in another
	// namespace and doesn't allow this one.
	NamespaceNotAllowed = "NamespaceNotAllowed"
	// DuplicateHost means that an older ElasticService of the front has the same
	// host name.
	DuplicateHost = "DuplicateHost"
	// ConfigMapNotFound means that spec.wake.players names a ConfigMap that isn't
	// there, or lacks the label dormouse.dev/player-list.
	ConfigMapNotFound = "ConfigMapNotFound"
	// PlayerListInvalid means that a list of players can't be read.
	PlayerListInvalid = "PlayerListInvalid"
	// AnnotationInvalid means that an annotation of the front's Service, or of the
	// ElasticService itself, can't be read.
	AnnotationInvalid = "AnnotationInvalid"
	// KeptAwake means that a window, an annotation or another ElasticService keeps the service
	// awake.
	KeptAwake = "KeptAwake"
	// KeptAsleep means that the annotation dormouse.dev/keep-asleep-until keeps the service asleep, or
	// others in spec.wakeWith where the condition is WakeGroupValid.
	KeptAsleep = "KeptAsleep"
	// ScaledToZero means that somebody scaled the target to zero while a window or another
	// ElasticService would keep it awake.
	ScaledToZero = "ScaledToZero"
	// WaitsForOthers means that ElasticServices in spec.wakeWith aren't up yet.
	WaitsForOthers = "WaitsForOthers"
	// OthersNotUp means that ElasticServices in spec.wakeWith didn't come up in time, and that
	// clients don't wait for them any more.
	OthersNotUp = "OthersNotUp"
	// ElasticServiceNotFound means that spec.wakeWith names an ElasticService that isn't there,
	// or is being deleted.
	ElasticServiceNotFound = "ElasticServiceNotFound"
	// WakeGroupCycle means that an ElasticService in spec.wakeWith wakes this one in turn.
	WakeGroupCycle = "WakeGroupCycle"
	// WakeGroupTooLarge means that too many ElasticServices are reached by spec.wakeWith.
	WakeGroupTooLarge = "WakeGroupTooLarge"
	// ProtocolUnsupported means that clients don't say in the port's protocol
	// which host they want.
	ProtocolUnsupported = "ProtocolUnsupported"
	// AutoscalerNotFound means that spec.autoscaler names nothing.
	AutoscalerNotFound = "AutoscalerNotFound"
	// AutoscalerNotInstalled means that the API server has no ScaledObjects: KEDA isn't
	// installed.
	AutoscalerNotInstalled = "AutoscalerNotInstalled"
	// AutoscalerForbidden means that the operator may not read or pause the autoscaler: the
	// component config/components/keda has these rights.
	AutoscalerForbidden = "AutoscalerForbidden"
	// AutoscalerUnreadable means that the autoscaler could not be read just now.
	AutoscalerUnreadable = "AutoscalerUnreadable"
	// AutoscalerUnpausable means that the ScaledObject can't be paused: the API server refuses
	// it, or somebody else has set that annotation to false.
	AutoscalerUnpausable = "AutoscalerUnpausable"
	// AutoscalerOfOther means that the autoscaler scales something else than the target.
	AutoscalerOfOther = "AutoscalerOfOther"
	// AutoscalerScalesToZero means that the autoscaler may go to zero, and leave it, by itself.
	AutoscalerScalesToZero = "AutoscalerScalesToZero"
	// AutoscalerOwned means that the HorizontalPodAutoscaler belongs to another autoscaler,
	// which is to be named instead.
	AutoscalerOwned = "AutoscalerOwned"
	// PausedByOther means that somebody else has paused the ScaledObject, and that Dormouse
	// leaves it at that.
	PausedByOther = "PausedByOther"
)
