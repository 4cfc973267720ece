package v1alpha1

// PrometheusTrigger asks a Prometheus, or whatever answers its query API, for a number. Of an
// instant vector the values are added up, and a scalar is taken as it is. What says nothing keeps
// the service awake: an empty vector, NaN, an infinite or negative number, a histogram, a range or
// a string, an answer with warnings, and a server that fails, redirects, takes longer than 3 s or
// answers more than 256 KiB. An answer is used for 15 s, by all triggers of the namespace that ask
// the same; right before a sleep it is asked for anew.
//
// +kubebuilder:validation:XValidation:rule="!has(self.tls) || self.serverAddress.startsWith('https://')",message="tls needs a serverAddress that starts with https://; correct the address, or remove tls"
type PrometheusTrigger struct {
	// serverAddress is where Prometheus is: http or https, with the path before /api/v1 if there
	// is one, without a user. A name such as prometheus.monitoring.svc:9090 is a Service of the
	// cluster, which must be in the ElasticService's namespace or let that in by its annotation
	// dormouse.dev/trigger-namespaces. All other addresses the administrator must have allowed.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:XValidation:rule="self.matches('^https?://[][A-Za-z0-9.:-]+(/([!$&-;=@-~]|%[0-9A-Fa-f]{2})*)?$') && isURL(self)",message="serverAddress must be an http or https URL without a user, '?' or '#', such as http://prometheus.monitoring.svc:9090"
	ServerAddress string `json:"serverAddress"`

	// query is in PromQL. Where no series at all means that nobody is there, end it with
	// "or vector(0)".
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=4096
	Query string `json:"query"`

	// threshold is the number from which on the service counts as busy: a decimal number above 0
	// such as "0.5". It is "1" by default.
	// +optional
	// +kubebuilder:default="1"
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="self.matches('^[0-9]+([.][0-9]+)?$') && double(self) > 0.0",message="threshold must be a decimal number above 0 such as \"0.5\""
	Threshold string `json:"threshold,omitempty"`

	// uptimeFilter are label matchers of the metric up, such as job="gateway", that select the
	// targets whose metrics the query reads, or Prometheus itself. The trigger then counts only
	// while at least one of them has been up without a gap for the last sleepAfter, of which one
	// to five minutes are looked at. 90 s without a scrape are a gap, so they must be scraped once a
	// minute at least. A query such as a sum of rates says 0, too, when nothing was
	// scraped; this tells the two apart. By default that isn't asked.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:XValidation:rule="self.matches('^[^{}]*$')",message="uptimeFilter must be label matchers such as job=\"gateway\", without braces"
	UptimeFilter string `json:"uptimeFilter,omitempty"`

	// tls says whom to trust.
	// +optional
	TLS *TriggerTLS `json:"tls,omitempty"`

	// auth is what the operator shows to the server.
	// +optional
	Auth *TriggerAuth `json:"auth,omitempty"`
}

// TriggerTLS says which server is trusted.
type TriggerTLS struct {
	// caBundle is one or more certificates in PEM, in base64, that the server's own must be signed
	// by; at most 64 KiB of base64. It isn't used where auth's Secret has a key ca.crt, which counts
	// then. By default those count that the operator's system trusts.
	// +optional
	// +kubebuilder:validation:MaxLength=65536
	CABundle []byte `json:"caBundle,omitempty"`

	// serverName is the name that the server's certificate must have; by default that of the
	// address. With auth, another name than that must be in the Secret's annotation
	// dormouse.dev/trigger-servers, too, as in https://prometheus.example. Pods may have any.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.matches('^[A-Za-z0-9]([-A-Za-z0-9.]*[A-Za-z0-9])?$')",message="serverName must be a host name such as prometheus.example"
	ServerName string `json:"serverName,omitempty"`
}

// TriggerAuth is what the operator shows to a server that it asks for a trigger.
type TriggerAuth struct {
	// secret is the name of a Secret in the ElasticService's namespace, which must have the label
	// dormouse.dev/trigger-auth: "true", and which the operator must have been given the right to
	// get. For prometheus its annotation dormouse.dev/trigger-servers must name the server, as in
	// https://prometheus.example:9090, and others separated by commas. A Secret with that
	// annotation isn't shown to pods.
	//
	// It has a key token (sent as Authorization: Bearer), or username and password, or tls.crt and
	// tls.key (a client certificate, for https), or what headers name; and ca.crt if need be. It is
	// read again within a minute.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Secret string `json:"secret"`

	// headers are further headers of the request.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=8
	Headers []TriggerHeader `json:"headers,omitempty"`
}

// TriggerHeader is a header whose value is in a Secret.
type TriggerHeader struct {
	// name is the header's, such as X-Api-Key.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="self.matches('^[A-Za-z0-9-]+$') && !(self.lowerAscii() in ['host', 'connection', 'content-length', 'content-type', 'transfer-encoding', 'upgrade', 'trailer', 'te', 'expect'])",message="name must be a header of letters, digits and '-', and none that HTTP itself needs"
	Name string `json:"name"`

	// key is the Secret's key with the value, at most 4 KiB.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Key string `json:"key"`
}

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
