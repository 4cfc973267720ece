package v1alpha1

// Front makes an ElasticService share one address with others: a Service without a selector
// whose endpoints are always the resolvers. The host name that a client says first, in
// Minecraft's handshake, in TLS' server_name or in HTTP's Host, picks the ElasticService.
// Whoever says a name that nobody has is turned away in the protocol and wakes nothing.
type Front struct {
	// service is the name of the Service that is shared, of type LoadBalancer for example. It
	// must have no selector, and be no ElasticService's own.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')",message="service must be the name of a Service: lower case letters, digits and '-', starting with a letter"
	Service string `json:"service"`

	// namespace is the Service's; by default this ElasticService's own. Another one's Service
	// must name this namespace in its annotation dormouse.dev/allowed-namespaces.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')",message="namespace must be the name of a namespace: lower case letters, digits and '-'"
	Namespace string `json:"namespace,omitempty"`

	// port is the name of the shared Service's port. It may be absent where that has only one.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Port string `json:"port,omitempty"`

	// targetPort is the name of the port of this ElasticService's own Service that clients are
	// led to. It may be absent where only one port has the protocol minecraft, tls or http,
	// whose clients say host names.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	TargetPort string `json:"targetPort,omitempty"`

	// hosts are the names that lead here, in lower case: play.example.com, *.example.com for
	// all names below example.com that no longer entry matches, or * for the rest, and for who
	// says no name. Of two ElasticServices with one name the older has it.
	// +required
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	Hosts []FrontHost `json:"hosts"`
}

// FrontHost is a DNS name in lower case, one with *. before it for all names below it, or * for
// all names.
// +kubebuilder:validation:MinLength=1
// +kubebuilder:validation:MaxLength=253
// +kubebuilder:validation:XValidation:rule="self == '*' || self.matches('^([*][.])?[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$')",message="a host must be a DNS name in lower case such as play.example.com, *.example.com for all names below it, or * for all that nobody else has"
type FrontHost string

// FrontStatus is a front as the resolvers serve it for an ElasticService.
type FrontStatus struct {
	// service is the name of the shared Service.
	Service string `json:"service"`
	// namespace is the shared Service's.
	Namespace string `json:"namespace"`
	// port is the name of the shared Service's port; empty where it has none.
	// +optional
	Port string `json:"port,omitempty"`
	// targetPort is the name of the port in this ElasticService's own Service.
	// +optional
	TargetPort string `json:"targetPort,omitempty"`
	// resolverPort is the port on which each resolver pod listens for the shared Service's. All
	// ElasticServices of the front have the same.
	ResolverPort int32 `json:"resolverPort"`
	// hosts are the names that lead here: those of spec.front.hosts that no older
	// ElasticService has.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	Hosts []FrontHost `json:"hosts,omitempty"`
	// trustedCIDRs are the networks of the shared Service's annotation
	// dormouse.dev/proxy-protocol-trusted-cidrs, whose connections begin with a header of the
	// PROXY protocol.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	TrustedCIDRs []string `json:"trustedCIDRs,omitempty"`
	// maxSessionsPerSource is the shared Service's annotation
	// dormouse.dev/max-sessions-per-source; 0 is without a limit.
	// +optional
	MaxSessionsPerSource int32 `json:"maxSessionsPerSource,omitempty"`
	// sourceIPPreserved is set where the resolvers see the addresses of the front's clients, by
	// the shared Service's traffic policy or by a header of the PROXY protocol, so that this
	// ElasticService's rules of addresses hold there, too.
	// +optional
	SourceIPPreserved bool `json:"sourceIPPreserved,omitempty"`
	// settingsVersion is the shared Service's resourceVersion when trustedCIDRs,
	// maxSessionsPerSource or sourceIPPreserved changed last. Where the ElasticServices of a
	// front differ in these, the resolvers go by the one with the highest.
	// +optional
	SettingsVersion string `json:"settingsVersion,omitempty"`
}

// MaxTrustedCIDRs is how many networks a front may trust.
const MaxTrustedCIDRs = 64
