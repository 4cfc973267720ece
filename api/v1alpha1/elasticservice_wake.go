package v1alpha1

// WakeOn is the moment at which a client counts as wanting the service.
// +kubebuilder:validation:Enum=Login;Connect
type WakeOn string

const (
	// WakeOnLogin is when a client does what only players do, or sends a request
	// that is no probe.
	WakeOnLogin WakeOn = "Login"
	// WakeOnConnect is when a client connects or sends a datagram, whatever it
	// wants.
	WakeOnConnect WakeOn = "Connect"
)

// Wake says what wakes a service.
type Wake struct {
	// when is the moment at which a client counts as wanting the service. Login, the
	// default, needs a game's protocol or http: other ports wake with any connection
	// or datagram. With Connect so do those, and server lists and probes are answered
	// by the server alone.
	// +optional
	// +kubebuilder:default=Login
	When WakeOn `json:"when,omitempty"`

	// allowCIDRs are the networks whose clients may wake the service, such as
	// 203.0.113.0/24 or 2001:db8::/32. By default all may. This and the next three
	// are about clients for whom no server is up: others are nobody's business here,
	// so that this is no firewall. Clients who may not wake the service are closed or
	// dropped at once, unread, while it sleeps and wakes; those of HTTP are answered 403.
	//
	// Rules that go by the client's address work only where the resolver sees it;
	// the condition SourceIPPreserved says whether it does.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=43
	// +kubebuilder:validation:items:XValidation:rule="isCIDR(self)",message="allowCIDRs must be networks such as 203.0.113.0/24 or 2001:db8::/32"
	AllowCIDRs []string `json:"allowCIDRs,omitempty"`

	// denyCIDRs are the networks whose clients may not, even where allowCIDRs has
	// them.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=43
	// +kubebuilder:validation:items:XValidation:rule="isCIDR(self)",message="denyCIDRs must be networks such as 203.0.113.0/24 or 2001:db8::/32"
	DenyCIDRs []string `json:"denyCIDRs,omitempty"`

	// perSourceRate is how many clients of one source may ask for the service in a
	// minute while no server is up: TCP connections and UDP sessions that would wake
	// it or wait for it, not queries that are answered. They may come all at once.
	// A source is an IPv4 address or an IPv6 network of 64 bits, and each resolver pod
	// counts by itself. By default there is no such limit.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=60000
	PerSourceRate int32 `json:"perSourceRate,omitempty"`

	// perServiceRate is the same for clients of all sources together. It works
	// wherever clients come from. By default there is no such limit.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=60000
	PerServiceRate int32 `json:"perServiceRate,omitempty"`
}
