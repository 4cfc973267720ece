package dataplane

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/api/wellknown"
	"dormouse.dev/dormouse/resolver/internal/route"
)

var (
	churnTime = flag.Duration("churn", 12*time.Second, "how long services change under players")
	churnSeed = flag.Uint64("churn-seed", 1, "what the changes go by; 0: another one each time")
)

const (
	churnServices = 10
	churnPlayers  = 12
	// churnGrowth is how much more memory may be in use in the end than after a third of
	// the time: what differs is who happens to be there.
	churnGrowth = 3 << 20
	// churnIdle is how many idle connections to the operator there may be, of which both ends
	// are here.
	churnIdle = 8
)

// churn changes services at random under players, as an operator and its users would:
// by ElasticServices and EndpointSlices.
type churn struct {
	*rig
	table   *route.Table
	dice    *rand.Rand
	joins   map[v1alpha1.Protocol]string
	numbers []int32
	fronts  []int32
	// servers are the ports at which an echo answers over TCP and UDP.
	servers map[route.Network]int32
	// connected counts the connections that the TCP echo has.
	connected atomic.Int64
	services  [churnServices]*v1alpha1.ElasticService
	made      int
	// played and gone count what the players of services that change saw.
	played, gone atomic.Int64
}

func TestWhateverChangesHarmsNobodyElseAndLeavesNothing(t *testing.T) {
	seed := *churnSeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("the seed is %d", seed)
	c := newChurn(t, seed)
	settled := func() (sockets, goroutines int) { return openSockets(t), runtime.NumGoroutine() }
	// The loops, and what else is there once and for all.
	c.steady("warm", 0)
	warm := dialTCP(t, fmt.Sprintf("127.0.0.1:%d", c.numbers[0]))
	write(t, warm, "warm")
	expect(t, warm, "warm")
	_ = warm.Close()
	c.table.DeleteService("games", "warm")
	c.eventually("nobody is left", func() bool { return c.server.Clients() == 0 && c.server.Usage().Files == 0 })
	sockets, goroutines := settled()

	ctx, stop := context.WithTimeout(t.Context(), *churnTime)
	defer stop()
	var players sync.WaitGroup
	steady := []string{"steady-tcp", "steady-udp", "steady-front"}
	for i, name := range steady {
		c.steady(name, i)
	}
	players.Go(func() { c.steadyPlayer(ctx, "tcp", fmt.Sprintf("127.0.0.1:%d", c.numbers[0]), "hello", "") })
	players.Go(func() { c.steadyPlayer(ctx, "udp", fmt.Sprintf("127.0.0.1:%d", c.numbers[1]), "hello", "re:") })
	players.Go(func() {
		c.steadyPlayer(ctx, "tcp", fmt.Sprintf("127.0.0.1:%d", c.fronts[0]), login("steady.example.com"), "")
	})
	for i := range churnPlayers {
		dice := rand.New(rand.NewPCG(seed, uint64(i)))
		players.Go(func() { c.player(ctx, dice) })
	}
	began, changes := time.Now(), 0
	var early uint64
	most := 0
	for ; ctx.Err() == nil; changes++ {
		c.change()
		most = max(most, c.slots())
		if early == 0 && time.Since(began) > *churnTime/3 {
			early = inUse()
		}
		<-time.After(time.Duration(c.dice.IntN(2000)) * time.Microsecond)
	}
	late := inUse()
	players.Wait()
	t.Logf("%d changes; players of what changed were served %d times, and turned away or cut %d times; memory %d KB, then %d KB",
		changes, c.played.Load(), c.gone.Load(), early>>10, late>>10)
	if c.played.Load() < 100 {
		t.Errorf("players of what changed were served %d times only", c.played.Load())
	}
	if most == 0 {
		t.Error("no client ever had a slot: none of the services that choose servers had players")
	}
	c.eventually("nobody has a slot", func() bool { return c.slots() == 0 })
	if late > early+churnGrowth {
		t.Errorf("memory grew from %d to %d bytes", early, late)
	}

	for i := range c.services {
		c.remove(i)
	}
	for _, name := range steady {
		c.table.DeleteService("games", name)
	}
	s := c.server
	c.eventually("nothing is left", func() bool { return c.left() == "" })
	if left := c.left(); left != "" {
		t.Error("there is left: " + left)
	}
	if !within(patience, func() bool { return c.connected.Load() == 0 }) {
		t.Errorf("%d connections to a server are left of nobody", c.connected.Load())
	}
	if !within(patience, func() bool {
		s, g := settled()
		return s <= sockets+2*churnIdle && g <= goroutines+2*churnIdle
	}) {
		s, g := settled()
		stacks := make([]byte, 1<<20)
		t.Errorf("of %d sockets there are %d, and of %d goroutines %d:\n%s", sockets, s, goroutines, g, stacks[:runtime.Stack(stacks, true)])
	}
	if n := len(s.ended); n > 3*reapLeast {
		t.Errorf("%d listeners that have ended are kept", n)
	}
}

// slots are those of all services.
func (c *churn) slots() (slots int) {
	c.server.mu.Lock()
	defer c.server.mu.Unlock()
	for _, sv := range c.server.services {
		slots += sv.Queue.Slots()
	}
	return slots
}

// left names the counters that aren't zero.
func (c *churn) left() string {
	s := c.server
	s.mu.Lock()
	defer s.mu.Unlock()
	var left []string
	for name, n := range map[string]int{
		"sessions": int(s.Shared.Sessions.Load()), "files": s.Usage().Files, "files of ports": s.Usage().PortFiles,
		"UDP sessions": s.Usage().UDPSessions, "bytes held": int(s.Usage().HeldBytes), "bytes of stalled relays": int(s.Usage().StalledBytes),
		"services": len(s.services), "fronts": len(s.fronts), "names": len(s.named),
	} {
		if n != 0 {
			left = append(left, fmt.Sprintf("%d %s", n, name))
		}
	}
	if n := s.closing.Len(); n > 0 {
		left = append(left, fmt.Sprintf("%d UDP sockets that are closing", n))
	}
	families, err := c.metrics.Gather()
	if err != nil {
		return err.Error()
	}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			for _, l := range m.GetLabel() {
				if l.GetName() == "service" {
					left = append(left, "a series of "+family.GetName())
				}
			}
		}
	}
	slices.Sort(left)
	return strings.Join(left, ", ")
}

func newChurn(t *testing.T, seed uint64) *churn {
	c := &churn{
		rig: newRig(t, udpIdle(300*time.Millisecond)), dice: rand.New(rand.NewPCG(seed, 1<<32)),
		joins: joins(t), servers: map[route.Network]int32{},
	}
	c.joins[v1alpha1.ProtocolTLS] = recorded(t, v1alpha1.ProtocolTLS, "go")
	c.table = route.NewTable(c.server)
	for range 14 {
		c.numbers = append(c.numbers, int32(freePort(t, route.TCP)))
	}
	for range 2 {
		c.fronts = append(c.fronts, int32(freePort(t, route.TCP)))
	}
	tcp, udp := freeAddress(t, route.TCP), freeAddress(t, route.UDP)
	listenTCP(t, tcp, func(one *net.TCPConn) {
		c.connected.Add(1)
		defer c.connected.Add(-1)
		echo(one)
	})
	listenUDP(t, udp)
	for network, address := range map[route.Network]string{route.TCP: tcp, route.UDP: udp} {
		_, port, _ := net.SplitHostPort(address)
		var number int32
		_, _ = fmt.Sscan(port, &number)
		c.servers[network] = number
	}
	return c
}

func (c *churn) port(name string, protocol v1alpha1.Protocol, number int32) v1alpha1.PortStatus {
	return v1alpha1.PortStatus{Name: name, Protocol: protocol, Readiness: v1alpha1.ReadinessConnect, ResolverPort: number}
}

func (c *churn) service(name string, age time.Duration) *v1alpha1.ElasticService {
	c.made++
	es := &v1alpha1.ElasticService{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "games", Name: name, UID: types.UID(fmt.Sprintf("uid-%d", c.made)),
			CreationTimestamp: metav1.NewTime(time.Now().Add(-age)),
		},
		Spec: v1alpha1.ElasticServiceSpec{Service: name},
		Status: v1alpha1.ElasticServiceStatus{
			Phase: v1alpha1.PhaseAsleep, PrivateService: name + "-private", Readiness: v1alpha1.PodReadinessConnect,
		},
	}
	es.Spec.Hold.Timeout = &metav1.Duration{Duration: time.Second}
	return es
}

// steady makes a service that is awake and never changes, the older the better its
// right to what it has.
func (c *churn) steady(name string, i int) {
	es := c.service(name, time.Hour)
	protocol := []v1alpha1.Protocol{v1alpha1.ProtocolTCP, v1alpha1.ProtocolUDP, v1alpha1.ProtocolMinecraft}[i]
	es.Status.Ports = []v1alpha1.PortStatus{c.port("game", protocol, c.numbers[i])}
	es.Status.Phase = v1alpha1.PhaseAwake
	if protocol == v1alpha1.ProtocolMinecraft {
		es.Status.Front = &v1alpha1.FrontStatus{Namespace: "edge", Service: "mc", TargetPort: "game", ResolverPort: c.fronts[0], Hosts: []v1alpha1.FrontHost{"steady.example.com"}}
	}
	c.table.SetSlice(c.slice(es))
	c.table.SetService(es)
}

// slice is that of a service's servers.
func (c *churn) slice(es *v1alpha1.ElasticService) *discoveryv1.EndpointSlice {
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Namespace: "games", Name: es.Name, Labels: map[string]string{
			discoveryv1.LabelServiceName: es.Status.PrivateService, discoveryv1.LabelManagedBy: "endpointslice-controller.k8s.io",
			wellknown.PrivateServiceLabel: es.Spec.Service,
		}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints: []discoveryv1.Endpoint{{
			Addresses: []string{"127.0.0.1"}, Conditions: discoveryv1.EndpointConditions{Ready: new(true), Serving: new(true), Terminating: new(false)},
		}},
	}
	for _, p := range es.Status.Ports {
		transport := p.Protocol.Transport()
		slice.Ports = append(slice.Ports, discoveryv1.EndpointPort{
			Name: new(p.Name), Protocol: &transport, Port: new(c.servers[networkOf(p.Protocol)]),
		})
	}
	return slice
}

// change changes one thing.
func (c *churn) change() {
	i := c.dice.IntN(churnServices)
	es := c.services[i]
	if es == nil {
		c.services[i] = c.service(fmt.Sprintf("s%d", c.dice.IntN(churnServices)), time.Duration(c.dice.IntN(1000))*time.Second)
		es = c.services[i]
		// Names are those of one ElasticService at a time.
		for j, other := range c.services {
			if j != i && other != nil && other.Name == es.Name {
				c.services[i] = nil
				return
			}
		}
		for range 1 + c.dice.IntN(3) {
			c.addPort(es)
		}
	} else {
		es = es.DeepCopy()
		c.services[i] = es
	}
	switch c.dice.IntN(12) {
	case 0:
		c.remove(i)
		return
	case 1:
		c.addPort(es)
	case 2:
		if len(es.Status.Ports) > 1 {
			es.Status.Ports = es.Status.Ports[1:]
		}
	case 3, 4: // another protocol at the same number
		p := &es.Status.Ports[c.dice.IntN(len(es.Status.Ports))]
		p.Protocol = c.protocol()
	case 5: // another name
		es.Status.Ports[c.dice.IntN(len(es.Status.Ports))].Name = fmt.Sprintf("p%d", c.dice.IntN(1000)+1000)
	case 6:
		es.Status.Ports[c.dice.IntN(len(es.Status.Ports))].ResolverPort = c.number()
	case 7:
		es.Status.Front = nil
		if c.dice.IntN(3) > 0 {
			es.Status.Front = &v1alpha1.FrontStatus{
				Namespace: "edge", Service: []string{"mc", "web"}[c.dice.IntN(2)], TargetPort: es.Status.Ports[0].Name,
				Hosts: []v1alpha1.FrontHost{v1alpha1.FrontHost(fmt.Sprintf("h%d.example.com", c.dice.IntN(4)))},
			}
			if c.dice.IntN(3) == 0 {
				es.Status.Front.Hosts = append(es.Status.Front.Hosts, route.AllHosts, "steady.example.com")
			}
			es.Status.Front.ResolverPort = c.fronts[map[string]int{"mc": 0, "web": 1}[es.Status.Front.Service]]
		}
	case 8:
		es.Spec.Handoff, es.Status.Mode = v1alpha1.HandoffNever, v1alpha1.ModeProxy
		if c.dice.IntN(2) == 0 {
			es.Spec.Handoff, es.Status.Mode = v1alpha1.HandoffDirect, v1alpha1.ModeServe
		}
	case 9, 10:
		es.Status.Phase = v1alpha1.PhaseAwake
		c.table.SetSlice(c.slice(es))
	case 11:
		es.Status.Phase = []v1alpha1.Phase{v1alpha1.PhaseAsleep, v1alpha1.PhaseFallingAsleep, v1alpha1.PhaseWaking}[c.dice.IntN(3)]
		if c.dice.IntN(2) == 0 {
			c.table.DeleteSlice(c.slice(es))
		}
	}
	c.table.SetService(es)
}

func (c *churn) remove(i int) {
	es := c.services[i]
	if es == nil {
		return
	}
	c.services[i] = nil
	c.table.DeleteService(es.Namespace, es.Name)
	c.table.DeleteSlice(c.slice(es))
}

func (c *churn) addPort(es *v1alpha1.ElasticService) {
	if len(es.Status.Ports) < 4 {
		es.Status.Ports = append(es.Status.Ports, c.port(fmt.Sprintf("p%d", c.dice.IntN(1000)), c.protocol(), c.number()))
	}
}

// number is a resolver port, which may be another service's, too: the older has it.
func (c *churn) number() int32 { return c.numbers[3+c.dice.IntN(len(c.numbers)-3)] }

var churnProtocols = []v1alpha1.Protocol{
	v1alpha1.ProtocolTCP, v1alpha1.ProtocolUDP, v1alpha1.ProtocolHTTP, v1alpha1.ProtocolTLS, v1alpha1.ProtocolMinecraft,
	v1alpha1.ProtocolBedrock, v1alpha1.ProtocolSource, v1alpha1.ProtocolQuake3,
}

func (c *churn) protocol() v1alpha1.Protocol { return churnProtocols[c.dice.IntN(len(churnProtocols))] }

// steadyPlayer plays where nothing changes: each word is echoed, on one connection, and
// on a new one now and then.
func (c *churn) steadyPlayer(ctx context.Context, network, address, first, answer string) {
	said := 0
	for ctx.Err() == nil {
		conn, err := net.Dial(network, address)
		if err != nil {
			c.t.Errorf("a player of %s could not connect: %v", address, err)
			return
		}
		for i := 0; i < 200 && ctx.Err() == nil; i++ {
			word := first
			if i > 0 {
				word = fmt.Sprintf("%s %d", network, said)
			}
			said++
			_ = conn.SetDeadline(time.Now().Add(patience))
			if _, err := io.WriteString(conn, word); err != nil {
				c.t.Errorf("a player of %s could not say %q: %v", address, word, err)
				return
			}
			got := make([]byte, len(answer)+len(word))
			if n, err := io.ReadFull(conn, got); err != nil || string(got) != answer+word {
				c.t.Errorf("a player of %s said %q, as number %d, and heard %q: %v", address, word, i, got[:n], err)
				return
			}
			<-time.After(time.Millisecond)
		}
		_ = conn.Close()
	}
}

// player plays where everything changes. It may be refused, but who was answered over
// TCP once is so until it leaves.
func (c *churn) player(ctx context.Context, dice *rand.Rand) {
	for ctx.Err() == nil {
		protocol := churnProtocols[dice.IntN(len(churnProtocols))]
		network, number := string(networkOf(protocol)), c.numbers[3+dice.IntN(len(c.numbers)-3)]
		said := c.joins[protocol]
		if dice.IntN(4) == 0 {
			network, number, said = "tcp", c.fronts[dice.IntN(2)], login(fmt.Sprintf("h%d.example.com", dice.IntN(5)))
		}
		if dice.IntN(8) == 0 {
			said = said[:1+dice.IntN(len(said))]
		}
		c.play(dice, network, fmt.Sprintf("127.0.0.1:%d", number), said)
	}
}

func (c *churn) play(dice *rand.Rand, network, address, said string) {
	conn, err := net.Dial(network, address)
	if err != nil {
		c.gone.Add(1)
		<-time.After(time.Millisecond)
		return
	}
	defer func() { _ = conn.Close() }()
	if tcp, is := conn.(*net.TCPConn); is && dice.IntN(2) == 0 {
		_ = tcp.SetLinger(0)
	}
	_, _ = io.WriteString(conn, said)
	_ = conn.SetReadDeadline(time.Now().Add(time.Duration(1+dice.IntN(60)) * time.Millisecond))
	buf := make([]byte, 64<<10)
	n, err := io.ReadAtLeast(conn, buf, len(said))
	if err != nil || network == "tcp" && string(buf[:n]) != said {
		c.gone.Add(1)
		return
	}
	c.played.Add(1)
	if network == "udp" || strings.HasPrefix(said, "GET") {
		return // whose server changes may get another, and who is idle may be closed
	}
	for i := range dice.IntN(20) {
		word := fmt.Sprintf("word %d", i)
		_ = conn.SetDeadline(time.Now().Add(patience))
		if _, err := io.WriteString(conn, word); err != nil {
			c.t.Errorf("a player of %s could not say %q: %v", address, word, err)
			return
		}
		if n, err := io.ReadFull(conn, buf[:len(word)]); err != nil || string(buf[:n]) != word {
			c.t.Errorf("a player of %s said %q and heard %q: %v", address, word, buf[:n], err)
			return
		}
		<-time.After(time.Duration(dice.IntN(3)) * time.Millisecond)
	}
}

// inUse is how much memory is in use.
func inUse() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapInuse + m.StackInuse
}

// openSockets is how many sockets are open. Pipes are left out: those of idle relays are kept
// for the next, up to a bound.
func openSockets(t *testing.T) (sockets int) {
	t.Helper()
	all, err := os.ReadDir("/proc/self/fd")
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	for _, file := range all {
		if what, err := os.Readlink("/proc/self/fd/" + file.Name()); err == nil && strings.HasPrefix(what, "socket:") {
			sockets++
		}
	}
	return sockets
}
