package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ElasticService lets the workload behind a Service sleep at zero replicas and wake when a
// client connects. While it sleeps, the resolver stands in for the Service's pods and holds
// what arrives.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=elasticservices,shortName=es,categories=dormouse
// +kubebuilder:printcolumn:name="Service",type=string,JSONPath=`.spec.service`
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Mode",type=string,JSONPath=`.status.mode`
// +kubebuilder:printcolumn:name="Sessions",type=integer,JSONPath=`.status.sessions`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Last-Wake",type=date,JSONPath=`.status.lastWakeTime`
// +kubebuilder:printcolumn:name="Wake-Took",type=string,priority=1,JSONPath=`.status.lastWake.took`
// +kubebuilder:printcolumn:name="Saved",type=string,priority=1,JSONPath=`.status.saved.amount`
// +kubebuilder:printcolumn:name="Target",type=string,priority=1,JSONPath=`.spec.scaleTargetRef.name`
// +kubebuilder:printcolumn:name="Reason",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Ready")].message`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="size(self.metadata.name) <= 63",message="metadata.name must have at most 63 characters, because it becomes a label's value"
// +kubebuilder:validation:XValidation:rule="!has(self.spec.wakeWith) || !(self.metadata.name in self.spec.wakeWith)",message="spec.wakeWith names other ElasticServices, and this is the own name; remove it"
type ElasticService struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is what may sleep, when, and how clients are held meanwhile.
	// +required
	Spec ElasticServiceSpec `json:"spec"`

	// status is what Dormouse observed and did.
	// +optional
	// +structType=atomic
	Status ElasticServiceStatus `json:"status,omitempty"`
}

// ElasticServiceList is a list of ElasticServices.
//
// +kubebuilder:object:root=true
type ElasticServiceList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ElasticService `json:"items"`
}

// ElasticServiceSpec is what may sleep, when, and how clients are held.
//
// +kubebuilder:validation:XValidation:rule="!has(self.idle) || !has(self.idle.players) || !self.idle.players || (self.scaleTargetRef.kind in ['Server', 'Fleet', 'GameType'] && self.scaleTargetRef.apiVersion.startsWith('dormouse.dev/'))",message="idle.players needs a Server, a Fleet or a GameType as scaleTargetRef; give the service idle.triggers, or scaleTargetRef an apiVersion of dormouse.dev and the kind Server, Fleet or GameType"
// +kubebuilder:validation:XValidation:rule="!has(self.balance) || self.handoff == 'Never'",message="balance needs handoff: Never, because otherwise clients go past the resolver; set it, or remove balance"
// +kubebuilder:validation:XValidation:rule="!has(self.proxyProtocol) || self.handoff == 'Never'",message="proxyProtocol needs handoff: Never, because otherwise clients go past the resolver; set it, or remove proxyProtocol"
// +kubebuilder:validation:XValidation:rule="!has(self.front) || has(self.front.namespace) || self.front.service != self.service",message="front.service must be another Service than service, which has endpoints of its own"
// +kubebuilder:validation:XValidation:rule="!has(self.wake) || !has(self.wake.when) || self.wake.when != 'Connect' || !has(self.ports) || self.ports.all(p, !has(p.http) || !has(p.http.waitingPage))",message="http.waitingPage needs wake.when: Login, because with Connect no request is read before it waits; remove one of them"
type ElasticServiceSpec struct {
	// service is the name of the Service, in the same namespace, that clients connect to. It
	// keeps its address asleep and awake. It can't be changed: another Service wants another
	// ElasticService.
	//
	// A Service with a selector keeps it, and Kubernetes goes on writing the endpoints of its
	// pods. A Service without one gets all its endpoints from Dormouse, which finds the pods by
	// the selector in the target's scale.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')",message="service must be the name of a Service: lower case letters, digits and '-', starting with a letter"
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="service can't be changed; delete this ElasticService and create one for the other Service"
	Service string `json:"service"`

	// scaleTargetRef names the workload that sleeps: anything in the same namespace with a
	// scale subresource, such as a Deployment or StatefulSet. A StatefulSet whose
	// persistentVolumeClaimRetentionPolicy has whenScaled: Delete isn't put to sleep, because
	// its disks would be deleted.
	// +required
	ScaleTargetRef ScaleTargetRef `json:"scaleTargetRef"`

	// minReplicas is the number of replicas to which a wake scales the target where it has
	// fewer, within the bounds of an autoscaler that the spec names. When it is absent a wake
	// from zero asks for as many as there were before the sleep, and for 1 the first time.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=10000
	MinReplicas *int32 `json:"minReplicas,omitempty"`

	// autoscaler names what sets the target's replicas while the service is awake: a
	// HorizontalPodAutoscaler, or a ScaledObject of KEDA. It rests while the service sleeps, and
	// a wake asks for replicas within its bounds.
	// +optional
	Autoscaler *Autoscaler `json:"autoscaler,omitempty"`

	// sleepAfter is how long the service must have been awake and idle before it is put to
	// sleep; at least 1s and at most a year. 0s means never.
	// +optional
	// +kubebuilder:default="10m"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]+(ms|s|m|h))+$') && (duration(self) == duration('0s') || (duration(self) >= duration('1s') && duration(self) <= duration('8760h')))",message="sleepAfter must be a duration from 1s to 8760h such as 90s, 10m or 1h, or 0s for never"
	SleepAfter *metav1.Duration `json:"sleepAfter,omitempty"`

	// awake are windows of time in which the service is kept awake, used or not. One that sleeps
	// is woken so long before a window as its last measured wake took, and up to 30s earlier, so
	// that not all are woken at once, but 15m at most. Outside of them it sleeps and wakes as ever. Windows that overlap are one.
	//
	// A target that somebody else scales to zero in a window stays there until a window opens
	// next, or a client wakes it.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	Awake []TimeWindow `json:"awake,omitempty"`

	// wakeWith are the names of other ElasticServices of the namespace, without which this one
	// is of no use: a page's database, or a proxy's lobby. They are woken as soon as this one
	// wakes, whatever woke it, and those that they name are woken with them. They are kept awake
	// until this one is asleep again.
	//
	// Clients that wake this one are held until those are up, too, though its own pods are
	// ready: for half of hold.timeout at most, or 2m30s where that is 0s. Those who come to a
	// Service with a selector may be sent to such pods by Kubernetes. status.waitsFor has the
	// names that aren't up yet. A name counts for nothing while there is no such ElasticService,
	// or it is being deleted, or names this one in turn, itself or by others; the condition
	// WakeGroupValid says so. From one ElasticService no more than 64 may be reached like that.
	//
	// A target that somebody else scales to zero meanwhile stays there until this one wakes
	// next, or a client wakes it.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=63
	// +kubebuilder:validation:items:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$')",message="wakeWith must be names of ElasticServices: lower case letters, digits, '-' and '.'"
	WakeWith []string `json:"wakeWith,omitempty"`

	// idle is how Dormouse knows that nobody uses the service, beyond the connections that pass
	// through the resolver. With handoff Direct the resolver doesn't see the clients that
	// connect while the service is awake, so that a service without players or a trigger here
	// never sleeps by itself.
	// +optional
	Idle *Idle `json:"idle,omitempty"`

	// handoff is what happens to new connections while the service is awake. Direct: they go
	// straight to its pods, past the resolver. Never: they all go through the resolver, whose
	// sessions then tell whether the service is idle; this wants a Service without a selector.
	// Clients who are on the pods when Direct becomes Never aren't among those sessions: the
	// service stays awake for sleepAfter after the change, and then may sleep though they are
	// still there.
	// +optional
	// +kubebuilder:default=Direct
	Handoff Handoff `json:"handoff,omitempty"`

	// balance decides which server a new client gets, with handoff Never. Spread, the default:
	// the emptiest. Packed: the fullest that has room. A client stays with its server to its
	// end. Servers of a Fleet or a GameType count by the players and the capacity that they
	// report: a full one gets nobody, and where all are full clients wait. Other pods count by
	// the resolver's own connections.
	// +optional
	Balance Balance `json:"balance,omitempty"`

	// proxyProtocol tells servers where clients really are, and learns it from load balancers
	// in front of the resolver; with handoff Never.
	// +optional
	ProxyProtocol *ProxyProtocol `json:"proxyProtocol,omitempty"`

	// ports has settings of some of the Service's ports. Every port of the Service works asleep
	// and awake, named here or not.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=64
	Ports []PortSpec `json:"ports,omitempty"`

	// wake is what wakes the service.
	// +optional
	Wake *Wake `json:"wake,omitempty"`

	// front makes the service share the address of another Service, where clients say by which
	// name they want it.
	// +optional
	Front *Front `json:"front,omitempty"`

	// hold bounds what is kept for clients while the service wakes.
	// +optional
	// +kubebuilder:default={}
	Hold Hold `json:"hold,omitempty"`
}

// ScaleTargetRef names an object with a scale subresource.
type ScaleTargetRef struct {
	// apiVersion is the target's group and version, such as apps/v1.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.matches('^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?v[0-9]+((alpha|beta)[0-9]+)?$')",message="apiVersion must be a group and a version such as apps/v1"
	APIVersion string `json:"apiVersion"`

	// kind is the target's kind, such as Deployment.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="self.matches('^[A-Z][A-Za-z0-9]*$')",message="kind must be a kind's name in CamelCase such as Deployment"
	Kind string `json:"kind"`

	// name is the target's name.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$')",message="name must be an object's name: lower case letters, digits, '-' and '.'"
	Name string `json:"name"`
}

// Idle is how Dormouse knows that nobody uses a service.
type Idle struct {
	// players keeps the service awake while anybody plays on a Server of the target, which must
	// be a Server, a Fleet or a GameType. Only what the Servers said within the last 30 s counts: a
	// Server that was silent for longer keeps the service awake.
	// +optional
	Players bool `json:"players,omitempty"`

	// triggers are numbers that tell how busy the service is. It sleeps only when each of them
	// has been below its threshold for sleepAfter. One that can't be read keeps the service
	// awake.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=8
	Triggers []Trigger `json:"triggers,omitempty"`
}

// TriggerType is the kind of a Trigger's source.
// +kubebuilder:validation:Enum=http;prometheus
type TriggerType string

const (
	// TriggerHTTP asks each of the target's pods over HTTP.
	TriggerHTTP TriggerType = "http"
	// TriggerPrometheus asks a Prometheus.
	TriggerPrometheus TriggerType = "prometheus"
)

// Trigger is a number that tells how busy a service is.
// +kubebuilder:validation:XValidation:rule="self.type != 'http' || has(self.http)",message="a trigger of type http needs the field http"
// +kubebuilder:validation:XValidation:rule="self.type != 'prometheus' || has(self.prometheus)",message="a trigger of type prometheus needs the field prometheus"
// +kubebuilder:validation:XValidation:rule="self.type == 'http' || !has(self.http)",message="the field http is for a trigger of type http; remove it, or correct the type"
// +kubebuilder:validation:XValidation:rule="self.type == 'prometheus' || !has(self.prometheus)",message="the field prometheus is for a trigger of type prometheus; remove it, or correct the type"
type Trigger struct {
	// type is where the number comes from; the field of the same name has its settings.
	// +required
	Type TriggerType `json:"type"`

	// http asks each of the target's own pods and adds the numbers up.
	// +optional
	HTTP *HTTPTrigger `json:"http,omitempty"`

	// prometheus asks a Prometheus.
	// +optional
	Prometheus *PrometheusTrigger `json:"prometheus,omitempty"`
}

// HTTPTrigger asks each of the target's own pods for a number in a JSON document and adds the
// numbers up. Redirects are not followed, an answer may have 64 KiB, and a pod has 2 s to
// answer. One with an IPv4 and an IPv6 address is asked at the second, with as much time, where
// the first takes no connection.
//
// +kubebuilder:validation:XValidation:rule="!has(self.tls) || has(self.tls.serverName)",message="tls needs serverName, which the pods' certificates must have: pods are asked by their addresses"
type HTTPTrigger struct {
	// port is the container's port.
	// +required
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	Port int32 `json:"port"`

	// path is the path and query to ask for.
	// +optional
	// +kubebuilder:default="/"
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:XValidation:rule="self.matches('^/([!$&-~]|%[0-9A-Fa-f]{2})*$')",message="path must start with '/' and have no spaces, quotes or '#', and '%' only before two hexadecimal digits"
	Path string `json:"path,omitempty"`

	// jsonPointer is where the number stands in the answer, as in RFC 6901: /players/online for
	// example. Empty means that the whole answer is the number.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	// +kubebuilder:validation:XValidation:rule="self.matches('^(/([^/~]|~[01])*)*$')",message="jsonPointer must be empty or start with '/', as in /players/online, and have '~' only in ~0 and ~1"
	JSONPointer string `json:"jsonPointer,omitempty"`

	// threshold is the number from which on the service counts as busy: with 1, the default,
	// anything above none keeps it awake.
	// +optional
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=1
	Threshold int64 `json:"threshold,omitempty"`

	// tls has the pods asked over https. Without it they are asked over http.
	// +optional
	TLS *TriggerTLS `json:"tls,omitempty"`

	// auth is what the operator shows to the pods.
	// +optional
	Auth *TriggerAuth `json:"auth,omitempty"`
}

// Handoff is what happens to new connections while a service is awake.
// +kubebuilder:validation:Enum=Direct;Never
type Handoff string

const (
	// HandoffDirect sends new connections straight to the pods.
	HandoffDirect Handoff = "Direct"
	// HandoffNever sends all connections through the resolver.
	HandoffNever Handoff = "Never"
)

// Hold bounds what a resolver pod keeps for clients while a service wakes. What is over a bound
// is refused or dropped, and counted.
type Hold struct {
	// timeout is how long a client is held before it is refused; at least 1s and at most 24h.
	// 0s means never.
	// +optional
	// +kubebuilder:default="5m"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]+(ms|s|m|h))+$') && (duration(self) == duration('0s') || (duration(self) >= duration('1s') && duration(self) <= duration('24h')))",message="timeout must be a duration from 1s to 24h such as 30s or 5m, or 0s for never"
	Timeout *metav1.Duration `json:"timeout,omitempty"`

	// maxConnections is how many TCP connections and UDP sessions a resolver pod holds for the
	// service at once.
	// +optional
	// +kubebuilder:default=1000
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100000
	MaxConnections int32 `json:"maxConnections,omitempty"`

	// maxBytesPerConnection is how much of what a client sends is kept. TCP clients are slowed
	// down beyond it and lose nothing; UDP datagrams beyond it are dropped.
	// +optional
	// +kubebuilder:default=65536
	// +kubebuilder:validation:Minimum=1024
	// +kubebuilder:validation:Maximum=1048576
	MaxBytesPerConnection int32 `json:"maxBytesPerConnection,omitempty"`

	// handshakeTimeout is how long a client may take, in a protocol that the resolver
	// understands, to say whether it wants the service or only its status; at least 1s and at
	// most 1m. Where maxConnections clients, and 100 at least, haven't said it yet the one that
	// came first makes room for the next.
	// +optional
	// +kubebuilder:default="10s"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]+(ms|s|m|h))+$') && duration(self) >= duration('1s') && duration(self) <= duration('1m')",message="handshakeTimeout must be a duration from 1s to 1m such as 5s"
	HandshakeTimeout *metav1.Duration `json:"handshakeTimeout,omitempty"`

	// releaseConcurrency is how many TCP connections that were held a resolver pod gives to the
	// service's servers at once, so that one that has just come up isn't buried under all that
	// waited for it. The next is given when one of those has had its server's first byte, has
	// ended, or after 5 s. They come in the order in which they arrived, and timeout goes on
	// meanwhile. 0, the default, means all at once.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000
	ReleaseConcurrency int32 `json:"releaseConcurrency,omitempty"`

	// perSource bounds what one source may take of that: an IPv4 address, or an IPv6 network of
	// 64 bits. By default one may take all. It works only where the condition SourceIPPreserved
	// is True.
	// +optional
	PerSource *PerSource `json:"perSource,omitempty"`
}

// PerSource bounds what a resolver pod carries for one source of a service's clients. Many
// players may share an address, at a school or behind a proxy.
// +kubebuilder:validation:MinProperties=1
type PerSource struct {
	// maxConnections is how many TCP connections and UDP sessions without a server a source may
	// have at once: held ones, and those that haven't said what they want.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100000
	MaxConnections int32 `json:"maxConnections,omitempty"`

	// maxBytes is how much is kept at once of what a source's clients send. Beyond it TCP
	// clients are slowed down and UDP datagrams are dropped.
	// +optional
	// +kubebuilder:validation:Minimum=1024
	// +kubebuilder:validation:Maximum=1073741824
	MaxBytes int64 `json:"maxBytes,omitempty"`

	// maxSessions is how many TCP connections and UDP sessions a source may have through the
	// resolver at once, with and without a server. Those that it has stay when the limit
	// changes.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100000
	MaxSessions int32 `json:"maxSessions,omitempty"`
}
