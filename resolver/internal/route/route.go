// Package route owns what the resolver knows of the cluster: which service is
// served on which port, in which phase it is, and where its pods are.
//
// Build and Backends are pure. Table keeps the latest of everything and hands
// out immutable Routes, one at a time, as they change; whoever carries packets
// reads those and never asks the table.
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

// DefaultHandshake is for how long a client may say nothing where nobody says.
const DefaultHandshake = 10 * time.Second

// Route is one ElasticService as it is served. It is never changed.
type Route struct {
	UID       types.UID
	Namespace string
	Name      string
	// Service is the name of the Service that the route stands in for.
	Service string
	Phase   v1alpha1.Phase
	// PhaseSince is when the phase began; zero where the status doesn't say.
	PhaseSince time.Time
	// LastSleep is when the service last fell asleep; zero where it never did.
	LastSleep time.Time
	// PodsBeforeSleep are those that were there then, and may be gone by now, and of which
	// it isn't known whether they stay.
	PodsBeforeSleep []types.UID
	// Direct reports whether new clients go straight to the pods, past the resolver.
	Direct bool
	Hold   Hold
	Ports  []Port
	// Created decides between routes that claim one port.
	Created time.Time
	// PrivateService is the headless Service whose slices name the pods.
	PrivateService string
	// Target is what the route scales, where that has Servers.
	Target Target
	// Front is the route's part of a front; nil where it has none.
	Front *Front
	// Balance is how a new client's server is chosen by the resolver, which all
	// clients go through; empty where those of an awake service go past it.
	Balance v1alpha1.Balance
	// Proxy is what is spoken of the PROXY protocol over TCP.
	Proxy Proxy
}

// Proxy is what is spoken of the PROXY protocol.
type Proxy struct {
	// Trusted are those whose connections begin with a header.
	Trusted []netip.Prefix
	// Send begins connections to servers with one.
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
	// MaxBytes is how much of what one client sends is kept.
	MaxBytes int
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
	// Probed reports whether a backend is up once Kubernetes calls it serving, because
	// the pods have a readiness probe and the spec does not overrule it.
	Probed bool
	// ByConnect reports whether a server is up once it takes a connection, whatever its
	// protocol has to say.
	ByConnect bool
	// WakeOnConnect reports whether whatever a client sends wakes the service, though the
	// protocol knows better.
	WakeOnConnect bool
	// AbortOnClose reports whether a client who ends its side while it waits is gone.
	AbortOnClose bool
	// Answers are what is told in the server's place.
	Answers proto.Answers
	// Guard says who may wake the service, and Players which players; nil: all.
	Guard   guard.Rules
	Players *proto.Players
	// Probes are requests of HTTP that are answered so.
	Probes []proto.Probe
	// Taken names the older route that has the resolver port; empty when this
	// one has it.
	Taken string
	// Backends are the pods' addresses for the port, sorted: IPv4 comes first.
	Backends []Backend
}

// Backend is one pod's address for one port.
type Backend struct {
	Address netip.AddrPort
	// Pod is the UID of the pod: with two address families a pod has two
	// Backends. Empty when the slice doesn't say.
	Pod types.UID
	// Serving reports whether the pod is ready or, terminating, still serves. In the
	// private Service's slices ready itself is always true.
	Serving bool
	// Terminating reports whether it takes no new clients: its pod is being deleted, or may be
	// because it is from before a sleep, or its Server drains.
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

// Has reports whether one of the port's servers has the address, whatever its state.
func (p *Port) Has(address netip.AddrPort) bool {
	return slices.ContainsFunc(p.Backends, func(b Backend) bool { return b.Address == address })
}

// Lost are the addresses that the port had and has no more, and those that now
// are another pod's.
func (p *Port) Lost(before []Backend) map[netip.AddrPort]bool {
	lost := map[netip.AddrPort]bool{}
	for _, b := range before {
		if !slices.ContainsFunc(p.Backends, func(n Backend) bool { return n.Address == b.Address && n.Pod == b.Pod }) {
			lost[b.Address] = true
		}
	}
	return lost
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
	r.PodsBeforeSleep = es.Status.PodsBeforeSleep
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
			Guard:         rulesOf(es, sourcesKnown(es, network, r.Proxy)),
			Players:       players,
			Probes:        probes(es, p.Name),
		})
	}
	return r
}

// proxy reads what the API server has checked.
func proxy(spec *v1alpha1.ProxyProtocol) Proxy {
	if spec == nil {
		return Proxy{}
	}
	return Proxy{Trusted: networks(spec.TrustedCIDRs), Send: spec.Send}
}

// networks parses networks, as the API server has let them pass.
func networks(texts []string) (out []netip.Prefix) {
	for _, text := range texts {
		if n, err := netip.ParsePrefix(text); err == nil {
			out = append(out, n.Masked())
		}
	}
	return out
}

// abortOnClose is what the spec says of a port, or what its protocol's clients mean.
func abortOnClose(es *v1alpha1.ElasticService, port v1alpha1.PortStatus) bool {
	for i := range es.Spec.Ports {
		if abort := es.Spec.Ports[i].AbortOnClose; abort != nil && es.Spec.Ports[i].Name == port.Name {
			return *abort
		}
	}
	return port.Protocol == v1alpha1.ProtocolHTTP
}

// answers are what the spec says that a port answers.
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

// older reports whether a has a port that both claim.
func older(a, b *Route) bool {
	if !a.Created.Equal(b.Created) {
		return a.Created.Before(b.Created)
	}
	return a.UID < b.UID
}
