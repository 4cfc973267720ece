package v1alpha1

// Conditions of an ElasticService. Each is set on every pass of the controller,
// to Unknown where it could not be observed.
const (
	// ConditionReady is True when the service wakes and sleeps as asked. When it
	// is False its reason and message are those of what stands in the way.
	ConditionReady = "Ready"

	// ConditionTargetFound is True when scaleTargetRef names an object whose
	// scale can be read and written.
	ConditionTargetFound = "TargetFound"

	// ConditionEndpointsInSync is True when the Service's EndpointSlices are as
	// they should be and a resolver listens on each port that they name.
	ConditionEndpointsInSync = "EndpointsInSync"

	// ConditionServerUp is True while a server is up, and Unknown while the
	// service sleeps or a server has only begun to start. It is False when no
	// server came up for some seconds and something is known to be wrong with
	// the target or its pods; the reason and message then say what, and Ready
	// is False too. It heals by itself.
	ConditionServerUp = "ServerUp"

	// ConditionTriggersHealthy is True when each trigger could be read from each
	// pod. While it isn't, the service stays awake.
	ConditionTriggersHealthy = "TriggersHealthy"

	// ConditionPlayersKnown is True when each Server in which a game runs said
	// lately whether anybody plays. While it is False the service stays awake. It
	// is Unknown until nothing else keeps the service awake: only then the Servers'
	// reports are looked for.
	ConditionPlayersKnown = "PlayersKnown"

	// ConditionIdleSignal is True when Dormouse can tell that the service is
	// idle. Without it the service never sleeps by itself.
	ConditionIdleSignal = "IdleSignal"

	// ConditionDirectGated is True when new connections reach a pod only once it
	// takes them. It is False for a Service with a selector whose pods have no
	// readiness probe: Kubernetes sends connections there before they listen.
	ConditionDirectGated = "DirectGated"

	// ConditionDrainSafe is True when a Server that is drained keeps the players
	// that it has. It is False for a Fleet whose Service has a selector: Kubernetes
	// then takes a draining Server out of the Service, and kube-proxy cuts off its
	// UDP players.
	ConditionDrainSafe = "DrainSafe"

	// ConditionUDPSessionsKept is True when no Server and no other Service has the
	// number of a UDP port of the Service. Else nodes end the sessions of UDP players
	// in the middle of the game: each time a Pod with that UDP host port starts there,
	// and, for another Service's UDP node port, with each change of endpoints. Host
	// ports of other Pods end them, too, and can't be seen here.
	ConditionUDPSessionsKept = "UDPSessionsKept"

	// ConditionSourceIPPreserved is True when the resolver sees the addresses from
	// which clients really come, or the spec asks for nothing that goes by them.
	// While it is not True such rules are not applied: behind a traffic policy
	// Cluster a whole network of clients may seem to come from one node.
	ConditionSourceIPPreserved = "SourceIPPreserved"

	// ConditionTrafficPolicyUnsupported is True when a traffic policy Local is
	// combined with handoff Direct, where nodes lose their endpoints at each
	// sleep and load balancers move.
	ConditionTrafficPolicyUnsupported = "TrafficPolicyUnsupported"

	// ConditionFrontReady is True when every name of spec.front leads here, and when
	// the spec has no front. While it is False, Ready is, too, and connections to the
	// service's own address work all the same.
	ConditionFrontReady = "FrontReady"

	// ConditionWakePlayersKnown is True when the lists of players that
	// spec.wake.players names are read, and when it names none. While it is False the
	// players who were known before hold on.
	ConditionWakePlayersKnown = "WakePlayersKnown"
)

// Reasons of an ElasticService's conditions.
const (
	// ReasonOK says that there is nothing to mend.
	ReasonOK = "OK"
	// ReasonNotNeeded says that the spec asks for nothing that the condition is about.
	ReasonNotNeeded = "NotNeeded"
	// ReasonNotObserved says that an earlier obstacle hid the answer.
	ReasonNotObserved = "NotObserved"
	// ReasonServiceNotFound says that spec.service, or spec.front.service where the
	// condition is FrontReady, names no Service.
	ReasonServiceNotFound = "ServiceNotFound"
	// ReasonServiceTaken says that an older ElasticService has the same Service, or
	// that the front's is the own Service of one.
	ReasonServiceTaken = "ServiceTaken"
	// ReasonTargetTaken says that an older ElasticService has the same target.
	ReasonTargetTaken = "TargetTaken"
	// ReasonServiceUnsupported says that the Service is of a kind that can't
	// sleep: of type ExternalName, headless, or without ports.
	ReasonServiceUnsupported = "ServiceUnsupported"
	// ReasonPortUnknown says that spec.ports or spec.front names a port that the
	// Service has not, or with another transport protocol, or that spec.front must
	// name one and doesn't.
	ReasonPortUnknown = "PortUnknown"
	// ReasonPortsExhausted says that no resolver port is free, or that the namespace has as
	// many as it may have.
	ReasonPortsExhausted = "PortsExhausted"
	// ReasonTooManyPorts says that the Service has more ports than can be held.
	ReasonTooManyPorts = "TooManyPorts"
	// ReasonRefused says that the API server refuses an object that Dormouse needs, by a
	// quota or a policy for instance.
	ReasonRefused = "Refused"
	// ReasonNameTaken says that an object which Dormouse didn't make has a name
	// that it needs.
	ReasonNameTaken = "NameTaken"
	// ReasonTargetNotFound says that scaleTargetRef names nothing.
	ReasonTargetNotFound = "TargetNotFound"
	// ReasonTargetNotScalable says that the target has no scale subresource.
	ReasonTargetNotScalable = "TargetNotScalable"
	// ReasonTargetClusterScoped says that the target belongs to no namespace, such as a
	// node pool: an ElasticService scales what is in its own.
	ReasonTargetClusterScoped = "TargetClusterScoped"
	// ReasonTargetForbidden says that Dormouse may not scale the target.
	ReasonTargetForbidden = "TargetForbidden"
	// ReasonFormerTargetAsleep says that a target that was put to sleep isn't the target any
	// more and can't be scaled up again.
	ReasonFormerTargetAsleep = "FormerTargetAsleep"
	// ReasonTargetUnreadable says that the target's scale could not be read just now.
	ReasonTargetUnreadable = "TargetUnreadable"
	// ReasonNoTargetSelector says that the Service has no selector and the
	// target's scale has none either, so that its pods can't be found.
	ReasonNoTargetSelector = "NoTargetSelector"
	// ReasonSelectorBypassesResolver says that handoff is Never and the Service
	// has a selector, by which connections go past the resolver.
	ReasonSelectorBypassesResolver = "SelectorBypassesResolver"
	// ReasonEndpointsBypassResolver says that there is an Endpoints object of the Service's
	// name, by which connections go past the resolver.
	ReasonEndpointsBypassResolver = "EndpointsBypassResolver"
	// ReasonNoResolver says that no resolver pod is ready to stand in.
	ReasonNoResolver = "NoResolver"
	// ReasonResolverNotListening says that a resolver pod does not listen on a
	// port yet, or could not open it.
	ReasonResolverNotListening = "ResolverNotListening"
	// ReasonServerStarting says that no server is up yet and nothing is wrong so far.
	ReasonServerStarting = "ServerStarting"
	// ReasonPodsUnsettled says that the only servers are from before the last sleep, and
	// that it isn't known yet whether they stay.
	ReasonPodsUnsettled = "PodsUnsettled"
	// ReasonImageUnavailable says that a container's image is missing or can't
	// be pulled.
	ReasonImageUnavailable = "ImageUnavailable"
	// ReasonServerCrashing says that a container ends by itself before it takes
	// clients.
	ReasonServerCrashing = "ServerCrashing"
	// ReasonPodUnschedulable says that no node can take a pod.
	ReasonPodUnschedulable = "PodUnschedulable"
	// ReasonContainerNotCreated says that a container can't be made or started:
	// a ConfigMap or Secret is missing, or its command is.
	ReasonContainerNotCreated = "ContainerNotCreated"
	// ReasonVolumeNotMounted says that a pod waits for a volume.
	ReasonVolumeNotMounted = "VolumeNotMounted"
	// ReasonSandboxNotCreated says that a node can't make a pod's sandbox: its
	// network for example.
	ReasonSandboxNotCreated = "SandboxNotCreated"
	// ReasonQuotaExceeded says that a ResourceQuota refuses the target's pods.
	ReasonQuotaExceeded = "QuotaExceeded"
	// ReasonPodRefused says that the API server refuses the target's pods for
	// another reason, such as admission.
	ReasonPodRefused = "PodRefused"
	// ReasonNoPod says that the target has made no pod and doesn't say why.
	ReasonNoPod = "NoPod"
	// ReasonServerNotReady says that a container runs and its probe doesn't succeed.
	ReasonServerNotReady = "ServerNotReady"
	// ReasonServerNotListening says that a server counts as up, since its pod has
	// no readiness probe, and doesn't take the clients that are held.
	ReasonServerNotListening = "ServerNotListening"
	// ReasonSelectorFitsNoPod says that the target has pods and the Service's selector fits
	// none of them.
	ReasonSelectorFitsNoPod = "SelectorFitsNoPod"
	// ReasonServersFull says that with handoff Never clients wait because each Server
	// that is up has as many players as it may have.
	ReasonServersFull = "ServersFull"
	// ReasonNoIdleSignal says that nothing tells whether the service is idle.
	ReasonNoIdleSignal = "NoIdleSignal"
	// ReasonTriggerUnreadable says that a trigger could not be read.
	ReasonTriggerUnreadable = "TriggerUnreadable"
	// ReasonServersSilent says that Servers in which a game runs have said nothing
	// for some time.
	ReasonServersSilent = "ServersSilent"
	// ReasonReplicaSilent says that a replica of the operator, which may know who
	// plays, doesn't answer.
	ReasonReplicaSilent = "ReplicaSilent"
	// ReasonNoReadinessProbe says that the target's pods have no readiness probe.
	ReasonNoReadinessProbe = "NoReadinessProbe"
	// ReasonSelectorCutsPlayers says that the Service has a selector, by which
	// Kubernetes lets go of Servers that drain.
	ReasonSelectorCutsPlayers = "SelectorCutsPlayers"
	// ReasonHostPortClash says that a UDP port of the Service is also a UDP host port
	// of a Server.
	ReasonHostPortClash = "HostPortClash"
	// ReasonNodePortClash says that a UDP port of the Service is also another
	// Service's UDP node port.
	ReasonNodePortClash = "NodePortClash"
	// ReasonSourceIPMasqueraded says that clients may reach the resolver from a
	// node's address instead of their own.
	ReasonSourceIPMasqueraded = "SourceIPMasqueraded"
	// ReasonLocalTrafficPolicy says that the Service has a traffic policy Local.
	ReasonLocalTrafficPolicy = "LocalTrafficPolicy"
	// ReasonSelectorMatchesOthers says that the selector of the Service, or of the
	// target where the Service has none, matches pods that aren't the target's.
	ReasonSelectorMatchesOthers = "SelectorMatchesOthers"
	// ReasonHasSelector says that the front's Service has a selector, by which
	// clients go past the resolver.
	ReasonHasSelector = "HasSelector"
	// ReasonNamespaceNotAllowed says that the front's Service is in another
	// namespace and doesn't allow this one.
	ReasonNamespaceNotAllowed = "NamespaceNotAllowed"
	// ReasonDuplicateHost says that an older ElasticService of the front has the same
	// host name.
	ReasonDuplicateHost = "DuplicateHost"
	// ReasonConfigMapNotFound says that spec.wake.players names a ConfigMap that isn't
	// there, or lacks the label dormouse.dev/player-list.
	ReasonConfigMapNotFound = "ConfigMapNotFound"
	// ReasonPlayerListInvalid says that a list of players can't be read.
	ReasonPlayerListInvalid = "PlayerListInvalid"
	// ReasonAnnotationInvalid says that an annotation of the front's Service can't be
	// read.
	ReasonAnnotationInvalid = "AnnotationInvalid"
	// ReasonProtocolUnsupported says that clients don't say in the port's protocol
	// which host they want.
	ReasonProtocolUnsupported = "ProtocolUnsupported"
)
