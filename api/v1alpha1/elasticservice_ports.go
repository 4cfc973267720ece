package v1alpha1

import corev1 "k8s.io/api/core/v1"

// Protocol is what is spoken on a port.
// +kubebuilder:validation:Enum=tcp;udp;http;tls;minecraft;bedrock;source;quake3
type Protocol string

const (
	// ProtocolTCP is any protocol over TCP: bytes are held and passed on as they are. A
	// connection wakes the service.
	ProtocolTCP Protocol = "tcp"
	// ProtocolUDP is any protocol over UDP: datagrams are held and passed on as they are. The
	// first one wakes the service.
	ProtocolUDP Protocol = "udp"
	// ProtocolHTTP is HTTP/1, and what begins with it or shares its port: WebSocket, HTTP/2,
	// TLS. Probes that the spec names are answered while the service sleeps; any other request
	// wakes it.
	ProtocolHTTP Protocol = "http"
	// ProtocolTLS is anything inside TLS, over TCP, which is passed on as it is. A client's
	// hello wakes the service; what is no TLS doesn't.
	ProtocolTLS Protocol = "tls"
	// ProtocolMinecraft is Minecraft's Java edition, over TCP. Server lists are answered while
	// the service sleeps; a login wakes it.
	ProtocolMinecraft Protocol = "minecraft"
	// ProtocolBedrock is Minecraft's Bedrock edition on RakNet, over UDP. Pings are answered
	// while the service sleeps; a request for a connection wakes it.
	ProtocolBedrock Protocol = "bedrock"
	// ProtocolSource is the query protocol of Valve's games and many others, over UDP. Queries
	// are answered while the service sleeps; any other datagram wakes it.
	ProtocolSource Protocol = "source"
	// ProtocolQuake3 is that of Quake 3 and the games that come from it, over UDP. Queries are
	// answered while the service sleeps; any other datagram wakes it.
	ProtocolQuake3 Protocol = "quake3"
)

// Transport is the transport protocol under what is spoken on a port.
func (p Protocol) Transport() corev1.Protocol {
	switch p {
	case ProtocolUDP, ProtocolBedrock, ProtocolSource, ProtocolQuake3:
		return corev1.ProtocolUDP
	case ProtocolTCP, ProtocolHTTP, ProtocolTLS, ProtocolMinecraft:
	}
	return corev1.ProtocolTCP
}

// NamesHosts reports whether clients of the protocol say first which host they want, so that a
// front can tell several services apart.
func (p Protocol) NamesHosts() bool {
	return p == ProtocolMinecraft || p == ProtocolTLS || p == ProtocolHTTP
}

// Readiness is how the resolver knows that a pod takes connections.
// +kubebuilder:validation:Enum=Auto;Connect
type Readiness string

const (
	// ReadinessAuto waits for the pods' readiness probe where they have one, and for the
	// protocol's own sign otherwise: a TCP connect, a running container for UDP.
	ReadinessAuto Readiness = "Auto"
	// ReadinessConnect goes by a TCP connect alone, which is up to a second earlier than
	// kubelet's probe.
	ReadinessConnect Readiness = "Connect"
)

// PortSpec has settings of one of a Service's ports.
// +kubebuilder:validation:XValidation:rule="!has(self.readiness) || self.readiness != 'Connect' || !has(self.protocol) || self.protocol in ['tcp', 'http', 'tls', 'minecraft']",message="readiness Connect needs a protocol over TCP, because UDP has no connect; remove it or choose Auto"
// +kubebuilder:validation:XValidation:rule="!has(self.asleep) || (has(self.protocol) && !(self.protocol in ['tcp', 'udp', 'tls']))",message="asleep needs a protocol whose queries can be answered: http, minecraft, bedrock, source or quake3"
// +kubebuilder:validation:XValidation:rule="!has(self.asleep) || (!has(self.asleep.favicon) && !has(self.asleep.rejoin)) || (has(self.protocol) && self.protocol == 'minecraft')",message="asleep.favicon and asleep.rejoin need the protocol minecraft; others have no such thing"
// +kubebuilder:validation:XValidation:rule="!has(self.asleep) || !has(self.asleep.protocolVersion) || !has(self.protocol) || self.protocol != 'source'",message="asleep.protocolVersion needs the protocol minecraft, bedrock or quake3; remove it"
// +kubebuilder:validation:XValidation:rule="!has(self.asleep) || !has(self.asleep.map) || !has(self.protocol) || self.protocol != 'minecraft'",message="asleep.map needs the protocol bedrock, source or quake3; remove it"
// +kubebuilder:validation:XValidation:rule="!has(self.asleep) || !has(self.asleep.game) || (has(self.protocol) && self.protocol in ['source', 'quake3'])",message="asleep.game needs the protocol source or quake3; remove it"
// +kubebuilder:validation:XValidation:rule="!has(self.asleep) || (!has(self.asleep.folder) && !has(self.asleep.appID)) || (has(self.protocol) && self.protocol == 'source')",message="asleep.folder and asleep.appID need the protocol source; remove them"
// +kubebuilder:validation:XValidation:rule="!has(self.asleep) || !has(self.asleep.probes) || (has(self.protocol) && self.protocol == 'http')",message="asleep.probes needs the protocol http; remove it"
// +kubebuilder:validation:XValidation:rule="!has(self.asleep) || !has(self.protocol) || self.protocol != 'http' || (!has(self.asleep.version) && !has(self.asleep.protocolVersion) && !has(self.asleep.maxPlayers) && !has(self.asleep.map))",message="asleep.version, protocolVersion, maxPlayers and map need the protocol of a game; remove them"
// +kubebuilder:validation:XValidation:rule="!has(self.http) || (has(self.protocol) && self.protocol == 'http')",message="http needs the protocol http; set it, or remove http"
type PortSpec struct {
	// name is the port's name in the Service; empty for a Service's only port when that has no
	// name.
	// +required
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name"`

	// protocol is what is spoken on the port: tcp or udp; http; tls (over TCP), which is passed
	// on as it is and wakes by a client's hello alone; or a game's that the resolver
	// understands: minecraft (over TCP), bedrock, source or quake3 (over UDP). By default the
	// transport protocol in the Service, which it must agree with. A connection that went
	// through the resolver stays there until it ends, and keeps the service awake as long: with
	// http it ends between two requests once a server is up, so that the client's next goes
	// straight to one; with tcp one that is kept alive stays.
	// +optional
	Protocol Protocol `json:"protocol,omitempty"`

	// readiness is how the resolver knows that a pod takes connections on this port.
	// +optional
	// +kubebuilder:default=Auto
	Readiness Readiness `json:"readiness,omitempty"`

	// abortOnClose is set where a client over TCP who ends its side while it waits is gone, as
	// after a time-out of its own: nothing is passed on of what it sent. Without, it is thought
	// to have said all and to listen. By default true for http, else false.
	// +optional
	AbortOnClose *bool `json:"abortOnClose,omitempty"`

	// asleep is what the resolver tells server lists in the server's place, where the protocol
	// is a game's, and probes, where it is http. The number of players is 0.
	// +optional
	Asleep *Asleep `json:"asleep,omitempty"`

	// http has settings of a port whose protocol is http.
	// +optional
	HTTP *PortHTTP `json:"http,omitempty"`
}

// Asleep is what a resolver tells server lists and probes while a service sleeps and wakes.
type Asleep struct {
	// motd is the message of the day while the service sleeps, or the server's name where the
	// protocol has no message. What is too long for the protocol is cut off.
	// +optional
	// +kubebuilder:default="Asleep. Join to wake it up."
	// +kubebuilder:validation:MaxLength=256
	MOTD string `json:"motd,omitempty"`

	// wakingMotd takes its place while the service wakes, and stands in http's waiting page.
	// {elapsed} in it becomes the time since the wake, such as 45s or 1m5s.
	// +optional
	// +kubebuilder:default="Waking up, {elapsed} so far."
	// +kubebuilder:validation:MaxLength=256
	WakingMOTD string `json:"wakingMotd,omitempty"`

	// rejoin is what a player of Minecraft's Java edition reads who was held for as long as may
	// be: 25 s with 1.12 and older, where the game itself would soon give up, else
	// hold.timeout.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	Rejoin string `json:"rejoin,omitempty"`

	// version is the name of the server's version.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Version string `json:"version,omitempty"`

	// protocolVersion is the number of the version of the game's protocol, by which lists tell
	// who can join. By default Minecraft's Java edition is told the client's own, the Bedrock
	// edition 0, and Quake 3 its own, 68.
	// +optional
	// +kubebuilder:validation:Minimum=1
	ProtocolVersion int32 `json:"protocolVersion,omitempty"`

	// maxPlayers is how many may play. By default what the game's servers have by default: 20
	// in Minecraft's Java edition, 10 in the Bedrock edition, else 16.
	// +optional
	// +kubebuilder:validation:Minimum=1
	MaxPlayers int32 `json:"maxPlayers,omitempty"`

	// favicon is the picture in the list of Minecraft's Java edition: a PNG of 64 by 64 pixels
	// as a data URI.
	// +optional
	// +kubebuilder:validation:MaxLength=16384
	// +kubebuilder:validation:XValidation:rule="self.matches('^data:image/png;base64,[A-Za-z0-9+/]+=*$')",message="favicon must be data:image/png;base64, and a PNG in base64 without line ends"
	Favicon string `json:"favicon,omitempty"`

	// map is the level that lists show; in the Bedrock edition the second line.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Map string `json:"map,omitempty"`

	// game is what the game is called. Clients of Quake 3's family pass over a server of
	// another game than theirs.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Game string `json:"game,omitempty"`

	// folder is the game's directory, in the protocol source.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Folder string `json:"folder,omitempty"`

	// appID is the game's number on Steam, in the protocol source.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=4294967295
	AppID int64 `json:"appID,omitempty"`

	// probes are the requests of health checks and uptime monitors that are answered while the
	// service sleeps and wakes, and wake nothing. The first that fits a request answers it; a
	// request that none fits wakes the service. For the protocol http.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	Probes []HTTPProbe `json:"probes,omitempty"`
}

// Balance decides which Server or pod a new client gets.
// +kubebuilder:validation:Enum=Spread;Packed
type Balance string

const (
	// BalanceSpread picks the emptiest server.
	BalanceSpread Balance = "Spread"
	// BalancePacked picks the fullest server that has room.
	BalancePacked Balance = "Packed"
)

// ProxyProtocol is what the resolver reads and writes of the PROXY protocol, by which proxies
// tell each other where a client really is. It is for TCP: ports over UDP do without.
//
// +kubebuilder:validation:XValidation:rule="has(self.trustedCIDRs) || (has(self.send) && self.send)",message="proxyProtocol needs trustedCIDRs or send: true; remove it if neither is wanted"
type ProxyProtocol struct {
	// trustedCIDRs are the addresses of the load balancers in front of the resolver that send a
	// header, such as 10.0.0.0/8 or 2001:db8::/32. A connection from there must begin with one,
	// of version 1 or 2, which then says where the client is; without one it is refused. What
	// comes from anywhere else is passed on as it is.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=43
	// +kubebuilder:validation:items:XValidation:rule="isCIDR(self)",message="trustedCIDRs must be networks such as 10.0.0.0/8 or 2001:db8::/32"
	TrustedCIDRs []string `json:"trustedCIDRs,omitempty"`

	// send makes the resolver begin each connection to a server with a header of version 2. It
	// names the client, or the resolver where that itself asks the server something. The
	// server must be set up to take such headers.
	// +optional
	Send bool `json:"send,omitempty"`
}

// PortHTTP is how clients of a port with the protocol http are treated while they have no server.
// +kubebuilder:validation:MinProperties=1
type PortHTTP struct {
	// waitingPage, where it is there, even if it is empty, has a browser that opens a page while
	// no server is up shown one that says that the service is waking and loads itself again
	// until it is up. Such a request wakes the service like any other, and waits for a quarter
	// of a second at most. It is a GET whose Accept names text/html first and which, where the
	// browser says so (Sec-Fetch-Mode and Sec-Fetch-Dest), opens a document. All others wait
	// for the server. By default browsers do, too.
	// +optional
	WaitingPage *WaitingPage `json:"waitingPage,omitempty"`

	// coldStartHeader adds the header "Cold-Start: true" to the response to a request that waited
	// for a server: the first final one to a client that was held. Nothing is added to what is
	// no plain HTTP/1, such as HTTP/2 and TLS, nor where the protocol changes, as with WebSocket.
	// By default the resolver adds nothing to what a server sends.
	// +optional
	ColdStartHeader bool `json:"coldStartHeader,omitempty"`
}

// WaitingPage is what a browser shows while a service wakes. Its texts are no HTML: all that
// stands in them is shown as it is.
type WaitingPage struct {
	// title is the page's title and heading; by default the Service's name and "is waking up".
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=128
	Title string `json:"title,omitempty"`

	// message is the sentence below it, in which {elapsed} becomes the time since the wake, such
	// as 45s or 1m5s. By default asleep.wakingMotd, once the resolver knows since when the
	// service has been waking.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	Message string `json:"message,omitempty"`
}

// HTTPProbeMethod is the method of a request that is answered while a service sleeps.
// +kubebuilder:validation:Enum=GET;HEAD;OPTIONS;POST
type HTTPProbeMethod string

// HTTPProbe is a request that is answered while the service sleeps, and its answer.
// +kubebuilder:validation:XValidation:rule="[has(self.path), has(self.pathPrefix), has(self.pathRegex)].exists_one(x, x)",message="a probe needs one of path, pathPrefix and pathRegex"
type HTTPProbe struct {
	// method is the request's method. GET answers HEAD as well.
	// +optional
	// +kubebuilder:default=GET
	Method HTTPProbeMethod `json:"method,omitempty"`

	// path is the request's path as it is sent, letter for letter, without what the request has
	// after a '?'.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:XValidation:rule="self.matches('^/[!$-;=@-Z_a-z~]*$')",message="path must start with '/' and have no spaces, '?' or '#'"
	Path string `json:"path,omitempty"`

	// pathPrefix, in path's place, is what the path begins with, up to a '/' or its end: /health
	// fits /health and /health/ready, and not /healthz. / fits any path.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:XValidation:rule="self.matches('^/[!$-;=@-Z_a-z~]*$')",message="pathPrefix must start with '/' and have no spaces, '?' or '#'"
	PathPrefix string `json:"pathPrefix,omitempty"`

	// pathRegex, in path's place, is a regular expression in RE2's syntax that fits some part of
	// the path; with ^ and $ around it, all of it. It fits no path of more than 1 KiB, and
	// nothing at all if it comes to more than 300 instructions with its repetitions written out,
	// as x{0,99} twice does. What no probe fits wakes the service.
	// +optional
	PathRegex HTTPRegex `json:"pathRegex,omitempty"`

	// queryParams are what the request's query must have, all of them. A parameter that it has
	// several times fits with one of its values.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=8
	QueryParams []HTTPQueryParamMatch `json:"queryParams,omitempty"`

	// headers are what the request must have, all of them.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=8
	Headers []HTTPHeaderMatch `json:"headers,omitempty"`

	// response is the answer.
	// +optional
	// +kubebuilder:default={}
	Response HTTPProbeResponse `json:"response,omitempty"`
}

// HTTPHeaderMatch is a header that a request must have.
// +kubebuilder:validation:XValidation:rule="[has(self.value), has(self.prefix), has(self.regex)].exists_one(x, x)",message="a header to match needs one of value, prefix and regex"
type HTTPHeaderMatch struct {
	// name is the header's name, in lower or upper case.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="self.matches('^[-!#$%&*+.^_|~0-9A-Za-z]+$')",message="name must be a header's name, such as User-Agent"
	Name string `json:"name"`

	// value is the header's whole value, letter for letter.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	// +kubebuilder:validation:XValidation:rule="self.matches('^[!-~]([ -~]*[!-~])?$')",message="value must be of visible ASCII characters, with spaces only in between"
	Value string `json:"value,omitempty"`

	// prefix is what the header's value begins with, letter for letter, such as kube-probe/ in
	// a User-Agent.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	// +kubebuilder:validation:XValidation:rule="self.matches('^[!-~][ -~]*$')",message="prefix must be of visible ASCII characters and spaces"
	Prefix string `json:"prefix,omitempty"`

	// regex is a regular expression in RE2's syntax that fits some part of the header's value;
	// with ^ and $ around it, all of it. It is bounded as pathRegex is.
	// +optional
	Regex HTTPRegex `json:"regex,omitempty"`
}

// HTTPProbeResponse is what a probe is answered.
// +kubebuilder:validation:XValidation:rule="!has(self.body) || !has(self.status) || !(self.status in [204, 205, 304])",message="a response with the status 204, 205 or 304 has no body; remove it"
type HTTPProbeResponse struct {
	// status is the status code.
	// +optional
	// +kubebuilder:default=200
	// +kubebuilder:validation:Minimum=200
	// +kubebuilder:validation:Maximum=599
	Status int32 `json:"status,omitempty"`

	// headers are sent beside Date, Content-Length, Connection and, where there is a body, the
	// Content-Type text/plain, which one of them may replace.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=8
	Headers []HTTPHeader `json:"headers,omitempty"`

	// body is the body, in UTF-8.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=2048
	Body string `json:"body,omitempty"`
}

// HTTPHeader is a header of an answer.
type HTTPHeader struct {
	// name is the header's name.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="self.matches('^[-!#$%&*+.^_|~0-9A-Za-z]+$') && !(self.lowerAscii() in ['connection', 'content-length', 'date', 'keep-alive', 'proxy-connection', 'te', 'trailer', 'transfer-encoding', 'upgrade'])",message="name must be a header's name, such as Content-Type, and none that says how the answer is sent"
	Name string `json:"name"`

	// value is the header's value.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	// +kubebuilder:validation:XValidation:rule="self.matches('^[!-~]([ -~]*[!-~])?$')",message="value must be of visible ASCII characters, with spaces only in between"
	Value string `json:"value"`
}

// HTTPQueryParamMatch is a parameter that a request's query must have, as in ?name=value.
// +kubebuilder:validation:XValidation:rule="has(self.value) != has(self.regex)",message="a parameter to match needs either value or regex"
type HTTPQueryParamMatch struct {
	// name is the parameter's name, letter for letter.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="self.matches('^[ -~]+$')",message="name must be of visible ASCII characters and spaces"
	Name string `json:"name"`

	// value is the parameter's whole value, letter for letter, without the query's %-escapes.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	// +kubebuilder:validation:XValidation:rule="self.matches('^[ -~]+$')",message="value must be of visible ASCII characters and spaces"
	Value string `json:"value,omitempty"`

	// regex is a regular expression in RE2's syntax that fits some part of the value; with ^ and
	// $ around it, all of it. It is bounded as a probe's pathRegex is.
	// +optional
	Regex HTTPRegex `json:"regex,omitempty"`
}

// HTTPRegex is a regular expression in RE2's syntax, without long repetitions: it takes time and
// memory in proportion to its length with those written out.
// +kubebuilder:validation:MinLength=1
// +kubebuilder:validation:MaxLength=256
// +kubebuilder:validation:XValidation:rule="self.matches('^[ -~]+$')",message="regex must be of visible ASCII characters and spaces"
// +kubebuilder:validation:XValidation:rule="!self.matches('[{]([0-9]+,)?[0-9]{3}')",message="regex must not repeat anything 100 times or more"
// +kubebuilder:validation:XValidation:rule="'a'.matches(self) in [true, false]",message="regex must be a regular expression in RE2's syntax"
type HTTPRegex string

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
