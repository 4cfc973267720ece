package hostports

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/api/wellknown"
)

// refusedFor is how long a host port is avoided for all Servers after a Pod found no node on
// which it was free.
const refusedFor = time.Hour

// FirstPatience is how long a Pod waits for a host port before another one is tried, the first
// time, where the count of our own Pods doesn't explain the wait: a Pod of somebody else may
// have it.
const FirstPatience = 30 * time.Second

// Picker picks host ports so that each number is used about equally often. The scheduler, which
// knows all Pods, takes care that no node has one twice: many nodes can have a Server each with
// the same number. The picker counts the Pods' ports, and is filled from the Pods.
type Picker struct {
	low, high int32
	services  UDPServices
	// now is the clock, and chance a number from 0 to n-1.
	now    func() time.Time
	chance func(n int32) int32

	mu      sync.Mutex
	uses    map[int32]int
	servers map[types.UID][]int32
	// waiting are the Servers whose Pod has no node for want of a port.
	waiting map[types.NamespacedName]bool
	// refused are the numbers that a Pod of ours waited for in vain, and since when: somebody
	// else's Pods, which aren't counted here, may have them on every node.
	refused map[int32]time.Time
	// tries counts how many numbers each Server has given up since it last ran.
	tries map[types.UID]int
}

// UDPServices finds out which numbers are UDP ports of Services. A Pod with such a UDP host
// port ends the sessions of the Service's players: see package udpports.
type UDPServices interface {
	// Elastic reports whether a number is one of an ElasticService's.
	Elastic(number int32) bool
	// Any reports whether it is one of any Service's.
	Any(number int32) bool
}

// NewPicker makes a picker of the numbers from low to high.
func NewPicker(low, high int32, services UDPServices, now func() time.Time) *Picker {
	return &Picker{
		low: low, high: high, services: services, now: now, chance: rand.Int32N,
		uses: map[int32]int{}, servers: map[types.UID][]int32{}, waiting: map[types.NamespacedName]bool{},
		refused: map[int32]time.Time{}, tries: map[types.UID]int{},
	}
}

// Refuse notes that a Server's Pod found no node with its picked numbers free.
func (p *Picker) Refuse(s *v1alpha1.Server) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.tries[s.UID]++
	for i, number := range p.servers[s.UID] {
		if i < len(s.Spec.Ports) && picked(s.Spec.Ports[i]) && number != 0 {
			p.refused[number] = p.now()
		}
	}
}

// avoided reports whether a number was refused within refusedFor.
func (p *Picker) avoided(number int32) bool {
	at, refused := p.refused[number]
	if refused && p.now().Sub(at) >= refusedFor {
		delete(p.refused, number)
		return false
	}
	return refused
}

// Placed notes that a Server's Pod has found a node, on which its numbers were free.
func (p *Picker) Placed(server types.UID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.tries, server)
	for _, number := range p.servers[server] {
		delete(p.refused, number)
	}
}

// Patience is how long a Server's Pod waits for its numbers before others are tried: longer
// each time, because each try costs a Pod.
func (p *Picker) Patience(server types.UID) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return FirstPatience << min(p.tries[server], 4)
}

// Hold notes the ports of a Server's Pod, and forgets the previous ones. It returns the Servers
// that wait for a port if one came free.
func (p *Picker) Hold(server types.UID, ports []int32) []types.NamespacedName {
	p.mu.Lock()
	defer p.mu.Unlock()
	waiting := p.set(server, ports)
	if ports == nil {
		delete(p.tries, server)
	}
	return waiting
}

func (p *Picker) set(server types.UID, ports []int32) []types.NamespacedName {
	before := p.servers[server]
	for _, port := range ports {
		if port != 0 {
			p.uses[port]++
		}
	}
	freed := false
	for _, port := range before {
		if port == 0 {
			continue
		}
		if p.uses[port]--; p.uses[port] <= 0 {
			delete(p.uses, port)
		}
		if slices.Contains(ports, port) {
			continue
		}
		freed = true
		if p.tries[server] == 0 {
			delete(p.refused, port) // it got a node, so the number is free there
		}
	}
	if p.servers[server] = ports; len(ports) == 0 {
		delete(p.servers, server)
	}
	if !freed {
		return nil
	}
	keys := make([]types.NamespacedName, 0, len(p.waiting))
	for key := range p.waiting {
		keys = append(keys, key)
	}
	return keys
}

// Wait notes whether a Server waits for a port.
func (p *Picker) Wait(key types.NamespacedName, waits bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if waits {
		p.waiting[key] = true
	} else {
		delete(p.waiting, key)
	}
}

// Pick picks a Server's host ports and holds them for it: those that it had before where nobody
// else has got them, else a random one of those that are used least. It prefers numbers that
// are no Service's UDP port. A number that was refused is picked only where there is nothing
// else, and an ElasticService's last of all.
func (p *Picker) Pick(s *v1alpha1.Server) ([]int32, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	ports := make([]int32, len(s.Spec.Ports))
	taken := map[int32]bool{}
	var picks []int
	for i, port := range s.Spec.Ports {
		switch {
		case !Exposed(port):
		case port.HostPort == 0:
			picks = append(picks, i)
		default:
			ports[i], taken[port.HostPort] = port.HostPort, true
		}
	}
	before := map[string]int32{}
	for _, had := range s.Status.Ports {
		before[had.Name] = had.Port
	}
	if len(picks) > 0 {
		p.set(s.UID, nil)
	}
	for _, i := range picks {
		port := s.Spec.Ports[i]
		best := p.best(port, before[port.Name], taken)
		if best == 0 {
			return nil, fmt.Errorf("the operator's host ports from %d to %d are fewer than this Server's ports; give it fewer or widen --host-ports", p.low, p.high)
		}
		ports[i], taken[best] = best, true
	}
	p.set(s.UID, ports)
	return ports, nil
}

// best is the best number for a port, whose previous one was had, or 0; 0: there is none.
func (p *Picker) best(port v1alpha1.ServerPort, had int32, taken map[int32]bool) int32 {
	udp := overUDP(port)
	if had >= p.low && had <= p.high && !taken[had] && p.uses[had] == 0 && !p.avoided(had) && (!udp || !p.services.Elastic(had)) {
		return had
	}
	best, lowest := int32(0), cost{}
	count := p.high - p.low + 1
	start := p.chance(count)
	for i := range count {
		candidate := p.low + (start+i)%count
		if taken[candidate] || reserved(candidate) {
			continue
		}
		c := cost{avoided: p.avoided(candidate), uses: p.uses[candidate]}
		if best != 0 && c.compare(lowest) >= 0 {
			continue // whatever Services have it
		}
		c.elastic = udp && p.services.Elastic(candidate)
		c.ofService = udp && p.services.Any(candidate)
		if c == (cost{}) {
			return candidate // none is better
		}
		if best == 0 || c.compare(lowest) < 0 {
			best, lowest = candidate, c
		}
	}
	return best
}

// cost is what counts against a number, the most important first.
type cost struct {
	elastic, avoided bool
	uses             int
	ofService        bool
}

func (c cost) compare(other cost) int {
	return cmp.Or(
		compareBool(c.elastic, other.elastic), compareBool(c.avoided, other.avoided),
		cmp.Compare(c.uses, other.uses), compareBool(c.ofService, other.ofService),
	)
}

// compareBool orders false before true.
func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	default:
		return 1
	}
}

// elastic reports whether a port with the number would end the sessions of an ElasticService's
// players.
func (p *Picker) elastic(port v1alpha1.ServerPort, number int32) bool {
	return overUDP(port) && p.services.Elastic(number)
}

// Clashes reports whether any of a Server's picked ports is elastic and there are others.
func (p *Picker) Clashes(s *v1alpha1.Server, numbers []int32) bool {
	for i, number := range numbers {
		port := s.Spec.Ports[i]
		if !picked(port) || number == 0 || !p.elastic(port, number) {
			continue
		}
		for candidate := p.low; candidate <= p.high; candidate++ {
			if !reserved(candidate) && !slices.Contains(numbers, candidate) && !p.elastic(port, candidate) {
				return true
			}
		}
	}
	return false
}

// reserved reports whether the sidecar listens on a port.
func reserved(port int32) bool { return port >= wellknown.SDKGRPCPort && port <= wellknown.SidecarPort }

func overUDP(p v1alpha1.ServerPort) bool {
	return slices.Contains(p.Protocol.Transports(), corev1.ProtocolUDP)
}

// Better reports whether a Server that waits with these ports would be better off with others:
// ones with fewer users or, with inVain, any that has no more users and wasn't refused, because
// a Pod that isn't ours may have its own.
func (p *Picker) Better(s *v1alpha1.Server, inVain bool) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	mine := p.servers[s.UID]
	for i, port := range s.Spec.Ports {
		if i >= len(mine) || !picked(port) {
			continue
		}
		most := p.uses[mine[i]] - 2
		if inVain {
			most++
		}
		for candidate := p.low; candidate <= p.high; candidate++ {
			if p.uses[candidate] <= most && !reserved(candidate) && !slices.Contains(mine, candidate) && !p.elastic(port, candidate) &&
				!p.avoided(candidate) {
				return true
			}
		}
	}
	return false
}
