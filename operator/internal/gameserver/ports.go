package gameserver

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/internal/gamepod"
)

// exposed reports whether a port has a host port.
func exposed(p v1alpha1.ServerPort) bool {
	return p.Expose == v1alpha1.ExposeHostPort || p.Expose == v1alpha1.ExposePassthrough
}

// picked reports whether the operator picks the host port.
func picked(p v1alpha1.ServerPort) bool { return exposed(p) && p.HostPort == 0 }

// picksPorts reports whether the operator picks any of a Server's host ports.
func picksPorts(s *v1alpha1.Server) bool {
	return slices.ContainsFunc(s.Spec.Ports, picked)
}

// reserved reports whether the sidecar listens on a port.
func reserved(port int32) bool { return port >= sdkGRPCPort && port <= sidecarPort }

// listenPort is the port on which the game listens.
func listenPort(p v1alpha1.ServerPort, hostPort int32) int32 {
	if p.Expose == v1alpha1.ExposePassthrough {
		return hostPort
	}
	return p.ContainerPort
}

// portsOf are the ports to connect to at the Server's address: those that are exposed, on the
// node, or, where none is, all of them on the Pod. A Pod that was created from an older spec may
// lack a port.
func portsOf(s *v1alpha1.Server, pod *corev1.Pod) []v1alpha1.ServerPortStatus {
	var ports []v1alpha1.ServerPortStatus
	onNode := slices.ContainsFunc(s.Spec.Ports, exposed)
	for i, number := range hostPortsOf(s, pod) {
		port := s.Spec.Ports[i]
		if !onNode {
			number = port.ContainerPort
		}
		if number > 0 {
			ports = append(ports, v1alpha1.ServerPortStatus{Name: port.Name, Port: number, Protocol: port.Protocol.Transport()})
		}
	}
	return ports
}

// hostPortsOf are a Pod's host ports, in the order of spec.ports; 0 where there is none.
func hostPortsOf(s *v1alpha1.Server, pod *corev1.Pod) []int32 {
	numbers := make([]int32, len(s.Spec.Ports))
	for i := range pod.Spec.Containers {
		c := &pod.Spec.Containers[i]
		if c.Name != gamepod.ContainerOf(s, pod) {
			continue
		}
		used := make([]bool, len(c.Ports))
		for k, have := range c.Ports {
			used[k] = have.HostPort != 0 && slices.Contains(templatePorts(s), have)
		}
		for j, port := range s.Spec.Ports {
			for k, have := range c.Ports {
				if !used[k] && isPort(port, have) {
					numbers[j], used[k] = have.HostPort, true
					break
				}
			}
		}
	}
	return numbers
}

// templatePorts are the ports that the template gives the game's container itself.
func templatePorts(s *v1alpha1.Server) []corev1.ContainerPort {
	for _, c := range s.Spec.Template.Spec.Containers {
		if c.Name == gamepod.Container(s) {
			return c.Ports
		}
	}
	return nil
}

// isPort reports whether a port of the game's container is a Server's. The number tells it, where
// there is one: the template may have a port of the same name, and then ours has none.
func isPort(port v1alpha1.ServerPort, have corev1.ContainerPort) bool {
	if transport := port.Protocol.Transports()[0]; orDefault(string(have.Protocol), string(corev1.ProtocolTCP)) != string(transport) {
		return false
	}
	if port.Expose != v1alpha1.ExposePassthrough {
		return have.ContainerPort == port.ContainerPort
	}
	return have.HostPort != 0 && have.HostPort == have.ContainerPort && (have.Name == port.Name || have.Name == "")
}

// wantsPort reports whether, by the scheduler's message, a Pod waits for a host port.
func wantsPort(why string) bool {
	return strings.Contains(why, "free ports for the requested pod ports")
}

// refusedFor is how long a host port is avoided for all Servers after a Pod found no node on
// which it was free.
const refusedFor = time.Hour

// picker picks host ports so that each number is used about equally often. The scheduler, which
// knows all Pods, takes care that no node has one twice: many nodes can have a Server each with
// the same number. The picker counts the Pods' ports, and is filled from the Pods.
type picker struct {
	low, high int32
	services  udpServices
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

// udpServices finds out which numbers are UDP ports of Services. A Pod with such a UDP host
// port ends the sessions of the Service's players: see package udpports.
type udpServices interface {
	// Elastic reports whether a number is one of an ElasticService's.
	Elastic(number int32) bool
	// Any reports whether it is one of any Service's.
	Any(number int32) bool
}

func newPicker(low, high int32, services udpServices) *picker {
	return &picker{
		low: low, high: high, services: services, now: time.Now, chance: rand.Int32N,
		uses: map[int32]int{}, servers: map[types.UID][]int32{}, waiting: map[types.NamespacedName]bool{},
		refused: map[int32]time.Time{}, tries: map[types.UID]int{},
	}
}

// refuse notes that a Server's Pod found no node with its picked numbers free.
func (p *picker) refuse(s *v1alpha1.Server) {
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
func (p *picker) avoided(number int32) bool {
	at, refused := p.refused[number]
	if refused && p.now().Sub(at) >= refusedFor {
		delete(p.refused, number)
		return false
	}
	return refused
}

// placed notes that a Server's Pod has found a node, on which its numbers were free.
func (p *picker) placed(server types.UID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.tries, server)
	for _, number := range p.servers[server] {
		delete(p.refused, number)
	}
}

// patience is how long a Server's Pod waits for its numbers before others are tried: longer
// each time, because each try costs a Pod.
func (p *picker) patience(server types.UID) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return retryPort << min(p.tries[server], 4)
}

// hold notes the ports of a Server's Pod, and forgets the previous ones. It returns the Servers
// that wait for a port if one came free.
func (p *picker) hold(server types.UID, ports []int32) []types.NamespacedName {
	p.mu.Lock()
	defer p.mu.Unlock()
	waiting := p.set(server, ports)
	if ports == nil {
		delete(p.tries, server)
	}
	return waiting
}

func (p *picker) set(server types.UID, ports []int32) []types.NamespacedName {
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

// wait notes whether a Server waits for a port.
func (p *picker) wait(key types.NamespacedName, waits bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if waits {
		p.waiting[key] = true
	} else {
		delete(p.waiting, key)
	}
}

// portPick is the result of picking a Server's host ports.
type portPick struct {
	// numbers are in the order of spec.ports.
	numbers []int32
	// trouble is why there are none, so that no Pod can be created.
	trouble error
}

// pick picks a Server's host ports and holds them for it: those that it had before where nobody
// else has got them, else a random one of those that are used least. It prefers numbers that
// are no Service's UDP port. A number that was refused is picked only where there is nothing
// else, and an ElasticService's last of all.
func (p *picker) pick(s *v1alpha1.Server) ([]int32, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	ports := make([]int32, len(s.Spec.Ports))
	taken := map[int32]bool{}
	for i, port := range s.Spec.Ports {
		if exposed(port) {
			ports[i] = port.HostPort
			taken[port.HostPort] = true
		}
	}
	before := map[string]int32{}
	for _, had := range s.Status.Ports {
		before[had.Name] = had.Port
	}
	p.set(s.UID, nil)
	for i, port := range s.Spec.Ports {
		if !picked(port) {
			continue
		}
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
func (p *picker) best(port v1alpha1.ServerPort, had int32, taken map[int32]bool) int32 {
	if had >= p.low && had <= p.high && !taken[had] && p.uses[had] == 0 && !p.elastic(port, had) && !p.avoided(had) {
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
		c.elastic = p.elastic(port, candidate)
		c.ofService = overUDP(port) && p.services.Any(candidate)
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
func (p *picker) elastic(port v1alpha1.ServerPort, number int32) bool {
	return overUDP(port) && p.services.Elastic(number)
}

// clashes reports whether any of a Server's picked ports is elastic and there are others.
func (p *picker) clashes(s *v1alpha1.Server, numbers []int32) bool {
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

func overUDP(p v1alpha1.ServerPort) bool {
	return slices.Contains(p.Protocol.Transports(), corev1.ProtocolUDP)
}

// better reports whether a Server that waits with these ports would be better off with others:
// ones with fewer users or, with inVain, any that has no more users and wasn't refused, because
// a Pod that isn't ours may have its own.
func (p *picker) better(s *v1alpha1.Server, inVain bool) bool {
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
