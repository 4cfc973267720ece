package elasticservice

import (
	"errors"
	"fmt"
	"hash/fnv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"dormouse.dev/dormouse/api/v1alpha1"
)

// portRest is how long a freed resolver port is not given out again, so that no
// kube-proxy and no client still means the service that had it.
const portRest = 10 * time.Minute

// maxPorts is how many ports of a Service can be held.
const maxPorts = 64

// Why there is no resolver port.
var (
	errNoPort        = fmt.Errorf("none from %d to %d is free", v1alpha1.MinResolverPort, v1alpha1.MaxResolverPort)
	errNamespaceFull = errors.New("the namespace has as many as it may have")
)

// allocator gives out resolver ports. What it knows comes from the
// ElasticServices' status, which is where the ports are kept, those of fronts too.
type allocator struct {
	// most is how many a namespace may have; 0 is any number. What it has it keeps.
	most int

	mu      sync.Mutex
	counts  map[string]int // by namespace
	owners  map[int32]portOwner
	ports   map[portOwner]int32
	resting map[int32]time.Time // until when
}

// portOwner is one port of one ElasticService.
type portOwner struct {
	namespace string
	uid       types.UID
	name      string
	protocol  corev1.Protocol
}

func newAllocator(most int) *allocator {
	return &allocator{most: most, counts: map[string]int{}, owners: map[int32]portOwner{}, ports: map[portOwner]int32{}, resting: map[int32]time.Time{}}
}

// learn takes in a port that is in use according to an object's status, and says
// whether it is that object's: of two, the one that was learnt first keeps it.
func (a *allocator) learn(port int32, owner portOwner) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if known, taken := a.owners[port]; taken {
		return known == owner
	}
	if _, has := a.ports[owner]; has {
		return false // it has another one
	}
	a.give(port, owner)
	return true
}

func (a *allocator) give(port int32, owner portOwner) {
	a.owners[port], a.ports[owner] = owner, port
	a.counts[owner.namespace]++
	delete(a.resting, port)
}

// take takes a port back, and lets it rest.
func (a *allocator) take(now time.Time, port int32) {
	owner := a.owners[port]
	delete(a.owners, port)
	delete(a.ports, owner)
	if a.counts[owner.namespace]--; a.counts[owner.namespace] == 0 {
		delete(a.counts, owner.namespace)
	}
	a.resting[port] = now.Add(portRest)
}

// allocate gives out the port that the owner has, though it may not be in the
// status yet, or else one that nobody has and that is not resting. Where the
// search begins depends on the owner, which spreads ports out: a new object
// hardly ever gets one that another had just before.
func (a *allocator) allocate(now time.Time, owner portOwner, inUse func(int32) bool) (int32, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if port, has := a.ports[owner]; has {
		return port, nil
	}
	if a.most > 0 && a.counts[owner.namespace] >= a.most {
		return 0, errNamespaceFull
	}
	const span = v1alpha1.MaxResolverPort - v1alpha1.MinResolverPort + 1
	h := fnv.New32a()
	_, _ = h.Write([]byte(string(owner.uid) + "/" + owner.name))
	start := h.Sum32() % span
	for i := range uint32(span) {
		port := v1alpha1.MinResolverPort + int32((start+i)%span)
		if _, taken := a.owners[port]; taken || now.Before(a.resting[port]) || inUse(port) {
			continue
		}
		a.give(port, owner)
		return port, nil
	}
	return 0, errNoPort
}

// freeAll lets all ports of an owner rest, unless somebody has begun to use them.
func (a *allocator) freeAll(now time.Time, uid types.UID, unused func() bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	var freed []portOwner
	for owner := range a.ports {
		if owner.uid == uid {
			freed = append(freed, owner)
		}
	}
	if len(freed) == 0 || !unused() {
		return
	}
	for _, owner := range freed {
		a.take(now, a.ports[owner])
	}
}

// free lets a port rest.
func (a *allocator) free(now time.Time, port int32, uid types.UID) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if owner, taken := a.owners[port]; taken && owner.uid == uid {
		a.take(now, port)
	}
	for p, until := range a.resting {
		if now.After(until) {
			delete(a.resting, p)
		}
	}
}

// planPorts gives each port of the Service its entry in the status: it keeps the
// resolver port that it has, unless that is somebody else's, and gets a new one
// otherwise. Entries of ports that are gone free theirs. A flaw is why a port has no entry,
// or not the one that the spec asks for.
func planPorts(now time.Time, es *v1alpha1.ElasticService, svc *corev1.Service, a *allocator, inUse func(int32) bool) (ports []v1alpha1.PortStatus, flaw *obstacle) {
	known := map[string]v1alpha1.PortStatus{}
	for _, p := range es.Status.Ports {
		known[p.Name] = p
	}
	specs, flaw := portSpecs(es, svc)
	ports = make([]v1alpha1.PortStatus, 0, len(svc.Spec.Ports))
	kept := map[int32]bool{}
	for _, sp := range svc.Spec.Ports {
		if !holdable(sp) {
			continue
		}
		want := v1alpha1.PortStatus{
			Name:      sp.Name,
			Protocol:  defaultProtocol(sp.Protocol),
			Readiness: v1alpha1.ReadinessAuto,
		}
		if spec, ok := specs[sp.Name]; ok {
			if spec.Protocol != "" {
				want.Protocol = spec.Protocol
			}
			if spec.Readiness != "" {
				want.Readiness = spec.Readiness
			}
		}
		if len(ports) == maxPorts {
			flaw = &obstacle{v1alpha1.ReasonTooManyPorts, fmt.Sprintf(
				"Service %s has %d ports, of which the first %d are held: share them out among several Services, or leave some out.", svc.Name, len(svc.Spec.Ports), maxPorts)}
			break
		}
		owner := portOwner{es.Namespace, es.UID, sp.Name, want.Protocol.Transport()}
		old, had := known[sp.Name]
		if had && old.Protocol.Transport() == want.Protocol.Transport() && a.learn(old.ResolverPort, owner) {
			want.ResolverPort = old.ResolverPort
		} else {
			port, err := a.allocate(now, owner, inUse)
			if err != nil {
				flaw = a.exhausted(err, es.Namespace, fmt.Sprintf("port %q", sp.Name))
				continue
			}
			want.ResolverPort = port
		}
		kept[want.ResolverPort] = true
		ports = append(ports, want)
	}
	for _, old := range es.Status.Ports {
		if !kept[old.ResolverPort] {
			a.free(now, old.ResolverPort, es.UID)
		}
	}
	return ports, flaw
}

// exhausted is the obstacle that there is no resolver port.
func (a *allocator) exhausted(err error, namespace, what string) *obstacle {
	advice := "remove ElasticServices that are no longer needed"
	if errors.Is(err, errNamespaceFull) {
		err = fmt.Errorf("namespace %s has %d, as many as it may have", namespace, a.most)
		advice += " there, or raise the operator's --max-ports-per-namespace"
	}
	return &obstacle{v1alpha1.ReasonPortsExhausted, fmt.Sprintf("There is no resolver port for %s: %s; %s.", what, err, advice)}
}

func defaultProtocol(p corev1.Protocol) v1alpha1.Protocol {
	if p == corev1.ProtocolUDP {
		return v1alpha1.ProtocolUDP
	}
	return v1alpha1.ProtocolTCP
}
