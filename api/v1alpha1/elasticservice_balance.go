package v1alpha1

// Balance says which Server or pod a new client gets.
// +kubebuilder:validation:Enum=Spread;Packed
type Balance string

const (
	// BalanceSpread picks the emptiest server.
	BalanceSpread Balance = "Spread"
	// BalancePacked picks the fullest server that has room.
	BalancePacked Balance = "Packed"
)

// ProxyProtocol says what the resolver reads and writes of the PROXY protocol, by
// which proxies tell each other where a client really is. It is for TCP: ports
// over UDP do without.
//
// +kubebuilder:validation:XValidation:rule="has(self.trustedCIDRs) || (has(self.send) && self.send)",message="proxyProtocol needs trustedCIDRs or send: true; remove it if neither is wanted"
type ProxyProtocol struct {
	// trustedCIDRs are the addresses of the load balancers in front of the
	// resolver that send a header, such as 10.0.0.0/8 or 2001:db8::/32. A
	// connection from there must begin with one, of version 1 or 2, which then
	// says where the client is; without one it is refused. What comes from
	// anywhere else is passed on as it is.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=43
	// +kubebuilder:validation:items:XValidation:rule="isCIDR(self)",message="trustedCIDRs must be networks such as 10.0.0.0/8 or 2001:db8::/32"
	TrustedCIDRs []string `json:"trustedCIDRs,omitempty"`

	// send makes the resolver begin each connection to a server with a header of
	// version 2. It names the client, or says LOCAL where the resolver itself asks
	// the server something. The server must be set up to take such headers.
	// +optional
	Send bool `json:"send,omitempty"`
}
