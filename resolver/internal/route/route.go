// Package route owns the resolver's view of the cluster: which service is served on which port,
// in which phase it is, and where its pods are.
//
// Build and Backends are pure. Table keeps the latest of everything and hands out immutable
// Routes, one at a time, as they change. The packet path reads those and never asks the table.
package route

import (
	"cmp"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/resolver/internal/guard"
	"dormouse.dev/dormouse/resolver/internal/proto"
)

// Network is a transport protocol as the net package names it.
type Network string

// Networks.
const (
	TCP Network = "tcp"
	UDP Network = "udp"
)

// Defaults of a hold for objects that came without the API server's defaults.
const (
	defaultTimeout        = 5 * time.Minute
	defaultMaxConnections = 1000
	defaultMaxBytes       = 64 << 10
)

// DefaultHandshake is how long a client may take to say what it wants where no setting says.
const DefaultHandshake = 10 * time.Second

// Route is one ElasticService as it is served. It is never changed.
type Route struct {
	UID       types.UID
	Namespace string
	Name      string
	// Service is the name of the Service that the route stands in for.
	Service string
	Phase   v1alpha1.Phase
	// PhaseSince is when the phase began; zero where the status doesn't have it.
	PhaseSince time.Time
	// LastSleep is when the service last fell asleep; zero where it never did.
	LastSleep time.Time
	// LastWakeTime is when the service was last woken; zero where it never was.
	LastWakeTime time.Time
	// PodsBeforeSleep are the pods that were there at the last sleep. They may be gone by now;
	// it isn't known which stay.
	PodsBeforeSleep []types.UID
	// Direct reports whether new clients go to the pods past the resolver.
	Direct bool
	Hold   Hold
	Ports  []Port
	// Created decides between routes that claim the same port.
	Created time.Time
	// PrivateService is the headless Service whose slices name the pods.
	PrivateService string
	// Target is what the route scales, where that consists of Servers.
	Target Target
	// Front is the route's part of a front; nil where it has none.
	Front *Front
	// Balance is how the resolver chooses a new client's backend, where all clients go through
	// it; empty where clients of an awake service go past it.
	Balance v1alpha1.Balance
	// Proxy has the PROXY protocol's settings for TCP.
	Proxy Proxy
	// WaitsFor are the names of the services that this one needs and that aren't up. While there are
	// any, and the service isn't awake, nobody gets a backend.
	WaitsFor []string
}

// Proxy has the PROXY protocol's settings.
type Proxy struct {
	// Trusted are the sources whose connections begin with a header.
	Trusted []netip.Prefix
	// Send is set where connections to backends begin with a header.
	Send bool
}

// Trusts reports whether a connection from an address begins with a header.
func (p *Proxy) Trusts(source netip.Addr) bool {
	return slices.ContainsFunc(p.Trusted, func(n netip.Prefix) bool { return n.Contains(source) })
}

// Hold bounds what is kept for clients while the service wakes.
type Hold struct {
	// Timeout is how long a client is held; 0: for ever.
	Timeout time.Duration
	// MaxConnections is how many clients are held at once.
	MaxConnections int
	// MaxBytes bounds how much is kept of what one client sends.
	MaxBytes int
	// ReleaseConcurrency is how many TCP clients are released at once; 0: all.
	ReleaseConcurrency int
	// Handshake is how long a client may take to say what it wants.
	Handshake time.Duration
}

// Port is one service port.
type Port struct {
	Name     string
	Protocol v1alpha1.Protocol
	Network  Network
	// ResolverPort is where the resolver listens for it.
	ResolverPort int32
	// Probed reports whether a backend is up once Kubernetes reports it as serving, because the
	// pods have a readiness probe and the spec does not override that.
	Probed bool
	// ByConnect reports whether a backend is up once it accepts a connection, without a query
	// in its protocol.
	ByConnect bool
	// WakeOnConnect reports whether anything that a client sends wakes the service, even if its
	// protocol can classify clients.
	WakeOnConnect bool
	// AbortOnClose reports whether a client that ends its side while it waits counts as gone.
	AbortOnClose bool
	// Answers are what is answered in the backend's place.
	Answers proto.Answers
	// Guard has the rules of who may wake the service, and Players which players may; nil: all.
	Guard   guard.Rules
	Players *proto.Players
	// Probes are HTTP requests that are answered in the backend's place.
	Probes []proto.Probe
	// Page is what people are shown while the service wakes; nil: they wait like others.
	Page *proto.Page
	// MarksColdStarts reports whether the first response to a client that was held says so.
	MarksColdStarts bool
	// Taken names the older route that has the resolver port; empty when this route has it.
	Taken string
	// Backends are the pods' addresses for the port, each once, sorted: IPv4 comes first.
	Backends []Backend
}

// Backend is one pod's address for one port.
type Backend struct {
	Address netip.AddrPort
	// Pod is the UID of the pod: with two address families a pod has two
	// Backends. Empty when the slice doesn't say.
	Pod types.UID
	// Serving reports whether the pod is ready or, terminating, still serves. In the private
	// Service's slices the condition ready itself is always true.
	Serving bool
	// Unasked reports whether only a connection shows if the backend is up: nobody asks its game
	// whether it listens.
	Unasked bool
	// Terminating reports whether the backend takes no new clients: its pod is being deleted,
	// or may be because it is from before a sleep, or its Server drains, or the service waits for
	// others.
	Terminating bool
}

// AwaitsWake reports whether new clients must ask the operator before they are
// connected: a sleep is under way or done, and only a wake call undoes it.
func (r *Route) AwaitsWake() bool {
	return r.Phase != v1alpha1.PhaseAwake && r.Phase != v1alpha1.PhaseWaking
}

// Port finds a port by its name.
func (r *Route) Port(name string) (Port, bool) {
	for _, p := range r.Ports {
		if p.Name == name {
			return p, true
		}
	}
	return Port{}, false
}

// Has reports whether one of the port's backends has the address, whatever its state.
func (p *Port) Has(address netip.AddrPort) bool {
	return slices.ContainsFunc(p.Backends, func(b Backend) bool { return b.Address == address })
}

// Lost are the addresses that the port no longer has, and those that are now another pod's.
func (p *Port) Lost(before []Backend) map[netip.AddrPort]bool {
	pods := make(map[netip.AddrPort]types.UID, len(p.Backends))
	for _, b := range p.Backends {
		pods[b.Address] = b.Pod
	}
	lost := map[netip.AddrPort]bool{}
	for _, b := range before {
		if pod, ok := pods[b.Address]; !ok || pod != b.Pod {
			lost[b.Address] = true
		}
	}
	return lost
}

// Unserving are the addresses that served before and don't now.
func (p *Port) Unserving(before []Backend) map[netip.AddrPort]bool {
	served := make(map[netip.AddrPort]bool, len(before))
	for _, b := range before {
		served[b.Address] = b.Serving
	}
	unserving := map[netip.AddrPort]bool{}
	for _, b := range p.Backends {
		if served[b.Address] && !b.Serving {
			unserving[b.Address] = true
		}
	}
	return unserving
}

// Unserving reports whether a port of the route has an address that doesn't serve.
func (r *Route) Unserving(address netip.AddrPort) bool {
	for i := range r.Ports {
		for _, b := range r.Ports[i].Backends {
			if b.Address == address {
				return !b.Serving
			}
		}
	}
	return false
}

// Departed are the IP addresses of pods that are in no port of the route any more, or are now other pods'.
func (r *Route) Departed(before *Route) map[netip.Addr]bool {
	type pod struct {
		address netip.Addr
		uid     types.UID
	}
	there := map[pod]bool{}
	for i := range r.Ports {
		for _, b := range r.Ports[i].Backends {
			there[pod{b.Address.Addr(), b.Pod}] = true
		}
	}
	departed, stays := map[netip.Addr]bool{}, map[netip.Addr]bool{}
	for i := range before.Ports {
		for _, b := range before.Ports[i].Backends {
			address := b.Address.Addr()
			stays[address] = stays[address] || there[pod{address, b.Pod}] // pods of a node's network share its address
			departed[address] = !stays[address]
		}
	}
	return departed
}

// Build makes the route of an ElasticService, without backends.
func Build(es *v1alpha1.ElasticService) *Route {
	r := &Route{
		UID:            es.UID,
		Namespace:      es.Namespace,
		Name:           es.Name,
		Service:        es.Spec.Service,
		Phase:          es.Status.Phase,
		Direct:         es.Status.Mode == v1alpha1.ModeServe,
		Created:        es.CreationTimestamp.Time,
		PrivateService: es.Status.PrivateService,
		Target:         targetOf(es),
		Front:          frontOf(es),
		Hold: Hold{
			Timeout:        defaultTimeout,
			MaxConnections: defaultMaxConnections,
			MaxBytes:       defaultMaxBytes,
			Handshake:      DefaultHandshake,
		},
	}
	if t := es.Spec.Hold.Timeout; t != nil {
		r.Hold.Timeout = max(t.Duration, 0)
	}
	if n := es.Spec.Hold.MaxConnections; n > 0 {
		r.Hold.MaxConnections = int(n)
	}
	if n := es.Spec.Hold.MaxBytesPerConnection; n > 0 {
		r.Hold.MaxBytes = int(n)
	}
	r.Hold.ReleaseConcurrency = int(max(es.Spec.Hold.ReleaseConcurrency, 0))
	if t := es.Spec.Hold.HandshakeTimeout; t != nil && t.Duration > 0 {
		r.Hold.Handshake = t.Duration
	}
	if es.Spec.Handoff == v1alpha1.HandoffNever {
		r.Balance = cmp.Or(es.Spec.Balance, v1alpha1.BalanceSpread)
		r.Proxy = proxy(es.Spec.ProxyProtocol)
	}
	if since := es.Status.PhaseSince; since != nil {
		r.PhaseSince = since.Time
	}
	if slept := es.Status.LastSleepTime; slept != nil {
		r.LastSleep = slept.Time
	}
	if woken := es.Status.LastWakeTime; woken != nil {
		r.LastWakeTime = woken.Time
	}
	r.PodsBeforeSleep = es.Status.PodsBeforeSleep
	if r.Phase != v1alpha1.PhaseAwake {
		r.WaitsFor = es.Status.WaitsFor
	}
	players := playersOf(es)
	for _, p := range es.Status.Ports {
		network := TCP
		if p.Protocol.Transport() == corev1.ProtocolUDP {
			network = UDP
		}
		r.Ports = append(r.Ports, Port{
			Name:          p.Name,
			Protocol:      p.Protocol,
			Network:       network,
			ResolverPort:  p.ResolverPort,
			Probed:        p.Readiness != v1alpha1.ReadinessConnect && es.Status.Readiness == v1alpha1.PodReadinessProbe,
			ByConnect:     p.Readiness == v1alpha1.ReadinessConnect,
			WakeOnConnect: es.Spec.Wake != nil && es.Spec.Wake.When == v1alpha1.WakeOnConnect,
			AbortOnClose:  abortOnClose(es, p),
			Answers:       answers(es, p.Name),
			Guard:         rulesOf(es, sourceIPsPreserved(es, network, r.Proxy)),
			Players:       players,
			Probes:        probes(es, p.Name),
			Page:          page(es, p),

			MarksColdStarts: marksColdStarts(es, p),
		})
	}
	return r
}

// proxy converts settings that the API server has validated.
func proxy(spec *v1alpha1.ProxyProtocol) Proxy {
	if spec == nil {
		return Proxy{}
	}
	return Proxy{Trusted: networks(spec.TrustedCIDRs), Send: spec.Send}
}

// networks parses networks that the API server has validated.
func networks(texts []string) (out []netip.Prefix) {
	for _, text := range texts {
		if n, err := netip.ParsePrefix(text); err == nil {
			out = append(out, n.Masked())
		}
	}
	return out
}

// abortOnClose reports whether clients that end their side count as gone, by the spec or else
// by the default of the protocol.
func abortOnClose(es *v1alpha1.ElasticService, port v1alpha1.PortStatus) bool {
	for i := range es.Spec.Ports {
		if abort := es.Spec.Ports[i].AbortOnClose; abort != nil && es.Spec.Ports[i].Name == port.Name {
			return *abort
		}
	}
	return port.Protocol == v1alpha1.ProtocolHTTP
}

// answers are the port's answers in the spec.
func answers(es *v1alpha1.ElasticService, port string) proto.Answers {
	for i := range es.Spec.Ports {
		if a := es.Spec.Ports[i].Asleep; a != nil && es.Spec.Ports[i].Name == port {
			return proto.Answers{
				Asleep: a.MOTD, Waking: a.WakingMOTD, Rejoin: a.Rejoin,
				Version: a.Version, Protocol: a.ProtocolVersion, MaxPlayers: a.MaxPlayers, Favicon: a.Favicon,
				Map: a.Map, Game: a.Game, Folder: a.Folder, AppID: uint64(max(a.AppID, 0)),
			}
		}
	}
	return proto.Answers{}
}

// older reports whether a takes precedence over b for a port that both claim.
func older(a, b *Route) bool {
	if !a.Created.Equal(b.Created) {
		return a.Created.Before(b.Created)
	}
	return a.UID < b.UID
}
