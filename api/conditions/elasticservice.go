package conditions

// Conditions of an ElasticService. Each is set on every pass of the controller, to Unknown
// where it could not be observed.
const (
	// Ready is True when the service wakes and sleeps as asked. When it is False its
	// reason and message are those of what stands in the way.
	Ready = "Ready"

	// TargetFound is True when scaleTargetRef names an object whose scale can be read
	// and written.
	TargetFound = "TargetFound"

	// EndpointsInSync is True when the Service's EndpointSlices are as they should be
	// and a resolver listens on each port that they name.
	EndpointsInSync = "EndpointsInSync"

	// ServerUp is True while a server is up, and Unknown while the service sleeps or a
	// server has only begun to start. It is False when no server came up for some seconds and
	// something is known to be wrong with the target or its pods; the reason and message then
	// say what, and Ready is False too. It heals by itself.
	ServerUp = "ServerUp"

	// TriggersHealthy is True when each trigger could be read from each pod. While it
	// isn't, the service stays awake.
	TriggersHealthy = "TriggersHealthy"

	// PlayersKnown is True when each Server in which a game runs said lately whether
	// anybody plays. While it is False the service stays awake. It is Unknown until nothing
	// else keeps the service awake: only then the Servers' reports are looked for.
	PlayersKnown = "PlayersKnown"

	// IdleSignal is True when Dormouse can tell that the service is idle. Without it
	// the service never sleeps by itself.
	IdleSignal = "IdleSignal"

	// DirectGated is True when new connections reach a pod only once it takes them. It
	// is False for a Service with a selector whose pods have no readiness probe: Kubernetes
	// sends connections there before they listen.
	DirectGated = "DirectGated"

	// DrainSafe is True when a Server that is drained keeps the players that it has.
	// It is False for a Fleet whose Service has a selector: Kubernetes then takes a draining
	// Server out of the Service, and kube-proxy cuts off its UDP players.
	DrainSafe = "DrainSafe"

	// UDPSessionsKept is True when no Server and no other Service has the number of a
	// UDP port of the Service. Else nodes end the sessions of UDP players in the middle of the
	// game: each time a Pod with that UDP host port starts there, and, for another Service's
	// UDP node port, with each change of endpoints. Host ports of other Pods end them, too, and
	// can't be seen here.
	UDPSessionsKept = "UDPSessionsKept"

	// SourceIPPreserved is True when the resolver sees the addresses from which
	// clients really come, or the spec asks for nothing that goes by them. While it is not True
	// such rules are not applied: behind a traffic policy Cluster a whole network of clients
	// may seem to come from one node.
	SourceIPPreserved = "SourceIPPreserved"

	// TrafficPolicyUnsupported is True when a traffic policy Local is combined with
	// handoff Direct, where nodes lose their endpoints at each sleep and load balancers move.
	TrafficPolicyUnsupported = "TrafficPolicyUnsupported"

	// FrontReady is True when every name of spec.front leads here, and when the spec
	// has no front. While it is False, Ready is, too, and connections to the service's own
	// address work all the same.
	FrontReady = "FrontReady"

	// WakePlayersKnown is True when the lists of players that spec.wake.players names
	// are read, and when it names none. While it is False the players who were known before
	// hold on.
	WakePlayersKnown = "WakePlayersKnown"

	// AutoscalerReady is True when what spec.autoscaler names leaves the target at zero while
	// the service sleeps, or can be made to, and when the spec names none. While it is False the
	// service isn't put to sleep, and wakes all the same.
	AutoscalerReady = "AutoscalerReady"

	// AwakeWindowsValid is True when all that spec.awake and the annotations
	// dormouse.dev/keep-awake-until and dormouse.dev/keep-asleep-until say can be read, and when
	// there are none; its message says until when they keep the service awake or asleep, or when
	// they will next. While it is False what
	// can't be read counts for nothing, and everything else does.
	AwakeWindowsValid = "AwakeWindowsValid"

	// WakeGroupValid is True when each name in spec.wakeWith counts and is up in time, and when
	// there is none; its message says for which the service waits, or which keeps it awake. While
	// it is False the names that don't count are left out, and clients wait for nobody who came
	// too late.
	WakeGroupValid = "WakeGroupValid"
)
